//! What servers tell each other of the order of transactions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::Version;

/// About how many ancestors are sent with a transaction.
pub(crate) const ANCESTORS_AT_MOST: usize = 32;

/// About how many edges of ancestors are sent with a transaction.
pub(crate) const EDGES_AT_MOST: usize = 128;

/// What a transaction's edges are labelled with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Between pieces that are executed when they are started.
    Immediate,
    /// Between deferred pieces.
    Deferred,
}

/// Another transaction comes before this one, by the order in which conflicting pieces were started at a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Edge {
    /// The transaction that comes before.
    pub from: Version,
    /// Which pieces conflict.
    pub kind: Kind,
    /// The partition at which they do. It knows both transactions.
    pub at: u16,
}

/// A transaction that commits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vertex {
    /// The transaction.
    pub txn: Version,
    /// The partitions at which it has pieces, in ascending order.
    pub participants: Arc<[u16]>,
    /// The transactions that come before it. Those that were decided before it committed may be absent. In ascending order.
    pub edges: Arc<[Edge]>,
    /// Replicas that have found edges of their own may have left out transactions that began before this time, in
    /// microseconds since the Unix epoch: they had been executed everywhere. 0 if no partition has several such replicas.
    pub floor_us: u64,
}

/// The commit of a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Commit {
    /// The transaction.
    pub vertex: Vertex,
    /// What is known of transactions before it.
    pub ancestors: Ancestors,
}

/// What a server knows of transactions that come before others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ancestors {
    /// Transactions that commit.
    pub commit: Vec<Vertex>,
    /// Transactions on cycles that were executed.
    pub cycles: Vec<Arc<[Vertex]>>,
    /// Transactions that were executed and are on no cycle.
    pub executed: Vec<Version>,
}

/// Which transactions are admitted, by the times at which they began, in microseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Window {
    /// A transaction that began before this time, and that no partition has started, is not admitted.
    pub from_us: u64,
    /// Transactions that began before this time have been executed everywhere, and are forgotten.
    pub forget_us: u64,
}

impl Window {
    /// The window that admits what both admit.
    #[must_use]
    pub fn and(self, other: Window) -> Window {
        Window {
            from_us: self.from_us.max(other.from_us),
            forget_us: self.forget_us.max(other.forget_us),
        }
    }
}
