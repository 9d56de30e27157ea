//! Random numbers and texts as the specification has them (clauses 2.1.6, 4.3.2 and 4.3.3.1).

use rand::{Rng, RngExt};

/// The constants `C` of clause 2.1.6.1. For last names, the constants of loading and running differ by 100, because
/// clause 2.1.6.1 demands such a difference.
const C_LAST_LOAD: u32 = 123;
const C_LAST_RUN: u32 = 223;
const C_CUSTOMER: u32 = 259;
const C_ITEM: u32 = 7911;

/// The finaliser of SplitMix64: a bijection under which similar numbers become dissimilar.
pub(super) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// `NURand(A, 0, size - 1)`, where `first` is from `0..=A` and `second` from `0..size`.
fn non_uniform(first: u32, second: u32, c: u32, size: u32) -> u32 {
    ((first | second) + c) % size
}

/// A last name among `names` for a customer of the initial database, decided by `bits`.
pub(super) fn loaded_name(bits: u64, names: u32) -> u32 {
    let second = ((bits >> 32) * u64::from(names)) >> 32;
    non_uniform(bits as u32 & 255, second as u32, C_LAST_LOAD, names)
}

/// A last name, from 0 on, to look for among `names`.
pub(super) fn name(random: &mut impl Rng, names: u32) -> u32 {
    let first = random.random_range(0..=255);
    non_uniform(first, random.random_range(0..names), C_LAST_RUN, names)
}

/// A customer, from 1 on.
pub(super) fn customer(random: &mut impl Rng, customers: u32) -> u32 {
    let first = random.random_range(0..=1023);
    1 + non_uniform(first, random.random_range(1..=customers), C_CUSTOMER, customers)
}

/// An item, from 1 on.
pub(super) fn item(random: &mut impl Rng, items: u32) -> u32 {
    let first = random.random_range(0..=8191);
    1 + non_uniform(first, random.random_range(1..=items), C_ITEM, items)
}

/// The last name with a number below 1000.
pub(super) fn last_name(number: u32) -> String {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    digits.map(|digit| SYLLABLES[digit as usize]).concat()
}

/// Letters and digits, of a length between these.
pub(super) fn text(random: &mut impl Rng, shortest: usize, longest: usize) -> String {
    const CHARACTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let length = random.random_range(shortest..=longest);
    let mut text = String::with_capacity(length.next_multiple_of(8));
    while text.len() < length {
        let bytes = random.next_u64().to_le_bytes();
        let character = |byte: u8| char::from(CHARACTERS[(usize::from(byte) * 62) >> 8]);
        text.extend(bytes.map(character));
    }
    text.truncate(length);
    text
}

/// A string of `count` digits.
pub(super) fn digits(random: &mut impl Rng, count: usize) -> String {
    (0..count).map(|_| char::from(b'0' + random.random_range(0..10u8))).collect()
}

/// A description of an item or its stock. One in ten is an original.
pub(super) fn description(random: &mut impl Rng) -> String {
    let mut data = text(random, 26, 50);
    if random.random_range(0..10) == 0 {
        let at = random.random_range(0..=data.len() - ORIGINAL.len());
        data.replace_range(at..at + ORIGINAL.len(), ORIGINAL);
    }
    data
}

/// The text that marks originals.
pub(super) const ORIGINAL: &str = "ORIGINAL";

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn last_names_are_those_of_the_specifications_example() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
    }

    #[test]
    fn customers_and_items_cover_their_range_but_not_evenly() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut counts = vec![0u32; 3001];
        for _ in 0..300_000 {
            counts[customer(&mut random, 3000) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        let (least, most) = (counts[1..].iter().min(), counts.iter().max());
        assert!(least < Some(&20) && most > Some(&400), "{least:?} {most:?}");
        let items: Vec<u32> = (0..10_000).map(|_| item(&mut random, 40)).collect();
        assert!((1..=40).all(|item| items.contains(&item)));
    }

    #[test]
    fn texts_have_the_lengths_asked_for_and_one_description_in_ten_is_an_original() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let lengths: Vec<usize> = (0..1000).map(|_| text(&mut random, 14, 24).len()).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&14), Some(&24)));
        let descriptions = (0..5000).map(|_| description(&mut random));
        let originals = descriptions.filter(|data| data.contains(ORIGINAL)).count();
        assert!((400..600).contains(&originals), "{originals}");
    }
}
