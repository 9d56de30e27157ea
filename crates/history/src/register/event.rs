//! What a history of registers is made of.

use core::fmt;

use crate::EventKind;

/// What a register holds: an integer, or `None` where the key is absent.
pub type RegisterValue = Option<i64>;

/// An operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterOperation {
    /// Finds the value.
    Read,
    /// Replaces the value.
    Write {
        /// The new value; `None` deletes the key.
        value: RegisterValue,
    },
    /// Replaces the value if it is the expected one, and finds what it was.
    CompareAndSwap {
        /// What the value has to be.
        expected: RegisterValue,
        /// What it then becomes.
        new: RegisterValue,
    },
    /// Adds to the value, where an absent key counts as 0, and finds what it was.
    Add {
        /// What is added. Sums wrap around at the bounds of `i64`.
        delta: i64,
    },
}

impl RegisterOperation {
    /// The name in a history's lines: `read`, `write`, `cas` or `add`.
    pub fn name(self) -> &'static str {
        match self {
            RegisterOperation::Read => "read",
            RegisterOperation::Write { .. } => "write",
            RegisterOperation::CompareAndSwap { .. } => "cas",
            RegisterOperation::Add { .. } => "add",
        }
    }

    /// Whether its end tells what it found: all but a write's do.
    pub fn finds(self) -> bool {
        !matches!(self, RegisterOperation::Write { .. })
    }

    /// What the register holds after the operation, if it held `found` before.
    pub fn result(self, found: RegisterValue) -> RegisterValue {
        match self {
            RegisterOperation::Read => found,
            RegisterOperation::Write { value } => value,
            RegisterOperation::CompareAndSwap { expected, new } if found == expected => new,
            RegisterOperation::CompareAndSwap { .. } => found,
            RegisterOperation::Add { delta } => Some(found.unwrap_or(0).wrapping_add(delta)),
        }
    }
}

/// A position in the order that a database claims for the versions of one key: Gryff's
/// consensus-after-register timestamp (001 §4.2.2), compared field by field. Any order of at most
/// three integers fits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Carstamp {
    /// The logical time of the write.
    pub timestamp: u64,
    /// Who wrote, to break ties.
    pub writer: u64,
    /// How many read-modify-writes came after that write.
    pub rmw_count: u64,
}

impl Carstamp {
    /// The version of a key that nobody has written.
    pub const INITIAL: Carstamp = Carstamp { timestamp: 0, writer: 0, rmw_count: 0 };
}

impl fmt::Display for Carstamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}, {})", self.timestamp, self.writer, self.rmw_count)
    }
}

/// One line of a history of registers: an operation began or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterEvent {
    /// Its place in the history, counted from 0 by a [`crate::RegisterRecorder`].
    pub index: u64,
    /// What happened. [`EventKind::Fail`] is for operations that certainly took no effect.
    pub kind: EventKind,
    /// The logically single-threaded client. It may have operations on many keys open at once, but
    /// only one on each: an event that ends one is matched by process and key.
    pub process: u64,
    /// When, in nanoseconds since any fixed instant. Shown to people; the order of the events alone
    /// tells what ended before something else began.
    pub time_ns: u64,
    /// The register.
    pub key: u64,
    /// The operation; the same in the event that ends it as in the one that begins it.
    pub operation: RegisterOperation,
    /// What the register held before the operation, for an [`EventKind::Ok`] of an operation that
    /// [finds](RegisterOperation::finds) it; `None` in all other events.
    pub found: Option<RegisterValue>,
    /// In an [`EventKind::Ok`], the version that the operation wrote, or found if it wrote none, if
    /// the database tells.
    pub version: Option<Carstamp>,
    /// Why it failed, or why its outcome is unknown.
    pub error: Option<String>,
}

/// What the clients of a database of registers saw, in the order in which it happened. All keys are
/// absent at first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RegisterHistory {
    /// Beginnings and ends of operations. One whose end is missing has an unknown outcome.
    pub events: Vec<RegisterEvent>,
}
