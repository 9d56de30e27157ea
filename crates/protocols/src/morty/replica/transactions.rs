//! The transactions that are not decided, as far as this replica knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Store, Timestamp};
use serried_model::{Key, Version};
use serried_parts::{Map, Place, WriteId};
use smallvec::SmallVec;

use super::keys::Keys;
use super::setup::Setup;
use super::state::State;
use super::watch::{Watch, patience_for};
use crate::morty::Control;
use crate::morty::message::{
    Accepted, Conflict, Contents, Overwritten, Proposal, Settlement, View, Vote,
};

/// Up to so many writes that a vote waits for, the log says each time which are left.
const FEW_WAITS: usize = 8;
/// Up to so many reads are searched one by one.
const FEW_READS: usize = 16;

/// Transactions with their `erecord`, and which of them wait for which.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: Map<Version, Undecided>,
    /// The transactions that wait for a decision before their final vote, by the transaction that is to be decided.
    waiting: BTreeMap<Version, Waiters>,
    /// Those to be looked after.
    watch: Watch,
}

/// Transactions that wait for a decision.
pub(super) type Waiters = SmallVec<[Version; 2]>;

/// Some of what an execution's reads have found, by the index among its [sources](Contents::sources).
pub(super) type Sources = SmallVec<[u32; 4]>;

/// Where records are.
pub(super) type Places = SmallVec<[Place; 6]>;

/// A transaction in progress. Of its executions only the latest that was prepared is kept: a Prepare
/// abandons all earlier ones.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    /// The records in which it has an uncommitted read.
    pub(super) reads: Places,
    /// Those in which it has an uncommitted write; first those of the execution.
    pub(super) writes: Places,
    /// Puts with smaller tags are superseded.
    pub(super) next_tag: u32,
    /// Executions before this one are abandoned.
    pub(super) abandoned_before: u32,
    /// The view below which no decision is accepted.
    pub(super) view: View,
    pub(super) accepted: Option<Accepted>,
    pub(super) execution: Option<Execution>,
    /// It is looked after.
    watched: bool,
    /// When its coordinator last sent something.
    pub(super) heard: Timestamp,
}

impl Undecided {
    /// Somebody else than its coordinator decides on it.
    pub(super) fn is_superseded(&self) -> bool {
        self.view > View::OWN
    }

    /// Whether it may have got so far that it commits.
    pub(super) fn may_commit(&self) -> bool {
        self.execution.is_some() || self.accepted.is_some()
    }

    /// The first version from which on it has found nothing, if it is prepared, in microseconds.
    fn found_nothing_from(&self) -> u64 {
        let execution = self.execution.as_ref();
        let prepared = execution.filter(|execution| execution.vote == Some(Vote::Commit));
        let reads = prepared.into_iter().flat_map(|execution| &execution.contents.reads);
        let writes = reads.map(|read| read.found.write);
        let found_nothing = writes.filter(|write| write.tag == WriteId::INITIAL.tag);
        found_nothing.map(|write| write.version.timestamp_us).min().unwrap_or(u64::MAX)
    }
}

/// An `erecord` entry.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) eid: u32,
    pub(super) contents: Arc<Contents>,
    /// The records of what it has read, while its reads are prepared.
    reads: Places,
    /// `None` while it waits for the transactions that it read from, if votes are not provisional.
    pub(super) vote: Option<Vote>,
    /// Where the log ends with this vote, or 0 if it was replayed.
    logged_at: u64,
    /// Why it was not to commit.
    pub(super) conflict: Option<Conflict>,
    /// What a provisional vote waits for: the writes that are not known to be committed as they were read.
    pub(super) unconfirmed: Sources,
    /// How many of these the log has.
    waits_logged: usize,
    /// How many transactions it waits for, one after the other, as far as they were known when it got its vote.
    pub(super) depth: u32,
}

impl Execution {
    fn new(eid: u32, contents: Arc<Contents>) -> Execution {
        let (reads, unconfirmed) = Default::default();
        Execution {
            eid,
            contents,
            reads,
            vote: None,
            logged_at: 0,
            conflict: None,
            unconfirmed,
            waits_logged: usize::MAX,
            depth: 0,
        }
    }

    /// Whether its reads are prepared.
    fn is_prepared(&self) -> bool {
        matches!(self.vote, Some(Vote::Commit | Vote::Provisional))
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'a> {
    /// As this execution.
    Committed(u32, &'a Contents),
    Aborted,
    /// Unknown here. Its effects, if it has any, are in state that was copied from another replica.
    Unknown,
}

/// What is to be done about a transaction that was due to be looked at.
#[derive(Debug)]
pub(super) enum Look {
    /// It is to be recovered, at this time or later.
    Recover(Timestamp),
    /// It was settled without a decision here. These wait for it, and continue.
    Settled(Waiters),
    /// Nothing, until another message about it arrives.
    Forget,
}

impl Transactions {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn contains(&self, version: Version) -> bool {
        self.open.contains_key(&version)
    }

    pub(super) fn get(&self, version: Version) -> Option<&Undecided> {
        self.open.get(&version)
    }

    pub(super) fn get_mut(&mut self, version: Version) -> Option<&mut Undecided> {
        self.open.get_mut(&version)
    }

    /// A transaction that is not decided, from its first message on.
    pub(super) fn open(
        &mut self,
        version: Version,
        now: Timestamp,
        setup: &Setup,
    ) -> &mut Undecided {
        let undecided = self.open.get_or_default(&version);
        if !core::mem::replace(&mut undecided.watched, true) {
            undecided.heard = now;
            self.watch.add(version, now + setup.settings.recovery_after());
        }
        undecided
    }

    /// How a transaction ended, as far as this replica knows and remembers.
    pub(super) fn settlement(&self, version: Version, state: &State) -> Option<Settlement> {
        self.remembered(version, state).or_else(|| state.progress.settlement(version))
    }

    /// The same, of what is kept of every transaction for a while.
    pub(super) fn remembered(&self, version: Version, state: &State) -> Option<Settlement> {
        // Most messages are about transactions that are open.
        if self.contains(version) { None } else { state.settled.get(version) }
    }

    /// Takes in what was accepted. If the coordinator abandons an execution in its own view, what the execution had
    /// prepared is released at once. `morty/mod.rs` says why that is safe.
    pub(super) fn accept(
        &mut self,
        version: Version,
        accepted: Accepted,
        keys: &mut Keys,
        setup: &Setup,
    ) {
        let Accepted { view, eid, decision } = accepted;
        let undecided = self.open(version, Timestamp::default(), setup);
        undecided.view = view;
        // Links are not ordered, so a message about an earlier execution may come late.
        undecided.accepted = undecided.accepted.max(Some(accepted));
        if decision == Proposal::Commit || view > View::OWN {
            return;
        }
        undecided.abandoned_before = undecided.abandoned_before.max(eid.saturating_add(1));
        // The execution never commits, so it must not be in the way of others.
        if undecided.execution.as_ref().is_some_and(|execution| execution.eid <= eid) {
            undecided.unprepare(version, keys);
            undecided.execution = None;
            if setup.options.control == Control::Validation {
                undecided.withdraw(version, keys);
            }
        }
    }

    /// The contents of an execution, if this replica's last vote on the transaction was on it.
    pub(super) fn voted_on(&self, version: Version, eid: u32) -> Option<Arc<Contents>> {
        let execution = self.get(version)?.execution.as_ref()?;
        (execution.eid == eid && execution.vote.is_some()).then(|| execution.contents.clone())
    }

    /// Takes in an execution to vote on. Abandons those before it, and brings the transaction's uncommitted writes in line
    /// with what it writes.
    pub(super) fn install(
        &mut self,
        version: Version,
        (eid, next_tag): (u32, u32),
        contents: Arc<Contents>,
        keys: &mut Keys,
    ) {
        let undecided = self.open.get_or_default(&version);
        undecided.unprepare(version, keys);
        undecided.abandoned_before = eid;
        undecided.next_tag = next_tag;
        undecided.execution = None;
        let old = core::mem::take(&mut undecided.writes);
        withdraw(version, &old, &contents, keys);
        let found = found_in(&contents);
        for write in &contents.writes {
            let place = keys.place(&write.key);
            let id = WriteId { version, tag: write.tag };
            keys.add_write(place, (id, found(&write.key)), &write.effect);
            undecided.writes.push(place);
        }
        drop(found);
        undecided.execution = Some(Execution::new(eid, contents));
    }

    /// Enters the vote on the transaction's execution, and prepares its reads if it may commit. Its writes need nothing
    /// more, because a replica votes for no read that misses an uncommitted write. Under validation its writes are
    /// withdrawn if it may not commit: nobody has read them, and they must not be in the way of others.
    pub(super) fn prepare(
        &mut self,
        version: Version,
        (vote, conflict): (Vote, Option<Conflict>),
        control: Control,
        keys: &mut Keys,
    ) {
        let execution = self.voted_execution(version);
        assert!(
            execution.vote.is_none(),
            "{version}: a second vote on execution {}",
            execution.eid
        );
        (execution.vote, execution.conflict) = (Some(vote), conflict);
        if !execution.is_prepared() {
            if control == Control::Validation {
                self.open
                    .get_mut(&version)
                    .expect("a transaction that was voted on")
                    .withdraw(version, keys);
            }
        } else {
            for read in &execution.contents.reads {
                let place = keys.place(&read.key);
                keys.at(place).1.prepare_read(version, &read.found);
                execution.reads.push(place);
            }
        }
    }

    /// Withdraws the transaction's uncommitted writes, which others may have read.
    pub(super) fn withdraw_writes(&mut self, version: Version, keys: &mut Keys) {
        if let Some(undecided) = self.open.get_mut(&version) {
            undecided.withdraw(version, keys);
        }
    }

    /// How many transactions its execution waits for, one after the other, if it waits for these writes.
    pub(super) fn depth(&self, contents: &Contents, unconfirmed: &Sources) -> u32 {
        let depth = |writer| {
            let execution = self.get(writer)?.execution.as_ref()?;
            (!execution.unconfirmed.is_empty()).then_some(execution.depth)
        };
        let of = |(_, write): (u32, WriteId)| depth(write.version).unwrap_or(0).saturating_add(1);
        among(contents, unconfirmed).map(of).max().unwrap_or(0)
    }

    /// Notes how many transactions it waits for.
    pub(super) fn note_depth(&mut self, version: Version, depth: u32) {
        self.voted_execution(version).depth = depth;
    }

    /// Notes which writes a provisional vote waits for. Returns whether this has to be logged. If there are many, it is logged each
    /// time that half of them are left, so that the log grows in proportion to their number.
    pub(super) fn wait_with(&mut self, version: Version, unconfirmed: Sources) -> bool {
        let execution = self.voted_execution(version);
        let (left, logged) = (unconfirmed.len(), execution.waits_logged);
        execution.unconfirmed = unconfirmed;
        let news = left < logged && (left <= FEW_WAITS || left <= logged / 2);
        if news {
            execution.waits_logged = left;
        }
        news
    }

    /// Notes where the log ends with the vote.
    pub(super) fn logged(&mut self, version: Version, logged_at: u64) {
        self.voted_execution(version).logged_at = logged_at;
    }

    /// Replaces a provisional vote by a final one. Returns where the log ends with the provisional one.
    pub(super) fn settle_vote(
        &mut self,
        version: Version,
        eid: u32,
        vote: Vote,
        conflict: Option<Conflict>,
        keys: &mut Keys,
    ) -> u64 {
        if vote == Vote::AbandonFinal
            && let Some(undecided) = self.get_mut(version)
        {
            undecided.unprepare(version, keys);
        }
        let execution = self.voted_execution(version);
        assert!(
            (execution.eid, execution.vote) == (eid, Some(Vote::Provisional)),
            "{version}: {vote:?} on execution {eid} follows {execution:?}"
        );
        (execution.vote, execution.conflict) = (Some(vote), conflict);
        execution.unconfirmed.clear();
        execution.logged_at
    }

    fn voted_execution(&mut self, version: Version) -> &mut Execution {
        let undecided = self.open.get_mut(&version).expect("a transaction to vote on");
        undecided.execution.as_mut().expect("an execution to vote on")
    }

    /// Restores a vote from the log.
    pub(super) fn replay_vote(
        &mut self,
        (version, eid, next_tag): (Version, u32, u32),
        vote: Vote,
        contents: Arc<Contents>,
        keys: &mut Keys,
        (setup, store): (&Setup, &dyn Store),
    ) {
        self.open(version, Timestamp::default(), setup);
        self.install(version, (eid, next_tag), contents.clone(), keys);
        self.prepare(version, (vote, None), setup.options.control, keys);
        if vote != Vote::Provisional {
            return;
        }
        self.replay_waits(version, eid, 0..contents.source_count() as u32);
        for read in &contents.reads {
            // A writer that was decided has its record in the log before this one or after it. If the vote waits for a
            // writer that is decided, it is looked at again at the start.
            let record = keys.load(&read.key, store);
            let writers = read.found.writes().map(|write| write.version);
            let unknown = writers.filter(|writer| {
                record.committed.get(*writer).is_none() && *writer != Version::INITIAL
            });
            for writer in unknown {
                let waiting = self.waiting.entry(writer).or_default();
                if !waiting.contains(&version) {
                    waiting.push(version);
                }
            }
        }
    }

    /// Restores which writes a provisional vote waits for.
    pub(super) fn replay_waits(
        &mut self,
        version: Version,
        eid: u32,
        unconfirmed: impl IntoIterator<Item = u32>,
    ) {
        let execution = self.get_mut(version).and_then(|undecided| undecided.execution.as_mut());
        // The vote may have been trimmed, as `Record::Confirmed` says.
        if let Some(execution) = execution.filter(|execution| execution.eid == eid) {
            execution.unconfirmed = unconfirmed.into_iter().collect();
            execution.waits_logged = execution.unconfirmed.len();
        }
    }

    /// Carries out a decision, and forgets everything that was kept while the transaction was open (000 §4.4, "Decide
    /// Garbage Collection"). Returns the transactions that waited for it.
    pub(super) fn carry_out(&mut self, version: Version, end: End, state: &mut State) -> Waiters {
        let State { keys, settled, progress, .. } = state;
        let undecided = self.open.remove(&version).unwrap_or_default();
        self.watch.remove(version);
        let prepared = undecided.execution.as_ref().filter(|execution| execution.is_prepared());
        // Usually the prepared execution is the one that commits.
        let commits =
            |execution: &&Execution| matches!(end, End::Committed(eid, _) if eid == execution.eid);
        let committed = prepared.filter(commits);
        let settled_below = progress.watermark();
        if let Some(execution) = prepared {
            for (place, read) in execution.reads.iter().zip(&execution.contents.reads) {
                keys.at(*place).1.unprepare_read(version);
                if committed.is_some() {
                    keys.commit_read(*place, read, version, settled_below);
                }
            }
        }
        for place in &undecided.reads {
            keys.at(*place).1.remove_read(version);
        }
        let nothing = Contents::default();
        let contents = match end {
            End::Committed(eid, contents) => {
                settled.committed(version, eid, contents);
                contents
            }
            End::Aborted => {
                settled.aborted(version);
                &nothing
            }
            End::Unknown => &nothing,
        };
        let installed = withdraw(version, &undecided.writes, contents, keys);
        for (i, write) in contents.writes.iter().enumerate() {
            let id = WriteId { version, tag: write.tag };
            let place = match installed {
                true => undecided.writes[i],
                false => keys.place(&write.key),
            };
            keys.commit_write(place, id, &write.effect);
        }
        for Overwritten { key, by, value, .. } in &contents.overwritten {
            keys.commit_result(key, *by, value);
        }
        if committed.is_none() {
            for read in &contents.reads {
                let place = keys.place(&read.key);
                keys.commit_read(place, read, version, settled_below);
            }
        }
        self.waiting.remove(&version).unwrap_or_default()
    }

    /// Everything below `watermark` is settled, so what is still open there is over: it has aborted, or this replica can't know how
    /// it ended. Returns the transactions that waited for others below the watermark.
    pub(super) fn pass(&mut self, watermark: Version, end: End, state: &mut State) -> Vec<Version> {
        let mut waiters = Vec::new();
        for version in self.below(watermark, |_| true) {
            waiters.extend(self.carry_out(version, end, state));
        }
        let later = self.waiting.split_off(&watermark);
        waiters.extend(core::mem::replace(&mut self.waiting, later).into_values().flatten());
        waiters
    }

    /// The transactions that wait for one below `version`.
    pub(super) fn waiters_below(&self, version: Version) -> Vec<Version> {
        self.waiting.range(..version).flat_map(|(_, waiters)| waiters).copied().collect()
    }

    /// The open transactions below `version` that are `wanted`.
    pub(super) fn below(
        &self,
        version: Version,
        wanted: impl Fn(&Undecided) -> bool,
    ) -> BTreeSet<Version> {
        self.watch.below(version, |version| self.get(*version).is_some_and(&wanted))
    }

    /// The first version from which on a prepared transaction has found nothing, in microseconds. Under validation deletes
    /// from there on are remembered until it is decided, so that this replica can say whether it has missed one.
    pub(super) fn found_nothing_from(&self, control: Control) -> Option<u64> {
        match control {
            Control::Ordering => None,
            Control::Validation => self.open.least(Undecided::found_nothing_from),
        }
    }

    /// The execution of `waiter` has read from `writer`, which is undecided.
    pub(super) fn wait_for(
        &mut self,
        writer: Version,
        waiter: Version,
        now: Timestamp,
        setup: &Setup,
    ) {
        let waiting = self.waiting.entry(writer).or_default();
        if waiting.is_empty() {
            self.watch.add(writer, now + patience_for(writer, setup));
        }
        if !waiting.contains(&waiter) {
            waiting.push(waiter);
        }
    }

    /// The replica has started: all transactions are given time from now on.
    pub(super) fn start_watch(&mut self, now: Timestamp, setup: &Setup) {
        let due = now + setup.settings.recovery_after();
        // Nobody else may know of the transactions that votes from before the restart wait for.
        for writer in self.waiting.keys() {
            self.watch.add(*writer, due);
        }
        for version in self.watch.postpone_all(due) {
            if let Some(undecided) = self.open.get_mut(version) {
                undecided.heard = now;
            }
        }
    }

    /// The next transaction that is due to be looked at by `now`, and since when it is.
    pub(super) fn next_due(&mut self, now: Timestamp) -> Option<(Timestamp, Version)> {
        self.watch.next_due(now)
    }

    /// Looks at a transaction that was due then.
    pub(super) fn look_at(
        &mut self,
        version: Version,
        due: Timestamp,
        state: &State,
        setup: &Setup,
    ) -> Look {
        let waited_for = self.waiting.contains_key(&version);
        let unsettled = waited_for && self.settlement(version, state).is_none();
        match self.open.get_mut(&version) {
            Some(undecided) => {
                self.watch.linger(version);
                if !(waited_for || undecided.may_commit() || undecided.is_superseded()) {
                    undecided.watched = false; // It is watched again after the next message about it.
                    return Look::Forget;
                }
                Look::Recover(undecided.heard + patience_for(version, setup))
            }
            None if unsettled => Look::Recover(due),
            None => Look::Settled(self.waiting.remove(&version).unwrap_or_default()),
        }
    }

    /// Looks at a transaction again, at this time.
    pub(super) fn look_again(&mut self, version: Version, due: Timestamp) {
        self.watch.add(version, due);
    }
}

#[cfg(test)]
impl Transactions {
    /// The transactions whose decisions others wait for.
    pub(super) fn waited_for(&self) -> Vec<Version> {
        self.waiting.keys().copied().collect()
    }
}

impl Undecided {
    /// Withdraws the transaction's uncommitted writes.
    fn withdraw(&mut self, version: Version, keys: &mut Keys) {
        for place in self.writes.drain(..) {
            keys.withdraw_write(place, version);
        }
    }

    /// Releases what the transaction's execution has prepared, if anything.
    fn unprepare(&mut self, version: Version, keys: &mut Keys) {
        let Some(execution) = &mut self.execution else { return };
        for place in execution.reads.drain(..) {
            keys.at(place).1.unprepare_read(version);
        }
    }
}

/// Those of an execution's sources that have these indices, which ascend.
fn among(contents: &Contents, indices: &Sources) -> impl Iterator<Item = (u32, WriteId)> {
    let end = indices.last().map_or(0, |last| last + 1);
    let mut indices = indices.iter().copied().peekable();
    (0..end).zip(contents.sources()).filter(move |(i, _)| indices.next_if_eq(i).is_some())
}

/// Withdraws the transaction's uncommitted writes in those `places` that `contents` does not write. Returns whether the
/// places are exactly those of the writes of `contents`, as is nearly always the case.
fn withdraw(version: Version, places: &Places, contents: &Contents, keys: &mut Keys) -> bool {
    let writes = &contents.writes;
    let mut pairs = places.iter().zip(writes);
    if places.len() == writes.len() && pairs.all(|(place, write)| *keys.at(*place).0 == write.key) {
        return true;
    }
    let written: BTreeSet<&Key> = writes.iter().map(|write| &write.key).collect();
    for place in places {
        if !written.contains(keys.at(*place).0) {
            keys.withdraw_write(*place, version);
        }
    }
    false
}

/// What an execution has found in a key, if it has read it.
fn found_in(contents: &Contents) -> impl Fn(&Key) -> Option<WriteId> {
    let few = contents.reads.len() <= FEW_READS || contents.writes.len() <= 1;
    let reads = contents.reads.iter();
    let index: BTreeMap<&Key, WriteId> = match few {
        true => BTreeMap::new(),
        false => reads.map(|read| (&read.key, read.found.latest())).collect(),
    };
    move |key| match few {
        true => {
            let read = contents.reads.iter().find(|read| read.key == *key);
            read.map(|read| read.found.latest())
        }
        false => index.get(key).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::morty::message::{Read, TaggedWrite};
    use serried_parts::Effect;

    #[test]
    fn what_was_found_is_the_same_for_few_reads_and_for_many() {
        for reads in [FEW_READS, 4 * FEW_READS] {
            let id = |i: usize| WriteId { version: Version::at(i as u64 + 1), tag: 1 };
            let key = |i: usize| Key::from((i as u64).to_le_bytes());
            let read = |i| Read { key: key(i), found: id(i).into() };
            let write = |i| TaggedWrite { key: key(i), tag: 1, effect: Effect::Put(None) };
            let contents = Contents {
                reads: (0..reads).map(read).collect(),
                writes: (0..2).map(write).collect(),
                ..Contents::default()
            };
            let found = found_in(&contents);
            assert!((0..reads).all(|i| found(&key(i)) == Some(id(i))));
            assert_eq!(found(&key(reads)), None);
        }
    }
}
