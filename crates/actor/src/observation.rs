//! What replicas report when they are watched.

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Version};

/// Something that happened at a replica. Serialization and validity windows (000 §2) are computed from observations. A
/// replica reports them through [`crate::Context::observe`], which costs nothing while the replica is not watched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Observation {
    /// From now on a reader of `key` can get what the transaction `version` writes, committed or not. This is the event
    /// `w_i(x_i)` of the paper, as this replica sees it.
    Written {
        /// The key.
        key: Key,
        /// The writer.
        version: Version,
        /// Which of the transaction's values for the key. The largest number is the last value.
        revision: u32,
    },
    /// A reader was sent the value that it reads, for the first time or again: `r_i(x_k)`.
    Read {
        /// The key.
        key: Key,
        /// The reader.
        reader: Version,
        /// The version of the write that it found.
        found: Version,
    },
    /// This replica has learned that the transaction commits: `c_i`.
    Committed {
        /// The transaction.
        version: Version,
        /// The keys that it has read, and the versions that it found.
        reads: Vec<(Key, Version)>,
        /// The keys that it has written.
        writes: Vec<Key>,
        /// Whether this replica leads the partition, or its protocol has no leaders. Then it also observes the transactions
        /// that are aborted there.
        leads: bool,
    },
    /// The transaction does not commit under this version. Each replica that [`leads`](Observation::Committed::leads)
    /// observes that once, if it knew the transaction.
    Aborted {
        /// The transaction.
        version: Version,
    },
}

/// An observation with its place and time: what a node sends to a client that watches it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// When it was, in nanoseconds by the node's clock.
    pub at_ns: u64,
    /// Where it was.
    pub node: NodeId,
    /// What happened.
    pub what: Observation,
}
