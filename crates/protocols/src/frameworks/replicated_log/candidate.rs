//! A candidate: it asks for promises, and collects entries that were accepted in lower ballots
//! (phase 1).

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Context, NodeSet};
use serried_model::NodeId;

use super::acceptor::{Acceptor, OPEN_BYTES};
use super::host::Host;
use super::members::Members;
use super::message::{Accepted, Ballot, Entry, Message, Timer};

/// The size limit of the entries in a promise, in bytes, by the sizes that [`super::Entry::size`] estimates. A candidate
/// that lacks more copies the state instead.
pub const SHOWN_BYTES: usize = 8 * OPEN_BYTES;
/// How long a candidate waits before it repeats its request for promises, plus round trips.
const PREPARE_AGAIN: Duration = Duration::from_millis(50);

/// The promises that a candidate has received.
#[derive(Debug)]
pub(super) struct Candidate<E> {
    promises: NodeSet,
    /// The ballot of the leader that handed over, or [`Ballot::NONE`].
    after: Ballot,
    /// By member, the slot below which it has applied all entries. Known for members that have
    /// promised.
    applied: Vec<Option<u64>>,
    /// By slot, the entry that was accepted in the highest ballot.
    found: BTreeMap<u64, (Ballot, Option<E>)>,
}

/// The starting point of a new leader: a candidate with a majority of promises.
pub(super) struct Mandate<E> {
    /// The entries to propose again, from the first slot that it has not applied. Entries are empty
    /// where no replica had accepted any.
    pub(super) entries: Vec<Option<E>>,
    /// All slots below this one are chosen.
    pub(super) chosen: u64,
    /// By member, the slot below which it has applied all entries. Known for members that have
    /// promised.
    pub(super) applied: Vec<Option<u64>>,
}

impl<E: Entry> Candidate<E> {
    /// Creates a candidate in the ballot that `acceptor` has promised. `after` is the ballot of the
    /// leader that has handed over.
    pub(super) fn new(after: Ballot, acceptor: &Acceptor<E>, members: &Members) -> Candidate<E> {
        let mut applied = vec![None; members.group.size()];
        applied[members.own()] = Some(acceptor.slots().applied());
        let promises = [members.id].into_iter().collect();
        let mut candidate = Candidate { promises, after, applied, found: BTreeMap::new() };
        for (slot, open) in acceptor.slots().open() {
            candidate.add(Accepted { slot, ballot: open.ballot, entry: open.entry.clone() });
        }
        candidate
    }

    fn add(&mut self, Accepted { slot, ballot, entry }: Accepted<E>) {
        let found = self.found.entry(slot).or_insert((ballot, None));
        if found.0 <= ballot {
            *found = (ballot, entry);
        }
    }

    /// Asks the replicas that have not promised.
    pub(super) fn ask<H: Host<Entry = E>>(
        &self,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) {
        let missing = members.group.all().without(self.promises);
        let (ballot, from) = (acceptor.promised(), acceptor.slots().applied());
        members.send(missing, Message::Prepare { ballot, from, after: self.after }, cx);
        let again = cx.jitter(2 * members.group.round_trip() + PREPARE_AGAIN);
        cx.set_timer(H::timer(Timer::Elect), again);
    }

    /// Records a promise. Returns false if it is a repetition.
    pub(super) fn on_promise(
        &mut self,
        from: NodeId,
        applied: u64,
        accepted: Vec<Accepted<E>>,
    ) -> bool {
        if !self.promises.insert(from) {
            return false;
        }
        self.applied[from.member()] = Some(applied);
        accepted.into_iter().for_each(|accepted| self.add(accepted));
        true
    }

    /// Whether a majority has promised.
    pub(super) fn has_majority(&self, members: &Members) -> bool {
        self.promises.len() >= members.group.majority()
    }

    /// The starting point for leading, after a majority has promised. This replica has applied
    /// everything below `first`.
    pub(super) fn mandate(&mut self, first: u64) -> Mandate<E> {
        let applied = core::mem::take(&mut self.applied);
        let mut found = self.found.split_off(&first);
        let chosen = applied.iter().flatten().copied().max().unwrap_or(first);
        let end = found.last_key_value().map_or(first, |(last, _)| last + 1).max(first);
        assert!(end >= chosen, "a replica that knows what was chosen below {chosen} has shown it");
        let entry = |slot| found.remove(&slot).and_then(|(_, entry)| entry);
        Mandate { entries: (first..end).map(entry).collect(), chosen, applied }
    }
}
