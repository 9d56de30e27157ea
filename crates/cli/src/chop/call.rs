//! `serried chop --call`: calls of procedures, one after another, on tables that are empty at first.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use serried_procedures::{
    Call, Datum, Field, Procedure, ProcedureSet, Refused, RowStore, StoredRow, Type,
};

/// Makes the calls in their order. Returns a line of JSON for each.
pub(super) fn run(set: &ProcedureSet, calls: &[String]) -> anyhow::Result<Vec<Value>> {
    let parsed = calls.iter().map(|call| parse(set, call).with_context(|| format!("`{call}`")));
    let parsed = parsed.collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows = Rows::default();
    let line = |(procedure, inputs): (&Procedure, Vec<Datum>)| {
        Ok(match execute(set, procedure, inputs, &mut rows)? {
            Ok(results) => {
                let fields = procedure.returns.iter().map(|returned| &returned.field);
                json!({ "call": procedure.name, "results": object(fields.zip(&results)) })
            }
            Err(refused) => json!({ "call": procedure.name, "refused": refused.to_string() }),
        })
    };
    parsed.into_iter().map(line).collect()
}

/// Reads `NAME {"input": value, ..}`.
fn parse<'s>(set: &'s ProcedureSet, call: &str) -> anyhow::Result<(&'s Procedure, Vec<Datum>)> {
    let call = call.trim();
    let (name, inputs) = call.split_once(char::is_whitespace).unwrap_or((call, "{}"));
    let Some(procedure) = set.procedures.iter().find(|procedure| procedure.name == name) else {
        let known: Vec<&str> = set.procedures.iter().map(|known| known.name.as_str()).collect();
        bail!("there is no procedure `{name}`; there are `{}`", known.join("`, `"));
    };
    let inputs: Value = serde_json::from_str(inputs).context("the inputs are not JSON")?;
    match record(&inputs, &procedure.inputs).context("the inputs")? {
        Datum::Record(inputs) => Ok((procedure, inputs.to_vec())),
        _ => unreachable!("a record was asked for"),
    }
}

fn execute(
    set: &ProcedureSet,
    procedure: &Procedure,
    inputs: Vec<Datum>,
    rows: &mut Rows,
) -> anyhow::Result<Result<Vec<Datum>, Refused>> {
    let mut call = Call::new(procedure, inputs)?;
    while !call.has_executed_all() {
        let started = match call.start(procedure) {
            Ok(started) => started,
            Err(refused) => return Ok(Err(refused)),
        };
        for start in started {
            let body = &procedure.pieces[usize::from(start.piece.0)].body;
            match body.execute(&set.tables, &start.arguments, rows) {
                Ok(outputs) => {
                    call.executed(procedure, (start.piece, start.occurrence), outputs)?;
                }
                Err(refused) => return Ok(Err(refused)),
            }
        }
    }
    Ok(call.results(procedure))
}

fn datum(value: &Value, of: &Type) -> anyhow::Result<Datum> {
    Ok(match (value, of) {
        (Value::Bool(bool), Type::Bool) => Datum::Bool(*bool),
        (Value::Number(number), Type::Int) => {
            Datum::Int(number.as_i64().with_context(|| format!("{number} is not of type int"))?)
        }
        (Value::String(text), Type::String { .. }) => Datum::from(text.as_str()),
        (Value::String(text), Type::Bytes { .. }) => {
            let bytes = bytes(text).with_context(|| format!("{text:?} is not hexadecimal"))?;
            Datum::Bytes(bytes.as_slice().into())
        }
        (Value::Array(elements), Type::List { element, .. }) => {
            let elements = elements.iter().map(|value| datum(value, element));
            Datum::list(elements.collect::<anyhow::Result<Vec<_>>>()?)
        }
        (Value::Object(_), Type::Record(fields)) => record(value, fields)?,
        _ => bail!("{value} is not of type {of}"),
    })
}

fn record(value: &Value, fields: &[Field]) -> anyhow::Result<Datum> {
    let Value::Object(values) = value else { bail!("{value} is not an object") };
    if let Some(unknown) =
        values.keys().find(|name| fields.iter().all(|field| field.name != **name))
    {
        let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        bail!("`{unknown}` is unknown; there are `{}`", known.join("`, `"));
    }
    let field = |Field { name, of }: &Field| {
        let value = values.get(name).with_context(|| format!("`{name}` is missing"))?;
        datum(value, of).with_context(|| format!("`{name}`"))
    };
    Ok(Datum::record(fields.iter().map(field).collect::<anyhow::Result<Vec<_>>>()?))
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits = hexadecimal.chars().map(|digit| digit.to_digit(16)).collect::<Option<Vec<_>>>()?;
    let whole = digits.len() % 2 == 0;
    whole.then(|| digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

fn value(datum: &Datum, of: &Type) -> Value {
    match (datum, of) {
        (Datum::Bool(bool), _) => json!(bool),
        (Datum::Int(int), _) => json!(int),
        (Datum::String(text), _) => json!(&**text),
        (Datum::Bytes(bytes), _) => {
            Value::String(bytes.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
        }
        (Datum::List(elements), Type::List { element, .. }) => {
            elements.iter().map(|datum| value(datum, element)).collect()
        }
        (Datum::Record(data), Type::Record(fields)) => object(fields.iter().zip(data.iter())),
        (datum, of) => unreachable!("{datum} is of type {of}"),
    }
}

fn object<'d>(fields: impl Iterator<Item = (&'d Field, &'d Datum)>) -> Value {
    let members = fields.map(|(Field { name, of }, datum)| (name.clone(), value(datum, of)));
    Value::Object(members.collect::<Map<_, _>>())
}

/// Rows in memory.
#[derive(Default)]
struct Rows(BTreeMap<(u16, Vec<Datum>), StoredRow>);

impl RowStore for Rows {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        self.0.get(&(table, key.to_vec())).cloned()
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        self.0.insert((table, key.to_vec()), row);
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        self.0.remove(&(table, key.to_vec()));
    }
}
