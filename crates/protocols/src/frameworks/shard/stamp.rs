//! Moments in the order of transactions, and the intervals in which parts hold.

use core::fmt;

use serde::{Deserialize, Serialize};
use serried_model::Version;

/// A moment at which a transaction may take effect: a time, and the transaction to break ties, so that no two
/// transactions share one (003 §5.1, "t_w" and "t_r").
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Stamp {
    /// Microseconds since the Unix epoch, by a client's clock or refined.
    pub us: u64,
    /// The transaction, by its first version.
    pub txn: Version,
}

impl Stamp {
    /// The stamp of the value that a key holds before its first write.
    pub const INITIAL: Stamp = Stamp { us: 0, txn: Version::INITIAL };

    /// See [`Stamp::next_of`].
    pub const LANES: u64 = 32;

    /// The stamp that a transaction has at its beginning: its pre-assigned timestamp.
    pub fn assigned(txn: Version) -> Stamp {
        Stamp { us: txn.timestamp_us, txn }
    }

    /// The first stamp of `txn` that is not before its pre-assigned one and is later than `self`.
    /// If `self` is a stamp of `txn`, an equal stamp is late enough.
    ///
    /// All stamps of a transaction leave the same remainder when divided by [`Stamp::LANES`]. So
    /// the transactions that are open at one client at a time share no version, whatever stamps
    /// they get.
    pub fn next_of(self, txn: Version) -> Stamp {
        let first = txn.timestamp_us;
        if self.txn == txn || self.us < first {
            return Stamp { us: self.us.max(first), txn };
        }
        let later = (self.us - first).saturating_add(1).checked_next_multiple_of(Self::LANES);
        // No clock gets there.
        let us = first.saturating_add(later.unwrap_or(u64::MAX));
        Stamp { us, txn }
    }

    /// The version under which the transaction is known if it commits at this moment.
    pub fn version(self) -> Version {
        Version { timestamp_us: self.us, coordinator: self.txn.coordinator }
    }
}

/// Formats the time and the transaction. The stamp is not a version that was assigned.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.us, self.txn)
    }
}

/// The interval in which a part holds: its first and last moment (003 §5.1, "safeguard").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Validity {
    /// The first.
    pub from: Stamp,
    /// The last, or `None` if the part holds until its transaction ends.
    pub until: Option<Stamp>,
}

impl Validity {
    /// At any moment.
    pub const ALWAYS: Validity = Validity { from: Stamp::INITIAL, until: None };

    /// At one moment only.
    pub fn at(stamp: Stamp) -> Validity {
        Validity { from: stamp, until: Some(stamp) }
    }

    /// The intersection of both intervals, which may be empty.
    #[must_use]
    pub fn and(self, other: Validity) -> Validity {
        let until = match (self.until, other.until) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.or(another),
        };
        Validity { from: self.from.max(other.from), until }
    }

    /// Whether the interval contains this moment.
    pub fn holds_at(self, stamp: Stamp) -> bool {
        self.from <= stamp && self.until.is_none_or(|until| stamp <= until)
    }

    /// Whether the interval is not empty. Then it contains its first moment.
    pub fn exists(self) -> bool {
        self.until.is_none_or(|until| self.from <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::NodeId;

    fn txn(us: u64) -> Version {
        Version { timestamp_us: us, coordinator: NodeId(70_000) }
    }

    #[test]
    fn a_transactions_next_stamp_is_later_than_anothers_and_its_own_is_late_enough() {
        let stamp = Stamp { us: 9, txn: txn(5) };
        assert_eq!(stamp.next_of(txn(7)), Stamp { us: 7 + 32, txn: txn(7) });
        assert_eq!(stamp.next_of(txn(20)), Stamp { us: 20, txn: txn(20) });
        assert_eq!(stamp.next_of(txn(5)), stamp);
        assert_eq!(Stamp::INITIAL.next_of(txn(3)), Stamp::assigned(txn(3)));
        let late = Stamp { us: 7 + 64, txn: txn(5) };
        assert_eq!(late.next_of(txn(7)), Stamp { us: 7 + 96, txn: txn(7) });
        let last = Stamp { us: u64::MAX, txn: txn(5) };
        assert_eq!(last.next_of(txn(7)).us, u64::MAX);
    }

    #[test]
    fn what_holds_together_holds_from_the_last_beginning_to_the_first_end() {
        let stamp = |us| Stamp { us, txn: txn(us) };
        let one = Validity { from: stamp(4), until: Some(stamp(8)) };
        let another = Validity { from: stamp(6), until: None };
        let both = one.and(another).and(Validity::ALWAYS);
        assert_eq!(both, Validity { from: stamp(6), until: Some(stamp(8)) });
        assert!(both.holds_at(stamp(6)) && both.holds_at(stamp(8)));
        assert!(
            !both.holds_at(stamp(5)) && !both.holds_at(stamp(9)) && another.holds_at(stamp(99))
        );
        assert!(both.exists() && both.and(Validity::at(stamp(8))).exists());
        assert!(!both.and(Validity::at(stamp(9))).exists());
    }
}
