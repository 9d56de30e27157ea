//! Collects the observations that are needed to compute the windows of the hottest keys.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{Observation, Observed, Timestamp};
use serried_model::{Key, Version};

use crate::hottest::Hottest;

/// How many keys are counted while the hottest are looked for.
const COUNTED_KEYS: usize = 512;

/// Finds the hottest keys first, and then records what happens to them. Its memory is bounded: beyond
/// so many events it forgets the oldest.
#[derive(Debug)]
pub struct Collector {
    hottest: Hottest,
    /// The recorded keys, the hottest first. `None` while the hottest keys are being found.
    chosen: Option<Vec<Key>>,
    events: VecDeque<Event>,
    most_events: usize,
    forgotten: u64,
    heard: u64,
    clock_began_us: Option<u64>,
    /// The kinds of transactions, as far as they were reported.
    kinds: BTreeMap<Version, &'static str>,
}

/// The part of an observation that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) at: Timestamp,
    pub(crate) what: What,
}

/// Keys are numbers in the order of [`Recording::keys`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Written {
        key: usize,
        version: Version,
        revision: u32,
    },
    Read {
        key: usize,
        reader: Version,
        found: Version,
    },
    Committed {
        version: Version,
        reads: Vec<(usize, Version)>,
        writes: Vec<usize>,
        all: (u32, u32),
        /// Whether it has written every key that it has read.
        closed: bool,
    },
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(crate) keys: Vec<Key>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) kinds: BTreeMap<Version, &'static str>,
    pub(crate) clock_began_us: Option<u64>,
    /// How many events were forgotten because there was no room. If there are any, windows are missing.
    pub forgotten: u64,
}

impl Collector {
    /// A collector that looks for the hottest keys, and will keep at most `most_events` events.
    pub fn new(most_events: usize) -> Collector {
        Collector {
            hottest: Hottest::new(COUNTED_KEYS),
            chosen: None,
            events: VecDeque::new(),
            most_events,
            forgotten: 0,
            heard: 0,
            clock_began_us: None,
            kinds: BTreeMap::new(),
        }
    }

    /// From now on records the `n` keys that transactions have written most so far.
    pub fn choose_hottest(&mut self, n: usize) {
        self.choose(self.hottest.first(n));
    }

    /// From now on records these keys.
    pub fn choose(&mut self, keys: Vec<Key>) {
        let mut seen = BTreeSet::new();
        self.chosen = Some(keys.into_iter().filter(|key| seen.insert(key.clone())).collect());
    }

    /// The observer's wall clock showed this when its clock was at 0, in microseconds since the Unix epoch.
    pub fn set_clock(&mut self, began_us: u64) {
        self.clock_began_us = Some(began_us);
    }

    /// How many observations of writes were received.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// Adds an observation.
    pub fn observe(&mut self, Observed { at_ns, what, .. }: Observed) {
        self.heard += u64::from(matches!(what, Observation::Written { .. }));
        let Some(chosen) = &self.chosen else {
            if let Observation::Committed { writes, .. } = &what {
                writes.iter().for_each(|key| self.hottest.count(key));
            }
            return;
        };
        let number = |key: &Key| chosen.iter().position(|chosen| chosen == key);
        let what = match what {
            Observation::Written { key, version, revision } => {
                number(&key).map(|key| What::Written { key, version, revision })
            }
            Observation::Read { key, reader, found } => {
                number(&key).map(|key| What::Read { key, reader, found })
            }
            Observation::Committed { version, reads, writes, .. } => {
                let all = (reads.len() as u32, writes.len() as u32);
                let closed = reads.iter().all(|(key, _)| writes.contains(key));
                let writes: Vec<usize> = writes.iter().filter_map(number).collect();
                let reads = reads.iter().filter_map(|(key, found)| Some((number(key)?, *found)));
                let reads: Vec<(usize, Version)> = reads.collect();
                let concerns = !writes.is_empty() || !reads.is_empty();
                concerns.then_some(What::Committed { version, reads, writes, all, closed })
            }
            Observation::Aborted { .. } => None,
        };
        self.events.extend(what.map(|what| Event { at: Timestamp(at_ns), what }));
        if self.events.len() > self.most_events {
            self.events.pop_front();
            self.forgotten += 1;
        }
    }

    /// Reports the kind of a transaction. It is ignored before keys are chosen.
    pub fn name(&mut self, version: Version, kind: &'static str) {
        if self.chosen.is_none() {
            return;
        }
        self.kinds.insert(version, kind);
        if self.kinds.len() > self.most_events {
            self.kinds.pop_first();
        }
    }

    /// What was recorded.
    pub fn finish(self) -> Recording {
        Recording {
            keys: self.chosen.unwrap_or_default(),
            events: self.events,
            kinds: self.kinds,
            clock_began_us: self.clock_began_us,
            forgotten: self.forgotten,
        }
    }
}

#[cfg(test)]
mod tests {
    use serried_model::NodeId;

    use super::*;

    fn observed(what: Observation) -> Observed {
        Observed { at_ns: 1, node: NodeId(0), what }
    }

    fn committed(writes: &[&str]) -> Observed {
        let version = Version { timestamp_us: 1, coordinator: NodeId(70_000) };
        let writes = writes.iter().map(|key| Key::from(*key)).collect();
        observed(Observation::Committed { version, reads: vec![], writes, leads: true })
    }

    #[test]
    fn the_keys_that_were_written_most_are_recorded_and_no_others() {
        let mut collector = Collector::new(100);
        for writes in [&["a", "b"][..], &["b"], &["c", "b"], &["c"]] {
            collector.observe(committed(writes));
        }
        collector.choose_hottest(2);
        collector.observe(committed(&["a"]));
        collector.observe(committed(&["a", "c"]));
        let recording = collector.finish();
        assert_eq!(recording.keys, [Key::from("b"), Key::from("c")]);
        let [Event { what: What::Committed { writes, all, .. }, .. }] =
            &recording.events.as_slices().0
        else {
            panic!("{:?}", recording.events)
        };
        assert_eq!((writes.as_slice(), *all), (&[1][..], (0, 2)));
    }

    #[test]
    fn a_full_collector_forgets_the_oldest_and_says_so() {
        let mut collector = Collector::new(2);
        collector.choose(vec![Key::from("a")]);
        for _ in 0..5 {
            collector.observe(committed(&["a"]));
        }
        let recording = collector.finish();
        assert_eq!((recording.events.len(), recording.forgotten), (2, 3));
    }
}
