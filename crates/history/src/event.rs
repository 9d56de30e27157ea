//! Histories and their events.

use core::fmt;

use serried_model::Version;

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// The transaction began.
    Invoke,
    /// The transaction committed.
    Ok,
    /// The transaction did not take effect, and never will.
    Fail,
    /// It is not known whether the transaction took effect or will take effect.
    Info,
}

impl EventKind {
    /// The name in Jepsen's format: `invoke`, `ok`, `fail` or `info`.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Invoke => "invoke",
            EventKind::Ok => "ok",
            EventKind::Fail => "fail",
            EventKind::Info => "info",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One operation inside a transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MicroOperation {
    /// Adds an element to the end of a list. No two appends to one key may add the same element.
    Append {
        /// The list.
        key: u64,
        /// The element.
        element: u64,
    },
    /// Reads a list or a register.
    Read {
        /// The key.
        key: u64,
        /// The result.
        result: ReadResult,
    },
    /// Replaces a register's value.
    Write {
        /// The register.
        key: u64,
        /// Its new value, or `None` to delete it. In a transaction of unknown outcome, `None` can also mean that the
        /// value was not recorded. It is then not compared with reads.
        value: Option<u64>,
    },
}

impl MicroOperation {
    /// The key that is read or written.
    pub fn key(&self) -> u64 {
        match *self {
            MicroOperation::Append { key, .. }
            | MicroOperation::Read { key, .. }
            | MicroOperation::Write { key, .. } => key,
        }
    }

    /// Whether this is a read.
    pub fn is_read(&self) -> bool {
        matches!(self, MicroOperation::Read { .. })
    }
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ReadResult {
    /// Not known: when the event was recorded, the transaction had not committed.
    Pending,
    /// A register's value, or `None` if the key is absent.
    Register(Option<u64>),
    /// A list's elements. Empty if the key is absent.
    List(Vec<u64>),
}

/// One line of a history: a transaction began or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its place in the history, counted from 0 by a [`crate::Recorder`].
    pub index: u64,
    /// What happened.
    pub kind: EventKind,
    /// The client, which is logically single-threaded: it has at most one open transaction.
    pub process: u64,
    /// When, in nanoseconds since any fixed instant.
    pub time_ns: u64,
    /// The transaction's operations in program order. If it has committed, reads have their results.
    pub operations: Vec<MicroOperation>,
    /// The version at which the transaction committed, which is that of its writes. If its outcome is unknown, this is
    /// the version with which it began. If it took effect, it did so at this version or at a later time of the same
    /// coordinator.
    pub version: Option<Version>,
    /// For each read in `operations`, in order, the version of the write that it found. [`Version::INITIAL`] if the key
    /// was absent, and was never written or it is not known by whom it was deleted. Empty if versions were not
    /// recorded.
    pub read_versions: Vec<Version>,
    /// Why it failed, or why its outcome is unknown.
    pub error: Option<String>,
}

/// What the clients of a database did and saw, in the order in which it happened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct History {
    /// Beginnings and ends of transactions. The outcome of a transaction without an end is unknown.
    pub events: Vec<Event>,
}
