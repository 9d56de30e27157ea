//! Telling the others how far a key is, forgetting what all have executed, and making up for what was
//! missed.

use core::time::Duration;

use serried_model::{Key, NodeId};

use super::{Cx, Replica, Task};
use crate::epaxos::instance::Dependencies;
use crate::epaxos::message::{Answer, Message, State};

/// How long after something was executed the others are told.
const TELL_AFTER: Duration = Duration::from_millis(100);
/// So often they are told again while something is left to be forgotten.
const TELL_AGAIN: Duration = Duration::from_millis(1000);
/// So many executed instances of a key are kept for a replica that has not executed them.
const KEPT: u64 = 256;

impl Replica {
    pub(super) fn tell_soon(&mut self, key: &Key, cx: &mut Cx<'_>) {
        let Some(active) = self.spaces.get_mut(key) else { return };
        if !core::mem::replace(&mut active.telling, true) {
            self.at(TELL_AFTER, key, Task::Tell, cx);
        }
    }

    pub(super) fn tell(&mut self, key: &Key, cx: &mut Cx<'_>) {
        let Some(active) = self.spaces.get_mut(key) else { return };
        active.telling = false;
        self.forget(key);
        let Some(active) = self.spaces.get_mut(key) else { return };
        active.untold = false;
        active.telling = true;
        let executed = active.space.executed().clone();
        let message = Message::Progress { key: key.clone(), executed };
        cx.broadcast(self.id.partition(), self.others(), message);
        self.at(TELL_AGAIN, key, Task::Tell, cx);
    }

    pub(super) fn on_progress(
        &mut self,
        from: NodeId,
        key: Key,
        executed: Dependencies,
        cx: &mut Cx<'_>,
    ) {
        let active = self.active(&key, cx.store());
        let missing = executed.beyond(active.space.executed()).count();
        let unknown = executed
            .beyond(active.space.executed())
            .any(|id| !active.space.is_executed(id) && active.space.get(id).is_none());
        let behind = active.space.executed().beyond(&executed).next().is_some();
        active.others.insert(from.member() as u8, executed);
        let telling = active.telling;
        if missing > 0 && unknown {
            cx.send(from, Message::Fetch { key: key.clone() });
        }
        if behind && !telling {
            let executed = self.active(&key, cx.store()).space.executed().clone();
            cx.send(from, Message::Progress { key: key.clone(), executed });
        }
        self.forget(&key);
    }

    /// Forgets what all have executed, and the key if nothing is left of it.
    fn forget(&mut self, key: &Key) {
        let members = self.group.size();
        let Some(active) = self.spaces.get_mut(key) else { return };
        let mut everywhere = active.space.executed().clone();
        let kept = |executed: u64| executed.saturating_sub(KEPT);
        for member in 0..members as u8 {
            if usize::from(member) == self.id.member() {
                continue;
            }
            let theirs = active.others.get(&member);
            let rows = |mine: &mut [u64], theirs: Option<&[u64]>| {
                for (at, row) in mine.iter_mut().enumerate() {
                    let theirs = theirs.and_then(|theirs| theirs.get(at)).copied().unwrap_or(0);
                    *row = theirs.max(kept(*row)).min(*row);
                }
            };
            rows(&mut everywhere.updates, theirs.map(|theirs| &theirs.updates[..]));
            rows(&mut everywhere.reads, theirs.map(|theirs| &theirs.reads[..]));
        }
        active.space.forget(&everywhere);
        let led = self.leads.keys().any(|(other, _)| other == key);
        if active.space.is_empty() && !led {
            self.spaces.remove(key);
        }
    }

    pub(super) fn on_fetch(&mut self, from: NodeId, key: Key, cx: &mut Cx<'_>) {
        let state = self.cells.get(&key, cx.store()).clone();
        cx.send(from, Message::Fetched { key, state });
    }

    /// Takes over what another replica has of a key, if that has executed all that this one has.
    pub(super) fn on_fetched(&mut self, key: Key, state: State, cx: &mut Cx<'_>) {
        let active = self.active(&key, cx.store());
        let mine = active.space.executed().clone();
        if state.executed.updates.is_empty()
            || mine.beyond(&state.executed).next().is_some()
            || state.executed.beyond(&mine).next().is_none()
        {
            return;
        }
        active.space.skip_to(&state.executed);
        self.leads.retain(|(other, id), _| *other != key || !state.executed.cover(*id));
        let active = self.active(&key, cx.store());
        let executed = active.space.executed().clone();
        let state = State { executed, ..state };
        self.cells.put(&key, state.clone(), cx.store());
        let waiting =
            self.clients.keys().filter(|(other, id)| *other == key && state.executed.cover(*id));
        for at in waiting.cloned().collect::<Vec<_>>() {
            let client = self.clients.remove(&at).expect("it waits");
            match state.result(client.command.token) {
                Some(found) => {
                    let answer = Answer::Done(found.clone());
                    cx.send(client.node, Message::Reply { request: client.request, answer });
                }
                // Nothing was done in its place, or it read.
                None => self.propose(&key, client, cx),
            }
        }
        self.execute(&key, cx);
    }
}
