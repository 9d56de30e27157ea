//! Registers: the requests of sessions to coordinators, and the answers.

use crate::{Access, Carstamp, Key, Token, Value, Version};

/// One request of a session to its coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read or update a key. The answers are, for an update, [`Output::Began`] and, if it is a write, [`Output::Placed`];
    /// then an [`Output::Outcome`].
    Access {
        /// The key.
        key: Key,
        /// The operation on it.
        access: Access,
        /// The token of the update, if it was tried before and it is not known whether it took effect.
        token: Option<Token>,
    },
    /// Give the operation up. The answer is an [`Output::Outcome`]. It is ignored if the operation has ended.
    GiveUp,
}

/// One answer of a coordinator to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// The update has this id. It is recognised by the id if it is tried again.
    Began(Version),
    /// The write has its place among the updates of its key. From now on it may take effect.
    Placed(Carstamp),
    /// How the operation ended. Nothing follows it.
    Outcome(Outcome),
}

/// How an operation ended, as far as its coordinator can know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It took effect, durably.
    Done(Accessed),
    /// It did not take effect, and never will.
    NoEffect,
    /// It was given up, and may still take effect.
    Unknown,
    /// It did not take effect, and never will: the clock of its coordinator is off.
    ClockSkew {
        /// By how much the clock is ahead of a replica's, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// It was tried again so late that the replicas no longer know whether it took effect.
    Forgotten,
}

/// The result of an operation on a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accessed {
    /// The value before the operation, unless the operation was a write.
    pub found: Option<Value>,
    /// For a read, the place of the update that it found. For an update, its own place.
    pub carstamp: Carstamp,
}

/// The optional operations that a protocol offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offers {
    /// Whether it has read-modify-writes: [`Access::Modify`].
    pub rmws: bool,
}
