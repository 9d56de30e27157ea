//! `serried chop --call`: calls of procedures, one after another, on tables that are empty at first.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use serried_procedures::{
    Call, Datum, Field, Procedure, ProcedureSet, Refused, RowStore, StoredRow,
};

use crate::data;
use crate::shell::braces;

/// Makes the calls in their order. Returns a line of JSON for each.
pub(super) fn run(set: &ProcedureSet, calls: &[String]) -> anyhow::Result<Vec<Value>> {
    let parsed = calls.iter().map(|call| parse(set, call).with_context(|| format!("`{call}`")));
    let parsed = parsed.collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows = Rows::default();
    let line = |(procedure, inputs): (&Procedure, Vec<Datum>)| {
        Ok(match execute(set, procedure, inputs, &mut rows)? {
            Ok(results) => {
                let fields = procedure.returns.iter().map(|returned| returned.field.clone());
                let fields: Vec<Field> = fields.collect();
                json!({ "call": procedure.name, "results": data::object(&fields, &results) })
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
    let Some(procedure) = set.procedure(name) else {
        let known: Vec<&str> = set.procedures.iter().map(|known| known.name.as_str()).collect();
        bail!("there is no procedure `{name}`; there are `{}`", known.join("`, `"));
    };
    match braces::value(inputs).context("the inputs")? {
        Value::Object(inputs) => Ok((procedure, data::inputs(procedure, &inputs)?)),
        other => bail!("the inputs are no JSON object: {other}"),
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
            let piece = &procedure.pieces[usize::from(start.piece.0)];
            match piece.execute(&set.tables, &start.arguments, rows) {
                Ok(outputs) => {
                    call.executed(procedure, (start.piece, start.occurrence), outputs)?;
                }
                Err(refused) => return Ok(Err(refused)),
            }
        }
    }
    Ok(call.results(procedure))
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
