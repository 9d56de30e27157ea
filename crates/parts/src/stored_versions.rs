//! The committed versions of one key: in memory, in a store, and on their way to another replica.

use core::ops::Deref;

use serried_actor::Store;
use serried_model::{Key, Value, Version};

use crate::{Committed, Versions, WriteId};

/// The committed versions of one key. This owns those in memory and those in the store, and is the only way from one to
/// the other.
///
/// - *The store is merged into, never overwritten.* Versions that are in the store are loaded before others are put there,
///   and both are kept. A version leaves the store only if a later one has replaced it, if it is a delete that may be
///   forgotten, or if another replica's state replaces it ([`StoredVersions::replace`]).
/// - *Below a watermark state is replaced, above it is merged.* What another replica holds is complete below its
///   watermark, and says nothing about what lies above.
/// - *A delete is a version* until it is forgotten ([`StoredVersions::forget_delete`]). The owner ensures that no older
///   version is added after that, from its log, from memory or by a message.
#[derive(Debug, Default)]
pub struct StoredVersions {
    /// The versions in memory. If `loaded`, these are all versions of the key.
    versions: Versions,
    loaded: bool,
    /// The watermark of the last [`StoredVersions::settle`], in microseconds.
    stored: u64,
}

/// Encodes the versions of a key for a store. They must be in ascending order.
pub fn encode_versions(versions: &[Committed]) -> Vec<u8> {
    let versions: Vec<(WriteId, &Option<Value>)> =
        versions.iter().map(|committed| (committed.id, &committed.value)).collect();
    postcard::to_allocvec(&versions).expect("nothing in it can fail to be encoded")
}

/// Decodes what [`encode_versions`] has returned. No bytes are no versions.
///
/// # Panics
/// If the bytes are anything else. Drivers check what they read from a disk.
pub fn decode_versions(bytes: &[u8]) -> Vec<Committed> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let versions: Vec<(WriteId, Option<Value>)> =
        postcard::from_bytes(bytes).expect("the store returns what was put into it");
    versions.into_iter().map(|(id, value)| Committed { id, value }).collect()
}

fn put(key: &Key, versions: &[Committed], store: &mut dyn Store) {
    let bytes = (!versions.is_empty()).then(|| encode_versions(versions));
    store.put(key.as_bytes(), bytes.as_deref());
}

/// The versions in memory. If they were loaded, these are all.
impl Deref for StoredVersions {
    type Target = Versions;

    fn deref(&self) -> &Versions {
        &self.versions
    }
}

impl StoredVersions {
    /// Adds a version to memory. False if that transaction's write is there already.
    pub fn insert(&mut self, committed: Committed) -> bool {
        self.versions.insert(committed)
    }

    fn add(&mut self, versions: Vec<Committed>) {
        for committed in versions {
            self.versions.insert(committed);
        }
    }

    /// Adds the versions in the store to those in memory, unless that was done.
    pub fn load(&mut self, key: &Key, store: &dyn Store) {
        if !core::mem::replace(&mut self.loaded, true)
            && let Some(bytes) = store.get(key.as_bytes())
        {
            self.add(decode_versions(&bytes));
        }
    }

    /// Puts into the store what the key holds below `watermark`, unless that was done. Forgets versions that no read at
    /// `readable_from` or later can find.
    pub fn settle(
        &mut self,
        key: &Key,
        watermark: Version,
        readable_from: Version,
        store: &mut dyn Store,
    ) {
        if self.stored == watermark.timestamp_us {
            return;
        }
        self.load(key, store);
        self.stored = watermark.timestamp_us;
        self.versions.forget_before(readable_from);
        put(key, self.versions.before(watermark), store);
    }

    /// Takes over `others`, which another replica holds and which are complete below `watermark`. They replace what lies
    /// below the watermark here, in memory and in the store. What lies above stays. If only a delete below the watermark is
    /// left, it is forgotten, since nothing is left that it could delete.
    pub fn replace(
        &mut self,
        key: &Key,
        watermark: Version,
        others: Vec<Committed>,
        store: &mut dyn Store,
    ) {
        self.load(key, store);
        self.versions.forget_all_before(watermark);
        self.add(others);
        if let [only] = self.versions.all()
            && only.value.is_none()
            && only.id.version < watermark
        {
            self.versions.forget_all_before(watermark);
        }
        put(key, self.versions.all(), store);
    }

    /// Forgets the key's only version below `below`, if it is a delete. Afterwards the key looks as if it had never been
    /// written there. The caller must not add older versions any more.
    pub fn forget_delete(&mut self, key: &Key, below: Version, store: &mut dyn Store) {
        self.load(key, store);
        let [only] = self.versions.before(below) else { return };
        if only.value.is_some() {
            return;
        }
        self.versions.forget_all_before(below);
        if self.versions.is_empty() {
            store.put(key.as_bytes(), None);
        }
    }

    /// Forgets the versions in memory below `below`. The store must be complete there.
    pub fn forget_memory(&mut self, below: Version) {
        self.versions.forget_all_before(below);
        self.loaded = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_actor::MemoryStore;

    fn version(at: u64, value: Option<&str>) -> Committed {
        let id = WriteId { version: Version::at(at), tag: 1 };
        Committed { id, value: value.map(Value::from) }
    }

    fn value(at: u64) -> Committed {
        version(at, Some("value"))
    }

    /// A key with these in the store, and then those in memory.
    fn key_with(stored: &[Committed], memory: &[Committed]) -> (StoredVersions, MemoryStore) {
        let mut store = MemoryStore::default();
        if !stored.is_empty() {
            store.put(b"key", Some(&encode_versions(stored)));
        }
        let mut versions = StoredVersions::default();
        versions.add(memory.to_vec());
        (versions, store)
    }

    fn key() -> Key {
        Key::from("key")
    }

    /// When what lies in the store, and what is known of the key, was written.
    fn held(versions: &mut StoredVersions, store: &MemoryStore) -> [Vec<u64>; 2] {
        versions.load(&key(), store);
        let stored = store.get(b"key").map(|bytes| decode_versions(&bytes)).unwrap_or_default();
        let at = |of: &[Committed]| of.iter().map(|c| c.id.version.timestamp_us).collect();
        [at(&stored), at(versions.all())]
    }

    #[test]
    fn what_is_settled_is_merged_into_what_lies_in_the_store() {
        let (mut versions, mut store) = key_with(&[value(7)], &[value(3), value(20)]);
        versions.settle(&key(), Version::at(10), Version::at(10), &mut store);
        assert_eq!(held(&mut versions, &store), [vec![7], vec![7, 20]]);
    }

    #[test]
    fn below_the_watermark_state_is_replaced_and_above_it_is_merged() {
        // What was written at 5 and at 20 lies in the store, at 6 and 30 only in memory.
        for (others, left) in [
            (vec![value(8)], vec![8, 20, 30]),
            (vec![value(8), value(12), value(25)], vec![8, 12, 20, 25, 30]),
            (vec![], vec![20, 30]),
            (vec![version(9, None)], vec![9, 20, 30]),
        ] {
            let (mut versions, mut store) =
                key_with(&[value(5), value(20)], &[value(6), value(30)]);
            versions.replace(&key(), Version::at(10), others, &mut store);
            assert_eq!(held(&mut versions, &store), [left.clone(), left]);
        }
    }

    #[test]
    fn a_key_that_others_have_deleted_is_gone_from_memory_and_store() {
        for others in [vec![], vec![version(9, None)]] {
            let (mut versions, mut store) = key_with(&[value(5)], &[value(6)]);
            versions.replace(&key(), Version::at(10), others, &mut store);
            assert_eq!(held(&mut versions, &store), [vec![], vec![]] as [Vec<u64>; 2]);
            assert_eq!(store.get(b"key"), None);
        }
    }

    #[test]
    fn a_delete_is_forgotten_when_it_is_the_last_write_below() {
        for (stored, below, left) in [
            (vec![version(5, None)], 5, vec![5]),
            (vec![version(5, None)], 6, vec![]),
            (vec![value(5)], 6, vec![5]),
            (vec![version(5, None), value(8)], 6, vec![8]),
            (vec![version(5, None), value(8)], 9, vec![5, 8]),
        ] {
            let (mut versions, mut store) = key_with(&stored, &[]);
            versions.forget_delete(&key(), Version::at(below), &mut store);
            assert_eq!(versions.all().len(), left.len(), "{left:?}");
            assert_eq!(store.get(b"key").is_none(), left.is_empty(), "{left:?}");
        }
    }

    #[test]
    fn what_memory_forgets_is_found_in_the_store() {
        let (mut versions, store) = key_with(&[value(7)], &[value(3), value(20)]);
        versions.load(&key(), &store);
        versions.forget_memory(Version::at(10));
        assert_eq!(held(&mut versions, &store), [vec![7], vec![7, 20]]);
    }
}
