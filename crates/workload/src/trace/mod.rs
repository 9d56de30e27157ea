//! Traces: what the clients of a keyspace did for a while, to be repeated elsewhere.
//!
//! ```text
//! clients ──TransactionReport──▶ TraceBuilder ──Trace──▶ file ──Trace──▶ Replay, a Workload
//! ```
//!
//! A trace has the keys of committed transactions, perhaps hashed, and the lengths of values, but no values. Only
//! traces of transactions exist.

mod builder;
mod file;
mod replay;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_model::{Key, TransactionReport};

pub use builder::{TraceBounds, TraceBuilder};
pub use file::TraceError;
pub use replay::{Replay, TRACE};

/// Why a recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Bound {
    /// Its time was over.
    Time,
    /// It had as many transactions as it may have.
    Transactions,
    /// It had as many bytes as it may have.
    Bytes,
    /// It was stopped.
    Stopped,
}

impl core::fmt::Display for Bound {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Bound::Time => "its time was over",
            Bound::Transactions => "it had as many transactions as it may have",
            Bound::Bytes => "it had as many bytes as it may have",
            Bound::Stopped => "it was stopped",
        })
    }
}

/// Where a trace comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The family of the keyspace, by its name. This program knows only `transactions`.
    pub family: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the keyspace.
    pub keyspace: String,
    /// The protocol of the keyspace.
    pub protocol: String,
    /// When the recording began, in seconds since the Unix epoch.
    pub recorded_at_s: u64,
    /// How long it lasted, in nanoseconds.
    pub lasted_ns: u64,
    /// Why it ended.
    pub bound: Bound,
    /// How many transactions were not recorded because reports of them were dropped under load.
    pub missed: u64,
    /// Whether hashes stand for the keys.
    pub hashed_keys: bool,
}

impl TraceHeader {
    /// How long the recording lasted.
    pub fn lasted(&self) -> Duration {
        Duration::from_nanos(self.lasted_ns)
    }
}

/// A transaction of a trace. Keys are numbers in the order of [`Trace::keys`], and times count from the beginning of
/// the recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedTransaction {
    /// The client that ran it, one after the other: from 0.
    pub client: u32,
    /// What it did.
    pub what: TransactionReport<u32>,
}

/// A trace. Its parts fit together: [`TraceBuilder`] and [`Trace::decode`] make no others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    header: TraceHeader,
    keys: Vec<Key>,
    /// In the order in which they began.
    transactions: Vec<TracedTransaction>,
    clients: u32,
}

impl Trace {
    /// Where it comes from.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Its keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Its transactions, in the order in which they began; at least one.
    pub fn transactions(&self) -> &[TracedTransaction] {
        &self.transactions
    }

    /// How many clients it has: the greatest number of transactions that were open at once, of each connection.
    pub fn clients(&self) -> usize {
        self.clients as usize
    }

    /// Puts the parts together.
    ///
    /// # Errors
    /// If they do not fit. The error says why.
    fn new(
        header: TraceHeader,
        keys: Vec<Key>,
        transactions: Vec<TracedTransaction>,
    ) -> Result<Trace, String> {
        let clients = transactions.iter().map(|txn| txn.client).max();
        let Some(clients) = clients else { return Err("it has no transactions".to_string()) };
        if clients as usize >= transactions.len() {
            return Err("it has more clients than transactions".to_string());
        }
        let mut ended = vec![None; clients as usize + 1];
        let mut latest = 0;
        for (number, TracedTransaction { client, what }) in transactions.iter().enumerate() {
            let wrong = |what: &str| Err(format!("transaction {number} {what}"));
            let before = ended[*client as usize].replace(what.ended_ns);
            if what.began_ns < latest || before.is_some_and(|before| what.began_ns < before) {
                return wrong("begins before those that come before it");
            }
            if what.ended_ns < what.began_ns || what.ended_ns > header.lasted_ns {
                return wrong("ends before it begins, or after the recording");
            }
            if what.keys().any(|key| *key as usize >= keys.len()) {
                return wrong("has a key that the trace does not have");
            }
            if lengths(what).any(|bytes| bytes > MOST_VALUE_BYTES) {
                return wrong("has a value that is longer than any can be");
            }
            latest = what.began_ns;
        }
        if ended.contains(&None) {
            return Err("it has a client without transactions".to_string());
        }
        Ok(Trace { header, keys, transactions, clients: clients + 1 })
    }
}

/// The longest value that a trace can have, in bytes.
const MOST_VALUE_BYTES: u32 = 1 << 28;

/// The lengths of the values that a transaction reads and writes.
fn lengths<K>(what: &TransactionReport<K>) -> impl Iterator<Item = u32> {
    use serried_model::ReportedModification::{Append, Number, Replace};
    let reads = what.reads.iter().filter_map(|read| read.bytes);
    let writes = what.writes.iter().filter_map(|write| write.bytes);
    let modified = what.modifies.iter().flat_map(|modify| &modify.modifications);
    reads.chain(writes).chain(modified.filter_map(|modification| match modification {
        Number => None,
        Append(bytes) => Some(*bytes),
        Replace(bytes) => *bytes,
    }))
}
