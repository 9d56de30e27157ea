//! Telling replicas from those whose places they took ([`serried_parts::Incarnations`]).
//!
//! A replica that has lost its disk may number its instances as its predecessor has, and lead recoveries in
//! the same ballots. And others may have counted what its predecessor said. So all that a replica sends about
//! instances names its incarnation. Who hears of a later one takes nothing of an earlier one from then on, but
//! that something was agreed on, and counts nothing that an earlier one has said for what is not agreed on yet.

use serried_actor::NodeSet;
use serried_model::{Key, NodeId};

use super::lead::Phase;
use super::{Cx, Replica};
use crate::consensus::message::Record;

impl Replica {
    /// Whether what a replica has sent is not from before it lost its disk. A later incarnation is noted.
    pub(super) fn is_current(&mut self, from: NodeId, incarnation: u64, cx: &mut Cx<'_>) -> bool {
        let known = self.incarnations.of(from);
        if incarnation > known && !from.is_coordinator() {
            self.set_incarnation(from, incarnation, cx);
            self.count_nothing_of(from);
        }
        incarnation >= known
    }

    pub(super) fn set_incarnation(&mut self, of: NodeId, incarnation: u64, cx: &mut Cx<'_>) {
        self.incarnations.set(of, incarnation);
        self.record_incarnations(cx);
    }

    /// Writes them at the end of the log.
    pub(super) fn record_incarnations(&mut self, cx: &mut Cx<'_>) {
        self.quorums.hear(self.id, &self.incarnations.named());
        if let Some(of) = self.incarnations.record_at(cx.log_position()) {
            cx.append(Record::Incarnations(of));
        }
    }

    /// From where on the log is needed, if otherwise it were from `needed` on.
    pub(super) fn keep_incarnations(&mut self, needed: u64, cx: &mut Cx<'_>) -> u64 {
        if self.incarnations.are_far_before(needed) {
            self.record_incarnations(cx);
        }
        self.incarnations.need_log_from(needed)
    }

    /// A replica has lost its disk. What it has said counts no more; it will be asked again.
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
                    // What may have been decided was told by others than are there now.
                    Phase::Validating(_, asked, _) if asked.contains(replaced) => {
                        given_up.push(*id)
                    }
                    Phase::Validating(..) => {}
                    // Those who were asked are counted by incarnation.
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
