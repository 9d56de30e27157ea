//! Sets of replicas.

use core::fmt;

use serde::{Deserialize, Serialize};
use serried_model::NodeId;

/// A set of members of a replica group, for any partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct NodeSet(u64);

const _: () = assert!(NodeSet::CAPACITY == u64::BITS as usize, "a set has one bit for each member");

impl NodeSet {
    /// The greatest number of members of a group.
    pub const CAPACITY: usize = NodeId::MEMBERS;
    /// The empty set.
    pub const EMPTY: NodeSet = NodeSet(0);

    /// The members `0..n`.
    ///
    /// # Panics
    /// If `n` is above [`NodeSet::CAPACITY`].
    pub fn first(n: usize) -> NodeSet {
        assert!(n <= Self::CAPACITY, "{n} replicas, at most {} are possible", Self::CAPACITY);
        NodeSet(if n == Self::CAPACITY { u64::MAX } else { (1 << n) - 1 })
    }

    /// Adds a replica by its member number. Returns false if it was in the set already.
    ///
    /// # Panics
    /// If `node` is not a replica.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let bit = Self::bit(node);
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }

    /// Whether `node` is in the set.
    pub fn contains(self, node: NodeId) -> bool {
        !node.is_coordinator() && self.0 & Self::bit(node) != 0
    }

    /// The number of members.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members of `self` that are not in `other`.
    pub fn without(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & !other.0)
    }

    /// The members of either set.
    pub fn union(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 | other.0)
    }

    /// The numbers of the members, in ascending order.
    pub fn members(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            (rest != 0).then(|| {
                let next = rest.trailing_zeros();
                rest &= rest - 1;
                next as usize
            })
        })
    }

    fn bit(node: NodeId) -> u64 {
        assert!(!node.is_coordinator(), "{node} is not a replica");
        1 << node.member()
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut set = NodeSet::EMPTY;
        for node in nodes {
            set.insert(node);
        }
        set
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.members()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_each_replica_once_and_in_order() {
        let mut set = NodeSet::EMPTY;
        assert!(set.insert(NodeId(2)) && set.insert(NodeId(0)) && !set.insert(NodeId(2)));
        assert_eq!(set.members().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(NodeSet::first(3).without(set).members().collect::<Vec<_>>(), [1]);
        assert_eq!(NodeSet::first(2).union(set), NodeSet::first(3));
        assert!(set.contains(NodeId::replica(7, 2)));
        assert_eq!(NodeSet::first(64).len(), 64);
        assert!(!set.contains(NodeId(NodeId::FIRST_COORDINATOR)));
    }
}
