//! How a transaction can fail, and what to do about it.

use std::time::Duration;

use serried_model::{Key, TooLarge, Unfit, Version, WrongType};

/// What a transaction waits for that only reads, once it has read everything.
pub(super) const READS_CONFIRMED: &str =
    "its reads to be confirmed, or for what it has read to commit";

/// Why a transaction did not commit, or is not known to have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The program returned this error. None of its writes took effect, and what it had read was committed.
    #[error("the transaction's program gave up: {0}")]
    Application(Box<dyn std::error::Error + Send + Sync>),
    /// Every attempt that the retry budget allows was aborted. Nothing took effect; try again later,
    /// or raise [`crate::TransactOptions::attempts`].
    #[error("{attempts} attempts were all aborted, in conflict over {}", list(.keys))]
    Conflict {
        /// The keys of the last attempt's conflicts.
        keys: Vec<Key>,
        /// How many attempts were made.
        attempts: u32,
    },
    /// The deadline passed while the program was running, or between two attempts. Nothing took effect.
    #[error("not committed within {deadline:?}, after {attempts} attempts")]
    Deadline {
        /// The deadline that was set.
        deadline: Duration,
        /// How many attempts were begun.
        attempts: u32,
    },
    /// The transaction was refused because it had run for too long, and there was no time or no attempt left to try it
    /// again. Nothing took effect. Make the transaction shorter, or raise the keyspace's `truncation_lag_ms`.
    #[error(
        "refused after running for longer than {limit:?}, in attempt {attempts}: make the transaction shorter, or raise `truncation_lag_ms`"
    )]
    TooLong {
        /// How long an attempt may run.
        limit: Duration,
        /// How many attempts were begun.
        attempts: u32,
    },
    /// Too few replicas answered in time. Nothing took effect; check that a majority is up and can
    /// be reached. Replicas that are up may have waited for transactions that this one has read, whose clients are gone.
    #[error("too few replicas answered within {deadline:?}, waiting for {waiting_for}")]
    Unavailable {
        /// The deadline that was set.
        deadline: Duration,
        /// What was missing.
        waiting_for: String,
    },
    /// A majority of the nodes can't write, mostly because their disks are full. Nothing took effect. Under Morty and
    /// MVTSO, [`crate::TransactionKeyspace::get_at`] and [`crate::TransactionKeyspace::outcome`] still work; replicas
    /// of other protocols do not answer until there is room.
    #[error("the keyspace is read-only: {reason}")]
    ReadOnly {
        /// Which nodes can't write, and why.
        reason: String,
    },
    /// It is not known how the transaction ended: too few replicas answered while it was being committed, or others
    /// ended it while its program was running again. It may have taken effect or may still take effect.
    /// [`crate::TransactionKeyspace::outcome`] finds out, given its version.
    #[error(
        "transaction {txn} may or may not take effect: it was being committed, and its outcome was not known within {deadline:?}; ask for its outcome"
    )]
    Unknown {
        /// The transaction's version.
        txn: Version,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// The client's clock is off by more than the keyspace allows. Nothing took effect. Synchronise the clock.
    #[error("this client's clock is {} s {} the nodes' clocks: synchronise it{}", seconds(.ahead_us), if *.ahead_us < 0 { "behind" } else { "ahead of" }, if *.ahead_us < 0 { "" } else { " and connect again" })]
    ClockSkew {
        /// By how much it is ahead, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// The version to read at is older than the history that is kept.
    #[error("what `{key}` held at {at} is no longer kept: raise `history_ms` to read further back")]
    Forgotten {
        /// The key.
        key: Key,
        /// The version at which it was to be read.
        at: Version,
    },
    /// The keyspace's protocol does not read the past.
    #[error(
        "what `{key}` held at {at} can't be read: the protocol of this keyspace has no reads of the past; choose another, or read it now"
    )]
    NoPast {
        /// The key.
        key: Key,
        /// The version at which it was to be read.
        at: Version,
    },
    /// A program that was run as read-only has written. Nothing took effect. Run it with
    /// [`crate::TransactionKeyspace::transact`].
    #[error(
        "`{key}` was not written: the transaction was begun as read-only; begin one that may write"
    )]
    OnlyReads {
        /// The first key that it wrote.
        key: Key,
    },
    /// Something was over its limit. Nothing is committed. A closure may have sent earlier reads, and announced earlier
    /// writes; of a one-shot transaction nothing was sent.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A modification needs a value of another type, and the program has waited for its result. Nothing took effect.
    #[error("`{key}` was not modified: {wrong}")]
    WrongType {
        /// The key.
        key: Key,
        /// What type the value has.
        wrong: WrongType,
    },
    /// A key had no bytes. Nothing is committed. For what may have been sent, see [`TransactionError::TooLarge`].
    #[error("{}", Unfit::EmptyKey)]
    EmptyKey,
}

impl From<Unfit> for TransactionError {
    fn from(unfit: Unfit) -> TransactionError {
        match unfit {
            Unfit::EmptyKey => TransactionError::EmptyKey,
            Unfit::TooLarge(error) => TransactionError::TooLarge(error),
        }
    }
}

impl TransactionError {
    /// A transaction writes too much in one partition.
    pub(crate) fn too_large(key: Key, bytes: usize, limit: usize) -> TransactionError {
        let key = Key::from(&key.as_bytes()[..key.len().min(32)]);
        TransactionError::TooLarge(TooLarge { what: "transaction", key, bytes, limit })
    }

    /// The application's own error, if it is one of type `E`.
    pub fn application<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            TransactionError::Application(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

/// An offset of a clock in seconds, without its sign.
pub(crate) fn seconds(us: &i64) -> String {
    let ms = us.unsigned_abs() / 1000;
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn list(keys: &[Key]) -> String {
    match keys {
        [] => "keys that are not known".to_string(),
        _ => keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "),
    }
}
