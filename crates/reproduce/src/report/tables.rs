//! The tables of a report.

use super::page::Section;
use super::text::{Table, UNKNOWN, number, thousands};
use crate::figure::Statistic;
use crate::findings::{Finding, at};
use crate::measured::ReadOnlyMeasured;
use crate::sweep::{Place, Sweep};
use crate::{Findings, Measured};

/// The explanation of marked throughputs.
const MARK: &str = "+ throughput still rose with the most load that was run";
const GREATEST: &str = "A place that is - stands for the greatest over all places";
const ALL_GREATEST: &str = "Each number of ours is the greatest over all places";

/// A header and the contents of a cell.
type Cell = (String, String);

fn cell(header: impl Into<String>, content: String) -> Cell {
    (header.into(), content)
}

impl Findings {
    pub(super) fn sections(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        if !self.findings.is_empty() {
            let heading = "The paper's numbers and ours";
            let rows = self.findings.iter().map(|finding| self.finding(finding));
            let has_places = self.findings.iter().any(|finding| finding.x.is_some());
            let note = if has_places { GREATEST } else { ALL_GREATEST };
            let note = self.figure.swept.map(|_| note);
            sections.push(Section { heading, table: Table::new(rows), note });
        }
        if self.figure.searches() {
            let rows = self.sweeps.iter().map(|sweep| self.sweep(sweep));
            let (table, note) = (Table::new(rows), Some(MARK));
            sections.push(Section { heading: "Highest throughput", table, note });
        }
        let rows = self.sweeps.iter().flat_map(|sweep| {
            let rows = sweep.runs.iter().flat_map(|run| self.run(sweep, run));
            rows.collect::<Vec<_>>()
        });
        let table = Table::new(rows);
        sections.push(Section { heading: "All runs", table, note: None });
        sections
    }

    /// The panel, if there are several, and the place.
    fn place(&self, panel: &str, x: Option<f64>) -> Vec<Cell> {
        let mut cells = Vec::new();
        if self.figure.panels.len() > 1 {
            cells.push(cell("panel", panel.to_string()));
        }
        if let Some(swept) = self.figure.swept {
            cells.push(cell(swept.parameter.name(), number(x, 3)));
        }
        cells
    }

    fn finding(&self, finding: &Finding) -> Vec<Cell> {
        let unit = finding.unit.map_or(String::new(), |unit| format!(", {unit}"));
        let paper = finding.paper.number();
        let mut row = self.place(finding.panel, finding.x);
        row.extend([
            cell("what", format!("{}: {}{unit}", finding.systems, finding.what)),
            cell("ours", short(finding.ours)),
            cell("paper", paper.map_or(finding.paper.to_string(), |paper| short(Some(paper)))),
            cell("ours/paper", number(finding.ours_over_paper, 2)),
        ]);
        row
    }

    /// The results of a system at its highest throughput.
    fn sweep(&self, sweep: &Sweep) -> Vec<Cell> {
        let run = sweep.at_highest();
        let more = if sweep.saturated == Some(false) { "+" } else { "" };
        let transactions = run.and_then(Measured::transactions);
        let summary = run.map(Measured::summary);
        let low = sweep.runs.first().filter(|_| sweep.saturated.is_some());
        let mut row = self.place(sweep.label, sweep.x);
        row.extend([
            cell("protocol", sweep.protocol.clone()),
            cell("highest/s", format!("{}{more}", thousands(sweep.highest_per_s))),
            cell("O.P./s", thousands(sweep.operating_point_per_s)),
        ]);
        row.extend(self.of_first(sweep));
        row.extend([
            cell("normalized", number(sweep.normalized, 2)),
            cell("before/s", thousands(sweep.dip.map(|dip| dip.before_per_s))),
            cell("lowest/s", thousands(sweep.dip.map(|dip| dip.lowest_per_s))),
            cell("below 90 % s", number(sweep.dip.map(|dip| dip.lasts_s), 2)),
            cell("in the end/s", thousands(sweep.dip.map(|dip| dip.in_the_end_per_s))),
            cell("clients", number(summary.map(|run| run.clients as f64), 0)),
            cell("offered/s", thousands(run.and_then(Measured::offered_per_s))),
            cell("commit %", percent(run.and_then(Measured::commit_rate))),
            cell("re-exec.", number(transactions.map(|run| run.re_executions_per_txn), 2)),
            cell("dropped %", percent(run.and_then(Measured::dropped))),
            cell(
                format!("{} ms", self.figure.latency.label()),
                number(run.and_then(|run| sweep.latency_ms(run)), 2),
            ),
            cell("at low load", number(low.and_then(|run| sweep.latency_ms(run)), 2)),
            cell("msgs", number(summary.map(|run| run.messages_each), 1)),
            cell("CPU %", percent(summary.map(|run| run.replica_cpu))),
        ]);
        row
    }

    /// The throughput of the paper's first system, divided by that of this system.
    fn of_first(&self, sweep: &Sweep) -> Option<Cell> {
        let protocol = self.figure.protocols().next()?;
        let first = at(&self.sweeps, Place { panel: sweep.panel, x: sweep.x, protocol });
        let highest = first.filter(|_| sweep.saturated.is_some() && sweep.protocol != protocol);
        let highest = highest.and_then(|first| first.highest_per_s);
        let ratio = highest.zip(sweep.highest_per_s).map(|(first, own)| first / own);
        let ratio = ratio.filter(|ratio| ratio.is_finite());
        Some(cell(format!("{protocol}/this"), number(ratio, 2)))
    }

    /// A row for each kind of operations of a run that the figure lists.
    fn run(&self, sweep: &Sweep, run: &Measured) -> Vec<Vec<Cell>> {
        let done = run.kinds();
        let kinds = self.figure.kinds.iter().copied();
        let kinds = kinds.filter(|kind| kind.is_none_or(|kind| done.contains(&kind)));
        kinds.map(|kind| self.kind(sweep, run, kind)).collect()
    }

    fn kind(&self, sweep: &Sweep, run: &Measured, kind: Option<&str>) -> Vec<Cell> {
        let summary = run.summary();
        let latency = |statistic| number(run.latency_ms(kind, statistic), 2);
        let quantile = |quantile| latency(Statistic::Quantile(quantile));
        let stale = || run.snapshots()?.staleness.as_ref();
        let mean = |name: &str| run.mean(name);
        let read_only = |of: &dyn Fn(&ReadOnlyMeasured) -> String| {
            run.read_only().map_or(UNKNOWN.to_string(), of)
        };
        let mut row = self.place(sweep.label, sweep.x);
        row.extend([
            cell("protocol", sweep.protocol.clone()),
            cell("clients", summary.clients.to_string()),
            cell("offered/s", thousands(run.offered_per_s())),
            cell(self.figure.per_s(), thousands(Some(summary.per_s))),
            cell("operation", kind.unwrap_or("-").to_string()),
            cell("of kind/s", thousands(kind.map(|kind| run.per_s(Some(kind))))),
            cell("share %", percent(kind.and_then(|kind| run.calls()?.share(kind)))),
            cell("pieces", number(kind.and_then(|kind| run.calls()?.pieces.get(kind).copied()), 2)),
            cell("fresh %", percent(stale().map(|staleness| staleness.fresh))),
            cell("stale p90 ms", number(stale().map(|s| s.stale_us_p90 as f64 / 1e3), 1)),
            cell("stale p99 ms", number(stale().map(|s| s.stale_us_p99 as f64 / 1e3), 1)),
            cell("rounds", number(mean("rounds"), 2)),
            cell("most rounds", number(mean("most_rounds"), 0)),
            cell("blocked %", percent(mean("blocked_share"))),
            cell("metadata B", number(mean("metadata_bytes"), 1)),
            cell("guarantee", read_only(&|run| run.guarantee.clone())),
            cell("writes together", read_only(&|run| yes_or_no(run.write_transactions))),
            cell("omitted %", percent(mean("omitted_share"))),
            cell("mean ms", latency(Statistic::Mean)),
            cell("p50 ms", quantile(0.5)),
            cell("p90 ms", quantile(0.9)),
            cell("p99 ms", quantile(0.99)),
            cell("p99.9 ms", quantile(0.999)),
            cell("commit %", percent(run.commit_rate())),
            cell("dropped %", percent(run.dropped())),
            cell("failed", summary.failed.to_string()),
            cell("msgs", number(Some(summary.messages_each), 1)),
            cell("CPU %", percent(Some(summary.replica_cpu))),
        ]);
        row
    }
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_string()
}

/// A share in percent.
fn percent(share: Option<f64>) -> String {
    number(share.map(|share| share * 100.0), 1)
}

/// A number of any size.
fn short(value: Option<f64>) -> String {
    match value {
        Some(large) if large.abs() >= 1000.0 => thousands(value),
        _ => number(value, 2),
    }
}
