//! Which instances of a key have been executed.

use std::collections::BTreeSet;

use super::instance::{Dependencies, InstanceId};

/// The instances of a key that have been executed. In each row these are all up to a number, and perhaps some beyond: an
/// instance in which nothing is done waits for no other.
#[derive(Debug)]
pub(super) struct Executed {
    /// All up to here have been executed.
    up_to: Dependencies,
    /// Those beyond.
    ahead: BTreeSet<InstanceId>,
}

impl Executed {
    /// All of `up_to`.
    pub(super) fn new(up_to: Dependencies) -> Executed {
        Executed { up_to, ahead: BTreeSet::new() }
    }

    /// Up to where all have been executed.
    pub(super) fn up_to(&self) -> &Dependencies {
        &self.up_to
    }

    /// Whether some have been executed beyond others that have not.
    pub(super) fn have_gaps(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Whether an instance is among them.
    pub(super) fn cover(&self, id: InstanceId) -> bool {
        self.up_to.cover(id) || self.ahead.contains(&id)
    }

    /// The number of the last one of a row.
    pub(super) fn last(&self, row: InstanceId) -> u64 {
        let of = |number| InstanceId { number, ..row };
        let ahead = self.ahead.range(of(0)..=of(u64::MAX)).next_back();
        self.up_to.row(row).max(ahead.map_or(0, |id| id.number))
    }

    /// The last one of each row, even if it is beyond others that have not been executed.
    pub(super) fn last_of_all(&self) -> Dependencies {
        let mut last = self.up_to.clone();
        for id in &self.ahead {
            let number = last.row(*id).max(id.number);
            *last.row_mut(*id) = number;
        }
        last
    }

    /// An instance was executed.
    pub(super) fn add(&mut self, id: InstanceId) {
        self.ahead.insert(id);
        let mut next = InstanceId { number: self.up_to.row(id) + 1, ..id };
        while self.ahead.remove(&next) {
            *self.up_to.row_mut(id) = next.number;
            next.number += 1;
        }
    }

    /// All up to here have been executed elsewhere, and their effects were taken over.
    pub(super) fn add_all(&mut self, up_to: &Dependencies) {
        self.up_to.add(up_to);
        let covered = &self.up_to;
        self.ahead.retain(|id| !covered.cover(*id));
        for id in self.ahead.clone() {
            // An earlier one of its row may have closed the gap before it.
            if self.ahead.contains(&id) {
                self.add(id);
            }
        }
    }
}
