//! Validation of messages on arrival. A message that no correct sender can have sent is damaged or forged, and is dropped. No
//! message stops a node.

use serried_actor::{Group, Settings};
use serried_model::{NodeId, Version};

use super::OF_SETS;
use super::message::{
    Ancestors, Edge, Inquired, Message, NotStarted, Reply, Request, Started, Vertex,
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

fn node(node: NodeId, group: &Group) -> bool {
    node.is_coordinator() || group.contains(node)
}

fn edges(edges: &[Edge], group: &Group) -> bool {
    edges.iter().all(|edge| version(edge.from) && edge.at < group.partitions())
}

fn vertex(vertex: &Vertex, group: &Group) -> bool {
    version(vertex.txn)
        && vertex.participants.iter().all(|at| *at < group.partitions())
        && vertex.participants.is_sorted_by(|one, other| one < other)
        && edges(&vertex.edges, group)
        && vertex.edges.iter().all(|edge| edge.from != vertex.txn)
}

fn ancestors(ancestors: &Ancestors, group: &Group) -> bool {
    let on_cycles = ancestors.cycles.iter().flat_map(|cycle| cycle.iter());
    ancestors.commit.iter().chain(on_cycles).all(|known| vertex(known, group))
        && ancestors.executed.iter().all(|txn| version(*txn))
}

/// Whether `from` can have sent this to a replica of partition `own`.
pub(super) fn to_replica(from: NodeId, message: &Message, own: u16, group: &Group) -> bool {
    let is_replica = !from.is_coordinator();
    let is_here = is_replica && from.partition() == own;
    node(from, group)
        && match message {
            Message::Request(wanted) => request(from, wanted, own, group),
            Message::Forward { from: whose, request: wanted } => {
                is_here && node(*whose, group) && request(*whose, wanted, own, group)
            }
            Message::Reply(told) => is_replica && reply(told, group),
            // The leader checked the request before it made an entry of it.
            Message::Log(_) => is_here,
        }
}

/// Whether `from` can have sent this to a client.
pub(super) fn to_client(from: NodeId, told: &Reply, group: &Group) -> bool {
    group.contains(from) && reply(told, group)
}

fn request(from: NodeId, request: &Request, own: u16, group: &Group) -> bool {
    match request {
        Request::Start(start) => {
            let reads = &start.call.reads;
            version(start.txn)
                && !start.call.is_too_large()
                && reads.iter().all(|at| *at < group.partitions())
                && reads.is_sorted_by(|one, other| one < other)
                && (reads.is_empty() || reads.contains(&own))
        }
        Request::Commit(commit) => {
            vertex(&commit.vertex, group)
                && commit.vertex.participants.contains(&own)
                && ancestors(&commit.ancestors, group)
        }
        Request::End(txns) => txns.iter().all(|txn| version(*txn)),
        Request::Ask { txn } => version(*txn) && !from.is_coordinator(),
        Request::Over { below_us } => *below_us < LAST_US && !from.is_coordinator(),
        Request::Inquire { txn } => version(*txn),
        // The first partition decides which set is in use.
        Request::Drain { .. } | Request::Install { .. } => {
            !from.is_coordinator() && from.partition() == OF_SETS
        }
        Request::Register { .. } => own == OF_SETS,
        Request::Hold(hold) | Request::Release(hold) => {
            version(hold.start.txn) && !hold.start.call.is_too_large() && hold.attempt < LAST_US
        }
        Request::Read(_) | Request::Set => true,
    }
}

fn reply(reply: &Reply, group: &Group) -> bool {
    let why = |why: &NotStarted| match why {
        NotStarted::Late { from_us } => *from_us < LAST_US,
        NotStarted::OtherSet { .. } | NotStarted::Forgotten => true,
    };
    match reply {
        Reply::Started(Started { txn, edges: before, ancestors: known, attempts, .. }) => {
            let attempt = |(_, attempt): &(u16, u64)| (1..LAST_US).contains(attempt);
            version(*txn)
                && edges(before, group)
                && ancestors(known, group)
                && attempts.iter().all(attempt)
        }
        Reply::NotStarted { txn, why: reason } => version(*txn) && why(reason),
        Reply::Executed { txn, .. } => version(*txn),
        Reply::Hold(reply) => version(reply.txn) && reply.attempt < LAST_US,
        Reply::Read { found: Err(reason), .. } => why(reason),
        Reply::Status { txn, ancestors: known } => version(*txn) && ancestors(known, group),
        Reply::Known { txn, known: Inquired::Unknown { from_us } } => {
            version(*txn) && *from_us < LAST_US
        }
        Reply::Known { txn, .. } => version(*txn),
        Reply::Set { from_us, .. } => *from_us < LAST_US,
        Reply::Read { found: Ok(_), .. }
        | Reply::ReadConflict { .. }
        | Reply::ReadForgotten { .. }
        | Reply::Registered { .. }
        | Reply::Drained { .. }
        | Reply::Installed { .. } => true,
    }
}
