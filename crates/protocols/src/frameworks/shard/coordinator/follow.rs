//! How a client follows its shards' leaders.

use serried_actor::Context;
use serried_model::{NodeId, TxnId};

use super::super::control::Control;
use super::super::message::{Message, Request};
use super::Coordinator;
use super::txn::Phase;

type Cx<'a, C> = Context<'a, Coordinator<C>>;

impl<C: Control> Coordinator<C> {
    /// A replica has answered, so it leads, or did. Returns whether the last answer was from another replica.
    pub(super) fn is_led_by(&mut self, leader: NodeId) -> bool {
        let shard = leader.partition();
        self.leaders.insert(shard, leader);
        self.answered.insert(shard, leader).is_some_and(|former| former != leader)
    }

    /// A former leader says who leads in its place.
    pub(super) fn on_follow(&mut self, from: NodeId, leader: NodeId, cx: &mut Cx<'_, C>) {
        let is_replica = self.group.all().contains(NodeId::replica(0, leader.member()));
        if leader.is_coordinator() || leader.partition() != from.partition() || !is_replica {
            return; // There is no such replica in its shard.
        }
        if self.is_led_by(leader) {
            self.follow(leader, cx);
        }
    }

    /// A shard has a new leader. Sends it at once everything that the former leader has not answered.
    pub(super) fn follow(&mut self, leader: NodeId, cx: &mut Cx<'_, C>) {
        let shard = leader.partition();
        let mut reads: Vec<(TxnId, u64)> = Vec::new();
        for (txn, open) in &self.txns {
            let asked = open.asked.range((shard, 0)..=(shard, u16::MAX));
            for (_, asked) in asked {
                cx.send(leader, Message::Request(Request::Shot(asked.shot.clone())));
            }
            if let (Phase::Moving(to, moved), Some(version)) = (&open.phase, open.version)
                && open.shards.contains_key(&shard)
                && !moved.contains(&shard)
            {
                cx.send(leader, Message::Request(Request::Move { txn: version, to: *to }));
            }
            let asked = open.snapshot.iter().flat_map(|snapshot| &snapshot.asked);
            reads.extend(
                asked.filter(|(_, (of, _))| *of == shard).map(|(number, _)| (*txn, *number)),
            );
        }
        for (txn, number) in reads {
            self.send_snapshot(txn, number, cx);
        }
        self.tell_new_leader(leader, cx);
    }
}
