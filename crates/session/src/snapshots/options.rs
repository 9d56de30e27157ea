//! How long to try, and how old what is read may be.

use std::time::Duration;

/// Options of the operations of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotOptions {
    /// The longest that an operation may take. Default 10 s.
    pub deadline: Duration,
    /// How far a session may stay behind what the version clocks show by now, as far as the client knows. Default 100
    /// ms. Only for protocols with version clocks. Two things follow from it.
    ///
    /// - *Reads.* Assume that a write was acknowledged, that a session of this client then has read or written any
    ///   key of the same partition, and that this time has passed since. Every later read of the session sees the
    ///   write.
    /// - *Writes.* A write of the session may count as earlier than another session's write of the same key, and is
    ///   then omitted, only if the other one was acknowledged within this time before, again as far as the client
    ///   knows.
    ///
    /// If the coordinator chooses as of when a session reads (`eiger-port`), it asks a server for its safe time when
    /// what it has last heard from it is older than a half of this. So a write is visible for every session that goes
    /// on reading this time and a few round trips after it was acknowledged, unless a transaction is held up at a
    /// server.
    ///
    /// With a long time a session reads at the stable frontier alone, as in the paper (004 §6.1). How old that is
    /// depends on how often the client hears from each server.
    pub freshness: Duration,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        SnapshotOptions { deadline: Duration::from_secs(10), freshness: Duration::from_millis(100) }
    }
}
