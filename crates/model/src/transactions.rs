//! Transactions: the requests of sessions to coordinators, and the answers.

use serde::{Deserialize, Serialize};

use crate::{Key, Modification, Value, Version};

/// A write: the new value, or `None` for a delete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Write {
    /// The key written.
    pub key: Key,
    /// The value, or `None` to delete the key.
    pub value: Option<Value>,
}

/// What a transaction does to a key whose value its program need not know. It is executed where the row is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Modify {
    /// The key.
    pub key: Key,
    /// What is done to it, in this order, as by [`Modification::apply_all`]; at least one modification.
    pub modifications: Vec<Modification>,
}

impl Modify {
    /// How much a modification counts against the limit on transactions, beside its key and the values in it, in bytes.
    pub const BYTES_EACH: usize = 256;
    /// How many modifications a transaction can have at a server, at most.
    pub const MOST: usize = 1 << 18;
}

/// One request of a session to its coordinator.
///
/// A transaction begins with [`Operation::Begin`] and ends with an [`Outcome`]. Requests that cross with the outcome
/// are ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Begin.
    Begin {
        /// The program will write nothing. A protocol may have a better way to run it.
        only_reads: bool,
        /// The version of the transaction's first attempt, if this is another one. A protocol that prefers older
        /// transactions takes it for the transaction's age, so that the transaction commits in the end.
        age: Option<Version>,
    },
    /// Read a key that this attempt has not read before.
    Get {
        /// The key to read.
        key: Key,
        /// The program will write the key. This is a hint: a protocol may keep others from the key meanwhile.
        for_update: bool,
    },
    /// A write that the running program has made. It is a hint, sent as soon as the program waits for something. A
    /// protocol may show the write to other transactions at once, or wait for the commit.
    Put(Write),
    /// The program has finished: commit exactly these writes and modifications, provided that exactly these reads hold. May
    /// come again after an [`Output::Rewind`], with the reads and writes of the new run.
    ///
    /// A Commit and a Rewind can cross. The coordinator ignores a Commit whose reads are not the latest that it has
    /// reported. Another Commit follows when the session has handled the Rewind.
    Commit {
        /// The reads of the finished run.
        reads: Vec<ReadStamp>,
        /// Its writes, one per key, the last one to each.
        writes: Vec<Write>,
        /// Its modifications of keys that it does not write, one entry per key. Only if [`Offers::modifies`].
        modifies: Vec<Modify>,
    },
    /// All reads and writes of a transaction that has begun, in place of Get, Put and Commit. The answers are one
    /// [`Output::Value`] for each key read, in any order, and then an [`Output::Outcome`]. Only if
    /// [`Offers::one_shots`].
    OneShot {
        /// The keys to read, each once. The answers have the values before `writes` and `modifies`.
        reads: Vec<Key>,
        /// The writes, one per key.
        writes: Vec<Write>,
        /// The modifications of keys that it does not write, one entry per key. Only if [`Offers::modifies`].
        modifies: Vec<Modify>,
    },
    /// Give the attempt up: none of its writes may take effect. This also gives up a question.
    Rollback,
    /// A question, not part of a transaction: how did the transaction `version` end? If it has not, it is ended. The
    /// answer is an [`Output::Ending`].
    Inquire {
        /// The transaction.
        version: Version,
    },
    /// A question, not part of a transaction: what did `key` hold when everything below `at` had committed? The answer
    /// is an [`Output::Past`]. Only if [`Offers::past`].
    GetAt {
        /// The key to read.
        key: Key,
        /// The version to read at.
        at: Version,
    },
}

/// A read, and which of its answers the run has used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadStamp {
    /// The key that was read.
    pub key: Key,
    /// The [`ReadValue::stamp`] of the answer.
    pub stamp: u32,
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadValue {
    /// The key that was read.
    pub key: Key,
    /// The version of the write that the read found, or [`Version::INITIAL`] if there was none.
    pub version: Version,
    /// Its value, or `None` if the key is absent.
    pub value: Option<Value>,
    /// Distinguishes this answer from the coordinator's earlier and later answers to the same read.
    pub stamp: u32,
}

/// One answer of a coordinator to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// The version of the attempt. May come again before the attempt ends: a protocol may commit it under a later
    /// version than the one that it began with. The last one is valid.
    Began(Version),
    /// A read is complete.
    Value(ReadValue),
    /// An earlier read would now find this instead. The program must be run again from that read.
    Rewind(ReadValue),
    /// How the attempt ended. Nothing follows it.
    Outcome(Outcome),
    /// The answer to [`Operation::Inquire`].
    Ending(Ending),
    /// The answer to [`Operation::GetAt`].
    Past(Past),
}

/// How an attempt ended, as far as its coordinator can know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It took effect, durably.
    Committed,
    /// It did not take effect, and never will.
    Aborted {
        /// The known keys over which it conflicted with others. Empty after a rollback.
        conflicts: Vec<Key>,
    },
    /// Others have ended it, and the coordinator does not know whether it took effect with the reads and writes of the
    /// session's last run. [`Operation::Inquire`] finds out whether it took effect at all.
    Unknown,
    /// It did not take effect, and never will: the clock of its coordinator is off.
    ClockSkew {
        /// By how much the clock is ahead of a replica's, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// It did not take effect, and never will: with what it has modified, it writes too much at once.
    TooLarge {
        /// The key of the largest value.
        key: Key,
        /// How much it writes in one partition, in bytes.
        bytes: usize,
        /// How much it may write, in bytes.
        limit: usize,
    },
    /// It did not take effect, and never will: it has run for longer than a transaction may.
    TooLong {
        /// How long a transaction may run, in milliseconds.
        limit_ms: u64,
    },
}

/// How a transaction ended. The answer to [`Operation::Inquire`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ending {
    /// It took effect.
    Committed,
    /// It did not take effect, and never will.
    Aborted,
    /// It ended so long ago that the replicas have forgotten. `outcomes_ms` in the keyspace's settings says how long
    /// outcomes are kept.
    Forgotten,
}

/// What a key held in the past.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Past {
    /// This value, or none.
    Held(Option<Value>),
    /// The history no longer reaches back to the version.
    Forgotten,
}

/// The optional operations that a protocol offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offers {
    /// Whether it has a better way for [`Operation::OneShot`] than Gets and a Commit.
    pub one_shots: bool,
    /// Whether it reads the past: [`Operation::GetAt`].
    pub past: bool,
    /// Whether its servers execute modifications ([`Modify`]). Otherwise the session reads the keys and writes them.
    pub modifies: bool,
}
