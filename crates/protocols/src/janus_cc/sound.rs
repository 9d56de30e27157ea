//! Validation of messages on arrival. A message that no correct sender can have sent is damaged or forged, and is dropped. No
//! message stops a node.

use serried_actor::{Group, Settings};
use serried_model::{NodeId, Version};

use super::message::{
    Ancestors, Edge, Inquired, Message, NotAccepted, PreAccept, Reply, Request, Task, Vertex, Work,
};
use super::server;

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
}

fn ancestors(ancestors: &Ancestors, group: &Group) -> bool {
    let on_cycles = ancestors.cycles.iter().flat_map(|cycle| cycle.iter());
    ancestors.commit.iter().chain(on_cycles).all(|known| vertex(known, group))
        && ancestors.executed.iter().all(|txn| version(*txn))
}

fn work(work: &Work, group: &Group) -> bool {
    partitions(&work.participants, group)
        && match &work.task {
            Task::Call(_) => true,
            Task::Register { .. } => work.participants.len() == usize::from(group.partitions()),
        }
}

/// Whether a node keeps a partition's data.
fn is_server(node: NodeId, group: &Group) -> bool {
    group.contains(node) && server(group, node.partition()) == node
}

/// Whether `from` can have sent this to the server of partition `own`.
pub(super) fn to_server(from: NodeId, message: &Message, own: u16, group: &Group) -> bool {
    match message {
        Message::Request(wanted) => {
            (from.is_coordinator() || is_server(from, group)) && request(from, wanted, own, group)
        }
        Message::Reply(told) => is_server(from, group) && reply(told, group),
    }
}

/// Whether `from` can have sent this to a client.
pub(super) fn to_client(from: NodeId, told: &Reply, group: &Group) -> bool {
    is_server(from, group) && reply(told, group)
}

fn request(from: NodeId, request: &Request, own: u16, group: &Group) -> bool {
    match request {
        Request::PreAccept(PreAccept { txn, work: of, .. }) => {
            version(*txn) && work(of, group) && of.participants.contains(&own)
        }
        Request::Commit(commit) => {
            vertex(&commit.vertex, group)
                && commit.vertex.participants.contains(&own)
                && ancestors(&commit.ancestors, group)
        }
        Request::End(txns) => txns.iter().all(|txn| version(*txn)),
        Request::Ask { txn } | Request::Results { txn } => version(*txn) && !from.is_coordinator(),
        Request::Over { below_us } => *below_us < LAST_US && !from.is_coordinator(),
        Request::Inquire { txn } => version(*txn),
        Request::Set => true,
    }
}

fn reply(reply: &Reply, group: &Group) -> bool {
    match reply {
        Reply::PreAccepted { txn, edges: before, ancestors: known } => {
            version(*txn) && edges(before, group) && ancestors(known, group)
        }
        Reply::NotAccepted { txn, why } => {
            let why = match why {
                NotAccepted::Late { from_us } => *from_us < LAST_US,
                NotAccepted::OtherSet | NotAccepted::Forgotten => true,
            };
            version(*txn) && why
        }
        Reply::Status { txn, ancestors: known } => version(*txn) && ancestors(known, group),
        Reply::Executed { txn, .. } | Reply::Results { txn, .. } => version(*txn),
        Reply::Known { txn, known } => {
            let known = match known {
                Inquired::Begun(of) => work(of, group),
                Inquired::Unknown { from_us } => *from_us < LAST_US,
                Inquired::Forgotten => true,
            };
            version(*txn) && known
        }
        Reply::Set { .. } => true,
    }
}
