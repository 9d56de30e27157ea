//! What a client reports of its transactions while they are recorded.

use serde::{Deserialize, Serialize};

use crate::Modification;

/// A committed transaction as its client has run it, so that it can be run again elsewhere. It has the lengths of
/// values and not the values. `K` stands for a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransactionReport<K> {
    /// When its first attempt began, in nanoseconds by the client's monotonic clock.
    pub began_ns: u64,
    /// When the client knew that it had committed.
    pub ended_ns: u64,
    /// How many attempts it took. All of them are one transaction.
    pub attempts: u32,
    /// How the program had asked for it.
    pub form: Form,
    /// What the last run of its program has read, in the order in which it first asked for each key.
    pub reads: Vec<ReportedRead<K>>,
    /// What it has written.
    pub writes: Vec<ReportedWrite<K>>,
    /// The keys that it has modified without looking at their values.
    pub modifies: Vec<ReportedModify<K>>,
}

/// How a program asks for a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Form {
    /// A program that reads and writes.
    Program,
    /// A program that is announced as one that only reads.
    ReadOnly,
    /// A batch, of which everything is known before it begins.
    Batch,
}

/// A read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReportedRead<K> {
    /// The key.
    pub key: K,
    /// Reads of one round were requested together. A later round was requested when something of an earlier one was
    /// known.
    pub round: u32,
    /// Whether it was a read for update.
    pub for_update: bool,
    /// The length of the value in bytes, or `None` if the key was absent.
    pub bytes: Option<u32>,
}

/// A write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReportedWrite<K> {
    /// The key.
    pub key: K,
    /// The length of the value in bytes, or `None` if the key was deleted.
    pub bytes: Option<u32>,
}

/// The modifications of one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReportedModify<K> {
    /// The key.
    pub key: K,
    /// What was done to it, in this order.
    pub modifications: Vec<ReportedModification>,
}

/// A modification without its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReportedModification {
    /// Something was done to a number.
    Number,
    /// This many bytes were appended.
    Append(u32),
    /// The value was replaced by one of that many bytes, or deleted, perhaps on a condition.
    Replace(Option<u32>),
}

/// A length as reports have it. No value is as long as the greatest.
pub fn reported_bytes(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl From<&Modification> for ReportedModification {
    fn from(modification: &Modification) -> ReportedModification {
        let bytes = |value: &crate::Value| reported_bytes(value.len());
        match modification {
            Modification::Add { .. } | Modification::Minimum(_) | Modification::Maximum(_) => {
                ReportedModification::Number
            }
            Modification::Append(suffix) | Modification::AppendWithin { suffix, .. } => {
                ReportedModification::Append(bytes(suffix))
            }
            Modification::SetIfAbsent(value) => ReportedModification::Replace(Some(bytes(value))),
            Modification::Set(new) | Modification::CompareAndSwap { new, .. } => {
                ReportedModification::Replace(new.as_ref().map(bytes))
            }
        }
    }
}

impl<K> TransactionReport<K> {
    /// The same with other keys.
    pub fn map_keys<L>(self, mut map: impl FnMut(K) -> L) -> TransactionReport<L> {
        let TransactionReport { began_ns, ended_ns, attempts, form, reads, writes, modifies } =
            self;
        let reads = reads.into_iter().map(|read| {
            let ReportedRead { key, round, for_update, bytes } = read;
            ReportedRead { key: map(key), round, for_update, bytes }
        });
        let reads = reads.collect();
        let writes = writes
            .into_iter()
            .map(|ReportedWrite { key, bytes }| ReportedWrite { key: map(key), bytes });
        let writes = writes.collect();
        let modifies = modifies.into_iter().map(|ReportedModify { key, modifications }| {
            ReportedModify { key: map(key), modifications }
        });
        let modifies = modifies.collect();
        TransactionReport { began_ns, ended_ns, attempts, form, reads, writes, modifies }
    }

    /// The keys that it reads, writes or modifies. A key may come more than once.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        let reads = self.reads.iter().map(|read| &read.key);
        let writes = self.writes.iter().map(|write| &write.key);
        reads.chain(writes).chain(self.modifies.iter().map(|modify| &modify.key))
    }
}
