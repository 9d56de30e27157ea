//! Forgetting what was executed, and making up for what was missed.
//!
//! An instance is forgotten where it was executed: what it has made of the key is there, and which were
//! executed. Whoever has missed it is told so, and takes over the state instead. Nothing is lost to
//! ordering: one that is not executed here can't be among the dependencies of one that is, so it has to
//! come after that; and the two can't be in a cycle, as that would have been executed as a whole.

use serried_model::{Key, NodeId};

use super::{Cx, Replica};
use crate::consensus::State;
use crate::consensus::instance::Dependencies;
use crate::consensus::message::Message;

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

    /// Another has executed and forgotten what this one has asked it about.
    pub(super) fn on_progress(
        &mut self,
        from: NodeId,
        key: Key,
        executed: &Dependencies,
        cx: &mut Cx<'_>,
    ) {
        let active = self.active(&key, cx.store());
        if executed.beyond(active.space.executed()).any(|id| !active.space.is_executed(id)) {
            cx.send(from, Message::Fetch { key: key.clone() });
        }
        self.forget(&key);
    }

    pub(super) fn on_fetch(&mut self, from: NodeId, key: Key, cx: &mut Cx<'_>) {
        let state = self.cells.get(&key, cx.store()).clone();
        cx.send(from, Message::Fetched { key, state });
    }

    /// Takes over what another replica has of a key, if that has executed all that this one has.
    pub(super) fn on_fetched(&mut self, key: Key, mut state: State, cx: &mut Cx<'_>) {
        self.hold(&key, &state.held, cx);
        let held = self.cells.get(&key, cx.store()).held.clone();
        let active = self.active(&key, cx.store());
        let mine = active.space.executed().clone();
        if state.executed.updates.is_empty()
            || mine.beyond(&state.executed).next().is_some()
            || state.executed.beyond(&mine).next().is_none()
        {
            return;
        }
        active.space.skip_to(&state.executed);
        active.leads.retain(|id, _| !state.executed.cover(*id));
        let mut waiting = Vec::new();
        active.clients.retain(|id, client| {
            let covered = state.executed.cover(*id);
            if covered {
                waiting.push((**client).clone());
            }
            !covered
        });
        let executed = active.space.executed().clone();
        state.held = held;
        state.executed = executed;
        self.cells.put(&key, state, cx.store());
        // What they came to is remembered, or nothing was done in their place, or they read.
        for client in waiting {
            self.propose(&key, client, cx);
        }
        self.execute(&key, cx);
    }
}
