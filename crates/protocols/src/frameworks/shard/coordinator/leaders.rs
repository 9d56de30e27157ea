//! The replicas that lead the shards, as far as a client knows.

use std::collections::BTreeMap;

use serried_actor::Group;
use serried_model::NodeId;

/// The replicas to which requests are sent.
#[derive(Debug)]
pub(super) struct Leaders {
    pub(super) group: Group,
    /// By shard, the replica to ask: the last one that answered, or another one if that one is
    /// silent.
    asked: BTreeMap<u16, NodeId>,
    /// By shard, the replica that answered last.
    answered: BTreeMap<u16, NodeId>,
}

impl Leaders {
    pub(super) fn new(group: Group) -> Leaders {
        Leaders { group, asked: BTreeMap::new(), answered: BTreeMap::new() }
    }

    /// The presumed leader of a shard. If no leader is known, a replica that forwards requests, a
    /// different one with each attempt.
    pub(super) fn of(&self, shard: u16, attempt: u32) -> NodeId {
        let any = || self.group.choice(shard, attempt as usize);
        self.asked.get(&shard).copied().unwrap_or_else(any)
    }

    /// Records that a replica answered, so it leads or has led. Returns whether the previous answer
    /// came from another replica.
    pub(super) fn on_answer(&mut self, leader: NodeId) -> bool {
        let shard = leader.partition();
        self.asked.insert(shard, leader);
        self.answered.insert(shard, leader).is_some_and(|former| former != leader)
    }

    /// Forgets the leader of a shard, which may have changed.
    pub(super) fn forget(&mut self, shard: u16) {
        self.asked.remove(&shard);
    }

    /// Selects another replica, because the one that was asked has not answered and may not lead
    /// any more.
    pub(super) fn rotate(&mut self, shard: u16, attempt: u32) {
        self.asked.insert(shard, self.group.choice(shard, attempt as usize));
    }

    /// Whether `node` is a replica of the same shard as `from`.
    pub(super) fn is_peer(&self, node: NodeId, from: NodeId) -> bool {
        !node.is_coordinator()
            && node.partition() == from.partition()
            && self.group.all().contains(NodeId::replica(0, node.member()))
    }
}
