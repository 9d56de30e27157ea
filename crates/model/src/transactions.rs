//! Transactions: what a session can ask of a coordinator, and the answers.

use serde::{Deserialize, Serialize};

use crate::{Key, Value, Version};

/// A write: the new value, or `None` for a delete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Write {
    /// The key written.
    pub key: Key,
    /// The value, or `None` to delete the key.
    pub value: Option<Value>,
}

/// One request of a session to its coordinator.
///
/// A transaction begins with [`Operation::Begin`], and ends with an [`Outcome`]. What a session asks
/// for after that, because it has not heard of the end yet, is ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Begin.
    Begin {
        /// The program will write nothing: a protocol may have a better way for it.
        only_reads: bool,
    },
    /// Read a key that this attempt has not read before.
    Get {
        /// The key to read.
        key: Key,
    },
    /// A write that the running program has made. It is a hint, given as soon as the program waits
    /// for something: a protocol may show it to others at once, or wait for the commit.
    Put(Write),
    /// The program has finished: make exactly these writes take effect, provided that exactly these
    /// reads hold. May come again, after a [`Output::Rewind`], with what the new run did instead.
    ///
    /// A Commit and a Rewind can cross. One whose reads are not the latest that the coordinator has
    /// told is to be ignored: another follows when the session has taken the Rewind in.
    Commit {
        /// What the finished run has read.
        reads: Vec<ReadStamp>,
        /// Its writes, one per key, the last one to each.
        writes: Vec<Write>,
    },
    /// All of a transaction that has begun, at once, in place of Get, Put and Commit. The answers are one
    /// [`Output::Value`] for each key read, in any order, and then an [`Output::Outcome`]. Only if
    /// [`Offers::one_shots`].
    OneShot {
        /// The keys to read, each once. What is found is what was there before `writes`.
        reads: Vec<Key>,
        /// The writes, one per key.
        writes: Vec<Write>,
    },
    /// Give the attempt up: none of its writes may take effect. A question is given up as well.
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
        /// The end of the past that is read.
        at: Version,
    },
}

/// A read, and which of its answers a run has used.
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
    /// The version of the write that was found; [`Version::INITIAL`] if there was none.
    pub version: Version,
    /// Its value, or `None` where the key is absent.
    pub value: Option<Value>,
    /// Tells this answer from the coordinator's earlier and later ones to the same read.
    pub stamp: u32,
}

/// One answer of a coordinator to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// The attempt has been given its version. May come again, before the attempt ends: a protocol may commit
    /// it under a later version than the one with which it began. The last one holds.
    Began(Version),
    /// A read is complete.
    Value(ReadValue),
    /// An earlier read would now find this instead: the program must be run again from there.
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
    /// It did not and never will take effect.
    Aborted {
        /// Keys over which it conflicted with others, as far as they are known; empty after a
        /// rollback.
        conflicts: Vec<Key>,
    },
    /// Others have ended it, and it took effect as an earlier run than the session's last had it. Its
    /// version tells what it did.
    Unknown,
    /// It did not and never will take effect: the clock of its coordinator is off.
    ClockSkew {
        /// By how much the clock is ahead of a replica's, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// It did not and never will take effect: it has run for longer than a transaction may.
    TooLong {
        /// How long one may run, in milliseconds.
        limit_ms: u64,
    },
}

/// How a transaction ended, for those who ask later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ending {
    /// It took effect.
    Committed,
    /// It did not and never will take effect.
    Aborted,
    /// It was so long ago that nobody remembers: `outcomes_ms` of the keyspace's settings says how long outcomes are
    /// kept.
    Forgotten,
}

/// What a key held in the past.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Past {
    /// This, or nothing.
    Held(Option<Value>),
    /// That is no longer kept.
    Forgotten,
}

/// What a protocol may have no way for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offers {
    /// Whether it has a better way for [`Operation::OneShot`] than Gets and a Commit.
    pub one_shots: bool,
    /// Whether it reads the past: [`Operation::GetAt`].
    pub past: bool,
}
