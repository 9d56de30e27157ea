//! Entries that are valid only behind all that their leader has proposed before them.
//!
//! A leader that executes something and proposes the result relies on what it has proposed before, whether that is chosen or
//! not. It proposes its first entry, and the others when everything up to that is chosen. So each of its entries follows all
//! earlier ones of its own, and nothing of another leader comes in between.
//!
//! What a later leader finds may be otherwise, in two ways.
//! - *An entry that was superseded.* Only a minority has accepted it before another leader began, and a third leader finds it. It
//!   then follows what the second one has proposed.
//! - *An entry behind a gap.* A replica accepts an entry although it lacks those before it, and messages are lost. If the leader
//!   fails, the next one may find some of its entries and not the earlier ones.
//!
//! Neither was chosen, because entries are chosen in their order. But they would be, with results of something that never
//! was. So the log numbers the entries of a leader ([`ReplicatedLog::propose_led`]), and a machine removes those that do not
//! follow their predecessors ([`Last::revise`]).

use serde::{Deserialize, Serialize};
use serried_actor::Context;

use super::host::Host;
use super::log::{ReplicatedLog, Role};
use super::message::{Ballot, Entry};

/// An entry of a leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Led<E> {
    /// The ballot in which it was first proposed.
    pub by: Ballot,
    /// Counts the entries of this leader, from 0.
    pub number: u64,
    /// The entry.
    pub entry: E,
}

impl<E: Entry> Entry for Led<E> {
    fn size(&self) -> usize {
        self.entry.size()
    }
}

impl<E: Entry> ReplicatedLog<Led<E>> {
    /// Proposes an entry, and returns its slot. Returns `None` if this replica does not lead, hands over, or has no room. The
    /// leader must not propose its second entry before the first is chosen.
    pub fn propose_led<H: Host<Entry = Led<E>>>(
        &mut self,
        entry: E,
        cx: &mut Context<'_, H>,
    ) -> Option<u64> {
        let by = self.leads()?;
        let Role::Leader(leader) = &mut self.role else { return None };
        let number = leader.proposed();
        let led = Led { by, number, entry };
        leader.propose(Some(led), &self.acceptor, &self.members, cx)
    }
}

/// The last entry, as far as a replica has applied the log. It belongs to the state of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Last {
    /// The slot after that of the entry.
    since: u64,
    /// The ballot of its leader.
    by: Ballot,
    /// The number of this leader's next entry.
    next: u64,
}

impl Last {
    /// Applies the entry of a slot. Returns false if it was applied before.
    pub fn apply<E>(&mut self, slot: u64, led: &Led<E>) -> bool {
        let is_new = self.since <= slot;
        if is_new {
            *self = Last { since: slot + 1, by: led.by, next: led.number + 1 };
        }
        is_new
    }

    /// Whether it is as of a later slot than the other one.
    pub fn is_after(self, other: Last) -> bool {
        self.since > other.since
    }

    /// Removes entries that do not follow all those on which they rely. The first belongs to slot `first`. See
    /// [`super::StateMachine::revise`].
    pub fn revise<E>(self, first: u64, entries: &mut [Option<Led<E>>]) {
        let Last { since, mut by, mut next } = self;
        for (slot, entry) in (first..).zip(entries) {
            // The state may contain entries before that slot already. They are chosen.
            let Some(led) = entry.as_ref().filter(|_| slot >= since) else { continue };
            let follows = match led.number {
                0 => led.by > by,
                number => led.by == by && number == next,
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

    fn entry(round: u64, number: u64) -> Option<Led<()>> {
        Some(Led { by: Ballot { round, member: 0 }, number, entry: () })
    }

    fn revised(
        last: Last,
        first: u64,
        mut entries: Vec<Option<Led<()>>>,
    ) -> Vec<Option<(u64, u64)>> {
        last.revise(first, &mut entries);
        entries.into_iter().map(|led| led.map(|led| (led.by.round, led.number))).collect()
    }

    /// After an entry was applied in a slot.
    fn last(slot: u64, round: u64, number: u64) -> Last {
        let mut last = Last::default();
        assert!(last.apply(slot, &entry(round, number).expect("an entry")));
        last
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
        let after = last(9, 2, 3);
        assert_eq!(revised(after, 10, vec![entry(1, 4), entry(2, 4)]), [None, Some((2, 4))]);
        assert_eq!(revised(after, 10, vec![entry(2, 5), entry(2, 4)]), [None, Some((2, 4))]);
        // The state contains more than this replica's log says.
        let found = vec![entry(1, 7), entry(2, 3), entry(2, 4), entry(2, 3)];
        assert_eq!(revised(after, 8, found), [Some((1, 7)), Some((2, 3)), Some((2, 4)), None]);
    }

    #[test]
    fn an_entry_that_the_state_contains_is_not_applied_again() {
        let mut after = last(9, 2, 3);
        let before = after;
        assert!(!after.apply(9, &entry(2, 3).expect("an entry")));
        assert_eq!(after, before);
        assert!(after.apply(10, &entry(2, 4).expect("an entry")));
        assert!(after.is_after(before) && !before.is_after(after) && !after.is_after(after));
    }
}
