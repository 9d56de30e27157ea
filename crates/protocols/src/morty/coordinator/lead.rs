//! How far ahead of its clock a coordinator takes versions, so that a slow clock does not starve its client.
//!
//! A client whose clock is behind those of others takes versions below theirs. On a key that many change, transactions
//! with later versions read the key before the client's transaction is prepared, and miss what it writes. So each of its
//! attempts is voted down, for as long as others want the key. The votes name the latest of these readers
//! ([`Conflict::readers`]). If the transaction is aborted, the coordinator takes its next versions as far ahead of its clock
//! as the reader's version was when the vote left its replica. The coordinator does not know that time. It takes
//! the shortest time in which an answer has ever come off the time at which the vote came.
//!
//! *Coordinators do not drive one another on.* A reader takes its version when it begins. Then its request to read, the
//! answer, and its Prepare travel, one after the other. Only then is it in anybody's way. Say that a message takes at least
//! `r` to and from the reader's coordinator, and at least `w` to and from the writer's. Then the reader began at least
//! `3r` before the writer's Prepare arrived, and the vote on that arrives at least `w` later. The shortest time is `2w` once
//! an answer has come without delay. So the writer gets the reader's lead over the true time, and at most `w - 3r` more. If
//! the two are in each other's way in turn, this adds up to less than zero. Until an answer has come without delay,
//! it may be more, by that delay. The lead's bound and its wearing off limit what comes of this.
//!
//! A modification is in the way of others without having read, by its Prepare alone. Votes name it if somebody has read what it
//! led to, and that transaction began still later. In turn, this adds up to nothing or less, too. Versions of
//! transactions that begin in the same microsecond rise by one, which adds a little.
//!
//! *A wrong clock has bounds.* Votes count only if the transaction is aborted, and of the readers that they name the
//! earliest counts. A client that is ahead of all others is followed up to the lead's bound. If replicas refuse a version as
//! too far ahead because of the lead, the lead ends, and the client is not told that its clock is wrong.
//!
//! The lead wears off, because the client with the fastest clock may have gone, or its clock may have been corrected: slower
//! than a busy client needs a new one, and faster than clocks drift.
//!
//! [`Conflict::readers`]: crate::morty::message::Conflict::readers

use core::time::Duration;

use serried_actor::ClockInterval;
use serried_model::Version;

/// A lead is a microsecond less after so many microseconds.
const WEARS_OFF: u64 = 1000;
/// A lead is at most so much of the time by which clocks may differ.
const AT_MOST: u64 = 4;

/// By how much a coordinator's versions are ahead of its clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lead {
    us: u64,
    /// What the clock read when the lead was that much, in microseconds.
    at_us: u64,
    /// The last timestamp that is later because of a lead.
    reached_us: u64,
    /// The shortest time in which an answer has come. If answers take longer now, this one is safe all the same: leads are
    /// shorter.
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

    /// The next transaction has got a version.
    pub(super) fn took(&mut self, version: Version, clock: ClockInterval) {
        let led_us = self.reaches(clock).timestamp_us.max(self.reached_us);
        if version.timestamp_us <= led_us.saturating_add(1) {
            self.reached_us = version.timestamp_us;
        }
    }

    /// Whether a version may be ahead of the clock because of a lead, and not because the clock was set back. A lead alone
    /// takes it no further than the lead's bound, and a little more if many transactions begin together.
    pub(super) fn explains(
        self,
        version: Version,
        clock: ClockInterval,
        clock_bound_us: u64,
    ) -> bool {
        let ahead_us = version.timestamp_us.saturating_sub(clock.midpoint_us());
        version.timestamp_us <= self.reached_us && ahead_us <= clock_bound_us / (AT_MOST - 1)
    }

    /// An answer has come after this time.
    pub(super) fn answered(&mut self, after: Duration) {
        self.shortest = Some(self.shortest.map_or(after, |shortest| shortest.min(after)));
    }

    /// A vote says that `reader` has missed what a transaction writes. By how much that is ahead, in microseconds.
    pub(super) fn ahead_us(self, reader: Version, clock: ClockInterval) -> u64 {
        let Some(shortest) = self.shortest else { return 0 };
        let shortest_us = u64::try_from(shortest.as_micros()).unwrap_or(u64::MAX);
        let voted_us = clock.midpoint_us().saturating_sub(shortest_us);
        reader.timestamp_us.saturating_sub(voted_us)
    }

    /// A transaction was aborted because of a reader that was so far ahead.
    pub(super) fn follow(&mut self, us: u64, clock: ClockInterval, clock_bound_us: u64) {
        let (us, now_us) = (us.min(clock_bound_us / AT_MOST), clock.midpoint_us());
        if us > self.left(now_us) {
            (self.us, self.at_us) = (us, now_us);
        }
    }

    /// A version was too far ahead because of the lead.
    pub(super) fn end(&mut self) {
        self.us = 0;
    }

    fn left(self, now_us: u64) -> u64 {
        self.us.saturating_sub(now_us.saturating_sub(self.at_us) / WEARS_OFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND_US: u64 = 2000 * AT_MOST;

    fn at(us: u64) -> ClockInterval {
        ClockInterval { earliest_us: us, latest_us: us }
    }

    /// One that has had an answer after this time.
    fn answered(after_us: u64) -> Lead {
        let mut lead = Lead::default();
        lead.answered(Duration::from_micros(after_us));
        lead
    }

    #[test]
    fn it_follows_the_latest_reader_has_a_bound_and_wears_off() {
        let mut lead = answered(0);
        let mut follow = |reader, now| {
            let us = lead.ahead_us(Version::at(reader), at(now));
            lead.follow(us, at(now), BOUND_US);
            lead
        };
        assert_eq!(follow(900, 1000).reaches(at(1000)), Version::INITIAL, "it is not ahead");
        follow(1500, 1000);
        let lead = follow(1300, 1000);
        assert_eq!(lead.reaches(at(1000)), Version::at(1500));
        assert_eq!(lead.reaches(at(1999)), Version::at(2499));
        assert_eq!(lead.reaches(at(3000)), Version::at(3498));
        assert_eq!(lead.reaches(at(900)), Version::at(1400), "the clock was set back");
        assert_eq!(lead.reaches(at(501_000)), Version::INITIAL);
        assert_eq!(follow(600_010, 600_000).reaches(at(600_000)), Version::at(600_010));
        assert_eq!(follow(u64::MAX, 600_000).reaches(at(600_000)), Version::at(602_000));
        assert_eq!(follow(0, u64::MAX).reaches(at(u64::MAX)), Version::INITIAL);
    }

    #[test]
    fn it_counts_from_when_the_vote_may_have_left() {
        let mut lead = Lead::default();
        assert_eq!(lead.ahead_us(Version::at(5000), at(1000)), 0, "nothing is known of answers");
        for after_us in [300, 200, 250] {
            lead.answered(Duration::from_micros(after_us));
        }
        assert_eq!(lead.ahead_us(Version::at(900), at(1000)), 100);
        assert_eq!(lead.ahead_us(Version::at(900), at(100)), 900);
    }

    #[test]
    fn it_explains_the_versions_that_it_has_led_to_and_no_others() {
        let mut lead = answered(0);
        let explains = |lead: Lead, us| lead.explains(Version::at(us), at(5002), BOUND_US);
        lead.took(Version::at(5000), at(1000));
        assert!(!explains(lead, 5000), "the clock was set back");
        lead.follow(100, at(5001), BOUND_US);
        lead.took(Version::at(5102), at(5001));
        lead.end();
        for us in [5103, 5104] {
            lead.took(Version::at(us), at(5002));
            assert!(explains(lead, us), "it follows from the last");
        }
        lead.took(Version::at(5106), at(5002));
        assert!(!explains(lead, 5106));
        lead.follow(100, at(5106), BOUND_US);
        lead.took(Version::at(9000), at(5106));
        assert!(!explains(lead, 9000), "the clock was set back, though there is a lead");
    }

    /// Two coordinators whose clocks agree, and whose transactions are in each other's way in turn, as soon as possible.
    #[test]
    fn two_coordinators_do_not_drive_each_other_on() {
        for travels in [[50, 50], [10, 500], [500, 10], [0, 100]] {
            let mut leads = travels.map(|travel| answered(2 * travel));
            let mut now_us = 1_000_000;
            for turn in 0..10_000 {
                let [reader, writer] = [turn % 2, (turn + 1) % 2];
                let read = Version::at(leads[reader].reaches(at(now_us)).timestamp_us.max(now_us));
                now_us += 3 * travels[reader] + travels[writer];
                let us = leads[writer].ahead_us(read, at(now_us));
                leads[writer].follow(us, at(now_us), u64::MAX);
                let most_us = leads.map(|lead| lead.left(now_us)).into_iter().max();
                assert!(most_us <= travels.into_iter().max(), "{most_us:?}");
            }
        }
    }
}
