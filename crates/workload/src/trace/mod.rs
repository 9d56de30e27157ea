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

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_model::{Form, Key, ReportedModification, TransactionReport};

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
    /// The connection to the node was lost.
    Lost,
}

impl core::fmt::Display for Bound {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Bound::Time => "its time was over",
            Bound::Transactions => "it had as many transactions as it may have",
            Bound::Bytes => "it had as many bytes as it may have",
            Bound::Stopped => "it was stopped",
            Bound::Lost => "the connection to the node was lost",
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
    /// How many transactions are missing: reports of them were dropped under load, or were such as no transaction can
    /// have.
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
        let mut known = HashSet::with_capacity(keys.len());
        for key in &keys {
            if !is_possible_key(key) {
                return Err("it has a key that is empty, or longer than any can be".to_string());
            }
            if !known.insert(key) {
                return Err("it has a key twice".to_string());
            }
        }
        let mut ended = vec![None; clients as usize + 1];
        let mut latest = 0;
        let mut held = HeldBytes::default();
        for (number, TracedTransaction { client, what }) in transactions.iter().enumerate() {
            let wrong = |what: &str| Err(format!("transaction {number} {what}"));
            let before = ended[*client as usize].replace(what.ended_ns);
            if what.began_ns < latest || before.is_some_and(|before| what.began_ns < before) {
                return wrong("begins before those that come before it");
            }
            if what.ended_ns > header.lasted_ns {
                return wrong("ends after the recording");
            }
            if what.keys().any(|key| *key as usize >= keys.len()) {
                return wrong("has a key that the trace does not have");
            }
            if let Some(why) = impossible(what, |key| keys[*key as usize].len()) {
                return wrong(why);
            }
            for (key, bytes) in held_lengths(what) {
                held.note(*key, bytes);
            }
            latest = what.began_ns;
        }
        if ended.contains(&None) {
            return Err("it has a client without transactions".to_string());
        }
        if held.all > MOST_HELD_BYTES {
            return Err(format!(
                "its keys hold {} bytes together, and {MOST_HELD_BYTES} is the most that can be run",
                held.all
            ));
        }
        Ok(Trace { header, keys, transactions, clients: clients + 1 })
    }
}

/// The longest value that a trace can have, in bytes. It fits into a frame of the usual size.
const MOST_VALUE_BYTES: u32 = 32 << 20;
/// The most bytes of keys and values that a transaction of a trace writes.
const MOST_TRANSACTION_BYTES: u64 = 48 << 20;
/// The longest key that a trace can have, in bytes.
const MOST_KEY_BYTES: usize = 64 << 10;
/// The most bytes that the keys of a trace hold together, each as many as the longest of its values has: a run loads
/// them.
const MOST_HELD_BYTES: u64 = 4 << 30;

fn is_possible_key(key: &Key) -> bool {
    (1..=MOST_KEY_BYTES).contains(&key.len())
}

/// Why no transaction can have been like this, if so. Its keys have these lengths.
fn impossible<K>(
    what: &TransactionReport<K>,
    key_bytes: impl Fn(&K) -> usize,
) -> Option<&'static str> {
    if what.ended_ns < what.began_ns {
        return Some("ends before it begins");
    }
    if lengths(what).any(|bytes| bytes > MOST_VALUE_BYTES) {
        return Some("has a value that is longer than any can be");
    }
    if what.form == Form::ReadOnly && !(what.writes.is_empty() && what.modifies.is_empty()) {
        return Some("was announced as one that only reads, and writes");
    }
    let written =
        written_lengths(what).map(|(key, bytes)| key_bytes(key) as u64 + u64::from(bytes));
    (written.sum::<u64>() > MOST_TRANSACTION_BYTES).then_some("writes more than any can")
}

/// By key, as a number: the length of the longest value that it holds; and the sum of these.
#[derive(Debug, Default)]
struct HeldBytes {
    of_keys: HashMap<u32, u32>,
    all: u64,
}

impl HeldBytes {
    /// By how much the sum grows if a key holds so many bytes.
    fn growth(&self, key: u32, bytes: u32) -> u64 {
        u64::from(bytes.saturating_sub(self.of_keys.get(&key).copied().unwrap_or(0)))
    }

    fn note(&mut self, key: u32, bytes: u32) {
        self.all += self.growth(key, bytes);
        let longest = self.of_keys.entry(key).or_default();
        *longest = bytes.max(*longest);
    }
}

/// The keys of a transaction with the lengths of the values that they hold before and after it, where it tells.
fn held_lengths<K>(what: &TransactionReport<K>) -> impl Iterator<Item = (&K, u32)> {
    let reads = what.reads.iter().map(|read| (&read.key, read.bytes.unwrap_or(0)));
    reads.chain(written_lengths(what))
}

/// The keys that a transaction writes or modifies, with the lengths of the values that it does this with.
fn written_lengths<K>(what: &TransactionReport<K>) -> impl Iterator<Item = (&K, u32)> {
    let writes = what.writes.iter().map(|write| (&write.key, write.bytes.unwrap_or(0)));
    let modified = what.modifies.iter().flat_map(|modify| {
        modify.modifications.iter().map(|modification| (&modify.key, length(*modification)))
    });
    writes.chain(modified)
}

/// The lengths of the values that a transaction reads and writes.
fn lengths<K>(what: &TransactionReport<K>) -> impl Iterator<Item = u32> {
    held_lengths(what).map(|(_, bytes)| bytes)
}

/// The length of the value that a modification carries.
fn length(modification: ReportedModification) -> u32 {
    match modification {
        ReportedModification::Number => 0,
        ReportedModification::Append(bytes) => bytes,
        ReportedModification::Replace(bytes) => bytes.unwrap_or(0),
    }
}
