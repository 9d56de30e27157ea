//! The measurements under one load.

use serde::Serialize;

/// The average work and CPU time of one side for a transaction.
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
    /// Bytes of the messages received.
    pub bytes: f64,
    /// CPU time, user and system, in nanoseconds.
    pub cpu_ns: f64,
}

/// How many kinds of work there are.
pub(crate) const KINDS: usize = 5;

impl Work {
    /// The amount of each kind of work.
    pub(crate) fn counts(&self) -> [f64; KINDS] {
        [self.events, self.sent_messages, self.work_units, self.system_calls, self.bytes]
    }
}

/// The measurements under one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// The name of the load.
    pub load: String,
    /// Whether costs were fitted to it. Otherwise it shows how good the fit is.
    pub fitted: bool,
    /// How many transactions were committed.
    pub transactions: u64,
    /// The work of all replicas together.
    pub replicas: Work,
    /// The work of the clients.
    pub clients: Work,
}
