//! `serried compare`: which protocol to take for a workload.

mod advice;

use anyhow::Context;
use clap::{Arg, Args};
use serde::Serialize;
use serried_model::{FamilyName, Geography};
use serried_sim::Stalled;

use self::advice::{Advice, Candidate, Figure, State, advise};
use crate::Ended;
use crate::calibrate::measure_each;
use crate::costs::{CostArguments, CostFile};
use crate::misuse::number;
use crate::progress::Progress;
use crate::sim::Sim;
use crate::table::{self, Columns, Row};
use crate::wing::{Wing, able_protocols, with_wing};

const EXAMPLES: &str = "\
Columns:
  promises         the guarantee of the protocol; `none` is a bound, no choice
  txn/s            committed transactions per second of simulated time; for
                   registers and snapshots req/s, for procedures call/s
  attempts         attempts per committed transaction
  CPU us/txn       CPU time of replicas and clients per committed transaction
  replica CPU %    the share of the replicas' cores that was in use; with
                   --shared-cores the share of all cores that replicas have used
  failed           transactions that ended with an error, as at their deadline
  waiting          clients whose transaction was open at the end of the run, for
                   half of it and ten times the median latency: others kept going
                   before them. No latency has such transactions in it
With --seeds, txn/s and latencies are medians of the runs, failed and waiting are
the greatest numbers, and the others are of the run with the median of txn/s.

Examples:
  serried compare retwis --geo reg --clients 64
  serried compare tpcc --warehouses 10 --clients 100 --partitions 4
  serried compare counter --clients 16 --protocol morty,ncc,occ
  serried compare bank-calls --durability sync --flush-us 900
  serried compare ycsb --geo gryff-5 --replicas 5 --clients 48 --conflicts 0.1
  serried compare --trace accounts.trace --shared-cores 2
  serried calibrate --output costs.toml && serried compare retwis --costs costs.toml";

/// Find out which protocol to take for a workload.
///
/// It runs the workload under every protocol that can serve it, one after the other, in the simulator
/// of `serried sim`, and takes the same options. The table has the most goodput first. Below it, for
/// each guarantee, are the best protocols by goodput, by median latency (p50) and by p99. Those that
/// differ by less than 15 % are as good as each other. One seed determines everything.
///
/// The simulated CPU costs are the built-in ones of another machine, unless --costs names those of
/// this one, or --calibrate measures them first.
#[derive(Args)]
#[command(after_help = EXAMPLES, mut_args = with_defaults)]
pub(crate) struct Compare {
    #[command(flatten)]
    sim: Sim,
    /// Measure what computing costs on this machine first, as `serried calibrate` does; it takes a minute, and with
    /// --shared-cores half a minute more for each protocol of transactions
    #[arg(long, conflicts_with = "costs")]
    calibrate: bool,
    /// How many runs to make of each protocol, each with the next seed; medians are compared
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = number(1..=MOST_SEEDS), conflicts_with = "history")]
    seeds: u64,
}

/// The most seeds.
const MOST_SEEDS: u64 = 99;
/// The longest time that is measured for a trace unless a time is given, in seconds.
const MOST_TRACE_SECONDS: f64 = 10.0;
/// Unless a time is given, a run is measured for this many times the longest round trip of the geography, and at least for
/// this many seconds.
const ROUND_TRIPS: u32 = 20;
const LEAST_SECONDS: f64 = 0.5;
/// If it has committed too little then, it is made again, and is up to this many times as long.
const MOST_EXTENSION: f64 = 10.0;

/// The defaults in which this differs from `serried sim`: a datacentre, and short runs, as there are many.
fn with_defaults(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "geo" => argument.default_value("lan"),
        "seconds" => argument.help(
            "How long to measure, in seconds [default: 20 times the longest round trip of the geography, at least 0.5; with \
             --trace as long as the recording took, at least 1 and at most 10; up to 10 times as long if too little commits]",
        ),
        "warm_up" => argument.default_value("0.3"),
        "cool_down" => argument.default_value("0.05"),
        "protocol" => argument.help(
            "Compare these protocols, separated by commas [default: all that can serve the workload]",
        ),
        _ => argument,
    }
}

/// What one comparison has found, for machines.
#[derive(Serialize)]
struct Compared<'a> {
    workload: &'a str,
    geography: &'a str,
    clients: usize,
    seed: u64,
    /// How many seeds there were, from this one on.
    seeds: u64,
    /// Which CPU costs were simulated.
    costs: &'a str,
    /// By goodput, the most first.
    runs: Vec<Run<'a>>,
    advice: &'a Advice,
}

/// The runs of one protocol.
#[derive(Serialize)]
#[serde(untagged)]
enum Run<'a> {
    Ran {
        promises: &'static str,
        #[serde(flatten)]
        row: &'a Row,
    },
    Stalled {
        promises: &'static str,
        protocol: &'a str,
        stalled: &'a str,
    },
}

/// What became of a protocol.
struct Tried {
    candidate: Candidate,
    /// Its runs, or why they had no end.
    row: Result<Row, String>,
}

impl Compare {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let family = self.sim.workload.family()?;
        with_wing!(family, W => self.run_as::<W>())
    }

    fn run_as<W: Wing>(mut self) -> anyhow::Result<Ended> {
        let geography = self.sim.validate::<W>()?;
        let workload = self.sim.workload.workload::<W>()?;
        let protocols = match self.sim.load.protocol.is_empty() {
            true => able_protocols::<W>(&workload),
            false => self.sim.load.protocols::<W>(&workload)?,
        };
        if self.calibrate {
            let own = self.sim.shared_cores.is_some() && W::NAME == FamilyName::Transactions;
            let own = if own { &protocols[..] } else { &[] };
            self.sim.costs = measured(self.sim.costs, own, self.sim.load.json)?;
        }
        let mut ended = Ended::Well;
        let (mut stalled, mut committed) = (Vec::new(), 0);
        let clients = self.sim.load.clients::<W>(&workload);
        let several = protocols.len() * clients.len() > 1;
        for (number, clients) in clients.into_iter().enumerate() {
            let mut all = Vec::new();
            for protocol in &protocols {
                let (tried, run_ended) =
                    self.measure::<W>(geography, protocol, several, clients)?;
                ended = ended.and(run_ended);
                committed += tried.candidate.committed;
                stalled.extend(tried.row.is_err().then(|| protocol.clone()));
                all.push(tried);
            }
            all.sort_by(|one, other| {
                let goodput = |tried: &Tried| tried.candidate.goodput_per_s;
                goodput(other).total_cmp(&goodput(one))
            });
            if number > 0 && !self.sim.load.json {
                println!();
            }
            self.print(geography, clients, &all)?;
        }
        if ended == Ended::Well {
            anyhow::ensure!(stalled.is_empty(), "clients stalled under {}", stalled.join(", "));
            anyhow::ensure!(
                committed > 0,
                "no protocol has committed anything in the measured time: choose a longer --seconds, or see what failed"
            );
        }
        Ok(ended)
    }

    /// Makes all runs of a protocol. If no time is given, they are as long as it takes to commit enough.
    fn measure<W: Wing>(
        &mut self,
        geography: Geography,
        protocol: &str,
        several: bool,
        clients: usize,
    ) -> anyhow::Result<(Tried, Ended)> {
        let (seed, given) = (self.sim.load.seed, self.sim.load.seconds);
        if given.is_none() {
            let usual = (geography.longest_round_trip(0) * ROUND_TRIPS).as_secs_f64();
            let of_trace = self.sim.workload.trace.usual_seconds(MOST_TRACE_SECONDS)?;
            self.sim.load.seconds = Some(of_trace.unwrap_or(usual.max(LEAST_SECONDS)));
        }
        let mut ended = Ended::Well;
        let mut rows: Vec<Row> = Vec::new();
        let (mut stalled, mut may_extend) = (None, given.is_none());
        while rows.len() < self.seeds as usize && stalled.is_none() {
            self.sim.load.seed = seed.wrapping_add(rows.len() as u64);
            let run = self.sim.run_once::<W>(geography, protocol, several, clients);
            match run {
                Ok((row, run_ended)) => {
                    ended = ended.and(run_ended);
                    rows.push(row);
                }
                Err(error) => stalled = Some(stall(error)?),
            }
            // The first one shows how long they have to be.
            if let ([row], true) = (&rows[..], std::mem::take(&mut may_extend))
                && let Some(seconds) = extended(row, self.sim.load.measured().as_secs_f64())
            {
                self.sim.load.seconds = Some(seconds);
                rows.clear();
            }
        }
        (self.sim.load.seed, self.sim.load.seconds) = (seed, given);
        let state = match (&stalled, ended) {
            (_, Ended::Violation) => State::Violates,
            (Some(_), _) => State::Stalled,
            (None, _) => State::Ran,
        };
        let row = stalled.map_or_else(|| Ok(medians(rows)), Err);
        let candidate = candidate(protocol, clients, state, row.as_ref().ok());
        Ok((Tried { candidate, row }, ended))
    }

    fn print(&self, geography: Geography, clients: usize, all: &[Tried]) -> anyhow::Result<()> {
        let Sim { load, costs, workload, .. } = &self.sim;
        let workload = &workload.title()?;
        let candidates: Vec<Candidate> = all.iter().map(|tried| tried.candidate.clone()).collect();
        let advice = advise(&candidates);
        if load.json {
            let compared = Compared {
                workload,
                geography: geography.name,
                clients,
                seed: load.seed,
                seeds: self.seeds,
                costs: &costs.origin(),
                runs: all.iter().map(Tried::for_machines).collect(),
                advice: &advice,
            };
            println!("{}", serde_json::to_string(&compared)?);
            return Ok(());
        }
        let last = load.seed.wrapping_add(self.seeds - 1);
        let seeds = match self.seeds {
            1 => format!("seed {}", load.seed),
            _ => format!("seeds {} to {last}, medians", load.seed),
        };
        println!(
            "{seeds}: {workload} with {clients} clients in simulated `{}`, CPU costs: {}",
            geography.name,
            costs.origin()
        );
        let unit = unit(all);
        print_table(all, unit);
        println!("\nAdvice; what differs by less than 15 % is as good:");
        for line in advice.lines(unit) {
            println!("  {line}");
        }
        Ok(())
    }
}

/// How a run had no end, if that is what has gone wrong.
fn stall(error: anyhow::Error) -> anyhow::Result<String> {
    match error.downcast_ref::<Stalled>() {
        Some(stalled) => Ok(stalled.to_string()),
        None => Err(error),
    }
}

/// How long a run has to be, in seconds, if it was too short to commit enough.
fn extended(row: &Row, seconds: f64) -> Option<f64> {
    let (least, committed) = (Figure::P99.least_committed(), row.report.committed);
    // A little more, as other runs commit less.
    let factor = 1.2 * least as f64 / committed.max(1) as f64;
    (committed < least).then(|| seconds * factor.min(MOST_EXTENSION))
}

/// The median of runs, with the medians of what is compared, and the greatest numbers of failures and of clients that
/// wait.
fn medians(mut rows: Vec<Row>) -> Row {
    let middle = (rows.len() - 1) / 2;
    let median = |figure: fn(&Row) -> u64| {
        let mut figures: Vec<u64> = rows.iter().map(figure).collect();
        figures.sort_unstable();
        figures[middle]
    };
    let most = |figure: fn(&Row) -> u64| rows.iter().map(figure).max().unwrap_or(0);
    let p50 = median(|row| row.report.latency_us_p50);
    let p99 = median(|row| row.report.latency_us_p99);
    let [failed, unknown, waiting] = [
        most(|row| row.report.failed),
        most(|row| row.report.unknown),
        most(|row| row.report.waiting),
    ];
    let mut errors = rows.iter().filter(|row| row.report.failed == failed);
    let last_error = errors.find_map(|row| row.report.last_error.clone());
    let wrong = rows.iter().find(|row| row.verdict.as_deref() == Some("violation"));
    let verdict = wrong.and_then(|row| row.verdict.clone());
    rows.sort_by(|one, other| one.report.goodput_per_s.total_cmp(&other.report.goodput_per_s));
    let mut row = rows.swap_remove(middle);
    row.report.latency_us_p50 = p50;
    row.report.latency_us_p99 = p99;
    (row.report.failed, row.report.unknown, row.report.waiting) = (failed, unknown, waiting);
    row.report.last_error = last_error.or(row.report.last_error);
    row.verdict = verdict.or(row.verdict);
    if let Some(simulation) = &mut row.simulation {
        // The output depends on nothing but the arguments.
        simulation.events_per_second = None;
    }
    row
}

impl Tried {
    fn for_machines(&self) -> Run<'_> {
        let Candidate { protocol, guarantee, .. } = &self.candidate;
        let promises = guarantee.name();
        match &self.row {
            Ok(row) => Run::Ran { promises, row },
            Err(stalled) => Run::Stalled { promises, protocol, stalled },
        }
    }
}

/// The costs of this machine, in place of those that the arguments name, and on one machine those of each of these protocols.
fn measured(
    arguments: CostArguments,
    own: &[String],
    quiet: bool,
) -> anyhow::Result<CostArguments> {
    let calibrate = serried_calibrate::Calibrate::usual();
    let progress = Progress::new(quiet);
    let report = |what: String| progress.say(format!("calibrating: {what}"));
    let calibration = calibrate.run(report).context("can't measure what computing costs")?;
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let own = measure_each(&calibrate, &own, report)?;
    Ok(arguments.with_measured(CostFile::new(&calibration, &own)))
}

/// What is compared of a protocol. Without a row it has done nothing.
fn candidate(protocol: &str, clients: usize, state: State, row: Option<&Row>) -> Candidate {
    let info = serried_protocols::info(protocol).expect("it has run");
    let count = |figure: fn(&Row) -> u64| row.map_or(0, figure);
    let ms = |figure: fn(&Row) -> u64| count(figure) as f64 / 1e3;
    Candidate {
        protocol: protocol.to_string(),
        guarantee: info.guarantee,
        state,
        clients,
        committed: count(|row| row.report.committed),
        failed: count(|row| row.report.failed),
        waiting: count(|row| row.report.waiting),
        goodput_per_s: row.map_or(0.0, |row| row.report.goodput_per_s),
        latency_ms_p50: ms(|row| row.report.latency_us_p50),
        latency_ms_p99: ms(|row| row.report.latency_us_p99),
    }
}

/// What is counted.
fn unit(all: &[Tried]) -> &'static str {
    match all.iter().find_map(|tried| tried.row.as_ref().ok()).map(|row| row.columns) {
        Some(Columns::Operations) => "req",
        Some(Columns::Calls) => "call",
        Some(Columns::Transactions) | None => "txn",
    }
}

fn print_table(all: &[Tried], unit: &str) {
    let rate = format!("{unit}/s");
    let cpu = format!("CPU us/{unit}");
    let messages = format!("msgs/{unit}");
    let header = [
        "protocol",
        "promises",
        &rate,
        "p50 ms",
        "p99 ms",
        "attempts",
        "failed",
        "waiting",
        &cpu,
        &messages,
        "replica CPU %",
    ];
    let lines = all.iter().map(|Tried { candidate, row }| {
        let Candidate { goodput_per_s, latency_ms_p50, latency_ms_p99, .. } = candidate;
        let mut line = vec![candidate.protocol.clone(), candidate.guarantee.to_string()];
        let Ok(row) = row else {
            line.push("stalled".to_string());
            line.resize(header.len(), "-".to_string());
            return line;
        };
        line.extend([
            format!("{goodput_per_s:.0}"),
            format!("{latency_ms_p50:.2}"),
            format!("{latency_ms_p99:.2}"),
            format!("{:.3}", row.report.attempts_per_txn),
            row.report.failed.to_string(),
            row.report.waiting.to_string(),
        ]);
        let simulation = row.simulation.as_ref().expect("the run was simulated");
        line.push(format!("{:.1}", simulation.cpu_us_per_txn));
        line.extend(simulation.cells());
        line
    });
    table::print_aligned(&header, lines);
    table::print_errors(all.iter().filter_map(|tried| tried.row.as_ref().ok()));
    for Tried { candidate, row } in all {
        if let Err(why) = row {
            println!("{}, {} clients: {why}", candidate.protocol, candidate.clients);
        }
    }
}

#[cfg(test)]
mod tests {
    use serried_actor::Timestamp;

    use super::*;

    #[test]
    fn a_stall_is_no_error_of_the_command() {
        let stalled = Stalled {
            protocol: "morty",
            seed: 7,
            at: Timestamp(9),
            unfinished: 1,
            clients: vec![3],
        };
        let text = stalled.to_string();
        let error = Err::<(), _>(stalled).context("morty with 4 clients").unwrap_err();
        assert_eq!(stall(error).unwrap(), text);
        assert!(stall(anyhow::anyhow!("the machine lacks resources")).is_err());
        let candidate = candidate("morty", 4, State::Stalled, None);
        let tried = Tried { candidate, row: Err(text.clone()) };
        let seen = serde_json::to_value(tried.for_machines()).unwrap();
        let expected =
            serde_json::json!({ "promises": "serializable", "protocol": "morty", "stalled": text });
        assert_eq!(seen, expected);
    }

    /// A run in which nothing has happened.
    fn row() -> Row {
        let second = std::time::Duration::from_secs(1);
        let none = std::time::Duration::ZERO;
        let window = serried_workload::Window::new(Timestamp(0), none, second, none);
        Row {
            protocol: "morty".to_string(),
            workload: "counter".to_string(),
            columns: Columns::Transactions,
            clients: 4,
            report: serried_workload::Measurement::new(window).report(),
            figures: std::collections::BTreeMap::new(),
            costs: None,
            simulation: None,
            verdict: None,
        }
    }

    #[test]
    fn medians_are_compared_and_the_most_failures_and_waiting_clients() {
        let run = |goodput_per_s, [p50, p99, failed, unknown, waiting]: [u64; 5]| {
            let mut row = row();
            row.report.goodput_per_s = goodput_per_s;
            (row.report.latency_us_p50, row.report.latency_us_p99) = (p50, p99);
            (row.report.failed, row.report.unknown, row.report.waiting) =
                (failed, unknown, waiting);
            row.report.last_error = (failed > 0).then(|| format!("error {failed}"));
            row
        };
        let mut rows = vec![
            run(10.0, [50, 900, 0, 2, 3]),
            run(30.0, [10, 700, 4, 0, 0]),
            run(20.0, [30, 800, 1, 1, 5]),
        ];
        rows[0].verdict = Some("violation".to_string());
        rows[2].verdict = Some("serializable".to_string());
        for _ in 0..rows.len() {
            rows.rotate_left(1);
            let row = medians(rows.clone());
            let report = &row.report;
            let found = [
                report.goodput_per_s as u64,
                report.latency_us_p50,
                report.latency_us_p99,
                report.failed,
                report.unknown,
                report.waiting,
            ];
            assert_eq!(found, [20, 30, 800, 4, 2, 5]);
            assert_eq!(report.last_error.as_deref(), Some("error 4"));
            assert_eq!(row.verdict.as_deref(), Some("violation"));
        }
        // Of two, the worse one.
        assert_eq!(medians(rows[..2].to_vec()).report.goodput_per_s, 10.0);
    }

    #[test]
    fn a_run_that_commits_too_little_is_made_longer_up_to_a_bound() {
        let of = |committed| {
            let mut row = row();
            row.report.committed = committed;
            extended(&row, 2.0)
        };
        assert_eq!(Figure::P99.least_committed(), 500);
        assert_eq!([of(500), of(10_000)], [None, None]);
        assert_eq!(of(250), Some(2.0 * 1.2 * 2.0));
        assert_eq!([of(10), of(0)], [Some(20.0); 2]);
    }
}
