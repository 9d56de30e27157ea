//! Entries that are valid only under the leader that has proposed them.
//!
//! A leader that executes something and proposes the result relies on what it has proposed before. An entry that only a
//! minority has accepted before another leader began can be found by a third leader, and then follows what the second one
//! has proposed. Its result would be wrong there. So each leader begins with an entry of its own, and entries of earlier
//! leaders are removed behind that.

use core::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::message::{Ballot, Entry};

/// What is proposed by leaders that rely on what they have proposed before.
pub trait LedEntry:
    Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
    /// Whether this is the first entry of a leader.
    fn is_lead(&self) -> bool;

    /// Its approximate size in bytes.
    fn size(&self) -> usize;
}

/// An entry, and the ballot in which it was first proposed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Led<E> {
    /// The leader's ballot.
    pub by: Ballot,
    /// The entry.
    pub entry: E,
}

impl<E: LedEntry> Entry for Led<E> {
    fn size(&self) -> usize {
        self.entry.size()
    }
}

/// The last leader that has begun, as far as a replica has applied the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LastLead {
    /// The slot after that of its first entry.
    pub since: u64,
    /// Its ballot.
    pub ballot: Ballot,
}

impl LastLead {
    /// Removes entries that were proposed in a lower ballot than that of a leader which had begun before them. The first
    /// entry belongs to slot `first`. See [`super::StateMachine::revise`].
    pub fn revise<E: LedEntry>(&self, first: u64, entries: &mut [Option<Led<E>>]) {
        let mut ballot = Ballot::NONE;
        for (slot, entry) in (first..).zip(entries) {
            // The state may contain entries before that slot already.
            if slot >= self.since {
                ballot = ballot.max(self.ballot);
            }
            if entry.as_ref().is_some_and(|led| led.by < ballot) {
                *entry = None;
            }
            if let Some(led) = entry
                && led.entry.is_lead()
            {
                ballot = led.by;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is the first entry of a leader.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct First(bool);

    impl LedEntry for First {
        fn is_lead(&self) -> bool {
            self.0
        }

        fn size(&self) -> usize {
            0
        }
    }

    #[test]
    fn entries_of_an_earlier_leader_are_removed_behind_the_first_of_a_later_one() {
        let ballot = |round| Ballot { round, member: 0 };
        let led = |round, first| Some(Led { by: ballot(round), entry: First(first) });
        let (lead, other) = (|round| led(round, true), |round| led(round, false));
        let revised = |last: LastLead, first, mut entries: Vec<Option<Led<First>>>| {
            last.revise(first, &mut entries);
            entries.into_iter().map(|led| led.map(|led| led.by.round)).collect::<Vec<_>>()
        };
        // The slots contain proposals of several leaders. Each began where it had found nothing.
        let entries = vec![other(1), lead(2), other(2), other(1), lead(4), None, other(3), lead(3)];
        let rounds = [Some(1), Some(2), Some(2), None, Some(4), None, None, None];
        assert_eq!(revised(LastLead::default(), 7, entries), rounds);
        // A leader began, and its entries are stored. The log may contain less.
        let last = LastLead { since: 10, ballot: ballot(2) };
        assert_eq!(revised(last, 10, vec![other(1), other(2)]), [None, Some(2)]);
        let entries = vec![other(1), lead(2), other(1), other(3)];
        assert_eq!(revised(last, 8, entries), [Some(1), Some(2), None, Some(3)]);
    }
}
