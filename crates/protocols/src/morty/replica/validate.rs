//! Votes (000 §4.2, "Prepare").

use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::Store;
use serried_model::{Key, Version};
use serried_parts::WriteId;
use smallvec::SmallVec;

use super::key_record::{Missed, Notice};
use super::{Cx, Execution, Places, Replica};
use crate::morty::Mutation;
use crate::morty::message::{
    Accepted, Contents, Message, Proposal, Record, Refusal, Settlement, View, Vote,
};

/// Up to so many reads are searched one by one.
const FEW_READS: usize = 16;

/// Reads that have missed a write, by their index among an execution's reads.
type Misses = SmallVec<[(usize, Missed); 2]>;

/// Some of an execution's reads, by their index.
pub(super) type Reads = SmallVec<[u32; 4]>;

/// What a validation comes to.
struct Validated {
    vote: Vote,
    /// The key that is in the way.
    conflict: Option<Key>,
    /// The reads of which it is not known that they are committed as they were read.
    unconfirmed: Reads,
}

/// What an execution has found in a key, if it has read it.
fn found_in(contents: &Contents) -> impl Fn(&Key) -> Option<WriteId> {
    let few = contents.reads.len() <= FEW_READS || contents.writes.len() <= 1;
    let reads = contents.reads.iter();
    let index: BTreeMap<&Key, WriteId> = match few {
        true => BTreeMap::new(),
        false => reads.map(|read| (&read.key, read.write)).collect(),
    };
    move |key| match few {
        true => contents.reads.iter().find(|read| read.key == *key).map(|read| read.write),
        false => index.get(key).copied(),
    }
}

impl Replica {
    pub(super) fn on_prepare(
        &mut self,
        version: Version,
        eid: u32,
        next_tag: u32,
        contents: Arc<Contents>,
        cx: &mut Cx,
    ) {
        if !self.admits(version, true, cx) {
            return;
        }
        if !self.is_sound(version, self.id.partition(), &contents) {
            let what = format_args!("a Prepare of {version} with what no transaction can do");
            return self.reject(version.coordinator, what, cx);
        }
        let undecided = self.open(version, cx.now());
        undecided.heard = cx.now();
        if eid < undecided.abandoned_before {
            return; // Overtaken by what abandoned it.
        }
        if let Some(execution) = &undecided.execution
            && execution.eid == eid
        {
            // Repeated.
            if let Some(vote) = execution.vote {
                let conflict = execution.conflict.clone();
                let reply = Message::PrepareReply { version, eid, vote, conflict };
                cx.send(version.coordinator, reply);
            }
            self.confirm(version, cx);
            return;
        }
        if undecided.is_superseded() && !self.options.mutation.is(Mutation::LatePrepare) {
            self.refuse(version, Refusal::Superseded, cx);
            return;
        }
        cx.charge(contents.reads.len() + contents.writes.len());
        self.install(version, eid, next_tag, &contents);
        super::observe_writes(version, &contents, cx);
        let execution = Execution::new(eid, contents);
        self.transactions.get_or_default(&version).execution = Some(execution);
        self.vote(version, cx);
    }

    /// Validates the transaction's execution, and votes unless it has to wait.
    fn vote(&mut self, version: Version, cx: &mut Cx) {
        let undecided = self.transactions.get(&version).expect("a transaction to vote on");
        let next_tag = undecided.next_tag;
        let execution = undecided.execution.as_ref().expect("an execution to vote on");
        let (eid, contents) = (execution.eid, execution.contents.clone());
        let validated = self.validate(version, &contents, cx);
        self.notify(cx);
        let Some(Validated { vote, conflict, unconfirmed }) = validated else {
            return self.log_abandonment(version, eid, cx);
        };
        let vote = match vote {
            Vote::AbandonFinal if self.may_lack_something() => Vote::AbandonTentative,
            vote => vote,
        };
        self.prepare(version, vote, conflict.clone());
        let some_are_confirmed = unconfirmed.len() < contents.reads.len();
        self.append(Record::Voted { version, eid, next_tag, vote, contents }, cx);
        if vote == Vote::Provisional {
            self.wait_with(version, eid, unconfirmed, some_are_confirmed, cx);
        }
        self.send_vote(version, Message::PrepareReply { version, eid, vote, conflict }, cx);
    }

    /// Whether this replica is catching up, so that it may hold only a part of what others have settled. A version that it
    /// can't find may have been overwritten or deleted after somebody had read it and committed. So it does not vote
    /// AbandonFinal. If it is asked again later, it may.
    fn may_lack_something(&self) -> bool {
        self.behind || self.catch_up.is_some()
    }

    /// Whether an execution has read from a transaction that has aborted: this replica has heard so, or the transaction is
    /// not among those that have committed below the watermark. A read that has found nothing has no writer. An abort is
    /// certain, whatever else the replica lacks, and this may be the last chance to vote on it: once the replica has copied
    /// what it lacks, or settled more, it has forgotten who aborted. A provisional vote that stays one would leave the
    /// transaction undecided for good if its coordinator is gone, and with it every truncation.
    fn reads_aborted(&self, contents: &Contents) -> bool {
        let aborted = Some(Settlement::Aborted);
        let mut writers = contents.reads.iter().map(|read| read.write.version);
        writers.any(|writer| writer != Version::INITIAL && self.settlement(writer) == aborted)
    }

    /// Whether this replica may lack a write of `writer` that `reader` has found, though `writer` has committed with it. Then
    /// a replica that has it votes to commit the reader.
    /// - It may have forgotten a delete from below its horizon, or have copied a store that lacked the delete.
    /// - It may have fetched the commit from a peer that had forgotten this write, because it was overwritten. What the peer
    ///   has forgotten was overwritten below [`Progress::lacks_before`]. So a reader above that has missed what overwrote
    ///   it. A reader below may have committed, and is below the peer's watermark, so it ends here too without this vote.
    ///
    /// [`Progress::lacks_before`]: super::progress::Progress::lacks_before
    fn may_lack(&self, writer: Version, reader: Version) -> bool {
        writer < self.progress.whole_from() || reader < Version::at(self.progress.lacks_before())
    }

    /// The execution has to wait, and there is no vote to log. What earlier executions had prepared is released already, so
    /// the log has to say that they are abandoned.
    fn log_abandonment(&mut self, version: Version, eid: u32, cx: &mut Cx) {
        if let Some(before) = eid.checked_sub(1) {
            let (view, decision) = (View::OWN, Proposal::Abandon);
            let accepted = Accepted { view, eid: before, decision };
            self.append(Record::Accepted { version, accepted }, cx);
        }
    }

    /// Sends a vote, once it is durable.
    fn send_vote(&self, version: Version, reply: Message, cx: &mut Cx) {
        if self.options.mutation.is(Mutation::VotesBeforeDurable) {
            cx.send_before_durable(version.coordinator, reply);
        } else {
            cx.send(version.coordinator, reply);
        }
    }

    /// Abandons the executions before `eid`, and brings the transaction's uncommitted writes in line
    /// with what `eid` writes.
    pub(super) fn install(
        &mut self,
        version: Version,
        eid: u32,
        next_tag: u32,
        contents: &Contents,
    ) {
        self.unprepare(version);
        let undecided = self.transactions.get_or_default(&version);
        undecided.abandoned_before = eid;
        undecided.next_tag = next_tag;
        undecided.execution = None;
        let old = core::mem::take(&mut undecided.writes);
        self.withdraw(version, &old, contents);
        let found = found_in(contents);
        let mut places = Places::new();
        for write in &contents.writes {
            let place = self.keys.place(&write.key);
            let id = WriteId { version, tag: write.tag };
            let written = (id, found(&write.key));
            let (key, record) = self.keys.at(place);
            record.add_write(key, written, &write.value, &mut self.notices);
            places.push(place);
        }
        self.transactions.get_or_default(&version).writes = places;
    }

    /// Enters the vote on the transaction's execution, and prepares its reads if it may commit. Its writes need nothing
    /// more, because a replica votes for no read that misses an uncommitted write.
    pub(super) fn prepare(&mut self, version: Version, vote: Vote, conflict: Option<Key>) {
        let undecided = self.transactions.get_mut(&version).expect("a transaction to vote on");
        let execution = undecided.execution.as_mut().expect("an execution to vote on");
        assert!(
            execution.vote.is_none(),
            "{version}: a second vote on execution {}",
            execution.eid
        );
        (execution.vote, execution.conflict) = (Some(vote), conflict);
        if execution.is_prepared() {
            for read in &execution.contents.reads {
                let place = self.keys.place(&read.key);
                self.keys.at(place).1.prepare_read(version, read.write.version);
                execution.reads.push(place);
            }
        }
    }

    /// Releases what the transaction's execution has prepared, if anything.
    pub(super) fn unprepare(&mut self, version: Version) {
        let Some(undecided) = self.transactions.get_mut(&version) else { return };
        let Some(execution) = &mut undecided.execution else { return };
        for place in execution.reads.drain(..) {
            self.keys.at(place).1.unprepare_read(version);
        }
    }

    /// The serializability validation (000 §4.2, "Prepare"). Returns `None` if the execution has to wait. Check 4, that
    /// nothing it depends on is truncated, needs no code here: a truncated transaction does not get here, and if a version
    /// that it read was forgotten, it has missed a later one.
    fn validate(
        &mut self,
        version: Version,
        contents: &Contents,
        cx: &mut Cx,
    ) -> Option<Validated> {
        let checks = self.options.checks;
        let mut misses = Misses::new();
        let all = 0..contents.reads.len() as u32;
        let Validated { mut vote, mut conflict, unconfirmed } =
            self.validate_sources(version, contents, all, Some(&mut misses), cx);
        if vote == Vote::AbandonFinal {
            return Some(Validated { vote, conflict, unconfirmed });
        }
        if vote == Vote::Provisional && !self.options.provisional_votes {
            return None;
        }
        // Check 1: its reads missed no write.
        for (read, missed) in misses.into_iter().filter(|_| checks.missed_by_reads) {
            let read = &contents.reads[read];
            let (write, value) = self.keys.load(&read.key, cx.store()).find(version);
            let key = read.key.clone();
            self.notices.push(Notice { reader: version, key, write, value, instead_of: None });
            match missed {
                Missed::ForGood => vote = Vote::AbandonFinal,
                Missed::Perhaps if vote != Vote::AbandonFinal => vote = Vote::AbandonTentative,
                Missed::Perhaps => continue,
            }
            conflict = Some(read.key.clone());
        }
        // Check 2: no other read missed one of its writes.
        let undecided = self.transactions.get(&version).expect("a transaction to vote on");
        let written = contents.writes.iter().zip(&undecided.writes);
        for (write, place) in written.filter(|_| checks.missed_by_others) {
            match self.keys.at(*place).1.missed_write_of(version) {
                Some(Missed::ForGood) => {
                    let (vote, conflict) = (Vote::AbandonFinal, Some(write.key.clone()));
                    return Some(Validated { vote, conflict, unconfirmed });
                }
                Some(Missed::Perhaps) if vote != Vote::AbandonFinal => {
                    (vote, conflict) = (Vote::AbandonTentative, Some(write.key.clone()));
                }
                _ => {}
            }
        }
        Some(Validated { vote, conflict, unconfirmed })
    }

    /// Whether what the reads with these indices have found is committed as it was read (check 3), and no writer has aborted.
    /// If a writer is undecided, the vote is provisional and the transaction waits for that writer. If a writer is
    /// forgotten, the vote is tentative, since another replica may remember that it has committed. Also adds the reads that
    /// have missed a write to `misses`.
    fn validate_sources(
        &mut self,
        version: Version,
        contents: &Contents,
        reads: impl IntoIterator<Item = u32>,
        mut misses: Option<&mut Misses>,
        cx: &mut Cx,
    ) -> Validated {
        let check = self.options.checks.dirty_reads;
        let (mut conflict, mut unknown, mut wait) = (None, None, None);
        let mut unconfirmed = Reads::new();
        for number in reads {
            let (i, read) = (number as usize, &contents.reads[number as usize]);
            let writer = read.write.version;
            let record = self.keys.load(&read.key, cx.store());
            if let Some(misses) = &mut misses {
                misses.extend(record.missed_by(version, read.write).map(|missed| (i, missed)));
            }
            let mut forgotten = false;
            let valid = match record.committed.get(writer) {
                // If a loaded value was deleted and the delete is forgotten, nothing is left below the reader.
                _ if writer == Version::INITIAL => {
                    let is_left = record.committed.latest_before(version).is_some();
                    let valid = read.write != WriteId::LOADED || is_left;
                    if !valid && version < Version::at(self.progress.lacks_before()) {
                        // What was loaded may have been overwritten where this replica's copy comes from.
                        unconfirmed.push(number);
                        forgotten = true;
                    }
                    valid
                }
                Some(committed) => committed.id == read.write || !check,
                None => match self.settlement(writer) {
                    Some(Settlement::Aborted) => false,
                    Some(_) if self.may_lack(writer, version) => {
                        unconfirmed.push(number);
                        forgotten = true;
                        false
                    }
                    Some(_) => !check,
                    None => {
                        unconfirmed.push(number);
                        // Aborts are forgotten below the horizon. The earliest writer is the first to lie there.
                        wait = Some(wait.map_or(writer, |other: Version| other.min(writer)));
                        true
                    }
                },
            };
            if !valid {
                let first = if forgotten { &mut unknown } else { &mut conflict };
                first.get_or_insert_with(|| read.key.clone());
                let (write, value) = self.keys.load(&read.key, cx.store()).find(version);
                let (key, instead_of) = (read.key.clone(), Some(read.write));
                self.notices.push(Notice { reader: version, key, write, value, instead_of });
            }
        }
        // If an earlier vote was provisional, and this writer aborts, that settles it, whatever else is unknown.
        if let Some(writer) = wait.filter(|_| conflict.is_none()) {
            self.wait_for(writer, version, cx);
        }
        let (vote, conflict) = match (conflict, unknown, wait) {
            (Some(key), ..) => (Vote::AbandonFinal, Some(key)),
            (_, Some(key), _) => (Vote::AbandonTentative, Some(key)),
            (.., Some(_)) => (Vote::Provisional, None),
            _ => (Vote::Commit, None),
        };
        Validated { vote, conflict, unconfirmed }
    }

    /// Notes which reads a provisional vote waits for. What was committed as it was read remains so, even when the replica
    /// has forgotten it: a delete, for instance, that everybody has seen. Without this note nobody might be able to say at
    /// the end that the transaction may commit, or that it may not. `log` says whether to log it.
    fn wait_with(&mut self, version: Version, eid: u32, reads: Reads, log: bool, cx: &mut Cx) {
        let undecided = self.transactions.get_mut(&version).expect("a transaction voted on");
        let execution = undecided.execution.as_mut().expect("an execution voted on");
        let old = core::mem::replace(&mut execution.unconfirmed, reads.clone());
        if log && old != reads {
            self.append(Record::Waits { version, eid, reads: reads.to_vec() }, cx);
        }
    }

    /// A transaction that the execution has read from is decided. If it was the last one, this replica sends its final
    /// vote after a provisional one, or votes now if it had waited.
    pub(super) fn confirm(&mut self, version: Version, cx: &mut Cx) {
        let Some(undecided) = self.transactions.get(&version) else { return };
        let Some(execution) = &undecided.execution else { return };
        match execution.vote {
            // A recoverer may have asked about the transaction while it waited. A vote would come too late.
            None if undecided.is_superseded() => return,
            None => return self.vote(version, cx),
            Some(Vote::Provisional) => {}
            Some(_) => return,
        }
        let (eid, contents) = (execution.eid, execution.contents.clone());
        let waits_for = execution.unconfirmed.clone();
        let Validated { vote, conflict, unconfirmed } =
            self.validate_sources(version, &contents, waits_for, None, cx);
        self.notify(cx);
        match vote {
            // The coordinator may have counted the provisional vote already, with another replica's vote to commit.
            Vote::Provisional | Vote::AbandonTentative => {
                return self.wait_with(version, eid, unconfirmed, true, cx);
            }
            Vote::AbandonFinal if self.may_lack_something() && !self.reads_aborted(&contents) => {
                return;
            }
            _ => {}
        }
        self.settle_vote(version, eid, vote, conflict.clone());
        self.append(Record::Confirmed { version, eid, vote }, cx);
        self.send_vote(version, Message::PrepareReply { version, eid, vote, conflict }, cx);
    }

    /// Replaces a provisional vote by a final one.
    pub(super) fn settle_vote(
        &mut self,
        version: Version,
        eid: u32,
        vote: Vote,
        conflict: Option<Key>,
    ) {
        if vote == Vote::AbandonFinal {
            self.unprepare(version);
        }
        let undecided = self.transactions.get_mut(&version).expect("a transaction voted on");
        let execution = undecided.execution.as_mut().expect("an execution voted on");
        assert!(
            (execution.eid, execution.vote) == (eid, Some(Vote::Provisional)),
            "{version}: {vote:?} on execution {eid} follows {execution:?}"
        );
        (execution.vote, execution.conflict) = (Some(vote), conflict);
        execution.unconfirmed.clear();
    }

    /// Restores a vote from the log.
    pub(super) fn replay_vote(
        &mut self,
        (version, eid, next_tag): (Version, u32, u32),
        vote: Vote,
        contents: Arc<Contents>,
        store: &dyn Store,
    ) {
        self.open(version, Default::default());
        self.install(version, eid, next_tag, &contents);
        let execution = Execution::new(eid, contents.clone());
        self.transactions.get_or_default(&version).execution = Some(execution);
        self.prepare(version, vote, None);
        if vote != Vote::Provisional {
            return;
        }
        self.replay_waits(version, eid, 0..contents.reads.len() as u32);
        for read in &contents.reads {
            // A writer that was decided has its record in the log before this one or after it. If the vote waits for a
            // writer that is decided, it is looked at again at the start.
            let writer = read.write.version;
            let record = self.keys.load(&read.key, store);
            if record.committed.get(writer).is_none() && writer != Version::INITIAL {
                let waiting = self.waiting.entry(writer).or_default();
                if !waiting.contains(&version) {
                    waiting.push(version);
                }
            }
        }
    }

    /// Restores which reads a provisional vote waits for.
    pub(super) fn replay_waits(
        &mut self,
        version: Version,
        eid: u32,
        reads: impl IntoIterator<Item = u32>,
    ) {
        let undecided = self.transactions.get_mut(&version);
        let execution = undecided.and_then(|undecided| undecided.execution.as_mut());
        // The vote may have been trimmed, as [`Record::Confirmed`] says.
        if let Some(execution) = execution.filter(|execution| execution.eid == eid) {
            execution.unconfirmed = reads.into_iter().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::morty::message::{Read, TaggedWrite};

    #[test]
    fn what_was_found_is_told_of_few_reads_as_of_many() {
        for reads in [FEW_READS, 4 * FEW_READS] {
            let id = |i: usize| WriteId { version: Version::at(i as u64 + 1), tag: 1 };
            let key = |i: usize| Key::from((i as u64).to_le_bytes());
            let read = |i| Read { key: key(i), write: id(i) };
            let write = |i| TaggedWrite { key: key(i), tag: 1, value: None };
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
