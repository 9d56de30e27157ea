//! Telling the others how far a key is, forgetting what all have executed, and making up for what was
//! missed.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serried_actor::NodeSet;
use serried_model::{Key, NodeId};

use super::lead::Phase;
use super::{Active, Cx, Replica, Timer};
use crate::consensus::State;
use crate::consensus::instance::{Dependencies, InstanceId};
use crate::consensus::message::Message;

/// How long after something was executed the others are told.
const TELL_AFTER: Duration = Duration::from_millis(100);
/// They are told again each so many times, while something is left to be forgotten.
const TELL_AGAIN: u32 = 10;
/// How many keys a message is about, at most.
const TOLD_AT_ONCE: usize = 500;
/// So many executed instances of a key are kept for a replica that has not executed them.
const KEPT: u64 = 256;
/// Of so many keys. If more have something left, all that is executed is forgotten, and a replica that is
/// behind is given states.
const KEPT_KEYS: usize = 1 << 14;

/// The keys of which the others are to be told.
#[derive(Debug, Default)]
pub(super) struct Untold {
    /// Something was executed since they were told.
    now: BTreeSet<Key>,
    /// Something is left.
    again: BTreeSet<Key>,
    turns: u32,
}

impl Replica {
    pub(super) fn tell_soon(&mut self, key: &Key, cx: &mut Cx<'_>) {
        if self.untold.now.is_empty() && self.untold.again.is_empty() {
            cx.set_timer(Timer::Tell, TELL_AFTER);
        }
        if !self.untold.now.contains(key) {
            self.untold.now.insert(key.clone());
        }
    }

    pub(super) fn tell(&mut self, cx: &mut Cx<'_>) {
        self.untold.turns += 1;
        if self.untold.turns.is_multiple_of(TELL_AGAIN) {
            self.ask_who_is_behind(cx);
        }
        let mut told = Vec::new();
        for key in core::mem::take(&mut self.untold.now) {
            // Others may wait for it though nothing is left here.
            told.push((key.clone(), self.active(&key, cx.store()).space.executed().clone()));
            self.forget(&key);
            if self.spaces.contains_key(&key) {
                self.untold.again.insert(key);
            }
        }
        self.tell_of(self.others(), told, false, cx);
        if !self.untold.again.is_empty() {
            cx.set_timer(Timer::Tell, TELL_AFTER);
        }
    }

    /// Tells those again, of what is left, who have not told that they have executed as much.
    fn ask_who_is_behind(&mut self, cx: &mut Cx<'_>) {
        let mut behind: BTreeMap<usize, Vec<(Key, Dependencies)>> = BTreeMap::new();
        let others = self.others();
        for key in core::mem::take(&mut self.untold.again) {
            self.forget(&key);
            let Some(active) = self.spaces.get(&key) else { continue };
            let executed = active.space.executed();
            for member in others.members() {
                let theirs = active.others.get(&(member as u8));
                if theirs.is_none_or(|theirs| executed.beyond(theirs).next().is_some()) {
                    behind.entry(member).or_default().push((key.clone(), executed.clone()));
                }
            }
            self.untold.again.insert(key);
        }
        for (member, keys) in behind {
            let to = [self.node(member)].into_iter().collect();
            self.tell_of(to, keys, true, cx);
        }
    }

    fn tell_of(&self, to: NodeSet, keys: Vec<(Key, Dependencies)>, asks: bool, cx: &mut Cx<'_>) {
        for keys in keys.chunks(TOLD_AT_ONCE) {
            let message = Message::Progress { keys: keys.to_vec(), asks };
            cx.broadcast(self.id.partition(), to, message);
        }
    }

    pub(super) fn on_progress(
        &mut self,
        from: NodeId,
        keys: Vec<(Key, Dependencies)>,
        asks: bool,
        cx: &mut Cx<'_>,
    ) {
        let member = from.member() as u8;
        let mut behind = Vec::new();
        for (key, executed) in keys {
            let untold = self.untold.now.contains(&key);
            let active = self.active(&key, cx.store());
            let mine = active.space.executed();
            let missing = |id: InstanceId| !active.space.is_executed(id);
            let unknown = |id: InstanceId| missing(id) && active.space.get(id).is_none();
            if executed.beyond(mine).any(unknown) {
                cx.send(from, Message::Fetch { key: key.clone() });
            }
            // Of two who have executed different things neither is behind: if each told the other for
            // that, they would not stop.
            let is_behind =
                mine.beyond(&executed).next().is_some() && executed.beyond(mine).next().is_none();
            if (asks || is_behind) && !untold {
                behind.push((key.clone(), mine.clone()));
            }
            let waits = |(id, lead): (&InstanceId, &super::Lead)| {
                let waits = matches!(lead.phase, Phase::Executing(_)) && executed.cover(*id);
                waits.then_some(*id)
            };
            let waiting: Vec<InstanceId> = active.leads.iter().filter_map(waits).collect();
            active.others.insert(member, executed);
            for id in waiting {
                self.count_executed(member, &key, id, cx);
            }
            self.forget(&key);
        }
        self.tell_of([from].into_iter().collect(), behind, false, cx);
    }

    /// Forgets what all have executed, and the key if nothing is left of it.
    pub(super) fn forget(&mut self, key: &Key) {
        let members = self.group().size();
        let at_most = if self.spaces.len() > KEPT_KEYS { 0 } else { KEPT };
        let Some(active) = self.spaces.get_mut(key) else { return };
        let mut everywhere = active.space.executed().clone();
        let kept = |executed: u64| executed.saturating_sub(at_most);
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
        let Active { space, leads, .. } = active;
        space.forget(&everywhere, |id| leads.contains_key(&id));
        if space.is_empty() && leads.is_empty() {
            self.spaces.remove(key);
        }
    }

    pub(super) fn on_fetch(&mut self, from: NodeId, key: Key, cx: &mut Cx<'_>) {
        let state = self.cells.get(&key, cx.store()).clone();
        cx.send(from, Message::Fetched { key, state });
    }

    /// Takes over what another replica has of a key, if that has executed all that this one has.
    pub(super) fn on_fetched(&mut self, key: Key, mut state: State, cx: &mut Cx<'_>) {
        if self.rules.have_registers() {
            self.hold(&key, &state.held, cx);
            state.held = self.cells.get(&key, cx.store()).held.clone();
        }
        if state.executed.updates.is_empty() {
            return;
        }
        let active = self.active(&key, cx.store());
        active.space.hear_of_all(&state.executed);
        let mine = active.space.executed().clone();
        // That nothing was done in an instance is no part of the state.
        let space = &active.space;
        let matters = |id: InstanceId| space.get(id).is_none_or(|known| known.command.is_some());
        if mine.beyond(&state.executed).any(matters)
            || state.executed.beyond(&mine).next().is_none()
        {
            return self.forget(&key);
        }
        active.space.skip_to(&state.executed);
        active.leads.retain(|id, _| !state.executed.cover(*id));
        let mut waiting = Vec::new();
        active.clients.retain(|id, client| {
            let covered = state.executed.cover(*id);
            if covered {
                waiting.push(client.clone());
            }
            !covered
        });
        state.executed = active.space.executed().clone();
        self.cells.put(&key, state, cx.store());
        self.tell_soon(&key, cx);
        // What they came to is remembered, or nothing was done in their place, or they read.
        for client in waiting {
            self.propose(&key, client, cx);
        }
        self.execute(&key, cx);
    }
}
