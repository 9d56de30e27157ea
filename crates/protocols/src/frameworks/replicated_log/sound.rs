//! Validation of messages on arrival. A message that no replica can have sent is damaged or forged,
//! and is dropped. It must neither stop the node nor make it use unbounded memory.

use serried_model::NodeId;

use super::acceptor::{ACCEPTED_AHEAD, Acceptor};
use super::members::Members;
use super::message::{Accepted, Ballot, Entry, Message};

/// A bound above the slots of any log and the rounds of any ballot.
pub(super) const NEVER: u64 = 1 << 48;

const _: () = assert!(
    NEVER < u64::MAX / 4,
    "sums of slots, rounds and numbers of entries do not overflow, and no ballot reaches \
     `Ballot::CHOSEN`"
);

/// Whether a replica can have sent a message to this one.
pub(super) fn is_sound<E: Entry>(from: NodeId, message: &Message<E>, members: &Members) -> bool {
    let is_member = !from.is_coordinator()
        && from.partition() == members.id.partition()
        && from.member() < members.group.size();
    from != members.id && is_member && can_be_sent(from, message, members)
}

/// Whether a message matches an open request of this replica. If it does not, it is late or forged:
/// this replica has lost slots or has asked again since.
pub(super) fn is_of_use<E: Entry>(message: &Message<E>, acceptor: &Acceptor<E>) -> bool {
    let slots = acceptor.slots();
    match message {
        Message::Accepted { matched, .. } => *matched <= slots.end(),
        Message::Promise { applied, accepted, .. } => {
            can_be_shown(slots.applied(), *applied, accepted)
        }
        _ => true,
    }
}

fn can_be_sent<E: Entry>(from: NodeId, message: &Message<E>, members: &Members) -> bool {
    let is_ballot =
        |ballot: &Ballot| ballot.round < NEVER && usize::from(ballot.member) < members.group.size();
    let is_own = |ballot: &Ballot| is_ballot(ballot) && usize::from(ballot.member) == from.member();
    match message {
        Message::Accept { ballot, first, chosen, entries } => {
            is_own(ballot) && *first < NEVER - entries.len() as u64 && *chosen < NEVER
        }
        Message::Beat { ballot, chosen, base, .. } => {
            is_own(ballot) && *chosen < NEVER && *base < NEVER
        }
        Message::Accepted { ballot, matched, .. } => is_ballot(ballot) && *matched < NEVER,
        Message::Prepare { ballot, from, after } => {
            is_own(ballot) && *from < NEVER && is_ballot(after)
        }
        Message::Promise { ballot, applied, .. } => is_ballot(ballot) && *applied < NEVER,
        Message::HandOver { ballot } => is_own(ballot),
        Message::Behind { ballot } => is_ballot(ballot),
        Message::Refused { promised } | Message::Standing { promised, .. } => is_ballot(promised),
        Message::Scanned { at, .. } => *at < NEVER,
        Message::Rejoin { .. }
        | Message::Scan { .. }
        | Message::Canvass { .. }
        | Message::Willing { .. } => true,
    }
}

/// Whether a replica that has applied all slots below `applied` can report these entries from slot
/// `first` on. The slots must ascend and include all entries that it has applied. They must not lie
/// further ahead than a replica accepts.
fn can_be_shown<E>(first: u64, applied: u64, accepted: &[Accepted<E>]) -> bool {
    let rises = accepted.windows(2).all(|pair| pair[0].slot < pair[1].slot);
    let begins = accepted.first().is_none_or(|accepted| accepted.slot >= first);
    let shown = accepted.iter().filter(|accepted| accepted.slot < applied).count() as u64;
    let most = applied.max(first).saturating_add(accepted.len() as u64 + ACCEPTED_AHEAD);
    let ends = accepted.last().is_none_or(|accepted| accepted.slot < most);
    rises && begins && ends && shown == applied.saturating_sub(first)
}
