//! What one run came to.

use serde::{Deserialize, Serialize};

/// What one run came to, in the time that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// How many clients there were.
    pub clients: usize,
    /// Committed transactions per second.
    pub goodput_per_s: f64,
    /// Committed transactions per attempt.
    pub commit_rate: f64,
    /// Re-executions per committed transaction.
    pub re_executions_per_txn: f64,
    /// Mean latency, from the first attempt to the commit, in milliseconds.
    pub latency_ms_mean: f64,
    /// Median latency.
    pub latency_ms_p50: f64,
    /// 99th percentile.
    pub latency_ms_p99: f64,
    /// Messages per committed transaction.
    pub messages_per_txn: f64,
    /// The share of the replicas' cores that was in use.
    pub replica_cpu: f64,
    /// Transactions committed.
    pub committed: u64,
    /// Transactions that were given up.
    pub failed: u64,
    /// How long was measured, in simulated seconds.
    pub seconds: f64,
    /// The hash of all events of the run.
    pub event_hash: String,
}

#[cfg(test)]
impl Measured {
    /// A run in which nothing happened.
    pub(crate) fn nothing() -> Measured {
        Measured {
            clients: 0,
            goodput_per_s: 0.0,
            commit_rate: 0.0,
            re_executions_per_txn: 0.0,
            latency_ms_mean: 0.0,
            latency_ms_p50: 0.0,
            latency_ms_p99: 0.0,
            messages_per_txn: 0.0,
            replica_cpu: 0.0,
            committed: 0,
            failed: 0,
            seconds: 0.0,
            event_hash: String::new(),
        }
    }
}
