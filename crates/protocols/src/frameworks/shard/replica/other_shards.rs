//! What a leader knows of the other shards.

use std::collections::BTreeMap;

use serried_actor::Group;
use serried_model::NodeId;

use super::super::control::Control;
use super::super::message::{Message, Request};
use super::Cx;

/// The leaders of the other shards, and how far these shards have got.
#[derive(Debug, Default)]
pub(super) struct OtherShards {
    /// The leaders, as far as they are known.
    leaders: BTreeMap<u16, NodeId>,
    /// By shard, the time below which all of its transactions are over; this shard is included.
    over: BTreeMap<u16, u64>,
}

impl OtherShards {
    /// Sends a request to the leader of a shard, or to any replica if the leader is not known.
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

    /// A shard's leader has answered.
    pub(super) fn heard_of(&mut self, leader: NodeId) {
        self.leaders.insert(leader.partition(), leader);
    }

    /// The leader of a shard may not lead any more.
    pub(super) fn forget_leader(&mut self, shard: u16) {
        self.leaders.remove(&shard);
    }

    /// All transactions of a shard that began before `below_us` are over.
    pub(super) fn are_over(&mut self, shard: u16, below_us: u64) {
        self.over.insert(shard, below_us);
    }

    /// The latest time below which the transactions of any shard are over.
    pub(super) fn latest_over_us(&self) -> u64 {
        self.over.values().copied().max().unwrap_or(0)
    }

    /// The time below which the transactions of all `shards` shards are over. Zero if that is not known of one of them.
    pub(super) fn all_over_us(&self, shards: u16) -> u64 {
        match self.over.len() == usize::from(shards) {
            true => self.over.values().copied().min().unwrap_or(0),
            false => 0,
        }
    }
}
