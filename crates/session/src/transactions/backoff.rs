//! The wait between attempts.

use std::time::Duration;

use crate::Backoff;

impl Backoff {
    /// The wait before retry `retry`, counted from 1, given a uniformly random number.
    pub fn wait(&self, retry: u32, random: u64) -> Duration {
        let doublings = retry.saturating_sub(1).min(62);
        let most = self.first.as_nanos().saturating_mul(1 << doublings).min(self.most.as_nanos());
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
        let backoff = Backoff::default();
        let longest = |retry| backoff.wait(retry, u64::MAX).as_micros();
        assert_eq!(longest(1), 999);
        assert_eq!(longest(2), 1999);
        assert_eq!(longest(30), 2_499_999);
        assert_eq!(longest(u32::MAX), 2_499_999);
        assert_eq!(backoff.wait(5, 0), Duration::ZERO);
    }
}
