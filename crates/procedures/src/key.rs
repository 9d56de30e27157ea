//! Encoded keys of rows.

use serried_model::Key;
use smallvec::SmallVec;

use crate::Datum;

/// The key of a row in a store: the table, then the parts of the row's key. Keys of one table are in the order of their
/// parts. The first parts of a key are encoded as the first bytes of the whole, so rows whose keys begin alike are
/// neighbours.
///
/// An integer takes one byte and as many others as it needs, because short keys are cheap.
///
/// # Panics
/// If a part is a list or a record; the compiler refuses such keys.
pub fn row_key(table: u16, parts: &[Datum]) -> Key {
    let mut key = KeyWriter::of_row(table);
    for part in parts {
        assert!(key.push(part), "a part of a key is a {}", part.kind());
    }
    key.end()
}

/// What decides which server has a row: the leading parts of its key. Rows of several tables with equal leading parts are
/// at one server.
///
/// # Panics
/// As [`row_key`].
pub fn placement_key(leading: &[Datum]) -> Key {
    let mut bytes = SmallVec::<[u8; 64]>::new();
    for part in leading {
        match part {
            // Rows lie where this encoding says, so it never changes; in keys of rows integers are shorter.
            Datum::Int(int) => bytes.extend_from_slice(&(int ^ i64::MIN).to_be_bytes()),
            part => assert!(encode(part, &mut bytes), "a part of a key is a {}", part.kind()),
        }
    }
    Key::from(bytes.as_slice())
}

/// Encodes the key of a row, part by part.
#[derive(Debug)]
pub(crate) struct KeyWriter(SmallVec<[u8; 64]>);

impl KeyWriter {
    /// A key without parts.
    pub(crate) fn of_row(table: u16) -> KeyWriter {
        KeyWriter(SmallVec::from_slice(&table.to_be_bytes()))
    }

    /// Adds a part. Returns false if it can't be one: it is a list or a record.
    #[must_use]
    pub(crate) fn push(&mut self, part: &Datum) -> bool {
        encode(part, &mut self.0)
    }

    /// The key with the parts that were added.
    pub(crate) fn end(self) -> Key {
        Key::from(self.0.as_slice())
    }
}

fn encode(part: &Datum, bytes: &mut SmallVec<[u8; 64]>) -> bool {
    match part {
        Datum::Bool(bool) => bytes.push(u8::from(*bool)),
        Datum::Int(int) => encode_int(*int, bytes),
        Datum::String(text) => encode_ended(text.as_bytes(), bytes),
        Datum::Bytes(value) => encode_ended(value.as_bytes(), bytes),
        Datum::List(_) | Datum::Record(_) => return false,
    }
    true
}

/// Encodes an integer without its leading bytes that only repeat its sign. The first byte says how many bytes follow: the
/// more, the greater a positive integer is, and the less a negative one.
fn encode_int(int: i64, bytes: &mut SmallVec<[u8; 64]>) {
    let magnitude = if int < 0 { !int } else { int };
    let length = (u64::BITS - magnitude.leading_zeros()).div_ceil(8) as u8;
    bytes.push(if int < 0 { 0x7f - length } else { 0x80 + length });
    bytes.extend_from_slice(&int.to_be_bytes()[8 - usize::from(length)..]);
}

/// Encodes bytes of any length so that none is the beginning of another: a zero is followed by 255, the end by 0.
fn encode_ended(part: &[u8], bytes: &mut SmallVec<[u8; 64]>) {
    if !part.contains(&0) {
        bytes.extend_from_slice(part);
    } else {
        for byte in part {
            bytes.push(*byte);
            if *byte == 0 {
                bytes.push(u8::MAX);
            }
        }
    }
    bytes.extend_from_slice(&[0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_parts() {
        let texts = ["", "\0", "\0\0", "\0a", "a", "a\0", "ab", "b"];
        let mut keys = Vec::new();
        let ints = [i64::MIN, -65_537, -257, -256, -2, -1, 0, 1, 255, 256, 65_535, i64::MAX];
        for int in ints {
            for text in texts {
                for bool in [false, true] {
                    keys.push([Datum::Int(int), Datum::from(text), Datum::from(bool)]);
                }
            }
        }
        let encoded: Vec<Key> = keys.iter().map(|key| row_key(7, key)).collect();
        assert!(encoded.is_sorted_by(|one, other| one < other), "{encoded:?}");
        assert!(row_key(6, &keys[191]) < encoded[0] && encoded[191] < row_key(8, &keys[0]));
    }

    #[test]
    fn integers_of_any_size_are_in_their_order() {
        let near = |bit: u32| [-1, 0, 1].map(|more| (1i64 << bit) + more);
        let mut ints: Vec<i64> = (0..63).flat_map(near).flat_map(|int| [int, -int]).collect();
        ints.sort_unstable();
        ints.dedup();
        let encoded: Vec<Key> = ints.iter().map(|int| row_key(0, &[Datum::Int(*int)])).collect();
        assert!(encoded.is_sorted_by(|one, other| one < other), "{encoded:?}");
        let begins = |keys: &[Key]| keys[1].as_bytes().starts_with(keys[0].as_bytes());
        assert!(!encoded.windows(2).any(begins), "a part tells where it ends");
    }

    #[test]
    fn the_key_of_a_row_named_by_small_integers_is_short() {
        assert_eq!(row_key(10, &[1, 7, 3001, 15].map(Datum::Int)).len(), 11);
    }

    #[test]
    fn the_first_parts_are_the_first_bytes() {
        let key = [Datum::Int(3), Datum::from("a\0b"), Datum::from(true)];
        let whole = row_key(1, &key);
        for parts in 0..key.len() {
            assert!(whole.as_bytes().starts_with(row_key(1, &key[..parts]).as_bytes()));
        }
        assert_ne!(placement_key(&key[..1]), placement_key(&key[..2]));
    }
}
