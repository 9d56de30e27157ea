//! The clocks of a node.

use core::time::Duration;

use rand::RngExt;
use serried_actor::{ClockInterval, Random, Timestamp};

use crate::Clocks;

/// The wall-clock time at which every run starts, in microseconds since the Unix epoch.
const START_US: u64 = 1_700_000_000_000_000;

/// One node's clocks: a monotonic clock that drifts, and a wall clock that stays within a bound of true time.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The error at the start, within ± `bound_ns`.
    skew_ns: i64,
    bound_ns: i64,
    /// How much faster than true time the clocks run, in units of 2^-32.
    drift: i64,
    /// How far the wall clock has jumped, in nanoseconds. The node does not know this, and the bound does not include
    /// it.
    jumped_ns: i64,
}

impl Clock {
    pub(crate) fn new(clocks: Clocks, random: &mut Random) -> Clock {
        let bound_ns = clocks.skew.as_nanos() as i64;
        let drift_most = (i64::from(clocks.drift_ppm) << 32) / 1_000_000;
        Clock {
            skew_ns: random.random_range(-bound_ns..=bound_ns),
            bound_ns,
            drift: random.random_range(-drift_most..=drift_most),
            jumped_ns: 0,
        }
    }

    /// The node's monotonic time at true time `now`.
    pub(crate) fn monotonic(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0.wrapping_add_signed(self.drifted(now)))
    }

    /// The node's wall clock at true time `now`.
    pub(crate) fn wall(&self, now: Timestamp) -> ClockInterval {
        let off = (self.skew_ns + self.drifted(now)).clamp(-self.bound_ns, self.bound_ns);
        let shown_ns = (START_US * 1000 + now.0).wrapping_add_signed(off + self.jumped_ns);
        let bound_ns = self.bound_ns as u64;
        ClockInterval {
            earliest_us: (shown_ns - bound_ns) / 1000,
            latest_us: (shown_ns + bound_ns).div_ceil(1000),
        }
    }

    /// The true duration of `duration` by this clock, rounded up so that nothing is early.
    pub(crate) fn true_duration(&self, duration: Duration) -> Duration {
        if self.drift == 0 {
            return duration;
        }
        let rate = ((1i128 << 32) + i128::from(self.drift)) as u128;
        let nanoseconds = (duration.as_nanos() << 32).div_ceil(rate) + 1;
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Moves the wall clock by `by_us` microseconds.
    pub(crate) fn jump(&mut self, by_us: i64) {
        self.jumped_ns += by_us * 1000;
    }

    fn drifted(&self, now: Timestamp) -> i64 {
        ((i128::from(now.0) * i128::from(self.drift)) >> 32) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Purpose, generator};

    fn clocks() -> impl Iterator<Item = Clock> {
        let settings = Clocks { skew: Duration::from_millis(3), drift_ppm: 200 };
        (0..100).map(move |node| Clock::new(settings, &mut generator(1, Purpose::Clock(node))))
    }

    #[test]
    fn true_time_stays_within_the_interval_of_a_drifting_clock() {
        for clock in clocks() {
            for seconds in [0, 1, 10, 1000, 100_000] {
                let now = Timestamp(seconds * 1_000_000_000 + 123);
                let (interval, truth_us) = (clock.wall(now), START_US + now.0 / 1000);
                assert!(interval.earliest_us <= truth_us && truth_us <= interval.latest_us);
                assert!(interval.latest_us - interval.earliest_us <= 6001);
                assert!(interval.midpoint_us().abs_diff(truth_us) <= 3001);
            }
        }
    }

    #[test]
    fn clocks_differ_and_their_skew_fills_the_bound() {
        let shown: Vec<u64> =
            clocks().map(|clock| clock.wall(Timestamp(0)).midpoint_us()).collect();
        assert!(shown.iter().min().is_some_and(|least| *least < START_US - 2000));
        assert!(shown.iter().max().is_some_and(|most| *most > START_US + 2000));
    }

    #[test]
    fn a_timed_duration_is_never_early_and_hardly_late() {
        for clock in clocks() {
            for (start_ns, duration_ns) in [(0, 1), (7, 1_000_000), (12_345, 30_000_000_000)] {
                let duration = Duration::from_nanos(duration_ns);
                let start = Timestamp(start_ns);
                let end = start + clock.true_duration(duration);
                let passed = clock.monotonic(end) - clock.monotonic(start);
                assert!(passed >= duration && passed <= duration + Duration::from_nanos(3));
            }
        }
    }

    #[test]
    fn perfect_clocks_show_true_time() {
        let clock = Clock::new(Clocks::PERFECT, &mut generator(1, Purpose::Clock(0)));
        let interval = clock.wall(Timestamp(5_000));
        assert_eq!((interval.earliest_us, interval.latest_us), (START_US + 5, START_US + 5));
        assert_eq!(clock.monotonic(Timestamp(9)), Timestamp(9));
    }
}
