//! The committed versions of one key.

use serde::{Deserialize, Serialize};
use serried_model::{Value, Version};
use smallvec::SmallVec;

/// One value of one write of a transaction.
///
/// A transaction that is re-executed may write a key several times under its one version; the tag
/// tells the values apart, and of two tags the greater is the later.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct WriteId {
    /// The transaction that wrote.
    pub version: Version,
    /// Which of its values.
    pub tag: u32,
}

impl WriteId {
    /// The "write" of a key that was never written: it holds nothing.
    pub const INITIAL: WriteId = WriteId { version: Version::INITIAL, tag: 0 };

    /// The write of a value that was loaded before the first transaction. Only simulations load values.
    pub const LOADED: WriteId = WriteId { version: Version::INITIAL, tag: 1 };
}

/// A committed write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Which write.
    pub id: WriteId,
    /// Its value, or `None` for a delete.
    pub value: Option<Value>,
}

/// The committed versions of one key, in their order. Most keys have one, or two for a while after they
/// were overwritten, which needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    ascending: SmallVec<[Committed; Versions::INLINE]>,
}

impl Versions {
    const INLINE: usize = 2;

    /// The latest one below `version`.
    pub fn latest_before(&self, version: Version) -> Option<&Committed> {
        let position = self.position(version);
        self.ascending[..position].last()
    }

    /// The one that the transaction `version` wrote.
    pub fn get(&self, version: Version) -> Option<&Committed> {
        let found = self.ascending.get(self.position(version))?;
        (found.id.version == version).then_some(found)
    }

    /// The latest of all.
    pub fn latest(&self) -> Option<&Committed> {
        self.ascending.last()
    }

    /// Adds one; false if that transaction's write is there already.
    pub fn insert(&mut self, committed: Committed) -> bool {
        let position = self.position(committed.id.version);
        if self.ascending.get(position).is_some_and(|old| old.id.version == committed.id.version) {
            return false;
        }
        self.ascending.insert(position, committed);
        true
    }

    /// All of them, in ascending order.
    pub fn all(&self) -> &[Committed] {
        &self.ascending
    }

    /// Those below `version`, in ascending order.
    pub fn before(&self, version: Version) -> &[Committed] {
        &self.ascending[..self.position(version)]
    }

    /// Forgets all that are below `version` but the latest of these.
    pub fn forget_before(&mut self, version: Version) {
        let position = self.position(version);
        if position > 1 {
            self.ascending.drain(..position - 1);
            self.shrink();
        }
    }

    /// Forgets all that are below `version`.
    pub fn forget_all_before(&mut self, version: Version) {
        let position = self.position(version);
        self.ascending.drain(..position);
        self.shrink();
    }

    /// Gives memory back that was for more.
    fn shrink(&mut self) {
        if self.ascending.spilled() && self.ascending.len() <= Versions::INLINE {
            self.ascending.shrink_to_fit();
        }
    }

    /// Forgets the one that the transaction `version` wrote.
    pub fn forget(&mut self, version: Version) {
        self.ascending.retain(|committed| committed.id.version != version);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ascending.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ascending.is_empty()
    }

    /// Where `version` is or would be.
    fn position(&self, version: Version) -> usize {
        near_the_end(&self.ascending, |committed| committed.id.version < version)
    }
}

/// The partition point of `below`, which is mostly among the last few: a binary search of a long list
/// would miss the cache at every step.
pub(crate) fn near_the_end<T>(ascending: &[T], below: impl Fn(&T) -> bool) -> usize {
    const FEW: usize = 8;
    let rest = ascending.len().saturating_sub(FEW);
    let above = ascending[rest..].iter().rev().take_while(|item| !below(item)).count();
    match ascending.len() - above {
        position if position > rest => position,
        _ => ascending[..rest].partition_point(below),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::NodeId;

    fn version(timestamp_us: u64) -> Version {
        Version { timestamp_us, coordinator: NodeId(0) }
    }

    #[test]
    fn a_read_finds_the_latest_version_below_its_own_whatever_the_order_of_arrival() {
        let mut versions = Versions::default();
        for timestamp in [5, 9, 2] {
            let id = WriteId { version: version(timestamp), tag: 0 };
            assert!(versions.insert(Committed { id, value: None }));
            assert!(!versions.insert(Committed { id, value: Some(Value::default()) }));
        }
        let found = |reader| versions.latest_before(version(reader)).map(|c| c.id.version);
        assert_eq!(found(2), None);
        assert_eq!(found(3), Some(version(2)));
        assert_eq!(found(9), Some(version(5)));
        assert_eq!(found(99), Some(version(9)));
        assert!(versions.get(version(5)).is_some() && versions.get(version(6)).is_none());
    }

    #[test]
    fn of_what_is_forgotten_the_latest_stays() {
        let mut versions = Versions::default();
        for timestamp in [2, 5, 9] {
            let id = WriteId { version: version(timestamp), tag: 0 };
            versions.insert(Committed { id, value: None });
        }
        versions.forget_before(version(2));
        assert_eq!((versions.len(), versions.before(version(5)).len()), (3, 1));
        versions.forget_before(version(9));
        let left: Vec<_> = versions.before(version(99)).iter().map(|c| c.id.version).collect();
        assert_eq!(left, [version(5), version(9)]);
        versions.forget(version(9));
        assert_eq!(versions.latest().unwrap().id.version, version(5));
    }

    #[test]
    fn the_search_from_the_end_finds_what_a_binary_search_finds() {
        for length in 0..30 {
            let ascending: Vec<usize> = (0..length).map(|i| 2 * i).collect();
            for wanted in 0..=2 * length {
                let expected = ascending.partition_point(|item| *item < wanted);
                assert_eq!(near_the_end(&ascending, |item| *item < wanted), expected);
            }
        }
    }
}
