//! Versions that were overwritten, for reads as of an earlier time. Only the leader has them, in memory.

use std::collections::VecDeque;

use serried_model::{Key, Value, Versionstamp};
use serried_parts::Map;

use super::cell::Latest;

/// How many bytes of overwritten versions are kept at most.
const BYTES_AT_MOST: usize = 64 << 20;
/// What a version takes up beside its key and its value.
const OVERHEAD: usize = 96;

/// What reads as of earlier times find.
#[derive(Debug, Default)]
pub(super) struct Overwritten {
    versions: Map<Key, VecDeque<Latest>>,
    /// Which versions there are, and when they were overwritten, in this order.
    order: VecDeque<(Versionstamp, Key)>,
    bytes: usize,
    /// Versions that were overwritten at this place or before it are not all here.
    complete_from: Versionstamp,
}

fn size(key: &Key, version: &Latest) -> usize {
    OVERHEAD + key.len() + version.value.as_ref().map_or(0, Value::len)
}

impl Overwritten {
    /// A version of `key` was overwritten, by a write with this place. It is the latest one so far.
    pub(super) fn add(&mut self, key: &Key, version: Latest, at: Versionstamp) {
        self.bytes += size(key, &version);
        self.versions.get_or_default(key).push_back(version);
        self.order.push_back((at, key.clone()));
        while self.bytes > BYTES_AT_MOST {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some((at, key)) = self.order.pop_front() else { return };
        self.complete_from = self.complete_from.max(at);
        let versions = self.versions.get_mut(&key).expect("the key has versions");
        let version = versions.pop_front().expect("it has a version for each time");
        self.bytes -= size(&key, &version);
        if versions.is_empty() {
            self.versions.remove(&key);
        }
    }

    /// Drops what was overwritten before this.
    pub(super) fn expire(&mut self, before: Versionstamp) {
        while self.order.front().is_some_and(|(at, _)| *at < before) {
            self.drop_first();
        }
    }

    /// What a key had at `at`, if its latest version is from later. `None` if that is not known any more.
    pub(super) fn find(&self, key: &Key, at: Versionstamp) -> Option<&Latest> {
        if at < self.complete_from {
            return None;
        }
        let versions = self.versions.get(key)?;
        let later = versions.partition_point(|version| version.place <= at);
        versions.get(later.checked_sub(1)?)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(place: u64) -> Latest {
        let (value, place) = (Some(Value::from(place.to_string())), Versionstamp(place));
        Latest { value, stamp: place, place }
    }

    fn found(overwritten: &Overwritten, key: &str, at: u64) -> Option<u64> {
        let found = overwritten.find(&Key::from(key), Versionstamp(at));
        found.map(|version| version.place.0)
    }

    #[test]
    fn a_read_finds_the_latest_version_that_is_not_after_it() {
        let mut overwritten = Overwritten::default();
        overwritten.add(&Key::from("a"), version(2), Versionstamp(5));
        overwritten.add(&Key::from("b"), version(0), Versionstamp(6));
        overwritten.add(&Key::from("a"), version(5), Versionstamp(9));
        let a = [1, 2, 4, 5, 8].map(|at| found(&overwritten, "a", at));
        assert_eq!(a, [None, Some(2), Some(2), Some(5), Some(5)]);
        assert_eq!(found(&overwritten, "b", 3), Some(0));
        overwritten.expire(Versionstamp(6));
        let a = [4, 5, 8].map(|at| found(&overwritten, "a", at));
        assert_eq!(
            a,
            [None, Some(5), Some(5)],
            "it is complete from when the last one was dropped"
        );
        overwritten.expire(Versionstamp(10));
        assert_eq!((overwritten.len(), overwritten.bytes), (0, 0));
    }

    #[test]
    fn few_bytes_are_kept() {
        let mut overwritten = Overwritten::default();
        let value = Some(Value::from(vec![7; 1 << 20].as_slice()));
        for at in 1..200 {
            let place = Versionstamp(at - 1);
            let version = Latest { value: value.clone(), stamp: place, place };
            overwritten.add(&Key::from("a"), version, Versionstamp(at));
        }
        assert!(overwritten.bytes <= BYTES_AT_MOST && overwritten.len() > 60);
        assert_eq!(found(&overwritten, "a", 100), None);
        assert_eq!(found(&overwritten, "a", 190), Some(190));
    }
}
