//! What a replica keeps for each key, in memory, in its log and in its store.

use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serried_actor::Store;
use serried_model::Key;

use crate::{Place, Pool};

/// How many keys are looked at to make room for one. If all of them are in use, there are more keys in
/// memory than there should be.
const LOOKED_AT: usize = 4;

/// How the state of a key lies in a store.
pub fn encode_cell<S: Serialize>(state: &S) -> Vec<u8> {
    encode_cell_into(Vec::new(), state)
}

/// The same, behind what `bytes` has.
fn encode_cell_into<S: Serialize>(bytes: Vec<u8>, state: &S) -> Vec<u8> {
    postcard::to_extend(state, bytes).expect("nothing in it can fail to be encoded")
}

/// The reverse of [`encode_cell`].
///
/// # Panics
/// If it is not what that returned: a driver checks what it reads.
pub fn decode_cell<S: DeserializeOwned>(bytes: &[u8]) -> S {
    postcard::from_bytes(bytes).expect("the store returns what was put into it")
}

/// The same for bytes from a message. None if they are damaged.
pub fn decode_cell_of_another<S: DeserializeOwned>(bytes: &[u8]) -> Option<S> {
    postcard::from_bytes(bytes).ok()
}

#[derive(Debug, Default)]
struct Cell<S> {
    state: S,
    /// It is what lies in the store, or something later.
    loaded: bool,
    /// It is something later.
    unstored: bool,
    /// It was used since the last time that it could have made room.
    used: bool,
}

/// A replica's keys, each with a state. The keys in use are in memory, the others in the replica's store. Changes go to the
/// store later, many changes of a key as one. Until then they have to be in the log.
#[derive(Debug)]
pub struct Cells<S> {
    resident: Pool<Key, Cell<S>>,
    /// About how many keys stay in memory.
    at_most: usize,
    /// The keys that are not stored, in the order of the first record that each needs at most.
    unstored: VecDeque<(u64, Key)>,
    /// Room for an encoded state.
    buffer: Vec<u8>,
    /// Whether none is stored. Keys that were changed stay in memory then.
    keeps_all: bool,
}

impl<S: Default + Serialize + DeserializeOwned> Cells<S> {
    /// No keys yet. About `resident` keys stay in memory.
    pub fn new(resident: usize) -> Self {
        let (unstored, buffer) = (VecDeque::new(), Vec::new());
        Cells { resident: Pool::default(), at_most: resident, unstored, buffer, keeps_all: false }
    }

    /// From now on all keys that were ever changed stay in memory, and none is stored. For a store that has nothing yet, that
    /// ends with this run, and that no other replica copies: it would hold everything a second time. A key that was only
    /// read still makes room, but is found slowly among many others, so there are at most about as many of these as of
    /// the others.
    pub fn keep_all(&mut self) {
        self.keeps_all = true;
        self.unstored.clear();
    }

    /// The state of `key`.
    pub fn get(&mut self, key: &Key, store: &dyn Store) -> &S {
        let place = self.load(key, Some(store));
        &self.resident.at_place(place).1.state
    }

    /// Has the processor fetch the states of these keys, as far as they are in memory: see [`Pool::prefetch`].
    pub fn prefetch<'a>(
        &self,
        keys: impl Iterator<Item = &'a Key> + Clone,
        see: impl Fn(&S) -> u64,
    ) {
        self.resident.prefetch(keys, |cell| see(&cell.state));
    }

    /// The state of `key`, to change as the record at `position` of the log says, and later ones.
    pub fn change(&mut self, key: &Key, position: u64, store: &dyn Store) -> &mut S {
        self.change_loaded(key, position, Some(store))
    }

    /// The same for a key that the store does not have.
    pub fn add(&mut self, key: &Key, position: u64) -> &mut S {
        self.change_loaded(key, position, None)
    }

    fn change_loaded(&mut self, key: &Key, position: u64, store: Option<&dyn Store>) -> &mut S {
        if self.keeps_all {
            let place = self.load(key, None);
            let (_, cell) = self.resident.at_place(place);
            cell.unstored = true;
            return &mut cell.state;
        }
        // A late change is from shortly before, so few entries are touched.
        for (later, _) in self.unstored.iter_mut().rev().take_while(|(p, _)| *p > position) {
            *later = position;
        }
        let place = self.load(key, store);
        let (_, cell) = self.resident.at_place(place);
        if !core::mem::replace(&mut cell.unstored, true) {
            self.unstored.push_back((position, key.clone()));
        }
        &mut cell.state
    }

    /// Sets the state of `key`, in the store at once. No record is needed.
    pub fn put(&mut self, key: &Key, state: S, store: &mut dyn Store) {
        if !self.keeps_all {
            store.put(key.as_bytes(), Some(&encode_cell(&state)));
        }
        let place = self.load(key, None);
        let (_, cell) = self.resident.at_place(place);
        cell.state = state;
        cell.unstored |= self.keeps_all;
    }

    /// Removes `key`, in the store as well: its state is as if it had never been. No record is needed if one
    /// that is still to be replayed would remove it again.
    pub fn forget(&mut self, key: &Key, store: &mut dyn Store) {
        self.resident.remove(key);
        if !self.keeps_all {
            store.put(key.as_bytes(), None);
        }
    }

    /// Puts at most so many keys into the store. The keys with the oldest records come first.
    pub fn store_some(&mut self, at_most: usize, store: &mut dyn Store) {
        for _ in 0..at_most {
            let Some((_, key)) = self.unstored.pop_front() else { return };
            // It may have been forgotten.
            let Some(cell) = self.resident.get_mut(&key).filter(|cell| cell.unstored) else {
                continue;
            };
            cell.unstored = false;
            self.buffer.clear();
            self.buffer = encode_cell_into(core::mem::take(&mut self.buffer), &cell.state);
            store.put(key.as_bytes(), Some(&self.buffer));
        }
    }

    /// How many keys are not stored.
    pub fn unstored(&self) -> usize {
        self.unstored.len()
    }

    /// The keys that are not stored. One may occur several times.
    pub fn unstored_keys(&self) -> impl Iterator<Item = &Key> {
        self.unstored.iter().map(|(_, key)| key)
    }

    /// The position of the first record that is needed; none if all keys are stored.
    pub fn needs_log_from(&self) -> Option<u64> {
        self.unstored.front().map(|(position, _)| *position)
    }

    /// How many are in memory.
    pub fn resident(&self) -> usize {
        self.resident.len()
    }

    /// Brings `key` into memory. Without a store, its state is as if it had never been, unless it is in memory already.
    fn load(&mut self, key: &Key, store: Option<&dyn Store>) -> Place {
        if self.resident.len() >= self.at_most && !self.resident.contains_key(key) {
            self.make_room();
        }
        let place = self.resident.place_or_default(key);
        let (_, cell) = self.resident.at_place(place);
        cell.used = true;
        if !core::mem::replace(&mut cell.loaded, true)
            && !self.keeps_all
            && let Some(bytes) = store.and_then(|store| store.get(key.as_bytes()))
        {
            cell.state = decode_cell(&bytes);
        }
        place
    }

    /// Moves states that are not in use out of memory, if some are found soon.
    fn make_room(&mut self) {
        for _ in 0..LOOKED_AT {
            let Some((key, cell)) = self.resident.go_round() else { continue };
            if !core::mem::replace(&mut cell.used, false) && !cell.unstored {
                let key = key.clone();
                self.resident.remove(&key);
            }
            if self.resident.len() < self.at_most {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_actor::MemoryStore;

    fn key(number: u64) -> Key {
        Key::from(number.to_be_bytes())
    }

    #[test]
    fn no_change_is_lost_for_want_of_room() {
        let (mut cells, mut store) = (Cells::<u64>::new(4), MemoryStore::default());
        for round in 1..=3 {
            for number in 0..20 {
                *cells.change(&key(number), round * 100 + number, &store) += round;
            }
            cells.store_some(17, &mut store);
        }
        for number in 0..20 {
            assert_eq!(*cells.get(&key(number), &store), 6);
        }
        cells.store_some(100, &mut store);
        assert_eq!(cells.resident(), 20, "all were in use");
        for number in 0..200 {
            assert_eq!(*cells.get(&key(number % 40), &store), if number % 40 < 20 { 6 } else { 0 });
        }
        assert!(cells.resident() <= 16, "{}", cells.resident());
    }

    #[test]
    fn where_all_keys_are_kept_none_is_stored_and_nothing_is_lost_or_heaped_up() {
        let (mut cells, mut store) = (Cells::<u64>::new(4), MemoryStore::default());
        cells.keep_all();
        for number in 0..20 {
            *cells.change(&key(number), number, &store) += number;
            *cells.add(&key(number), number) += 1;
        }
        cells.put(&key(20), 21, &mut store);
        cells.forget(&key(7), &mut store);
        cells.store_some(100, &mut store);
        assert_eq!((cells.unstored(), cells.needs_log_from()), (0, None));
        assert!(!store.scan(None, 1, &mut |_, _| panic!("something is stored")));
        assert_eq!(cells.resident(), 20);
        for number in (0..21).filter(|number| *number != 7) {
            assert_eq!(*cells.get(&key(number), &store), number + 1);
        }
        assert_eq!(*cells.get(&key(7), &store), 0);
        (100..2000).for_each(|number| assert_eq!(*cells.get(&key(number), &store), 0));
        assert!(cells.resident() < 40, "keys that are not there make room: {}", cells.resident());
        assert_eq!(*cells.get(&key(3), &store), 4);
        assert_eq!(*cells.get(&key(20), &store), 21, "what was put is kept, too");
    }

    #[test]
    fn what_is_added_is_stored_and_found_again() {
        let (mut cells, mut store) = (Cells::<u64>::new(4), MemoryStore::default());
        for number in 0..20 {
            *cells.add(&key(number), number) += 1;
            *cells.add(&key(number), 100 + number) += 1;
            assert_eq!(cells.needs_log_from(), Some(number), "as much as a change");
            cells.store_some(1, &mut store);
        }
        for number in 0..20 {
            assert_eq!(*cells.change(&key(number), 200 + number, &store), 2);
        }
    }

    #[test]
    fn the_log_is_needed_from_the_first_change_that_is_not_stored() {
        let (mut cells, mut store) = (Cells::<u64>::new(9), MemoryStore::default());
        assert_eq!(cells.needs_log_from(), None);
        *cells.change(&key(1), 10, &store) = 1;
        *cells.change(&key(2), 11, &store) = 1;
        *cells.change(&key(1), 12, &store) = 2;
        assert_eq!((cells.needs_log_from(), cells.unstored()), (Some(10), 2));
        cells.store_some(1, &mut store);
        assert_eq!(cells.needs_log_from(), Some(11));
        *cells.change(&key(1), 13, &store) = 3;
        cells.store_some(1, &mut store);
        assert_eq!(cells.needs_log_from(), Some(13));
        assert_eq!(decode_cell::<u64>(&store.get(key(1).as_bytes()).unwrap()), 2);
    }

    #[test]
    fn what_was_forgotten_is_not_stored_unless_it_comes_again() {
        let (mut cells, mut store) = (Cells::<u64>::new(9), MemoryStore::default());
        *cells.change(&key(1), 10, &store) = 1;
        cells.store_some(1, &mut store);
        *cells.change(&key(1), 11, &store) = 2;
        *cells.change(&key(2), 12, &store) = 2;
        cells.forget(&key(1), &mut store);
        cells.forget(&key(2), &mut store);
        assert_eq!(*cells.get(&key(1), &store), 0);
        *cells.change(&key(2), 13, &store) += 5;
        cells.store_some(9, &mut store);
        assert_eq!(store.get(key(1).as_bytes()), None);
        assert_eq!(decode_cell::<u64>(&store.get(key(2).as_bytes()).unwrap()), 5);
        assert_eq!((*cells.get(&key(1), &store), cells.needs_log_from()), (0, None));
    }

    #[test]
    fn a_change_that_an_older_record_tells_of_keeps_that() {
        let (mut cells, mut store) = (Cells::<u64>::new(9), MemoryStore::default());
        *cells.change(&key(1), 10, &store) = 1;
        *cells.change(&key(2), 20, &store) = 1;
        *cells.change(&key(3), 30, &store) = 1;
        *cells.change(&key(2), 15, &store) = 2;
        let mut needed = Vec::new();
        while let Some(position) = cells.needs_log_from() {
            needed.push(position);
            cells.store_some(1, &mut store);
        }
        assert_eq!(needed, [10, 15, 15]);
    }
}
