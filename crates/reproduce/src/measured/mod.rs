//! The result of one run.

mod procedures;
mod read_only;
mod registers;
mod snapshots;
mod transactions;

use core::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use procedures::CallsMeasured;
pub(crate) use read_only::ReadOnlyMeasured;
pub(crate) use registers::{KindMeasured, REQUEST, RegistersMeasured, quantiles};
pub(crate) use snapshots::SnapshotsMeasured;
pub(crate) use transactions::{OfKind, OpenMeasured, TransactionsMeasured};

use crate::figure::Statistic;

/// The result of one run, for the measured time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measured(pub(crate) OfFamily);

/// The result of a run of any family.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum OfFamily {
    ReadOnly(ReadOnlyMeasured),
    Transactions(TransactionsMeasured),
    Snapshots(SnapshotsMeasured),
    Registers(RegistersMeasured),
    Procedures(CallsMeasured),
}

/// The numbers that every run has.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// How many clients there were.
    pub clients: usize,
    /// How many transactions or requests were done.
    pub done: u64,
    /// How many were given up.
    pub failed: u64,
    /// Transactions or requests that were done each second.
    pub per_s: f64,
    /// Messages for each of them.
    pub messages_each: f64,
    /// The share of the replicas' cores that was in use.
    pub replica_cpu: f64,
    /// The length of the measurement, in simulated seconds.
    pub seconds: f64,
    /// The hash of all events of the run.
    pub event_hash: &'a str,
}

/// The results that runs of all families have.
trait Run: fmt::Display {
    fn summary(&self) -> Summary<'_>;
    fn kinds(&self) -> Vec<&str>;
    fn per_s(&self, kind: &str) -> f64;
    fn latency_ms(&self, kind: Option<&str>, statistic: Statistic) -> Option<f64>;
}

impl Measured {
    fn run(&self) -> &dyn Run {
        match &self.0 {
            OfFamily::ReadOnly(run) => run,
            OfFamily::Transactions(run) => run,
            OfFamily::Snapshots(run) => run,
            OfFamily::Registers(run) => run,
            OfFamily::Procedures(run) => run,
        }
    }

    /// The numbers that every run has.
    pub fn summary(&self) -> Summary<'_> {
        self.run().summary()
    }

    /// The kinds of operations that were done. For transactions in closed loops, kinds are not kept.
    pub fn kinds(&self) -> Vec<&str> {
        self.run().kinds()
    }

    /// How many operations of a kind were done each second, or of all kinds.
    pub(crate) fn per_s(&self, kind: Option<&str>) -> f64 {
        kind.map_or(self.summary().per_s, |kind| self.run().per_s(kind))
    }

    /// A latency of operations of a kind, or of all kinds, in milliseconds. `None` if it was not kept.
    pub(crate) fn latency_ms(&self, kind: Option<&str>, statistic: Statistic) -> Option<f64> {
        self.run().latency_ms(kind, statistic)
    }

    /// The result, if it is one of transactions.
    pub(crate) fn transactions(&self) -> Option<&TransactionsMeasured> {
        match &self.0 {
            OfFamily::Transactions(run) => Some(run),
            _ => None,
        }
    }

    /// The result, if it is one of calls.
    pub(crate) fn calls(&self) -> Option<&CallsMeasured> {
        match &self.0 {
            OfFamily::Procedures(run) => Some(run),
            _ => None,
        }
    }

    /// The result, if it is one of read-only transactions and writes.
    pub(crate) fn snapshots(&self) -> Option<&SnapshotsMeasured> {
        match &self.0 {
            OfFamily::Snapshots(run) => Some(run),
            _ => None,
        }
    }

    /// The result, if it is one of read-only transactions under any protocol.
    pub(crate) fn read_only(&self) -> Option<&ReadOnlyMeasured> {
        match &self.0 {
            OfFamily::ReadOnly(run) => Some(run),
            _ => None,
        }
    }

    /// A mean of this name, if the run has one.
    pub(crate) fn mean(&self, name: &str) -> Option<f64> {
        match &self.0 {
            OfFamily::ReadOnly(run) => run.means.get(name).copied(),
            OfFamily::Snapshots(run) => run.means.get(name).copied(),
            _ => None,
        }
    }

    /// What took effect, per attempt. `None` for registers, which have no attempts.
    pub(crate) fn commit_rate(&self) -> Option<f64> {
        match &self.0 {
            OfFamily::Transactions(run) => Some(run.commit_rate),
            OfFamily::Registers(_) | OfFamily::Snapshots(_) | OfFamily::ReadOnly(_) => None,
            OfFamily::Procedures(run) => Some(run.commit_rate),
        }
    }

    /// The result, if it is one of operations on registers.
    pub(crate) fn registers(&self) -> Option<&RegistersMeasured> {
        match &self.0 {
            OfFamily::Registers(run) => Some(run),
            _ => None,
        }
    }

    /// The results of open loops, if clients were in open loops.
    pub(crate) fn open(&self) -> Option<&OpenMeasured> {
        match &self.0 {
            OfFamily::Transactions(run) => run.open.as_ref(),
            OfFamily::Registers(_) | OfFamily::Snapshots(_) | OfFamily::ReadOnly(_) => None,
            OfFamily::Procedures(run) => run.open.as_ref(),
        }
    }

    /// How many transactions arrived each second, if clients were in open loops.
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
        self.run().fmt(f)
    }
}
