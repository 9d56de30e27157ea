//! Rows of many columns.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_history::MicroOperation;
use serried_model::{Key, Value, Write};
use serried_session::Transaction;

use super::Popularity;
use crate::retwis;
use crate::workload::Run;
use crate::{OneShot, Parameters, Plan, WorkloadError, number};

/// How large a row is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// How many columns it has.
    pub(super) columns: u16,
    /// The length of its value, all columns included, in bytes.
    pub(super) bytes: usize,
}

/// The shape of the row with this key, from two random generators: the first depends only on the key, and the second
/// also on the version.
pub(super) type Shapes = fn(u64, [&mut Pcg64Mcg; 2]) -> Shape;

/// The header before the columns: the number that was written, and the number of columns. Columns share the rest
/// equally, so their bounds need not be stored.
const HEADER_BYTES: usize = 8 + 2;

/// The rows of a workload: one key for each, whose value has all of its columns.
///
/// A value begins with the number that stands for it in a history. The rest is computed from this number and the key.
/// So a history need only have the number, and initial values need not be stored.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) popularity: Popularity,
    key_bytes: usize,
    /// The length of all values, if it is the same for all.
    value_bytes: Option<usize>,
    shapes: Shapes,
}

impl Table {
    /// Rows of these shapes. `parameters` determine the keys, with `usual` as the default.
    ///
    /// # Errors
    /// If the keys or rows are not valid.
    pub(super) fn new(
        parameters: &Parameters,
        (usual_keys, usual_theta): (u64, f64),
        shapes: Shapes,
    ) -> Result<Table, WorkloadError> {
        let keys = parameters.keys.unwrap_or(usual_keys);
        let popularity = Popularity::new(keys, parameters.theta.unwrap_or(usual_theta))?;
        let Parameters { key_bytes, value_bytes, .. } = *parameters;
        if let Some(bytes) = value_bytes.filter(|bytes| *bytes < HEADER_BYTES) {
            return Err(WorkloadError::RowBytes { bytes, least: HEADER_BYTES });
        }
        Ok(Table { popularity, key_bytes, value_bytes, shapes })
    }

    /// The value of a row after `number` was written to it.
    pub(super) fn row(&self, key: u64, number: u64) -> Value {
        let mut of_key = Pcg64Mcg::seed_from_u64(key);
        let mut of_version = Pcg64Mcg::seed_from_u64(key.rotate_left(32) ^ number);
        let shape = (self.shapes)(key, [&mut of_key, &mut of_version]);
        let mut value = vec![0; self.value_bytes.unwrap_or(shape.bytes)];
        let (header, columns) = value.split_at_mut(HEADER_BYTES);
        header[..8].copy_from_slice(&number.to_be_bytes());
        header[8..].copy_from_slice(&shape.columns.to_be_bytes());
        of_version.fill_bytes(columns);
        Value::from(value)
    }

    fn key(&self, number: u64) -> Key {
        number::key(number, self.key_bytes)
    }

    /// The `i`-th row before a run, if there is one.
    pub(super) fn initial(&self, i: u64) -> Option<(Key, Value)> {
        (i < self.popularity.keys()).then(|| (self.key(i), self.row(i, 0)))
    }

    /// The value of a key before a run.
    pub(super) fn initial_value(&self, key: &Key) -> Option<Value> {
        let number = number::of_key(key, self.key_bytes)?;
        Some(self.initial(number)?.1)
    }

    /// The one-shot transaction of a plan of reads followed by writes that do not depend on them.
    pub(super) fn one_shot(&self, plan: &Plan) -> OneShot {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for operation in plan.operations() {
            match operation {
                MicroOperation::Write { key, value: Some(number) } => {
                    let value = Some(self.row(*key, *number));
                    writes.push(Write { key: self.key(*key), value });
                }
                operation => reads.push(self.key(operation.key())),
            }
        }
        OneShot { reads, writes, modifies: Vec::new(), fill }
    }

    /// Runs a plan of reads followed by writes that do not depend on them.
    pub(super) fn run<'a>(&'a self, plan: &'a Plan, tx: Transaction, record: bool) -> Run<'a> {
        let plan = plan.operations();
        Box::pin(async move {
            let reads = plan.iter().filter(|operation| operation.is_read());
            let values = tx.get_many(reads.map(|read| self.key(read.key()))).await?;
            for operation in plan {
                if let MicroOperation::Write { key, value: Some(number) } = operation {
                    tx.put(self.key(*key), self.row(*key, *number));
                }
            }
            Ok(if record { fill(plan, &values) } else { Vec::new() })
        })
    }
}

fn fill(plan: &[MicroOperation], values: &[Option<Value>]) -> Vec<MicroOperation> {
    retwis::fill(plan, values, number::number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(parameters: &Parameters) -> Result<Table, WorkloadError> {
        let shapes: Shapes = |_, [_, of_version]| {
            let bytes = 100 + of_version.next_u32() as usize % 50;
            Shape { columns: 7, bytes }
        };
        Table::new(parameters, (100, 0.8), shapes)
    }

    #[test]
    fn a_value_is_computed_from_the_number_that_it_begins_with() {
        let table = table(&Parameters::default()).unwrap();
        let value = table.row(5, 77);
        assert_eq!(number::number(&value), 77);
        assert_eq!(value.as_bytes()[8..10], 7u16.to_be_bytes());
        assert_eq!(value, table.row(5, 77));
        assert_ne!(value.as_bytes()[10..20], table.row(5, 78).as_bytes()[10..20]);
        assert_ne!(value.as_bytes()[10..20], table.row(6, 77).as_bytes()[10..20]);
    }

    #[test]
    fn values_have_the_requested_length_and_short_ones_are_refused() {
        let of = |value_bytes| table(&Parameters { value_bytes, ..Parameters::default() });
        let lengths =
            |table: &Table| (0..50).map(|key| table.row(key, 3).len()).collect::<Vec<_>>();
        assert!(lengths(&of(Some(10)).unwrap()).iter().all(|length| *length == 10));
        assert!(lengths(&of(None).unwrap()).windows(2).any(|pair| pair[0] != pair[1]));
        let error = of(Some(9)).unwrap_err().to_string();
        assert!(error.contains('9') && error.contains("10"), "{error}");
    }
}
