//! The version clock of a partition's leader (004 §6.1).

use core::time::Duration;

use serried_actor::{Settings, Timestamp};
use serried_model::Versionstamp;

/// How far a version clock may be behind what a client has seen. Partitions that were down for long are behind.
const BEHIND_AT_MOST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Election time-outs below and above these count as these: places need room below the bound, and a change of leader
/// should not bring the clock far ahead of others.
const LEAST_TIMEOUT: Duration = Duration::from_millis(1);
const MOST_TIMEOUT: Duration = Duration::from_secs(60);

/// How far ahead the log allows the version clock to go. The leader raises the bound when half of that is left.
pub(super) fn ahead(settings: &Settings) -> Duration {
    settings.election_timeout().clamp(LEAST_TIMEOUT, MOST_TIMEOUT) * 25
}

/// A version clock. It advances with time, and takes over whatever is later.
#[derive(Clone, Copy, Debug)]
pub(super) struct StampClock {
    /// What it showed, and when.
    set: Versionstamp,
    at: Timestamp,
}

impl StampClock {
    /// A clock that shows this now.
    pub(super) fn new(set: Versionstamp, at: Timestamp) -> StampClock {
        StampClock { set, at }
    }

    /// What it shows.
    pub(super) fn now(&self, now: Timestamp) -> Versionstamp {
        self.set.after(now.since(self.at))
    }

    /// Whether a session can have this versionstamp.
    pub(super) fn is_possible(&self, stamp: Versionstamp, now: Timestamp) -> bool {
        stamp <= self.now(now).after(BEHIND_AT_MOST)
    }

    /// It must not show less than this from now on.
    pub(super) fn take_over(&mut self, stamp: Versionstamp, now: Timestamp) {
        if stamp > self.now(now) {
            *self = StampClock::new(stamp, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_advances_with_time_and_never_goes_back() {
        let at = Timestamp(5_000_000);
        let mut clock = StampClock::new(Versionstamp(9), at);
        let later = at + Duration::from_millis(3);
        let expected = Versionstamp(9).after(Duration::from_millis(3));
        assert_eq!(clock.now(later), expected);
        clock.take_over(Versionstamp(100), later);
        assert_eq!(clock.now(later), expected);
        clock.take_over(expected.next(), later);
        assert_eq!(clock.now(later), expected.next());
        assert!(clock.now(later + Duration::from_millis(1)) > expected.next());
    }
}
