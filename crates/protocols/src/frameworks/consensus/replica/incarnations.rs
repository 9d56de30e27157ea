//! Distinguishes replicas from those that they replace ([`serried_parts::Incarnations`]).
//!
//! A replica that has lost its disk could reuse its predecessor's instance numbers and ballots, and others may have counted
//! what its predecessor has said. So every message about instances names its sender's incarnation. When a replica learns
//! of a later incarnation, it takes nothing more from earlier ones, except that something was agreed on. What an earlier
//! one has said does not count any more for anything that is not agreed on yet.

use serried_actor::NodeSet;
use serried_model::{Key, NodeId};

use super::lead::Phase;
use super::{Cx, Replica};
use crate::frameworks::consensus::message::Record;

impl Replica {
    /// Whether a message is from its sender's latest known incarnation. Notes a later incarnation.
    pub(super) fn is_current(&mut self, from: NodeId, incarnation: u64, cx: &mut Cx<'_>) -> bool {
        let known = self.incarnations.of(from);
        if incarnation > known && !from.is_coordinator() {
            self.set_incarnation(from, incarnation, cx);
            self.count_nothing_of(from);
        }
        incarnation >= known
    }

    /// Takes over which incarnations of others are known, as the predecessor knew: those may be replaced again, and
    /// whoever replaces them has to be told of the latest.
    pub(super) fn learn_of_others(&mut self, incarnations: &[u64], cx: &mut Cx<'_>) {
        for (member, incarnation) in incarnations.iter().enumerate().take(self.group().size()) {
            let other = self.node(member);
            if other != self.id {
                self.is_current(other, *incarnation, cx);
            }
        }
    }

    /// Begins an incarnation later than all before, unless a clock was off, if this replica has lost its disk and has not
    /// begun one. A crash may have kept that the disk was lost and nothing of the incarnation.
    pub(super) fn begin_incarnation(&mut self, cx: &mut Cx<'_>) {
        if self.lost.is_some() && self.incarnations.of(self.id) == 0 {
            self.set_incarnation(self.id, cx.clock().latest_us, cx);
        }
    }

    pub(super) fn set_incarnation(&mut self, of: NodeId, incarnation: u64, cx: &mut Cx<'_>) {
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

    /// From which position on the log is needed, if everything else needs it from `needed` on.
    pub(super) fn keep_incarnations(&mut self, needed: u64, cx: &mut Cx<'_>) -> u64 {
        if self.incarnations.are_far_before(needed) {
            self.record_incarnations(cx);
        }
        self.incarnations.need_log_from(needed)
    }

    /// A replica has lost its disk. What it has said does not count any more. It is asked again.
    fn count_nothing_of(&mut self, replaced: NodeId) {
        let member = replaced.member() as u8;
        let set: NodeSet = [replaced].into_iter().collect();
        self.count_no_holding_of(set);
        let keys: Vec<Key> = self.spaces.sorted();
        for key in keys {
            let mut given_up = Vec::new();
            for (id, lead) in self.active_leads(&key) {
                match &mut lead.phase {
                    Phase::PreAccepting(replies) => drop(replies.remove(&member)),
                    Phase::Preparing(replies) => drop(replies.remove(&member)),
                    // The choice was made from answers of which one does not count any more.
                    Phase::Validating(_, asked, _) if asked.contains(replaced) => {
                        given_up.push(*id)
                    }
                    Phase::Validating(..) => {}
                    // Acceptances are counted by incarnation.
                    Phase::Accepting(_) => {}
                    Phase::Executing(executed) => *executed = executed.without(set),
                }
            }
            for id in given_up {
                self.active_leads(&key).remove(&id);
                self.leave(&key, id);
            }
        }
    }
}
