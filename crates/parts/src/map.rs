//! A hash map that is gone through in its keys' order, or not at all.

#![expect(
    clippy::disallowed_types,
    reason = "it is wrapped so that it can't be iterated in its own order"
)]

use core::fmt;
use core::hash::Hash;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;

/// A hash map for protocols. It can't be iterated in an arbitrary order, so nothing that a protocol does can depend on one.
/// If an order is often needed, there is `BTreeMap`.
pub struct Map<K, V>(HashMap<K, V, FixedState>);

impl<K: Eq + Hash, V> Map<K, V> {
    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// The value of `key`, to change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Whether `key` is in it.
    pub fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Sets the value of `key`, and returns the old one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Removes all keys, and keeps the room for as many.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The value of `key`. If there is none, a default value is inserted. `key` is cloned only then.
    pub fn get_or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        match self.0.entry_ref(key) {
            EntryRef::Occupied(entry) => entry.into_mut(),
            EntryRef::Vacant(entry) => entry.insert_with_key(key.clone(), V::default()),
        }
    }

    /// The keys in their order. This takes time in proportion to the map.
    pub fn sorted_keys(&self) -> Vec<K>
    where
        K: Ord + Clone,
    {
        let mut keys: Vec<K> = self.0.keys().cloned().collect();
        keys.sort_unstable();
        keys
    }

    /// Removes the keys whose values `keep` refuses. It must not matter in which order it is asked.
    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.0.retain(|_, value| keep(value));
    }

    /// The least result of `of` for the values. This takes time in proportion to the map.
    pub fn least<T: Ord>(&self, of: impl Fn(&V) -> T) -> Option<T> {
        self.0.values().map(of).min()
    }

    /// How many keys are in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Map(HashMap::with_hasher(FixedState::default()))
    }
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map of {}", self.0.len())
    }
}
