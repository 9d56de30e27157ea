//! A replica group, as its participants know it.

use core::time::Duration;

use serried_model::NodeId;

use crate::NodeSet;

/// The replicas that hold the same data, seen from one participant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    nearest_first: Vec<NodeId>,
    round_trip: Duration,
}

impl Group {
    /// A group of the replicas `0..n`, with a guess at the round trip to the farthest of them, from
    /// which retransmissions are timed.
    ///
    /// # Panics
    /// If `n` is even, zero or above [`NodeSet::CAPACITY`].
    pub fn new(n: usize, round_trip: Duration) -> Group {
        Group::nearest_first((0..n as u64).map(NodeId).collect(), round_trip)
    }

    /// The same, with the replicas in the order of their distance from this participant.
    ///
    /// # Panics
    /// If the replicas are not `0..n` for an odd `n`.
    pub fn nearest_first(replicas: Vec<NodeId>, round_trip: Duration) -> Group {
        let n = replicas.len();
        assert!(n % 2 == 1, "a group has 2f + 1 replicas, not {n}");
        let set: NodeSet = replicas.iter().copied().collect();
        assert_eq!(set, NodeSet::first(n), "replicas are numbered from 0, each once");
        Group { nearest_first: replicas, round_trip }
    }

    /// How many replicas there are, `2f + 1`.
    pub fn size(&self) -> usize {
        self.nearest_first.len()
    }

    /// How many may fail, `f`.
    pub fn faults(&self) -> usize {
        self.size() / 2
    }

    /// The least number of replicas of which any two sets of that size share one, `f + 1`.
    pub fn majority(&self) -> usize {
        self.faults() + 1
    }

    /// All replicas.
    pub fn all(&self) -> NodeSet {
        NodeSet::first(self.size())
    }

    /// The `attempt`-th choice of a replica to read from, the nearest first, round and round.
    pub fn choice(&self, attempt: usize) -> NodeId {
        self.nearest_first[attempt % self.size()]
    }

    /// A guess at the round trip to the farthest replica.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}
