//! The validation of transactions that have read what is committed (TAPIR).
//!
//! It judges conflicts exactly. A read says from which version on what it has found was there: the version of the write;
//! that of a delete; or, if there was nothing, the watermark of the replica that was asked, below which everything was
//! settled there. So two transactions conflict if a write of one lies between what the other one has found and the other
//! one, and all replicas that know of both judge that alike. Timestamp ordering can't do that: it reads what is not committed,
//! and "nothing" may stand for any delete.
//!
//! So a conflict with a committed transaction is certain, and the vote is AbandonFinal. But a replica does not judge what it
//! can't know, and votes AbandonTentative:
//! - It [may lack something](super::catch_up::CatchUp::may_lack_something).
//! - Nothing was found, as of a version below which this replica has forgotten deletes. One of them may lie above that
//!   version, and be remembered elsewhere. To vote to commit would be wrong, too: of the `f + 1` replicas that have voted for
//!   the delete, none may vote for a reader that has missed it.
//! - A value that was found is gone, and versions may be missing here that were overwritten after the reader.
//!
//! A recoverer may know of a replica which remembers all that is forgotten here, and which has found that the reads have
//! missed nothing of it. Then this replica judges only the rest, which it remembers.

use serried_model::{Key, Version};
use serried_parts::WriteId;
use smallvec::SmallVec;

use super::Cx;
use super::key_record::Missed;
use super::transactions::Sources;
use super::validate::{Validated, Validation};
use crate::morty::Control;
use crate::morty::message::{Conflict, Contents, Read, Vote};

/// What a validation has found so far.
struct Found {
    vote: Vote,
    conflict: Option<Conflict>,
}

impl Found {
    /// Adds a conflict over a key: at every version, or with reads up to this reader's.
    fn add(&mut self, missed: Missed, key: &Key, reader: Option<Version>) {
        self.vote = match (self.vote, missed) {
            (Vote::AbandonFinal, _) | (_, Missed::ForGood) => Vote::AbandonFinal,
            (_, Missed::Perhaps | Missed::Forgotten) => Vote::AbandonTentative,
        };
        let forgotten = missed == Missed::Forgotten;
        match &mut self.conflict {
            Some(conflict) => {
                conflict.readers = conflict.readers.and_then(|it| Some(it.max(reader?)));
                conflict.forgotten |= forgotten;
            }
            none => *none = Some(Conflict { key: key.clone(), readers: reader, forgotten }),
        }
    }
}

impl Validation<'_> {
    pub(super) fn validate_committed(
        &mut self,
        version: Version,
        contents: &Contents,
        cx: &mut Cx,
    ) -> Validated {
        let checks = self.setup.options.checks;
        let mut found = Found { vote: Vote::Commit, conflict: None };
        for read in contents.reads.iter().filter(|_| checks.missed_by_reads) {
            if let Some(missed) = self.missed_by(version, read, cx) {
                found.add(missed, &read.key, None);
            }
        }
        let undecided = self.transactions.get(version).expect("a transaction to vote on");
        let written = contents.writes.iter().zip(&undecided.writes);
        for (write, place) in written.filter(|_| checks.missed_by_others) {
            let record = self.state.keys.at(*place).1;
            if let Some((missed, reader)) = record.missed_write_of(version, Control::Validation) {
                found.add(missed, &write.key, Some(reader));
            }
        }
        let Found { vote, conflict } = found;
        Validated { vote, conflict, unconfirmed: Sources::new() }
    }

    /// Whether one of the reads has missed a write.
    pub(super) fn missed_by_reads(
        &mut self,
        version: Version,
        contents: &Contents,
        cx: &mut Cx,
    ) -> Option<Missed> {
        let reads = contents.reads.iter();
        let missed: SmallVec<[Missed; 2]> =
            reads.filter_map(|read| self.missed_by(version, read, cx)).collect();
        match missed.contains(&Missed::ForGood) {
            true => Some(Missed::ForGood),
            false => missed.first().copied(),
        }
    }

    fn missed_by(&mut self, reader: Version, read: &Read, cx: &mut Cx) -> Option<Missed> {
        let record = self.state.keys.load(&read.key, cx.store());
        let missed = record.missed_after(reader, read.found.write.version);
        missed.or_else(|| match self.is_gone(reader, read, cx) {
            Some(Missed::Forgotten) if self.need_not_remember() => None,
            missed => missed,
        })
    }

    /// Whether another replica has settled everything of which this one may have forgotten a part, and has found that the
    /// reads have missed nothing there.
    fn need_not_remember(&self) -> bool {
        let progress = &self.state.progress;
        let forgotten = progress.whole_from().max(Version::at(progress.lacks_before()));
        forgotten <= self.missed_nothing_below
    }

    /// Whether a read that has missed nothing here may have missed a delete that is forgotten. If a value was found that is
    /// not here, although its transaction is settled, it was deleted.
    fn is_gone(&mut self, reader: Version, read: &Read, cx: &mut Cx) -> Option<Missed> {
        let (found, progress) = (read.found.write, &self.state.progress);
        let lacks_before = Version::at(progress.lacks_before());
        if found.tag == WriteId::INITIAL.tag {
            let forgotten = progress.whole_from().max(lacks_before);
            return (found.version < forgotten).then_some(Missed::Forgotten);
        }
        let record = self.state.keys.load(&read.key, cx.store());
        let is_here = match record.committed.get(found.version) {
            Some(committed) => committed.id == found,
            // If it is not settled here, this replica does not know yet that it has committed. Or it copies what has been
            // settled elsewhere, and a delete of what was found is a part of that.
            None => {
                let is_settled = self.transactions.settlement(found.version, self.state).is_some();
                if !is_settled && found.version < self.state.progress.whole_from() {
                    return Some(Missed::Forgotten);
                }
                !is_settled
            }
        };
        match is_here {
            true => None,
            false if reader < lacks_before => Some(Missed::Forgotten),
            false => Some(Missed::ForGood),
        }
    }
}
