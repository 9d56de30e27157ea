//! Recovery of an instance that its coordinator has not completed (001 Algorithms 5 and 6, with the
//! fast quorums of optimised EPaxos).
//!
//! A replica that recovers an instance has a majority promise a ballot, and learns what these replicas know. The
//! instance may have been committed in one round trip only if all of its fast quorum gave it the same attributes. The
//! answers of those members of the fast quorum that are in the majority show whether that is possible.
//!
//! - If it is possible, the command is proposed again, unless something contradicts it. An interfering instance that is
//!   committed, and comes neither before nor after this one, shows that this one was not committed. So does an
//!   interfering instance whose coordinator is in the fast quorum and began it without knowing of this one. An
//!   interfering instance that is undecided is recovered first.
//! - If it is not possible, but all of the majority know the command, it is proposed with everything that they know to
//!   come before it.
//! - If it is not possible, and not all of the majority know the command, a no-op takes its place. The replica of the
//!   command's client begins another instance.

use std::collections::BTreeMap;

use serried_actor::NodeSet;
use serried_model::{Key, NodeId};

use super::lead::Phase;
use super::{Cx, Replica, Timer};
use crate::frameworks::consensus::Mutation;
use crate::frameworks::consensus::instance::{
    Attributes, Ballot, Command, Instance, InstanceId, Status,
};
use crate::frameworks::consensus::message::{Body, Conflict};

/// The further course of a recovery.
enum Choice {
    Commit(Option<Command>, Attributes),
    Accept(Option<Command>, Attributes),
    /// The last field is its fast quorum.
    Validate(Command, Attributes, NodeSet),
}

impl Replica {
    /// Sets the timer for checking instances, if there are any.
    pub(super) fn look_later(&mut self, cx: &mut Cx<'_>) {
        if self.looks || self.keys.is_empty() {
            return;
        }
        self.looks = true;
        // This is longer than a recovery takes. Otherwise replicas that recover the same instance
        // would keep interrupting each other.
        let about = 2 * self.settings.recovery_after() + 4 * self.members.group().round_trip();
        let after = cx.jitter(about);
        cx.set_timer(Timer::Watch, after);
    }

    /// Recovers the instances that have not been committed for a period.
    pub(super) fn look_after(&mut self, cx: &mut Cx<'_>) {
        self.looks = false;
        if self.rejoin.is_under_way() {
            return;
        }
        for key in self.keys.sorted() {
            let Some(active) = self.keys.get_mut(&key) else { continue };
            let open = active.space.open();
            let late = core::mem::replace(&mut active.late, open.clone());
            for id in open.into_iter().filter(|id| late.binary_search(id).is_ok()) {
                self.end(&key, id, cx);
            }
        }
    }

    /// Recovers an instance, unless it is decided or led here.
    fn end(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let Some(active) = self.keys.get(key) else { return };
        let known = active.space.get(id).filter(|known| known.status < Status::Committed);
        if known.is_some() && !active.leads.contains_key(&id) {
            self.recover(key, id, cx);
            self.keys.leave(key, id);
        }
    }

    fn recover(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let member = self.members.own();
        let instance = self.active(key, cx.store()).space.get_mut(id);
        let ballot = Ballot { number: instance.promised.number + 1, member };
        let known = instance.clone();
        instance.promised = ballot;
        self.keys.record(key, id, cx);
        let phase = Phase::Preparing([(member, known)].into_iter().collect());
        self.begin(key, id, (ballot, phase), cx);
        self.members.broadcast(self.members.others(), key, id, Body::Prepare { ballot }, cx);
        self.count_prepared(key, id, cx);
    }

    pub(super) fn on_prepare(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        cx: &mut Cx<'_>,
    ) {
        let instance = self.active(key, cx.store()).space.get_mut(id);
        let reply = if instance.promised > ballot {
            Body::Refused { promised: instance.promised }
        } else {
            let known = instance.clone();
            if instance.promised < ballot {
                instance.promised = ballot;
                self.keys.record(key, id, cx);
                self.keys.yield_to(key, id, ballot);
            }
            Body::Prepared { ballot, instance: known }
        };
        self.members.send(from, key, id, reply, cx);
    }

    /// Another replica leads the instance in a higher ballot.
    pub(super) fn on_refused(
        &mut self,
        key: &Key,
        id: InstanceId,
        promised: Ballot,
        cx: &mut Cx<'_>,
    ) {
        let was_led = self.keys.get_mut(key).is_some_and(|active| active.step_down(id, promised));
        if was_led {
            let instance = self.active(key, cx.store()).space.get_mut(id);
            if instance.promised < promised {
                instance.promised = promised;
                self.keys.record(key, id, cx);
            }
            self.keys.leave(key, id);
        }
    }

    pub(super) fn on_prepared(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        instance: Instance,
        cx: &mut Cx<'_>,
    ) {
        let Some(lead) = self.keys.lead(key, id) else { return };
        let Phase::Preparing(replies) = &mut lead.phase else { return };
        if lead.ballot == ballot {
            replies.insert(from, instance);
            self.count_prepared(key, id, cx);
        }
    }

    fn count_prepared(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let (members, majority) = (self.members.group().size(), self.members.group().majority());
        let (partition, me) = (self.members.partition(), self.members.me());
        let mistaken = self.rules.mutation.is(Mutation::PromisedTakenForAccepted);
        let Some(lead) = self.keys.lead(key, id) else { return };
        let Phase::Preparing(replies) = &lead.phase else { return };
        let committed = replies.values().any(|reply| reply.status == Status::Committed);
        if replies.len() < majority && !committed {
            return;
        }
        let ballot = lead.ballot;
        match choose(id, replies, (members, majority), mistaken) {
            Choice::Commit(command, attributes) => {
                self.commit(key, id, (command, attributes), self.members.others(), cx);
            }
            Choice::Accept(command, attributes) => {
                self.accept(key, id, ballot, (command, attributes), cx);
            }
            Choice::Validate(command, attributes, quorum) => {
                let node = |member: &u8| NodeId::replica(partition, usize::from(*member));
                let asked: NodeSet = replies.keys().map(node).collect();
                let agreed = Box::new((command.clone(), attributes.clone()));
                lead.phase = Phase::Validating(agreed, asked, BTreeMap::new());
                lead.repeated = 0;
                let others = asked.without(me);
                // This replica need not have been in the first quorum.
                self.active(key, cx.store()).space.get_mut(id).quorum = quorum;
                let conflicts = self.validate(key, id, &command, &attributes, cx);
                let body = Body::Validate { ballot, command, attributes };
                self.members.broadcast(others, key, id, body, cx);
                self.on_validated(self.members.own(), key, id, ballot, conflicts, cx);
            }
        }
    }

    pub(super) fn on_validate(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        (command, attributes): (Command, Attributes),
        cx: &mut Cx<'_>,
    ) {
        let known = self.active(key, cx.store()).space.get(id);
        let promised = known.map_or(Ballot::default(), |known| known.promised);
        let reply = if promised == ballot {
            let conflicts = self.validate(key, id, &command, &attributes, cx);
            Body::Validated { ballot, conflicts }
        } else {
            Body::Refused { promised }
        };
        self.members.send(from, key, id, reply, cx);
    }

    /// The instances here that contradict these attributes. Instances that follow depend on this
    /// one.
    fn validate(
        &mut self,
        key: &Key,
        id: InstanceId,
        command: &Command,
        attributes: &Attributes,
        cx: &mut Cx<'_>,
    ) -> Vec<Conflict> {
        let done = self.states.get(key, cx.store()).done();
        let active = self.active(key, cx.store());
        let conflicts = active.space.conflicts(id, attributes, &done);
        let instance = active.space.get_mut(id);
        if instance.command.is_none() && instance.status == Status::Known {
            instance.command = Some(command.clone());
            self.states.take_in(Some(command), cx);
            self.keys.record(key, id, cx);
        }
        conflicts
    }

    pub(super) fn on_validated(
        &mut self,
        from: u8,
        key: &Key,
        id: InstanceId,
        ballot: Ballot,
        conflicts: Vec<Conflict>,
        cx: &mut Cx<'_>,
    ) {
        let Some(lead) = self.keys.lead(key, id) else { return };
        let Phase::Validating(agreed, asked, replies) = &mut lead.phase else { return };
        if lead.ballot != ballot {
            return;
        }
        replies.insert(from, conflicts);
        if replies.len() < asked.len() {
            return;
        }
        let (command, attributes) = (**agreed).clone();
        let all: Vec<Conflict> = replies.values().flatten().cloned().collect();
        let quorum = self.keys.instance(key, id).map_or(NodeSet::EMPTY, |instance| instance.quorum);
        let in_quorum = |member: u8| quorum.contains(NodeId::replica(0, usize::from(member)));
        let refutes = |conflict: &Conflict| {
            conflict.committed || conflict.began_without && in_quorum(conflict.id.member)
        };
        if all.is_empty() {
            return self.accept(key, id, ballot, (Some(command), attributes), cx);
        }
        if all.iter().any(refutes) {
            let nothing = Attributes::of_no_op(self.members.group().size());
            return self.accept(key, id, ballot, (None, nothing), cx);
        }
        // Undecided instances are recovered first. Then this one is tried again.
        let Some(active) = self.keys.get_mut(key) else { return };
        active.give_up(id);
        for conflict in all {
            active.watch(conflict.id);
        }
    }
}

/// The possible decision about an instance, from the knowledge of a majority that has promised a
/// ballot.
fn choose(
    id: InstanceId,
    replies: &BTreeMap<u8, Instance>,
    (members, majority): (usize, usize),
    mistaken: bool,
) -> Choice {
    let committed = replies.values().find(|reply| reply.status == Status::Committed);
    if let Some(Instance { command, attributes, .. }) = committed {
        return Choice::Commit(command.clone(), attributes.clone());
    }
    let accepted = replies.values().filter(|reply| reply.status == Status::Accepted);
    let ballot = |reply: &&Instance| if mistaken { reply.promised } else { reply.accepted };
    if let Some(Instance { command, attributes, .. }) = accepted.max_by_key(ballot) {
        return Choice::Accept(command.clone(), attributes.clone());
    }
    let nothing = Choice::Accept(None, Attributes::of_no_op(members));
    let pre_accepted = |reply: &&Instance| reply.status == Status::PreAccepted;
    let Some(one) = replies.values().find(pre_accepted) else { return nothing };
    let command = one.command.clone().expect("a pre-accepted instance has a command");
    if !replies.contains_key(&id.member) {
        // Its coordinator may have committed it if all of the fast quorum gave it the same attributes.
        let in_quorum = |member: u8| one.quorum.contains(NodeId::replica(0, usize::from(member)));
        let quick: Vec<&Instance> = replies
            .iter()
            .filter(|(member, _)| in_quorum(**member))
            .map(|(_, reply)| reply)
            .collect();
        let same =
            |reply: &&Instance| pre_accepted(reply) && reply.attributes == quick[0].attributes;
        if !quick.is_empty() && quick.iter().all(same) {
            let attributes = quick[0].attributes.clone();
            // Together with the coordinator they may be a majority. Then all interfering instances
            // are known.
            return match quick.len() + 1 >= majority {
                true => Choice::Accept(Some(command), attributes),
                false => Choice::Validate(command, attributes, one.quorum),
            };
        }
    }
    if replies.values().all(|reply| pre_accepted(&reply)) {
        // Each interfering instance is known to a replica of this majority, and all of them know
        // this one.
        let mut attributes = one.attributes.clone();
        replies.values().for_each(|reply| attributes.add(&reply.attributes));
        return Choice::Accept(Some(command), attributes);
    }
    nothing
}
