//! Who reads a key to write it, one after the other.
//!
//! Two transactions that read the same version of a key and write the key exclude each other: only one of them can commit. A
//! read for update announces the write. So the next transaction that reads the key for update waits until the one before has
//! ended, and finds what that has written. This is a hint: no guarantee rests on it, and it keeps off nobody who reads
//! otherwise. A transaction waits only for one with an earlier timestamp, as everywhere under NCC. One that would have to wait
//! for a later one reads at once.
//!
//! A modification makes no use of a turn, since it reads and writes at once. But a stream of them would never let anybody
//! write what it has read. So a modification waits, too, for one with an earlier timestamp whose turn it is, and passes the
//! turn on as soon as it is executed. That is so at each shard by itself. If its modifications at another shard are executed
//! meanwhile, one with an earlier timestamp that goes there, too, is refused, as always under NCC.

use std::collections::BTreeSet;

use serried_model::{Key, Version};
use serried_parts::Map;
use smallvec::SmallVec;

/// The keys that are read for update.
#[derive(Debug, Default)]
pub(super) struct Intents(Map<Key, Intent>);

#[derive(Debug)]
struct Intent {
    /// The transaction whose turn it is.
    holder: Version,
    /// Those that come after it, all with later timestamps.
    waiting: BTreeSet<Version>,
}

/// Whether a transaction may read a key for update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It is its turn now.
    Own,
    /// It may read, but it has no turn: one with a later timestamp has.
    Without,
    /// It has to wait.
    Waits,
}

impl Intents {
    /// A transaction reads a key for update.
    pub(super) fn take(&mut self, key: &Key, txn: Version) -> Turn {
        let Some(intent) = self.0.get_mut(key) else {
            self.0.insert(key.clone(), Intent { holder: txn, waiting: BTreeSet::new() });
            return Turn::Own;
        };
        match intent.holder.cmp(&txn) {
            core::cmp::Ordering::Equal => Turn::Own,
            core::cmp::Ordering::Greater => Turn::Without,
            core::cmp::Ordering::Less => {
                intent.waiting.insert(txn);
                Turn::Waits
            }
        }
    }

    /// Whether a transaction has a turn at the key that began earlier than `txn`.
    pub(super) fn has_earlier(&self, key: &Key, txn: Version) -> bool {
        self.0.get(key).is_some_and(|intent| intent.holder < txn)
    }

    /// A transaction that has a turn at these keys, or waits for one, is over. Returns those whose turn comes.
    pub(super) fn leave(&mut self, txn: Version, keys: &[Key]) -> SmallVec<[Version; 1]> {
        let mut next = SmallVec::new();
        for key in keys {
            let Some(intent) = self.0.get_mut(key) else { continue };
            intent.waiting.remove(&txn);
            if intent.holder != txn {
                continue;
            }
            match intent.waiting.pop_first() {
                Some(first) => {
                    intent.holder = first;
                    next.push(first);
                }
                None => drop(self.0.remove(key)),
            }
        }
        next
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_the_order_of_timestamps_and_nobody_waits_for_a_later_one() {
        let mut intents = Intents::default();
        let (key, other) = (Key::from("k"), Key::from("other"));
        let only = core::slice::from_ref(&key);
        let [a, b, c, d] = [10, 20, 30, 40].map(Version::at);
        assert_eq!(intents.take(&key, b), Turn::Own);
        assert_eq!(intents.take(&key, b), Turn::Own, "again");
        assert_eq!(intents.take(&key, a), Turn::Without);
        assert_eq!(intents.take(&key, d), Turn::Waits);
        assert_eq!(intents.take(&key, c), Turn::Waits);
        assert_eq!(intents.take(&other, d), Turn::Own);
        assert_eq!(intents.leave(a, only)[..], []);
        assert_eq!(intents.leave(b, only)[..], [c]);
        assert_eq!(intents.leave(d, &[key.clone(), other])[..], []);
        assert_eq!(intents.leave(c, only)[..], []);
        assert_eq!(intents.len(), 0);
    }
}
