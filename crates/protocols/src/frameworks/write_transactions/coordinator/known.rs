//! What a client knows of the clocks of leaders (004 Fig. 5). All its sessions share it.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Timestamp;
use serried_model::Versionstamp;
use serried_model::snapshots::Shown;

use super::super::message::{Clock, ERAS_AT_MOST};

/// What is known of a partition is refreshed at most so often.
const REFRESHED_AT_MOST_EVERY: Duration = Duration::from_millis(1);

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// How often the site has been rebuilt from others.
    era: u32,
    /// By partition, the highest clock, and when it was heard of last.
    clocks: BTreeMap<u16, (Clock, Timestamp)>,
    /// The highest version clock, and when it was shown. It may be an estimate by now.
    latest: Option<(Versionstamp, Timestamp)>,
    /// The partitions that are being asked, beside all operations.
    refreshing: BTreeSet<u16>,
    /// The versionstamp of the last transaction.
    pub(super) requested: Versionstamp,
}

impl Known {
    /// Whether a leader can have shown this.
    pub(super) fn is_sound(clock: Clock) -> bool {
        clock.era <= ERAS_AT_MOST
    }

    /// A leader has shown its clock. A safe time stays safe whoever leads, until the site is rebuilt.
    pub(super) fn saw(&mut self, partition: u16, clock: Clock, now: Timestamp) {
        if clock.era > self.era {
            self.era = clock.era;
            self.clocks.clear();
        }
        self.refreshing.remove(&partition);
        if clock.era < self.era {
            return;
        }
        let (known, at) = self.clocks.entry(partition).or_insert((clock, now));
        known.shown = known.shown.max(clock.shown);
        known.safe = known.safe.max(clock.safe);
        *at = now;
        if self.estimate(now) <= clock.shown {
            self.latest = Some((clock.shown, now));
        }
    }

    /// A partition that was asked has not answered.
    pub(super) fn gave_up(&mut self, partition: u16) {
        self.refreshing.remove(&partition);
    }

    /// About what the clocks show by now. [`Versionstamp::ZERO`] if none is known.
    pub(super) fn estimate(&self, now: Timestamp) -> Versionstamp {
        self.latest.map(|(shown, at)| shown.after(now.since(at))).unwrap_or_default()
    }

    /// What the version clocks of all partitions have shown.
    pub(super) fn shown(&self) -> Vec<Shown> {
        self.clocks.iter().map(|(partition, (clock, _))| (*partition, clock.shown)).collect()
    }

    /// Whether the clock of a partition is known.
    pub(super) fn has(&self, partition: u16) -> bool {
        self.clocks.contains_key(&partition)
    }

    /// Whether any clock is known.
    pub(super) fn has_any(&self) -> bool {
        self.latest.is_some()
    }

    /// The global safe time: that which all known partitions have reached.
    pub(super) fn safe(&self) -> Versionstamp {
        self.clocks.values().map(|(clock, _)| clock.safe).min().unwrap_or_default()
    }

    /// The highest of the safe times, for a mutant.
    pub(super) fn highest_safe(&self) -> Versionstamp {
        self.clocks.values().map(|(clock, _)| clock.safe).max().unwrap_or_default()
    }

    /// The partitions that should be asked because what is known is older than a half of `freshness`. They count as
    /// being asked from now on.
    pub(super) fn refresh(&mut self, freshness: Duration, now: Timestamp) -> Vec<u16> {
        let most = (freshness / 2).max(REFRESHED_AT_MOST_EVERY);
        let old = self.clocks.iter().filter(|(_, (_, at))| now.since(*at) > most);
        let old = old.map(|(partition, _)| *partition);
        let old: Vec<u16> = old.filter(|partition| !self.refreshing.contains(partition)).collect();
        self.refreshing.extend(&old);
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_safe_time_is_that_of_all_and_old_knowledge_is_refreshed_once() {
        let (mut known, start) = (Known::default(), Timestamp(1_000_000_000));
        let clock = |shown, safe| clock_of(0, shown, safe);
        known.saw(0, clock(50, 40), start);
        known.saw(1, clock(70, 30), start);
        assert_eq!((known.safe(), known.highest_safe()), (Versionstamp(30), Versionstamp(40)));
        known.saw(1, clock(60, 20), start);
        assert_eq!(known.safe(), Versionstamp(30), "it stays safe");
        let later = start + Duration::from_millis(60);
        assert_eq!(known.estimate(later), Versionstamp(70).after(Duration::from_millis(60)));
        known.saw(0, clock(80, 80), later);
        let freshness = Duration::from_millis(100);
        assert_eq!(known.refresh(freshness, later), [1]);
        assert!(known.refresh(freshness, later).is_empty(), "it is being asked");
        known.gave_up(1);
        assert_eq!(known.refresh(freshness, later), [1]);
        assert!(known.has(1) && !known.has(2) && known.has_any());
    }

    fn clock_of(era: u32, shown: u64, safe: u64) -> Clock {
        Clock { shown: Versionstamp(shown), safe: Versionstamp(safe), era }
    }

    #[test]
    fn what_was_known_of_a_site_before_it_was_rebuilt_does_not_count() {
        let (mut known, now) = (Known::default(), Timestamp(1_000_000_000));
        known.saw(0, clock_of(0, 50, 40), now);
        known.saw(1, clock_of(1, 90, 80), now);
        assert!(!known.has(0) && known.safe() == Versionstamp(80));
        known.saw(0, clock_of(0, 55, 45), now);
        assert!(!known.has(0), "a former leader");
    }
}
