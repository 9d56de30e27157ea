//! How old what reads find is (004 §7.5).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serried_actor::Timestamp;
use serried_model::Versionstamp;

/// How many acknowledged writes of a key are remembered.
const REMEMBERED: usize = 4096;

/// Measures staleness: how long before a read began the first version was acknowledged that is newer than what it
/// found. All clients of a run share it, so it is for clients of one process, or of a simulation.
#[derive(Debug)]
pub struct Staleness(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// By key, the places of acknowledged writes, and when that was, in the order of the places. A write is left out
    /// if a later one was acknowledged before it.
    acknowledged: BTreeMap<u64, VecDeque<(Versionstamp, Timestamp)>>,
    reads: u64,
    fresh: u64,
    stale_us: Histogram<u64>,
}

/// What a [`Staleness`] has measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct StalenessReport {
    /// How many values were read.
    pub reads: u64,
    /// The share of them that were the newest acknowledged.
    pub fresh: f64,
    /// The staleness of all values at the median, in microseconds.
    pub stale_us_p50: u64,
    /// The staleness of all values at the 90th percentile, in microseconds.
    pub stale_us_p90: u64,
    /// The staleness of all values at the 99th percentile, in microseconds.
    pub stale_us_p99: u64,
    /// The greatest staleness, in microseconds.
    pub stale_us_max: u64,
}

impl Default for Staleness {
    fn default() -> Staleness {
        let stale_us =
            Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are good");
        Staleness(Mutex::new(Inner { acknowledged: BTreeMap::new(), reads: 0, fresh: 0, stale_us }))
    }
}

impl Staleness {
    /// A write of `key` with this place was acknowledged.
    pub fn wrote(&self, key: u64, stamp: Versionstamp, at: Timestamp) {
        let mut inner = self.0.lock().expect("nobody panics while entering");
        let of_key = inner.acknowledged.entry(key).or_default();
        let place = of_key.partition_point(|(other, _)| *other < stamp);
        // The later ones were acknowledged before it.
        if place == of_key.len() {
            of_key.push_back((stamp, at));
        }
        if of_key.len() > REMEMBERED {
            of_key.pop_front();
        }
    }

    /// A read of `key` that began at `begun` has found the version with this place.
    pub fn read(&self, key: u64, found: Versionstamp, begun: Timestamp) {
        let mut inner = self.0.lock().expect("nobody panics while entering");
        inner.reads += 1;
        let newer = inner.acknowledged.get(&key).and_then(|of_key| {
            let newer = of_key.partition_point(|(other, _)| *other <= found);
            of_key.get(newer).map(|(_, at)| *at)
        });
        let stale = newer.filter(|at| *at <= begun).map(|at| begun.since(at));
        inner.fresh += u64::from(stale.is_none());
        let us = stale.unwrap_or(Duration::ZERO).as_micros() as u64;
        inner.stale_us.saturating_record(us);
    }

    /// What was measured.
    pub fn report(&self) -> StalenessReport {
        let inner = self.0.lock().expect("nobody panics while entering");
        let quantile = |q| inner.stale_us.value_at_quantile(q);
        StalenessReport {
            reads: inner.reads,
            fresh: if inner.reads == 0 { 1.0 } else { inner.fresh as f64 / inner.reads as f64 },
            stale_us_p50: quantile(0.5),
            stale_us_p90: quantile(0.9),
            stale_us_p99: quantile(0.99),
            stale_us_max: inner.stale_us.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_stale_since_the_first_newer_one_was_acknowledged() {
        let staleness = Staleness::default();
        let at = |ms: u64| Timestamp(ms * 1_000_000);
        let (first, second, third) = (Versionstamp(10), Versionstamp(20), Versionstamp(30));
        staleness.wrote(7, first, at(1));
        staleness.wrote(7, third, at(3));
        staleness.wrote(7, second, at(4));
        staleness.read(7, first, at(2));
        assert_eq!(staleness.report().fresh, 1.0);
        staleness.read(7, first, at(5));
        staleness.read(7, third, at(5));
        staleness.read(8, Versionstamp::ZERO, at(5));
        let report = staleness.report();
        assert_eq!((report.reads, report.fresh), (4, 0.75));
        assert!((1990..2010).contains(&report.stale_us_max), "{report:?}");
    }
}
