//! The members of this replica's partition: their addresses, and the losses of their disks
//! ([`serried_parts::Incarnations`]).
//!
//! A replica that has lost its disk could reuse its predecessor's instance numbers and ballots, and
//! others may have counted its predecessor's messages. So every message about instances names its
//! sender's incarnation. When a replica learns of a later incarnation, it ignores messages from
//! earlier ones, except commits. Answers of an earlier incarnation no longer count for instances
//! that are not agreed on yet.

use serried_actor::{Group, NodeSet};
use serried_model::{Key, NodeId};
use serried_parts::{Incarnations, Quorums};

use super::Cx;
use crate::frameworks::consensus::instance::InstanceId;
use crate::frameworks::consensus::message::{Body, Message, Record};

/// The members of a partition, as one of them knows them.
#[derive(Debug)]
pub(super) struct Members {
    id: NodeId,
    incarnations: Incarnations,
    /// The receivers of requests, and whose replies count.
    pub(super) quorums: Quorums,
}

/// A message's incarnation, compared with the known one of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// The sender has lost its disk since it sent the message.
    Former,
    /// Both are the same.
    Current,
    /// The sender has lost its disk since its last message. Its earlier messages no longer count.
    Later,
}

impl Members {
    pub(super) fn new(id: NodeId, group: Group, thrifty: bool) -> Members {
        let incarnations = Incarnations::new(group.size());
        Members { id, incarnations, quorums: Quorums::new(group, thrifty) }
    }

    pub(super) fn group(&self) -> &Group {
        self.quorums.group()
    }

    pub(super) fn own_id(&self) -> NodeId {
        self.id
    }

    pub(super) fn partition(&self) -> u16 {
        self.id.partition()
    }

    /// The number of this replica.
    pub(super) fn own(&self) -> u8 {
        self.id.member() as u8
    }

    pub(super) fn node(&self, member: usize) -> NodeId {
        NodeId::replica(self.id.partition(), member)
    }

    /// The set of this replica alone.
    pub(super) fn me(&self) -> NodeSet {
        [self.id].into_iter().collect()
    }

    /// All replicas but this one.
    pub(super) fn others(&self) -> NodeSet {
        self.group().all().without(self.me())
    }

    // Messages.

    pub(super) fn send(&self, to: u8, key: &Key, id: InstanceId, body: Body, cx: &mut Cx<'_>) {
        cx.send(self.node(usize::from(to)), self.message(key, id, body));
    }

    pub(super) fn broadcast(
        &self,
        to: NodeSet,
        key: &Key,
        id: InstanceId,
        body: Body,
        cx: &mut Cx<'_>,
    ) {
        cx.broadcast(self.id.partition(), to, self.message(key, id, body));
    }

    fn message(&self, key: &Key, id: InstanceId, body: Body) -> Message {
        let (key, incarnation) = (key.clone(), self.own_incarnation());
        Message::Instance { key, id, incarnation, body: Box::new(body) }
    }

    // Incarnations.

    pub(super) fn incarnation(&self, of: NodeId) -> u64 {
        self.incarnations.of(of)
    }

    pub(super) fn own_incarnation(&self) -> u64 {
        self.incarnations.of(self.id)
    }

    /// The incarnations that an acknowledgement names ([`Incarnations::named`]).
    pub(super) fn named(&self) -> Vec<u64> {
        self.incarnations.named()
    }

    /// Compares a message's incarnation with the latest known one of its sender. Records a later
    /// incarnation.
    pub(super) fn hear(&mut self, from: NodeId, incarnation: u64, cx: &mut Cx<'_>) -> Heard {
        let known = self.incarnations.of(from);
        if incarnation > known && !from.is_coordinator() {
            self.set(from, incarnation, cx);
            return Heard::Later;
        }
        if incarnation >= known { Heard::Current } else { Heard::Former }
    }

    /// Begins an incarnation of this replica, which has lost its disk, if none has begun. It is
    /// later than all earlier ones, unless a clock was wrong. A crash may have preserved the loss
    /// of the disk without the incarnation.
    pub(super) fn begin_incarnation(&mut self, cx: &mut Cx<'_>) {
        if self.own_incarnation() == 0 {
            self.set(self.id, cx.clock().latest_us, cx);
        }
    }

    /// Begins a later incarnation of this replica.
    pub(super) fn begin_incarnation_anew(&mut self, incarnation: u64, cx: &mut Cx<'_>) {
        self.set(self.id, incarnation, cx);
    }

    fn set(&mut self, of: NodeId, incarnation: u64, cx: &mut Cx<'_>) {
        self.incarnations.set(of, incarnation);
        self.record_incarnations(cx);
    }

    /// Records all incarnations at the end of the log.
    pub(super) fn record_incarnations(&mut self, cx: &mut Cx<'_>) {
        self.quorums.hear(self.id, &self.incarnations.named());
        if let Some(of) = self.incarnations.record_at(cx.log_position()) {
            cx.append(Record::Incarnations(of));
        }
    }

    /// Restores the incarnations from a record.
    pub(super) fn replay_incarnations(&mut self, of: Vec<u64>) {
        self.incarnations.replay(of);
    }

    /// The first position of the log that is needed, if everything else needs it from `needed` on.
    pub(super) fn need_log_from(&mut self, needed: u64, cx: &mut Cx<'_>) -> u64 {
        if self.incarnations.are_far_before(needed) {
            self.record_incarnations(cx);
        }
        self.incarnations.need_log_from(needed)
    }
}
