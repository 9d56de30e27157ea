//! A store for state that an actor need not keep in memory.

#![expect(clippy::disallowed_types, reason = "a set beside the map has its keys in order")]

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use foldhash::fast::FixedState;
use serried_model::Key;

/// An ordered map of bytes on an actor's disk.
///
/// A change is visible at once. It is durable before any record that the actor appends after it, and before the log is
/// trimmed ([`crate::Effect::TrimLog`]). A crash may lose the changes since then, or keep them, for each key
/// separately. So replay must work even if the store already has a change that is about to be made.
///
/// Methods do not fail. If the disk fails, the driver stops the node.
pub trait Store: Send {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;

    /// Sets or removes the value of `key`.
    fn put(&mut self, key: &[u8], value: Option<&[u8]>);

    /// Whether the store's background work is behind. Changes that can wait should then wait.
    fn is_behind(&self) -> bool {
        false
    }

    /// Whether it ends with the actor's run. Then nothing has to be moved there, unless other replicas copy it.
    fn ends_with_run(&self) -> bool {
        false
    }

    /// For drivers that track which changes come before which record: sets the next record's position.
    fn set_log_position(&mut self, _position: u64) {}

    /// Passes the entries after `after` to `each` in the order of their keys: as many as add up to `bytes`, and at
    /// least one. Returns whether there are more. A store on top of data that it can't enumerate passes keys that were
    /// removed from that data with an empty value.
    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool;
}

/// A store in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    #[expect(
        clippy::disallowed_types,
        reason = "it is not iterated: `order` has the keys in order"
    )]
    values: HashMap<Key, Vec<u8>, FixedState>,
    /// The keys in order. They change less often than the values.
    keys: BTreeSet<Key>,
    of_run: bool,
}

impl MemoryStore {
    /// One that ends with the actor's run.
    pub fn of_run() -> MemoryStore {
        MemoryStore { of_run: true, ..MemoryStore::default() }
    }
}

impl Store for MemoryStore {
    fn ends_with_run(&self) -> bool {
        self.of_run
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.values.get(key).cloned()
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        match (value, self.values.get_mut(key)) {
            (Some(value), Some(old)) => {
                old.clear();
                old.extend_from_slice(value);
            }
            (Some(value), None) => {
                self.values.insert(key.into(), value.to_vec());
                self.keys.insert(key.into());
            }
            (None, _) => {
                self.values.remove(key);
                self.keys.remove(key);
            }
        }
    }

    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut shown = 0;
        for key in self.keys.range::<[u8], _>((from, Bound::Unbounded)) {
            if shown > bytes {
                return true;
            }
            let value = &self.values[key];
            each(key.as_bytes(), value);
            shown += key.len() + value.len();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_pass_all_entries_in_order_a_few_at_a_time() {
        let mut store = MemoryStore::default();
        for key in 0..10u8 {
            store.put(&[9 - key], Some(&[key; 4]));
        }
        store.put(&[3], None);
        let (mut after, mut seen, mut calls) = (None, Vec::new(), 0);
        loop {
            let more = store.scan(after.as_deref(), 8, &mut |key, _| {
                seen.push(key[0]);
            });
            calls += 1;
            if !more {
                break;
            }
            after = seen.last().map(|key| vec![*key]);
        }
        assert_eq!(seen, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert!(calls > 2, "{calls}");
    }
}
