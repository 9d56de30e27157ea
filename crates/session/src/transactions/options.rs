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

/// A randomised exponential backoff: before retry `k`, from 1, the wait is uniform between zero and
/// `first * 2^(k-1)`, or `most` where that is less (000 §5, "Measurement").
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Backoff {
    /// The longest wait before the first retry. Default 1 ms.
    pub first: Duration,
    /// The longest wait of all. Default 2.5 s.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_millis(1), most: Duration::from_millis(2500) }
    }
}
