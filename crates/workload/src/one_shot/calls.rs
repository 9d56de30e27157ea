//! One-shot transactions as calls of stored procedures.

use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use serried_history::MicroOperation;
use serried_procedures::{Datum, ProcedureSet};

use super::{F1, READ_ONLY, Tao};
use crate::procedures::{PlannedCall, ProcedureParameters, ProcedureWorkload, compile, numbers};
use crate::{Parameters, Workload, WorkloadError};

/// The greatest length of a value, in bytes. It bounds what a call can return: the values of a thousand rows.
const MOST_BYTES: usize = 4000;

/// The procedures, with the type of a value and the value of rows that nobody has written.
///
/// No piece uses what another has found, so all pieces can be deferred.
fn procedures(value: &str, default: &str) -> String {
    format!(
        r#"
[tables.rows]
key = {{ row = "int" }}
columns = {{ value = {{ type = "{value}", default = "{default}" }} }}

[procedures.read_only]
inputs = {{ rows = {{ list = "int", max = 1000 }} }}
returns = {{ values = "read.value" }}

[procedures.read_only.pieces.read]
for_each = {{ row = "rows" }}
rows = {{ r = {{ table = "rows", key = ["row"] }} }}
reads = ["r.value"]
outputs.value = "r.value"

[procedures.read_write]
inputs = {{ rows = {{ list = {{ row = "int", value = "{value}" }}, max = 10 }} }}
returns = {{ values = "write.before" }}

[procedures.read_write.pieces.write]
for_each = {{ line = "rows" }}
rows = {{ r = {{ table = "rows", key = ["line.row"] }} }}
reads = ["r.value"]
writes.r.value = "line.value"
outputs.before = "r.value"

[procedures.write]
inputs = {{ row = "int", value = "{value}" }}

[procedures.write.pieces.write]
rows = {{ r = {{ table = "rows", key = ["row"] }} }}
writes.r.value = "value"
"#
    )
}

/// The transactions of [`F1`] or [`Tao`] as calls, so that they can be compared with protocols of procedures (003 §6).
///
/// A row is read and written with one request to its server. Nothing is loaded before a run: a row that nobody has written
/// has a value of usual length.
pub struct OneShotCalls {
    name: &'static str,
    set: Arc<ProcedureSet>,
    transactions: Box<dyn Workload>,
}

impl OneShotCalls {
    /// `f1-calls`: the transactions of [`F1::new`].
    ///
    /// # Errors
    /// If a parameter is not valid.
    pub fn f1(parameters: &ProcedureParameters) -> Result<OneShotCalls, WorkloadError> {
        let transactions = F1::new(&of_transactions(parameters)?)?;
        Ok(Self::new("f1-calls", parameters, 1600, transactions))
    }

    /// `f1-wf-calls`: the transactions of [`F1::write_heavy`].
    ///
    /// # Errors
    /// If a parameter is not valid.
    pub fn f1_write_heavy(parameters: &ProcedureParameters) -> Result<OneShotCalls, WorkloadError> {
        let transactions = F1::write_heavy(&of_transactions(parameters)?)?;
        Ok(Self::new("f1-wf-calls", parameters, 1600, transactions))
    }

    /// `tao-calls`: the transactions of [`Tao::new`].
    ///
    /// # Errors
    /// If a parameter is not valid.
    pub fn tao(parameters: &ProcedureParameters) -> Result<OneShotCalls, WorkloadError> {
        let transactions = Tao::new(&of_transactions(parameters)?)?;
        Ok(Self::new("tao-calls", parameters, 2500, transactions))
    }

    fn new(
        name: &'static str,
        parameters: &ProcedureParameters,
        usual_bytes: usize,
        transactions: impl Workload,
    ) -> OneShotCalls {
        let most = parameters.value_bytes.unwrap_or(MOST_BYTES);
        let default = "-".repeat(parameters.value_bytes.unwrap_or(usual_bytes));
        let set = compile(&procedures(&format!("bytes({most})"), &default), |_| true);
        OneShotCalls { name, set, transactions: Box::new(transactions) }
    }
}

fn of_transactions(parameters: &ProcedureParameters) -> Result<Parameters, WorkloadError> {
    let ProcedureParameters { keys, theta, writes, value_bytes, .. } = *parameters;
    if let Some(bytes) = value_bytes.filter(|bytes| *bytes > MOST_BYTES) {
        return Err(WorkloadError::CallBytes { bytes, most: MOST_BYTES });
    }
    Ok(Parameters { keys, theta, writes, value_bytes, ..Parameters::default() })
}

impl ProcedureWorkload for OneShotCalls {
    fn name(&self) -> &'static str {
        self.name
    }

    fn set(&self) -> &Arc<ProcedureSet> {
        &self.set
    }

    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> PlannedCall {
        let plan = self.transactions.plan(client, random);
        let (reads, writes): (Vec<_>, Vec<_>) =
            plan.operations().iter().partition(|operation| operation.is_read());
        if self.transactions.kind(&plan) == READ_ONLY {
            let rows = numbers(reads.into_iter().map(MicroOperation::key));
            return PlannedCall::new("read_only", [rows]);
        }
        let one_shot = self.transactions.one_shot(&plan).expect("it has one shot");
        let values = one_shot.writes.into_iter().map(|write| {
            let value = write.value.expect("rows are not deleted");
            Datum::Bytes(value.as_bytes().into())
        });
        let rows = writes.into_iter().map(|write| Datum::Int(write.key() as i64)).zip(values);
        if reads.is_empty() {
            let (row, value) = { rows }.next().expect("it writes a row");
            return PlannedCall::new("write", [row, value]);
        }
        let lines = rows.map(|(row, value)| Datum::record([row, value]));
        PlannedCall::new("read_write", [Datum::list(lines)])
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const USUAL: fn() -> ProcedureParameters = ProcedureParameters::default;

    /// The calls and the transactions that are planned from one seed.
    fn both(calls: &OneShotCalls) -> Vec<(PlannedCall, crate::Plan)> {
        let randoms = || Pcg64Mcg::seed_from_u64(3);
        let (mut of_calls, mut of_transactions) = (randoms(), randoms());
        let plan = |_| {
            let call = calls.plan(0, &mut of_calls);
            (call, calls.transactions.plan(0, &mut of_transactions))
        };
        (0..3000).map(plan).collect()
    }

    /// The rows of a call, and the values that it writes.
    fn used(call: &PlannedCall) -> Vec<(i64, Option<usize>)> {
        let used = |row: &Datum, value: Option<&Datum>| match (row, value) {
            (Datum::Int(row), None) => (*row, None),
            (Datum::Int(row), Some(Datum::Bytes(value))) => (*row, Some(value.len())),
            other => panic!("{other:?}"),
        };
        match (call.procedure, &call.inputs[..]) {
            ("read_only", [Datum::List(rows)]) => rows.iter().map(|row| used(row, None)).collect(),
            ("write", [row, value]) => vec![used(row, Some(value))],
            ("read_write", [Datum::List(lines)]) => {
                let line = |line: &Datum| match line {
                    Datum::Record(line) => used(&line[0], Some(&line[1])),
                    other => panic!("{other:?}"),
                };
                lines.iter().map(line).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_uses_the_rows_of_the_transaction() {
        let f1 = OneShotCalls::f1_write_heavy(&USUAL()).unwrap();
        let tao = OneShotCalls::tao(&ProcedureParameters { writes: Some(0.5), ..USUAL() }).unwrap();
        for (calls, writing) in [(f1, "read_write"), (tao, "write")] {
            let mut kinds = std::collections::BTreeMap::new();
            for (call, plan) in both(&calls) {
                let wanted: Vec<i64> = match plan.only_reads() {
                    true => plan.operations().iter().map(|read| read.key() as i64).collect(),
                    false => {
                        let writes = plan.operations().iter().filter(|op| !op.is_read());
                        writes.map(|write| write.key() as i64).collect()
                    }
                };
                let used = used(&call);
                assert_eq!(used.iter().map(|(row, _)| *row).collect::<Vec<_>>(), wanted);
                let writes = used.iter().filter(|(_, bytes)| *bytes > Some(800)).count();
                assert_eq!(writes, if plan.only_reads() { 0 } else { wanted.len() });
                let procedure = &calls.set.procedures;
                let of_call = procedure.iter().find(|one| one.name == call.procedure).unwrap();
                for (input, datum) in of_call.inputs.iter().zip(&call.inputs) {
                    assert_eq!(input.of.check(datum), Ok(()));
                }
                *kinds.entry(call.procedure).or_insert(0) += 1;
            }
            assert!(kinds["read_only"] > 500 && kinds[writing] > 500, "{kinds:?}");
            assert_eq!(kinds.len(), 2);
        }
    }

    #[test]
    fn rows_have_the_requested_length_before_they_are_written() {
        for (value_bytes, length) in [(None, 1600), (Some(16), 16)] {
            let calls = OneShotCalls::f1(&ProcedureParameters { value_bytes, ..USUAL() }).unwrap();
            let Datum::Bytes(default) = &calls.set.tables[0].columns[0].default else {
                panic!("a value has bytes")
            };
            assert_eq!(default.len(), length);
        }
        for (wrong, bound) in [(9, "10"), (4001, "4000")] {
            let parameters = ProcedureParameters { value_bytes: Some(wrong), ..USUAL() };
            let error = OneShotCalls::tao(&parameters).err().unwrap().to_string();
            assert!(error.contains(&wrong.to_string()) && error.contains(bound), "{error}");
        }
    }
}
