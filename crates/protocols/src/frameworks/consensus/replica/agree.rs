//! Agreement on a command: PreAccept, Accept and Commit (001 §4.3.1, Algorithms 3 and 4).
//!
//! These handlers are methods of the replica, because each step needs all components: the
//! [states](super::states) store the values that a client brings, the [active keys](super::active)
//! record the instance, the members receive messages, and the schedule gets the task that repeats
//! them. Each step ends with a commit, which executes commands and answers clients. [`super::lead`]
//! decides what the answers imply.

use std::collections::BTreeMap;

use serried_actor::NodeSet;
use serried_model::{Access, Key};
use serried_parts::Recalled;

use super::lead::{Agreed, Lead, Next, Phase};
use super::schedule::Task;
use super::{Client, Cx, Replica};
use crate::frameworks::consensus::instance::{Attributes, Ballot, Command, InstanceId, Status};
use crate::frameworks::consensus::message::{Answer, Body, Found};
use crate::frameworks::consensus::{Mutation, Variant};

/// In groups of up to this size, the position of a write is fixed when it is agreed on, because
/// every command that begins later gets a greater sequence number. Its quorum is a majority, so it
/// knows whether the write is also in another instance (see
/// [`consensus`](crate::frameworks::consensus), "When a write is acknowledged").
const SEQUENCED: usize = 3;

impl Replica {
    /// Continues an instance in a new phase.
    pub(super) fn begin(
        &mut self,
        key: &Key,
        id: InstanceId,
        (ballot, phase): (Ballot, Phase),
        cx: &mut Cx<'_>,
    ) {
        let due =
            self.schedule.at(self.members.quorums.patience(0), Task::Lead(key.clone(), id), cx);
        let lead = Lead { ballot, phase, repeated: 0, due };
        self.active(key, cx.store()).leads.insert(id, Box::new(lead));
    }

    /// The fast quorum of this replica's next command, without this replica: the nearest others.
    fn fast_quorum(&self) -> NodeSet {
        let faults = self.members.group().faults();
        let size = match self.rules.variant {
            Variant::Epaxos => faults + faults.div_ceil(2),
            Variant::Gryff | Variant::GryffRsc => 2 * faults,
        };
        self.members.quorums.nearest(
            self.members.partition(),
            size.saturating_sub(1),
            self.members.me(),
        )
    }

    /// Begins an instance for a client's command.
    pub(super) fn propose(&mut self, key: &Key, client: Client, cx: &mut Cx<'_>) {
        let member = self.members.own();
        let command = client.command.clone();
        self.states.take_in(Some(&command), cx);
        let base = self.states.base(key, cx.store());
        let others = self.fast_quorum();
        let quorum = others.union(self.members.me());
        let is_new = self.is_new(key, None, &command, cx);
        let active = self.active(key, cx.store());
        let (id, attributes) = active.space.next(command.kind(), member, base, is_new);
        active.clients.insert(id, Box::new(client));
        let instance = active.space.get_mut(id);
        instance.command = Some(command);
        instance.initial = attributes.dependencies.clone();
        instance.attributes = attributes;
        instance.status = Status::PreAccepted;
        instance.quorum = quorum;
        self.keys.record(key, id, cx);
        let ballot = Ballot { number: 0, member };
        self.begin(key, id, (ballot, Phase::PreAccepting(BTreeMap::new())), cx);
        let to = if self.settings.thrifty { others } else { self.members.others() };
        self.send_pre_accept(to, key, id, cx);
        self.count_pre_accepted(key, id, false, cx);
    }

    /// Whether a command is a write that this replica knows from nowhere else: there is no other
    /// instance and no result of it, and this replica can't have forgotten one. Only groups of up
    /// to [`SEQUENCED`] replicas can establish together that none has executed it.
    fn is_new(
        &mut self,
        key: &Key,
        id: Option<InstanceId>,
        command: &Command,
        cx: &mut Cx<'_>,
    ) -> bool {
        self.members.group().size() <= SEQUENCED
            && matches!(command.access, Access::Write(_))
            && self.states.get(key, cx.store()).recall(command.token) == Recalled::Nothing
            && !self.keys.is_under_way(key, id, command)
    }

    fn send_pre_accept(&mut self, to: NodeSet, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let instance = self.active(key, cx.store()).space.get_mut(id);
        let Some(command) = instance.command.clone() else { return };
        let (attributes, quorum) = (instance.attributes.clone(), instance.quorum);
        let body = Body::PreAccept { command, attributes, quorum };
        self.members.broadcast(to, key, id, body, cx);
    }

    pub(super) fn on_pre_accept(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        (command, theirs, quorum): (Command, Attributes, NodeSet),
        cx: &mut Cx<'_>,
    ) {
        let known = self.active(key, cx.store()).space.get_mut(id);
        let reply = match known.status {
            Status::Committed => {
                let (command, attributes) = (known.command.clone(), known.attributes.clone());
                Body::Commit { command, attributes }
            }
            _ if known.promised > Ballot::default() => Body::Refused { promised: known.promised },
            Status::PreAccepted => Body::PreAccepted { attributes: known.attributes.clone() },
            Status::Accepted => return,
            Status::Known => {
                self.states.take_in(Some(&command), cx);
                let base = self.states.base(key, cx.store());
                let is_new = self.is_new(key, Some(id), &command, cx);
                let active = self.active(key, cx.store());
                let attributes = active.space.merge(id, &theirs, base, is_new);
                let instance = active.space.get_mut(id);
                instance.command = Some(command);
                instance.initial = theirs.dependencies;
                instance.attributes = attributes.clone();
                instance.status = Status::PreAccepted;
                instance.quorum = quorum;
                self.keys.record(key, id, cx);
                Body::PreAccepted { attributes }
            }
        };
        self.members.send(from, key, id, reply, cx);
    }

    pub(super) fn on_pre_accepted(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        attributes: Attributes,
        cx: &mut Cx<'_>,
    ) {
        let Some(lead) = self.keys.lead(key, id) else { return };
        let Phase::PreAccepting(replies) = &mut lead.phase else { return };
        replies.insert(from, attributes);
        let impatient = lead.repeated > 0;
        self.count_pre_accepted(key, id, impatient, cx);
    }

    /// Continues if enough replicas have answered. An `impatient` replica does not wait for the
    /// rest of the fast quorum.
    fn count_pre_accepted(&mut self, key: &Key, id: InstanceId, impatient: bool, cx: &mut Cx<'_>) {
        let Some(active) = self.keys.get(key) else { return };
        let Some(lead) = active.leads.get(&id) else { return };
        let instance = active.space.get(id).expect("the instance is led here");
        match lead.pre_accepted(instance, &self.members, impatient) {
            Some(Next::Commit(agreed)) => {
                self.commit(key, id, agreed, self.members.others(), cx);
            }
            Some(Next::Accept(ballot, (command, mut attributes))) => {
                if self.rules.mutation.is(Mutation::BaseDroppedInAccept) {
                    attributes.base = instance.attributes.base.clone();
                }
                self.accept(key, id, ballot, (command, attributes), cx);
            }
            None => {}
        }
    }

    /// Asks a majority to accept, in a ballot.
    pub(super) fn accept(
        &mut self,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        (command, attributes): Agreed,
        cx: &mut Cx<'_>,
    ) {
        let active = self.active(key, cx.store());
        let instance = active.space.get_mut(id);
        if instance.promised > ballot || instance.status == Status::Committed {
            return active.give_up(id);
        }
        instance.promised = ballot;
        instance.accepted = ballot;
        instance.status = Status::Accepted;
        instance.command = command.clone();
        instance.attributes = attributes.clone();
        self.states.take_in(command.as_ref(), cx);
        self.keys.record(key, id, cx);
        let asked = self.members.quorums.ask(self.members.partition(), self.members.me());
        self.begin(key, id, (ballot, Phase::Accepting(asked)), cx);
        let accept = Body::Accept { ballot, command, attributes };
        self.members.broadcast(asked.waiting(), key, id, accept, cx);
        self.count_accepted(key, id, cx);
    }

    pub(super) fn on_accept(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        (command, attributes): Agreed,
        cx: &mut Cx<'_>,
    ) {
        let instance = self.active(key, cx.store()).space.get_mut(id);
        let reply = if instance.status == Status::Committed {
            let (command, attributes) = (instance.command.clone(), instance.attributes.clone());
            Body::Commit { command, attributes }
        } else if instance.promised > ballot {
            Body::Refused { promised: instance.promised }
        } else {
            instance.promised = ballot;
            instance.accepted = ballot;
            instance.status = Status::Accepted;
            instance.command = command.clone();
            instance.attributes = attributes;
            self.states.take_in(command.as_ref(), cx);
            self.keys.record(key, id, cx);
            self.keys.yield_to(key, id, ballot);
            Body::Accepted { ballot }
        };
        self.members.send(from, key, id, reply, cx);
    }

    pub(super) fn on_accepted(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        cx: &mut Cx<'_>,
    ) {
        let from = self.members.node(usize::from(from));
        let Some(active) = self.keys.get_mut(key) else { return };
        let Some(lead) = active.leads.get_mut(&id) else { return };
        let Phase::Accepting(asked) = &mut lead.phase else { return };
        if lead.ballot == ballot && self.members.quorums.replied(asked, from) {
            self.count_accepted(key, id, cx);
        }
    }

    fn count_accepted(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let Some(active) = self.keys.get(key) else { return };
        let Some(lead) = active.leads.get(&id) else { return };
        let Phase::Accepting(asked) = &lead.phase else { return };
        if self.members.quorums.have_replied(asked) {
            let instance = active.space.get(id).expect("the instance is led here");
            let agreed = (instance.command.clone(), instance.attributes.clone());
            self.commit(key, id, agreed, self.members.others(), cx);
        }
    }

    /// Commits an instance. Sends the commit to the replicas in `to`, answers the instance's client
    /// if it waits for nothing else, and executes all instances that are executable now.
    pub(super) fn commit(
        &mut self,
        key: &Key,
        id: InstanceId,
        (command, attributes): Agreed,
        to: NodeSet,
        cx: &mut Cx<'_>,
    ) {
        let instance = self.active(key, cx.store()).space.get_mut(id);
        if instance.status == Status::Committed {
            let same = instance.command == command && instance.attributes == attributes;
            assert!(same, "{id:?} of `{key}` was agreed on twice, and differently");
            return;
        }
        instance.status = Status::Committed;
        instance.command = command.clone();
        instance.attributes = attributes.clone();
        self.states.take_in(command.as_ref(), cx);
        self.keys.record(key, id, cx);
        let is_fresh = attributes.fresh;
        let body = Body::Commit { command: command.clone(), attributes };
        self.members.broadcast(to, key, id, body, cx);
        let active = self.active(key, cx.store());
        active.leads.remove(&id);
        if let Some(client) = active.clients.get(&id) {
            let operation = client.operation;
            match command {
                // Other replicas have completed the instance without the command. It is proposed
                // again.
                None => {
                    let client = active.clients.remove(&id).expect("as before");
                    self.propose(key, *client, cx);
                }
                Some(_) if self.rules.have_registers() => {
                    let ballot = Ballot { number: 0, member: self.members.own() };
                    self.begin(key, id, (ballot, Phase::Executing(NodeSet::EMPTY)), cx);
                }
                // It will be executed before every operation that begins from now on. It returns no
                // value.
                Some(_) if is_fresh => {
                    self.active(key, cx.store()).clients.remove(&id);
                    self.answer(operation, Answer::Done(Found::default()), cx);
                }
                Some(_) => {}
            }
        }
        self.execute(key, cx);
    }

    /// Records that a replica has executed an instance. If there are registers, a majority has to
    /// execute it before its client is answered (001 §4.3.3, "Quorum Execute").
    pub(super) fn count_executed(&mut self, from: u8, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let (me, majority) = (self.members.own(), self.members.group().majority());
        let by = self.members.node(usize::from(from));
        let one = !self.rules.have_registers()
            || from == me && self.rules.mutation.is(Mutation::AcknowledgedAfterOneExecution);
        if let Some(lead) = self.keys.lead(key, id)
            && let Phase::Executing(executed) = &mut lead.phase
        {
            executed.insert(by);
            if executed.len() < majority && !one {
                return;
            }
        } else if !one {
            return;
        }
        let active = self.active(key, cx.store());
        if let Some(answer) = active.clients.get_mut(&id).and_then(|client| client.answer.take()) {
            let client = active.clients.remove(&id).expect("as before");
            active.leads.remove(&id);
            self.answer(client.operation, answer, cx);
            self.keys.forget(key);
        }
    }

    /// Repeats the messages of an instance that should have been answered by now.
    pub(super) fn go_on(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let Some(active) = self.keys.get_mut(key) else { return };
        let Some(lead) = active.leads.get_mut(&id).filter(|lead| lead.due <= cx.now()) else {
            return;
        };
        if lead.is_hopeless() {
            return active.give_up(id);
        }
        let repeated = lead.repeated;
        let instance = active.space.get(id).expect("the instance is led here");
        let Some((waiting, body)) = lead.repeat(instance, &mut self.members) else { return };
        self.members.broadcast(waiting, key, id, body, cx);
        self.count_pre_accepted(key, id, true, cx);
        let patience = self.members.quorums.patience(repeated);
        let due = self.schedule.at(patience, Task::Lead(key.clone(), id), cx);
        if let Some(lead) = self.keys.lead(key, id) {
            lead.due = due;
        }
    }

    /// How many replicas have sent the answer for which an instance that is led here waits.
    #[cfg(test)]
    pub(in crate::frameworks::consensus) fn said(&mut self, key: &Key, id: InstanceId) -> usize {
        self.keys.lead(key, id).map_or(0, |lead| lead.said(&self.members))
    }
}
