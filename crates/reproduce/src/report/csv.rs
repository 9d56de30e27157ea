//! All runs as comma-separated values, for other tools.

use crate::Findings;

const HEADER: &str = "figure,panel,x,protocol,clients,is_peak,goodput_per_s,commit_rate,\
re_executions_per_txn,latency_ms_mean,latency_ms_p50,latency_ms_p99,messages_per_txn,replica_cpu,\
committed,failed,seconds,event_hash\n";

/// One line for each run. Nothing in it needs quotes.
pub(super) fn csv(findings: &Findings) -> String {
    let mut text = HEADER.to_string();
    for sweep in &findings.sweeps {
        let peak = sweep.peak().map(|peak| peak.clients);
        for run in &sweep.points {
            let x = sweep.x.map_or(String::new(), |x| x.to_string());
            let cells = [
                findings.figure.name.to_string(),
                sweep.label.to_string(),
                x,
                sweep.protocol.clone(),
                run.clients.to_string(),
                (peak == Some(run.clients)).to_string(),
                run.goodput_per_s.to_string(),
                run.commit_rate.to_string(),
                run.re_executions_per_txn.to_string(),
                run.latency_ms_mean.to_string(),
                run.latency_ms_p50.to_string(),
                run.latency_ms_p99.to_string(),
                run.messages_per_txn.to_string(),
                run.replica_cpu.to_string(),
                run.committed.to_string(),
                run.failed.to_string(),
                run.seconds.to_string(),
                run.event_hash.clone(),
            ];
            text.push_str(&cells.join(","));
            text.push('\n');
        }
    }
    text
}
