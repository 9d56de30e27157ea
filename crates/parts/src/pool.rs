//! A hash map for a great many values.

use core::fmt;
use core::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;

/// How many places are allocated at once.
const CHUNK: usize = 1024;

/// A hash map whose values stay in place while it grows, so that no single insertion takes long. Only its index is moved,
/// which has eight bytes for each value. A look-up misses the cache at most twice: for the index and for the value. Like
/// [`crate::Map`] it can't be iterated. But [`Pool::go_round`] goes round it, in an order that depends only on its history.
pub struct Pool<K, V> {
    /// Open addressing with linear probing; its length is a power of two.
    index: Vec<Entry>,
    len: usize,
    /// Chunks of places; all but the last are full.
    chunks: Vec<Vec<Option<(K, V)>>>,
    free: Vec<u32>,
    /// Where [`Pool::go_round`] goes on.
    hand: usize,
}

/// Where a key is in a [`Pool`], until it is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u32);

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    place: u32,
}

impl Entry {
    const EMPTY: Entry = Entry { hash: 0, place: u32::MAX };

    fn is_empty(&self) -> bool {
        self.place == u32::MAX
    }
}

impl<K, V> Default for Pool<K, V> {
    fn default() -> Self {
        Pool { index: Vec::new(), len: 0, chunks: Vec::new(), free: Vec::new(), hand: 0 }
    }
}

impl<K: Eq + Hash, V> Pool<K, V> {
    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (_, place) = self.find(key)?;
        self.at(place).as_ref().map(|(_, value)| value)
    }

    /// The value of `key`, to change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (_, place) = self.find(key)?;
        self.at_mut(place).as_mut().map(|(_, value)| value)
    }

    /// Whether `key` is in it.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// Has the processor fetch the values of these keys from memory, together. Each later look-up would otherwise wait for
    /// them alone. `see` reads what will be needed of a value, and returns anything that depends on it.
    pub fn prefetch<'a>(&self, keys: impl Iterator<Item = &'a K> + Clone, see: impl Fn(&V) -> u64)
    where
        K: 'a,
    {
        let Some(mask) = self.index.len().checked_sub(1) else { return };
        // Nobody needs the results. `black_box` has the compiler keep the reads that they need.
        let index = |all: u32, key: &K| all ^ self.index[hash(key) as usize & mask].place;
        core::hint::black_box(keys.clone().fold(0, index));
        let value = |all: u64, key: &K| {
            let found = self.probe(hash(key), |_| true);
            let value = found.and_then(|(_, place)| self.at(place).as_ref());
            all ^ value.map_or(0, |(_, value)| see(value))
        };
        core::hint::black_box(keys.fold(0, value));
    }

    /// The value of `key`. If there is none, a default value is inserted. `key` is cloned only then.
    ///
    /// # Panics
    /// If there are 2³² - 1 values.
    pub fn get_or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        let place = self.place_or_default(key);
        self.at_place(place).1
    }

    /// The place of `key`. If it has none, a default value is inserted, as [`Pool::get_or_default`] does.
    ///
    /// # Panics
    /// If there are 2³² - 1 values.
    pub fn place_or_default(&mut self, key: &K) -> Place
    where
        K: Clone,
        V: Default,
    {
        Place(match self.find(key) {
            Some((_, place)) => place,
            None => self.add(key.clone(), V::default()),
        })
    }

    /// What is in a place, without a look-up.
    ///
    /// # Panics
    /// If the key was removed, and no other has come there.
    pub fn at_place(&mut self, place: Place) -> (&K, &mut V) {
        let (key, value) = self.at_mut(place.0).as_mut().expect("a key that was not removed");
        (key, value)
    }

    /// Removes `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (slot, place) = self.find(key)?;
        self.close_gap(slot);
        self.len -= 1;
        self.free.push(place);
        self.at_mut(place).take().map(|(_, value)| value)
    }

    /// How many keys are in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The next key with its value, going round and round. A round takes as many calls as there have ever been keys at once. A
    /// call that comes to a free place returns none.
    pub fn go_round(&mut self) -> Option<(&K, &mut V)> {
        let places =
            self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len());
        let place = if self.hand < places { self.hand } else { 0 };
        self.hand = place + 1;
        let (key, value) = self.chunks.get_mut(place / CHUNK)?[place % CHUNK].as_mut()?;
        Some((key, value))
    }

    /// Where `key` is in the index, and its place.
    fn find(&self, key: &K) -> Option<(usize, u32)> {
        self.probe(hash(key), |place| self.at(place).as_ref().is_some_and(|(k, _)| k == key))
    }

    /// The first entry with this hash whose place `is_it` accepts: where it is in the index, and its place.
    fn probe(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let mask = self.index.len().checked_sub(1)?;
        let mut slot = hash as usize & mask;
        loop {
            let entry = self.index[slot];
            if entry.is_empty() {
                return None;
            }
            if entry.hash == hash && is_it(entry.place) {
                return Some((slot, entry.place));
            }
            slot = (slot + 1) & mask;
        }
    }

    fn add(&mut self, key: K, value: V) -> u32 {
        if self.len >= self.index.len() / 3 * 2 {
            self.grow();
        }
        let hash = hash(&key);
        let place = match self.free.pop() {
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
                let place = full * CHUNK + last.len() - 1;
                u32::try_from(place).ok().filter(|place| *place < u32::MAX).expect("a place")
            }
        };
        self.enter(Entry { hash, place });
        self.len += 1;
        place
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

impl<K, V> Pool<K, V> {
    /// Puts an entry into the first free slot from its own on.
    fn enter(&mut self, entry: Entry) {
        let mask = self.index.len() - 1;
        let mut slot = entry.hash as usize & mask;
        while !self.index[slot].is_empty() {
            slot = (slot + 1) & mask;
        }
        self.index[slot] = entry;
    }

    fn grow(&mut self) {
        let larger = vec![Entry::EMPTY; (self.index.len() * 2).max(16)];
        let entries = core::mem::replace(&mut self.index, larger);
        entries.into_iter().filter(|entry| !entry.is_empty()).for_each(|entry| self.enter(entry));
    }

    /// Empties a slot, and moves up those behind it that would not be found any more.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.index.len() - 1;
        let mut slot = gap;
        loop {
            slot = (slot + 1) & mask;
            let entry = self.index[slot];
            if entry.is_empty() {
                break;
            }
            // How far it is from where it would be best, and how far it would be.
            let from_home = |slot: usize| slot.wrapping_sub(entry.hash as usize) & mask;
            if from_home(gap) < from_home(slot) {
                self.index[gap] = entry;
                gap = slot;
            }
        }
        self.index[gap] = Entry::EMPTY;
    }
}

fn hash<K: Hash>(key: &K) -> u32 {
    let hash = FixedState::default().hash_one(key);
    (hash >> 32) as u32 ^ hash as u32
}

impl<K, V> fmt::Debug for Pool<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool of {}", self.len)
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
    fn prefetching_sees_values_and_changes_nothing() {
        let mut pool = Pool::<u64, u64>::default();
        pool.prefetch([1].iter(), |_| panic!("there is none"));
        (0..5000).for_each(|key| *pool.get_or_default(&key) = key);
        let (keys, seen): (Vec<u64>, _) = ((4000..6000).collect(), core::cell::Cell::new(0));
        pool.prefetch(keys.iter(), |value| {
            seen.set(seen.get() + 1);
            *value
        });
        assert!((1000..1010).contains(&seen.get()), "those that are there: {}", seen.get());
        assert!((0..5000).all(|key| pool.get(&key) == Some(&key)) && pool.len() == 5000);
    }

    #[test]
    fn going_round_passes_each_once_and_free_places_are_taken_again() {
        let mut pool = Pool::<u64, ()>::default();
        assert!(pool.go_round().is_none());
        (0..3000).for_each(|key| *pool.get_or_default(&key) = ());
        for key in (0..3000).step_by(3) {
            assert_eq!(pool.remove(&key), Some(()));
        }
        let mut seen: Vec<u64> =
            (0..3000).filter_map(|_| pool.go_round().map(|(key, _)| *key)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..3000).filter(|key| key % 3 > 0).collect::<Vec<_>>());
        (3000..4000).for_each(|key| *pool.get_or_default(&key) = ());
        assert_eq!(pool.chunks.len(), 3000usize.div_ceil(CHUNK));
    }
}
