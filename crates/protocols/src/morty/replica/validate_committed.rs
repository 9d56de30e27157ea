//! The validation of transactions that have read what is committed (TAPIR).
//!
//! It judges conflicts exactly. A read says from which version on what it has found was there: the version of the write;
//! that of a delete; or, if there was nothing, the watermark of the replica that was asked, below which everything was
//! settled there. So two transactions conflict if a write lies between what the other one has found and the other one, and
//! every replica judges that alike, whichever deletes it has forgotten. Timestamp ordering can't do that: it reads what is
//! not committed, and "nothing" may stand for any delete.
//!
//! So a conflict with a committed transaction is certain, and the vote is AbandonFinal. Only a replica that
//! [may lack something](super::catch_up::CatchUp::may_lack_something) is not certain of anything.

use serried_model::{Key, Version};
use serried_parts::WriteId;

use super::Cx;
use super::key_record::Missed;
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
            (_, Missed::Perhaps) => Vote::AbandonTentative,
        };
        match &mut self.conflict {
            Some(conflict) => {
                conflict.readers = conflict.readers.and_then(|it| Some(it.max(reader?)))
            }
            none => *none = Some(Conflict { key: key.clone(), readers: reader }),
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
            let record = self.state.keys.load(&read.key, cx.store());
            let missed = record.missed_after(version, read.write.version);
            let missed = missed.or_else(|| self.is_gone(read, cx).then_some(Missed::ForGood));
            if let Some(missed) = missed {
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
        Validated { vote, conflict, unconfirmed: super::transactions::Reads::new() }
    }

    /// Whether a value that was read, and that nothing has overwritten, is not here although its transaction is settled:
    /// it was deleted, and the delete is forgotten.
    fn is_gone(&mut self, read: &Read, cx: &mut Cx) -> bool {
        let found = read.write;
        if found.tag == WriteId::INITIAL.tag {
            return false; // It has found nothing.
        }
        let record = self.state.keys.load(&read.key, cx.store());
        match record.committed.get(found.version) {
            Some(committed) => committed.id != found,
            // If it is not settled here, this replica does not know yet that it has committed.
            None => self.transactions.settlement(found.version, self.state).is_some(),
        }
    }
}
