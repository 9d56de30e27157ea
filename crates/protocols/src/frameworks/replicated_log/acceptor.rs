//! The ballot that a replica has promised and the entries that it has accepted. Every replica is an
//! acceptor in every ballot, whoever leads (phases 1b and 2b).

use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::Context;
use serried_model::NodeId;

use super::candidate::SHOWN_BYTES;
use super::host::{Chosen, Host, StateMachine};
use super::message::{Ballot, Entries, Entry, Message, Record};
use super::slots::{KEPT_BYTES, Slots};
use super::undurable::Undurable;

/// How many entries of a leader may be open, that is not chosen. A follower accepts as many beyond
/// those that it has applied.
pub(super) const OPEN_ENTRIES: u64 = 8192;
/// How many bytes such entries may have in total.
pub(super) const OPEN_BYTES: usize = 4 << 20;
/// How far beyond its applied entries a follower accepts others: enough for two leaders in turn.
pub(super) const ACCEPTED_AHEAD: u64 = 2 * OPEN_ENTRIES;
/// How many bytes a follower accepts and has not applied.
const ACCEPTED_BYTES: usize = 4 * OPEN_BYTES;

const _: () = assert!(
    ACCEPTED_AHEAD >= OPEN_ENTRIES && ACCEPTED_BYTES >= OPEN_BYTES,
    "a follower accepts everything that a leader may have open"
);
const _: () = assert!(
    SHOWN_BYTES >= KEPT_BYTES + ACCEPTED_BYTES + OPEN_BYTES,
    "a replica can show a candidate all that it keeps, whatever it has accepted"
);

/// The promised ballot, and the accepted entries.
#[derive(Debug)]
pub(super) struct Acceptor<E> {
    promised: Ballot,
    /// The highest ballot that this replica knows.
    pub(super) seen: Ballot,
    slots: Slots<E>,
    /// All slots below this one have entries that were proposed in the promised ballot, or that are
    /// chosen.
    matched: u64,
    /// All slots below this one are chosen.
    chosen: u64,
    undurable: Undurable,
    /// The number of the last beat received in the promised ballot.
    beat: u64,
    /// Identifies this run, from a start to the next.
    incarnation: u64,
    /// The entries from the durable log, by slot, until the run begins.
    replayed: BTreeMap<u64, (Ballot, Option<E>)>,
    /// The position of the last mark in the durable log.
    marked: u64,
}

impl<E: Entry> Acceptor<E> {
    /// Creates an acceptor that has accepted nothing. It keeps at most `kept` applied entries.
    pub(super) fn new(kept: usize) -> Acceptor<E> {
        Acceptor {
            promised: Ballot::NONE,
            seen: Ballot::NONE,
            slots: Slots::new(kept),
            matched: 0,
            chosen: 0,
            undurable: Undurable::default(),
            beat: 0,
            incarnation: 0,
            replayed: BTreeMap::new(),
            marked: 0,
        }
    }

    pub(super) fn promised(&self) -> Ballot {
        self.promised
    }

    pub(super) fn slots(&self) -> &Slots<E> {
        &self.slots
    }

    pub(super) fn matched(&self) -> u64 {
        self.matched
    }

    pub(super) fn chosen(&self) -> u64 {
        self.chosen
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Replays a record of the durable log.
    pub(super) fn replay(&mut self, record: Record<E>) {
        match record {
            Record::Accepted { ballot, first, entries } => {
                self.promised = self.promised.max(ballot);
                let entries = (first..).zip(entries.iter());
                self.replayed.extend(entries.map(|(slot, entry)| (slot, (ballot, entry.clone()))));
            }
            Record::Mark { promised, applied, .. } => {
                self.promised = self.promised.max(promised);
                self.chosen = self.chosen.max(applied);
            }
            Record::TakenOver(at) => {
                self.chosen = self.chosen.max(at);
                self.replayed = self.replayed.split_off(&at);
            }
        }
    }

    /// Begins a run, after the durable log was replayed.
    pub(super) fn start<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.incarnation = cx.draw();
        self.seen = self.promised;
        let mut chosen = core::mem::take(&mut self.replayed);
        let open = chosen.split_off(&self.chosen);
        // The state machine knows which of these entries its store already contains.
        for (slot, (_, entry)) in chosen {
            let position = cx.log_position();
            machine.apply(Chosen { slot, position, entry: entry.as_ref(), led_in: None }, cx);
        }
        machine.store_all(cx.store());
        self.slots.skip_to(self.chosen);
        // The positions of their records are unknown, so they are written again.
        for (slot, (ballot, entry)) in open {
            self.slots.accept(slot, ballot, cx.log_position(), entry.clone());
            let entries = Arc::new([entry]);
            cx.append(H::record(Record::Accepted { ballot, first: slot, entries }));
            self.undurable.note(slot, cx.log_position());
        }
        self.extend_matched();
    }

    /// Promises a higher ballot. The caller must append a mark: entries that it reports as applied
    /// count as accepted in this ballot, also after a restart.
    pub(super) fn promise(&mut self, ballot: Ballot) {
        self.promised = ballot;
        self.seen = self.seen.max(ballot);
        self.matched = self.slots.applied();
        self.beat = 0;
    }

    /// Appends the promised ballot, the applied slot, whether the replica has lost its disk, and whether
    /// the group has begun anew to the durable log.
    pub(super) fn mark<H: Host<Entry = E>>(
        &mut self,
        (lost, anew): (bool, bool),
        cx: &mut Context<'_, H>,
    ) {
        self.marked = cx.log_position();
        let (promised, applied) = (self.promised, self.slots.applied());
        cx.append(H::record(Record::Mark { promised, applied, lost, anew }));
    }

    /// Whether nothing was accepted or taken over.
    pub(super) fn is_blank(&self) -> bool {
        self.chosen == 0 && self.slots.end() == 0
    }

    /// Accepts the leader's own entries in its ballot, which is the promised one. There are no
    /// others from `first` on.
    pub(super) fn accept_own<H: Host<Entry = E>>(
        &mut self,
        first: u64,
        entries: &Entries<E>,
        cx: &mut Context<'_, H>,
    ) {
        if !entries.is_empty() {
            self.insert(self.promised, first, entries, cx);
        }
        self.matched = first + entries.len() as u64;
    }

    /// Accepts entries, except those that it already has and those that are too far ahead.
    pub(super) fn accept<H: Host<Entry = E>>(
        &mut self,
        ballot: Ballot,
        first: u64,
        entries: &Entries<E>,
        cx: &mut Context<'_, H>,
    ) {
        let applied = self.slots.applied();
        let too_far = applied + ACCEPTED_AHEAD;
        let end = first + entries.len() as u64;
        let has = |slot: u64| self.slots.get(slot).is_some_and(|slot| slot.ballot == ballot);
        let is_new = |slot: u64| slot >= applied && !has(slot);
        let room = self.slots.open_bytes() < ACCEPTED_BYTES || first == applied;
        if end <= too_far && room && (first..end).any(is_new) {
            self.insert(ballot, first, entries, cx);
        }
        self.extend_matched();
    }

    fn insert<H: Host<Entry = E>>(
        &mut self,
        ballot: Ballot,
        first: u64,
        entries: &Entries<E>,
        cx: &mut Context<'_, H>,
    ) {
        let position = cx.log_position();
        for (slot, entry) in (first..).zip(entries.iter()) {
            if slot >= self.slots.applied() {
                self.slots.accept(slot, ballot, position, entry.clone());
            }
        }
        cx.append(H::record(Record::Accepted { ballot, first, entries: entries.clone() }));
        self.undurable.note(first, cx.log_position());
    }

    /// Moves `matched` to the first slot that has no entry of the promised ballot.
    fn extend_matched(&mut self) {
        self.matched = self.matched.max(self.slots.applied());
        let accepted = |slot| self.slots.get(slot).is_some_and(|s| s.ballot == self.promised);
        while accepted(self.matched) {
            self.matched += 1;
        }
    }

    /// Records a beat of the leader.
    pub(super) fn on_beat(&mut self, number: u64) {
        self.beat = self.beat.max(number);
    }

    /// Records that all slots below `chosen` are chosen. Returns whether this is new.
    pub(super) fn learn(&mut self, chosen: u64) -> bool {
        let is_news = chosen > self.chosen;
        self.chosen = self.chosen.max(chosen);
        is_news
    }

    /// Reports to the leader of the promised ballot which of its entries this replica has accepted.
    pub(super) fn report<H: Host<Entry = E>>(&self, leader: NodeId, cx: &mut Context<'_, H>) {
        let Acceptor { promised: ballot, incarnation, beat, matched, .. } = *self;
        cx.send(leader, H::message(Message::Accepted { ballot, incarnation, beat, matched }));
    }

    /// Continues from a transferred state, which contains everything that was chosen below `at`.
    pub(super) fn skip_to<H: Host<Entry = E>>(&mut self, at: u64, cx: &mut Context<'_, H>) {
        self.slots.skip_to(at);
        self.learn(at);
        cx.append(H::record(Record::TakenOver(at)));
        self.extend_matched();
    }

    /// Applies the entries that are known to be chosen and are durable here. Forgets applied
    /// entries that need not be kept. `held` is the first slot that another replica needs, and the
    /// limit in bytes for it.
    ///
    /// If entries were applied before they are durable here, the machine's store could be ahead of
    /// this log: a crash may preserve the store's writes and lose the entries. A replica that is
    /// alone would then use their slots again.
    pub(super) fn apply<H: Host<Entry = E>>(
        &mut self,
        led_in: Option<Ballot>,
        held: Option<(u64, usize)>,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let chosen = self.chosen.min(self.matched);
        let known = chosen.min(self.undurable.first(cx.durable_position()));
        if known < chosen {
            cx.await_durable();
        }
        if self.slots.applied() >= known {
            return;
        }
        while self.slots.applied() < known {
            let slot = self.slots.applied();
            let applied = self.slots.apply_next();
            let (position, entry) = (applied.position, applied.entry.as_ref());
            machine.apply(Chosen { slot, position, entry, led_in }, cx);
        }
        self.slots.forget(held);
    }

    /// Trims the durable log, after more state has been written to the machine's store.
    pub(super) fn trim<H: Host<Entry = E>>(
        &mut self,
        (lost, anew): (bool, bool),
        machine: &impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let position = cx.log_position();
        if position <= self.marked + 1 {
            return; // The log contains only the last mark.
        }
        let needed = machine.needs_log_from().into_iter().chain(self.slots.needs_log_from());
        let keep = needed.fold(position, u64::min);
        self.mark((lost, anew), cx);
        cx.trim_log(keep);
    }
}
