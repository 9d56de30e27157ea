//! What was measured under one load.

use serde::Serialize;

/// What one side did and took for a transaction, on average.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Work {
    /// Messages received, timers fired and batches of operations.
    pub events: f64,
    /// Messages sent, one for each receiver.
    pub sent_messages: f64,
    /// Units of work that handlers charged.
    pub work_units: f64,
    /// Reads from and writes to connections.
    pub system_calls: f64,
    /// CPU time, user and system, in nanoseconds.
    pub cpu_ns: f64,
}

/// How many kinds of work there are.
pub(crate) const KINDS: usize = 4;

impl Work {
    /// How much there is of each kind.
    pub(crate) fn counts(&self) -> [f64; KINDS] {
        [self.events, self.sent_messages, self.work_units, self.system_calls]
    }
}

/// What was measured under one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// What the load was.
    pub load: String,
    /// Whether costs were fitted to it; otherwise it shows how good they are.
    pub fitted: bool,
    /// How many transactions were committed.
    pub transactions: u64,
    /// What all replicas did and took, together.
    pub replicas: Work,
    /// What the clients did and took.
    pub clients: Work,
}
