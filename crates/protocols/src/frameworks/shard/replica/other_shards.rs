//! A leader's knowledge of the other shards.

use std::collections::BTreeMap;

use serried_actor::Group;
use serried_model::NodeId;

use super::super::control::Control;
use super::super::message::{Message, Request};
use super::Cx;

/// The leaders of the other shards, and the progress of all shards.
#[derive(Debug, Default)]
pub(super) struct OtherShards {
    /// The known leaders.
    leaders: BTreeMap<u16, NodeId>,
    /// By shard, the time below which all of its transactions have ended. Includes this shard.
    over: BTreeMap<u16, u64>,
}

impl OtherShards {
    /// Sends a request to the leader of a shard, or to any replica if the leader is unknown.
    pub(super) fn send<C: Control>(
        &self,
        shard: u16,
        request: Request,
        group: &Group,
        cx: &mut Cx<'_, C>,
    ) {
        let known = self.leaders.get(&shard).copied();
        let to = known.unwrap_or_else(|| {
            let any = cx.draw() as usize % group.size();
            group.choice(shard, any)
        });
        cx.send(to, Message::Request(request));
    }

    /// Records that a shard's leader has answered.
    pub(super) fn heard_of(&mut self, leader: NodeId) {
        self.leaders.insert(leader.partition(), leader);
    }

    /// Forgets the leader of a shard, which may have changed.
    pub(super) fn forget_leader(&mut self, shard: u16) {
        self.leaders.remove(&shard);
    }

    /// Records that all transactions of a shard that began before `below_us` have ended.
    pub(super) fn are_over(&mut self, shard: u16, below_us: u64) {
        self.over.insert(shard, below_us);
    }

    /// The latest time below which all transactions of some shard have ended.
    pub(super) fn latest_over_us(&self) -> u64 {
        self.over.values().copied().max().unwrap_or(0)
    }

    /// The time below which the transactions of all `shards` shards have ended. Zero if one of them
    /// has not reported.
    pub(super) fn all_over_us(&self, shards: u16) -> u64 {
        match self.over.len() == usize::from(shards) {
            true => self.over.values().copied().min().unwrap_or(0),
            false => 0,
        }
    }
}
