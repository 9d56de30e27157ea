//! What replicas tell those who watch them.

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Version};

/// Something that happened at a replica, from which serialization and validity windows (000 §2) can be
/// told. A replica reports what it does through [`crate::Context::observe`]; that costs nothing while
/// nobody watches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Observation {
    /// From now on readers of `key` can be answered with what the transaction `version` writes, whether
    /// it is committed or not: the event `w_i(x_i)` of the paper, as this replica sees it.
    Written {
        /// What is written.
        key: Key,
        /// The writer.
        version: Version,
        /// Which of the values that the transaction has written to the key; the largest is the last.
        revision: u32,
    },
    /// A reader was told, first or again, what it reads: `r_i(x_k)`.
    Read {
        /// What is read.
        key: Key,
        /// Who reads it.
        reader: Version,
        /// Whose write was found.
        found: Version,
    },
    /// This replica has learned that the transaction commits: `c_i`.
    Committed {
        /// The transaction.
        version: Version,
        /// What it has read, and whose writes it found.
        reads: Vec<(Key, Version)>,
        /// What it has written.
        writes: Vec<Key>,
    },
    /// This replica has learned that the transaction does not commit under this version.
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
