//! The encoding of messages and records.

use core::fmt;

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serried_model::sharing::{self, SHARED_BYTES};

use crate::encoded::{Encoded, Shared};

/// Something that crosses the network or reaches the disk.
///
/// Every serializable type is `Wire`. The encoding is postcard's, whose format is stable and documented. The frame that
/// a message travels in has the version of the protocol's messages.
pub trait Wire: Sized + Clone + fmt::Debug + Send + 'static {
    /// Appends the encoding to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// The same. Long values in it are not copied, if `out` takes references to them.
    fn encode_into(&self, out: &mut Encoded);

    /// Reads one value, which must take up all of `bytes`.
    fn decode(bytes: &[u8]) -> Result<Self, Malformed>;

    /// The encoding, cut into numbers, tags and strings. Tests change these to forge messages that can be decoded.
    #[doc(hidden)]
    fn pieces(&self) -> Vec<Vec<u8>>;
}

impl<T> Wire for T
where
    T: Serialize + DeserializeOwned + Clone + fmt::Debug + Send + 'static,
{
    fn encode(&self, out: &mut Vec<u8>) {
        encode_tail(self, Tail { out, shared: None });
    }

    fn encode_into(&self, out: &mut Encoded) {
        let (out, shared) = out.tail();
        match shared {
            None => encode_tail(self, Tail { out, shared: None }),
            shared => sharing::lending(|| encode_tail(self, Tail { out, shared })),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(Malformed(format!("{} bytes too many", rest.len()))),
            Err(error) => Err(Malformed(error.to_string())),
        }
    }

    fn pieces(&self) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        postcard::serialize_with_flavor(self, Pieces(&mut pieces))
            .expect("what can be encoded can be encoded in pieces");
        pieces
    }
}

/// The bytes do not encode a value of the expected type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed: {}", self.0)
    }
}

impl core::error::Error for Malformed {}

fn encode_tail<T: Serialize>(value: &T, tail: Tail<'_>) {
    postcard::serialize_with_flavor(value, tail)
        .expect("encoding into memory fails only for types without a length, which none has");
}

/// Appends an encoding to a buffer that is reused.
struct Tail<'a> {
    out: &'a mut Vec<u8>,
    /// Where long values go, with their places in `out`. None if they are copied, too.
    shared: Option<&'a mut Shared>,
}

impl Flavor for Tail<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.out.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        // Most are numbers of a few bytes, for which calling a function that copies is slow.
        match bytes {
            [] => {}
            [one] => self.out.push(*one),
            [one, two] => self.out.extend([*one, *two]),
            [one, two, three] => self.out.extend([*one, *two, *three]),
            _ if bytes.len() < SHARED_BYTES => self.out.extend_from_slice(bytes),
            _ => match self.shared.as_mut().zip(sharing::take_lent(bytes)) {
                Some((shared, value)) => shared.push((self.out.len(), value)),
                None => self.out.extend_from_slice(bytes),
            },
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Collects each part that the encoder writes separately.
struct Pieces<'a>(&'a mut Vec<Vec<u8>>);

impl Flavor for Pieces<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(vec![byte]);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.push(bytes.to_vec());
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_returns_what_was_encoded_and_refuses_trailing_bytes() {
        let value = (7u64, Some("seven".to_string()));
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(<(u64, Option<String>)>::decode(&bytes), Ok(value));
        bytes.push(0);
        assert!(<(u64, Option<String>)>::decode(&bytes).is_err());
        assert!(<(u64, Option<String>)>::decode(&bytes[..2]).is_err());
    }

    #[test]
    fn the_pieces_of_a_value_are_its_encoding() {
        let value = (700u64, true, Some("seven".to_string()), vec![1u32, 2]);
        let pieces = value.pieces();
        let lengths: Vec<usize> = pieces.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1, 1, 1, 5, 1, 1, 1]);
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(pieces.concat(), bytes);
    }

    #[test]
    fn no_message_with_an_empty_key_is_understood() {
        let mut bytes = Vec::new();
        serried_model::Key::from("").encode(&mut bytes);
        assert!(serried_model::Key::decode(&bytes).is_err());
        let mut bytes = Vec::new();
        serried_model::Value::from("").encode(&mut bytes);
        assert!(serried_model::Value::decode(&bytes).is_ok());
    }
}
