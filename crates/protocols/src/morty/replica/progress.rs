//! How far state is settled, and what of it is remembered.

use serried_actor::Settings;
use serried_model::Version;

use crate::morty::digest::Digest;
use crate::morty::message::Settlement;
use crate::morty::record::Record;

/// Two points in version time, the first at or below the second. From the *horizon* on, the replica remembers how
/// transactions ended. Below the *watermark* everything is settled. Neither ever goes back. All times are microseconds
/// of version time.
#[derive(Debug)]
pub(super) struct Progress {
    outcomes_us: u64,
    history_us: u64,
    watermark: u64,
    /// The digest of what has committed below the watermark.
    digest: Digest,
    horizon: u64,
    /// Versions that were overwritten before this may never have been here.
    lacks_before: u64,
    /// A copy of another replica's store has begun whose first page is complete below this, and what has committed there.
    copied_to: (u64, Digest),
    /// Where the log ended after the last record about this.
    logged_at: u64,
    /// The watermarks of the replicas on this machine, by partition; its own is not used.
    elsewhere: Vec<u64>,
    partition: u16,
}

impl Progress {
    pub(super) fn new(settings: &Settings, partition: u16, partitions: u16) -> Progress {
        Progress {
            outcomes_us: settings.outcomes_ms * 1000,
            history_us: settings.history_ms * 1000,
            watermark: 0,
            digest: Digest::default(),
            horizon: 0,
            lacks_before: 0,
            copied_to: (0, Digest::default()),
            logged_at: 0,
            elsewhere: vec![0; usize::from(partitions)],
            partition,
        }
    }

    /// Everything below this is settled.
    pub(super) fn watermark(&self) -> Version {
        Version::at(self.watermark)
    }

    /// The watermark in microseconds, and the digest of what has committed below it.
    pub(super) fn finished(&self) -> (u64, Digest) {
        (self.watermark, self.digest)
    }

    /// From here on it remembers how transactions ended.
    pub(super) fn horizon(&self) -> Version {
        Version::at(self.horizon)
    }

    /// How a transaction ended of which nothing is remembered.
    pub(super) fn settlement(&self, version: Version) -> Option<Settlement> {
        if version >= self.watermark() {
            None
        } else if version >= self.horizon() {
            Some(Settlement::Aborted) // What committed is remembered.
        } else {
            Some(Settlement::Forgotten)
        }
    }

    /// From here on reads of the past are answered.
    pub(super) fn readable_from(&self) -> Version {
        Version::at(self.lacks_before.max(self.watermark.saturating_sub(self.history_us)))
    }

    /// Versions that were overwritten before this, in microseconds, may never have been here, because another replica had
    /// forgotten them when they were fetched.
    pub(super) fn lacks_before(&self) -> u64 {
        self.lacks_before
    }

    /// Everything below `upto` is settled. `copied` says that the state below was copied from another replica, and may lack
    /// versions that were overwritten.
    pub(super) fn raise(&mut self, upto: u64, digest: Digest, copied: bool) {
        (self.watermark, self.digest) = (upto, digest);
        if copied {
            self.lacks_before = self.lacks_before.max(upto);
        }
    }

    /// Raises the horizon. Outcomes are remembered for as long as another partition may have to ask, and for `outcomes_ms`
    /// at least, and all from `needed` on, in microseconds. Copied state comes without outcomes.
    pub(super) fn raise_horizon(&mut self, copied: bool, needed: Option<u64>) {
        let elsewhere = self.elsewhere.iter().enumerate();
        let elsewhere = elsewhere.filter(|(p, _)| *p != usize::from(self.partition));
        let lowest = elsewhere.map(|(_, watermark)| *watermark).min().unwrap_or(u64::MAX);
        let horizon = match copied {
            true => self.watermark,
            false => {
                let needed = needed.unwrap_or(u64::MAX);
                lowest.min(self.watermark.saturating_sub(self.outcomes_us)).min(needed)
            }
        };
        self.horizon = horizon.max(self.horizon);
    }

    /// Notes that versions which were overwritten before `from`, in microseconds, may be missing. Returns whether that is
    /// new.
    pub(super) fn lack(&mut self, from: u64) -> bool {
        let news = from > self.lacks_before;
        self.lacks_before = from.max(self.lacks_before);
        news
    }

    /// A copy begins whose first page is complete below `upto`, in microseconds; `digest` is of what has committed there.
    /// Returns whether that is later than before.
    pub(super) fn begin_copy(&mut self, upto: u64, digest: Digest) -> bool {
        let later = upto > self.copied_to.0;
        if later {
            self.copied_to = (upto, digest);
        }
        later
    }

    /// The log says this when everything before `position` is durable.
    pub(super) fn is_logged_at(&mut self, position: u64) {
        self.logged_at = position;
    }

    /// Whether the log says this, if everything before `position` is durable.
    pub(super) fn is_durable(&self, position: u64) -> bool {
        self.logged_at <= position
    }

    /// From here on all deletes are known, so that what has committed can be handed on.
    pub(super) fn whole_from(&self) -> Version {
        Version::at(self.horizon.max(self.copied_to.0))
    }

    /// Up to where a copy has to be complete, in microseconds, and what has committed there, if one has begun and not come
    /// to its end.
    pub(super) fn unfinished_copy(&self) -> Option<(u64, Digest)> {
        (self.copied_to.0 > self.watermark).then_some(self.copied_to)
    }

    /// The replica of another partition on this machine has reached a watermark.
    pub(super) fn heard_of(&mut self, partition: u16, watermark: u64) {
        if let Some(known) = self.elsewhere.get_mut(usize::from(partition)) {
            *known = watermark.max(*known);
        }
    }

    /// The record for the log.
    pub(super) fn record(&self, copied: bool) -> Record {
        let Progress { watermark: upto, digest, horizon, lacks_before, .. } = *self;
        Record::Truncated { upto, horizon, digest, copied, readable_from: lacks_before }
    }

    /// Takes what a record says in addition to [`Progress::raise`].
    pub(super) fn replay(&mut self, horizon: u64, lacks_before: u64) {
        self.horizon = horizon;
        self.lacks_before = lacks_before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_remembered_for_a_time_and_until_other_partitions_pass() {
        let settings = Settings { outcomes_ms: 1, history_ms: 2, ..Settings::default() };
        let mut progress = Progress::new(&settings, 1, 3);
        let horizon = |progress: &mut Progress, upto, copied| {
            progress.raise(upto, Digest::default(), copied);
            progress.raise_horizon(copied, None);
            [progress.horizon(), progress.readable_from()].map(|version| version.timestamp_us)
        };
        assert_eq!(horizon(&mut progress, 5000, false), [0, 3000]);
        progress.heard_of(0, 4500);
        progress.heard_of(2, 3500);
        progress.heard_of(9, 0); // There is no such partition.
        assert_eq!(horizon(&mut progress, 6000, false), [3500, 4000]);
        progress.heard_of(2, 9500);
        assert_eq!(horizon(&mut progress, 7000, false), [4500, 5000]);
        progress.heard_of(0, 9500);
        assert_eq!(horizon(&mut progress, 8000, false), [7000, 6000]);
        assert_eq!(horizon(&mut progress, 9000, true), [9000, 9000]);
        assert!(progress.lack(9001) && !progress.lack(9001) && !progress.lack(5));
        assert_eq!(horizon(&mut progress, 9100, false), [9000, 9001]);
        progress.raise(19_100, Digest::default(), false);
        for (needed, expected) in [(Some(10), 9000), (Some(9400), 9400), (None, 9500)] {
            progress.raise_horizon(false, needed);
            assert_eq!(progress.horizon(), Version::at(expected), "{needed:?}");
        }
    }
}
