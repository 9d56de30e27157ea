//! The result of a run of read-only transactions that contend with writes.

use core::fmt;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Run, Summary};
use crate::figure::Statistic;

/// The result of a run of read-only transactions that contend with writes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ReadOnlyMeasured {
    /// How many clients only read.
    pub(crate) readers: usize,
    /// How many clients only write.
    pub(crate) writers: usize,
    /// Read-only transactions.
    pub(crate) done: u64,
    /// Requests that failed.
    pub(crate) failed: u64,
    /// Read-only transactions per second.
    pub(crate) per_s: f64,
    /// Their mean latency in milliseconds.
    pub(crate) latency_ms_mean: f64,
    /// Messages per read-only transaction, those of writes included.
    pub(crate) messages_each: f64,
    /// The length of the measurement, in simulated seconds.
    pub(crate) seconds: f64,
    /// What the protocol promises.
    pub(crate) guarantee: String,
    /// Whether several keys are written together.
    pub(crate) write_transactions: bool,
    /// The mean of further numbers, by name: `rounds` and `metadata_bytes` of read-only transactions, their
    /// `most_rounds`, and the `blocked_share`: how many, of those with one attempt, some server did not answer at
    /// once.
    pub(crate) means: BTreeMap<String, f64>,
    /// The hash of all events of the run.
    pub(crate) event_hash: String,
}

impl Run for ReadOnlyMeasured {
    fn summary(&self) -> Summary<'_> {
        Summary {
            clients: self.readers + self.writers,
            done: self.done,
            failed: self.failed,
            per_s: self.per_s,
            messages_each: self.messages_each,
            replica_cpu: 0.0,
            seconds: self.seconds,
            event_hash: &self.event_hash,
        }
    }

    fn kinds(&self) -> Vec<&str> {
        Vec::new()
    }

    fn per_s(&self, _: &str) -> f64 {
        0.0
    }

    fn latency_ms(&self, _: Option<&str>, statistic: Statistic) -> Option<f64> {
        (statistic == Statistic::Mean).then_some(self.latency_ms_mean)
    }
}

impl fmt::Display for ReadOnlyMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} read-only transactions", self.done)?;
        self.means.iter().try_for_each(|(name, mean)| write!(f, ", {name} {mean:.2}"))
    }
}
