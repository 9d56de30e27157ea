//! The versions of histories, made from the places of writes.

use serried_model::{NodeId, Version, Versionstamp};
use serried_session::SnapshotKeyspace;

/// How the places of a keyspace's writes become versions of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Versions {
    /// A version is that of one write. Writes of different keys may have the same place, since without version clocks
    /// each key has places of its own.
    OfWrites,
    /// A version is that of one write transaction, for all keys that it writes. No two have the same place.
    OfTransactions,
}

impl Versions {
    /// Those of a session's keyspace.
    pub fn of(session: &SnapshotKeyspace) -> Versions {
        match session.has_write_transactions() {
            true => Versions::OfTransactions,
            false => Versions::OfWrites,
        }
    }

    /// The version of what writes `key` at this place.
    pub fn placed(self, key: u64, stamp: Versionstamp) -> Version {
        let coordinator = match self {
            _ if stamp == Versionstamp::ZERO => return Version::INITIAL,
            Versions::OfWrites => NodeId(key),
            Versions::OfTransactions => NodeId(0),
        };
        Version { timestamp_us: 2 * stamp.0, coordinator }
    }
}

/// The version of a write that was omitted for the one with this place: it comes right before it.
pub(super) fn omitted_for(stamp: Versionstamp, process: u64) -> Version {
    Version { timestamp_us: (2 * stamp.0).saturating_sub(1), coordinator: NodeId(process + 1) }
}

/// Whether a write with this version has a place, and was not omitted.
pub(super) fn is_placed(version: Version) -> bool {
    version.timestamp_us.is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_of_a_single_write_has_its_key() {
        let (here, there) = (Versionstamp(70), Versionstamp(71));
        let (writes, transactions) = (Versions::OfWrites, Versions::OfTransactions);
        assert_ne!(writes.placed(5, here), writes.placed(6, here));
        assert_eq!(transactions.placed(5, here), transactions.placed(6, here));
        for versions in [writes, transactions] {
            assert!(versions.placed(9, here) < versions.placed(5, there));
            assert!(is_placed(versions.placed(5, here)));
            assert_eq!(versions.placed(5, Versionstamp::ZERO), Version::INITIAL);
        }
    }

    #[test]
    fn an_omitted_write_comes_right_before_the_one_that_has_overwritten_it() {
        let omitted = omitted_for(Versionstamp(70), 3);
        assert!(omitted < Versions::OfWrites.placed(0, Versionstamp(70)));
        assert!(omitted > Versions::OfWrites.placed(u64::MAX, Versionstamp(69)));
        assert!(!is_placed(omitted));
    }
}
