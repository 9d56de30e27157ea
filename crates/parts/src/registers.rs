//! Registers: keys with a value and its carstamp, as a replica keeps them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serried_actor::Store;
use serried_model::{Carstamp, Key, Value};

use crate::Pool;

/// How many keys are looked at to make room for one. If all of them are in use, there are more keys in
/// memory than there should be.
const LOOKED_AT: usize = 4;

/// What a key holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stamped {
    /// The value, or `None` where it is absent.
    pub value: Option<Value>,
    /// The place of the update that it is from.
    pub carstamp: Carstamp,
}

impl Stamped {
    /// How it lies in a store.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("nothing in it can fail to be encoded")
    }

    /// The reverse of [`Stamped::encode`].
    ///
    /// # Panics
    /// If it is not what that returned: a driver checks what it reads.
    pub fn decode(bytes: &[u8]) -> Stamped {
        postcard::from_bytes(bytes).expect("the store returns what was put into it")
    }
}

#[derive(Debug, Default)]
struct Register {
    holds: Stamped,
    /// It holds what lies in the store, or something later.
    loaded: bool,
    /// It holds something later.
    unstored: bool,
    /// It was looked at since it was last to make room.
    used: bool,
}

/// A replica's registers. Those in use are in memory, the others in its store. What is applied goes to
/// the store later, many updates of a key as one; until then it has to be in the log.
#[derive(Debug)]
pub struct Registers {
    resident: Pool<Key, Register>,
    /// How many there are to be in memory.
    at_most: usize,
    /// The keys that are not stored, in the order of the first record that each needs.
    unstored: VecDeque<(u64, Key)>,
}

impl Registers {
    /// None yet; about `resident` are to be in memory.
    pub fn new(resident: usize) -> Registers {
        Registers { resident: Pool::default(), at_most: resident, unstored: VecDeque::new() }
    }

    /// What `key` holds.
    pub fn get(&mut self, key: &Key, store: &dyn Store) -> &Stamped {
        &self.load(key, store).holds
    }

    /// Has `key` hold `stamped` if that is later than what it holds; whether it was. The record that
    /// says so is at `position` of the log.
    pub fn apply(&mut self, key: &Key, stamped: Stamped, position: u64, store: &dyn Store) -> bool {
        let register = self.load(key, store);
        if stamped.carstamp <= register.holds.carstamp {
            return false;
        }
        register.holds = stamped;
        if !core::mem::replace(&mut register.unstored, true) {
            self.unstored.push_back((position, key.clone()));
        }
        true
    }

    /// The same, and puts it into the store at once: no record is needed.
    pub fn put(&mut self, key: &Key, stamped: Stamped, store: &mut dyn Store) -> bool {
        let register = self.load(key, store);
        let later = stamped.carstamp > register.holds.carstamp;
        if later {
            register.holds = stamped;
            store.put(key.as_bytes(), Some(&register.holds.encode()));
        }
        later
    }

    /// Puts `at_most` keys into the store, those first whose records are the oldest.
    pub fn store_some(&mut self, at_most: usize, store: &mut dyn Store) {
        for _ in 0..at_most {
            let Some((_, key)) = self.unstored.pop_front() else { return };
            let register = self.resident.get_mut(&key).expect("a key that is not stored");
            register.unstored = false;
            store.put(key.as_bytes(), Some(&register.holds.encode()));
        }
    }

    /// How many keys are not stored.
    pub fn unstored(&self) -> usize {
        self.unstored.len()
    }

    /// The position of the first record that is needed; none if all keys are stored.
    pub fn needs_log_from(&self) -> Option<u64> {
        self.unstored.front().map(|(position, _)| *position)
    }

    /// How many are in memory.
    pub fn resident(&self) -> usize {
        self.resident.len()
    }

    fn load(&mut self, key: &Key, store: &dyn Store) -> &mut Register {
        if self.resident.len() >= self.at_most && !self.resident.contains_key(key) {
            self.make_room();
        }
        let register = self.resident.get_or_default(key);
        register.used = true;
        if !core::mem::replace(&mut register.loaded, true)
            && let Some(bytes) = store.get(key.as_bytes())
        {
            register.holds = Stamped::decode(&bytes);
        }
        register
    }

    /// Moves registers that are not in use out of memory, if some are found soon.
    fn make_room(&mut self) {
        for _ in 0..LOOKED_AT {
            let Some((key, register)) = self.resident.go_round() else { continue };
            if !core::mem::replace(&mut register.used, false) && !register.unstored {
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

    fn stamped(timestamp: u64) -> Stamped {
        let carstamp = Carstamp { timestamp, ..Carstamp::default() };
        Stamped { value: Some(Value::from(timestamp.to_string())), carstamp }
    }

    #[test]
    fn only_later_updates_take_effect_and_none_is_lost_for_want_of_room() {
        let (mut registers, mut store) = (Registers::new(4), MemoryStore::default());
        for round in 1..=3 {
            for number in 0..20 {
                let position = round * 100 + number;
                assert!(registers.apply(&key(number), stamped(round), position, &store));
                assert!(!registers.apply(&key(number), stamped(round - 1), position, &store));
            }
            registers.store_some(17, &mut store);
        }
        for number in 0..20 {
            assert_eq!(*registers.get(&key(number), &store), stamped(3));
        }
        assert!(registers.resident() >= 3);
        registers.store_some(100, &mut store);
        assert_eq!(registers.resident(), 20, "all were in use");
        (0..200).for_each(|number| drop(registers.get(&key(number % 40), &store).clone()));
        assert!(registers.resident() <= 16, "{}", registers.resident());
    }

    #[test]
    fn the_log_is_needed_from_the_first_update_that_is_not_stored() {
        let (mut registers, mut store) = (Registers::new(9), MemoryStore::default());
        assert_eq!(registers.needs_log_from(), None);
        registers.apply(&key(1), stamped(1), 10, &store);
        registers.apply(&key(2), stamped(1), 11, &store);
        registers.apply(&key(1), stamped(2), 12, &store);
        assert_eq!((registers.needs_log_from(), registers.unstored()), (Some(10), 2));
        registers.store_some(1, &mut store);
        assert_eq!(registers.needs_log_from(), Some(11));
        registers.apply(&key(1), stamped(3), 13, &store);
        registers.store_some(1, &mut store);
        assert_eq!(registers.needs_log_from(), Some(13));
        assert_eq!(Stamped::decode(&store.get(key(1).as_bytes()).unwrap()), stamped(2));
    }
}
