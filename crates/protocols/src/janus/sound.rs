//! Validation of messages on arrival. A message that no correct sender can have sent is damaged or forged, and is dropped. No
//! message stops a node.

use serried_actor::{Group, Settings};
use serried_model::{NodeId, Version};

use super::members::Members;
use super::message::{
    Ancestors, Ballot, Configuration, Dependencies, Edge, Message, NotAccepted, PreAccept, Reply,
    Request, Task, Vertex, Vote, Window, Work,
};

/// An upper bound of times, in microseconds since the Unix epoch. Sums of smaller times do not overflow.
const LAST_US: u64 = 1 << 62;

const _: () = assert!(
    LAST_US <= u64::MAX / 4 + 1 && Settings::LONGEST_MS * 1000 < LAST_US,
    "sums of times and of settings do not overflow"
);

fn version(version: Version) -> bool {
    version.timestamp_us < LAST_US
}

/// Whether these are partitions, in ascending order.
fn partitions(all: &[u16], group: &Group) -> bool {
    all.iter().all(|at| *at < group.partitions()) && all.is_sorted_by(|one, other| one < other)
}

fn edges(edges: &[Edge], group: &Group) -> bool {
    edges.iter().all(|edge| version(edge.from) && edge.at < group.partitions())
}

fn vertex(vertex: &Vertex, group: &Group) -> bool {
    version(vertex.txn)
        && partitions(&vertex.participants, group)
        && edges(&vertex.edges, group)
        && vertex.edges.iter().all(|edge| edge.from != vertex.txn)
        // Replicas take on nothing that began before it.
        && vertex.floor_us <= vertex.txn.timestamp_us
}

fn ancestors(ancestors: &Ancestors, group: &Group) -> bool {
    let on_cycles = ancestors.cycles.iter().flat_map(|cycle| cycle.iter());
    ancestors.commit.iter().chain(on_cycles).all(|known| vertex(known, group))
        && ancestors.executed.iter().all(|txn| version(*txn))
}

fn work(work: &Work, group: &Group) -> bool {
    partitions(&work.participants, group)
        && match &work.task {
            Task::Call(call) => !call.is_too_large(),
            Task::Register { .. } => work.participants.len() == usize::from(group.partitions()),
        }
}

/// Whether `from` can have sent this to a replica of partition `own`.
pub(super) fn to_replica(from: NodeId, message: &Message, own: u16, members: &Members) -> bool {
    match message {
        Message::Request(wanted) => {
            let is_known = from.is_coordinator() || members.contains(from);
            is_known && request(from, wanted, own, members)
        }
        Message::Reply(told) => members.contains(from) && reply(from, told, own, members),
    }
}

/// Whether `from` can have sent this to a client.
pub(super) fn to_client(from: NodeId, told: &Reply, members: &Members) -> bool {
    members.contains(from) && reply(from, told, from.partition(), members)
}

fn ballot(ballot: &Ballot) -> bool {
    ballot.number < LAST_US
}

fn dependencies(dependencies: &Dependencies, txn: Version, group: &Group) -> bool {
    let before = dependencies.edges.iter().flat_map(|edges| edges.iter());
    dependencies.floor_us <= txn.timestamp_us
        && dependencies.edges.iter().all(|all| edges(all, group))
        && before.into_iter().all(|edge| edge.from != txn)
}

fn configuration(of: &Configuration, group: &Group) -> bool {
    of.number < LAST_US
        && of.counted.len() <= group.size()
        && of.counted.iter().flatten().all(|copy| *copy < LAST_US)
}

fn vote(vote: &Vote, group: &Group) -> bool {
    let is_next = |(attempt, next): &(Ballot, Configuration)| {
        ballot(attempt) && configuration(next, group) && next.number == vote.chosen.number + 1
    };
    configuration(&vote.chosen, group)
        && ballot(&vote.promised)
        && vote.accepted.iter().all(is_next)
}

fn incarnations(of: &[u64], group: &Group) -> bool {
    of.len() <= group.size() && of.iter().all(|incarnation| *incarnation < LAST_US)
}

fn request(from: NodeId, request: &Request, own: u16, members: &Members) -> bool {
    let group = members.group();
    let is_peer = !from.is_coordinator() && from.partition() == own;
    match request {
        Request::PreAccept(PreAccept { txn, work: of, ballot: attempt, insist }) => {
            version(*txn)
                && ballot(attempt)
                && (of.is_some() || *insist)
                && of.iter().all(|of| work(of, group) && of.participants.contains(&own))
        }
        Request::Accept(accept) => {
            version(accept.txn)
                && ballot(&accept.ballot)
                && dependencies(&accept.dependencies, accept.txn, group)
                && incarnations(&accept.incarnations, group)
        }
        Request::Commit(commit) => {
            vertex(&commit.vertex, group)
                && commit.vertex.participants.contains(&own)
                && ancestors(&commit.ancestors, group)
        }
        Request::Void { txn } => version(*txn),
        Request::Ask { txn } | Request::Results { txn } => version(*txn) && !from.is_coordinator(),
        Request::Fetch { txn } => version(*txn) && is_peer,
        Request::Compare(txns) => is_peer && txns.iter().all(|txn| version(*txn)),
        Request::Report(report) => {
            let Window { from_us, closed_us, settled_us, forget_us } = report.window;
            let below_us = report.below_us.min(LAST_US - 1);
            let times = [below_us, from_us, closed_us, settled_us, forget_us];
            is_peer
                && times.iter().all(|us| *us < LAST_US)
                && report.copy < LAST_US
                && vote(&report.vote, group)
                && incarnations(&report.incarnations, group)
        }
        Request::Over { below_us, firm_us } => {
            *below_us < LAST_US && *firm_us < LAST_US && !from.is_coordinator()
        }
        Request::Set => true,
        Request::Copy { request, .. } => is_peer && request.copy < LAST_US,
        Request::Join { incarnation } => is_peer && *incarnation < LAST_US,
    }
}

fn reply(from: NodeId, reply: &Reply, own: u16, members: &Members) -> bool {
    let group = members.group();
    let is_peer = from.partition() == own;
    match reply {
        Reply::PreAccepted(reply) => {
            let of_vote = reply.dependencies.iter();
            let accepted = reply.accepted.iter().map(|(_, accepted)| accepted);
            version(reply.txn)
                && ballot(&reply.ballot)
                && reply.accepted.iter().all(|(attempt, _)| ballot(attempt))
                && of_vote.chain(accepted).all(|one| dependencies(one, reply.txn, group))
                && reply.work.iter().all(|of| work(of, group))
                && ancestors(&reply.ancestors, group)
                && incarnations(&reply.incarnations, group)
        }
        Reply::NotAccepted { txn, why } => {
            let why = match why {
                NotAccepted::Late { from_us } => *from_us < LAST_US,
                NotAccepted::OtherSet | NotAccepted::Forgotten => true,
            };
            version(*txn) && why
        }
        Reply::Promised { txn, ballot: attempt } => version(*txn) && ballot(attempt),
        Reply::Accepted { txn, ballot: attempt, incarnations: named }
        | Reply::Replaced { txn, ballot: attempt, incarnations: named } => {
            version(*txn) && ballot(attempt) && incarnations(named, group)
        }
        Reply::Committed { txn, work: of, commit } => {
            *txn == commit.vertex.txn
                && of
                    .iter()
                    .all(|of| work(of, group) && of.participants == commit.vertex.participants)
                && vertex(&commit.vertex, group)
                && ancestors(&commit.ancestors, group)
        }
        Reply::Status { txn, ancestors: known } => version(*txn) && ancestors(known, group),
        Reply::Fetched { txn, work: of, ancestors: known } => {
            is_peer
                && version(*txn)
                && of.iter().all(|of| work(of, group))
                && ancestors(known, group)
        }
        Reply::Have { txns, .. } => is_peer && txns.iter().all(|txn| version(*txn)),
        Reply::Executed { txn, .. } | Reply::Results { txn, .. } => version(*txn),
        Reply::Set { .. } => true,
        Reply::Copied { copied, .. } => {
            is_peer && copied.request.copy < LAST_US && configuration(&copied.configuration, group)
        }
        Reply::Joined { incarnation, incarnations: named, open, .. } => {
            is_peer
                && *incarnation < LAST_US
                && incarnations(named, group)
                && open.iter().all(|txn| version(*txn))
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::Arc;

    use serried_procedures::Datum;
    use serried_procedures::limits::MAX_DATA_OF_CALL;

    use super::super::message::CallOf;
    use super::*;

    #[test]
    fn the_inputs_of_a_call_are_bounded() {
        let group = Group::new(1, Duration::from_millis(1));
        let is_sound = |count: usize| {
            let inputs = vec![Datum::Bytes(Default::default()); count];
            let task = Task::Call(CallOf { set: 1, procedure: 0, inputs });
            work(&Work { participants: Arc::new([0]), task }, &group)
        };
        let most = MAX_DATA_OF_CALL as usize / size_of::<Datum>();
        assert!(is_sound(most) && !is_sound(most + 1));
    }
}
