//! Registers: what a session can ask of a coordinator, and the answers.

use crate::{Access, Carstamp, Key, Token, Value, Version};

/// One request of a session to its coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read or update a key. The answers are, for an update, [`Output::Began`] and, if it is a write, [`Output::Placed`];
    /// then an [`Output::Outcome`].
    Access {
        /// The key.
        key: Key,
        /// What is done to it.
        access: Access,
        /// Set to go on with an update of which it is not known whether it took effect.
        token: Option<Token>,
    },
    /// Give the operation up. The answer is an [`Output::Outcome`]. It is ignored if the operation has ended.
    GiveUp,
}

/// One answer of a coordinator to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// The update has this name, by which it is recognised if it is tried again.
    Began(Version),
    /// The write has been given its place among the updates of its key, and may take effect from now on.
    Placed(Carstamp),
    /// How the operation ended. Nothing follows it.
    Outcome(Outcome),
}

/// How an operation ended, as far as its coordinator can know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It took effect, durably.
    Done(Accessed),
    /// It did not and never will take effect.
    NoEffect,
    /// It was given up, and may take effect.
    Unknown,
    /// It did not and never will take effect: the clock of its coordinator is off.
    ClockSkew {
        /// By how much the clock is ahead of a replica's, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// It was tried again so late that nobody knows whether it has taken effect.
    Forgotten,
}

/// What an operation on a register came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accessed {
    /// What was there, unless the operation was a write.
    pub found: Option<Value>,
    /// The place of the update that it found, or for an update its own place.
    pub carstamp: Carstamp,
}

/// What a protocol may have no way for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offers {
    /// Whether it has read-modify-writes: [`Access::Modify`].
    pub rmws: bool,
}
