//! Time as actors see it.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in a driver's monotonic time, in nanoseconds since the driver started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(duration.as_nanos().min(u128::from(u64::MAX)) as u64))
    }
}

impl Sub for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Timestamp) -> Duration {
        self.since(earlier)
    }
}

/// Seconds, with microseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1000)
    }
}

/// Wall-clock time with its uncertainty, in microseconds since the Unix epoch. As far as the driver knows, true time
/// lies within the interval. A protocol that needs no bound uses the middle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockInterval {
    /// True time is not before this.
    pub earliest_us: u64,
    /// True time is not after this.
    pub latest_us: u64,
}

impl ClockInterval {
    /// The best guess.
    pub fn midpoint_us(self) -> u64 {
        self.earliest_us.midpoint(self.latest_us)
    }
}
