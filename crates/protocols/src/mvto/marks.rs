//! When keys were read by transactions that have no parts.

use serried_model::{Key, Version};
use serried_parts::Map;

/// How many keys are remembered at least. Up to twice as many are.
const KEYS: usize = 1 << 16;

/// For each key a timestamp that is not before any at which it was read. It may be after all, but not after those at
/// which keys were read that are not remembered.
#[derive(Debug, Default)]
pub(super) struct Marks {
    recent: Generation,
    older: Generation,
    /// Not before any at which other keys were read.
    floor: Version,
}

/// Keys that were read at about the same time.
#[derive(Debug, Default)]
struct Generation {
    marks: Map<Key, Version>,
    latest: Version,
}

impl Marks {
    /// A key is read.
    pub(super) fn mark(&mut self, key: &Key, at: Version) {
        if self.recent.marks.len() >= KEYS && self.recent.marks.get(key).is_none() {
            let older = core::mem::take(&mut self.recent);
            let oldest = core::mem::replace(&mut self.older, older);
            self.floor = self.floor.max(oldest.latest);
        }
        let mark = self.recent.marks.get_or_default(key);
        *mark = at.max(*mark);
        self.recent.latest = at.max(self.recent.latest);
    }

    /// When a key was last read, or later.
    pub(super) fn of(&self, key: &Key) -> Version {
        let known = [&self.recent, &self.older].map(|known| known.marks.get(key).copied());
        known.into_iter().flatten().fold(self.floor, Version::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::shard::bench::txn;

    #[test]
    fn no_read_is_forgotten_and_remembered_keys_are_exact() {
        let mut marks = Marks::default();
        let key = |number: usize| Key::from(number.to_string().as_str());
        let us = |number: usize| 3 * KEYS as u64 - number as u64;
        for number in 0..=2 * KEYS {
            marks.mark(&key(number), txn(us(number)));
        }
        marks.mark(&key(2 * KEYS), txn(1));
        assert_eq!(
            marks.of(&key(2 * KEYS)),
            txn(us(0)),
            "it could have been read as late as others"
        );
        assert_eq!(marks.of(&Key::from("unread")), txn(us(0)));
        assert_eq!(marks.recent.marks.len(), 1);
        let mut marks = Marks::default();
        for number in 0..2 * KEYS {
            marks.mark(&key(number), txn(us(number)));
            marks.mark(&key(number), txn(1));
        }
        for number in 0..2 * KEYS {
            assert_eq!(marks.of(&key(number)), txn(us(number)));
        }
        assert_eq!(marks.of(&Key::from("unread")), Version::default());
    }

    #[test]
    fn the_mark_of_forgotten_reads_never_sinks() {
        let mut marks = Marks::default();
        let key = |number: usize| Key::from(number.to_string().as_str());
        // Those of one client whose clock is ahead, and then those of another.
        for number in 0..4 * KEYS {
            let us = if number < KEYS { 1000 } else { 10 };
            marks.mark(&key(number), txn(us));
        }
        assert_eq!(marks.of(&key(0)), txn(1000));
    }
}
