//! Keys and values: byte strings that need no allocation if they are short.

use core::borrow::Borrow;
use core::fmt;

use hipstr::HipByt;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sharing;

/// Declares a byte-string type: up to 23 bytes inline, longer ones shared by reference count, so
/// that a clone is always cheap.
macro_rules! byte_string {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(HipByt<'static>);

        impl $name {
            /// The bytes.
            pub fn as_bytes(&self) -> &[u8] {
                self.0.as_slice()
            }

            /// The length in bytes.
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Whether there are no bytes.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                self.as_bytes()
            }
        }

        impl Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                self.as_bytes()
            }
        }

        impl From<&[u8]> for $name {
            fn from(bytes: &[u8]) -> Self {
                Self(HipByt::from(bytes))
            }
        }

        impl<const N: usize> From<&[u8; N]> for $name {
            fn from(bytes: &[u8; N]) -> Self {
                Self::from(bytes.as_slice())
            }
        }

        impl<const N: usize> From<[u8; N]> for $name {
            fn from(bytes: [u8; N]) -> Self {
                Self::from(bytes.as_slice())
            }
        }

        impl From<Vec<u8>> for $name {
            fn from(bytes: Vec<u8>) -> Self {
                Self(HipByt::from(bytes))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::from(text.as_bytes())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::from(text.into_bytes())
            }
        }

        impl From<&$name> for $name {
            fn from(other: &$name) -> Self {
                other.clone()
            }
        }

        /// Prints text as it is and escapes everything else, as in a byte-string literal.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match core::str::from_utf8(self.as_bytes()) {
                    Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
                    _ => write!(f, "{}", self.as_bytes().escape_ascii()),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{}\"", self.as_bytes().escape_ascii())
            }
        }
    };
}

byte_string! {
    /// A key: a byte string, compared bytewise. Empty keys are refused, because no store can hold them. The session refuses them
    /// from programs, and deserializing refuses them in messages.
    #[derive(Serialize)]
    #[serde(transparent)]
    Key
}

byte_string! {
    /// A value: a byte string that the database does not interpret.
    ///
    /// A long value that was read may share its memory with the other values of the same answer, and keeps all of it:
    /// see [`Value::detached`].
    Value
}

impl Value {
    /// The same value in memory of its own. For a program that keeps a value for long and not the others that it has read
    /// with it. Without it a value of at least [`SHARED_BYTES`](crate::sharing::SHARED_BYTES) can keep a whole answer of a
    /// node in memory.
    #[must_use]
    pub fn detached(self) -> Value {
        match self.0.capacity() > self.len() && self.0.is_allocated() {
            true => Value::from(self.as_bytes()),
            false => self,
        }
    }

    /// A value that points to `bytes`, if they are a part of this one.
    pub(crate) fn part(&self, bytes: &[u8]) -> Option<Value> {
        self.0.try_slice_ref(bytes).map(Value)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        sharing::lend(self);
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_bytes(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(sharing::share(bytes).unwrap_or_else(|| Value::from(bytes)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.visit_bytes(text.as_bytes())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Value, E> {
        Ok(Value::from(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut bytes = Vec::with_capacity(items.size_hint().unwrap_or_default().min(4096));
        while let Some(byte) = items.next_element()? {
            bytes.push(byte);
        }
        Ok(Value::from(bytes))
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let bytes = HipByt::deserialize(deserializer)?;
        if bytes.is_empty() {
            return Err(D::Error::custom("a key is empty"));
        }
        Ok(Key(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_prints_as_text_and_escapes_other_bytes() {
        assert_eq!(Key::from("alice").to_string(), "alice");
        assert_eq!(Key::from(&[0u8, 255]).to_string(), "\\x00\\xff");
        assert_eq!(format!("{:?}", Value::from("a\n")), "\"a\\n\"");
    }

    #[test]
    fn keys_are_ordered_bytewise() {
        assert!(Key::from("a") < Key::from("aa"));
        assert!(Key::from(&[1u8]) < Key::from(&[200u8]));
    }
}
