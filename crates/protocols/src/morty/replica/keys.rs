//! The keys of a replica: those in use are in memory, the others in its store.

use serried_actor::Store;
use serried_model::{Key, Value, Version};
use serried_parts::{Committed, Place, Pool, WriteId};

use super::key_record::KeyRecord;

/// How many keys are looked at to make room for one. If all of them are in use, there are more keys in
/// memory than there should be.
const LOOKED_AT: usize = 4;

/// `vstore`.
#[derive(Debug)]
pub(super) struct Keys {
    records: Pool<Key, KeyRecord>,
    /// How many records there are to be.
    at_most: usize,
    /// What was committed below is in the store.
    stored: Version,
}

impl Keys {
    pub(super) fn new(at_most: usize) -> Keys {
        Keys { records: Pool::default(), at_most, stored: Version::INITIAL }
    }

    /// A key's record, which need not hold what lies in the store.
    pub(super) fn touch(&mut self, key: &Key) -> &mut KeyRecord {
        let place = self.place(key);
        self.at(place).1
    }

    /// A key's record, with what lies in the store.
    pub(super) fn load(&mut self, key: &Key, store: &dyn Store) -> &mut KeyRecord {
        let place = self.loaded(key, store);
        self.at(place).1
    }

    /// Where a key's record is, which need not hold what lies in the store. It stays there for as long
    /// as it is in use; see [`KeyRecord::is_idle`].
    pub(super) fn place(&mut self, key: &Key) -> Place {
        if self.records.len() >= self.at_most && !self.records.contains_key(key) {
            self.make_room();
        }
        let place = self.records.place_or_default(key);
        self.at(place).1.used = true;
        place
    }

    /// The same, with what lies in the store.
    pub(super) fn loaded(&mut self, key: &Key, store: &dyn Store) -> Place {
        let place = self.place(key);
        let record = self.at(place).1;
        if !core::mem::replace(&mut record.loaded, true)
            && let Some(bytes) = store.get(key.as_bytes())
        {
            decode(&bytes).into_iter().for_each(|committed| {
                record.committed.insert(committed);
            });
        }
        place
    }

    /// The record in a place, and whose it is.
    pub(super) fn at(&mut self, place: Place) -> (&Key, &mut KeyRecord) {
        self.records.at_place(place)
    }

    /// A key's record, if it is in memory.
    #[cfg(test)]
    pub(super) fn get(&self, key: &Key) -> Option<&KeyRecord> {
        self.records.get(key)
    }

    /// How many are in memory.
    pub(super) fn resident(&self) -> usize {
        self.records.len()
    }

    /// What was committed below is in the store.
    pub(super) fn stored(&self) -> Version {
        self.stored
    }

    /// Everything that was committed below `version` is in the store.
    pub(super) fn set_stored(&mut self, version: Version) {
        self.stored = version;
    }

    /// Settles `keys`, but for those that have been settled at `watermark` already.
    pub(super) fn settle_all(
        &mut self,
        keys: &[Key],
        watermark: Version,
        readable_from: Version,
        store: &mut dyn Store,
    ) {
        for key in keys {
            let record = self.load(key, store);
            if record.stored != watermark.timestamp_us {
                record.settle(key, watermark, readable_from, store);
            }
        }
    }

    /// Puts what a key held at `watermark` into the store, and forgets what nobody may read any more.
    pub(super) fn settle(
        &mut self,
        key: &Key,
        watermark: Version,
        readable_from: Version,
        store: &mut dyn Store,
    ) {
        self.load(key, store).settle(key, watermark, readable_from, store);
    }

    /// Takes over what another replica's store holds for a key, where everything below `settled` is
    /// settled.
    pub(super) fn copy(
        &mut self,
        key: &Key,
        bytes: &[u8],
        settled: Version,
        store: &mut dyn Store,
    ) {
        if let Some(record) = self.records.get_mut(key) {
            for committed in decode(bytes) {
                record.committed.insert(committed);
            }
            record.committed.forget_before(settled);
        }
        store.put(key.as_bytes(), Some(bytes).filter(|bytes| !bytes.is_empty()));
    }

    /// Another replica's store holds nothing for a key, where everything below `settled` is settled.
    pub(super) fn forget_stored(&mut self, key: &Key, settled: Version) {
        if let Some(record) = self.records.get_mut(key) {
            record.committed.forget_all_before(settled);
        }
    }

    /// Removes a key whose last write was a delete that everybody knows of.
    pub(super) fn forget_deleted(&mut self, key: &Key, known: Version, store: &mut dyn Store) {
        let record = self.load(key, store);
        let [only] = record.committed.before(known) else { return };
        if only.value.is_none() {
            let version = only.id.version;
            record.committed.forget(version);
            if record.committed.is_empty() {
                store.put(key.as_bytes(), None);
            }
        }
    }

    /// Moves a record that is not in use out of memory, if one is found soon.
    fn make_room(&mut self) {
        for _ in 0..LOOKED_AT {
            let Some((key, record)) = self.records.go_round() else { continue };
            record.committed_reads.forget_before(self.stored);
            let used = core::mem::replace(&mut record.used, false);
            let stored = record.committed.latest().is_none_or(|c| c.id.version < self.stored);
            if !used && stored && record.is_idle() && record.committed_reads.is_empty() {
                let key = key.clone();
                self.records.remove(&key);
                return;
            }
        }
    }
}

impl KeyRecord {
    fn settle(
        &mut self,
        key: &Key,
        watermark: Version,
        readable_from: Version,
        store: &mut dyn Store,
    ) {
        self.stored = watermark.timestamp_us;
        self.committed.forget_before(readable_from);
        self.committed_reads.forget_before(watermark);
        let settled = self.committed.before(watermark);
        store.put(key.as_bytes(), Some(&encode(settled)));
    }
}

/// How the versions of a key lie in the store.
pub(super) fn encode(versions: &[Committed]) -> Vec<u8> {
    let versions: Vec<(WriteId, &Option<Value>)> =
        versions.iter().map(|committed| (committed.id, &committed.value)).collect();
    postcard::to_allocvec(&versions).expect("nothing in it can fail to be encoded")
}

/// The reverse of [`encode`]; nothing of nothing.
///
/// # Panics
/// If it is not what [`encode`] returned: a driver checks what it reads.
pub(super) fn decode(bytes: &[u8]) -> Vec<Committed> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let versions: Vec<(WriteId, Option<Value>)> =
        postcard::from_bytes(bytes).expect("the store returns what was put into it");
    versions.into_iter().map(|(id, value)| Committed { id, value }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_actor::MemoryStore;

    fn commit(keys: &mut Keys, key: &Key, at: u64, value: Option<&str>) {
        let id = WriteId { version: Version::at(at), tag: 1 };
        let value = value.map(Value::from);
        keys.touch(key).commit_write(key, id, &value, &mut Vec::new());
    }

    #[test]
    fn what_does_not_fit_lies_in_the_store_and_comes_back() {
        let (mut keys, mut store) = (Keys::new(3), MemoryStore::default());
        let key = |i: u64| Key::from(i.to_be_bytes());
        for i in 0..100 {
            commit(&mut keys, &key(i), i + 1, Some("value"));
            keys.settle(&key(i), Version::at(i + 2), Version::at(i + 2), &mut store);
            keys.set_stored(Version::at(i + 2));
        }
        assert!(keys.resident() <= 5, "{}", keys.resident());
        for i in 0..100 {
            let found = keys.load(&key(i), &store).find(Version::at(1000)).0;
            assert_eq!(found.version, Version::at(i + 1));
        }
    }

    #[test]
    fn what_is_not_in_the_store_yet_stays_in_memory() {
        let (mut keys, store) = (Keys::new(1), MemoryStore::default());
        let (first, second) = (Key::from("first"), Key::from("second"));
        commit(&mut keys, &first, 5, Some("value"));
        for _ in 0..10 {
            keys.touch(&second);
        }
        assert_eq!(keys.load(&first, &store).find(Version::at(9)).0.version, Version::at(5));
    }

    #[test]
    fn a_deleted_key_is_forgotten_once_everybody_knows() {
        let (mut keys, mut store) = (Keys::new(9), MemoryStore::default());
        let key = Key::from("key");
        commit(&mut keys, &key, 1, Some("value"));
        commit(&mut keys, &key, 2, None);
        keys.settle(&key, Version::at(5), Version::at(5), &mut store);
        assert!(store.get(b"key").is_some());
        keys.forget_deleted(&key, Version::at(2), &mut store);
        assert!(store.get(b"key").is_some(), "not everybody knows yet");
        keys.forget_deleted(&key, Version::at(3), &mut store);
        assert_eq!(store.get(b"key"), None);
        assert!(keys.get(&key).unwrap().committed.is_empty());
    }
}
