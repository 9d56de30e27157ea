//! Validation of messages on arrival. A message that no correct sender can have sent is damaged or
//! forged, and is dropped. No message stops a node.

use serried_actor::{Group, Settings};
use serried_model::{NodeId, Version};

use super::message::{AsOf, Decision, Executed, Message, Refusal, Reply, Request, Shot};
use super::stamp::{Stamp, Validity};
use crate::frameworks::replicated_log::Time;

/// An upper bound of times, in microseconds since the Unix epoch. Sums of smaller times do not
/// overflow.
const LAST_US: u64 = 1 << 62;

const _: () = assert!(
    LAST_US <= u64::MAX / 4 + 1 && Settings::LONGEST_MS * 1000 < LAST_US,
    "sums of times and of settings do not overflow"
);

fn us(us: u64) -> bool {
    us < LAST_US
}

fn version(version: Version) -> bool {
    us(version.timestamp_us)
}

fn stamp(stamp: Stamp) -> bool {
    us(stamp.us) && version(stamp.txn)
}

fn validity(validity: Validity) -> bool {
    stamp(validity.from) && validity.until.is_none_or(stamp)
}

fn decision(decision: Decision) -> bool {
    match decision {
        Decision::Commit(at) => stamp(at),
        Decision::Abort => true,
    }
}

/// Whether these can be the participants of a transaction. Shard `own` must be among them.
fn participants(participants: &[u16], own: u16, group: &Group) -> bool {
    let once = |(place, shard): (usize, &u16)| !participants[..place].contains(shard);
    participants.len() <= usize::from(group.partitions())
        && participants.iter().all(|shard| *shard < group.partitions())
        && participants.contains(&own)
        && participants.iter().enumerate().all(once)
}

/// Whether such a node can exist.
fn node(node: NodeId, group: &Group) -> bool {
    node.is_coordinator() || (node.partition() < group.partitions() && node.member() < group.size())
}

/// Whether `from` can have sent this to a replica of shard `own`.
pub(super) fn to_replica(from: NodeId, message: &Message, own: u16, group: &Group) -> bool {
    let is_replica = !from.is_coordinator();
    let is_here = is_replica && from.partition() == own;
    node(from, group)
        && match message {
            Message::Request(wanted) => request(from, wanted, own, group),
            Message::Forward { from: whose, request: wanted } => {
                is_here && node(*whose, group) && request(*whose, wanted, own, group)
            }
            Message::Reply(told) => is_replica && reply(told),
            // The leader checked the request before it made an entry of it.
            Message::Log(_) => is_here,
            Message::Time(Time::Tell { us: told, .. }) => is_here && us(*told),
            Message::Time(Time::Ask { .. }) => is_here,
        }
}

/// Whether `from` can have sent this to a client.
pub(super) fn to_client(from: NodeId, told: &Reply, group: &Group) -> bool {
    !from.is_coordinator() && node(from, group) && reply(told)
}

fn request(from: NodeId, request: &Request, own: u16, group: &Group) -> bool {
    match request {
        Request::Shot(Shot { txn, participants: last, .. }) => {
            version(*txn) && last.as_ref().is_none_or(|last| participants(last, own, group))
        }
        Request::Move { txn, to } => version(*txn) && stamp(*to) && to.txn == *txn,
        Request::End { txn, decision: how } => version(*txn) && decision(*how),
        Request::Snapshot { as_of: AsOf::Time(txn), .. } => version(*txn),
        Request::Snapshot { as_of: AsOf::Slot(_), .. } => true,
        Request::Alive(txns) => txns.iter().all(|txn| version(*txn)),
        Request::Inspect { txn } | Request::Resolve { txn } => version(*txn),
        Request::Over { below_us } => us(*below_us) && !from.is_coordinator(),
    }
}

fn reply(reply: &Reply) -> bool {
    match reply {
        Reply::Executed(Executed { txn, found, validity: holds, clock_us, .. }) => {
            version(*txn)
                && us(*clock_us)
                && holds.is_none_or(validity)
                && found.iter().all(|found| version(found.version))
        }
        Reply::Refused { txn, reason } => version(*txn) && refusal(reason),
        Reply::Moved { txn } => version(*txn),
        Reply::Decided { txn, decision: how } => version(*txn) && decision(*how),
        Reply::Ended(txns) => txns.iter().all(|txn| version(*txn)),
        Reply::Prepared { txn, validity: holds } => version(*txn) && validity(*holds),
        Reply::Snapshot { found: Ok(found), .. } => {
            found.iter().all(|found| version(found.version))
        }
        Reply::Snapshot { found: Err(_), .. } => true,
        // The coordinator checks that the replica exists.
        Reply::Follow { .. } => true,
    }
}

fn refusal(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Conflict { after_us, .. } => us(*after_us),
        Refusal::Late { from_us } | Refusal::Forgotten { from_us } => us(*from_us),
        Refusal::ClockSkew { ahead_us } => us(ahead_us.unsigned_abs()),
        Refusal::TooLong { .. } => true,
    }
}
