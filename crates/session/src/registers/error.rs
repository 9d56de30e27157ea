//! How an operation on a register can fail, and what to do about it.

use std::time::Duration;

use serried_model::{Key, Token, TooLarge, Unfit, WrongType};

use crate::transactions::seconds;

/// Why an operation on a register did not take effect, or is not known to have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Too few replicas answered in time. Nothing took effect. Check that a majority is up and can be reached.
    #[error("too few replicas answered within {deadline:?}, waiting for the value of `{key}`")]
    Unavailable {
        /// The key.
        key: Key,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// A majority of the nodes can't write, mostly because their disks are full. Nothing took effect.
    #[error("the keyspace is read-only: {reason}")]
    ReadOnly {
        /// Which nodes can't write, and why.
        reason: String,
    },
    /// Too few replicas answered while the register was being updated. The update may have taken effect, or may still take
    /// effect. If it is tried again with its token ([`crate::RegisterKeyspace::retry_rmw`],
    /// [`crate::RegisterKeyspace::access`]), it takes effect exactly once.
    #[error(
        "the update {token} of `{key}` may or may not have taken effect: its outcome was not known within {deadline:?}; try it again with its token"
    )]
    Unknown {
        /// The key.
        key: Key,
        /// Names the update.
        token: Token,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// An update was tried again so late that the replicas no longer know whether it took effect. A new update gets the
    /// same error if its client's clock is behind by more than `outcomes_ms`.
    #[error(
        "the replicas no longer know whether the update {token} of `{key}` took effect: outcomes are kept for `outcomes_ms`; if new updates fail like this, this client's clock is behind: synchronise it"
    )]
    Forgotten {
        /// The key.
        key: Key,
        /// Names the update.
        token: Token,
    },
    /// A read-modify-write needs a value of another type. Nothing was changed.
    #[error("`{key}`: {wrong}")]
    WrongType {
        /// The key.
        key: Key,
        /// Both types.
        wrong: WrongType,
    },
    /// The client's clock is off by more than the keyspace allows. Nothing took effect. Synchronise the clock.
    #[error("this client's clock is {} s {} the nodes' clocks: synchronise it{}", seconds(.ahead_us), if *.ahead_us < 0 { "behind" } else { "ahead of" }, if *.ahead_us < 0 { "" } else { " and connect again" })]
    ClockSkew {
        /// By how much it is ahead, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// The keyspace's protocol has no read-modify-writes. Nothing was sent.
    #[error(
        "`{key}` was not changed: the protocol of this keyspace has no read-modify-writes; choose another"
    )]
    NoReadModifyWrites {
        /// The key.
        key: Key,
    },
    /// Something was over its limit. Nothing was changed.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A key had no bytes. Nothing was sent.
    #[error("{}", Unfit::EmptyKey)]
    EmptyKey,
}

impl From<Unfit> for RegisterError {
    fn from(unfit: Unfit) -> RegisterError {
        match unfit {
            Unfit::EmptyKey => RegisterError::EmptyKey,
            Unfit::TooLarge(error) => RegisterError::TooLarge(error),
        }
    }
}
