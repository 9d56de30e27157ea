//! How far ahead of its clock a coordinator takes versions, so that a slow clock does not starve its client.
//!
//! A client whose clock is behind those of others takes versions below theirs. On a key that many change, transactions
//! with later versions read the key before the client's transaction is prepared, and miss what it writes. So each of its
//! attempts is voted down, for as long as others want the key. The votes name the latest of these readers
//! ([`Conflict::readers`]). The coordinator takes its next versions as far ahead of its clock as that reader's version
//! was when the votes left their replica, as far as it can know: it takes the shortest time in which a vote arrived off
//! its clock.
//!
//! *Coordinators do not drive one another on.* A reader takes its version when it begins. Then its request to read, the
//! answer, and its Prepare travel, one after the other. Only then is it in anybody's way. Say that a message takes at least
//! `r` to and from the reader's coordinator, and at least `w` to and from the writer's. Then the reader began at least
//! `3r` before the writer's Prepare arrived, and the vote on this arrives at least `w` later. The shortest time is at least
//! `2w`. So the writer gets the reader's lead over the true time, plus at most `w - 3r`. If the two are in each
//! other's way in turn, this adds up to less than zero.
//!
//! A version is never further ahead of the client's clock than clocks may differ, because of this alone. The lead wears off,
//! because the client with the fastest clock may have gone, or its clock may have been corrected: slower than a busy client
//! needs a new one, and faster than clocks drift.
//!
//! [`Conflict::readers`]: crate::morty::message::Conflict::readers

use core::time::Duration;

use serried_actor::ClockInterval;
use serried_model::Version;

/// A lead is a microsecond less after so many microseconds.
const WEARS_OFF: u64 = 1000;

/// By how much a coordinator's versions are ahead of its clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lead {
    us: u64,
    /// What the clock read when the lead was that much, in microseconds.
    at_us: u64,
    /// The shortest time in which a vote has arrived.
    shortest: Option<Duration>,
}

impl Lead {
    /// The version that the next transaction's is to be above.
    pub(super) fn reaches(self, clock: ClockInterval) -> Version {
        match self.left(clock.midpoint_us()) {
            0 => Version::INITIAL,
            us => Version::at(clock.midpoint_us().saturating_add(us)),
        }
    }

    /// A vote has arrived after this time.
    pub(super) fn answered(&mut self, after: Duration) {
        self.shortest = Some(self.shortest.map_or(after, |shortest| shortest.min(after)));
    }

    /// A vote says that `reader` has missed what a transaction writes. A lead is at most `most_us`.
    pub(super) fn follow(&mut self, reader: Version, clock: ClockInterval, most_us: u64) {
        let now_us = clock.midpoint_us();
        let shortest = self.shortest.unwrap_or_default().as_micros();
        let voted_us = now_us.saturating_sub(u64::try_from(shortest).unwrap_or(u64::MAX));
        let us = reader.timestamp_us.saturating_sub(voted_us).min(most_us);
        if us > self.left(now_us) {
            (self.us, self.at_us) = (us, now_us);
        }
    }

    fn left(self, now_us: u64) -> u64 {
        self.us.saturating_sub(now_us.saturating_sub(self.at_us) / WEARS_OFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> ClockInterval {
        ClockInterval { earliest_us: us, latest_us: us }
    }

    #[test]
    fn it_follows_the_latest_reader_and_wears_off() {
        let mut lead = Lead::default();
        assert_eq!(lead.reaches(at(1000)), Version::INITIAL);
        lead.follow(Version::at(900), at(1000), 2000);
        assert_eq!(lead.reaches(at(1000)), Version::INITIAL, "it is not ahead");
        lead.follow(Version::at(1500), at(1000), 2000);
        lead.follow(Version::at(1300), at(1000), 2000);
        assert_eq!(lead.reaches(at(1000)), Version::at(1500));
        assert_eq!(lead.reaches(at(1999)), Version::at(2499));
        assert_eq!(lead.reaches(at(3000)), Version::at(3498));
        assert_eq!(lead.reaches(at(900)), Version::at(1400), "the clock was set back");
        assert_eq!(lead.reaches(at(501_000)), Version::INITIAL);
        lead.follow(Version::at(600_010), at(600_000), 2000);
        assert_eq!(lead.reaches(at(600_000)), Version::at(600_010));
    }

    #[test]
    fn it_counts_from_when_the_vote_may_have_left_and_has_a_bound() {
        let mut lead = Lead::default();
        lead.answered(Duration::from_micros(300));
        lead.answered(Duration::from_micros(200));
        lead.answered(Duration::from_micros(250));
        lead.follow(Version::at(900), at(1000), 2000);
        assert_eq!(lead.reaches(at(1000)), Version::at(1100));
        lead.follow(Version::at(u64::MAX), at(1000), 2000);
        assert_eq!(lead.reaches(at(1000)), Version::at(3000));
        lead.follow(Version::at(u64::MAX), at(100), 2000);
        assert_eq!(lead.reaches(at(u64::MAX)), Version::INITIAL);
    }

    /// Two coordinators whose clocks agree, and whose transactions are in each other's way in turn, as soon as possible.
    #[test]
    fn two_coordinators_do_not_drive_each_other_on() {
        for [first, second] in [[50, 50], [10, 500], [500, 10], [0, 100]] {
            let travels = [first, second];
            let mut leads = [Lead::default(); 2];
            let mut now_us = 1_000_000;
            for turn in 0..10_000 {
                let [reader, writer] = [turn % 2, (turn + 1) % 2];
                let read = Version::at(leads[reader].reaches(at(now_us)).timestamp_us.max(now_us));
                let prepared_us = now_us + 3 * travels[reader];
                now_us = prepared_us + travels[writer];
                leads[writer].answered(Duration::from_micros(2 * travels[writer]));
                leads[writer].follow(read, at(now_us), u64::MAX);
                let most_us = leads.map(|lead| lead.left(now_us)).into_iter().max();
                assert!(most_us <= Some(travels[writer].max(travels[reader])), "{most_us:?}");
            }
        }
    }
}
