//! Data: what inputs, columns and outputs consist of.

use core::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::Value;

use crate::nested::nested;

/// One value of a typed input, column or output. Clones are cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
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
    List(Arc<[Datum]>),
    /// Fields, in the order of the type's declaration.
    Record(Arc<[Datum]>),
}

nested!(Datum);

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
