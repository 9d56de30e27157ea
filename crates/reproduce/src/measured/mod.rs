//! What one run came to.

mod registers;
mod transactions;

use core::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use registers::{KindMeasured, REQUEST, RegistersMeasured, quantiles};
pub(crate) use transactions::{OfKind, OpenMeasured, TransactionsMeasured};

use crate::figure::Statistic;

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

/// What a run of any family tells.
trait Run: fmt::Display {
    fn summary(&self) -> Summary<'_>;
    fn kinds(&self) -> Vec<&str>;
    fn per_s(&self, kind: &str) -> f64;
    fn latency_ms(&self, kind: Option<&str>, statistic: Statistic) -> Option<f64>;
}

impl Measured {
    fn run(&self) -> &dyn Run {
        match &self.0 {
            OfFamily::Transactions(run) => run,
            OfFamily::Registers(run) => run,
        }
    }

    /// What is known of every run.
    pub fn summary(&self) -> Summary<'_> {
        self.run().summary()
    }

    /// The kinds of operations that were done. Those of transactions in closed loops are not kept.
    pub fn kinds(&self) -> Vec<&str> {
        self.run().kinds()
    }

    /// How many operations of a kind were done each second, or of all kinds.
    pub(crate) fn per_s(&self, kind: Option<&str>) -> f64 {
        kind.map_or(self.summary().per_s, |kind| self.run().per_s(kind))
    }

    /// A latency of operations of a kind, or of all kinds, in milliseconds; none if it was not kept.
    pub(crate) fn latency_ms(&self, kind: Option<&str>, statistic: Statistic) -> Option<f64> {
        self.run().latency_ms(kind, statistic)
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
        self.run().fmt(f)
    }
}
