//! Data: what inputs, columns and outputs consist of.

use core::fmt;
use std::sync::Arc;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serried_model::Value;

use crate::nested;

/// How many elements are decoded without a step between.
const FEW: usize = 32;

/// One value of a typed input, column or output. Clones are cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Datum {
    /// `true` or `false`.
    Bool(bool),
    /// A 64-bit signed integer.
    Int(i64),
    /// UTF-8 text.
    String(Arc<str>),
    /// Bytes.
    Bytes(Value),
    /// Elements of one type.
    List(#[serde(deserialize_with = "decode_data")] Arc<[Datum]>),
    /// Fields, in the order of the type's declaration.
    Record(#[serde(deserialize_with = "decode_data")] Arc<[Datum]>),
}

fn too_few<E: Error>() -> E {
    E::custom("fewer elements than announced")
}

/// Decodes shared data, for serde's `deserialize_with`. If there are only a few, they are decoded into their final place.
///
/// # Errors
/// If they are malformed.
pub fn decode_data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[Datum]>, D::Error> {
    struct Elements;

    impl<'de> Visitor<'de> for Elements {
        type Value = Arc<[Datum]>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("data")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            // A long one may be made up, so nothing is allocated for it.
            let length = all.size_hint().filter(|length| *length <= FEW).unwrap_or(0);
            let mut end = Ok(());
            let decode = |_| {
                let none = Datum::Bool(false);
                if end.is_err() {
                    return none;
                }
                all.next_element().and_then(|next| next.ok_or_else(too_few)).unwrap_or_else(
                    |error| {
                        end = Err(error);
                        none
                    },
                )
            };
            let elements: Arc<[Datum]> = (0..length).map(decode).collect();
            end?;
            let Some(next) = all.next_element()? else { return Ok(elements) };
            let mut more = elements.to_vec();
            more.push(next);
            while let Some(next) = all.next_element()? {
                more.push(next);
            }
            Ok(more.into())
        }
    }

    nested::decode(|| deserializer.deserialize_seq(Elements))
}

impl Datum {
    /// A list of `elements`.
    pub fn list(elements: impl IntoIterator<Item = Datum>) -> Datum {
        Datum::List(elements.into_iter().collect())
    }

    /// A record of `fields`.
    pub fn record(fields: impl IntoIterator<Item = Datum>) -> Datum {
        Datum::Record(fields.into_iter().collect())
    }

    /// How much it holds, in bytes: 8 for an integer, and the sum of its parts for a list or a record.
    pub fn bytes(&self) -> usize {
        match self {
            Datum::Bool(_) => 1,
            Datum::Int(_) => 8,
            Datum::String(text) => text.len(),
            Datum::Bytes(bytes) => bytes.len(),
            Datum::List(data) | Datum::Record(data) => {
                data.iter().map(Datum::bytes).fold(1, usize::saturating_add)
            }
        }
    }

    /// How much memory it takes up, in bytes, as [`Type::max_bytes`](crate::Type::max_bytes) counts.
    pub fn size(&self) -> usize {
        let content = match self {
            Datum::Bool(_) | Datum::Int(_) => 0,
            Datum::String(text) => text.len(),
            Datum::Bytes(bytes) => bytes.len(),
            Datum::List(data) | Datum::Record(data) => {
                data.iter().map(Datum::size).fold(0, usize::saturating_add)
            }
        };
        size_of::<Datum>() + content
    }

    /// Whether it can be a part of a key: it is no list and no record.
    pub fn is_scalar(&self) -> bool {
        !matches!(self, Datum::List(_) | Datum::Record(_))
    }

    /// What kind of datum this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Datum::Bool(_) => "bool",
            Datum::Int(_) => "int",
            Datum::String(_) => "string",
            Datum::Bytes(_) => "bytes",
            Datum::List(_) => "list",
            Datum::Record(_) => "record",
        }
    }
}

impl From<i64> for Datum {
    fn from(int: i64) -> Datum {
        Datum::Int(int)
    }
}

impl From<bool> for Datum {
    fn from(bool: bool) -> Datum {
        Datum::Bool(bool)
    }
}

impl From<&str> for Datum {
    fn from(text: &str) -> Datum {
        Datum::String(text.into())
    }
}

impl fmt::Display for Datum {
    /// Writes the datum as a body would: `"text"`, `[1, 2]`, `{3, true}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence = |f: &mut fmt::Formatter<'_>, open, data: &[Datum], close| {
            f.write_str(open)?;
            for (at, datum) in data.iter().enumerate() {
                let comma = if at == 0 { "" } else { ", " };
                write!(f, "{comma}{datum}")?;
            }
            f.write_str(close)
        };
        match self {
            Datum::Bool(bool) => write!(f, "{bool}"),
            Datum::Int(int) => write!(f, "{int}"),
            Datum::String(text) => write!(f, "{text:?}"),
            Datum::Bytes(bytes) => write!(f, "b{bytes:?}"),
            Datum::List(elements) => sequence(f, "[", elements, "]"),
            Datum::Record(fields) => sequence(f, "{", fields, "}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_all_content() {
        let one = size_of::<Datum>();
        assert_eq!(Datum::from("abcde").size(), one + 5);
        let record = Datum::record([Datum::Int(1), Datum::Bytes(vec![0; 3].into())]);
        assert_eq!(Datum::list([Datum::from("ab"), record]).size(), 5 * one + 5);
    }

    #[test]
    fn lists_of_any_length_are_decoded_and_made_up_lengths_are_refused() {
        for length in [0, 1, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            let element = |at| Datum::record([Datum::Int(at as i64), Datum::list([])]);
            let list = Datum::list((0..length).map(element));
            let bytes = postcard::to_allocvec(&list).unwrap();
            assert_eq!(postcard::from_bytes::<Datum>(&bytes).as_ref(), Ok(&list));
            for cut in 0..bytes.len() {
                assert!(postcard::from_bytes::<Datum>(&bytes[..cut]).is_err(), "{cut}");
            }
        }
        let mut made_up = postcard::to_allocvec(&Datum::list([])).unwrap();
        made_up.pop();
        made_up.extend([0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert!(postcard::from_bytes::<Datum>(&made_up).is_err());
    }
}
