//! Finds the keys that are written most, in bounded memory.

use std::collections::BTreeMap;

use serried_model::Key;

/// Counts keys with the space-saving algorithm (Metwally, Agrawal, El Abbadi, 2005). Exact counts would take memory for
/// every key. Here the number of counters is fixed, and a key without a counter takes over the one with the least
/// count, and continues from that count. A count is never too small. It is too large by at most the number of
/// occurrences divided by the number of counters.
#[derive(Debug)]
pub struct Hottest {
    counts: BTreeMap<Key, u64>,
    room: usize,
}

impl Hottest {
    /// An empty collection with `room` counters.
    ///
    /// # Panics
    /// If `room` is 0.
    pub fn new(room: usize) -> Hottest {
        assert!(room > 0, "nothing can be counted without a counter");
        Hottest { counts: BTreeMap::new(), room }
    }

    /// Counts an occurrence.
    pub fn count(&mut self, key: &Key) {
        if let Some(count) = self.counts.get_mut(key) {
            *count += 1;
            return;
        }
        let mut inherited = 0;
        if self.counts.len() == self.room {
            let least = self.counts.iter().min_by_key(|(_, count)| **count);
            let (least, count) = least.map(|(key, count)| (key.clone(), *count)).expect("room");
            self.counts.remove(&least);
            inherited = count;
        }
        self.counts.insert(key.clone(), inherited + 1);
    }

    /// The `n` keys with the highest counts, the highest first. Among equal counts, the least key comes first.
    pub fn first(&self, n: usize) -> Vec<Key> {
        let mut counts: Vec<_> = self.counts.iter().collect();
        counts.sort_by_key(|(key, count)| (core::cmp::Reverse(**count), *key));
        counts.into_iter().take(n).map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_keys_are_found_among_many_rare_ones() {
        let mut hottest = Hottest::new(8);
        for i in 0..1000u32 {
            hottest.count(&Key::from(i.to_be_bytes()));
            if i % 3 == 0 {
                hottest.count(&Key::from("hot"));
            }
            if i % 5 == 0 {
                hottest.count(&Key::from("warm"));
            }
        }
        assert_eq!(hottest.first(2), [Key::from("hot"), Key::from("warm")]);
        assert_eq!(hottest.counts.len(), 8);
    }
}
