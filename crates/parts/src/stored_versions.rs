//! The committed versions of one key: in memory, in a store, and on their way to another replica.

use core::ops::Deref;

use serried_actor::Store;
use serried_model::{Key, Modification, Value, Version};

use crate::{Committed, Effect, ReadMarks, Versions, WriteId};

/// The committed versions of one key. This owns those in memory and those in the store, and is the only way from one to
/// the other.
///
/// - *The store is merged into, never overwritten.* Versions that are in the store are loaded before others are put there,
///   and both are kept. A version leaves the store only if a later one has replaced it, if it is a delete that may be
///   forgotten, or if another replica's state replaces it ([`StoredVersions::replace`]).
/// - *Below a watermark state is replaced, above it is merged.* What another replica holds is complete below its
///   watermark, and says nothing about what lies above.
/// - *What a modification rests on is there.* Versions are forgotten only below one that is a value. So
///   [`StoredVersions::settle`], which knows everything below a watermark, replaces the first modification that stays there by its
///   result.
/// - *A delete is a version* until it is forgotten ([`StoredVersions::forget_delete`]). The owner ensures that no older
///   version is added after that, from its log, from memory or by a message.
#[derive(Debug, Default)]
pub struct StoredVersions {
    /// The versions in memory. If `loaded`, these are all versions of the key.
    versions: Versions,
    loaded: bool,
    /// The watermark of the last [`StoredVersions::settle`], in microseconds.
    stored: u64,
    /// When the latest version in the store was written, in microseconds of version time, as far as that is known.
    in_store: u64,
    /// Some of the versions may be modifications.
    may_modify: bool,
}

/// Encodes the versions of a key for a store. They must be in ascending order.
///
/// They are a list of writes with their values. If there are modifications, or results of some, a second list follows: their places
/// in the first, with the modifications, of which a result has none.
pub fn encode_versions(versions: &[Committed]) -> Vec<u8> {
    const FITS: &str = "nothing in it can fail to be encoded";
    let write = |committed: &Committed| (committed.id, committed.effect.value().flatten().cloned());
    let values: Vec<(WriteId, Option<Value>)> = versions.iter().map(write).collect();
    let bytes = postcard::to_allocvec(&values).expect(FITS);
    let is_modified =
        |(_, committed): &(usize, &Committed)| !matches!(committed.effect, Effect::Put(_));
    let modified = versions.iter().enumerate().filter(is_modified);
    let modified: Vec<(u32, &[Modification])> =
        modified.map(|(i, committed)| (i as u32, committed.effect.modifications())).collect();
    match modified.is_empty() {
        true => bytes,
        false => postcard::to_extend(&modified, bytes).expect(FITS),
    }
}

/// Decodes what [`encode_versions`] has returned. No bytes are no versions. `None` if the bytes are anything else.
pub fn try_decode_versions(bytes: &[u8]) -> Option<Vec<Committed>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let (values, rest): (Vec<(WriteId, Option<Value>)>, _) =
        postcard::take_from_bytes(bytes).ok()?;
    let put = |(id, value)| Committed::put(id, value);
    let mut versions: Vec<Committed> = values.into_iter().map(put).collect();
    if !rest.is_empty() {
        let (modified, _): (Vec<(u32, Vec<Modification>)>, _) =
            postcard::take_from_bytes(rest).ok()?;
        for (i, modifications) in modified {
            let effect = &mut versions.get_mut(i as usize)?.effect;
            *effect = match modifications.is_empty() {
                true => Effect::Result(effect.value()?.cloned()),
                false => Effect::Modify(modifications.into()),
            };
        }
    }
    Some(versions)
}

/// Decodes what a store has returned, as [`try_decode_versions`] does.
///
/// # Panics
/// If the bytes are anything else. Drivers check what they read from a disk.
pub fn decode_versions(bytes: &[u8]) -> Vec<Committed> {
    try_decode_versions(bytes).expect("the store returns what was put into it")
}

/// When the latest of these was written, in microseconds of version time.
fn latest_us(versions: &[Committed]) -> u64 {
    versions.last().map_or(0, |latest| latest.id.version.timestamp_us)
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
        self.may_modify |= committed.effect.value().is_none();
        self.versions.insert(committed)
    }

    fn add(&mut self, versions: Vec<Committed>) {
        for committed in versions {
            self.insert(committed);
        }
    }

    /// Whether some of the versions may be modifications.
    pub fn may_modify(&self) -> bool {
        self.may_modify
    }

    /// Adds the versions in the store to those in memory, unless that was done.
    pub fn load(&mut self, key: &Key, store: &dyn Store) {
        if !core::mem::replace(&mut self.loaded, true)
            && let Some(bytes) = store.get(key.as_bytes())
        {
            let versions = decode_versions(&bytes);
            self.in_store = latest_us(&versions);
            self.add(versions);
        }
    }

    /// Whether these are all versions of the key, so that modifications can be executed.
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Replaces the latest version below `watermark` by its result, if it is a modification. Everything below it must have been
    /// added, and the versions in the store loaded.
    pub fn execute_latest_before(&mut self, watermark: Version) {
        debug_assert!(self.loaded, "modifications of what is not in memory");
        if self.may_modify {
            self.versions.execute_latest_before(watermark);
        }
    }

    /// Replaces the last of `modified` by its result, as [`Versions::execute_named`] does, if all versions are in memory.
    pub fn execute_named(
        &mut self,
        write: WriteId,
        modified: &[WriteId],
        many: usize,
        sealed: &ReadMarks,
    ) -> bool {
        self.loaded && self.versions.execute_named(write, modified, many, sealed)
    }

    /// Puts into the store what the key holds below `watermark`, unless that was done. Forgets versions that no read at
    /// `readable_from` or later can find. Versions above the watermark that are in the store stay there, and a result above it comes
    /// there if what it rests on is forgotten.
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
        self.versions.execute_latest_before(readable_from.min(watermark));
        self.versions.forget_before(readable_from);
        self.versions.execute_latest_before(watermark);
        let all = self.versions.all();
        // What a result rests on may have been forgotten just now, and a log has only the modification.
        if let Some(Committed { id, effect: Effect::Result(_) }) = all.first() {
            self.in_store = self.in_store.max(id.version.timestamp_us);
        }
        let kept = all.partition_point(|it| {
            it.id.version < watermark || it.id.version.timestamp_us <= self.in_store
        });
        put(key, &all[..kept], store);
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
            && only.effect.is_delete()
            && only.id.version < watermark
        {
            self.versions.forget_all_before(watermark);
        }
        let all = self.versions.all();
        self.in_store = latest_us(all);
        put(key, all, store);
    }

    /// Forgets the key's only version below `below`, if it is a delete. Afterwards the key looks as if it had never been
    /// written there. The caller must not add older versions any more.
    pub fn forget_delete(&mut self, key: &Key, below: Version, store: &mut dyn Store) {
        self.load(key, store);
        let [only] = self.versions.before(below) else { return };
        if !only.effect.is_delete() {
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
        Committed::put(id, value.map(Value::from))
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

    fn add(at: u64, delta: i64) -> Committed {
        let effect = Effect::Modify([Modification::add(delta)].into());
        Committed { id: WriteId { version: Version::at(at), tag: 1 }, effect }
    }

    #[test]
    fn modifications_come_out_of_a_store_as_they_went_in() {
        let result = Committed { effect: Effect::Result(None), ..value(6) };
        for versions in
            [vec![add(3, 1)], vec![value(2), add(3, 1), version(4, None), add(5, -7), result]]
        {
            let bytes = encode_versions(&versions);
            assert_eq!(decode_versions(&bytes), versions);
            assert!((1..bytes.len()).all(|end| {
                try_decode_versions(&bytes[..end]).is_none_or(|decoded| decoded != versions)
            }));
        }
    }

    #[test]
    fn a_result_is_in_the_store_before_what_it_rests_on_is_forgotten() {
        let (adds, later) = ([add(25, 1), add(30, 1)], add(35, 1));
        for follows in [&[][..], &[later]] {
            let in_memory = [&adds, follows].concat();
            let (mut versions, mut store) = key_with(&[version(10, Some("5"))], &in_memory);
            versions.load(&key(), &store);
            let ids = adds.each_ref().map(|add| add.id);
            versions.execute_named(version(10, None).id, &ids, 100, &ReadMarks::default());
            versions.settle(&key(), Version::at(20), Version::at(40), &mut store);
            let mut replayed = StoredVersions::default();
            replayed.add(in_memory);
            replayed.load(&key(), &store);
            let (_, value) = replayed.value_at(Version::at(99)).expect("a version");
            let expected = if follows.is_empty() { "7" } else { "8" };
            assert_eq!(value, Some(Value::from(expected)));
        }
    }

    #[test]
    fn a_later_version_in_the_store_stays_there_behind_a_result() {
        let adds = [add(25, 1), add(30, 1)];
        let stored = [version(10, Some("5")), value(45)];
        let (mut versions, mut store) = key_with(&stored, &adds);
        versions.load(&key(), &store);
        let ids = adds.each_ref().map(|add| add.id);
        versions.execute_named(version(10, None).id, &ids, 100, &ReadMarks::default());
        versions.settle(&key(), Version::at(20), Version::at(40), &mut store);
        assert_eq!(held(&mut versions, &store), [vec![30, 45], vec![30, 45]]);
    }

    #[test]
    fn settled_modifications_are_values_in_the_store() {
        let stored = [version(5, Some("10"))];
        let (mut versions, mut store) = key_with(&stored, &[add(7, 1), add(9, 2), add(12, 4)]);
        versions.settle(&key(), Version::at(10), Version::at(8), &mut store);
        let result = |at, value: &str| {
            let effect = Effect::Result(Some(Value::from(value)));
            Committed { effect, ..version(at, None) }
        };
        let bytes = store.get(b"key").unwrap();
        assert_eq!(decode_versions(&bytes), [result(7, "11"), result(9, "13")]);
        assert_eq!(versions.latest(), Some(&add(12, 4)));
        // A replay of the log has the modifications, and perhaps not what they rest on.
        let mut replayed = StoredVersions::default();
        replayed.add(vec![add(9, 2), add(12, 4)]);
        replayed.load(&key(), &store);
        replayed.execute_latest_before(Version::at(99));
        assert_eq!(replayed.latest(), Some(&result(12, "17")));
    }

    #[test]
    fn a_later_version_that_was_copied_into_the_store_stays_there() {
        let (mut versions, mut store) = key_with(&[], &[add(25, 1), add(30, 1)]);
        versions.replace(&key(), Version::at(20), vec![value(35)], &mut store);
        versions.settle(&key(), Version::at(32), Version::at(40), &mut store);
        assert_eq!(held(&mut versions, &store), [vec![35], vec![35]]);
    }

    #[test]
    fn a_later_version_that_lay_in_the_store_stays_there() {
        let (mut versions, mut store) = key_with(&[value(5), value(35)], &[]);
        versions.settle(&key(), Version::at(20), Version::at(20), &mut store);
        assert_eq!(held(&mut versions, &store), [vec![5, 35], vec![5, 35]]);
    }

    #[test]
    fn bytes_that_no_versions_have_are_not_decoded() {
        let beyond = vec![(7u32, Vec::<Modification>::new())];
        let bytes = postcard::to_extend(&beyond, encode_versions(&[value(2)])).unwrap();
        assert_eq!(try_decode_versions(&bytes), None);
    }

    #[test]
    fn what_is_readable_only_from_later_on_does_not_make_it_forget_what_a_modification_rests_on() {
        let (mut versions, mut store) = key_with(&[version(10, Some("5"))], &[add(25, 1)]);
        versions.settle(&key(), Version::at(20), Version::at(40), &mut store);
        assert_eq!(held(&mut versions, &store), [vec![10], vec![10, 25]]);
        versions.settle(&key(), Version::at(30), Version::at(40), &mut store);
        assert_eq!(versions.value_at(Version::at(99)).unwrap().1, Some(Value::from("6")));
    }

    #[test]
    fn what_memory_forgets_is_found_in_the_store() {
        let (mut versions, store) = key_with(&[value(7)], &[value(3), value(20)]);
        versions.load(&key(), &store);
        versions.forget_memory(Version::at(10));
        assert_eq!(held(&mut versions, &store), [vec![7], vec![7, 20]]);
    }
}
