//! What one run came to.

use core::fmt;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figure::Statistic;

/// The kind under which requests to registers are counted as a whole.
pub(crate) const REQUEST: &str = "request";

/// What one run came to, in the time that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measured(pub(crate) OfFamily);

/// What a run of either family came to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum OfFamily {
    Transactions(TransactionsMeasured),
    Registers(RegistersMeasured),
}

/// What is known of every run.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// How many clients there were.
    pub clients: usize,
    /// Transactions or requests that were done.
    pub done: u64,
    /// Those that were given up.
    pub failed: u64,
    /// Transactions or requests that were done each second.
    pub per_s: f64,
    /// Messages for each of them.
    pub messages_each: f64,
    /// The share of the replicas' cores that was in use.
    pub replica_cpu: f64,
    /// How long was measured, in simulated seconds.
    pub seconds: f64,
    /// The hash of all events of the run.
    pub event_hash: &'a str,
}

impl Measured {
    /// What is known of every run.
    pub fn summary(&self) -> Summary<'_> {
        match &self.0 {
            OfFamily::Transactions(run) => Summary {
                clients: run.clients,
                done: run.committed,
                failed: run.failed,
                per_s: run.goodput_per_s,
                messages_each: run.messages_per_txn,
                replica_cpu: run.replica_cpu,
                seconds: run.seconds,
                event_hash: &run.event_hash,
            },
            OfFamily::Registers(run) => Summary {
                clients: run.clients,
                done: run.kind(REQUEST).map_or(0, |requests| requests.count),
                failed: run.failed,
                per_s: run.kind(REQUEST).map_or(0.0, |requests| requests.per_s),
                messages_each: run.messages_per_request,
                replica_cpu: run.replica_cpu,
                seconds: run.seconds,
                event_hash: &run.event_hash,
            },
        }
    }

    /// The kinds of operations that were done; without those of transactions in closed loops, which are not kept.
    pub fn kinds(&self) -> Vec<&str> {
        match &self.0 {
            OfFamily::Transactions(run) => {
                run.open.iter().flat_map(|open| &open.kinds).map(|of| &*of.kind).collect()
            }
            OfFamily::Registers(run) => {
                run.kinds.iter().map(|of| &*of.kind).filter(|kind| *kind != REQUEST).collect()
            }
        }
    }

    /// How many operations of a kind were done each second, or of all kinds.
    pub(crate) fn per_s(&self, kind: Option<&str>) -> f64 {
        let Some(kind) = kind else { return self.summary().per_s };
        match &self.0 {
            OfFamily::Transactions(run) => run.kind(kind).map_or(0.0, |of| of.per_s),
            OfFamily::Registers(run) => run.kind(kind).map_or(0.0, |of| of.per_s),
        }
    }

    /// A latency of operations of a kind, or of all kinds, in milliseconds; none if it was not kept.
    pub(crate) fn latency_ms(&self, kind: Option<&str>, statistic: Statistic) -> Option<f64> {
        match &self.0 {
            OfFamily::Transactions(run) => {
                let of_kind = match kind {
                    None => None,
                    Some(kind) => Some(run.kind(kind)?),
                };
                let [mean, median, p99] = match of_kind {
                    None => [
                        Some(run.latency_ms_mean),
                        Some(run.latency_ms_p50),
                        Some(run.latency_ms_p99),
                    ],
                    Some(of) => [None, Some(of.latency_ms_p50), Some(of.latency_ms_p99)],
                };
                match statistic {
                    Statistic::Mean => mean,
                    Statistic::Quantile(0.5) => median,
                    Statistic::Quantile(0.99) => p99,
                    Statistic::Quantile(_) => None,
                }
            }
            OfFamily::Registers(run) => {
                let of_kind = run.kind(kind.unwrap_or(REQUEST))?;
                match statistic {
                    Statistic::Mean => Some(of_kind.mean_ms),
                    Statistic::Quantile(quantile) => of_kind.quantile_ms(quantile),
                }
            }
        }
    }

    /// What is known of transactions only.
    pub(crate) fn transactions(&self) -> Option<&TransactionsMeasured> {
        match &self.0 {
            OfFamily::Transactions(run) => Some(run),
            OfFamily::Registers(_) => None,
        }
    }

    /// What is known of operations on registers only.
    pub(crate) fn registers(&self) -> Option<&RegistersMeasured> {
        match &self.0 {
            OfFamily::Transactions(_) => None,
            OfFamily::Registers(run) => Some(run),
        }
    }

    /// What is known of clients in open loops only.
    pub(crate) fn open(&self) -> Option<&OpenMeasured> {
        self.transactions()?.open.as_ref()
    }

    /// How many transactions arrived each second, if they did so in open loops.
    pub(crate) fn offered_per_s(&self) -> Option<f64> {
        Some(self.open()?.rate_per_s)
    }

    /// The share of transactions that were dropped, of those that arrived.
    pub(crate) fn dropped(&self) -> Option<f64> {
        let open = self.open()?;
        Some(open.dropped as f64 / (open.rate_per_s * self.summary().seconds).max(1.0))
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            OfFamily::Transactions(run) => match &run.open {
                None => {
                    let committed = run.commit_rate * 100.0;
                    write!(f, "{:.0} txn/s, {committed:.1} % of attempts commit", run.goodput_per_s)
                }
                Some(OpenMeasured { rate_per_s, .. }) => {
                    let (per_s, ms) = (run.goodput_per_s, run.latency_ms_p50);
                    write!(f, "{per_s:.0} of {rate_per_s:.0} txn/s, median latency {ms:.2} ms")
                }
            },
            OfFamily::Registers(run) => {
                let kinds = run.kinds.iter().map(|kind| {
                    format!("{} {:.0}/s with {:.1} ms", kind.kind, kind.per_s, kind.mean_ms)
                });
                f.write_str(&kinds.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// What a run of transactions came to.
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
    /// How long was measured, in simulated seconds.
    pub(crate) seconds: f64,
    /// The hash of all events of the run.
    pub(crate) event_hash: String,
    /// What else there is to know of clients in open loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open: Option<OpenMeasured>,
}

/// What a run of clients in open loops came to besides.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct OpenMeasured {
    /// How many transactions arrived each second.
    pub(crate) rate_per_s: f64,
    /// How many of them were not begun, as their clients had too many others open.
    pub(crate) dropped: u64,
    /// The same by kinds of transactions.
    pub(crate) kinds: Vec<OfKind>,
    /// What all replicas and clients have counted of themselves, by the names of their gauges, since the run
    /// began; only what says how a protocol has fared.
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

/// What a run of operations on registers came to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RegistersMeasured {
    /// How many clients there were.
    pub(crate) clients: usize,
    /// Messages per request.
    pub(crate) messages_per_request: f64,
    /// The share of the replicas' cores that was in use.
    pub(crate) replica_cpu: f64,
    /// How long was measured, in simulated seconds.
    pub(crate) seconds: f64,
    /// Requests that failed.
    pub(crate) failed: u64,
    /// Operations by their kinds, and requests, which is what they are together: the latency of a request is
    /// that of its slowest operation.
    pub(crate) kinds: Vec<KindMeasured>,
    /// The hash of all events of the run.
    pub(crate) event_hash: String,
}

/// Operations of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct KindMeasured {
    /// The kind.
    pub(crate) kind: String,
    /// How many were done each second.
    pub(crate) per_s: f64,
    /// How many were done.
    pub(crate) count: u64,
    /// Mean latency in milliseconds.
    pub(crate) mean_ms: f64,
    /// What shares of them stayed within how many milliseconds: percent by percent up to 99 %, then ten
    /// for each power of ten up to 99.99 %.
    pub(crate) quantiles_ms: Vec<f64>,
}

/// The shares of operations for which latencies are kept: percent by percent, and then the tail, ten for
/// each power of ten up to 99.99 %.
pub(crate) fn quantiles() -> Vec<f64> {
    let percents = (1..=99).map(|percent| f64::from(percent) / 100.0);
    let tail = (21..=40).map(|tenth| 1.0 - 10f64.powf(-f64::from(tenth) / 10.0));
    percents.chain(tail).collect()
}

impl KindMeasured {
    /// What so large a share stayed within, in milliseconds; the next larger share that is kept.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let place = quantiles().iter().position(|kept| *kept >= quantile - 1e-9)?;
        self.quantiles_ms.get(place).copied()
    }
}

impl TransactionsMeasured {
    /// Transactions of a kind; none if none committed, or clients were in closed loops.
    fn kind(&self, kind: &str) -> Option<&OfKind> {
        self.open.as_ref()?.kinds.iter().find(|of| of.kind == kind)
    }
}

impl RegistersMeasured {
    /// Operations of a kind; none if there were none.
    pub(crate) fn kind(&self, kind: &str) -> Option<&KindMeasured> {
        self.kinds.iter().find(|of| of.kind == kind)
    }
}

#[cfg(test)]
impl From<TransactionsMeasured> for Measured {
    fn from(run: TransactionsMeasured) -> Measured {
        Measured(OfFamily::Transactions(run))
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
