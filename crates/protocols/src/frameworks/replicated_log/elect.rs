//! How a leader is found.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Context, NodeSet};
use serried_model::NodeId;

use super::lead::Leader;
use super::log::{Host, Log, Machine, OPEN_BYTES, Role};
use super::message::{Accepted, Ballot, Entries, Entry, Message, Record, Timer};

/// The most that a promise shows, in bytes; a candidate that lacks more takes over the state instead.
const SHOWN_BYTES: usize = 8 * OPEN_BYTES;
/// After how long a promise is asked for again, round trips not counted.
const PREPARE_AGAIN: Duration = Duration::from_millis(50);

/// What a candidate has been promised.
#[derive(Debug)]
pub(super) struct Candidate<E> {
    promises: NodeSet,
    /// The ballot of the leader that has handed over, or [`Ballot::NONE`].
    after: Ballot,
    /// By member, where what was chosen is known to those that have promised.
    applied: Vec<Option<u64>>,
    /// By slot, what was accepted in the highest ballot.
    found: BTreeMap<u64, (Ballot, Option<E>)>,
}

impl<E: Entry> Candidate<E> {
    fn add(&mut self, Accepted { slot, ballot, entry }: Accepted<E>) {
        let found = self.found.entry(slot).or_insert((ballot, None));
        if found.0 <= ballot {
            *found = (ballot, entry);
        }
    }
}

impl<E: Entry> Log<E> {
    /// Becomes a candidate, in a ballot higher than any that it knows.
    pub(super) fn campaign<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.campaign_after(Ballot::NONE, machine, cx);
    }

    /// Becomes a candidate after the leader of the ballot `after` has handed over. A replica whose node is about to stop does
    /// not.
    pub(super) fn campaign_after<H: Host<Entry = E>>(
        &mut self,
        after: Ballot,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if self.stops {
            self.role = Role::Follower;
            self.heard = cx.now();
            return self.wait_for_leader(cx);
        }
        let ballot = self.seen.max(self.promised).next(self.id.member());
        self.promise(ballot);
        self.mark(cx);
        let mut candidate = Candidate {
            promises: [self.id].into_iter().collect(),
            after,
            applied: vec![None; self.group.size()],
            found: BTreeMap::new(),
        };
        candidate.applied[self.id.member()] = Some(self.slots.applied());
        for (slot, open) in self.slots.open() {
            candidate.add(Accepted { slot, ballot: open.ballot, entry: open.entry.clone() });
        }
        self.role = Role::Candidate(candidate);
        self.prepare_again(cx);
        self.lead_if_promised(machine, cx);
    }

    /// Asks the replicas that have not promised yet.
    pub(super) fn prepare_again<H: Host<Entry = E>>(&self, cx: &mut Context<'_, H>) {
        let Role::Candidate(candidate) = &self.role else { return };
        let missing = self.group.all().without(candidate.promises);
        let (ballot, from, after) = (self.promised, self.slots.applied(), candidate.after);
        self.broadcast(missing, Message::Prepare { ballot, from, after }, cx);
        let again = cx.jitter(2 * self.group.round_trip() + PREPARE_AGAIN);
        cx.set_timer(H::timer(Timer::Elect), again);
    }

    pub(super) fn on_prepare<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        (ballot, after): (Ballot, Ballot),
        slot: u64,
        cx: &mut Context<'_, H>,
    ) {
        self.seen = self.seen.max(ballot);
        if self.lost.is_some() {
            return; // Its predecessor may have accepted what it does not know of.
        }
        if ballot < self.promised {
            let promised = self.promised;
            return self.send(from, Message::Refused { promised }, cx);
        }
        let another = ballot.member != self.promised.member;
        let follows = match &self.role {
            Role::Leader(_) => true,
            Role::Candidate(_) => false,
            Role::Follower | Role::Canvasser(_) => self.hears_leader(cx.now()),
        };
        let handed_over = after > Ballot::NONE && after >= self.promised;
        if another && follows && self.promised > Ballot::NONE && !handed_over {
            return; // There is a leader. The candidate is late or was cut off.
        }
        let Some(accepted) = self.slots.show(slot, SHOWN_BYTES) else {
            return self.send(from, Message::Behind { ballot }, cx);
        };
        if ballot > self.promised {
            self.promise(ballot);
            self.mark(cx);
            self.heard = cx.now();
            self.wait_for_leader(cx);
        }
        let applied = self.slots.applied();
        self.send(from, Message::Promise { ballot, applied, accepted }, cx);
    }

    pub(super) fn on_promise<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        (applied, accepted): (u64, Vec<Accepted<E>>),
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if ballot != self.promised || !candidate.promises.insert(from) {
            return;
        }
        candidate.applied[from.member()] = Some(applied);
        accepted.into_iter().for_each(|accepted| candidate.add(accepted));
        self.lead_if_promised(machine, cx);
    }

    /// Leads, once a majority has promised: what was accepted in the highest ballot of each slot is
    /// proposed anew, and nothing where nothing was.
    fn lead_if_promised<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if candidate.promises.len() < self.group.majority() {
            return;
        }
        let applied = core::mem::take(&mut candidate.applied);
        let (ballot, first) = (self.promised, self.slots.applied());
        let mut found = candidate.found.split_off(&first);
        let chosen = applied.iter().flatten().copied().max().unwrap_or(first);
        let end = found.last_key_value().map_or(first, |(last, _)| last + 1).max(first);
        assert!(end >= chosen, "who knows what was chosen below {chosen} has shown it");
        if end > first {
            let entry = |slot| found.remove(&slot).and_then(|(_, entry)| entry);
            let mut entries: Vec<Option<E>> = (first..end).map(entry).collect();
            machine.revise(first, &mut entries);
            let entries: Entries<E> = entries.into();
            let position = cx.log_position();
            for (slot, entry) in (first..).zip(entries.iter()) {
                self.slots.accept(slot, ballot, position, entry.clone());
            }
            cx.append(H::record(Record::Accepted { ballot, first, entries }));
            self.undurable.note(first, cx.log_position());
        }
        self.matched = end;
        self.told = self.told.max(chosen);
        self.role = Role::Leader(Leader::new(end, &applied, cx.now()));
        cx.cancel_timer(H::timer(Timer::Elect));
        for member in self.others().members() {
            if applied[member].is_some() {
                self.feed(member, cx);
            }
        }
        self.look_after_followers(cx);
        self.apply(machine, cx);
        self.choose(machine, cx);
    }

    /// Who was to promise keeps less than this replica lacks.
    pub(super) fn on_behind<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        cx: &mut Context<'_, H>,
    ) {
        if matches!(self.role, Role::Candidate(_)) && ballot == self.promised {
            self.role = Role::Follower;
            self.heard = cx.now();
            self.restore_from(from, cx);
            self.wait_for_leader(cx);
        }
    }

    /// Somebody has promised a higher ballot. A leader takes a still higher one; a candidate sees first
    /// whether that other leads.
    pub(super) fn on_refused<H: Host<Entry = E>>(
        &mut self,
        promised: Ballot,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.seen = self.seen.max(promised);
        if promised <= self.promised {
            return;
        }
        match &self.role {
            Role::Leader(_) => self.campaign(machine, cx),
            Role::Candidate(_) => {
                self.role = Role::Follower;
                let soon = cx.jitter(self.beat());
                cx.set_timer(H::timer(Timer::Elect), soon);
            }
            Role::Follower | Role::Canvasser(_) => {}
        }
    }
}
