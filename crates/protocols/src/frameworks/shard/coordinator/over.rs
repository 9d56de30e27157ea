//! The times that leaders report to be over.

use core::time::Duration;

use serried_actor::Timestamp;

/// For how long reports are collected. Of each such period the one that shows the latest time counts.
const PERIOD: Duration = Duration::from_secs(1);

/// A time that is certainly over, as leaders have reported lately. If a leader's clock was ahead, its report counts for two
/// periods at most after others have reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Over {
    /// Of the current period.
    last: Option<Reported>,
    /// Of the one before.
    before: Option<Reported>,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    /// Microseconds since the Unix epoch.
    us: u64,
    /// When that was reported.
    at: Timestamp,
    /// When its period began.
    begun: Timestamp,
}

impl Reported {
    /// What the leader's clock shows now.
    fn us(&self, now: Timestamp) -> u64 {
        self.us.saturating_add(now.since(self.at).as_micros() as u64)
    }
}

impl Over {
    /// A leader reports that a time is over.
    pub(super) fn learn(&mut self, us: u64, now: Timestamp) {
        let new = Reported { us, at: now, begun: now };
        match &mut self.last {
            Some(last) if now < last.begun + PERIOD => {
                if last.us(now) < us {
                    *last = Reported { begun: last.begun, ..new };
                }
            }
            last => self.before = last.replace(new),
        }
    }

    /// A time that is over now, in microseconds since the Unix epoch, if any was reported.
    pub(super) fn us(&self, now: Timestamp) -> Option<u64> {
        // The last report counts, however long ago it was.
        let before = self.before.filter(|before| now < before.begun + 2 * PERIOD);
        self.last.iter().chain(&before).map(|reported| reported.us(now)).max()
    }
}
