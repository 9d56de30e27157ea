//! How a transaction can fail, and what to do about it.

use std::time::Duration;

use serried_model::{Key, TooLarge, Version};

/// Why a transaction did not commit, or is not known to have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program returned this error; it is untouched. None of its writes took effect, and what it
    /// read was committed.
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
    /// The deadline passed while the program was running or waiting to be tried again. Nothing took
    /// effect.
    #[error("not committed within {deadline:?}, after {attempts} attempts")]
    Deadline {
        /// The deadline that was set.
        deadline: Duration,
        /// How many attempts were begun.
        attempts: u32,
    },
    /// Too few replicas answered in time. Nothing took effect; check that a majority is up and can
    /// be reached.
    #[error("too few replicas answered within {deadline:?}, waiting for {waiting_for}")]
    Unavailable {
        /// The deadline that was set.
        deadline: Duration,
        /// What was missing.
        waiting_for: String,
    },
    /// Too few replicas answered while the transaction was being committed: it may have taken effect,
    /// or may yet. Its version identifies it.
    #[error(
        "transaction {txn} was being committed when its deadline of {deadline:?} passed: it may or may not take effect"
    )]
    Unknown {
        /// The transaction's version.
        txn: Version,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// Something was over its limit; nothing was sent.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl Error {
    /// The application's own error, if it is one of type `E`.
    pub fn application<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Error::Application(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

fn list(keys: &[Key]) -> String {
    match keys {
        [] => "keys that are not known".to_string(),
        _ => keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "),
    }
}
