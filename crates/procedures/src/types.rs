//! Types of inputs, columns and outputs. A type bounds the size of its data.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Datum;
use crate::limits::{MAX_DEPTH_OF_TYPE, MAX_PARTS_OF_TYPE, TooMuch};
use crate::nested::nested;

/// The type of a [`Datum`], with the greatest size that it may have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A 64-bit signed integer. Arithmetic saturates.
    Int,
    /// UTF-8 text of at most `max` bytes.
    String {
        /// The greatest length in bytes.
        max: u32,
    },
    /// At most `max` bytes.
    Bytes {
        /// The greatest length in bytes.
        max: u32,
    },
    /// At most `max` elements of one type.
    List {
        /// The type of each element.
        element: Box<Type>,
        /// The greatest number of elements.
        max: u32,
    },
    /// Named fields, in the order of their declaration.
    Record(Vec<Field>),
}

/// A field of a [`Type::Record`], an input or an output: a name and a type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Field {
    /// The name, unique among its siblings.
    pub name: String,
    /// The type.
    pub of: Type,
}

nested!(Type);

impl Type {
    /// Whether every datum of type `other` is one of this type: it has the same shape and is not larger.
    pub fn holds(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Bool, Type::Bool) | (Type::Int, Type::Int) => true,
            (Type::String { max }, Type::String { max: other })
            | (Type::Bytes { max }, Type::Bytes { max: other }) => max >= other,
            (Type::List { element, max }, Type::List { element: other, max: length }) => {
                max >= length && (*length == 0 || element.holds(other))
            }
            (Type::Record(fields), Type::Record(others)) => {
                fields.len() == others.len()
                    && fields
                        .iter()
                        .zip(others)
                        .all(|(field, other)| field.name == other.name && field.of.holds(&other.of))
            }
            _ => false,
        }
    }

    /// The smallest type that holds the data of both types; `None` if their shapes differ.
    pub fn join(&self, other: &Type) -> Option<Type> {
        match (self, other) {
            (Type::Bool, Type::Bool) => Some(Type::Bool),
            (Type::Int, Type::Int) => Some(Type::Int),
            (Type::String { max }, Type::String { max: other }) => {
                Some(Type::String { max: *max.max(other) })
            }
            (Type::Bytes { max }, Type::Bytes { max: other }) => {
                Some(Type::Bytes { max: *max.max(other) })
            }
            // The literal `[]` has no element whose type it could say.
            (list @ Type::List { .. }, Type::List { max: 0, .. })
            | (Type::List { max: 0, .. }, list @ Type::List { .. }) => Some(list.clone()),
            (Type::List { element, max }, Type::List { element: other, max: length }) => {
                Some(Type::List { element: Box::new(element.join(other)?), max: *max.max(length) })
            }
            (Type::Record(fields), Type::Record(others)) if fields.len() == others.len() => {
                let join = |(field, other): (&Field, &Field)| {
                    let of = if field.name == other.name { field.of.join(&other.of) } else { None };
                    of.map(|of| Field { name: field.name.clone(), of })
                };
                fields.iter().zip(others).map(join).collect::<Option<Vec<_>>>().map(Type::Record)
            }
            _ => None,
        }
    }

    /// Checks that the type is not too deep and not too large. Expressions build types of others, which could double with
    /// each.
    ///
    /// # Errors
    /// If it is.
    pub fn check_size(&self) -> Result<(), TooMuch> {
        match self.is_small(MAX_DEPTH_OF_TYPE, &mut 0) {
            true => Ok(()),
            false => Err(TooMuch(format!(
                "a type nests at most {MAX_DEPTH_OF_TYPE} lists and records, and has at most {MAX_PARTS_OF_TYPE} fields in \
                 all"
            ))),
        }
    }

    fn is_small(&self, depth: u32, parts: &mut usize) -> bool {
        *parts += 1;
        *parts <= MAX_PARTS_OF_TYPE
            && match self {
                Type::Bool | Type::Int | Type::String { .. } | Type::Bytes { .. } => true,
                Type::List { element, .. } => depth > 0 && element.is_small(depth - 1, parts),
                Type::Record(fields) => {
                    depth > 0 && fields.iter().all(|field| field.of.is_small(depth - 1, parts))
                }
            }
    }

    /// The same type, with fields that have no names.
    #[must_use]
    pub fn shape(&self) -> Type {
        match self {
            Type::List { element, max } => {
                Type::List { element: Box::new(element.shape()), max: *max }
            }
            Type::Record(fields) => {
                let field = |field: &Field| Field { name: String::new(), of: field.of.shape() };
                Type::Record(fields.iter().map(field).collect())
            }
            scalar => scalar.clone(),
        }
    }

    /// The greatest size of a datum of this type, in bytes of memory; saturates.
    pub fn max_bytes(&self) -> u64 {
        const DATUM: u64 = size_of::<Datum>() as u64;
        match self {
            Type::Bool | Type::Int => DATUM,
            Type::String { max } | Type::Bytes { max } => DATUM + u64::from(*max),
            Type::List { element, max } => {
                element.max_bytes().saturating_mul(u64::from(*max)).saturating_add(DATUM)
            }
            Type::Record(fields) => {
                fields.iter().fold(DATUM, |bytes, field| bytes.saturating_add(field.of.max_bytes()))
            }
        }
    }

    /// The datum that a column of this type has in a row that was never written, if its declaration names no other:
    /// `false`, 0, or nothing.
    pub fn zero(&self) -> Datum {
        match self {
            Type::Bool => Datum::Bool(false),
            Type::Int => Datum::Int(0),
            Type::String { .. } => Datum::from(""),
            Type::Bytes { .. } => Datum::Bytes(Default::default()),
            Type::List { .. } => Datum::list([]),
            Type::Record(fields) => Datum::record(fields.iter().map(|field| field.of.zero())),
        }
    }

    /// Checks that `datum` is of this type.
    pub fn check(&self, datum: &Datum) -> Result<(), Mismatch> {
        match (self, datum) {
            (Type::Bool, Datum::Bool(_)) | (Type::Int, Datum::Int(_)) => Ok(()),
            (Type::String { max }, Datum::String(text)) => {
                self.check_length(text.len(), *max, "bytes")
            }
            (Type::Bytes { max }, Datum::Bytes(bytes)) => {
                self.check_length(bytes.len(), *max, "bytes")
            }
            (Type::List { element, max }, Datum::List(elements)) => {
                self.check_length(elements.len(), *max, "elements")?;
                elements.iter().enumerate().try_for_each(|(at, datum)| {
                    element.check(datum).map_err(|mismatch| mismatch.within(&format!("[{at}]")))
                })
            }
            (Type::Record(fields), Datum::Record(data)) if fields.len() == data.len() => {
                fields.iter().zip(data.iter()).try_for_each(|(field, datum)| {
                    field
                        .of
                        .check(datum)
                        .map_err(|mismatch| mismatch.within(&format!(".{}", field.name)))
                })
            }
            _ => Err(self.mismatch(datum.kind().to_owned())),
        }
    }

    fn check_length(&self, length: usize, max: u32, unit: &str) -> Result<(), Mismatch> {
        if length <= max as usize {
            Ok(())
        } else {
            Err(self.mismatch(format!("one of {length} {unit}")))
        }
    }

    fn mismatch(&self, found: String) -> Mismatch {
        Mismatch { place: String::new(), wanted: self.to_string(), found }
    }
}

impl fmt::Display for Type {
    /// Writes the type as a procedure file does, but for the braces and brackets of lists and records.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::String { max } => write!(f, "string({max})"),
            Type::Bytes { max } => write!(f, "bytes({max})"),
            Type::List { max: 0, .. } => f.write_str("empty list"),
            Type::List { element, max } => write!(f, "list of at most {max} {element}"),
            Type::Record(fields) => {
                f.write_str("{")?;
                for (at, Field { name, of }) in fields.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    let colon = if name.is_empty() { "" } else { ": " };
                    write!(f, "{comma}{name}{colon}{of}")?;
                }
                f.write_str("}")
            }
        }
    }
}

/// A datum that is not of the type that was declared for its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mismatch {
    /// Where it is in the datum that was checked, such as `[3].item`; empty for the datum itself.
    pub place: String,
    /// The declared type.
    pub wanted: String,
    /// What was found instead.
    pub found: String,
}

impl Mismatch {
    /// The same mismatch, seen from the datum that has the mismatched one at `outer`.
    fn within(mut self, outer: &str) -> Mismatch {
        self.place.insert_str(0, outer);
        self
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { place, wanted, found } = self;
        if !place.is_empty() {
            write!(f, "at `{place}`: ")?;
        }
        write!(f, "wanted {wanted}, found {found}")
    }
}

impl core::error::Error for Mismatch {}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(element: Type, max: u32) -> Type {
        Type::List { element: Box::new(element), max }
    }

    fn line(max: u32) -> Type {
        Type::Record(vec![
            Field { name: "item".into(), of: Type::Int },
            Field { name: "note".into(), of: Type::String { max } },
        ])
    }

    #[test]
    fn a_larger_type_holds_a_smaller_one_of_its_shape() {
        assert!(list(line(9), 3).holds(&list(line(8), 2)));
        assert!(!list(line(8), 3).holds(&list(line(9), 2)));
        assert!(!list(line(9), 1).holds(&list(line(8), 2)));
        assert!(!Type::Int.holds(&Type::Bool));
        assert!(
            list(Type::Int, 2).holds(&list(Type::Bool, 0)),
            "an empty list has no element of a wrong type"
        );
    }

    #[test]
    fn a_join_holds_both() {
        let (left, right) = (list(line(9), 1), list(line(2), 5));
        let join = left.join(&right).unwrap();
        assert!(join.holds(&left) && join.holds(&right));
        assert_eq!(Type::Int.join(&Type::Bool), None);
        assert_eq!(list(Type::Bool, 0).join(&list(Type::Int, 2)), Some(list(Type::Int, 2)));
    }

    #[test]
    fn a_mismatch_names_its_place() {
        let lines = Datum::list([
            Datum::record([Datum::Int(1), Datum::from("a")]),
            Datum::record([Datum::Int(1), Datum::from("too long")]),
        ]);
        let mismatch = list(line(3), 5).check(&lines).unwrap_err();
        assert_eq!(mismatch.to_string(), "at `[1].note`: wanted string(3), found one of 8 bytes");
        assert_eq!(
            Type::Int.check(&Datum::Bool(true)).unwrap_err().to_string(),
            "wanted int, found bool"
        );
        let one =
            list(Type::Int, 1).check(&Datum::list([Datum::Int(1), Datum::Int(2)])).unwrap_err();
        assert_eq!(one.to_string(), "wanted list of at most 1 int, found one of 2 elements");
    }

    #[test]
    fn shapes_are_alike_whatever_their_names_are() {
        let named =
            |name: &str| list(Type::Record(vec![Field { name: name.to_owned(), of: line(3) }]), 2);
        assert!(!named("a").holds(&named("b")));
        assert_eq!(named("a").shape(), named("b").shape());
        assert_eq!(named("a").shape().to_string(), "list of at most 2 {{int, string(3)}}");
    }

    #[test]
    fn a_zero_is_of_its_type() {
        for of in [Type::Bool, Type::Int, Type::Bytes { max: 0 }, list(line(0), 0), line(3)] {
            assert_eq!(of.check(&of.zero()), Ok(()));
        }
    }
}
