//! Versions that were overwritten, for reads as of an earlier time. Only the leader has them, in memory.
//!
//! Transactions may commit at a key in another order than that of their commit times. So a version may be put between
//! others.

use std::collections::{BTreeSet, VecDeque};

use serried_model::{Key, Value, Versionstamp};
use serried_parts::Map;

use super::cell::Version;

/// How many bytes of overwritten versions are kept at most.
const BYTES_AT_MOST: usize = 64 << 20;
/// What a version takes up beside its key and its value.
const OVERHEAD: usize = 128;

/// What reads as of earlier times find.
#[derive(Debug, Default)]
pub(super) struct Overwritten {
    /// By key, in the order of commit times.
    versions: Map<Key, VecDeque<Version>>,
    /// Which versions there are, in the order in which they were overwritten: the commit time of the next version with a
    /// later stamp when it was put here, the key, and its own commit time.
    order: BTreeSet<(Versionstamp, Key, Versionstamp)>,
    bytes: usize,
    /// Versions that were overwritten at this time or before it are not all here.
    complete_from: Versionstamp,
}

fn size(key: &Key, version: &Version) -> usize {
    OVERHEAD + 2 * key.len() + version.value.as_ref().map_or(0, Value::len)
}

impl Overwritten {
    /// None yet. Versions that were overwritten up to `complete_from` are not known.
    pub(super) fn new(complete_from: Versionstamp) -> Overwritten {
        Overwritten { complete_from, ..Overwritten::default() }
    }

    /// Adds a version of `key`, which another one overwrites at `at` that is the latest.
    pub(super) fn add(&mut self, key: &Key, version: Version, latest: Versionstamp) {
        let versions = self.versions.get_or_default(key);
        let place = versions.partition_point(|other| other.commit < version.commit);
        // Of what was admitted together, only the latest can be read.
        if let Some(same) = versions.get_mut(place).filter(|same| same.commit == version.commit) {
            if same.stamp() < version.stamp() {
                self.bytes -= size(key, same);
                self.bytes += size(key, &version);
                *same = version;
            }
            return;
        }
        // Versions that were admitted later may have earlier stamps. They do not overwrite it.
        let overwrites = |next: &&Version| next.stamp() > version.stamp();
        let at = versions.range(place..).find(overwrites).map_or(latest, |next| next.commit);
        if !self.order.insert((at, key.clone(), version.commit)) {
            return;
        }
        self.bytes += size(key, &version);
        versions.insert(place, version);
        while self.bytes > BYTES_AT_MOST {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some((at, key, commit)) = self.order.pop_first() else { return };
        self.complete_from = self.complete_from.max(at);
        let versions = self.versions.get_mut(&key).expect("the key has versions");
        let place = versions.partition_point(|version| version.commit < commit);
        let version = versions.remove(place).expect("it is among them");
        self.bytes -= size(&key, &version);
        if versions.is_empty() {
            self.versions.remove(&key);
        }
    }

    /// Drops what was overwritten before this.
    pub(super) fn expire(&mut self, before: Versionstamp) {
        while self.order.first().is_some_and(|(at, ..)| *at < before) {
            self.drop_first();
        }
    }

    /// The last version of a key that `fits`, if its latest one does not. All that are not after `at` fit. `None` if
    /// it is not known any more.
    pub(super) fn find(
        &self,
        key: &Key,
        at: Versionstamp,
        fits: impl Fn(&Version) -> bool,
    ) -> Option<&Version> {
        if at < self.complete_from {
            return None;
        }
        let mut best: Option<&Version> = None;
        // A version's stamp is not after its commit time, so no earlier one can be later than the best one then.
        for version in self.versions.get(key)?.iter().rev() {
            if best.is_some_and(|best| version.commit <= best.stamp()) {
                break;
            }
            if fits(version) && best.is_none_or(|best| best.stamp() < version.stamp()) {
                best = Some(version);
            }
        }
        best
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(commit: u64, session: u64) -> Version {
        let value = Some(Value::from(commit.to_string()));
        Version { value, commit: Versionstamp(commit), session, elsewhere: None }
    }

    fn found(overwritten: &Overwritten, at: u64, own: u64, written: u64) -> Option<u64> {
        let (at, written) = (Versionstamp(at), Versionstamp(written));
        let fits = |version: &Version| {
            version.commit <= at || (version.session == own && version.commit <= written)
        };
        let found = overwritten.find(&Key::from("a"), at, fits);
        found.map(|version| version.commit.0)
    }

    #[test]
    fn versions_are_found_in_the_order_of_commit_times_whenever_they_come() {
        let (mut overwritten, key) = (Overwritten::default(), Key::from("a"));
        overwritten.add(&key, version(0, 0), Versionstamp(5));
        overwritten.add(&key, version(5, 1), Versionstamp(9));
        overwritten.add(&key, version(3, 2), Versionstamp(9));
        overwritten.add(&key, version(7, 2), Versionstamp(9));
        overwritten.add(&key, version(7, 2), Versionstamp(9));
        let plain = [0, 2, 3, 4, 5, 6, 7, 8].map(|at| found(&overwritten, at, 0, 0));
        assert_eq!(plain, [0, 0, 3, 3, 5, 5, 7, 7].map(Some));
        assert_eq!(found(&overwritten, 1, 1, 9), Some(5), "its own");
        assert_eq!(found(&overwritten, 1, 2, 6), Some(3), "its own, if it is acknowledged");
        overwritten.expire(Versionstamp(6));
        assert_eq!(found(&overwritten, 4, 0, 0), None);
        assert_eq!(found(&overwritten, 6, 0, 0), Some(5));
        overwritten.expire(Versionstamp(100));
        assert_eq!((overwritten.len(), overwritten.bytes), (0, 0));
    }

    #[test]
    fn a_version_is_kept_until_one_with_a_later_stamp_overwrites_it() {
        let (mut overwritten, key) = (Overwritten::default(), Key::from("a"));
        let of_another_site =
            |commit, stamp| Version { elsewhere: Some(Versionstamp(stamp)), ..version(commit, 0) };
        // A transaction of this site is applied after the admission of versions with earlier stamps, and has committed
        // before it.
        overwritten.add(&key, version(0, 0), Versionstamp(20));
        overwritten.add(&key, of_another_site(20, 5), Versionstamp(30));
        overwritten.add(&key, version(10, 0), Versionstamp(40));
        assert_eq!(found(&overwritten, 28, 0, 0), Some(10));
        overwritten.expire(Versionstamp(25));
        assert_eq!(found(&overwritten, 28, 0, 0), Some(10));
        overwritten.expire(Versionstamp(41));
        assert_eq!(found(&overwritten, 40, 0, 0), None);
        assert_eq!((overwritten.len(), overwritten.bytes), (0, 0));
    }

    #[test]
    fn few_bytes_are_kept() {
        let (mut overwritten, key) = (Overwritten::default(), Key::from("a"));
        let value = Some(Value::from(vec![7; 1 << 20].as_slice()));
        for commit in 1..200 {
            let version = Version {
                value: value.clone(),
                commit: Versionstamp(commit),
                ..Version::default()
            };
            overwritten.add(&key, version, Versionstamp(commit + 1));
        }
        assert!(overwritten.bytes <= BYTES_AT_MOST && overwritten.len() > 60);
        assert_eq!(found(&overwritten, 100, 0, 0), None);
        assert_eq!(found(&overwritten, 190, 0, 0), Some(190));
    }
}
