//! Where versions come from.

use serried_actor::ClockInterval;
use serried_model::{NodeId, Version};

/// Assigns versions from a loosely synchronised clock: unique, and rising at each coordinator even
/// if its clock does not (000 §4.2, "Begin").
#[derive(Clone, Copy, Debug, Default)]
pub struct VersionClock {
    last_us: u64,
}

impl VersionClock {
    /// The next version of `coordinator`, whose clock reads `clock`.
    pub fn next(&mut self, coordinator: NodeId, clock: ClockInterval) -> Version {
        self.next_after(Version::INITIAL, coordinator, clock)
    }

    /// The same, above `version`, which may be ahead of the clock.
    pub fn next_after(
        &mut self,
        version: Version,
        coordinator: NodeId,
        clock: ClockInterval,
    ) -> Version {
        let earliest_us = self.last_us.max(version.timestamp_us).saturating_add(1);
        self.last_us = clock.midpoint_us().max(earliest_us);
        Version { timestamp_us: self.last_us, coordinator }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rise_when_the_clock_stands_still_or_goes_back() {
        let mut clock = VersionClock::default();
        let mut next = |us| clock.next(NodeId(7), ClockInterval { earliest_us: us, latest_us: us });
        let versions = [next(10), next(10), next(3), next(20)].map(|version| version.timestamp_us);
        assert_eq!(versions, [10, 11, 12, 20]);
    }

    #[test]
    fn a_version_comes_after_another_that_is_ahead_of_the_clock() {
        let mut clock = VersionClock::default();
        let mut next = |after, us| {
            let interval = ClockInterval { earliest_us: us, latest_us: us };
            clock.next_after(Version::at(after), NodeId(7), interval).timestamp_us
        };
        assert_eq!([next(5, 10), next(15, 12), next(0, 13), next(3, 30)], [10, 16, 17, 30]);
    }
}
