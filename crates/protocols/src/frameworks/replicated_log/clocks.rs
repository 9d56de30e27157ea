//! The time by the clocks of a majority of a partition's replicas. A single wrong clock must not
//! decide which transactions are admitted. Trusting the leader's clock alone would let it. So the
//! replicas exchange the readings of their clocks, and the median counts.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use serried_actor::{Actor, Context, Timestamp};
use serried_model::NodeId;
use smallvec::SmallVec;

/// How often the other replicas are asked for the readings of their clocks.
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// After this time plus two round trips, replicas that have not answered are asked again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Two clocks drift apart by no more than one part of so many. Quartz drifts by a tenth of that.
const DRIFT: u64 = 1000;

const _: () = assert!(
    ASKED_AGAIN_AFTER.as_millis() < ASKED_EVERY.as_millis(),
    "replicas that have not answered are asked again sooner than the others"
);

/// A request for the reading of a replica's clock, or the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Time {
    /// A request for the reading of the receiver's clock.
    Ask {
        /// Identifies the question.
        number: u64,
    },
    /// The answer.
    Tell {
        /// Identifies the request.
        number: u64,
        /// The reading of the sender's clock, in microseconds since the Unix epoch.
        us: u64,
    },
}

/// The known readings of the clocks of the partition's replicas.
///
/// Readings are carried forward by this replica's monotonic clock. So a reading is still good after minutes, and a jump of
/// this replica's own wall clock changes only its own reading.
#[derive(Debug)]
pub struct Clocks {
    own: usize,
    /// The number of the last request, and when it was sent.
    asked: Option<(u64, Timestamp)>,
    /// How many requests in a row before the last one got no answer.
    unanswered: u32,
    /// By member, the reading of its clock.
    readings: Vec<Option<Reading>>,
}

/// A reading of another replica's clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// What it showed, in microseconds since the Unix epoch.
    us: u64,
    /// How long it took from the request to the answer, in microseconds. The clock was read some time between.
    delay_us: u64,
    /// When the answer arrived.
    at: Timestamp,
}

impl Reading {
    /// What the clock shows now, if it was read half-way.
    fn now_us(&self, now: Timestamp) -> u64 {
        let since_us = now.since(self.at).as_micros() as u64;
        self.us.saturating_add(self.delay_us / 2).saturating_add(since_us)
    }

    /// What the clock shows now: at least, and at most.
    fn bounds_us(&self, now: Timestamp) -> (u64, u64) {
        let since_us = now.since(self.at).as_micros() as u64;
        let (shown_us, drifted_us) = (self.us.saturating_add(since_us), since_us / DRIFT);
        let latest_us = shown_us.saturating_add(self.delay_us).saturating_add(drifted_us);
        (shown_us.saturating_sub(drifted_us), latest_us)
    }
}

/// The time, in microseconds since the Unix epoch. If all clocks are known, both ends are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// A majority of the clocks show this time or a later one.
    pub earliest_us: u64,
    /// A majority of the clocks show this time or an earlier one.
    pub latest_us: u64,
}

impl Clocks {
    /// For a group of `members` replicas, of which this one is `own`. Only its own clock is known.
    pub fn new(members: usize, own: usize) -> Clocks {
        Clocks { own, asked: None, unanswered: 0, readings: vec![None; members] }
    }

    /// The request for the others, if it is time to ask them.
    pub fn question<A: Actor>(
        &mut self,
        round_trip: Duration,
        cx: &mut Context<'_, A>,
    ) -> Option<Time> {
        if !self.are_due(cx.clock().midpoint_us(), cx.now(), round_trip) {
            return None;
        }
        let number = cx.draw();
        self.ask(number, cx.now());
        Some(Time::Ask { number })
    }

    /// Handles a message about clocks. Returns the answer if the message is a request. The answer
    /// promises nothing, so it need not wait until anything is durable.
    pub fn on_time<A: Actor>(
        &mut self,
        from: NodeId,
        time: Time,
        cx: &mut Context<'_, A>,
    ) -> Option<Time> {
        match time {
            Time::Ask { number } => Some(Time::Tell { number, us: cx.clock().midpoint_us() }),
            Time::Tell { number, us } => {
                self.hear(from.member(), number, us, cx.now());
                None
            }
        }
    }

    /// Whether to ask the others again: their readings are old, or too few have arrived in time.
    /// Only the answer to the last request counts. So a request is not repeated before the others
    /// can have answered it, and it is repeated less and less often if none answers. A round trip
    /// takes about `round_trip`.
    fn are_due(&self, own_us: u64, now: Timestamp, round_trip: Duration) -> bool {
        let Some((_, asked_at)) = self.asked else { return self.readings.len() > 1 };
        let wait = match self.time(own_us, now) {
            Some(_) => ASKED_EVERY,
            None => (2 * round_trip + ASKED_AGAIN_AFTER) * (1 << self.unanswered.min(5)),
        };
        now.since(asked_at) >= wait
    }

    /// Records a request to the others.
    fn ask(&mut self, number: u64, now: Timestamp) {
        self.unanswered = if self.asked.is_some() { self.unanswered.saturating_add(1) } else { 0 };
        self.asked = Some((number, now));
    }

    /// Records a member's reading `us`, unless it answers an earlier request.
    fn hear(&mut self, member: usize, number: u64, us: u64, now: Timestamp) {
        let Some((_, asked_at)) = self.asked.filter(|(asked, _)| *asked == number) else { return };
        if member == self.own {
            return;
        }
        let Some(reading) = self.readings.get_mut(member) else { return };
        let delay_us = now.since(asked_at).as_micros() as u64;
        *reading = Some(Reading { us, delay_us, at: now });
        self.unanswered = 0;
    }

    /// The time, if the clocks of a majority are known. This replica's own clock shows `own_us`.
    pub fn time(&self, own_us: u64, now: Timestamp) -> Option<Span> {
        self.time_by(own_us, now, |_| true)
    }

    /// Like [`Clocks::time`], but uses only recent readings. Older ones do not show whether a clock
    /// was corrected since.
    pub fn recent_time(&self, own_us: u64, now: Timestamp) -> Option<Span> {
        self.time_by(own_us, now, |heard| now.since(heard) < 2 * ASKED_EVERY)
    }

    /// What a majority of the clocks certainly shows, however long messages have taken, if the clocks of a majority are known.
    /// Each reading counts as an interval.
    pub fn certain_time(&self, own_us: u64, now: Timestamp) -> Option<Span> {
        let majority = self.readings.len() / 2 + 1;
        let known = self.readings.iter().flatten().map(|reading| reading.bounds_us(now));
        let all = known.chain([(own_us, own_us)]);
        let (mut least, mut most): (SmallVec<[u64; 7]>, SmallVec<[u64; 7]>) = all.unzip();
        least.sort_unstable();
        most.sort_unstable();
        let earliest_us = *least.get(least.len().checked_sub(majority)?)?;
        Some(Span { earliest_us, latest_us: most[majority - 1] })
    }

    fn time_by(
        &self,
        own_us: u64,
        now: Timestamp,
        counts: impl Fn(Timestamp) -> bool,
    ) -> Option<Span> {
        let majority = self.readings.len() / 2 + 1;
        let others = self.readings.iter().flatten().filter(|reading| counts(reading.at));
        let shown = others.map(|reading| reading.now_us(now));
        let mut times: Vec<u64> = shown.chain([own_us]).collect();
        times.sort_unstable();
        let earliest_us = *times.get(times.len().checked_sub(majority)?)?;
        Some(Span { earliest_us, latest_us: times[majority - 1] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Timestamp = Timestamp(1_000_000);
    const HEARD: Timestamp = Timestamp(3_000_000);

    fn clocks(members: usize, readings: &[u64]) -> Clocks {
        let mut clocks = Clocks::new(members, 0);
        clocks.ask(7, ASKED);
        for (member, us) in (1..).zip(readings) {
            clocks.hear(member, 7, *us, HEARD);
        }
        clocks
    }

    /// The answer may have waited on its way, or the request.
    #[test]
    fn a_reading_is_known_to_within_the_time_that_the_answer_has_taken() {
        let certain = |own_us, readings: &[u64], now| {
            let time = clocks(3, readings).certain_time(own_us, now)?;
            Some((time.earliest_us, time.latest_us))
        };
        // It took 2,000 microseconds.
        assert_eq!(certain(500, &[7000], HEARD), Some((500, 9000)));
        assert_eq!(certain(20_000, &[7000], HEARD), Some((7000, 20_000)));
        assert_eq!(certain(500, &[7000, 8000], HEARD), Some((7000, 9000)));
        assert_eq!(certain(20_000, &[7000, 8000], HEARD), Some((8000, 10_000)));
        assert_eq!(certain(500, &[], HEARD), None);
        let later = Timestamp(HEARD.0 + 1_000_000_000);
        assert_eq!(certain(500, &[7000, 7000], later), Some((1_006_000, 1_010_000)));
    }

    fn span(members: usize, own_us: u64, readings: &[u64]) -> Option<(u64, u64)> {
        let time = clocks(members, readings).time(own_us, HEARD);
        time.map(|Span { earliest_us, latest_us }| (earliest_us, latest_us))
    }

    #[test]
    fn one_wrong_clock_does_not_move_the_time() {
        for off in [5, 900_000] {
            assert_eq!(span(3, off, &[9_000, 9_000]), Some((10_000, 10_000)));
            assert_eq!(span(3, 10_000, &[off, 9_000]), Some((10_000, 10_000)));
        }
        assert_eq!(span(5, 7, &[9_000, 9_000, 900_000]), Some((10_000, 10_000)));
        assert_eq!(span(1, 900_000, &[]), Some((900_000, 900_000)));
    }

    #[test]
    fn two_of_three_clocks_bound_the_time() {
        assert_eq!(span(3, 900_000, &[9_000]), Some((10_000, 900_000)));
        assert_eq!(span(3, 5, &[9_000]), Some((5, 10_000)));
        assert_eq!(span(3, 5, &[]), None);
    }

    #[test]
    fn clocks_are_asked_again_when_overdue_and_then_regularly() {
        let round_trip = Duration::from_millis(100);
        let due = |clocks: &Clocks, ms: u64| {
            clocks.are_due(5, Timestamp(ASKED.0 + ms * 1_000_000), round_trip)
        };
        let mut clocks = Clocks::new(3, 0);
        assert!(due(&clocks, 0));
        clocks.ask(7, ASKED);
        assert_eq!([100, 249, 250].map(|ms| due(&clocks, ms)), [false, false, true]);
        clocks.ask(8, ASKED);
        assert_eq!([250, 499, 500].map(|ms| due(&clocks, ms)), [false, false, true]);
        clocks.hear(1, 8, 9_000, HEARD);
        assert_eq!([250, 999, 1000].map(|ms| due(&clocks, ms)), [false, false, true]);
        assert!(!Clocks::new(1, 0).are_due(5, HEARD, round_trip), "there is no other replica");
    }

    #[test]
    fn a_reading_ages_by_the_monotonic_clock_and_only_the_last_question_is_answered() {
        let mut clocks = clocks(3, &[9_000, 9_000]);
        let later = Timestamp(HEARD.0 + 60_000_000_000);
        assert_eq!(clocks.time(5, later).map(|span| span.earliest_us), Some(60_010_000));
        clocks.ask(8, later);
        clocks.hear(1, 7, 1, later);
        clocks.hear(0, 8, 1, later);
        clocks.hear(63, 8, 1, later);
        assert_eq!(clocks.time(5, later).map(|span| span.earliest_us), Some(60_010_000));
        clocks.hear(1, 8, u64::MAX, later);
        clocks.hear(2, 8, u64::MAX, later);
        assert_eq!(clocks.time(5, later).map(|span| span.earliest_us), Some(u64::MAX));
    }
}
