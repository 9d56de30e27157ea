//! Having a command agreed on: PreAccept, Accept and Commit (001 §4.3.1).

use std::collections::BTreeMap;

use serried_actor::{NodeSet, Timestamp};
use serried_model::{Access, Key, NodeId};
use serried_parts::{Asked, Recalled};

use super::{Client, Cx, Replica, Task};
use crate::frameworks::consensus::instance::{
    Attributes, Ballot, Command, Instance, InstanceId, Status,
};
use crate::frameworks::consensus::message::{Answer, Body, Conflict, Found};
use crate::frameworks::consensus::{Mutation, Variant};

/// With at most so many replicas, a write has its place when it is agreed on, because every command that begins later gets
/// a greater sequence number. And its quorum is a majority, so it knows whether the write is in another place as well (see
/// [`consensus`](crate::frameworks::consensus), "When a write is acknowledged").
const SEQUENCED: usize = 3;

/// An instance that this replica is having agreed on.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) ballot: Ballot,
    pub(super) phase: Phase,
    pub(super) repeated: u32,
    /// When what was asked for should have been answered.
    due: Timestamp,
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
    Accepting(Asked),
    /// Who has executed it, now that it is committed.
    Executing(NodeSet),
}

impl Replica {
    /// What this replica is having agreed on.
    pub(super) fn lead(&mut self, key: &Key, id: InstanceId) -> Option<&mut Lead> {
        self.spaces.get_mut(key)?.leads.get_mut(&id).map(|lead| &mut **lead)
    }

    /// Goes on with an instance in a new phase.
    pub(super) fn begin(
        &mut self,
        key: &Key,
        id: InstanceId,
        (ballot, phase): (Ballot, Phase),
        cx: &mut Cx<'_>,
    ) {
        let due = self.at(self.quorums.patience(0), Task::Lead(key.clone(), id), cx);
        let lead = Lead { ballot, phase, repeated: 0, due };
        self.active(key, cx.store()).leads.insert(id, Box::new(lead));
    }

    /// Those who can have a command of this replica committed in one round trip if they agree, besides
    /// itself: the nearest.
    fn fast_quorum(&self) -> NodeSet {
        let faults = self.group().faults();
        let size = match self.rules.variant {
            Variant::Epaxos => faults + faults.div_ceil(2),
            Variant::Gryff | Variant::GryffRsc => 2 * faults,
        };
        self.quorums.nearest(self.id.partition(), size.saturating_sub(1), self.me())
    }

    /// Begins an instance for a client's command.
    pub(super) fn propose(&mut self, key: &Key, client: Client, cx: &mut Cx<'_>) {
        let member = self.member();
        let command = client.command.clone();
        self.take_in(Some(&command), cx);
        let base = self.base(key, cx.store());
        let others = self.fast_quorum();
        let quorum = others.union(self.me());
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
        self.record(key, id, cx);
        let ballot = Ballot { number: 0, member };
        self.begin(key, id, (ballot, Phase::PreAccepting(BTreeMap::new())), cx);
        let to = if self.settings.thrifty { others } else { self.others() };
        self.send_pre_accept(to, key, id, cx);
        self.count_pre_accepted(key, id, false, cx);
    }

    /// Whether a command of an instance is a write of which this replica knows nothing else: no other instance, no result,
    /// and it may have forgotten none. Only few replicas can say together that nobody has executed it.
    fn is_new(
        &mut self,
        key: &Key,
        id: Option<InstanceId>,
        command: &Command,
        cx: &mut Cx<'_>,
    ) -> bool {
        self.group().size() <= SEQUENCED
            && matches!(command.access, Access::Write(_))
            && self.cells.get(key, cx.store()).recall(command.token) == Recalled::Nothing
            && !self.is_under_way(key, id, command)
    }

    fn send_pre_accept(&mut self, to: NodeSet, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let instance = self.active(key, cx.store()).space.get_mut(id);
        let Some(command) = instance.command.clone() else { return };
        let (attributes, quorum) = (instance.attributes.clone(), instance.quorum);
        let body = Body::PreAccept { command, attributes, quorum };
        self.broadcast(to, key, id, body, cx);
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
                self.take_in(Some(&command), cx);
                let base = self.base(key, cx.store());
                let is_new = self.is_new(key, Some(id), &command, cx);
                let active = self.active(key, cx.store());
                let attributes = active.space.merge(id, &theirs, base, is_new);
                let instance = active.space.get_mut(id);
                instance.command = Some(command);
                instance.initial = theirs.dependencies;
                instance.attributes = attributes.clone();
                instance.status = Status::PreAccepted;
                instance.quorum = quorum;
                self.record(key, id, cx);
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
        let Some(lead) = self.lead(key, id) else { return };
        let Phase::PreAccepting(replies) = &mut lead.phase else { return };
        replies.insert(from, attributes);
        let impatient = lead.repeated > 0;
        self.count_pre_accepted(key, id, impatient, cx);
    }

    /// Goes on if enough have answered, and without those who should have if it has waited long enough.
    fn count_pre_accepted(&mut self, key: &Key, id: InstanceId, impatient: bool, cx: &mut Cx<'_>) {
        let Some(active) = self.spaces.get(key) else { return };
        let Some(lead) = active.leads.get(&id) else { return };
        let Phase::PreAccepting(replies) = &lead.phase else { return };
        let instance = active.space.get(id).expect("an instance that is led");
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
        let majority = replies.len() + 1 >= self.group().majority();
        if majority && (quick.is_some() || impatient) {
            let mut attributes = instance.attributes.clone();
            replies.values().for_each(|other| attributes.add(other));
            if self.rules.mutation.is(Mutation::BaseDroppedInAccept) {
                attributes.base = instance.attributes.base.clone();
            }
            let (ballot, command) = (lead.ballot, instance.command.clone());
            self.accept(key, id, ballot, (command, attributes), cx);
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
            active.leads.remove(&id);
            return self.leave(key, id);
        }
        instance.promised = ballot;
        instance.accepted = ballot;
        instance.status = Status::Accepted;
        instance.command = command.clone();
        instance.attributes = attributes.clone();
        self.take_in(command.as_ref(), cx);
        self.record(key, id, cx);
        let asked = self.quorums.ask(self.id.partition(), self.me());
        self.begin(key, id, (ballot, Phase::Accepting(asked)), cx);
        let accept = Body::Accept { ballot, command, attributes };
        self.broadcast(asked.waiting(), key, id, accept, cx);
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
            instance.command = command.clone();
            instance.attributes = attributes;
            self.take_in(command.as_ref(), cx);
            self.record(key, id, cx);
            self.step_down(key, id, ballot);
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
        let Some(active) = self.spaces.get_mut(key) else { return };
        let Some(lead) = active.leads.get_mut(&id) else { return };
        let Phase::Accepting(asked) = &mut lead.phase else { return };
        if lead.ballot == ballot && self.quorums.replied(asked, from) {
            self.count_accepted(key, id, cx);
        }
    }

    fn count_accepted(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let Some(active) = self.spaces.get(key) else { return };
        let Some(lead) = active.leads.get(&id) else { return };
        let Phase::Accepting(asked) = &lead.phase else { return };
        if self.quorums.have_replied(asked) {
            let instance = active.space.get(id).expect("an instance that is led");
            let agreed = (instance.command.clone(), instance.attributes.clone());
            self.commit(key, id, agreed, self.others(), cx);
        }
    }

    /// Whether this replica knows that something else was agreed on. A correct sender never contradicts that.
    pub(super) fn contradicts(
        &self,
        key: &Key,
        id: InstanceId,
        (command, attributes): (&Option<Command>, &Attributes),
    ) -> bool {
        let known = self.spaces.get(key).and_then(|active| active.space.get(id));
        known.is_some_and(|known| {
            known.status == Status::Committed
                && (known.command != *command || known.attributes != *attributes)
        })
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
        self.take_in(command.as_ref(), cx);
        self.record(key, id, cx);
        let is_fresh = attributes.fresh;
        let body = Body::Commit { command: command.clone(), attributes };
        self.broadcast(to, key, id, body, cx);
        let active = self.active(key, cx.store());
        active.leads.remove(&id);
        if let Some(client) = active.clients.get(&id) {
            let operation = client.operation;
            match command {
                // Others have ended it; it is tried again.
                None => {
                    let client = active.clients.remove(&id).expect("as before");
                    self.propose(key, *client, cx);
                }
                Some(_) if self.rules.have_registers() => {
                    let ballot = Ballot { number: 0, member: self.member() };
                    self.begin(key, id, (ballot, Phase::Executing(NodeSet::EMPTY)), cx);
                }
                // It will be executed, before everything that begins from now on. It reads nothing.
                Some(_) if is_fresh => {
                    self.active(key, cx.store()).clients.remove(&id);
                    self.answer(operation, Answer::Done(Found::default()), cx);
                }
                Some(_) => {}
            }
        }
        self.execute(key, cx);
    }

    /// A replica has executed an instance. Where reads go to registers, a majority has to have before its
    /// client is answered (001 §4.3.3, "Quorum Execute").
    pub(super) fn count_executed(&mut self, from: u8, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let (me, majority) = (self.member(), self.group().majority());
        let by = self.node(usize::from(from));
        let one = !self.rules.have_registers()
            || from == me && self.rules.mutation.is(Mutation::AcknowledgedAfterOneExecution);
        if let Some(lead) = self.lead(key, id)
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
            self.forget(key);
        }
    }

    /// What was asked for should have been answered.
    pub(super) fn go_on(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let Some(active) = self.spaces.get_mut(key) else { return };
        let Some(lead) = active.leads.get_mut(&id).filter(|lead| lead.due <= cx.now()) else {
            return;
        };
        lead.repeated += 1;
        if lead.repeated > 3 && matches!(lead.phase, Phase::Validating(..)) {
            // Who has promised may be gone: others are asked.
            active.leads.remove(&id);
            return self.leave(key, id);
        }
        let (ballot, repeated) = (lead.ballot, lead.repeated);
        let instance = active.space.get(id).expect("an instance that is led");
        let known = (instance.command.clone(), instance.attributes.clone());
        let of = |members: Vec<u8>| -> NodeSet {
            members.into_iter().map(|member| NodeId::replica(0, usize::from(member))).collect()
        };
        let me = [self.id].into_iter().collect();
        let all = self.quorums.group().all().without(me);
        let (waiting, body) = match &mut lead.phase {
            Phase::PreAccepting(replies) => {
                let waiting = all.without(of(replies.keys().copied().collect()));
                self.quorums.are_slow(instance.quorum.without(me).without(all.without(waiting)));
                let (Some(command), attributes) = known else { return };
                (waiting, Body::PreAccept { command, attributes, quorum: instance.quorum })
            }
            Phase::Preparing(replies) => {
                (all.without(of(replies.keys().copied().collect())), Body::Prepare { ballot })
            }
            Phase::Validating(agreed, asked, replies) => {
                let waiting = asked.without(of(replies.keys().copied().collect()));
                let (command, attributes) = (**agreed).clone();
                (waiting.without(me), Body::Validate { ballot, command, attributes })
            }
            Phase::Accepting(asked) => {
                self.quorums.ask_again(asked);
                let (command, attributes) = known;
                (asked.waiting(), Body::Accept { ballot, command, attributes })
            }
            Phase::Executing(executed) => {
                let (command, attributes) = known;
                (all.without(*executed), Body::Commit { command, attributes })
            }
        };
        self.broadcast(waiting, key, id, body, cx);
        self.count_pre_accepted(key, id, true, cx);
        let due = self.at(self.quorums.patience(repeated), Task::Lead(key.clone(), id), cx);
        if let Some(lead) = self.lead(key, id) {
            lead.due = due;
        }
    }

    /// How many replicas have given the answer that an instance led here waits for.
    #[cfg(test)]
    pub(in crate::frameworks::consensus) fn said(&mut self, key: &Key, id: InstanceId) -> usize {
        let asked = match self.lead(key, id).map(|lead| &lead.phase) {
            Some(Phase::PreAccepting(replies)) => return replies.len(),
            Some(Phase::Preparing(replies)) => return replies.len(),
            Some(Phase::Validating(.., replies)) => return replies.len(),
            Some(Phase::Executing(executed)) => return executed.len(),
            Some(Phase::Accepting(asked)) => *asked,
            None => return 0,
        };
        self.quorums.counted(&asked).len()
    }
}
