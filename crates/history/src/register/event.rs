//! Histories of registers and their events.

use serried_model::Carstamp;

use crate::EventKind;

/// The value of a register: an integer, or `None` if the key is absent.
pub type RegisterValue = Option<i64>;

/// An operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterOperation {
    /// Reads the value.
    Read,
    /// Replaces the value.
    Write {
        /// The new value. `None` deletes the key.
        value: RegisterValue,
    },
    /// Replaces the value if it is the expected one, and finds the old value.
    CompareAndSwap {
        /// The expected value.
        expected: RegisterValue,
        /// The new value.
        new: RegisterValue,
    },
    /// Adds to the value and finds the old value. An absent key counts as 0.
    Add {
        /// The amount to add. Sums wrap around at the bounds of `i64`.
        delta: i64,
    },
}

impl RegisterOperation {
    /// The name in JSON lines: `read`, `write`, `cas` or `add`.
    pub fn name(self) -> &'static str {
        match self {
            RegisterOperation::Read => "read",
            RegisterOperation::Write { .. } => "write",
            RegisterOperation::CompareAndSwap { .. } => "cas",
            RegisterOperation::Add { .. } => "add",
        }
    }

    /// Whether its end records what it found. All operations except writes do.
    pub fn finds(self) -> bool {
        !matches!(self, RegisterOperation::Write { .. })
    }

    /// The value after the operation, if it was `found` before.
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

/// One line of a history of registers: an operation began or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterEvent {
    /// Its place in the history, counted from 0 by a [`crate::RegisterRecorder`].
    pub index: u64,
    /// What happened. [`EventKind::Fail`] is for operations that certainly took no effect.
    pub kind: EventKind,
    /// The client, which is logically single-threaded. It may have open operations on many keys, but only one on each
    /// key: ends are matched with beginnings by process and key.
    pub process: u64,
    /// When, in nanoseconds since any fixed instant. It is only shown to people. Real time is the order of the events.
    pub time_ns: u64,
    /// The register.
    pub key: u64,
    /// The operation. It is the same at its beginning and at its end.
    pub operation: RegisterOperation,
    /// What the register held before the operation, for an [`EventKind::Ok`] of an operation that
    /// [finds](RegisterOperation::finds) it; `None` in all other events.
    pub found: Option<RegisterValue>,
    /// In an [`EventKind::Ok`], the version that the operation wrote, or found if it wrote none. `None` if the database
    /// does not report it.
    pub version: Option<Carstamp>,
    /// Why it failed, or why its outcome is unknown.
    pub error: Option<String>,
}

/// What the clients of a database of registers did and saw, in the order in which it happened. All keys are absent at
/// first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RegisterHistory {
    /// Beginnings and ends of operations. The outcome of an operation without an end is unknown.
    pub events: Vec<RegisterEvent>,
}
