//! The popularity of keys.

use std::collections::BTreeSet;

use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;

use crate::WorkloadError;
use crate::tpcc::permutation::Permutation;

/// A Zipf distribution of keys. Popular keys lie anywhere in the key space, as in 003 §6.1, and so on any server. A
/// permutation maps ranks to keys. It is always the same for a given number of keys.
#[derive(Debug)]
pub(super) struct Popularity {
    keys: u32,
    ranks: Zipf<f64>,
    places: Permutation,
}

/// The seed of the permutation.
const PLACES: u64 = 0x706f_7075_6c61_7200;
/// How many keys are drawn for each key wanted, before the remaining ones are chosen without drawing.
const MOST_DRAWS: usize = 16;

impl Popularity {
    /// A distribution of `keys` keys. The `i`-th most popular one is drawn in proportion to `i` to the power of
    /// `-theta`.
    ///
    /// # Errors
    /// If the number of keys or the exponent is not valid.
    pub(super) fn new(keys: u64, theta: f64) -> Result<Popularity, WorkloadError> {
        let number = u32::try_from(keys).ok().filter(|keys| *keys > 0);
        let number = number.ok_or_else(|| {
            WorkloadError::Keys(format!("{keys} keys are not possible: choose 1 to {}", u32::MAX))
        })?;
        let ranks = Zipf::new(f64::from(number), theta);
        let ranks = ranks.map_err(|error| {
            WorkloadError::Keys(format!("{keys} keys with theta {theta}: {error}"))
        })?;
        Ok(Popularity { keys: number, ranks, places: Permutation::new(number) })
    }

    /// How many keys there are. They are numbered from 0.
    pub(super) fn keys(&self) -> u64 {
        self.keys.into()
    }

    /// The key of this rank, where 0 is the most popular one.
    pub(super) fn key(&self, rank: u32) -> u64 {
        self.places.apply(PLACES, rank).into()
    }

    /// Draws `count` different keys, or all if there are fewer, in the order in which they were drawn.
    pub(super) fn draw(&self, count: usize, random: &mut Pcg64Mcg) -> Vec<u64> {
        let count = count.min(self.keys as usize);
        let (mut drawn, mut ranks) = (BTreeSet::new(), Vec::with_capacity(count));
        for _ in 0..count * MOST_DRAWS {
            if ranks.len() == count {
                break;
            }
            let rank = self.ranks.sample(random) as u32 - 1;
            if drawn.insert(rank) {
                ranks.push(rank);
            }
        }
        // If a few keys have nearly all the weight, take the next ones in order of popularity.
        let missing = (0..self.keys).filter(|rank| !drawn.contains(rank)).take(count - ranks.len());
        ranks.extend(missing);
        ranks.into_iter().map(|rank| self.key(rank)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn theta_decides_how_often_the_most_popular_keys_are_drawn() {
        let share = |theta, ranks: u32| {
            let popularity = Popularity::new(1_000_000, theta).unwrap();
            let hottest: Vec<u64> = (0..ranks).map(|rank| popularity.key(rank)).collect();
            let mut random = Pcg64Mcg::seed_from_u64(1);
            let is_hot = |_: &u32| hottest.contains(&popularity.draw(1, &mut random)[0]);
            (0..50_000).filter(is_hot).count() as f64 / 50_000.0
        };
        // The sum of k^-0.8 is 74.8 for k up to a million and 3.56 up to ten.
        assert!((0.0118..0.0150).contains(&share(0.8, 1)));
        assert!((0.0455..0.0500).contains(&share(0.8, 10)));
        assert!(share(0.0, 10) < 0.001);
    }

    #[test]
    fn popular_keys_lie_anywhere_in_the_key_space() {
        let popularity = Popularity::new(1_000_000, 0.8).unwrap();
        let mut of_part = [0; 8];
        for rank in 0..800 {
            of_part[popularity.key(rank) as usize * 8 / 1_000_000] += 1;
        }
        assert!(of_part.iter().all(|count| (65..140).contains(count)), "{of_part:?}");
        let neighbours = |rank: &u32| popularity.key(*rank).abs_diff(popularity.key(rank + 1)) < 10;
        assert!((0..800).filter(neighbours).count() < 5);
    }

    #[test]
    fn the_requested_number_of_different_keys_is_drawn() {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        for (keys, theta, count, expected) in
            [(1_000_000, 0.8, 1000, 1000), (1000, 6.0, 1000, 1000), (3, 0.8, 10, 3), (1, 0.8, 1, 1)]
        {
            let popularity = Popularity::new(keys, theta).unwrap();
            let drawn: BTreeSet<u64> = popularity.draw(count, &mut random).into_iter().collect();
            assert_eq!(drawn.len(), expected);
            assert!(drawn.iter().all(|key| *key < keys));
        }
    }

    #[test]
    fn no_keys_too_many_or_no_exponent_are_refused() {
        for (keys, theta) in [(0, 0.8), (1 << 32, 0.8), (10, f64::NAN), (10, -1.0)] {
            let error = Popularity::new(keys, theta).unwrap_err().to_string();
            assert!(error.contains(&keys.to_string()), "{error}");
        }
    }
}
