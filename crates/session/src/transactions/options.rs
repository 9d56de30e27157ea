//! How long and how often to try.

use std::time::Duration;

/// Options of one transaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TransactOptions {
    /// The longest that the transaction may take, all attempts included. Default 10 s.
    pub deadline: Duration,
    /// The greatest number of attempts. Default 1000.
    pub attempts: u32,
    /// How long to wait between attempts.
    pub backoff: Backoff,
}

impl Default for TransactOptions {
    fn default() -> Self {
        TransactOptions {
            deadline: Duration::from_secs(10),
            attempts: 1000,
            backoff: Backoff::default(),
        }
    }
}

/// How long to wait before an attempt that follows another one. The wait is random, and doubles with each retry.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Backoff {
    /// Follows the attempts. Before retry `k`, from 1, the wait is uniform between zero and `2^(k-1)` times as long as the
    /// last attempt took (1 ms if it took longer), or [`Backoff::LONGEST`] where that is less.
    /// So on a hot key the first waits are about as long as others keep the key to themselves.
    #[default]
    Following,
    /// Before retry `k`, from 1, the wait is uniform between zero and `first * 2^(k-1)`, or `most` where that is less. The
    /// paper's clients wait from 1 ms to 2.5 s (000 §5, "Measurement").
    Exponential {
        /// The longest wait before the first retry.
        first: Duration,
        /// The longest wait of all.
        most: Duration,
    },
}
