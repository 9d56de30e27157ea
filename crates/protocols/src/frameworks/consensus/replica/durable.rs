//! What a replica makes durable, what it puts into the store, and what of its log it gives up.

use core::time::Duration;

use serried_actor::{Recover, Standing, Store};
use serried_model::{Key, NodeId, Value};
use serried_parts::encode_cell;

use super::lost::Lost;
use super::{Cx, Replica, Timer};
use crate::frameworks::consensus::instance::{Instance, InstanceId};
use crate::frameworks::consensus::message::Record;
use crate::frameworks::consensus::state::State;

/// How often what was executed is put into the store.
const STORE_EVERY: Duration = Duration::from_millis(10);
/// How many keys at a time; more where there are very many.
const STORED_AT_ONCE: usize = 256;
/// How often the log is trimmed where more and more is executed.
const TRIM_EVERY: Duration = Duration::from_millis(200);

impl Replica {
    /// Makes durable what is known of an instance. If it tells of instances of this replica's predecessor, their numbers are
    /// not used again.
    pub(super) fn record(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let member = self.member();
        let active = self.spaces.get_mut(key).expect("a key with an instance");
        active.space.learn(id);
        active.space.hear_of_those_of(member, id);
        let instance = active.space.get_mut(id);
        instance.recorded = cx.log_position();
        let instance = Box::new(instance.clone());
        cx.append(Record::Instance { key: key.clone(), id, instance });
    }

    pub(super) fn store_soon(&mut self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Store, STORE_EVERY);
    }

    pub(super) fn store_some(&mut self, cx: &mut Cx<'_>) {
        if !cx.store().is_behind() {
            let at_once = STORED_AT_ONCE.max(self.cells.unstored() / 64);
            self.cells.store_some(at_once, cx.store());
        }
        if self.cells.unstored() == 0 || self.trimmed + TRIM_EVERY <= cx.now() {
            self.trimmed = cx.now();
            self.trim(cx);
        }
        if self.cells.unstored() > 0 {
            cx.set_timer(Timer::Store, STORE_EVERY);
        } else if !self.spaces.is_empty() {
            cx.set_timer(Timer::Store, TRIM_EVERY);
        }
    }

    /// Gives up the records of instances that are forgotten and of states that are stored.
    fn trim(&mut self, cx: &mut Cx<'_>) {
        // That something is missing stands in one of them.
        if self.lost.is_some() {
            return;
        }
        let needed = [self.spaces.need_log_from(), self.cells.needs_log_from()];
        let needed = needed.into_iter().flatten().min();
        let needed = self.keep_incarnations(needed.unwrap_or(cx.log_position()), cx);
        if self.refusals.are_far_before(needed) {
            self.record_refusals(cx);
        }
        cx.trim_log(self.refusals.need_log_from(needed));
    }

    /// Refuses a request permanently. The client is told that it will not take effect.
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
                let mut state = self.cells.get(&key, store).clone();
                if state.hold(&stamped) {
                    self.cells.put(&key, state, store);
                }
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
            Record::Incarnations(of) => self.incarnations.replay(of),
            Record::Lost => self.lost = Some(Lost::default()),
            Record::Whole => self.lost = None,
            Record::Refused(refused) => {
                refused.into_iter().for_each(|(client, of)| self.refusals.refuse(client, of));
            }
        }
    }

    fn standing(&self) -> Standing {
        self.lost.as_ref().map_or(Standing::Full, |lost| Standing::Rejoining { keys: lost.keys })
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        self.lost = Some(Lost::default());
        cx.append(Record::Lost);
        self.begin_incarnation(cx);
    }

    fn stored(value: &Value) -> Vec<u8> {
        encode_cell(&State::initial(value.clone()))
    }
}
