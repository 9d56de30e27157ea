//! The event hash, and the generators that are derived from the seed.

use rand::SeedableRng;
use serried_actor::Random;

/// A running 64-bit hash. It distinguishes runs. It is not secure against an adversary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hash(u64);

/// 2^64 divided by the golden ratio: an odd number without structure.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hash {
    pub(crate) fn new(seed: u64) -> Hash {
        Hash(mix(seed))
    }

    pub(crate) fn fold(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    }

    pub(crate) fn fold_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.fold(u64::from_le_bytes(last));
        self.fold(bytes.len() as u64);
    }

    pub(crate) fn value(self) -> u64 {
        mix(self.0)
    }
}

/// Spreads a number over all 64 bits.
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_add(1).wrapping_mul(MULTIPLIER);
    let number = (number ^ number >> 29).wrapping_mul(MULTIPLIER);
    number ^ number >> 32
}

/// The purpose of a random generator. Each purpose has a generator of its own, so that draws for one do not change the
/// others.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Network,
    Plan,
    Clock(u64),
    Node(u64),
    Session(u64),
}

/// The generator for `purpose` in the run with this seed.
pub(crate) fn generator(seed: u64, purpose: Purpose) -> Random {
    let (kind, number) = match purpose {
        Purpose::Network => (0, 0),
        Purpose::Plan => (1, 0),
        Purpose::Clock(node) => (2, node),
        Purpose::Node(node) => (3, node),
        Purpose::Session(client) => (4, client),
    };
    let mut hash = Hash::new(seed);
    hash.fold(kind);
    hash.fold(number);
    Random::seed_from_u64(hash.value())
}

/// Maps a uniformly random 64-bit number to a number below `bound`.
pub(crate) fn below(bound: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(bytes: &[u8]) -> u64 {
        let mut hash = Hash::new(0);
        hash.fold_bytes(bytes);
        hash.value()
    }

    #[test]
    fn bits_order_and_length_of_bytes_change_the_hash() {
        let variants: [&[u8]; 6] =
            [b"", b"\0", b"abcdefgh", b"abcdefgi", b"bacdefgh", b"abcdefgh\0"];
        for (i, one) in variants.iter().enumerate() {
            for other in &variants[i + 1..] {
                assert_ne!(hash_of(one), hash_of(other));
            }
        }
    }

    #[test]
    fn a_bound_is_never_reached() {
        assert_eq!((below(10, 0), below(10, u64::MAX), below(0, u64::MAX)), (0, 9, 0));
    }
}
