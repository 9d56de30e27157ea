//! The entries of a leader, which rely on each other.
//!
//! A leader executes pieces, and proposes the rows that result from them: on top of what it has proposed before, whether that
//! is chosen or not. It proposes its first entry, [`Entry::Lead`], and the others when everything up to that is chosen. So an
//! entry is valid only behind all entries that the same leader has proposed before it.
//!
//! If a leader fails, the next one may find some of its entries and not others: a replica accepts an entry although it lacks
//! those before it, and messages are lost. What follows the gap was not chosen, because entries are chosen in their order.
//! But it would be, with rows that pieces have written of which nothing is known. So entries are numbered, and what is
//! found behind a gap is removed. What is found behind the first entry of a later leader is removed too.

use serde::{Deserialize, Serialize};

use super::message::Entry;
use crate::frameworks::replicated_log::{self, Ballot};

/// An entry, and the ballot in which it was first proposed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Led {
    /// The leader's ballot.
    pub by: Ballot,
    /// Counts the entries of this leader, from 0.
    pub number: u64,
    /// The entry.
    pub entry: Entry,
}

impl replicated_log::Entry for Led {
    fn size(&self) -> usize {
        self.entry.size()
    }
}

/// The last entry, as far as a replica has applied the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Last {
    /// The slot after that of the entry.
    pub(super) since: u64,
    /// The ballot of its leader.
    by: Ballot,
    /// The number of this leader's next entry.
    next: u64,
}

impl Last {
    /// The entry of a slot.
    pub(super) fn new(slot: u64, led: &Led) -> Last {
        Last { since: slot + 1, by: led.by, next: led.number + 1 }
    }

    /// Removes entries that do not follow all entries on which they rely. The first belongs to slot `first`. See
    /// [`replicated_log::StateMachine::revise`].
    pub(super) fn revise(self, first: u64, entries: &mut [Option<Led>]) {
        let Last { since, mut by, mut next } = self;
        for (slot, entry) in (first..).zip(entries) {
            // The state may contain entries before that slot already. They are chosen.
            let Some(led) = entry.as_ref().filter(|_| slot >= since) else { continue };
            let follows = match led.entry {
                Entry::Lead => led.by > by,
                _ => led.by == by && led.number == next,
            };
            if follows {
                (by, next) = (led.by, led.number + 1);
            } else {
                *entry = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(round: u64, number: u64) -> Option<Led> {
        let entry = if number == 0 { Entry::Lead } else { Entry::End(Vec::new()) };
        Some(Led { by: Ballot { round, member: 0 }, number, entry })
    }

    fn revised(last: Last, first: u64, mut entries: Vec<Option<Led>>) -> Vec<Option<(u64, u64)>> {
        last.revise(first, &mut entries);
        entries.into_iter().map(|led| led.map(|led| (led.by.round, led.number))).collect()
    }

    #[test]
    fn entries_of_an_earlier_leader_are_removed_behind_the_first_of_a_later_one() {
        // The slots contain proposals of several leaders. Each began where it had found nothing.
        let found = vec![entry(1, 0), entry(2, 0), entry(2, 1), entry(1, 2), entry(4, 0), None];
        let kept = [Some((1, 0)), Some((2, 0)), Some((2, 1)), None, Some((4, 0)), None];
        assert_eq!(revised(Last::default(), 7, found), kept);
        let found = vec![entry(4, 0), entry(3, 0), entry(3, 1), entry(4, 1)];
        assert_eq!(revised(Last::default(), 7, found), [Some((4, 0)), None, None, Some((4, 1))]);
    }

    #[test]
    fn entries_behind_a_gap_are_removed() {
        let found =
            vec![entry(1, 0), entry(1, 1), None, entry(1, 2), None, entry(1, 4), entry(1, 5)];
        let kept = [Some((1, 0)), Some((1, 1)), None, Some((1, 2)), None, None, None];
        assert_eq!(revised(Last::default(), 7, found), kept, "an empty slot is no gap");
        // A later leader begins anew.
        let found = vec![entry(1, 0), entry(1, 2), entry(2, 0), entry(2, 1), entry(1, 1)];
        let kept = [Some((1, 0)), None, Some((2, 0)), Some((2, 1)), None];
        assert_eq!(revised(Last::default(), 7, found), kept);
    }

    #[test]
    fn entries_follow_those_that_were_applied() {
        let last = Last::new(9, &entry(2, 3).unwrap());
        assert_eq!(revised(last, 10, vec![entry(1, 4), entry(2, 4)]), [None, Some((2, 4))]);
        assert_eq!(revised(last, 10, vec![entry(2, 5), entry(2, 4)]), [None, Some((2, 4))]);
        // The state contains more than this replica's log says.
        let found = vec![entry(1, 7), entry(2, 3), entry(2, 4), entry(2, 3)];
        assert_eq!(revised(last, 8, found), [Some((1, 7)), Some((2, 3)), Some((2, 4)), None]);
    }
}
