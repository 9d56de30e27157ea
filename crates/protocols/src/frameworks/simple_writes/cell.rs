//! What a replica keeps in its store.

use serde::{Deserialize, Serialize};
use serried_model::{Value, Versionstamp};

use crate::frameworks::replicated_log::Last;

/// What a replica keeps under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Cell {
    /// A key.
    Key(Latest),
    /// The partition.
    Partition(Partition),
}

/// The latest version of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Latest {
    /// The value; `None` if the key was deleted, or never written.
    pub(super) value: Option<Value>,
    /// With versionstamps, that of the write. Without, the number of the log's slots up to the write.
    pub(super) stamp: Versionstamp,
    /// Where the leader has placed the write, if this replica was the leader that has applied it: after `stamp`.
    /// Otherwise `stamp`, and the place was somewhere from there to the bound.
    pub(super) place: Versionstamp,
}

/// What becomes of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It takes effect.
    Takes,
    /// It is omitted: its client has not seen the latest version, and it comes right before that (004 §6.3). A write
    /// that is here already is omitted, too, whenever it comes again.
    Omitted,
    /// It is not known whether it was omitted before, under a former leader. It takes no effect, and is requested
    /// again with a higher versionstamp, if its client still waits for it.
    Outdated,
}

impl Latest {
    /// Whether a write in the log with this request is omitted. All replicas come to the same result.
    pub(super) fn omits(&self, requested: Versionstamp) -> bool {
        self.stamp > Versionstamp::ZERO && requested <= self.stamp
    }

    /// What becomes of a write with this request, at a leader that has begun at `begun_at`.
    pub(super) fn fate(&self, requested: Versionstamp, begun_at: Versionstamp) -> Fate {
        let is_own = self.place > begun_at;
        if self.omits(requested) || (is_own && requested <= self.place) {
            Fate::Omitted
        } else if self.stamp > Versionstamp::ZERO && !is_own && requested <= begun_at {
            Fate::Outdated
        } else {
            Fate::Takes
        }
    }
}

/// What a replica knows of its partition beside the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Partition {
    /// The last entry of the log.
    pub(super) last: Last,
    /// No leader's version clock has gone beyond this.
    pub(super) bound: Versionstamp,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::Key(Latest::default())
    }
}

impl Cell {
    /// The latest version.
    pub(super) fn latest(&self) -> &Latest {
        match self {
            Cell::Key(latest) => latest,
            Cell::Partition(_) => unreachable!("no key has the name of the partition"),
        }
    }

    /// The latest version, to change.
    pub(super) fn latest_mut(&mut self) -> &mut Latest {
        match self {
            Cell::Key(latest) => latest,
            Cell::Partition(_) => unreachable!("no key has the name of the partition"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_omitted_up_to_the_place_of_the_latest_if_that_is_known() {
        let fates = |stamp, place, begun_at| {
            let latest =
                Latest { value: None, stamp: Versionstamp(stamp), place: Versionstamp(place) };
            [5, 6, 7, 8, 9, 10]
                .map(|requested| latest.fate(Versionstamp(requested), Versionstamp(begun_at)))
        };
        use Fate::{Omitted, Outdated, Takes};
        assert_eq!(fates(6, 8, 5), [Omitted, Omitted, Omitted, Omitted, Takes, Takes]);
        assert_eq!(fates(6, 8, 9), [Omitted, Omitted, Outdated, Outdated, Outdated, Takes]);
        assert_eq!(fates(0, 0, 9), [Takes; 6], "it was never written");
    }
}
