//! The nodes that keep a partition's data.

use core::time::Duration;

use serried_actor::Group;
use serried_model::NodeId;

/// Which nodes keep the data of which partition.
#[derive(Clone, Debug)]
pub struct Members {
    group: Group,
    keeps_copies: bool,
}

impl Members {
    /// Every partition has a replica on all nodes (Janus).
    pub fn replicated(group: Group) -> Members {
        Members { group, keeps_copies: true }
    }

    /// A partition is on one node: member `partition mod n` of its group (Janus-CC).
    pub fn alone(group: Group) -> Members {
        Members { group, keeps_copies: false }
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// How many replicas a partition has.
    pub(super) fn count(&self) -> usize {
        if self.keeps_copies { self.group.size() } else { 1 }
    }

    pub(super) fn majority(&self) -> usize {
        self.count() / 2 + 1
    }

    /// The replicas of a partition, the nearest first.
    pub(super) fn of(&self, partition: u16) -> impl Iterator<Item = NodeId> {
        (0..self.count()).map(move |at| match self.keeps_copies {
            true => self.group.choice(partition, at),
            false => NodeId::replica(partition, usize::from(partition) % self.group.size()),
        })
    }

    /// The replica of a partition that `own` asks first: the one on its machine, if there is one.
    pub(super) fn counterpart(&self, own: NodeId, partition: u16) -> NodeId {
        match self.keeps_copies {
            true => NodeId::replica(partition, own.member()),
            false => NodeId::replica(partition, usize::from(partition) % self.group.size()),
        }
    }

    /// The other replicas of a replica's partition.
    pub(super) fn peers(&self, own: NodeId) -> impl Iterator<Item = NodeId> {
        self.of(own.partition()).filter(move |peer| *peer != own)
    }

    /// Whether a node keeps a partition's data.
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.group.contains(node) && self.counterpart(node, node.partition()) == node
    }

    pub(super) fn partitions(&self) -> u16 {
        self.group.partitions()
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.group.round_trip()
    }
}
