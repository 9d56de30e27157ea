//! The result of a run of transactions.

use core::fmt;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Run, Summary};
use crate::figure::Statistic;

/// The result of a run of transactions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct TransactionsMeasured {
    /// How many clients there were.
    pub(crate) clients: usize,
    /// Committed transactions per second.
    pub(crate) goodput_per_s: f64,
    /// Committed transactions per attempt.
    pub(crate) commit_rate: f64,
    /// Re-executions per committed transaction.
    pub(crate) re_executions_per_txn: f64,
    /// Mean latency, from the first attempt to the commit, in milliseconds.
    pub(crate) latency_ms_mean: f64,
    /// Median latency.
    pub(crate) latency_ms_p50: f64,
    /// 99th percentile.
    pub(crate) latency_ms_p99: f64,
    /// Messages per committed transaction.
    pub(crate) messages_per_txn: f64,
    /// The share of the replicas' cores that was in use.
    pub(crate) replica_cpu: f64,
    /// Transactions committed.
    pub(crate) committed: u64,
    /// Transactions that were given up.
    pub(crate) failed: u64,
    /// The length of the measurement, in simulated seconds.
    pub(crate) seconds: f64,
    /// The hash of all events of the run.
    pub(crate) event_hash: String,
    /// Further results of clients in open loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open: Option<OpenMeasured>,
}

/// The further results of clients in open loops.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct OpenMeasured {
    /// How many transactions arrived each second.
    pub(crate) rate_per_s: f64,
    /// How many of them were not begun, because their clients had too many others open.
    pub(crate) dropped: u64,
    /// The results by kind of transactions. Empty for calls, whose kinds are kept in closed loops, too.
    pub(crate) kinds: Vec<OfKind>,
    /// The sums of the gauges of all replicas and clients, by name, since the run began. Only gauges about how
    /// transactions have fared.
    pub(crate) counted: BTreeMap<String, u64>,
    /// Transactions committed per second in each quarter of a second from the beginning, if clients
    /// die.
    pub(crate) over_time: Vec<f64>,
}

/// Transactions of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct OfKind {
    /// The kind.
    pub(crate) kind: String,
    /// How many committed each second.
    pub(crate) per_s: f64,
    /// Median latency, from the arrival to the commit, in milliseconds.
    pub(crate) latency_ms_p50: f64,
    /// 99th percentile.
    pub(crate) latency_ms_p99: f64,
}

impl TransactionsMeasured {
    /// Transactions of a kind. `None` if none committed, or clients were in closed loops.
    fn kind(&self, kind: &str) -> Option<&OfKind> {
        self.open.as_ref()?.kinds.iter().find(|of| of.kind == kind)
    }
}

impl Run for TransactionsMeasured {
    fn summary(&self) -> Summary<'_> {
        Summary {
            clients: self.clients,
            done: self.committed,
            failed: self.failed,
            per_s: self.goodput_per_s,
            messages_each: self.messages_per_txn,
            replica_cpu: self.replica_cpu,
            seconds: self.seconds,
            event_hash: &self.event_hash,
        }
    }

    fn kinds(&self) -> Vec<&str> {
        self.open.iter().flat_map(|open| &open.kinds).map(|of| &*of.kind).collect()
    }

    fn per_s(&self, kind: &str) -> f64 {
        self.kind(kind).map_or(0.0, |of| of.per_s)
    }

    fn latency_ms(&self, kind: Option<&str>, statistic: Statistic) -> Option<f64> {
        let (mean, median, p99) = match kind {
            None => (Some(self.latency_ms_mean), self.latency_ms_p50, self.latency_ms_p99),
            Some(kind) => {
                let of = self.kind(kind)?;
                (None, of.latency_ms_p50, of.latency_ms_p99)
            }
        };
        match statistic {
            Statistic::Mean => mean,
            Statistic::Quantile(0.5) => Some(median),
            Statistic::Quantile(0.99) => Some(p99),
            Statistic::Quantile(_) => None,
        }
    }
}

impl fmt::Display for TransactionsMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_s = self.goodput_per_s;
        match &self.open {
            None => {
                write!(f, "{per_s:.0} txn/s, {:.1} % of attempts commit", self.commit_rate * 100.0)
            }
            Some(OpenMeasured { rate_per_s, .. }) => {
                let ms = self.latency_ms_p50;
                write!(f, "{per_s:.0} of {rate_per_s:.0} txn/s, median latency {ms:.2} ms")
            }
        }
    }
}

#[cfg(test)]
impl From<TransactionsMeasured> for super::Measured {
    fn from(run: TransactionsMeasured) -> super::Measured {
        super::Measured(super::OfFamily::Transactions(run))
    }
}

#[cfg(test)]
impl TransactionsMeasured {
    /// A run in which nothing happened.
    pub(crate) fn nothing() -> TransactionsMeasured {
        TransactionsMeasured {
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
