//! What a leader's clock showed some time ago, by which it forgets outcomes.

use core::time::Duration;
use std::collections::VecDeque;

use serried_actor::Timestamp;
use serried_model::Versionstamp;

/// How many samples there are while outcomes are kept.
const SAMPLES: u32 = 16;

/// What the clock has shown, and when. A leader begins with nothing, so it forgets nothing for as long as outcomes are
/// kept.
#[derive(Debug)]
pub(super) struct Horizon {
    samples: VecDeque<(Timestamp, Versionstamp)>,
    kept_for: Duration,
}

impl Horizon {
    /// Outcomes are kept for so long.
    pub(super) fn new(kept_for: Duration) -> Horizon {
        Horizon { samples: VecDeque::new(), kept_for }
    }

    /// The clock shows this.
    pub(super) fn sample(&mut self, shown: Versionstamp, now: Timestamp) {
        let every = self.kept_for / SAMPLES;
        if self.samples.back().is_none_or(|(at, _)| now.since(*at) >= every) {
            self.samples.push_back((now, shown));
        }
        let kept_for = self.kept_for;
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= kept_for) {
            self.samples.pop_front();
        }
    }

    /// What it showed so long ago, or before.
    fn before(&self, ago: Duration, now: Timestamp) -> Option<Versionstamp> {
        let mut samples = self.samples.iter().rev();
        samples.find(|(at, _)| now.since(*at) >= ago).map(|(_, shown)| *shown)
    }

    /// Outcomes of transactions that were requested up to this can be forgotten.
    pub(super) fn forgotten(&self, now: Timestamp) -> Option<Versionstamp> {
        self.before(self.kept_for, now)
    }

    /// Transactions that were requested up to this are not accepted from now on. Others are remembered for half of the
    /// time at least, and less only by the time that it takes to put this into the log.
    pub(super) fn refused(&self, now: Timestamp) -> Option<Versionstamp> {
        self.before(self.kept_for / 2, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_is_remembered_for_half_of_the_time_even_if_the_clock_jumps() {
        let kept_for = Duration::from_secs(30);
        let mut horizon = Horizon::new(kept_for);
        let mut accepted: Vec<(Timestamp, Versionstamp)> = Vec::new();
        let (mut shown, mut now) = (Versionstamp(1), Timestamp(5_000_000_000));
        for step in 0..2000u64 {
            horizon.sample(shown, now);
            if let Some(forgotten) = horizon.forgotten(now) {
                accepted.retain(|(at, requested)| {
                    let is_forgotten = *requested <= forgotten;
                    assert!(!is_forgotten || now.since(*at) >= kept_for / 2, "{step}");
                    !is_forgotten
                });
            }
            accepted.push((now, horizon.refused(now).unwrap_or_default().next()));
            now = now + Duration::from_millis(100);
            shown = shown.after(Duration::from_millis(100));
            if step % 333 == 7 {
                shown = shown.after(Duration::from_secs(3600));
            }
        }
        assert!(accepted.len() < 400, "they are forgotten at last: {}", accepted.len());
    }
}
