//! A replica's simulated store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use rand::{RngExt, SeedableRng};
use serried_actor::{Random, Store};
use serried_model::Key;

use crate::Initial;

/// An ordered map on top of the initial data, which is computed and not kept.
pub(crate) struct SimulatedStore {
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    initial: Option<Initial>,
    encode: fn(&serried_model::Value) -> Vec<u8>,
    /// How to undo each change that a crash may undo, if nodes can crash.
    journal: Option<VecDeque<Undo>>,
    log_position: u64,
}

struct Undo {
    /// The change is durable as soon as the record at this position is.
    position: u64,
    key: Vec<u8>,
    /// The entry of the key before the change, if there was one.
    before: Option<Option<Vec<u8>>>,
}

impl SimulatedStore {
    pub(crate) fn new(
        initial: Option<Initial>,
        encode: fn(&serried_model::Value) -> Vec<u8>,
        may_crash: bool,
    ) -> SimulatedStore {
        let journal = may_crash.then(VecDeque::new);
        SimulatedStore { changes: BTreeMap::new(), initial, encode, journal, log_position: 0 }
    }

    /// Makes all changes durable.
    pub(crate) fn persist(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.clear();
        }
    }

    /// Makes durable the changes that were made before any of the first `records` records.
    pub(crate) fn persist_before(&mut self, records: u64) {
        if let Some(journal) = &mut self.journal {
            while journal.front().is_some_and(|undo| undo.position < records) {
                journal.pop_front();
            }
        }
    }

    /// Loses all changes.
    pub(crate) fn lose(&mut self) {
        self.changes.clear();
        self.persist();
        self.log_position = 0;
    }

    /// Undoes some of the changes that are not durable: for each key the latest ones.
    pub(crate) fn crash(&mut self, random: &mut Random) {
        let Some(journal) = &mut self.journal else { return };
        let first = random.random_range(0..=journal.len());
        // There is one draw for the whole store, so that other draws do not depend on its contents.
        let mut random = Random::seed_from_u64(self.log_position << 20 ^ first as u64);
        let mut kept = BTreeSet::new();
        for Undo { key, before, .. } in journal.drain(first..).rev() {
            if kept.contains(&key) || random.random_bool(0.2) {
                kept.insert(key);
                continue;
            }
            match before {
                Some(value) => self.changes.insert(key, value),
                None => self.changes.remove(&key),
            };
        }
        journal.clear();
    }
}

impl Store for SimulatedStore {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.changes.get(key) {
            Some(value) => value.clone(),
            None => self.initial.as_ref()?.value(&Key::from(key)).as_ref().map(self.encode),
        }
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let before = self.changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        if let Some(journal) = &mut self.journal {
            journal.push_back(Undo { position: self.log_position, key: key.to_vec(), before });
        }
    }

    fn set_log_position(&mut self, position: u64) {
        self.log_position = position;
    }

    /// Passes the keys that were changed, including initial keys that were removed. All replicas have the other initial
    /// keys.
    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut shown = 0;
        for (key, value) in self.changes.range::<[u8], _>((from, Bound::Unbounded)) {
            if shown > bytes {
                return true;
            }
            let removed = || self.initial.as_ref()?.value(&Key::from(&key[..])).map(|_| Vec::new());
            if let Some(value) = value.clone().or_else(removed) {
                each(key, &value);
                shown += key.len() + value.len();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::Value;

    #[test]
    fn a_crash_undoes_latest_changes_of_each_key_but_no_durable_ones() {
        let initial = Initial::new(|key| (key.len() == 1).then(|| Value::from("initial")));
        let mut seen = BTreeSet::new();
        for seed in 0..300 {
            let encode = |value: &Value| value.as_bytes().to_vec();
            let mut store = SimulatedStore::new(Some(initial.clone()), encode, true);
            store.put(b"a", Some(b"1"));
            store.set_log_position(1 + seed);
            store.persist_before(1 + seed);
            for value in [b"2", b"3", b"4"] {
                store.put(b"a", Some(value));
                store.put(b"b", Some(value));
            }
            store.crash(&mut Random::seed_from_u64(seed));
            assert_eq!(store.get(b"none"), None);
            seen.insert((store.get(b"a").unwrap(), store.get(b"b").unwrap()));
        }
        let (a, b) = ([b"1", b"2", b"3", b"4"], [&b"initial"[..], b"2", b"3", b"4"]);
        let all = a.iter().flat_map(|a| b.iter().map(|b| (a.to_vec(), b.to_vec())));
        assert_eq!(seen, all.collect());
    }
}
