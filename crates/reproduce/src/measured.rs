//! What one run came to.

use std::collections::BTreeMap;

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
    /// What else there is to know of clients in open loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenMeasured>,
}

/// What a run of clients in open loops came to besides.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OpenMeasured {
    /// How many transactions arrived each second.
    pub rate_per_s: f64,
    /// How many of them were not begun, as their clients had too many others open.
    pub dropped: u64,
    /// The same by kinds of transactions.
    pub kinds: Vec<OfKind>,
    /// What all replicas and clients have counted of themselves, by the names of their gauges, since the run
    /// began; only what says how a protocol has fared.
    pub counted: BTreeMap<String, u64>,
    /// Transactions committed per second in each quarter of a second from the beginning, if clients
    /// die.
    pub over_time: Vec<f64>,
}

/// Transactions of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OfKind {
    /// The kind.
    pub kind: String,
    /// How many committed each second.
    pub per_s: f64,
    /// Median latency, from the arrival to the commit, in milliseconds.
    pub latency_ms_p50: f64,
    /// 99th percentile.
    pub latency_ms_p99: f64,
}

impl Measured {
    /// Transactions of a kind; none if none committed.
    pub(crate) fn kind(&self, kind: &str) -> Option<&OfKind> {
        self.open.as_ref()?.kinds.iter().find(|of| of.kind == kind)
    }

    /// How many transactions arrived each second; 0 if clients were in closed loops.
    pub(crate) fn rate_per_s(&self) -> f64 {
        self.open.as_ref().map_or(0.0, |open| open.rate_per_s)
    }
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
            open: None,
        }
    }
}

#[cfg(test)]
impl OpenMeasured {
    /// A run in which nothing arrived.
    pub(crate) fn nothing() -> OpenMeasured {
        OpenMeasured {
            rate_per_s: 0.0,
            dropped: 0,
            kinds: Vec::new(),
            counted: BTreeMap::new(),
            over_time: Vec::new(),
        }
    }
}
