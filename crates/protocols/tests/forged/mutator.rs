//! Turns messages that were sent into messages that nobody sends.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus as Random;

/// How often a change is tried until what comes of it can be decoded.
const TRIES: usize = 8;

/// What numbers are likely not to be provided for.
const EXTREMES: [u64; 14] = [
    0,
    1,
    2,
    63,
    127,
    128,
    u16::MAX as u64,
    u32::MAX as u64,
    (1 << 48) - 1,
    1 << 62,
    (1 << 62) - 1,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// How a message was forged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Some of its bits or bytes are others.
    Bytes,
    /// Its fields are others, but are whole.
    Fields,
}

/// A message like `one`, with parts of `other`, in the pieces that its encoding consists of: a change of some of
/// its fields that can still be decoded, or whatever comes of changing its bytes.
pub(crate) fn forge<M>(
    one: &[Vec<u8>],
    other: &[Vec<u8>],
    random: &mut Random,
    decode: impl Fn(&[u8]) -> Option<M>,
) -> (Way, Option<M>) {
    if random.random_ratio(1, 4) {
        return (Way::Bytes, decode(&damaged(&one.concat(), &other.concat(), random)));
    }
    for _ in 0..TRIES {
        let mut pieces = one.to_vec();
        for _ in 0..random.random_range(1..5u32) {
            change(&mut pieces, other, random);
        }
        if let Some(message) = decode(&pieces.concat()) {
            return (Way::Fields, Some(message));
        }
    }
    (Way::Fields, None)
}

/// Bytes that are like `bytes`.
fn damaged(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.random_range(1..4u32) {
        let at = random.random_range(0..bytes.len().max(1));
        match random.random_range(0..8u32) {
            _ if bytes.is_empty() => bytes.push(random.random()),
            0 => bytes[at] ^= 1 << random.random_range(0..8u32),
            1 => bytes[at] = random.random(),
            2 => bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xff][random.random_range(0..6usize)],
            // A number of which nothing is more than half.
            3 => drop(bytes.splice(at..=at, [0xff; 9].into_iter().chain([1]))),
            4 => drop(bytes.splice(at..=at, [0xff, 0xff, 0x03])),
            5 => drop(bytes.remove(at)),
            6 => bytes.insert(at, random.random_range(0..4)),
            _ => {
                let from = random.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

/// Changes a field, a few that belong together, or the length of a list.
fn change(pieces: &mut Vec<Vec<u8>>, other: &[Vec<u8>], random: &mut Random) {
    let at = random.random_range(0..pieces.len());
    let length = random.random_range(1..=4usize.min(pieces.len() - at));
    let Some(number) = number(&pieces[at]) else {
        return text(pieces, at, random);
    };
    match random.random_range(0..10u32) {
        0 | 1 => pieces[at] = encoded(EXTREMES[random.random_range(0..EXTREMES.len())]),
        2 => pieces[at] = encoded(number.wrapping_add(1)),
        3 => pieces[at] = encoded(number.wrapping_sub(1)),
        4 => pieces[at] = encoded(number ^ 1 << random.random_range(0..64u32)),
        5 => pieces[at] = encoded(number.wrapping_add(random.random_range(0..2_000_000))),
        // Another transaction, key, view or time, of this message or of another one.
        6 => {
            let from = random.random_range(0..=pieces.len() - length);
            let taken = pieces[from..from + length].to_vec();
            pieces.splice(at..at + length, taken);
        }
        7 if other.len() > at => {
            let length = length.min(other.len() - at);
            pieces.splice(at..at + length, other[at..at + length].to_vec());
        }
        // A list with an element more, the same twice, or less.
        8 if at + length < pieces.len() => {
            pieces[at] = encoded(number.wrapping_add(1));
            let again = pieces[at + 1..=at + length].to_vec();
            pieces.splice(at + 1..at + 1, again);
        }
        _ if at + length < pieces.len() && number > 0 => {
            pieces[at] = encoded(number - 1);
            pieces.drain(at + 1..=at + length);
        }
        _ => pieces[at] = encoded(0),
    }
}

/// Makes a string longer, shorter or another; the piece before is its length.
fn text(pieces: &mut [Vec<u8>], at: usize, random: &mut Random) {
    let bytes = &mut pieces[at];
    match random.random_range(0..4u32) {
        0 => bytes.clear(),
        1 => bytes.push(0xff),
        2 => bytes.resize(random.random_range(0..2000usize), b'x'),
        _ => bytes.extend_from_slice(b"1"),
    }
    let length = encoded(bytes.len() as u64);
    if at > 0 {
        pieces[at - 1] = length;
    }
}

/// The number that a piece encodes, unless it is no number.
fn number(piece: &[u8]) -> Option<u64> {
    let (last, others) = piece.split_last()?;
    let whole = *last < 0x80 && others.iter().all(|byte| *byte >= 0x80) && piece.len() <= 10;
    let bits = |(place, byte): (usize, &u8)| u64::from(byte & 0x7f) << (7 * place).min(63);
    whole.then(|| piece.iter().enumerate().map(bits).fold(0, |all, bits| all | bits))
}

/// A number in as many bytes as it needs, of seven bits each.
fn encoded(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
