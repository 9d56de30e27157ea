//! Ends that are not certain before they are chosen.
//!
//! If such an end is lost with the leader, its transaction may end otherwise under the next one. So nothing may be reported
//! that is due to it before it is chosen.

use std::collections::{BTreeMap, BTreeSet};

use serried_model::Version;

/// The open transactions whose ends are not certain, and from where on in the log they are.
#[derive(Debug, Default)]
pub(super) struct Uncertain {
    /// The last place that was given to a part or an end. They are put into the log in this order.
    last: u64,
    /// An end is certain for parts behind this place: that of the end, or that of the part from which it follows.
    certain_behind: BTreeMap<Version, u64>,
    /// The places in there.
    places: BTreeSet<u64>,
}

impl Uncertain {
    /// The place of a part or an end that is put into the log now.
    pub(super) fn next_place(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A transaction's end is certain only for parts behind `place`.
    pub(super) fn insert(&mut self, txn: Version, place: u64) {
        self.remove(txn);
        self.certain_behind.insert(txn, place);
        self.places.insert(place);
    }

    /// A transaction's end is chosen.
    pub(super) fn remove(&mut self, txn: Version) {
        if let Some(place) = self.certain_behind.remove(&txn) {
            self.places.remove(&place);
        }
    }

    /// Whether any end is not certain for a part at `place`.
    pub(super) fn any_after(&self, place: u64) -> bool {
        self.places.last().is_some_and(|last| *last > place)
    }

    pub(super) fn len(&self) -> usize {
        self.certain_behind.len()
    }
}
