//! What is asked of a new leader.

use serried_actor::Context;
use serried_model::{NodeId, TxnId};

use super::super::control::Control;
use super::super::message::{Message, Request};
use super::Coordinator;
use super::txn::Phase;

type Cx<'a, C> = Context<'a, Coordinator<C>>;

impl<C: Control> Coordinator<C> {
    /// A replica has answered, which only one does that leads, or did. Whether another one had before.
    pub(super) fn is_led_by(&mut self, leader: NodeId) -> bool {
        let shard = leader.partition();
        self.leaders.insert(shard, leader);
        self.answered.insert(shard, leader).is_some_and(|former| former != leader)
    }

    /// A replica that has led tells who leads in its place.
    pub(super) fn on_follow(&mut self, from: NodeId, leader: NodeId, cx: &mut Cx<'_, C>) {
        let is_replica = self.group.all().contains(NodeId::replica(0, leader.member()));
        if leader.is_coordinator() || leader.partition() != from.partition() || !is_replica {
            return; // No replica of its shard is called so.
        }
        if self.is_led_by(leader) {
            self.follow(leader, cx);
        }
    }

    /// Another replica leads a shard than before: it is asked at once for all that the former one has not answered.
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
