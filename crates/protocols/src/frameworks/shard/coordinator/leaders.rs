//! Which replicas lead the shards, as far as a client knows.

use std::collections::BTreeMap;

use serried_actor::Group;
use serried_model::NodeId;

/// The replicas that requests go to.
#[derive(Debug)]
pub(super) struct Leaders {
    pub(super) group: Group,
    /// By shard: the replica to ask. This is the last one that has answered, or another if that one is silent.
    asked: BTreeMap<u16, NodeId>,
    /// By shard: the replica that has answered last.
    answered: BTreeMap<u16, NodeId>,
}

impl Leaders {
    pub(super) fn new(group: Group) -> Leaders {
        Leaders { group, asked: BTreeMap::new(), answered: BTreeMap::new() }
    }

    /// The leader of a shard, as far as is known; or a replica that passes a request on, another one with each attempt.
    pub(super) fn of(&self, shard: u16, attempt: u32) -> NodeId {
        let any = || self.group.choice(shard, attempt as usize);
        self.asked.get(&shard).copied().unwrap_or_else(any)
    }

    /// A replica has answered, so it leads, or did. Returns whether the last answer was from another replica.
    pub(super) fn on_answer(&mut self, leader: NodeId) -> bool {
        let shard = leader.partition();
        self.asked.insert(shard, leader);
        self.answered.insert(shard, leader).is_some_and(|former| former != leader)
    }

    /// The leader of a shard may not lead any more.
    pub(super) fn forget(&mut self, shard: u16) {
        self.asked.remove(&shard);
    }

    /// The replica that was asked has not answered, and may not lead any more. Another one is asked.
    pub(super) fn rotate(&mut self, shard: u16, attempt: u32) {
        self.asked.insert(shard, self.group.choice(shard, attempt as usize));
    }

    /// Whether there is such a replica in the shard of `from`.
    pub(super) fn is_peer(&self, node: NodeId, from: NodeId) -> bool {
        !node.is_coordinator()
            && node.partition() == from.partition()
            && self.group.all().contains(NodeId::replica(0, node.member()))
    }
}
