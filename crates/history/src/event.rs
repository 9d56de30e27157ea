//! What a history is made of.

use core::fmt;

use serried_model::Version;

/// What an event says about its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// It began.
    Invoke,
    /// It committed.
    Ok,
    /// It did not and never will take effect.
    Fail,
    /// Nobody knows whether it took effect, or ever will.
    Info,
}

impl EventKind {
    /// The name in Jepsen's form: `invoke`, `ok`, `fail` or `info`.
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
        /// What is added.
        element: u64,
    },
    /// Reads a list or a register.
    Read {
        /// What is read.
        key: u64,
        /// What was found.
        result: ReadResult,
    },
    /// Replaces a register's value.
    Write {
        /// The register.
        key: u64,
        /// Its new value, or `None` to delete it. In a transaction whose outcome is unknown, `None`
        /// may also stand for a value that nobody has recorded, and is not compared with reads.
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
    /// Not known: the transaction has not committed, as far as this event knows.
    Pending,
    /// A register's value, or `None` where the key is absent.
    Register(Option<u64>),
    /// A list's elements; empty where the key is absent.
    List(Vec<u64>),
}

/// One line of a history: a transaction began or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its place in the history, counted from 0 by a [`crate::Recorder`].
    pub index: u64,
    /// What happened.
    pub kind: EventKind,
    /// The logically single-threaded client: it has at most one transaction open at a time.
    pub process: u64,
    /// When, in nanoseconds since any fixed instant.
    pub time_ns: u64,
    /// The transaction's operations in program order; reads hold their results once it committed.
    pub operations: Vec<MicroOperation>,
    /// The version that the transaction's writes were given: the one at which it committed. Who does
    /// not know that, as its outcome is unknown, records the one with which it began. If it took
    /// effect, it did so at that version or at a later time of the same coordinator.
    pub version: Option<Version>,
    /// For each read in `operations`, in order, the version of the write that it found;
    /// [`Version::INITIAL`] where the key was absent and by whom it was deleted, if it was, is not known. Empty
    /// if versions were not recorded.
    pub read_versions: Vec<Version>,
    /// Why it failed, or why its outcome is unknown.
    pub error: Option<String>,
}

/// What the clients of a database saw, in the order in which it happened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct History {
    /// Beginnings and ends of transactions. A transaction whose end is missing has an unknown
    /// outcome.
    pub events: Vec<Event>,
}
