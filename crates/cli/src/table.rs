//! Results, for people and for machines.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serried_workload::{ArrivalReport, Report};

/// What the columns mean, for the help of the commands that print them.
const COLUMNS: &str = "\
Columns, of the measured part of a run:
  txn/s, commit %  committed transactions per second; committed transactions per
                   attempt
  attempts         attempts per committed transaction
  re-exec.         re-executions per committed transaction, in its last attempt
  offered, done %, dropped %
                   with --rate: transactions or calls that arrived per second, and
                   the shares of them that were done, and that were dropped because
                   their client had too many open; the others failed
  late ms          with --rate: the mean time between a transaction's arrival
                   and its beginning, because the client itself was behind; it
                   is part of the latencies
  p50 ... p99.9    latency from the first attempt to the commit, with --rate
                   from the arrival
  CPU us/txn       CPU time of nodes and clients per committed transaction; then
                   each alone; `-` if a node was restarted meanwhile
  msgs, flushes    messages sent, and writes to connections, per committed
                   transaction
  rolled back      tpcc only, by transaction: aborted by the program, as TPC-C
                   specifies; no failure
  latency_us_p50   f1, f1-wf and tao: the median of transactions that only read,
                   and of the others
  new orders       tpcc only: per second and minute. It is no audited tpmC:
                   clients do not wait
  window, bound    counter only: the mean serialization window, and 1 divided by
                   it
  replica CPU %    simulations only: the share of the replicas' cores that was
                   in use; with --shared-cores the share of all cores that
                   replicas have used
For registers, req/s is requests per second. A request is one operation, except
in tail-at-scale. Costs are per request. A second table has the latencies of
reads, writes and read-modify-writes.
For snapshots, a request is a read-only transaction or a group of writes. A
third table has the means of rounds and of metadata bytes per read-only
transaction, and the share of writes that were omitted; and if keys have
versions, the share of values that were the newest acknowledged ones when they
were read, and for how long the others had not been (004 §7.5).
For procedures, call/s is calls that took effect per second, commit % is per
attempt, and attempts are per call that took effect. Calls that a check of their
procedure has refused are no failures. A second table has the latencies of each
procedure.

";

/// The end of such a command's help: what the columns mean, and its examples.
pub(crate) fn help(examples: &str) -> String {
    format!("{COLUMNS}{examples}")
}

/// Which columns there are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columns {
    /// For transactions: how many commit, in how many attempts.
    Transactions,
    /// For requests of single operations: how many succeed, and then the operations by their kinds.
    Operations,
    /// For calls of procedures: the same, and how many are refused.
    Calls,
}

/// One run.
#[derive(Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) protocol: String,
    pub(crate) workload: String,
    #[serde(skip)]
    pub(crate) columns: Columns,
    pub(crate) clients: usize,
    #[serde(flatten)]
    pub(crate) report: Report,
    /// Figures by which the workload is usually compared, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) figures: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) costs: Option<Costs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) simulation: Option<Simulation>,
    /// The guarantee that the history keeps, such as `serializable`; `violation`; or why it can't be decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<String>,
}

/// What a transaction cost on real hardware.
#[derive(Clone, Serialize)]
pub(crate) struct Costs {
    /// `None` if that of the servers is not known.
    pub(crate) cpu_us_per_txn: Option<f64>,
    /// `None` if a server was restarted or did not answer.
    pub(crate) server_cpu_us_per_txn: Option<f64>,
    pub(crate) client_cpu_us_per_txn: f64,
    pub(crate) messages_per_txn: f64,
    pub(crate) flushes_per_txn: f64,
}

impl Costs {
    fn cells(&self) -> [String; 5] {
        let known = |us: Option<f64>| us.map_or("-".to_string(), |us| format!("{us:.1}"));
        [
            known(self.cpu_us_per_txn),
            known(self.server_cpu_us_per_txn),
            format!("{:.1}", self.client_cpu_us_per_txn),
            format!("{:.2}", self.messages_per_txn),
            format!("{:.2}", self.flushes_per_txn),
        ]
    }
}

/// What is known of a simulated run.
#[derive(Clone, Serialize)]
pub(crate) struct Simulation {
    pub(crate) geography: String,
    pub(crate) seed: u64,
    pub(crate) event_hash: String,
    pub(crate) events: u64,
    /// How fast the simulator was, if that is to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events_per_second: Option<f64>,
    pub(crate) messages_per_txn: f64,
    /// The CPU time of replicas and clients per committed transaction.
    pub(crate) cpu_us_per_txn: f64,
    /// The share of the replicas' cores that was in use.
    pub(crate) replica_cpu: f64,
}

impl Simulation {
    pub(crate) fn cells(&self) -> [String; 2] {
        [format!("{:.2}", self.messages_per_txn), format!("{:.1}", self.replica_cpu * 100.0)]
    }
}

fn milliseconds(us: u64) -> String {
    format!("{:.2}", us as f64 / 1e3)
}

/// Prints the rows as a table, or as one line of JSON each.
pub(crate) fn print(rows: &[Row], json: bool) {
    if json {
        for row in rows {
            println!("{}", serde_json::to_string(row).expect("rows have no strange keys"));
        }
        return;
    }
    if rows.iter().all(|row| row.columns != Columns::Transactions) {
        print_operations(rows, rows.iter().all(|row| row.columns == Columns::Calls));
        return;
    }
    let costs = rows.iter().any(|row| row.costs.is_some());
    let simulated = rows.iter().any(|row| row.simulation.is_some());
    // The windows of a single key bound its throughput.
    let windows = rows.iter().any(|row| row.workload == "counter");
    let open_loop = rows.iter().any(|row| row.report.arrivals.is_some());
    let mut header = vec!["protocol", "clients"];
    if open_loop {
        header.extend(ARRIVALS);
    }
    header.extend([
        "txn/s", "commit %", "attempts", "re-exec.", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms",
    ]);
    if costs {
        header.extend(["CPU us/txn", "servers", "clients", "msgs/txn", "flushes/txn"]);
    }
    if windows {
        header.extend(["window ms", "bound txn/s"]);
    }
    if simulated {
        header.extend(["msgs/txn", "replica CPU %"]);
    }
    let lines = rows.iter().map(|row| {
        let Report { goodput_per_s, commit_rate, .. } = row.report;
        let mut line = vec![row.protocol.clone(), row.clients.to_string()];
        if open_loop {
            line.extend(arrivals(row.report.arrivals.as_ref()));
        }
        line.extend([
            format!("{goodput_per_s:.0}"),
            format!("{:.2}", commit_rate * 100.0),
            format!("{:.3}", row.report.attempts_per_txn),
            format!("{:.3}", row.report.re_executions_per_txn),
            milliseconds(row.report.latency_us_p50),
            milliseconds(row.report.latency_us_p90),
            milliseconds(row.report.latency_us_p99),
            milliseconds(row.report.latency_us_p999),
        ]);
        line.extend(row.costs.iter().flat_map(Costs::cells));
        if windows {
            let us = row.report.serialization_window_us;
            line.push(us.map_or("-".to_string(), |us| format!("{:.3}", us / 1e3)));
            line.push(us.map_or("-".to_string(), |us| format!("{:.0}", 1e6 / us)));
        }
        line.extend(row.simulation.iter().flat_map(Simulation::cells));
        line
    });
    print_aligned(&header, lines);
    print_errors(rows);
    for row in rows.iter().filter(|row| !row.figures.is_empty()) {
        print_kinds(row);
    }
}

/// Says of each run in which something has failed what the last error was.
pub(crate) fn print_errors<'a>(rows: impl IntoIterator<Item = &'a Row>) {
    for Row { protocol, clients, report, .. } in rows {
        let has_failed = report.failed > 0 || report.committed == 0;
        if let Some(error) = report.last_error.as_ref().filter(|_| has_failed) {
            println!(
                "{protocol}, {clients} clients: {} failed, the last with: {error}",
                report.failed
            );
        }
    }
}

/// The columns of an open loop.
const ARRIVALS: [&str; 4] = ["offered", "done %", "dropped %", "late ms"];

/// What became of what arrived in an open loop.
fn arrivals(arrivals: Option<&ArrivalReport>) -> [String; 4] {
    let Some(ArrivalReport { offered, done, dropped, offered_per_s, late_us_mean, .. }) = arrivals
    else {
        return ["-"; 4].map(str::to_string);
    };
    let percent = |count: &u64| format!("{:.2}", *count as f64 * 100.0 / *offered as f64);
    let late = format!("{:.3}", late_us_mean / 1e3);
    [format!("{offered_per_s:.0}"), percent(done), percent(dropped), late]
}

/// Prints requests, and then operations by their kinds; or calls, and then calls by their procedures.
fn print_operations(rows: &[Row], calls: bool) {
    let unit = |per: &str| format!("{per}{}", if calls { "call" } else { "req" });
    let rate = format!("{}/s", unit(""));
    let [cpu, messages, flushes] = ["CPU us/", "msgs/", "flushes/"].map(unit);
    let open_loop = rows.iter().any(|row| row.report.arrivals.is_some());
    let mut header = vec!["protocol", "clients"];
    if open_loop {
        header.extend(ARRIVALS);
    }
    header.push(&rate);
    if calls {
        header.extend(["commit %", "attempts", "refused"]);
    }
    header.extend(["failed", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms"]);
    if rows.iter().any(|row| row.costs.is_some()) {
        header.extend([&cpu, "servers", "clients", &messages, &flushes]);
    }
    if rows.iter().any(|row| row.simulation.is_some()) {
        header.extend([&messages, "replica CPU %"]);
    }
    let lines = rows.iter().map(|Row { protocol, clients, report, costs, simulation, .. }| {
        let mut line = vec![protocol.clone(), clients.to_string()];
        if open_loop {
            line.extend(arrivals(report.arrivals.as_ref()));
        }
        line.push(format!("{:.0}", report.goodput_per_s));
        if calls {
            line.extend([
                format!("{:.2}", report.commit_rate * 100.0),
                format!("{:.3}", report.attempts_per_txn),
                report.rolled_back.to_string(),
            ]);
        }
        line.extend([
            report.failed.to_string(),
            milliseconds(report.latency_us_p50),
            milliseconds(report.latency_us_p90),
            milliseconds(report.latency_us_p99),
            milliseconds(report.latency_us_p999),
        ]);
        line.extend(costs.iter().flat_map(Costs::cells));
        line.extend(simulation.iter().flat_map(Simulation::cells));
        line
    });
    print_aligned(&header, lines);
    print_errors(rows);
    println!();
    let [kind, rate] = if calls { ["procedure", "call/s"] } else { ["operation", "op/s"] };
    let mut header = vec!["protocol", "clients", kind, rate];
    header.extend(calls.then_some("refused"));
    header.extend(["failed", "mean ms", "p50 ms", "p99 ms", "p99.9 ms"]);
    let kinds = rows.iter().flat_map(|row| row.report.kinds.iter().map(move |kind| (row, kind)));
    let lines = kinds.map(|(row, kind)| {
        let mut line = vec![
            row.protocol.clone(),
            row.clients.to_string(),
            kind.kind.to_string(),
            format!("{:.0}", kind.goodput_per_s),
        ];
        line.extend(calls.then(|| kind.rolled_back.to_string()));
        line.extend([
            kind.failed.to_string(),
            format!("{:.2}", kind.latency_us_mean / 1e3),
            milliseconds(kind.latency_us_p50),
            milliseconds(kind.latency_us_p99),
            milliseconds(kind.latency_us_p999),
        ]);
        line
    });
    print_aligned(&header, lines);
    print_figures(rows);
}

/// Prints the figures of all rows, a column for each, if there are any.
fn print_figures(rows: &[Row]) {
    let names: BTreeSet<&'static str> =
        rows.iter().flat_map(|row| row.figures.keys().copied()).collect();
    if names.is_empty() {
        return;
    }
    println!();
    let mut header = vec!["protocol", "clients"];
    header.extend(&names);
    let lines = rows.iter().map(|row| {
        let figure = |name| row.figures.get(name).map_or("-".into(), |f| format!("{f:.3}"));
        let mut line = vec![row.protocol.clone(), row.clients.to_string()];
        line.extend(names.iter().map(figure));
        line
    });
    print_aligned(&header, lines);
}

/// Prints what a run came to by kind of transaction, and the figures of its workload.
fn print_kinds(row: &Row) {
    println!("\n{}, {} clients, by transaction:", row.protocol, row.clients);
    let header =
        ["transaction", "txn/s", "rolled back", "failed", "mean ms", "p50 ms", "p90 ms", "p99 ms"];
    let lines = row.report.kinds.iter().map(|kind| {
        vec![
            kind.kind.to_string(),
            format!("{:.1}", kind.goodput_per_s),
            kind.rolled_back.to_string(),
            kind.failed.to_string(),
            format!("{:.2}", kind.latency_us_mean / 1e3),
            milliseconds(kind.latency_us_p50),
            milliseconds(kind.latency_us_p90),
            milliseconds(kind.latency_us_p99),
        ]
    });
    print_aligned(&header, lines);
    for (name, figure) in &row.figures {
        println!("{name}: {figure:.1}");
    }
}

/// Prints lines in columns.
pub(crate) fn print_aligned(header: &[&str], lines: impl Iterator<Item = Vec<String>>) {
    let lines: Vec<Vec<String>> =
        core::iter::once(header.iter().map(ToString::to_string).collect()).chain(lines).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    for line in lines {
        let cells =
            line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
