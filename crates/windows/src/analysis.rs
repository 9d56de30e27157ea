//! Computes windows from a recording: Definitions A.3.1 and A.3.2 of 001, which extend those of 000 §2 to transactions
//! that write a key without reading it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;
use serried_actor::Timestamp;
use serried_model::Version;

use crate::Recording;
use crate::collector::{Event, What};

/// An interval, in nanoseconds of the observations' clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Interval {
    /// Its left end, `a` in 001.
    pub from_ns: u64,
    /// Its right end, `b`.
    pub until_ns: u64,
}

impl Interval {
    /// Its length in nanoseconds.
    pub fn length_ns(self) -> u64 {
        self.until_ns - self.from_ns
    }
}

/// The windows of a committed transaction on one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Window {
    /// The transaction.
    #[serde(serialize_with = "as_text")]
    pub version: Version,
    /// The kind of the transaction, or how many keys it has read and written.
    pub kind: String,
    /// Whether it read the key before it wrote it. Otherwise its windows are empty.
    pub reads: bool,
    /// Its serialization window. `None` if it begins before the recording.
    pub serialization: Option<Interval>,
    /// Its validity window. `None` if it begins before the recording.
    pub validity: Option<Interval>,
    /// When it received the value that it finally read, if that was observed.
    pub told_ns: Option<u64>,
}

/// The windows of one key, with a summary.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KeyWindows {
    /// The key.
    pub key: String,
    /// Committed transactions that wrote the key, per second.
    pub writes_per_s: f64,
    /// Those of them that had read the key, per second. This is the rate that the windows bound.
    pub achieved_per_s: f64,
    /// Committed transactions that read the key without writing it, per second.
    pub read_only_per_s: f64,
    /// How many of the recorded keys a transaction that reads and writes this one reads and writes on average, this one
    /// included.
    pub together: f64,
    /// The share of transactions that read and write this key which write every other key that they read, too.
    pub closed: f64,
    /// How long a transaction that reads and writes the key takes on average from the time in its version to its commit,
    /// in milliseconds of the clocks of clients and of the observer. `None` if that one's is not known.
    pub latency_ms: Option<f64>,
    /// The serialization windows of transactions that had read the key.
    pub serialization: Option<Mean>,
    /// Their validity windows.
    pub validity: Option<Mean>,
    /// The average time from the beginning of a serialization window until the transaction receives the value that it
    /// reads, in milliseconds.
    pub until_told_ms: Option<f64>,
    /// All windows, in the order of versions.
    pub windows: Vec<Window>,
}

impl KeyWindows {
    /// The same without single windows, if everything had happened more often by a factor.
    #[must_use]
    pub fn times(&self, factor: f64) -> KeyWindows {
        KeyWindows {
            key: self.key.clone(),
            writes_per_s: self.writes_per_s * factor,
            achieved_per_s: self.achieved_per_s * factor,
            read_only_per_s: self.read_only_per_s * factor,
            windows: Vec::new(),
            ..*self
        }
    }
}

/// The mean length of windows, and the bound that follows from it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mean {
    /// How many windows there are.
    pub windows: usize,
    /// Their mean length, in milliseconds.
    pub mean_ms: f64,
    /// One over the mean: how many transactions per second can read and write the key if windows have this length.
    pub bound_per_s: f64,
    /// How many transactions per second do so.
    pub achieved_per_s: f64,
}

fn as_text<S: serde::Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}

/// A committed write of the key.
struct Write {
    version: Version,
    read: Option<Version>,
    kind: String,
    /// How many of the recorded keys it has read and written.
    together: u32,
    closed: bool,
    /// `w_i(x_i)`.
    written: Option<Timestamp>,
    /// `c_i`.
    committed: Timestamp,
}

/// The windows of each key that end within `period`.
pub fn analyse(recording: &Recording, period: Range<Timestamp>) -> Vec<KeyWindows> {
    let numbers = 0..recording.keys.len();
    numbers.map(|key| of_key(recording, key, &period)).collect()
}

fn of_key(recording: &Recording, key: usize, period: &Range<Timestamp>) -> KeyWindows {
    let written = written(recording, key);
    let writes = committed(recording, key, &written);
    let committed: BTreeMap<Version, Timestamp> =
        writes.iter().map(|write| (write.version, write.committed)).collect();
    let told = told(recording, key);
    let mut windows = Vec::new();
    // The ends of the next version's windows.
    let (mut next_written, mut next_committed) = (Timestamp(u64::MAX), Timestamp(u64::MAX));
    for write in writes.iter().rev() {
        let serialization = write.written.map(|own| {
            let end = own.min(next_written);
            let begun = match write.read {
                None => Some(end),
                Some(read) => written.get(&read).map(|(_, at)| (*at).min(next_written)),
            };
            next_written = end;
            (begun, end)
        });
        let end = write.committed.min(next_committed);
        let begun = match write.read {
            None => Some(end),
            Some(read) => committed.get(&read).map(|at| (*at).min(next_committed)),
        };
        next_committed = end;
        let serialization = serialization.and_then(|(begun, end)| interval(begun, end));
        let told = write.read.and_then(|read| told.get(&(write.version, read)));
        windows.push(Window {
            version: write.version,
            kind: write.kind.clone(),
            reads: write.read.is_some(),
            serialization,
            validity: interval(begun, end),
            told_ns: told.map(|at| at.0),
        });
    }
    windows.reverse();
    let seconds = period.end.since(period.start).as_secs_f64();
    let changes =
        writes.iter().filter(|write| write.read.is_some() && period.contains(&write.committed));
    let (mut count, mut together, mut closed) = (0, 0, 0);
    for write in changes.clone() {
        (count, together, closed) =
            (count + 1, together + write.together, closed + u32::from(write.closed));
    }
    let share = |part: u32| if count > 0 { f64::from(part) / f64::from(count) } else { 1.0 };
    let latency_ms = recording.clock_began_us.filter(|_| count > 0).map(|began_us| {
        let latency_ms = |write: &Write| {
            let committed_us = began_us as f64 + write.committed.0 as f64 / 1e3;
            (committed_us - write.version.timestamp_us as f64).max(0.0) / 1e3
        };
        changes.map(latency_ms).sum::<f64>() / f64::from(count)
    });
    KeyWindows {
        read_only_per_s: read_only(recording, key, period) as f64 / seconds,
        together: share(together),
        closed: share(closed),
        latency_ms,
        ..sum_up(recording.keys[key].to_string(), windows, period)
    }
}

/// How many transactions that committed within `period` read the key without writing it.
fn read_only(recording: &Recording, key: usize, period: &Range<Timestamp>) -> usize {
    let mut found = BTreeSet::new();
    for Event { at, what } in &recording.events {
        if let What::Committed { version, reads, writes, .. } = what
            && period.contains(at)
            && reads.iter().any(|(of, _)| *of == key)
            && !writes.contains(&key)
        {
            found.insert(*version);
        }
    }
    found.len()
}

fn interval(begun: Option<Timestamp>, end: Timestamp) -> Option<Interval> {
    // Observations of different replicas may be out of order by a tick of the clock. A window that ends before it
    // begins is empty.
    begun.map(|begun| Interval { from_ns: begun.0.min(end.0), until_ns: end.0 })
}

/// When each write of the key became visible with its last value, and the revision of that value.
fn written(recording: &Recording, key: usize) -> BTreeMap<Version, (u32, Timestamp)> {
    let mut written: BTreeMap<Version, (u32, Timestamp)> = BTreeMap::new();
    for Event { at, what } in &recording.events {
        let What::Written { key: of, version, revision } = what else { continue };
        if *of != key {
            continue;
        }
        let entry = written.entry(*version).or_insert((*revision, *at));
        if *revision > entry.0 {
            *entry = (*revision, *at);
        } else if *revision == entry.0 {
            entry.1 = entry.1.min(*at);
        }
    }
    written
}

/// When each reader first received each write that it has found.
fn told(recording: &Recording, key: usize) -> BTreeMap<(Version, Version), Timestamp> {
    let mut told = BTreeMap::new();
    for Event { at, what } in &recording.events {
        if let What::Read { key: of, reader, found } = what
            && *of == key
        {
            let first = told.entry((*reader, *found)).or_insert(*at);
            *first = (*first).min(*at);
        }
    }
    told
}

/// The committed writes of the key in the order of versions, and when a replica first knew of the commit.
fn committed(
    recording: &Recording,
    key: usize,
    written: &BTreeMap<Version, (u32, Timestamp)>,
) -> Vec<Write> {
    let mut writes: BTreeMap<Version, Write> = BTreeMap::new();
    for Event { at, what } in &recording.events {
        let What::Committed { version, reads, writes: keys, all, closed } = what else { continue };
        if !keys.contains(&key) {
            continue;
        }
        let write = writes.entry(*version).or_insert_with(|| Write {
            version: *version,
            read: reads.iter().find(|(of, _)| *of == key).map(|(_, found)| *found),
            kind: match recording.kinds.get(version) {
                Some(kind) => (*kind).to_string(),
                None => format!("{} read, {} written", all.0, all.1),
            },
            together: keys.iter().filter(|key| reads.iter().any(|(of, _)| of == *key)).count()
                as u32,
            closed: *closed,
            written: written.get(version).map(|(_, at)| *at),
            committed: *at,
        });
        write.committed = write.committed.min(*at);
    }
    writes.into_values().collect()
}

fn sum_up(key: String, windows: Vec<Window>, period: &Range<Timestamp>) -> KeyWindows {
    let within = |interval: &Interval| period.contains(&Timestamp(interval.until_ns));
    let seconds = period.end.since(period.start).as_secs_f64();
    let windows: Vec<Window> = windows
        .into_iter()
        .filter(|window| {
            window.serialization.is_some_and(|interval| within(&interval))
                || window.validity.is_some_and(|interval| within(&interval))
        })
        .collect();
    let mean = |lengths: Vec<u64>| {
        let mean_ns = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        let windows = lengths.len();
        (mean_ns > 0.0).then_some(Mean {
            windows,
            mean_ms: mean_ns / 1e6,
            bound_per_s: 1e9 / mean_ns,
            achieved_per_s: windows as f64 / seconds,
        })
    };
    let of = |which: fn(&Window) -> Option<Interval>| {
        let intervals = windows.iter().filter(|window| window.reads).filter_map(which);
        intervals.filter(|i| within(i)).map(Interval::length_ns).collect::<Vec<u64>>()
    };
    let waits = windows.iter().filter(|window| window.reads).filter_map(|window| {
        let interval = window.serialization.filter(|interval| within(interval))?;
        Some(window.told_ns?.clamp(interval.from_ns, interval.until_ns) - interval.from_ns)
    });
    let waits: Vec<u64> = waits.collect();
    let ended = |window: &&Window| window.validity.is_some_and(|validity| within(&validity));
    let achieved = windows.iter().filter(ended);
    KeyWindows {
        key,
        writes_per_s: achieved.clone().count() as f64 / seconds,
        achieved_per_s: achieved.filter(|window| window.reads).count() as f64 / seconds,
        read_only_per_s: 0.0,
        together: 1.0,
        closed: 1.0,
        latency_ms: None,
        serialization: mean(of(|window| window.serialization)),
        validity: mean(of(|window| window.validity)),
        until_told_ms: match waits.len() {
            0 => None,
            count => Some(waits.iter().sum::<u64>() as f64 / count as f64 / 1e6),
        },
        windows,
    }
}

#[cfg(test)]
mod tests {
    use serried_actor::{Observation, Observed};
    use serried_model::{Key, NodeId};

    use super::*;
    use crate::Collector;

    fn version(number: u64) -> Version {
        Version { timestamp_us: number, coordinator: NodeId(70_000) }
    }

    /// Observations of replicas, with times in milliseconds. Transactions and the versions that they read are numbers.
    enum Said {
        Written(u64, u32),
        Told(u64, u64),
        Committed(u64, Option<u64>),
    }
    use Said::{Committed, Told, Written};

    fn windows(said: &[(u64, u64, Said)]) -> KeyWindows {
        let key = Key::from("x");
        let mut collector = Collector::new(1000);
        collector.choose(vec![key.clone()]);
        for (at, node, what) in said {
            let key = key.clone();
            let what = match *what {
                Written(writer, revision) => {
                    Observation::Written { key, version: version(writer), revision }
                }
                Told(reader, found) => {
                    Observation::Read { key, reader: version(reader), found: version(found) }
                }
                Committed(writer, read) => Observation::Committed {
                    version: version(writer),
                    reads: read.map(|read| (key.clone(), version(read))).into_iter().collect(),
                    writes: vec![key],
                    leads: true,
                },
            };
            collector.observe(Observed { at_ns: at * 1_000_000, node: NodeId(*node), what });
        }
        let period = Timestamp(0)..Timestamp(1_000_000_000);
        analyse(&collector.finish(), period).remove(0)
    }

    fn in_ms(interval: Option<Interval>) -> Option<(u64, u64)> {
        interval.map(|i| (i.from_ns / 1_000_000, i.until_ns / 1_000_000))
    }

    #[test]
    fn windows_go_from_the_read_write_or_commit_to_ones_own() {
        let key = windows(&[
            (10, 0, Written(1, 0)),
            (14, 0, Told(2, 1)),
            (20, 0, Written(2, 0)),
            (30, 0, Committed(1, None)),
            (50, 0, Committed(2, Some(1))),
        ]);
        let [first, second] = &key.windows[..] else { panic!("{key:?}") };
        assert_eq!((first.reads, in_ms(first.serialization)), (false, Some((10, 10))));
        assert_eq!((second.reads, in_ms(second.serialization)), (true, Some((10, 20))));
        assert_eq!(in_ms(second.validity), Some((30, 50)));
        let serialization = key.serialization.unwrap();
        assert_eq!((serialization.windows, serialization.mean_ms), (1, 10.0));
        assert_eq!(serialization.bound_per_s, 100.0);
        assert_eq!(key.validity.unwrap().bound_per_s, 50.0);
        assert_eq!((key.writes_per_s, key.achieved_per_s), (2.0, 1.0));
        assert_eq!(key.until_told_ms, Some(4.0));
    }

    #[test]
    fn a_write_counts_where_its_last_value_is_first_seen() {
        let key = windows(&[
            (10, 0, Written(1, 0)),
            (12, 1, Written(1, 1)),
            (15, 0, Written(1, 1)),
            (16, 2, Written(1, 0)),
            (20, 1, Written(2, 0)),
            (25, 1, Committed(1, None)),
            (22, 2, Committed(1, None)),
            (30, 1, Committed(2, Some(1))),
        ]);
        let second = &key.windows[1];
        assert_eq!(in_ms(second.serialization), Some((12, 20)));
        assert_eq!(in_ms(second.validity), Some((22, 30)));
    }

    #[test]
    fn windows_do_not_overlap_when_writes_come_out_of_version_order() {
        // By the definitions, the window of an earlier version ends at the latest where that of a later version ends.
        let key = windows(&[
            (10, 0, Written(1, 0)),
            (20, 0, Written(3, 0)),
            (40, 0, Written(2, 0)),
            (50, 0, Committed(1, None)),
            (51, 0, Committed(3, None)),
            (60, 0, Committed(2, Some(1))),
        ]);
        assert_eq!(in_ms(key.windows[1].serialization), Some((10, 20)));
        assert_eq!(in_ms(key.windows[1].validity), Some((50, 51)));
        assert_eq!(in_ms(key.windows[2].serialization), Some((20, 20)));
    }

    #[test]
    fn a_window_that_begins_before_the_recording_does_not_count() {
        let key = windows(&[(20, 0, Written(2, 0)), (50, 0, Committed(2, Some(1)))]);
        assert_eq!(key.windows, []);
        assert_eq!((key.serialization, key.validity), (None, None));
    }

    #[test]
    fn what_does_not_commit_has_no_window() {
        let key = windows(&[
            (10, 0, Written(1, 0)),
            (12, 0, Written(2, 0)),
            (20, 0, Written(3, 0)),
            (30, 0, Committed(1, None)),
            (40, 0, Committed(3, Some(1))),
        ]);
        assert_eq!(key.windows.len(), 2);
        assert_eq!(in_ms(key.windows[1].serialization), Some((10, 20)));
    }
}
