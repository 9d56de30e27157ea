//! Having a command agreed on: PreAccept, Accept and Commit (001 §4.3.1).

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::NodeSet;
use serried_model::Key;

use super::{Client, Cx, Replica, Task, answers_early};
use crate::epaxos::instance::{Attributes, Ballot, Command, Instance, InstanceId, Status};
use crate::epaxos::message::{Body, Conflict, Message};

/// An instance that this replica is having agreed on.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) ballot: Ballot,
    pub(super) phase: Phase,
    pub(super) repeated: u32,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// What others make of it.
    PreAccepting(BTreeMap<u8, Attributes>),
    /// What others know of it.
    Preparing(BTreeMap<u8, Instance>),
    /// What stands against these attributes, at whom.
    Validating(Box<(Command, Attributes)>, NodeSet, BTreeMap<u8, Vec<Conflict>>),
    /// Who has accepted it.
    Accepting(NodeSet),
}

impl Replica {
    /// How long to wait for answers.
    pub(super) fn patience(&self, repeated: u32) -> Duration {
        let first = 2 * self.group.round_trip() + Duration::from_millis(20);
        (first * (1 << repeated.min(8))).min(first.max(Duration::from_secs(2)))
    }

    /// Those who can have a command of this replica committed in one round trip: the nearest.
    fn fast_quorum(&self) -> NodeSet {
        let faults = self.group.faults();
        let size = faults + faults.div_ceil(2);
        let nearest = (0..self.group.size()).map(|i| self.group.choice(self.id.partition(), i));
        nearest.filter(|node| *node != self.id).take(size.saturating_sub(1)).collect()
    }

    /// Begins an instance for a client's command.
    pub(super) fn propose(&mut self, key: &Key, client: Client, cx: &mut Cx<'_>) {
        let member = self.member();
        let command = client.command.clone();
        let mut quorum = self.fast_quorum();
        let active = self.active(key, cx.store());
        let (id, attributes) = active.space.next(command.kind(), member, None);
        let others = quorum;
        quorum.insert(self.id);
        let instance = self.active(key, cx.store()).space.get_mut(id);
        instance.command = Some(command);
        instance.initial = attributes.dependencies.clone();
        instance.attributes = attributes;
        instance.status = Status::PreAccepted;
        instance.quorum = quorum;
        self.record(key, id, cx);
        self.clients.insert((key.clone(), id), client);
        let ballot = Ballot { number: 0, member };
        let phase = Phase::PreAccepting(BTreeMap::new());
        self.leads.insert((key.clone(), id), Lead { ballot, phase, repeated: 0 });
        let to = if self.settings.thrifty { others } else { self.others() };
        self.send_pre_accept(to, key, id, cx);
        self.at(self.patience(0), key, Task::Lead(id), cx);
        self.count_pre_accepted(key, id, false, cx);
    }

    fn send_pre_accept(&mut self, to: NodeSet, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let instance = self.active(key, cx.store()).space.get_mut(id);
        let Some(command) = instance.command.clone() else { return };
        let (attributes, quorum) = (instance.attributes.clone(), instance.quorum);
        self.broadcast(to, key, id, Body::PreAccept { command, attributes, quorum }, cx);
    }

    pub(super) fn on_pre_accept(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        (command, theirs, quorum): (Command, Attributes, NodeSet),
        cx: &mut Cx<'_>,
    ) {
        let active = self.active(key, cx.store());
        let known = active.space.get_mut(id).clone();
        let reply = match known.status {
            Status::Committed => {
                Body::Commit { command: known.command, attributes: known.attributes }
            }
            _ if known.promised > Ballot::default() => Body::Refused { promised: known.promised },
            Status::PreAccepted => Body::PreAccepted { attributes: known.attributes },
            Status::Accepted => return,
            Status::Known => {
                let attributes = active.space.merge(id, &theirs, None);
                let instance = active.space.get_mut(id);
                instance.command = Some(command);
                instance.initial = theirs.dependencies;
                instance.attributes = attributes.clone();
                instance.status = Status::PreAccepted;
                instance.quorum = quorum;
                self.record(key, id, cx);
                self.watch(key, id, cx);
                Body::PreAccepted { attributes }
            }
        };
        self.send(from, key, id, reply, cx);
    }

    pub(super) fn on_pre_accepted(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        attributes: Attributes,
        cx: &mut Cx<'_>,
    ) {
        let Some(lead) = self.leads.get_mut(&(key.clone(), id)) else { return };
        let Phase::PreAccepting(replies) = &mut lead.phase else { return };
        replies.insert(from, attributes);
        self.count_pre_accepted(key, id, false, cx);
    }

    /// Goes on if enough have answered, and without those who should have if it has waited long enough.
    fn count_pre_accepted(&mut self, key: &Key, id: InstanceId, impatient: bool, cx: &mut Cx<'_>) {
        let Some(lead) = self.leads.get(&(key.clone(), id)) else { return };
        let Phase::PreAccepting(replies) = &lead.phase else { return };
        let instance = self.spaces[key].space.get(id).expect("an instance that is led");
        let me = self.id.member();
        let mut quorum = instance.quorum.members().filter(|member| *member != me);
        let quick: Option<Vec<&Attributes>> =
            quorum.by_ref().map(|member| replies.get(&(member as u8))).collect();
        let agreed = match quick.as_deref() {
            Some([]) => Some(&instance.attributes),
            Some([first, rest @ ..]) => rest.iter().all(|other| other == first).then_some(*first),
            None => None,
        };
        if let Some(attributes) = agreed {
            let agreed = (instance.command.clone(), attributes.clone());
            return self.commit(key, id, agreed, self.others(), cx);
        }
        let majority = replies.len() + 1 >= self.group.majority();
        if majority && (quick.is_some() || impatient) {
            let mut attributes = instance.attributes.clone();
            replies.values().for_each(|other| attributes.add(other));
            let command = instance.command.clone();
            self.accept(key, id, lead.ballot, (command, attributes), cx);
        }
    }

    /// Has a majority agree, in a ballot.
    pub(super) fn accept(
        &mut self,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        (command, attributes): (Option<Command>, Attributes),
        cx: &mut Cx<'_>,
    ) {
        let active = self.active(key, cx.store());
        let instance = active.space.get_mut(id);
        if instance.promised > ballot || instance.status == Status::Committed {
            self.leads.remove(&(key.clone(), id));
            return self.watch(key, id, cx);
        }
        instance.promised = ballot;
        instance.accepted = ballot;
        instance.status = Status::Accepted;
        instance.command = command.clone();
        instance.attributes = attributes.clone();
        self.record(key, id, cx);
        let phase = Phase::Accepting([self.id].into_iter().collect());
        self.leads.insert((key.clone(), id), Lead { ballot, phase, repeated: 0 });
        let accept = Body::Accept { ballot, command, attributes };
        self.broadcast(self.others(), key, id, accept, cx);
        self.at(self.patience(0), key, Task::Lead(id), cx);
        self.count_accepted(key, id, cx);
    }

    pub(super) fn on_accept(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        (command, attributes): (Option<Command>, Attributes),
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
            instance.command = command;
            instance.attributes = attributes;
            self.record(key, id, cx);
            self.step_down(key, id, ballot);
            self.watch(key, id, cx);
            Body::Accepted { ballot }
        };
        self.send(from, key, id, reply, cx);
    }

    pub(super) fn on_accepted(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        cx: &mut Cx<'_>,
    ) {
        let from = self.node(usize::from(from));
        let Some(lead) = self.leads.get_mut(&(key.clone(), id)) else { return };
        let Phase::Accepting(accepted) = &mut lead.phase else { return };
        if lead.ballot == ballot && accepted.insert(from) {
            self.count_accepted(key, id, cx);
        }
    }

    fn count_accepted(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let Some(lead) = self.leads.get(&(key.clone(), id)) else { return };
        let Phase::Accepting(accepted) = &lead.phase else { return };
        if accepted.len() >= self.group.majority() {
            let instance = self.spaces[key].space.get(id).expect("an instance that is led");
            let agreed = (instance.command.clone(), instance.attributes.clone());
            self.commit(key, id, agreed, self.others(), cx);
        }
    }

    /// It is agreed on. Those in `to` are told.
    pub(super) fn commit(
        &mut self,
        key: &Key,
        id: InstanceId,
        (command, attributes): (Option<Command>, Attributes),
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
        self.record(key, id, cx);
        self.leads.remove(&(key.clone(), id));
        self.broadcast(to, key, id, Body::Commit { command: command.clone(), attributes }, cx);
        let at = (key.clone(), id);
        match &command {
            Some(command) => {
                if let Some(answer) = answers_early(command)
                    && let Some(client) = self.clients.get(&at)
                    && self.is_young(&client.command, cx)
                {
                    let (node, request) = (client.node, client.request);
                    cx.send(node, Message::Reply { request, answer });
                    self.clients.remove(&at);
                }
            }
            // Others have ended it; it is tried again.
            None => {
                if let Some(client) = self.clients.remove(&at) {
                    self.propose(key, client, cx);
                }
            }
        }
        self.execute(key, cx);
    }

    /// Whether an update can't have been forgotten.
    fn is_young(&self, command: &Command, cx: &Cx<'_>) -> bool {
        let age_us = cx.clock().latest_us.saturating_sub(command.token.timestamp_us);
        let bound_us = 2 * self.settings.clock_bound_ms * 1000;
        age_us + bound_us < self.settings.outcomes_ms * 1000
    }

    /// What was asked for should have been answered.
    pub(super) fn go_on(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let at = (key.clone(), id);
        let Some(lead) = self.leads.get_mut(&at) else { return };
        lead.repeated += 1;
        let (ballot, repeated) = (lead.ballot, lead.repeated);
        let all = self.group.all();
        let of = |members: Vec<u8>, partition| -> NodeSet {
            let node = |member: u8| serried_model::NodeId::replica(partition, usize::from(member));
            members.into_iter().map(node).collect()
        };
        let partition = self.id.partition();
        let me: NodeSet = [self.id].into_iter().collect();
        match &lead.phase {
            Phase::PreAccepting(replies) => {
                let waiting =
                    all.without(me).without(of(replies.keys().copied().collect(), partition));
                self.send_pre_accept(waiting, key, id, cx);
                self.count_pre_accepted(key, id, true, cx);
            }
            Phase::Preparing(replies) => {
                let waiting = all.without(of(replies.keys().copied().collect(), partition));
                self.broadcast(waiting.without(me), key, id, Body::Prepare { ballot }, cx);
            }
            Phase::Validating(agreed, asked, replies) => {
                let waiting = asked.without(of(replies.keys().copied().collect(), partition));
                let (command, attributes) = (**agreed).clone();
                let validate = Body::Validate { ballot, command, attributes };
                self.broadcast(waiting.without(me), key, id, validate, cx);
            }
            Phase::Accepting(accepted) => {
                let waiting = all.without(*accepted).without(me);
                let instance = self.spaces[key].space.get(id).expect("an instance that is led");
                let (command, attributes) = (instance.command.clone(), instance.attributes.clone());
                let accept = Body::Accept { ballot, command, attributes };
                self.broadcast(waiting, key, id, accept, cx);
            }
        }
        if self.leads.contains_key(&at) {
            self.at(self.patience(repeated), key, Task::Lead(id), cx);
        }
    }
}
