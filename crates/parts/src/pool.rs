//! A hash map for a great many values.

use core::fmt;
use core::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// How many places are allocated at once.
const CHUNK: usize = 256;

/// A hash map whose values stay where they are while it grows, so that no single insertion takes long:
/// it has an index of eight bytes a value, and that alone is moved. Like [`crate::Map`] it can't be
/// iterated, but [`Pool::go_round`] goes round it, in an order that depends on its history alone.
pub struct Pool<K, V> {
    index: HashTable<Entry>,
    /// Chunks of places; all but the last are full.
    chunks: Vec<Vec<Option<(K, V)>>>,
    free: Vec<u32>,
    /// Where [`Pool::go_round`] goes on.
    hand: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    place: u32,
}

impl Entry {
    /// A table takes its bits from both ends.
    fn hash(&self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.hash)
    }
}

impl<K, V> Default for Pool<K, V> {
    fn default() -> Self {
        Pool { index: HashTable::new(), chunks: Vec::new(), free: Vec::new(), hand: 0 }
    }
}

impl<K: Eq + Hash, V> Pool<K, V> {
    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        let place = self.find(key)?;
        self.at(place).as_ref().map(|(_, value)| value)
    }

    /// The value of `key`, to change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.find(key)?;
        self.at_mut(place).as_mut().map(|(_, value)| value)
    }

    /// Whether `key` is in it.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// The value of `key`, which is put there if there is none; `key` is cloned only then.
    ///
    /// # Panics
    /// If there are 2³² values.
    pub fn get_or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        let place = self.find(key).unwrap_or_else(|| self.add(key.clone(), V::default()));
        let (_, value) = self.at_mut(place).as_mut().expect("a place in the index is taken");
        value
    }

    /// Removes `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let hash = hash(key);
        let Pool { index, chunks, .. } = self;
        let taken = |entry: &Entry| entry.hash == hash.hash && holds(chunks, entry.place, key);
        let found = index.find_entry(hash.hash(), taken).ok()?;
        let place = found.remove().0.place;
        self.free.push(place);
        self.at_mut(place).take().map(|(_, value)| value)
    }

    /// How many keys are in it.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The next of its keys, going round and round, with its value. All are passed in as many calls as
    /// there have ever been at a time; a call that comes to a place that is free returns none.
    pub fn go_round(&mut self) -> Option<(&K, &mut V)> {
        let places =
            self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len());
        let place = if self.hand < places { self.hand } else { 0 };
        self.hand = place + 1;
        let (key, value) = self.chunks.get_mut(place / CHUNK)?[place % CHUNK].as_mut()?;
        Some((key, value))
    }

    fn find(&self, key: &K) -> Option<u32> {
        let hash = hash(key);
        let taken =
            |entry: &Entry| entry.hash == hash.hash && holds(&self.chunks, entry.place, key);
        self.index.find(hash.hash(), taken).map(|entry| entry.place)
    }

    fn add(&mut self, key: K, value: V) -> u32 {
        let mut entry = hash(&key);
        entry.place = match self.free.pop() {
            Some(place) => {
                *self.at_mut(place) = Some((key, value));
                place
            }
            None => {
                if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
                    self.chunks.push(Vec::with_capacity(CHUNK));
                }
                let full = self.chunks.len() - 1;
                let last = &mut self.chunks[full];
                last.push(Some((key, value)));
                u32::try_from(full * CHUNK + last.len() - 1).expect("fewer than 2^32 places")
            }
        };
        self.index.insert_unique(entry.hash(), entry, Entry::hash);
        entry.place
    }

    fn at(&self, place: u32) -> &Option<(K, V)> {
        let place = place as usize;
        &self.chunks[place / CHUNK][place % CHUNK]
    }

    fn at_mut(&mut self, place: u32) -> &mut Option<(K, V)> {
        let place = place as usize;
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }
}

/// Whether `key` is what lies in a place.
fn holds<K: Eq, V>(chunks: &[Vec<Option<(K, V)>>], place: u32, key: &K) -> bool {
    let place = place as usize;
    chunks[place / CHUNK][place % CHUNK].as_ref().is_some_and(|(other, _)| other == key)
}

/// An entry for `key` that has no place yet.
fn hash<K: Hash>(key: &K) -> Entry {
    let hash = FixedState::default().hash_one(key);
    Entry { hash: (hash >> 32) as u32 ^ hash as u32, place: 0 }
}

impl<K, V> fmt::Debug for Pool<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool of {}", self.index.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_holds_what_a_map_holds() {
        let (mut pool, mut map) = (Pool::<u64, u64>::default(), BTreeMap::new());
        let mut state = 1u64;
        for round in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = state >> 54;
            if state & 0x300000 == 0 {
                assert_eq!(pool.remove(&key), map.remove(&key));
            } else {
                *pool.get_or_default(&key) += round;
                *map.entry(key).or_default() += round;
            }
            assert_eq!((pool.len(), pool.is_empty()), (map.len(), map.is_empty()));
        }
        for key in 0..1024 {
            assert_eq!(pool.get(&key), map.get(&key));
            assert_eq!(pool.get_mut(&key), map.get_mut(&key));
            assert_eq!(pool.contains_key(&key), map.contains_key(&key));
        }
    }

    #[test]
    fn going_round_passes_each_once_and_free_places_are_taken_again() {
        let mut pool = Pool::<u64, ()>::default();
        assert!(pool.go_round().is_none());
        (0..1000).for_each(|key| *pool.get_or_default(&key) = ());
        for key in (0..1000).step_by(3) {
            assert_eq!(pool.remove(&key), Some(()));
        }
        let mut seen: Vec<u64> =
            (0..1000).filter_map(|_| pool.go_round().map(|(key, _)| *key)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).filter(|key| key % 3 > 0).collect::<Vec<_>>());
        (1000..1300).for_each(|key| *pool.get_or_default(&key) = ());
        assert_eq!(pool.chunks.len(), 1000usize.div_ceil(CHUNK));
    }
}
