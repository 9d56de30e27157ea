//! Execution of committed instances, and copying of states from other replicas.
//!
//! An instance is forgotten once it is executed: the key's state contains its effect and the set of
//! executed instances. A replica that asks about a forgotten instance gets that state. This
//! preserves the order. An instance that is not executed here can't be among the dependencies of
//! one that is. So it has to follow it. And the two can't be in a cycle, because a cycle is
//! executed as a whole.
//!
//! These handlers are methods of the replica: executing a command changes its key's
//! [state](super::states) and [instances](super::active), answers clients, and asks the members
//! about missing instances.

use serried_actor::NodeSet;
use serried_model::{Key, NodeId};

use super::active::Active;
use super::schedule::Task;
use super::states::store_soon;
use super::{Cx, Replica};
use crate::frameworks::consensus::State;
use crate::frameworks::consensus::instance::{Instance, InstanceId, Status};
use crate::frameworks::consensus::message::{Body, Message, Shown};

impl Replica {
    /// Executes all executable instances of a key.
    pub(super) fn execute(&mut self, key: &Key, cx: &mut Cx<'_>) {
        let remembered_us = self.settings.outcomes_ms * 1000;
        let registers = self.rules.have_registers();
        loop {
            let Some(active) = self.keys.get_mut(key) else { return };
            let (order, missing) = active.space.executable();
            for id in missing {
                self.keys.watch(key, id);
                self.schedule.at(
                    self.members.quorums.patience(0),
                    Task::Inquire(key.clone(), id),
                    cx,
                );
            }
            if order.is_empty() {
                return self.keys.forget(key);
            }
            let active = self.keys.get_mut(key).expect("as before");
            // The state after them follows from their records.
            let recorded = |id: &InstanceId| active.space.get(*id).map(|known| known.recorded);
            let position = order.iter().filter_map(recorded).min().unwrap_or(u64::MAX);
            let state = self.states.cells.change(key, position, cx.store());
            let (mut answered, mut executed) = (Vec::new(), Vec::new());
            for id in order {
                let instance = active.space.get(id).expect("an executable instance is known");
                if instance.command.is_some() {
                    state.has_done_something(id);
                } else {
                    state.has_done_nothing(id, active.space.last_executed(id));
                }
                if let Some(command) = &instance.command {
                    let base = instance.attributes.base.as_ref();
                    let fresh = instance.attributes.fresh;
                    let answer = state.execute(command, (base, fresh), remembered_us);
                    if let Some(client) = active.clients.get_mut(&id) {
                        client.answer = Some(answer);
                        answered.push(id);
                    } else if registers && usize::from(id.member) != usize::from(self.members.own())
                    {
                        executed.push(id);
                    }
                }
                active.space.set_executed(id);
            }
            let space = &active.space;
            state.are_executed(space.executed(), |row| space.last_executed(row));
            cx.charge(1);
            for id in executed {
                self.tell_executed(self.members.node(usize::from(id.member)), key, id, cx);
            }
            for id in answered {
                self.count_executed(self.members.own(), key, id, cx);
            }
            store_soon(cx);
        }
    }

    /// Reports to `to`, which waits for it, that this replica has executed an instance.
    pub(super) fn tell_executed(&self, to: NodeId, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        if self.rules.have_registers() && !self.rejoin.is_under_way() {
            self.members.send(to.member() as u8, key, id, Body::Executed, cx);
        }
    }

    /// Asks about an instance that a committed one waits for and that should have arrived by now.
    pub(super) fn inquire(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let Some(active) = self.keys.get(key) else { return };
        if !self.keys.is_decided(key, id) && !active.leads.contains_key(&id) {
            self.members.broadcast(self.members.others(), key, id, Body::Inquire, cx);
        }
    }

    /// Answers another replica that waits for an instance. If the instance is not agreed on, this
    /// replica ensures that it will be.
    pub(super) fn on_inquire(&mut self, from: u8, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        self.active(key, cx.store());
        self.keys.watch(key, id);
        let known = self.active(key, cx.store()).space.get(id);
        if let Some(known) = known.filter(|known| known.status == Status::Committed) {
            let (command, attributes) = (known.command.clone(), known.attributes.clone());
            self.members.send(from, key, id, Body::Commit { command, attributes }, cx);
        }
    }

    /// Sends a key's state to a replica that has asked about an executed and forgotten instance.
    pub(in crate::frameworks::consensus) fn hand_over(
        &mut self,
        to: NodeId,
        key: &Key,
        cx: &mut Cx<'_>,
    ) {
        let state = Box::new(self.states.get(key, cx.store()).clone());
        cx.send(to, Message::TakeOver { key: key.clone(), state });
    }

    /// Copies another replica's state of a key. Returns whether this replica now knows everything
    /// that the other has executed.
    ///
    /// Of two replicas, one has executed all updates that the other has executed: an update is
    /// executed after those that it depends on, and if two interfere, one depends on the other or
    /// both are executed together. Reads and no-ops leave no trace, so each replica may have
    /// executed some that the other has not. So the state of the replica that has executed more
    /// updates contains all effects that either has.
    pub(super) fn take_over(&mut self, key: &Key, state: State, cx: &mut Cx<'_>) -> bool {
        if self.rules.have_registers() {
            self.states.hold(key, &state.held, cx);
        }
        if state.executed.updates.is_empty() {
            return true; // The other replica has executed nothing.
        }
        let mine = self.states.get(key, cx.store()).clone();
        let active = self.active(key, cx.store());
        active.space.hear_of_all(&state.executed);
        let behind = !state.executed.are_within(active.space.executed());
        let theirs_is_later = mine.has_done_no_update_beyond(&state.executed);
        let is_later = theirs_is_later || state.has_done_no_update_beyond(&mine.executed);
        if !behind || !is_later {
            self.keys.forget(key);
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
        self.states.cells.put(key, later, cx.store());
        // Their results are remembered, or their instances became no-ops, or they are reads.
        for client in waiting {
            self.propose(key, client, cx);
        }
        self.execute(key, cx);
        true
    }

    /// Copies a page of another replica's state, after this one has lost its disk.
    pub(super) fn on_scanned(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        entries: Vec<Shown>,
        (more, incarnations): (bool, Vec<u64>),
        cx: &mut Cx<'_>,
    ) {
        if !self.rejoin.is_under_way() {
            return;
        }
        self.hear_of_others(&incarnations, cx);
        if !self.rejoin.expects(from, &after, &incarnations, &mut self.members, cx) {
            return;
        }
        cx.charge(entries.len());
        let (last, shown) = (entries.last().map(|shown| shown.key.clone()), entries.len() as u64);
        let mut all_is_known = true;
        for Shown { key, state, instances } in entries {
            all_is_known &= self.take_over(&key, state, cx);
            for (id, theirs) in instances {
                self.be_shown(from, &key, id, theirs, cx);
            }
            self.execute(&key, cx);
        }
        // Otherwise the same page is requested again.
        if all_is_known {
            self.rejoin.page_is_done(from, (shown, last.or(after), more), &self.members, cx);
        }
    }

    /// Copies another replica's knowledge of an instance, or waits until the instance is decided.
    fn be_shown(
        &mut self,
        from: NodeId,
        key: &Key,
        id: InstanceId,
        theirs: Instance,
        cx: &mut Cx<'_>,
    ) {
        let active = self.active(key, cx.store());
        // Its own instances must be numbered after all that others depend on.
        active.space.hear_of_all(&theirs.attributes.dependencies);
        if theirs.status == Status::Committed && !active.space.is_executed(id) {
            let agreed = (theirs.command, theirs.attributes);
            if self.keys.contradict(key, id, &agreed) {
                let what = format_args!("a second, different agreement on {id:?} of `{key}`");
                return self.reject(from, what, cx);
            }
            return self.commit(key, id, agreed, NodeSet::EMPTY, cx);
        }
        if !self.keys.is_decided(key, id) {
            self.keys.watch(key, id);
            self.rejoin.wait_for(key, id);
        }
    }
}
