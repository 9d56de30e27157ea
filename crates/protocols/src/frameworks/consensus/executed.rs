//! The executed instances of a key.

use std::collections::BTreeSet;

use super::instance::{Dependencies, InstanceId};

/// The executed instances of a key. In each row these are all up to some number, and perhaps some
/// beyond: an instance without a command waits for no other.
#[derive(Debug)]
pub(super) struct Executed {
    /// In each row, all instances up to here have been executed.
    up_to: Dependencies,
    /// Executed instances beyond `up_to`.
    ahead: BTreeSet<InstanceId>,
}

impl Executed {
    /// All instances up to `up_to`.
    pub(super) fn new(up_to: Dependencies) -> Executed {
        Executed { up_to, ahead: BTreeSet::new() }
    }

    /// The point in each row up to which all instances have been executed.
    pub(super) fn up_to(&self) -> &Dependencies {
        &self.up_to
    }

    /// Whether an instance has been executed beyond one that has not.
    pub(super) fn have_gaps(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Whether an instance has been executed.
    pub(super) fn cover(&self, id: InstanceId) -> bool {
        self.up_to.cover(id) || self.ahead.contains(&id)
    }

    /// The number of the last executed instance of a row.
    pub(super) fn last(&self, row: InstanceId) -> u64 {
        let of = |number| InstanceId { number, ..row };
        let ahead = self.ahead.range(of(0)..=of(u64::MAX)).next_back();
        self.up_to.row(row).max(ahead.map_or(0, |id| id.number))
    }

    /// The last executed instance of each row, even if it is beyond others that have not been
    /// executed.
    pub(super) fn last_of_all(&self) -> Dependencies {
        let mut last = self.up_to.clone();
        for id in &self.ahead {
            let number = last.row(*id).max(id.number);
            *last.row_mut(*id) = number;
        }
        last
    }

    /// Records that an instance was executed.
    pub(super) fn add(&mut self, id: InstanceId) {
        self.ahead.insert(id);
        let mut next = InstanceId { number: self.up_to.row(id) + 1, ..id };
        while self.ahead.remove(&next) {
            *self.up_to.row_mut(id) = next.number;
            next.number += 1;
        }
    }

    /// Records that all instances up to here have been executed elsewhere, and their effects were
    /// copied.
    pub(super) fn add_all(&mut self, up_to: &Dependencies) {
        self.up_to.add(up_to);
        let covered = &self.up_to;
        self.ahead.retain(|id| !covered.cover(*id));
        for id in self.ahead.clone() {
            // An earlier iteration may have moved it from `ahead` into `up_to`.
            if self.ahead.contains(&id) {
                self.add(id);
            }
        }
    }
}
