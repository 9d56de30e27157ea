//! All runs as comma-separated values, for other tools.

use crate::figure::Statistic;
use crate::sweep::Sweep;
use crate::{Findings, Measured};

const HEADER: &str = "figure,panel,x,protocol,clients,offered_per_s,is_highest,throughput_per_s,commit_rate,\
re_executions_per_txn,dropped,operation,operation_per_s,latency_ms_mean,latency_ms_p50,latency_ms_p90,latency_ms_p99,\
latency_ms_p999,messages_each,replica_cpu,done,failed,seconds,event_hash\n";

/// A line for each run, and one for each kind of operations in it. A line for all kinds has none. Cells without a
/// number are empty. Nothing in it needs quotes.
pub(super) fn csv(findings: &Findings) -> String {
    let mut text = HEADER.to_string();
    for sweep in &findings.sweeps {
        let highest = sweep.peak();
        for run in &sweep.runs {
            let is_highest = highest.is_some_and(|highest| core::ptr::eq(highest, run));
            let kinds = run.kinds().into_iter().map(Some);
            for kind in core::iter::once(None).chain(kinds) {
                text.push_str(&line(findings.name, sweep, run, kind, is_highest));
            }
        }
    }
    text
}

fn line(
    figure: &str,
    sweep: &Sweep,
    run: &Measured,
    kind: Option<&str>,
    is_highest: bool,
) -> String {
    let summary = run.summary();
    let transactions = run.transactions();
    let latency = |statistic| cell(run.latency_ms(kind, statistic));
    let quantile = |quantile| latency(Statistic::Quantile(quantile));
    let cells = [
        figure.to_string(),
        sweep.label.to_string(),
        cell(sweep.x),
        sweep.protocol.clone(),
        summary.clients.to_string(),
        cell(run.offered_per_s()),
        is_highest.to_string(),
        summary.per_s.to_string(),
        cell(run.commit_rate()),
        cell(transactions.map(|run| run.re_executions_per_txn)),
        cell(run.dropped()),
        kind.unwrap_or_default().to_string(),
        run.per_s(kind).to_string(),
        latency(Statistic::Mean),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
        summary.messages_each.to_string(),
        summary.replica_cpu.to_string(),
        summary.done.to_string(),
        summary.failed.to_string(),
        summary.seconds.to_string(),
        summary.event_hash.to_string(),
    ];
    cells.join(",") + "\n"
}

fn cell(number: Option<f64>) -> String {
    number.map_or(String::new(), |number| number.to_string())
}
