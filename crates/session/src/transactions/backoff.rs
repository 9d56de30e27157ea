//! The wait between attempts.

use std::time::Duration;

use crate::Backoff;

impl Backoff {
    /// [`Backoff::Following`] waits at most this long.
    pub const LONGEST: Duration = Duration::from_millis(500);
    /// [`Backoff::Following`] takes an attempt that was shorter for one of this length.
    const SHORTEST: Duration = Duration::from_micros(100);
    /// It takes one that was longer for one of this length. An attempt may be long because a node has failed, and then
    /// there is nothing to wait for.
    const LONGEST_FIRST: Duration = Duration::from_millis(1);

    /// The wait before retry `retry`, counted from 1, if the last attempt took as long as `attempt`, given a uniformly
    /// random number.
    pub fn wait(&self, retry: u32, attempt: Duration, random: u64) -> Duration {
        let (first, most) = match *self {
            Backoff::Following => {
                (attempt.clamp(Backoff::SHORTEST, Backoff::LONGEST_FIRST), Backoff::LONGEST)
            }
            Backoff::Exponential { first, most } => (first, most),
        };
        let doublings = retry.saturating_sub(1).min(62);
        let most = first.as_nanos().saturating_mul(1 << doublings).min(most.as_nanos());
        let most = most.min(u128::from(u64::MAX)) as u64;
        // The upper half of the product of two 64-bit numbers is uniform in 0..most.
        Duration::from_nanos(((u128::from(random) * u128::from(most)) >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_most() {
        let milliseconds = Duration::from_millis;
        let backoff = Backoff::Exponential { first: milliseconds(1), most: milliseconds(2500) };
        let longest = |retry| backoff.wait(retry, milliseconds(7), u64::MAX).as_micros();
        assert_eq!(longest(1), 999);
        assert_eq!(longest(2), 1999);
        assert_eq!(longest(30), 2_499_999);
        assert_eq!(longest(u32::MAX), 2_499_999);
        assert_eq!(backoff.wait(5, milliseconds(7), 0), Duration::ZERO);
    }

    #[test]
    fn the_wait_follows_the_last_attempt_up_to_a_bound() {
        let longest = |retry, attempt| {
            let attempt = Duration::from_micros(attempt);
            Backoff::default().wait(retry, attempt, u64::MAX).as_micros() + 1
        };
        assert_eq!((longest(1, 200), longest(3, 200), longest(6, 200)), (200, 800, 6400));
        assert_eq!((longest(30, 200), longest(30, 150_000)), (500_000, 500_000));
        assert_eq!(longest(1, 0), 100, "it never tries again at once for ever");
        assert_eq!((longest(1, 150_000), longest(2, 150_000)), (1000, 2000));
        assert_eq!(longest(1, u64::MAX / 2), 1000);
    }
}
