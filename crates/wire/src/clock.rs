//! Time, as this process sees it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serried_actor::{ClockInterval, Timestamp};

/// An endpoint's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    uncertainty_us: u64,
}

/// One reading of both clocks, for everything that is done at one wake-up.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Monotonic time.
    pub now: Timestamp,
    /// Wall-clock time.
    pub clock: ClockInterval,
}

impl Clock {
    /// A clock that starts now, its wall-clock time good to `uncertainty` either way.
    pub fn start(uncertainty: Duration) -> Clock {
        Clock { origin: Instant::now(), uncertainty_us: uncertainty.as_micros() as u64 }
    }

    /// A clock that was started so long ago.
    #[cfg(test)]
    pub(crate) fn running_for(time: Duration) -> Clock {
        let clock = Clock::start(Duration::ZERO);
        Clock {
            origin: clock.origin.checked_sub(time).expect("the machine runs for longer"),
            ..clock
        }
    }

    /// Monotonic time since the start.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.origin.elapsed().as_nanos() as u64)
    }

    /// Both clocks.
    pub fn moment(&self) -> Moment {
        // A wall clock before 1970 reads as 1970.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_us = wall.as_micros() as u64;
        let clock = ClockInterval {
            earliest_us: wall_us.saturating_sub(self.uncertainty_us),
            latest_us: wall_us.saturating_add(self.uncertainty_us),
        };
        Moment { now: self.now(), clock }
    }

    /// `at` on tokio's clock.
    pub(crate) fn instant(&self, at: Timestamp) -> tokio::time::Instant {
        (self.origin + Duration::from_nanos(at.0)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_as_wide_as_the_uncertainty_either_way() {
        let clock = Clock::start(Duration::from_millis(10));
        let moment = clock.moment();
        assert_eq!(moment.clock.latest_us - moment.clock.earliest_us, 20_000);
        assert!(clock.now() >= moment.now);
    }
}
