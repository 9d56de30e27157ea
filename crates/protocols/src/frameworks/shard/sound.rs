//! Validation of messages on arrival. A message that no correct sender can have sent is damaged or
//! forged, and is dropped. No message stops a node.

use std::sync::Arc;

use serried_actor::{Group, Settings};
use serried_model::{Modify, NodeId, Version};

use super::OF_SETS;
use super::message::{AsOf, Decision, Executed, Kept, Message, Refusal, Reply, Request, Run, Shot};
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
pub(super) fn to_replica(
    from: NodeId,
    message: &Message,
    own: u16,
    group: &Group,
    runs_calls: bool,
) -> bool {
    let is_replica = !from.is_coordinator();
    let is_here = is_replica && from.partition() == own;
    node(from, group)
        && match message {
            Message::Request(wanted) => request(from, wanted, own, group, runs_calls),
            Message::Forward { from: whose, request: wanted } => {
                is_here && node(*whose, group) && request(*whose, wanted, own, group, runs_calls)
            }
            Message::Reply(told) => is_replica && reply(told, group),
            // The leader checked the request before it made an entry of it.
            Message::Log(_) => is_here,
            Message::Time(Time::Tell { us: told, .. }) => is_here && us(*told),
            Message::Time(Time::Ask { .. }) => is_here,
        }
}

/// Whether `from` can have sent this to a client.
pub(super) fn to_client(from: NodeId, told: &Reply, group: &Group) -> bool {
    !from.is_coordinator() && node(from, group) && reply(told, group)
}

fn shot(shot: &Shot, own: u16, group: &Group) -> bool {
    let Shot { txn, age, reads, for_update, modifies, participants: last, .. } = shot;
    version(*txn)
        && modifies.iter().map(|modify| modify.modifications.len()).sum::<usize>() <= Modify::MOST
        && age.is_none_or(|age| age < *txn)
        && *for_update as usize <= reads.len()
        && last.as_ref().is_none_or(|last| participants(last, own, group))
}

/// `runs_calls` is whether the keyspace has procedures. Then its clients send other shots.
fn request(from: NodeId, request: &Request, own: u16, group: &Group, runs_calls: bool) -> bool {
    match request {
        Request::Shot(wanted) => !runs_calls && shot(wanted, own, group),
        Request::Run(Run { shot: wanted, call, .. }) => {
            let is_plain = wanted.keys() == 0;
            runs_calls && is_plain && !call.is_too_large() && shot(wanted, own, group)
        }
        Request::Kept { txn } => runs_calls && version(*txn),
        Request::Set => runs_calls && own == OF_SETS,
        Request::Register { .. } => runs_calls && own == OF_SETS,
        Request::Install { .. } => {
            runs_calls && !from.is_coordinator() && from.partition() == OF_SETS
        }
        Request::Move { txn, to } => version(*txn) && stamp(*to) && to.txn == *txn,
        Request::End { txn, decision: how } => version(*txn) && decision(*how),
        Request::Snapshot { as_of: AsOf::Time(txn), .. } => !runs_calls && version(*txn),
        Request::Snapshot { as_of: AsOf::Slot(_), .. } => !runs_calls,
        Request::Alive(txns) => txns.iter().all(|txn| version(*txn)),
        Request::Inspect { txn } | Request::Resolve { txn } => version(*txn),
        Request::Over { below_us } => us(*below_us) && !from.is_coordinator(),
        Request::Prepared { txn, validity: holds } => {
            !from.is_coordinator() && from.partition() != own && version(*txn) && validity(*holds)
        }
    }
}

fn executed(executed: &Executed) -> bool {
    let Executed { txn, found, validity: holds, clock_us, .. } = executed;
    version(*txn)
        && us(*clock_us)
        && holds.is_none_or(validity)
        && found.iter().all(|found| version(found.version))
}

fn reply(reply: &Reply, group: &Group) -> bool {
    match reply {
        Reply::Executed(told) | Reply::Ran { executed: told, .. } => executed(told),
        Reply::Kept { txn, kept } => {
            let exist = |kept: &Arc<Kept>| {
                kept.participants.iter().all(|shard| *shard < group.partitions())
            };
            version(*txn) && kept.as_ref().is_none_or(exist)
        }
        Reply::Set { .. } | Reply::Registered { .. } | Reply::Installed { .. } => true,
        Reply::Refused { txn, reason } => version(*txn) && refusal(reason),
        Reply::Moved { txn } => version(*txn),
        Reply::Decided { txn, decision: how } => version(*txn) && decision(*how),
        Reply::Ended(txns) => txns.iter().all(|txn| version(*txn)),
        Reply::Prepared { txn, validity: holds } => version(*txn) && validity(*holds),
        Reply::Snapshot { clock_us, found: Ok(found), .. } => {
            us(*clock_us) && found.iter().all(|found| version(found.version))
        }
        Reply::Snapshot { clock_us, found: Err(_), .. } => us(*clock_us),
        Reply::Unread { reason, .. } => refusal(reason),
        // The coordinator checks that the replica exists.
        Reply::Follow { .. } => true,
    }
}

fn refusal(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Conflict { after_us, .. } => us(*after_us),
        Refusal::Late { from_us } | Refusal::Forgotten { from_us } => us(*from_us),
        Refusal::ClockSkew { ahead_us } => us(ahead_us.unsigned_abs()),
        Refusal::TooLong { .. } | Refusal::TooLarge { .. } | Refusal::OtherSet { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use serried_model::{Key, Modification};
    use serried_procedures::Datum;
    use serried_procedures::limits::MAX_DATA_OF_CALL;

    use super::super::calls::CallOf;
    use super::*;
    use crate::testing::client_id;

    fn shot_with(client: NodeId, modifies: Vec<Modify>) -> Shot {
        Shot {
            txn: Version { timestamp_us: 1, coordinator: client },
            age: None,
            number: 0,
            reads: Vec::new(),
            for_update: 0,
            writes: Vec::new(),
            modifies,
            participants: None,
        }
    }

    #[test]
    fn the_inputs_of_a_call_are_bounded() {
        let group = Group::new(1, Duration::from_millis(1));
        let client = client_id(0);
        let is_sound = |inputs: Vec<Datum>| {
            let shot = shot_with(client, Vec::new());
            let call = Arc::new(CallOf { set: 1, procedure: 0, inputs });
            let run = Run { shot, call, pieces: Vec::new(), is_refused: false };
            to_replica(client, &Message::Request(Request::Run(run)), 0, &group, true)
        };
        let (most, datum) = (MAX_DATA_OF_CALL as usize, size_of::<Datum>());
        let bytes = |count: usize| vec![Datum::Bytes(vec![0; count].into())];
        assert!(is_sound(bytes(most - datum)) && !is_sound(bytes(most - datum + 1)));
        let empty = |count: usize| vec![Datum::Bytes(Default::default()); count];
        assert!(is_sound(empty(most / datum)) && !is_sound(empty(most / datum + 1)));
    }

    #[test]
    fn the_modifications_of_a_shot_are_bounded() {
        let group = Group::new(1, Duration::from_millis(1));
        let client = client_id(0);
        let is_sound = |counts: [usize; 2]| {
            let modify = |count| Modify {
                key: Key::from("x"),
                modifications: vec![Modification::Minimum(0); count],
            };
            let shot = shot_with(client, counts.map(modify).into());
            to_replica(client, &Message::Request(Request::Shot(shot)), 0, &group, false)
        };
        assert!(is_sound([Modify::MOST - 1, 1]) && !is_sound([Modify::MOST, 1]));
    }
}
