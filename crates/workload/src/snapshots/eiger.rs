//! Eiger's dynamic workload (004 §9).

use rand_pcg::Pcg64Mcg;
use serried_model::{Key, Value};

use super::draw::{Draw, writes};
use super::{PlannedSnapshot, SnapshotParameters, SnapshotWorkload};
use crate::{WorkloadError, number};

/// Requests of a few rows each: a read-only transaction, or a write transaction. A row is one value, as long as all its
/// columns.
#[derive(Debug)]
pub struct Eiger {
    draw: Draw,
    key_bytes: usize,
    row_bytes: usize,
}

/// How many columns a row has.
const COLUMNS: usize = 5;

impl Eiger {
    /// With 5 rows a request, 5 columns of 128 bytes, 10 % writes and a Zipf exponent of 0.8, if nothing else is said.
    ///
    /// # Errors
    /// If a parameter is not possible.
    pub fn new(parameters: &SnapshotParameters) -> Result<Eiger, WorkloadError> {
        Ok(Eiger {
            draw: Draw::new(parameters, 0.1, 0.8)?,
            key_bytes: parameters.key_bytes.unwrap_or(8),
            row_bytes: COLUMNS * parameters.value_bytes.unwrap_or(128),
        })
    }
}

impl SnapshotWorkload for Eiger {
    fn name(&self) -> &'static str {
        "eiger"
    }

    fn plan(&self, client: u64, number: u64, random: &mut Pcg64Mcg) -> PlannedSnapshot {
        match self.draw.next(random) {
            (false, keys) => PlannedSnapshot::Read(keys),
            (true, keys) => PlannedSnapshot::WriteTogether(writes(keys, client, number)),
        }
    }

    fn needs_write_transactions(&self) -> bool {
        true
    }

    fn keys(&self) -> u64 {
        self.draw.keys()
    }

    fn initial(&self) -> Option<Value> {
        Some(number::value(0, self.row_bytes))
    }

    /// Neighbours in popularity are far from each other, so they are not at the same partition.
    fn key(&self, number: u64) -> Key {
        number::key(number, self.key_bytes)
    }

    fn value(&self, number: u64) -> Value {
        number::value(number, self.row_bytes)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_request_that_writes_is_one_transaction_of_different_rows() {
        let workload = Eiger::new(&SnapshotParameters::default()).unwrap();
        let random = &mut Pcg64Mcg::seed_from_u64(1);
        let mut transactions = 0;
        for number in 0..2000 {
            let mut keys = match workload.plan(3, number, random) {
                PlannedSnapshot::Read(keys) => keys,
                PlannedSnapshot::Write(_) => panic!("it writes rows together"),
                PlannedSnapshot::WriteTogether(pairs) => {
                    transactions += 1;
                    pairs.into_iter().map(|(key, _)| key).collect()
                }
            };
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 5);
        }
        assert!((140..260).contains(&transactions), "{transactions}");
        assert_eq!(workload.keys(), 1_000_000);
        assert!(workload.needs_write_transactions());
    }

    #[test]
    fn a_row_has_five_columns() {
        let row = |value_bytes| {
            let parameters = SnapshotParameters { value_bytes, ..Default::default() };
            Eiger::new(&parameters).unwrap().value(7).len()
        };
        assert_eq!((row(None), row(Some(8))), (640, 40));
    }
}
