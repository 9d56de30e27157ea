//! Reads and writes of executions (000 §4.2, "Execution" and "Re-Execution"), and reads of the past.

use serried_actor::Observation;
use serried_model::{Key, NodeId, Value, Version};
use serried_parts::{Effect, WriteId};

use super::key_record::{Found, Notice};
use super::{Cx, Replica};
use crate::morty::message::{Contents, Message, PastRead, Refusal, Reply, Settlement, Status};
use crate::morty::{Control, Mutation};

impl Replica {
    /// Whether this replica takes part in a transaction. If not, sends the reason to its coordinator.
    pub(super) fn admits(&mut self, version: Version, prepare: bool, cx: &mut Cx) -> bool {
        let late = self.setup.options.mutation.is(Mutation::LatePrepare) && prepare;
        if let Some(settlement) = self.transactions.remembered(version, &self.state)
            && !(late && settlement == Settlement::Aborted)
        {
            cx.send(version.coordinator, Message::Status(Status::Settled { version, settlement }));
            return false;
        }
        if version < self.truncation.stopped() {
            let clock_us = cx.clock().midpoint_us();
            refuse(version, Refusal::Truncated { clock_us }, cx);
            return false;
        }
        if self.setup.is_too_far_ahead(version, cx) {
            let clock_us = cx.clock().midpoint_us();
            refuse(version, Refusal::Ahead { clock_us }, cx);
            return false;
        }
        true
    }

    /// Says whether a Prepare would be admitted now. The replica keeps nothing of the question.
    pub(super) fn on_ask_admission(&mut self, version: Version, cx: &mut Cx) {
        if self.admits(version, false, cx) {
            let clock_us = cx.clock().latest_us;
            cx.send_before_durable(
                version.coordinator,
                Message::Reply(Reply::Admitted { version, clock_us }),
            );
        }
    }

    pub(super) fn on_get(&mut self, version: Version, key: Key, cx: &mut Cx) {
        if self.catch_up.is_behind() || !self.admits(version, false, cx) {
            return;
        }
        let place = self.state.keys.loaded(&key, cx.store());
        let record = self.state.keys.settled_at(place);
        let settled = self.state.progress.watermark();
        let Found { source: found, value } = match self.setup.options.control {
            Control::Ordering => record.find_for(version, settled),
            Control::Validation => record.find_committed(settled),
        };
        let latest = found.latest().version;
        cx.observe(|| Observation::Read { key: key.clone(), reader: version, found: latest });
        let crowds = self.setup.options.crowds;
        if self.setup.options.re_execution && record.add_read(version, found.clone(), crowds) {
            self.transactions.open(version, cx.now(), &self.setup).reads.push(place);
        }
        let reply =
            Message::Reply(Reply::GetReply { version, key, found, value, instead_of: None });
        cx.send_before_durable(version.coordinator, reply);
    }

    pub(super) fn on_put(
        &mut self,
        version: Version,
        key: Key,
        (tag, rests_on): (u32, Option<WriteId>),
        value: Option<Value>,
        cx: &mut Cx,
    ) {
        if !self.admits(version, false, cx) {
            return;
        }
        let undecided = self.transactions.open(version, cx.now(), &self.setup);
        if tag < undecided.next_tag {
            return; // An execution that was prepared since writes something else, or nothing.
        }
        cx.observe(|| Observation::Written { key: key.clone(), version, revision: tag });
        let place = self.state.keys.place(&key);
        let written = (WriteId { version, tag }, rests_on);
        if self.state.keys.add_write(place, written, &Effect::Put(value)) {
            undecided.writes.push(place);
        }
        self.notify(cx);
    }

    pub(super) fn on_get_at(
        &mut self,
        from: NodeId,
        request: u64,
        key: Key,
        at: Version,
        cx: &mut Cx,
    ) {
        let found = if at > self.state.progress.watermark() {
            PastRead::NotSettled
        } else if at < self.state.progress.readable_from() {
            PastRead::Forgotten
        } else {
            let versions = &self.state.keys.load(&key, cx.store()).committed;
            let (id, value) = versions.value_at(at).unwrap_or((WriteId::INITIAL, None));
            PastRead::Value(id, value)
        };
        cx.send_before_durable(from, Message::Reply(Reply::GetAtReply { request, found }));
    }

    /// Sends readers what they would now find. Without re-execution nothing is sent, because a reader could
    /// not use it. A replica that is behind sends nothing either, because what it holds may have been deleted.
    pub(super) fn notify(&mut self, cx: &mut Cx) {
        if !self.setup.options.re_execution || self.catch_up.is_behind() {
            self.state.keys.forget_notices();
        }
        for Notice { reader, key, found, instead_of } in self.state.keys.take_notices() {
            let Found { source: found, value } = found;
            let latest = found.latest().version;
            cx.observe(|| Observation::Read { key: key.clone(), reader, found: latest });
            let reply =
                Message::Reply(Reply::GetReply { version: reader, key, found, value, instead_of });
            cx.send_before_durable(reader.coordinator, reply);
        }
    }
}

/// Tells the coordinator that this replica takes no part in a transaction.
pub(super) fn refuse(version: Version, refusal: Refusal, cx: &mut Cx) {
    cx.send(version.coordinator, Message::Reply(Reply::Refused { version, refusal }));
}

/// Reports to watchers that the writes of an execution can be read from now on.
pub(super) fn observe_writes(version: Version, contents: &Contents, cx: &mut Cx) {
    for write in &contents.writes {
        let revision = write.tag;
        cx.observe(|| Observation::Written { key: write.key.clone(), version, revision });
    }
}
