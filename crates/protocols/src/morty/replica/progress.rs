//! How far what is old is settled, and what of it is remembered.

use serried_actor::Settings;
use serried_model::Version;

use crate::morty::digest::Digest;
use crate::morty::message::Record;

/// In this order in time, each at or below the next: how transactions ended is remembered from the horizon
/// on; everything below the watermark is settled. None ever goes back.
#[derive(Debug)]
pub(super) struct Progress {
    outcomes_us: u64,
    history_us: u64,
    watermark: u64,
    /// What has committed below the watermark.
    digest: Digest,
    horizon: u64,
    /// What was overwritten before may never have been here.
    lacks_before: u64,
    /// The watermarks of all partitions' replicas on this machine, but for its own.
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
            elsewhere: vec![0; usize::from(partitions)],
            partition,
        }
    }

    /// Everything below is settled.
    pub(super) fn watermark(&self) -> Version {
        Version::at(self.watermark)
    }

    /// The same, in microseconds, with what has committed below.
    pub(super) fn finished(&self) -> (u64, Digest) {
        (self.watermark, self.digest)
    }

    /// It remembers how transactions ended from here on.
    pub(super) fn horizon(&self) -> Version {
        Version::at(self.horizon)
    }

    /// Reads of the past are answered from here on.
    pub(super) fn readable_from(&self) -> Version {
        Version::at(self.lacks_before.max(self.watermark.saturating_sub(self.history_us)))
    }

    /// What was overwritten before, in microseconds, may never have been here, as another replica had
    /// forgotten it when it was fetched.
    pub(super) fn lacks_before(&self) -> u64 {
        self.lacks_before
    }

    /// Everything below `upto` is settled; `copied` says that it is as another replica has it, who need not
    /// have told of what was overwritten.
    pub(super) fn raise(&mut self, upto: u64, digest: Digest, copied: bool) {
        (self.watermark, self.digest) = (upto, digest);
        if copied {
            self.lacks_before = self.lacks_before.max(upto);
        }
    }

    /// How transactions ended is remembered for as long as another partition may have to ask, and as the
    /// settings say; what was copied comes without that.
    pub(super) fn raise_horizon(&mut self, copied: bool) {
        let elsewhere = self.elsewhere.iter().enumerate();
        let elsewhere = elsewhere.filter(|(p, _)| *p != usize::from(self.partition));
        let lowest = elsewhere.map(|(_, watermark)| *watermark).min().unwrap_or(u64::MAX);
        let horizon = match copied {
            true => self.watermark,
            false => lowest.min(self.watermark.saturating_sub(self.outcomes_us)),
        };
        self.horizon = horizon.max(self.horizon);
    }

    /// What was overwritten before `from`, in microseconds, is not all here; whether that is news.
    pub(super) fn lack(&mut self, from: u64) -> bool {
        let news = from > self.lacks_before;
        self.lacks_before = from.max(self.lacks_before);
        news
    }

    /// A replica of another partition on this machine has come so far.
    pub(super) fn heard_of(&mut self, partition: u16, watermark: u64) {
        if let Some(known) = self.elsewhere.get_mut(usize::from(partition)) {
            *known = watermark.max(*known);
        }
    }

    /// What the log has to say of it.
    pub(super) fn record(&self, copied: bool) -> Record {
        let Progress { watermark: upto, digest, horizon, lacks_before, .. } = *self;
        Record::Truncated { upto, horizon, digest, copied, readable_from: lacks_before }
    }

    /// What the log says that goes beyond [`Progress::raise`].
    pub(super) fn replay(&mut self, horizon: u64, lacks_before: u64) {
        self.horizon = horizon;
        self.lacks_before = lacks_before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_remembered_until_other_partitions_have_passed_and_for_a_time_at_least() {
        let settings = Settings { outcomes_ms: 1, history_ms: 2, ..Settings::default() };
        let mut progress = Progress::new(&settings, 1, 3);
        let horizon = |progress: &mut Progress, upto, copied| {
            progress.raise(upto, Digest::default(), copied);
            progress.raise_horizon(copied);
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
    }
}
