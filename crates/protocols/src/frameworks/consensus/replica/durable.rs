//! Durable state of a replica, and trimming of its log.
//!
//! Trimming and replaying concern every record of the log, so they are methods of the replica.

use serried_actor::{Recover, Standing, Store};
use serried_model::{NodeId, Value};
use serried_parts::encode_cell;

use super::{Cx, Replica};
use crate::frameworks::consensus::instance::Instance;
use crate::frameworks::consensus::message::Record;
use crate::frameworks::consensus::state::State;

impl Replica {
    /// Writes some executed state to the store, and trims the log from time to time.
    pub(super) fn store_some(&mut self, cx: &mut Cx<'_>) {
        if self.states.store_some(cx) {
            self.trim(cx);
        }
        self.states.store_later(!self.keys.is_empty(), cx);
    }

    /// Trims the records of forgotten instances and stored states.
    fn trim(&mut self, cx: &mut Cx<'_>) {
        // One of the records shows that the disk was lost.
        if self.rejoin.is_under_way() {
            return;
        }
        let needed = [self.keys.need_log_from(), self.states.cells.needs_log_from()];
        let needed = needed.into_iter().flatten().min();
        let needed = self.members.need_log_from(needed.unwrap_or(cx.log_position()), cx);
        if self.refusals.are_far_before(needed) {
            self.record_refusals(cx);
        }
        cx.trim_log(self.refusals.need_log_from(needed));
    }

    /// Refuses a request permanently. The client learns that it will not take effect.
    pub(super) fn refuse(&mut self, client: NodeId, request: u64, cx: &mut Cx<'_>) {
        self.refusals.refuse(client, request);
        self.refusals.recorded_at(cx.log_position());
        cx.append(Record::Refused(vec![(client, request)]));
    }

    /// Records all refusals at the end of the log.
    pub(super) fn record_refusals(&mut self, cx: &mut Cx<'_>) {
        if let Some(refused) = self.refusals.record_all_at(cx.log_position()) {
            cx.append(Record::Refused(refused));
        }
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, store: &mut dyn Store) {
        match record {
            Record::Applied { key, stamped } => {
                self.states.replay_held(&key, &stamped, store);
            }
            Record::Instance { key, id, instance } => {
                let active = self.active(&key, store);
                if !active.space.is_executed(id) {
                    *active.space.get_mut(id) = *instance;
                    active.space.learn(id);
                }
            }
            Record::InstanceBefore { key, id, instance } => {
                let instance = Box::new(Instance::from(*instance));
                self.replay(Record::Instance { key, id, instance }, store);
            }
            Record::Incarnations(of) => self.members.replay_incarnations(of),
            Record::Lost => self.rejoin.begin(),
            Record::Whole => self.rejoin.end(),
            Record::Refused(refused) => {
                refused.into_iter().for_each(|(client, of)| self.refusals.refuse(client, of));
            }
        }
    }

    fn standing(&self) -> Standing {
        self.rejoin.keys().map_or(Standing::Full, |keys| Standing::Rejoining { keys })
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        self.rejoin.begin();
        cx.append(Record::Lost);
        self.members.begin_incarnation(cx);
    }

    fn stored(value: &Value) -> Vec<u8> {
        encode_cell(&State::initial(value.clone()))
    }
}
