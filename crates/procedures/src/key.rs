//! Encoded keys of rows.

use serried_model::Key;

use crate::Datum;

/// The key of a row in a store: the table, then the parts of the row's key. Keys of one table are in the order of their
/// parts. The first parts of a key are encoded as the first bytes of the whole, so rows whose keys begin alike are
/// neighbours.
///
/// # Panics
/// If a part is a list or a record; the compiler refuses such keys.
pub fn row_key(table: u16, parts: &[Datum]) -> Key {
    let mut bytes = Vec::with_capacity(2 + 9 * parts.len());
    bytes.extend_from_slice(&table.to_be_bytes());
    encode(parts, &mut bytes);
    Key::from(bytes.as_slice())
}

/// What decides which server has a row: the leading parts of its key. Rows of several tables with equal leading parts are
/// at one server.
///
/// # Panics
/// As [`row_key`].
pub fn placement_key(leading: &[Datum]) -> Key {
    let mut bytes = Vec::with_capacity(9 * leading.len());
    encode(leading, &mut bytes);
    Key::from(bytes.as_slice())
}

fn encode(parts: &[Datum], bytes: &mut Vec<u8>) {
    for part in parts {
        match part {
            Datum::Bool(bool) => bytes.push(u8::from(*bool)),
            // With the sign's bit flipped, negative numbers come first.
            Datum::Int(int) => bytes.extend_from_slice(&(int ^ i64::MIN).to_be_bytes()),
            Datum::String(text) => encode_ended(text.as_bytes(), bytes),
            Datum::Bytes(value) => encode_ended(value.as_bytes(), bytes),
            Datum::List(_) | Datum::Record(_) => panic!("a part of a key is a {}", part.kind()),
        }
    }
}

/// Encodes bytes of any length so that none is the beginning of another: a zero is followed by 255, the end by 0.
fn encode_ended(part: &[u8], bytes: &mut Vec<u8>) {
    for byte in part {
        bytes.push(*byte);
        if *byte == 0 {
            bytes.push(u8::MAX);
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
        for int in [i64::MIN, -1, 0, 1, i64::MAX] {
            for text in texts {
                for bool in [false, true] {
                    keys.push([Datum::Int(int), Datum::from(text), Datum::from(bool)]);
                }
            }
        }
        let encoded: Vec<Key> = keys.iter().map(|key| row_key(7, key)).collect();
        assert!(encoded.is_sorted_by(|one, other| one < other), "{encoded:?}");
        assert!(row_key(6, &keys[79]) < encoded[0] && encoded[79] < row_key(8, &keys[0]));
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
