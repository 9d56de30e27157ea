//! Types, as a file writes them, and data of a type.

use serried_procedures::{Datum, Field, Type};
use toml::de::DeValue;

use super::check_name;
use super::document::Entry;
use crate::mistake::{Compiled, Misplaced};

/// The length in bytes of a string whose type names none.
const USUAL_LENGTH: u32 = 256;

/// The greatest length of a string, in bytes, and of a list, in elements.
const MAX_LENGTH: u32 = 1 << 20;

/// How deep lists and records nest at most in a type that a file writes.
const MAX_DEPTH: u32 = 8;

/// A type: `"int"`, `"string(20)"`, `{ list = "int", max = 5 }` or `{ field = "int", other = "bool" }`.
pub(super) fn compile(entry: Entry<'_>, source: &str) -> Compiled<Type> {
    let of = compile_nested(entry, source, 0)?;
    of.check_size().map_err(|much| Misplaced::new(&entry.span(), much.to_string()))?;
    Ok(of)
}

fn compile_nested(entry: Entry<'_>, source: &str, depth: u32) -> Compiled<Type> {
    if depth > MAX_DEPTH {
        return Err(Misplaced::new(
            &entry.span(),
            format!("lists and records nest at most {MAX_DEPTH} deep"),
        ));
    }
    match entry.value() {
        DeValue::Table(_) => {
            let section = entry.section("a type")?;
            let Some(element) = section.get("list") else {
                let field = |(name, entry): (super::Name<'_>, Entry<'_>)| {
                    check_name(&name)?;
                    let of = compile_nested(entry, source, depth + 1)?;
                    Ok(Field { name: name.text.to_owned(), of })
                };
                return Ok(Type::Record(section.entries().map(field).collect::<Compiled<_>>()?));
            };
            section.allow(&["list", "max"])?;
            let element = Box::new(compile_nested(element, source, depth + 1)?);
            // It may also have been meant as a record, so no length is assumed.
            let Some(max) = section.get("max") else {
                let message = "a list needs `max`, the greatest number of its elements: { list = TYPE, max = N }; a record \
                               can't have a field `list`";
                return Err(Misplaced::new(section.span(), message));
            };
            Ok(Type::List { element, max: max.number("the greatest length", 1, MAX_LENGTH)? })
        }
        _ => {
            let text = entry.text("a type", source)?;
            scalar(text.text).ok_or_else(|| {
                let message = format!(
                    "`{}` is not a type; there are `int`, `bool`, `string(N)` and `bytes(N)` with N from 0 to {MAX_LENGTH}, \
                     {{ list = TYPE, max = N }}, and records {{ field = TYPE, .. }}",
                    text.text
                );
                Misplaced { at: text.start, message }
            })
        }
    }
}

fn scalar(text: &str) -> Option<Type> {
    let (name, length) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((name, length)) => {
            (name, Some(length.trim().parse().ok().filter(|length| *length <= MAX_LENGTH)?))
        }
        None => (text, None),
    };
    let max = length.unwrap_or(USUAL_LENGTH);
    match (name.trim(), length) {
        ("int", None) => Some(Type::Int),
        ("bool", None) => Some(Type::Bool),
        ("string", _) => Some(Type::String { max }),
        ("bytes", _) => Some(Type::Bytes { max }),
        _ => None,
    }
}

/// A datum of type `of`, written as TOML.
pub(super) fn datum(entry: Entry<'_>, of: &Type) -> Compiled<Datum> {
    let wrong = |message: String| Misplaced::new(&entry.span(), message);
    let datum = match (entry.value(), of) {
        (DeValue::Boolean(bool), Type::Bool) => Datum::Bool(*bool),
        (DeValue::Integer(int), Type::Int) => {
            let int = i64::from_str_radix(int.as_str(), int.radix());
            Datum::Int(int.map_err(|_| wrong("this integer has more than 64 bits".to_owned()))?)
        }
        (DeValue::String(text), Type::String { .. }) => Datum::from(&**text),
        (DeValue::String(text), Type::Bytes { .. }) => Datum::Bytes(text.as_bytes().into()),
        (DeValue::Array(_), Type::List { element, .. }) => {
            let elements = entry.elements("a list")?;
            Datum::list(
                elements
                    .into_iter()
                    .map(|entry| datum(entry, element))
                    .collect::<Compiled<Vec<_>>>()?,
            )
        }
        (DeValue::Table(_), Type::Record(fields)) => {
            let section = entry.section("a record")?;
            section.allow(&fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>())?;
            let one = |field: &Field| datum(section.require(&field.name)?, &field.of);
            Datum::record(fields.iter().map(one).collect::<Compiled<Vec<_>>>()?)
        }
        _ => return Err(wrong(format!("this is not of type {of}"))),
    };
    of.check(&datum).map_err(|mismatch| wrong(mismatch.to_string()))?;
    Ok(datum)
}
