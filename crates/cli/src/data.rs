//! Inputs and results of procedures as JSON, by their declared types.
//!
//! An integer is a number, a record an object, a list an array. Bytes are a text of hexadecimal digits.

use anyhow::Context;
use serde_json::{Map, Value, json};
use serried_procedures::{Datum, Field, Procedure, Type};

use crate::shell::braces;

/// A datum of the type `of`. The error says what is wrong, and where.
pub(crate) fn datum(of: &Type, value: &Value) -> anyhow::Result<Datum> {
    let wanted = || anyhow::anyhow!("wanted {of}, found {}", shown(value));
    let datum = match of {
        Type::Bool => Datum::Bool(value.as_bool().with_context(wanted)?),
        Type::Int => Datum::Int(value.as_i64().with_context(wanted)?),
        Type::String { .. } => Datum::from(value.as_str().with_context(wanted)?),
        Type::Bytes { .. } => {
            let digits = value.as_str().with_context(wanted)?;
            let bytes = bytes(digits)
                .with_context(|| format!("wanted {of}, found {value}, which is not hexadecimal"))?;
            Datum::Bytes(bytes.into())
        }
        Type::List { element, .. } => {
            let elements = value.as_array().with_context(wanted)?.iter().enumerate();
            let elements = elements
                .map(|(at, value)| datum(element, value).with_context(|| format!("[{at}]")));
            Datum::list(elements.collect::<anyhow::Result<Vec<_>>>()?)
        }
        Type::Record(fields) => {
            Datum::record(data(fields, value.as_object().with_context(wanted)?)?)
        }
    };
    // What is too long is refused here, and not by a server.
    of.check(&datum)?;
    Ok(datum)
}

/// Data for all fields, in their order. Each has to be there, and nothing else.
fn data(fields: &[Field], object: &Map<String, Value>) -> anyhow::Result<Vec<Datum>> {
    let known = |name: &String| fields.iter().any(|field| field.name == *name);
    if let Some(unknown) = object.keys().find(|name| !known(name)) {
        anyhow::bail!("there is no `{unknown}`: {}", declared(fields));
    }
    let field = |Field { name, of }: &Field| {
        let value = object.get(name);
        let value = value.with_context(|| format!("`{name}` is missing: {}", declared(fields)))?;
        datum(of, value).with_context(|| format!("`{name}`"))
    };
    fields.iter().map(field).collect()
}

/// The inputs of a procedure from a JSON object.
pub(crate) fn inputs(
    procedure: &Procedure,
    object: &Map<String, Value>,
) -> anyhow::Result<Vec<Datum>> {
    data(&procedure.inputs, object).with_context(|| format!("the inputs of `{}`", procedure.name))
}

/// The value that a word stands for as an input of this type: JSON as between braces, or simply a text. The error says
/// what is wrong with a list or a record.
pub(crate) fn word(of: &Type, word: &str) -> anyhow::Result<Value> {
    if let Type::String { .. } | Type::Bytes { .. } = of {
        return Ok(Value::from(word));
    }
    match braces::value(word) {
        Err(misread) if word.trim_start().starts_with(['[', '{']) => Err(misread.into()),
        // Another word is refused as it was typed, with the type that is wanted.
        read => Ok(read.unwrap_or_else(|_| Value::from(word))),
    }
}

/// A datum of the type `of` as JSON.
pub(crate) fn value(of: &Type, datum: &Datum) -> Value {
    match (of, datum) {
        (_, Datum::Bool(bool)) => json!(bool),
        (_, Datum::Int(int)) => json!(int),
        (_, Datum::String(text)) => json!(text),
        (_, Datum::Bytes(bytes)) => json!(hexadecimal(bytes.as_bytes())),
        (Type::List { element, .. }, Datum::List(data)) => {
            data.iter().map(|datum| value(element, datum)).collect()
        }
        (Type::Record(fields), Datum::Record(data)) => Value::Object(object(fields, data)),
        (_, Datum::List(_) | Datum::Record(_)) => json!(datum.to_string()),
    }
}

/// Results, or the fields of a record, as a JSON object.
pub(crate) fn object(fields: &[Field], data: &[Datum]) -> Map<String, Value> {
    let entry = |(Field { name, of }, datum): (&Field, &Datum)| (name.clone(), value(of, datum));
    fields.iter().zip(data).map(entry).collect()
}

/// Fields as a person writes them: `from (int), to (int)`.
pub(crate) fn declared(fields: &[Field]) -> String {
    if fields.is_empty() {
        return "nothing".to_string();
    }
    let fields = fields.iter().map(|Field { name, of }| format!("{name} ({of})"));
    fields.collect::<Vec<_>>().join(", ")
}

/// Bytes as inputs and results have them.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = core::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect()
}

/// A value, shortened so that an error stays a readable line.
fn shown(value: &Value) -> String {
    const CHARACTERS: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Type {
        let item = Field { name: "item".into(), of: Type::Int };
        let note = Field { name: "note".into(), of: Type::Bytes { max: 4 } };
        Type::List { element: Box::new(Type::Record(vec![item, note])), max: 2 }
    }

    #[test]
    fn data_survive_their_json() {
        let text = r#"[{"item":1,"note":""},{"item":-9223372036854775808,"note":"00ff"}]"#;
        let parsed: Value = serde_json::from_str(text).unwrap();
        let datum = datum(&line(), &parsed).unwrap();
        assert_eq!(value(&line(), &datum), parsed);
    }

    #[test]
    fn an_error_names_the_place_and_the_type() {
        let error = |text: &str| {
            let error = datum(&line(), &serde_json::from_str(text).unwrap()).unwrap_err();
            format!("{error:#}")
        };
        assert_eq!(error("7"), "wanted list of at most 2 {item: int, note: bytes(4)}, found 7");
        assert_eq!(error(r#"[{"item":1.5,"note":""}]"#), "[0]: `item`: wanted int, found 1.5");
        assert_eq!(error(r#"[{"item":1}]"#), "[0]: `note` is missing: item (int), note (bytes(4))");
        assert_eq!(
            error(r#"[{"item":1,"note":"","price":2}]"#),
            "[0]: there is no `price`: item (int), note (bytes(4))"
        );
        assert_eq!(
            error(r#"[{"item":1,"note":"0102030405"}]"#),
            "[0]: `note`: wanted bytes(4), found one of 5 bytes"
        );
        let digits = error(r#"[{"item":1,"note":"0g"}]"#);
        assert_eq!(digits, r#"[0]: `note`: wanted bytes(4), found "0g", which is not hexadecimal"#);
        assert!(error("[{},{},{}]").contains("`item` is missing"));
    }

    #[test]
    fn a_word_is_json_or_a_text() {
        assert_eq!(word(&Type::Int, "7").unwrap(), json!(7));
        assert_eq!(word(&Type::String { max: 9 }, "7").unwrap(), json!("7"));
        assert_eq!(word(&line(), "[]").unwrap(), json!([]));
        let refused = |text| datum(&Type::Int, &word(&Type::Int, text).unwrap()).unwrap_err();
        assert_eq!(refused("seven").to_string(), "wanted int, found \"seven\"");
        let large = "wanted int, found \"100000000000000000000\"";
        assert_eq!(refused("100000000000000000000").to_string(), large);
        assert_eq!(
            word(&line(), "[{item: 100000000000000000000}]").unwrap_err().to_string(),
            "line 1, column 9 of the value: `100000000000000000000` is no integer of 64 bits; a text needs quotes"
        );
    }
}
