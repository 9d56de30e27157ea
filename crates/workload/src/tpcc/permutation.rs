//! Permutations that need no memory.

use super::draw::mix;

/// A family of permutations of `0..size`, each with its inverse: a Feistel network over the next power of four, applied
/// repeatedly until the result is in the range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    size: u64,
    half_bits: u32,
}

const ROUNDS: u64 = 4;

impl Permutation {
    /// Permutations of `0..size`, which is not empty.
    pub(crate) fn new(size: u32) -> Permutation {
        let bits = u32::BITS - (size - 1).leading_zeros();
        Permutation { size: size.into(), half_bits: bits.div_ceil(2) }
    }

    /// The image of `place` under the permutation number `name`.
    pub(crate) fn apply(&self, name: u64, place: u32) -> u32 {
        self.walk(place, |left, right, round| (right, left ^ self.scramble(name, round, right)))
    }

    /// The number whose image is `place` under the permutation number `name`.
    pub(crate) fn invert(&self, name: u64, place: u32) -> u32 {
        self.walk(place, |left, right, round| {
            (right ^ self.scramble(name, ROUNDS - 1 - round, left), left)
        })
    }

    fn walk(&self, place: u32, step: impl Fn(u64, u64, u64) -> (u64, u64)) -> u32 {
        let mut place = u64::from(place);
        loop {
            let halves = (place >> self.half_bits, place & self.mask());
            let (left, right) =
                (0..ROUNDS).fold(halves, |(left, right), round| step(left, right, round));
            place = left << self.half_bits | right;
            if place < self.size {
                return place as u32;
            }
        }
    }

    fn scramble(&self, name: u64, round: u64, half: u64) -> u64 {
        mix(name ^ mix(round << 32 | half)) & self.mask()
    }

    fn mask(&self) -> u64 {
        (1 << self.half_bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_one_and_its_inverse_undoes_it() {
        for size in [1, 2, 3, 12, 64, 3000] {
            let permutation = Permutation::new(size);
            for name in 0..3 {
                let mut taken = vec![false; size as usize];
                for place in 0..size {
                    let to = permutation.apply(name, place);
                    assert!(!core::mem::replace(&mut taken[to as usize], true));
                    assert_eq!(permutation.invert(name, to), place);
                }
            }
        }
    }

    #[test]
    fn it_leaves_hardly_anything_in_its_place() {
        let permutation = Permutation::new(3000);
        let fixed = (0..3000).filter(|place| permutation.apply(7, *place) == *place).count();
        assert!(fixed < 10, "{fixed}");
    }
}
