//! The keys of a replica. Keys in use are in memory, the others in the store.
//!
//! All committed versions of a key belong to its [`StoredVersions`]; nothing else writes the store. What they hold is
//! settled, forgotten or copied:
//!
//! - *Settled.* Nothing is added below the truncation's watermark any more. What has committed there is put into the
//!   store bit by bit, each key as it is at the watermark of that moment ([`Keys::settle`]).
//! - *Stored.* Everything that has committed below [`Keys::stored`] is in the store, and may leave memory.
//! - *Forgotten.* Deletes below a horizon are forgotten, and the horizon is appended to the log ([`Record::Forgotten`]). If
//!   a crash keeps the one and loses the other, the log still has the delete, or says that the key was copied. Older
//!   versions can't come back after that. A replay does not take them from the log ([`Keys::forget_memory`]). No message
//!   adds them, since no transaction below the watermark is open. And a replica that was away for longer takes over
//!   what this one holds.
//! - *Copied.* What another replica holds is complete below that replica's watermark. It replaces what is below the
//!   watermark here, and is merged with what is above ([`Keys::replace`]). Versions that were only in memory are removed
//!   when the copy is complete.
//!
//! [`Record::Forgotten`]: crate::morty::record::Record::Forgotten

use serried_actor::Store;
use serried_model::{Key, Value, Version};
use serried_parts::{Committed, Effect, Place, Pool, StoredVersions, WriteId};

use super::key_record::{KeyRecord, Notice};
use crate::morty::Crowds;
use crate::morty::message::{Contents, Read};

/// How many keys are examined to make room for one. If all of them are in use, memory holds more keys than it should.
const LOOKED_AT: usize = 4;

/// `vstore`.
#[derive(Debug)]
pub(super) struct Keys {
    records: Pool<Key, KeyRecord>,
    /// How many records there should be at most.
    at_most: usize,
    crowds: Crowds,
    /// Everything that was committed below this is in the store.
    stored: Version,
    /// Everything that was committed below this is here, in memory or in the store.
    settled: Version,
    /// Notices to readers that they would now find something else. Empty between events.
    notices: Vec<Notice>,
}

impl Keys {
    pub(super) fn new(at_most: usize, crowds: Crowds) -> Keys {
        let (stored, settled) = (Version::INITIAL, Version::INITIAL);
        let (records, notices) = (Pool::default(), Vec::new());
        Keys { records, at_most, crowds, stored, settled, notices }
    }

    /// Has the processor fetch the records of what a transaction uses from memory, together: see [`Pool::prefetch`].
    pub(super) fn prefetch(&self, contents: &Contents) {
        if contents.reads.len() + contents.writes.len() < 2 {
            return;
        }
        let keys = contents.reads.iter().map(|read| &read.key);
        let keys = keys.chain(contents.writes.iter().map(|write| &write.key));
        self.records.prefetch(keys, |record| u64::from(record.used));
    }

    /// A key's record, which may lack versions that are in the store.
    pub(super) fn touch(&mut self, key: &Key) -> &mut KeyRecord {
        let place = self.place(key);
        self.at(place).1
    }

    /// A key's record, including the versions in the store.
    pub(super) fn load(&mut self, key: &Key, store: &dyn Store) -> &mut KeyRecord {
        let place = self.loaded(key, store);
        self.at(place).1
    }

    /// The place of a key's record, which may lack versions that are in the store. The record stays there for as long as
    /// it is in use; see [`KeyRecord::is_idle`].
    pub(super) fn place(&mut self, key: &Key) -> Place {
        if self.records.len() >= self.at_most && !self.records.contains_key(key) {
            self.make_room();
        }
        let place = self.records.place_or_default(key);
        self.at(place).1.used = true;
        place
    }

    /// The place of a key's record, including the versions in the store.
    pub(super) fn loaded(&mut self, key: &Key, store: &dyn Store) -> Place {
        let place = self.place(key);
        let (key, record) = self.records.at_place(place);
        record.committed.load(key, store);
        place
    }

    /// The record in a place, all of whose versions are in memory. Those below the watermark are values now.
    pub(super) fn settled_at(&mut self, place: Place) -> &mut KeyRecord {
        let (_, record) = self.records.at_place(place);
        record.committed.execute_latest_before(self.settled);
        record
    }

    /// The record in a place, and its key.
    pub(super) fn at(&mut self, place: Place) -> (&Key, &mut KeyRecord) {
        self.records.at_place(place)
    }

    /// Adds an uncommitted write, as [`KeyRecord::add_write`] does.
    pub(super) fn add_write(
        &mut self,
        place: Place,
        written: (WriteId, Option<WriteId>),
        effect: &Effect,
    ) -> bool {
        let (key, record) = self.records.at_place(place);
        record.add_write(key, written, effect, &mut self.notices)
    }

    /// Withdraws a transaction's uncommitted write.
    pub(super) fn withdraw_write(&mut self, place: Place, version: Version) {
        let (key, record) = self.records.at_place(place);
        record.withdraw_write(key, version, &mut self.notices);
    }

    /// A transaction that has read a key has committed, as [`KeyRecord::commit_read`] says.
    pub(super) fn commit_read(
        &mut self,
        place: Place,
        read: &Read,
        reader: Version,
        settled_below: Version,
    ) {
        let crowds = self.crowds;
        self.at(place).1.commit_read(read, reader, settled_below, crowds);
    }

    /// Commits a write, which need not have been known before.
    pub(super) fn commit_write(&mut self, place: Place, id: WriteId, effect: &Effect) {
        let (key, record) = self.records.at_place(place);
        record.commit_write(key, id, effect, &mut self.notices);
    }

    /// A modification is committed, and the key has this value afterwards.
    pub(super) fn commit_result(&mut self, key: &Key, id: WriteId, value: &Option<Value>) {
        let place = self.place(key);
        let (key, record) = self.records.at_place(place);
        record.commit_result(key, id, value, &mut self.notices);
    }

    /// Adds a notice to a reader.
    pub(super) fn add_notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// Takes the notices that result from everything that has changed since the last call.
    pub(super) fn take_notices(&mut self) -> impl Iterator<Item = Notice> {
        self.notices.drain(..)
    }

    pub(super) fn forget_notices(&mut self) {
        self.notices.clear();
    }

    pub(super) fn have_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// A key's record, if it is in memory.
    #[cfg(test)]
    pub(super) fn get(&self, key: &Key) -> Option<&KeyRecord> {
        self.records.get(key)
    }

    /// How many keys are in memory.
    pub(super) fn resident(&self) -> usize {
        self.records.len()
    }

    /// Everything that was committed below this is in the store.
    pub(super) fn stored(&self) -> Version {
        self.stored
    }

    /// Notes that everything that was committed below `version` is in the store.
    pub(super) fn set_stored(&mut self, version: Version) {
        self.stored = version;
    }

    /// Notes that everything that was committed below `version` is here.
    pub(super) fn set_settled(&mut self, version: Version) {
        self.settled = version;
    }

    /// Puts what a key held at `watermark` into the store, and forgets what can't be read at `readable_from` or later.
    pub(super) fn settle(
        &mut self,
        key: &Key,
        watermark: Version,
        readable_from: Version,
        store: &mut dyn Store,
    ) {
        let record = self.touch(key);
        record.committed.settle(key, watermark, readable_from, store);
        record.committed_reads.forget_before(watermark);
    }

    /// Takes over the versions that another replica holds for a key. They are complete below `watermark`.
    pub(super) fn replace(
        &mut self,
        key: &Key,
        watermark: Version,
        others: Vec<Committed>,
        store: &mut dyn Store,
    ) {
        match self.records.get_mut(key) {
            Some(record) => record.committed.replace(key, watermark, others, store),
            None => StoredVersions::default().replace(key, watermark, others, store),
        }
    }

    /// Removes a key whose last write below `horizon` was a delete. The horizon must have been appended to the log.
    pub(super) fn forget_delete(&mut self, key: &Key, horizon: Version, store: &mut dyn Store) {
        self.touch(key).committed.forget_delete(key, horizon, store);
    }

    /// Forgets what memory holds of a key below `version`, where the store is complete.
    pub(super) fn forget_memory(&mut self, key: &Key, version: Version) {
        if let Some(record) = self.records.get_mut(key) {
            record.committed.forget_memory(version);
        }
    }

    /// Moves a record that is not in use out of memory, if one is found among the next [`LOOKED_AT`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::morty::Control;
    use crate::morty::message::Source;
    use crate::morty::replica::key_record::Missed;
    use serried_actor::MemoryStore;

    fn commit(keys: &mut Keys, key: &Key, at: u64, value: Option<&str>) {
        let id = WriteId { version: Version::at(at), tag: 1 };
        let effect = Effect::Put(value.map(Value::from));
        keys.touch(key).commit_write(key, id, &effect, &mut Vec::new());
    }

    #[test]
    fn what_does_not_fit_lies_in_the_store_and_comes_back() {
        let (mut keys, mut store) = (Keys::new(3, Crowds::USUAL), MemoryStore::default());
        let key = |i: u64| Key::from(i.to_be_bytes());
        for i in 0..100 {
            commit(&mut keys, &key(i), i + 1, Some("value"));
            keys.settle(&key(i), Version::at(i + 2), Version::at(i + 2), &mut store);
            keys.set_stored(Version::at(i + 2));
        }
        assert!(keys.resident() <= 5, "{}", keys.resident());
        for i in 0..100 {
            let found = keys.load(&key(i), &store).find(Version::at(1000)).source;
            assert_eq!(found.write.version, Version::at(i + 1));
        }
    }

    #[test]
    fn what_is_not_in_the_store_yet_stays_in_memory() {
        let (mut keys, store) = (Keys::new(1, Crowds::USUAL), MemoryStore::default());
        let (first, second) = (Key::from("first"), Key::from("second"));
        commit(&mut keys, &first, 5, Some("value"));
        for _ in 0..10 {
            keys.touch(&second);
        }
        let found = keys.load(&first, &store).find(Version::at(9)).source;
        assert_eq!(found.write.version, Version::at(5));
    }

    #[test]
    fn a_deleted_key_is_forgotten_once_everybody_knows() {
        let (mut keys, mut store) = (Keys::new(9, Crowds::USUAL), MemoryStore::default());
        let key = Key::from("key");
        commit(&mut keys, &key, 1, Some("value"));
        commit(&mut keys, &key, 2, None);
        keys.settle(&key, Version::at(5), Version::at(5), &mut store);
        assert!(store.get(b"key").is_some());
        keys.forget_delete(&key, Version::at(2), &mut store);
        assert!(store.get(b"key").is_some(), "not everybody knows yet");
        keys.forget_delete(&key, Version::at(3), &mut store);
        assert_eq!(store.get(b"key"), None);
        assert!(keys.get(&key).unwrap().committed.is_empty());
    }

    #[test]
    fn a_key_stays_in_memory_while_a_late_write_may_be_missed_by_its_readers() {
        let (mut keys, mut store) = (Keys::new(1, Crowds::USUAL), MemoryStore::default());
        let key = Key::from("key");
        commit(&mut keys, &key, 5, Some("value"));
        keys.settle(&key, Version::at(6), Version::at(6), &mut store);
        keys.set_stored(Version::at(6));
        let found = Source::from(WriteId { version: Version::at(5), tag: 1 });
        let place = keys.place(&key);
        let read = Read { key: key.clone(), found };
        keys.commit_read(place, &read, Version::at(20), Version::at(6));
        for i in 0..10 {
            keys.touch(&Key::from(format!("other {i}")));
        }
        let missed = keys.touch(&key).missed_write_of(Version::at(10), Control::Ordering);
        assert_eq!(missed, Some((Missed::ForGood, Version::at(20))));
    }
}
