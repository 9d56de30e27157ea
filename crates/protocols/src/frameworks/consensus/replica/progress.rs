//! Forgetting what was executed, and making up for what was missed.
//!
//! An instance is forgotten where it was executed: what it has made of the key is there, and which were
//! executed. Whoever asks about it is handed that. Nothing is lost to the order: one that is not executed
//! here can't be among the dependencies of one that is, so it has to come after that; and the two can't be
//! in a cycle, as that would have been executed as a whole.

use serried_model::{Key, NodeId};

use super::active::Active;
use super::{Cx, Replica};
use crate::frameworks::consensus::State;
use crate::frameworks::consensus::instance::{InstanceId, Status};
use crate::frameworks::consensus::message::{Body, Message};

impl Replica {
    /// Forgets what was executed and is not led here, and the key if nothing is left of it.
    pub(super) fn forget(&mut self, key: &Key) {
        let Some(active) = self.spaces.get_mut(key) else { return };
        let leads = &active.leads;
        active.space.forget(|id| leads.contains_key(&id));
        if active.space.is_empty() && leads.is_empty() && active.clients.is_empty() {
            self.spaces.remove(key);
        }
    }

    /// What something committed waits for should have come by now.
    pub(super) fn inquire(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let Some(active) = self.spaces.get(key) else { return };
        let is_known = active.space.get(id).is_some_and(|i| i.status == Status::Committed);
        if !is_known && !active.space.is_executed(id) && !active.leads.contains_key(&id) {
            self.broadcast(self.others(), key, id, Body::Inquire, cx);
        }
    }

    /// Another replica waits for an instance. If it is not agreed on, this replica ensures that it will be.
    pub(super) fn on_inquire(&mut self, from: u8, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        self.active(key, cx.store());
        self.watch(key, id);
        let known = self.active(key, cx.store()).space.get(id);
        if let Some(known) = known.filter(|known| known.status == Status::Committed) {
            let (command, attributes) = (known.command.clone(), known.attributes.clone());
            self.send(from, key, id, Body::Commit { command, attributes }, cx);
        }
    }

    /// Another has asked about an instance that this one has executed and forgotten.
    pub(in crate::frameworks::consensus) fn hand_over(
        &mut self,
        to: NodeId,
        key: &Key,
        cx: &mut Cx<'_>,
    ) {
        let state = Box::new(self.cells.get(key, cx.store()).clone());
        cx.send(to, Message::TakeOver { key: key.clone(), state });
    }

    /// Takes over another replica's state of a key. Returns whether everything that the other has executed is known here now.
    ///
    /// Of two replicas, one has done all updates that the other has done: an update is done after those that it depends on,
    /// and if two interfere, one depends on the other or both are done together. Reads, and instances that do nothing,
    /// leave no trace, so each replica may have executed some that the other has not. So the state of the replica that has
    /// done more updates contains everything that both have executed.
    pub(super) fn take_over(&mut self, key: &Key, state: State, cx: &mut Cx<'_>) -> bool {
        if self.rules.have_registers() {
            self.hold(key, &state.held, cx);
        }
        if state.executed.updates.is_empty() {
            return true; // It has executed nothing.
        }
        let mine = self.cells.get(key, cx.store()).clone();
        let active = self.active(key, cx.store());
        active.space.hear_of_all(&state.executed);
        let behind = !state.executed.are_within(active.space.executed());
        let theirs_is_later = mine.has_done_no_update_beyond(&state.executed);
        let is_later = theirs_is_later || state.has_done_no_update_beyond(&mine.executed);
        if !behind || !is_later {
            self.forget(key);
            return !behind;
        }
        active.space.skip_to(&state.executed);
        let Active { space, leads, clients, .. } = active;
        leads.retain(|id, _| space.get(*id).is_some());
        let mut waiting = Vec::new();
        clients.retain(|id, client| {
            let known = space.get(*id).is_some();
            if !known {
                waiting.push((**client).clone());
            }
            known
        });
        let executed = active.space.executed().clone();
        let last = active.space.last_executed_of_all();
        let (mut later, other) =
            if theirs_is_later { (state, &mine) } else { (mine.clone(), &state) };
        if self.rules.have_registers() {
            later.held = mine.held.clone();
        }
        later.join(other, executed, &last);
        self.cells.put(key, later, cx.store());
        // What they came to is remembered, or nothing was done in their place, or they read.
        for client in waiting {
            self.propose(key, client, cx);
        }
        self.execute(key, cx);
        true
    }
}
