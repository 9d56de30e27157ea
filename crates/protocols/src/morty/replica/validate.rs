//! The serializability validation (000 §4.2, "Prepare").

use serried_model::{Key, Version};
use serried_parts::{Effect, WriteId};
use smallvec::SmallVec;

use super::Cx;
use super::key_record::{Crowded, Missed, Notice};
use super::setup::Setup;
use super::state::State;
use super::transactions::{Sources, Transactions};
use crate::morty::message::{Conflict, Contents, Message, Reply, Settlement, Source, Vote};
use crate::morty::{Control, Mutation};

/// Reads that have missed a write, by their index among an execution's reads.
type Misses = SmallVec<[(usize, Missed); 2]>;

/// What a validation comes to.
pub(super) struct Validated {
    pub(super) vote: Vote,
    /// What is in the way.
    pub(super) conflict: Option<Conflict>,
    /// The writes of which it is not known that they are committed as they were read.
    pub(super) unconfirmed: Sources,
}

/// What executions are validated against.
pub(super) struct Validation<'a> {
    pub(super) transactions: &'a mut Transactions,
    pub(super) state: &'a mut State,
    pub(super) setup: &'a Setup,
    /// Another replica has found that the reads have missed nothing that has committed below this.
    pub(super) missed_nothing_below: Version,
}

impl Validation<'_> {
    /// A key in which an execution has read from a transaction that has aborted, if there is one: this replica has heard so, or
    /// the transaction is not among those that have committed below the watermark. A read that has found nothing has no writer.
    /// An abort is certain, whatever else the replica lacks, and this may be the last chance to vote on it: once the replica
    /// has copied what it lacks, or settled more, it has forgotten the abort. A provisional vote that stays one would leave
    /// the transaction undecided for good if its coordinator is gone, and with it every truncation.
    pub(super) fn aborted_read<'a>(&self, contents: &'a Contents) -> Option<&'a Key> {
        let aborted = Some(Settlement::Aborted);
        let has_aborted = |writer| {
            writer != Version::INITIAL
                && self.transactions.settlement(writer, self.state) == aborted
        };
        let read = contents
            .reads
            .iter()
            .find(|read| read.found.writes().any(|write| has_aborted(write.version)));
        read.map(|read| &read.key)
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
        writer < self.state.progress.whole_from()
            || reader < Version::at(self.state.progress.lacks_before())
    }

    /// The serializability validation (000 §4.2, "Prepare"). Returns `None` if the execution has to wait. Check 4, that
    /// nothing it depends on is truncated, needs no code here: a truncated transaction does not get here, and if a version
    /// that it read was forgotten, it has missed a later one.
    pub(super) fn validate(
        &mut self,
        version: Version,
        contents: &Contents,
        cx: &mut Cx,
    ) -> Option<Validated> {
        if self.setup.options.control == Control::Validation {
            return Some(self.validate_committed(version, contents, cx));
        }
        let checks = self.setup.options.checks;
        let mut misses = Misses::new();
        let Validated { mut vote, mut conflict, unconfirmed } =
            self.validate_sources(version, contents, None, Some(&mut misses), cx);
        if vote == Vote::AbandonFinal {
            return Some(Validated { vote, conflict, unconfirmed });
        }
        if vote == Vote::Provisional && !self.setup.options.provisional_votes {
            return None;
        }
        let settled = self.state.progress.watermark();
        // Check 1: its reads missed no write.
        for (read, missed) in misses.into_iter().filter(|_| checks.missed_by_reads) {
            let read = &contents.reads[read];
            let place = self.state.keys.loaded(&read.key, cx.store());
            let found = self.state.keys.settled_at(place).find_for(version, settled);
            let (key, instead_of) = (read.key.clone(), None);
            self.state.keys.add_notice(Notice { reader: version, key, found, instead_of });
            match missed {
                Missed::ForGood => vote = Vote::AbandonFinal,
                Missed::Perhaps | Missed::Forgotten if vote != Vote::AbandonFinal => {
                    vote = Vote::AbandonTentative;
                }
                Missed::Perhaps | Missed::Forgotten => continue,
            }
            conflict = Some(Conflict::over(read.key.clone()));
        }
        // Check 2: no other read missed one of its writes.
        let mut is_crowded = false;
        let undecided = self.transactions.get(version).expect("a transaction to vote on");
        let written = contents.writes.iter().zip(&undecided.writes);
        for (write, place) in written.filter(|_| checks.missed_by_others) {
            let over = |readers| Some(Conflict { readers, ..Conflict::over(write.key.clone()) });
            if let Effect::Modify(_) = write.effect {
                let crowds = self.setup.options.crowds;
                let Crowded { asks, is_full } =
                    self.state.keys.at(*place).1.join_crowd(settled, crowds);
                if asks {
                    let (key, clock_us) = (write.key.clone(), cx.clock().midpoint_us());
                    let crowded = Reply::Crowded { version, key, clock_us };
                    cx.send_before_durable(version.coordinator, Message::Reply(crowded));
                }
                if is_full && vote != Vote::AbandonFinal {
                    (vote, conflict) = (Vote::AbandonTentative, over(None));
                    is_crowded = true;
                }
                if self.setup.options.mutation.is(Mutation::MergesAcrossReads) {
                    continue;
                }
            }
            match self.state.keys.at(*place).1.missed_write_of(version, Control::Ordering) {
                Some((Missed::ForGood, reader)) => {
                    let (vote, conflict) = (Vote::AbandonFinal, over(Some(reader)));
                    return Some(Validated { vote, conflict, unconfirmed });
                }
                Some((Missed::Perhaps | Missed::Forgotten, reader))
                    if vote != Vote::AbandonFinal =>
                {
                    (vote, conflict) = (Vote::AbandonTentative, over(Some(reader)));
                }
                _ => {}
            }
        }
        if is_crowded {
            // Readers would find it, and name it.
            self.transactions.withdraw_writes(version, &mut self.state.keys);
        }
        Some(Validated { vote, conflict, unconfirmed })
    }

    /// Whether this replica can't know that the modifications which `found` names are all that there were above its value. It
    /// forgets what was overwritten before [`Progress::readable_from`], modifications included.
    ///
    /// [`Progress::readable_from`]: super::progress::Progress::readable_from
    fn may_have_forgotten(&self, found: &Source) -> bool {
        let first = found.modified.first();
        first.is_some_and(|first| first.version < self.state.progress.readable_from())
    }

    /// Whether what the reads have found is committed as it was read (check 3), and no writer has aborted; if `among` is given, only
    /// these of the sources are checked, and of those of a read none above the first few that are undecided. If a writer is
    /// undecided, the vote is provisional and the transaction waits for that writer. If a writer is forgotten, the vote is tentative,
    /// since another replica may remember that it has committed. Also adds the reads that have missed a write to `misses`.
    pub(super) fn validate_sources(
        &mut self,
        version: Version,
        contents: &Contents,
        among: Option<&Sources>,
        mut misses: Option<&mut Misses>,
        cx: &mut Cx,
    ) -> Validated {
        let check = self.setup.options.checks.dirty_reads;
        let at_once = self.setup.options.crowds.waited_for_at_once();
        let (mut conflict, mut unknown, mut wait) = (None, None, None);
        let mut unconfirmed = Sources::new();
        let (mut next, mut forgotten) = (0, false);
        for (i, read) in contents.reads.iter().enumerate() {
            let first = next;
            next += 1 + read.found.modified.len() as u32;
            let wanted = among.map(|among| {
                let below = |end| among.partition_point(|number| *number < end);
                &among[below(first)..below(next)]
            });
            let numbers: &mut dyn Iterator<Item = u32> = match wanted {
                Some([]) => continue,
                Some(wanted) => &mut wanted.iter().copied(),
                None => &mut (first..next),
            };
            let place = self.state.keys.loaded(&read.key, cx.store());
            let (mut invalid, mut undecided, mut waits_for) = (None, 0, None);
            if let Some(misses) = &mut misses {
                let record = self.state.keys.settled_at(place);
                if let Some(missed) = record.missed_by(version, &read.found) {
                    misses.push((i, missed));
                }
                if self.may_have_forgotten(&read.found) {
                    (forgotten, invalid) = (true, Some(read.found.write));
                    unknown.get_or_insert_with(|| read.key.clone());
                }
            }
            for number in numbers {
                if among.is_some() && undecided == at_once {
                    unconfirmed.push(number);
                    continue;
                }
                let write = read.found.write_at((number - first) as usize);
                let writer = write.version;
                let record = self.state.keys.at(place).1;
                let mut lacks = false;
                let valid = match record.committed.get(writer) {
                    // If a loaded value was deleted and the delete is forgotten, nothing is left below what rests on it.
                    _ if writer == Version::INITIAL => {
                        let first = read.found.modified.first().map_or(version, |it| it.version);
                        let is_left = record.committed.latest_before(first).is_some();
                        let valid = write != WriteId::LOADED || is_left;
                        // What was loaded may have been overwritten where this replica's copy comes from.
                        lacks = !valid && version < Version::at(self.state.progress.lacks_before());
                        valid
                    }
                    Some(committed) => committed.id == write || !check,
                    None => match self.transactions.settlement(writer, self.state) {
                        Some(Settlement::Aborted) => false,
                        Some(_) => match self.state.settled.tag(writer, &read.key) {
                            // It was overwritten, which may be no reason against a read that names later modifications.
                            Some(tag) if !read.found.modified.is_empty() => {
                                tag == write.tag || !check
                            }
                            _ => {
                                lacks = self.may_lack(writer, version);
                                !lacks && !check
                            }
                        },
                        None => {
                            undecided += 1;
                            unconfirmed.push(number);
                            // Aborts are forgotten below the horizon. A provisional vote has to end, so it waits for the
                            // earliest writer, which is the first to lie there. If there is no vote yet, one that knows
                            // less will do: when the latest of many writers is decided, most of the others are, too.
                            let is_many =
                                undecided > at_once && !self.setup.options.provisional_votes;
                            if waits_for.is_none() || is_many {
                                waits_for = Some(writer);
                            }
                            true
                        }
                    },
                };
                if lacks {
                    unconfirmed.push(number);
                }
                if !valid {
                    let first = if lacks { &mut unknown } else { &mut conflict };
                    first.get_or_insert_with(|| read.key.clone());
                    invalid.get_or_insert(write);
                }
            }
            wait = wait.into_iter().chain(waits_for).min();
            if invalid.is_some() {
                let settled = self.state.progress.watermark();
                let found = self.state.keys.settled_at(place).find_for(version, settled);
                let (key, instead_of) = (read.key.clone(), invalid);
                self.state.keys.add_notice(Notice { reader: version, key, found, instead_of });
            }
        }
        // If an earlier vote was provisional, and this writer aborts, that settles it, whatever else is unknown.
        if let Some(writer) = wait.filter(|_| conflict.is_none()) {
            self.transactions.wait_for(writer, version, cx.now(), self.setup);
        }
        let (vote, conflict) = match (conflict, unknown, wait) {
            (Some(key), ..) => (Vote::AbandonFinal, Some(Conflict::over(key))),
            (_, Some(key), _) => {
                (Vote::AbandonTentative, Some(Conflict { forgotten, ..Conflict::over(key) }))
            }
            (.., Some(_)) => (Vote::Provisional, None),
            _ => (Vote::Commit, None),
        };
        Validated { vote, conflict, unconfirmed }
    }
}
