//! How long to wait before a lost connection is opened again.

use std::time::Duration;

use rand::Rng;
use serried_actor::Random;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// A randomised exponential wait, from 50 ms up to 2 s, so that not all clients of a node that comes back connect at
/// the same time.
#[derive(Clone, Copy, Debug)]
pub struct Redial(Duration);

impl Default for Redial {
    fn default() -> Self {
        Redial::new()
    }
}

impl Redial {
    /// A wait for a connection that has just been lost.
    pub fn new() -> Redial {
        Redial(SHORTEST)
    }

    /// The wait before the next try: between half of a bound and the whole, and at least 50 ms. The bound doubles with
    /// each try.
    pub fn wait(&mut self, random: &mut Random) -> Duration {
        let most = self.0;
        self.0 = (2 * most).min(LONGEST);
        let share = f64::from(random.next_u32()) / f64::from(u32::MAX);
        most.mul_f64(0.5 + share / 2.0).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn waits_grow_within_their_bounds() {
        let (mut redial, mut random) = (Redial::new(), Random::seed_from_u64(7));
        let waits: Vec<_> = (0..20).map(|_| redial.wait(&mut random)).collect();
        assert_eq!(waits[0], SHORTEST);
        assert!(waits.iter().all(|wait| (SHORTEST..=LONGEST).contains(wait)));
        assert!(waits[10..].iter().all(|wait| *wait >= LONGEST / 2));
    }
}
