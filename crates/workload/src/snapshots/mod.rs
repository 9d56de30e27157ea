//! Workloads of snapshots: read-only transactions of many keys, groups of single writes, and write transactions.

mod client;
mod draw;
mod eiger;
mod history;
mod mix;
mod staleness;
mod versions;
mod ycsb;

use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serried_model::{Key, Value};

use crate::number;

pub use client::{SnapshotClient, SnapshotLoop};
pub use eiger::Eiger;
pub use history::{attribute, begin_after};
pub use mix::SnapshotMix;
pub use staleness::{Staleness, StalenessReport};
pub use versions::Versions;
pub use ycsb::YcsbGroups;

/// Where the numbers that are written have the client's.
const CLIENT_SHIFT: u32 = 40;

/// A planned request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlannedSnapshot {
    /// A read-only transaction of numbered keys.
    Read(Vec<u64>),
    /// Writes of numbered keys, which are in progress at the same time. A value stands for a number; `None` deletes
    /// the key.
    Write(Vec<(u64, Option<u64>)>),
    /// One write transaction of numbered keys, which are different: every session sees all of its writes or none. The
    /// keyspace must have write transactions.
    WriteTogether(Vec<(u64, Option<u64>)>),
}

impl PlannedSnapshot {
    /// The kind of request: `read-only` or `write`. Results are reported per kind.
    pub fn kind(&self) -> &'static str {
        match self {
            PlannedSnapshot::Read(_) => "read-only",
            PlannedSnapshot::Write(_) | PlannedSnapshot::WriteTogether(_) => "write",
        }
    }
}

/// A workload of snapshots: it plans requests, and maps numbers to keys and values.
pub trait SnapshotWorkload: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The next request of a client, which has made `number` requests before.
    fn plan(&self, client: u64, number: u64, random: &mut Pcg64Mcg) -> PlannedSnapshot;

    /// The greatest number of writes that are in progress at the same time. In a history each has a process of its own.
    fn width(&self) -> u64 {
        1
    }

    /// Whether it can be done only where there are write transactions.
    fn needs_write_transactions(&self) -> bool {
        false
    }

    /// The same workload with write transactions, for keyspaces that have them. `None` if it is the same in all
    /// keyspaces.
    fn with_write_transactions(&self) -> Option<Arc<dyn SnapshotWorkload>> {
        None
    }

    /// How many keys there are. Their numbers are the least ones.
    fn keys(&self) -> u64;

    /// The value of every key before a run, if keys are loaded.
    fn initial(&self) -> Option<Value> {
        None
    }

    /// The key with this number.
    fn key(&self, number: u64) -> Key {
        number::key(number, 8)
    }

    /// The value that stands for a number.
    fn value(&self, number: u64) -> Value {
        number::value(number, 8)
    }

    /// The number that a value stands for.
    fn number(&self, value: &Value) -> u64 {
        number::number(value)
    }
}

/// What workloads of snapshots can be told.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct SnapshotParameters {
    /// The share of requests that write. The workload's own default if `None`.
    pub writes: Option<f64>,
    /// How many keys there are. The workload's own default if `None`.
    pub keys: Option<u64>,
    /// The exponent of the Zipf distribution from which keys are drawn; 0 is uniform. If it is `None`, `ycsb-groups`
    /// has 0.99 and `eiger` 0.8.
    pub theta: Option<f64>,
    /// The length of a key in bytes, at least 8; 8 if `None`.
    pub key_bytes: Option<usize>,
    /// The length of a value in bytes, at least 8. For `eiger` it is the length of a column. If it is `None`,
    /// `ycsb-groups` has 1000 and `eiger` 128.
    pub value_bytes: Option<usize>,
    /// How many keys a request has; 5 if `None`.
    pub keys_per_request: Option<u64>,
}
