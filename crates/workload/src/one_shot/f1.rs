//! Google-F1 and Google-WF (003 Fig. 5 and §6.4).

use rand::RngExt;
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64Mcg;
use serried_history::MicroOperation;

use super::{KEYS, OnRows, Shape, THETA, Table, reads, write_share};
use crate::WorkloadError;
use crate::workload::{Parameters, Plan};

/// How many keys a transaction has, evenly distributed.
const TXN_KEYS: core::ops::RangeInclusive<usize> = 1..=10;
/// The mean length of a value, in bytes, and its standard deviation.
const BYTES: (f64, f64) = (1600.0, 119.0);
/// The greatest distance of a length from the mean, in standard deviations.
const FURTHEST: f64 = 6.0;
/// How many columns a row has.
const COLUMNS: u16 = 10;

/// An advertising database. Transactions read 1 to 10 rows, and a small share of them also writes all rows that it
/// reads.
///
/// The paper says how many keys a read-write transaction has, but not which of them it reads. Here it reads and writes
/// each of them, so it conflicts with every reader and writer of any of them. Values do not depend on reads, because
/// the paper's transactions have one shot (Fig. 6): all requests of a transaction are known before it begins. A row's
/// length is drawn again whenever it is written.
#[derive(Debug)]
pub struct F1 {
    name: &'static str,
    writes: f64,
    table: Table,
}

impl F1 {
    /// `f1`: by default a million keys of a Zipf distribution with exponent 0.8, and 0.3 % of transactions write.
    ///
    /// # Errors
    /// If a parameter is not valid.
    pub fn new(parameters: &Parameters) -> Result<F1, WorkloadError> {
        F1::with("f1", 0.003, parameters)
    }

    /// `f1-wf`: the same, but by default 30 % of transactions write, which is the greatest share in the paper.
    ///
    /// # Errors
    /// If a parameter is not valid.
    pub fn write_heavy(parameters: &Parameters) -> Result<F1, WorkloadError> {
        F1::with("f1-wf", 0.3, parameters)
    }

    fn with(
        name: &'static str,
        usual_writes: f64,
        parameters: &Parameters,
    ) -> Result<F1, WorkloadError> {
        let writes = write_share(parameters.writes, usual_writes)?;
        Ok(F1 { name, writes, table: Table::new(parameters, (KEYS, THETA), shape)? })
    }
}

fn shape(_: u64, [_, of_version]: [&mut Pcg64Mcg; 2]) -> Shape {
    let (mean, deviation) = BYTES;
    let length = Normal::new(0.0, 1.0).expect("a deviation of 1").sample(of_version);
    let bytes = mean + deviation * f64::clamp(length, -FURTHEST, FURTHEST);
    Shape { columns: COLUMNS, bytes: bytes.round() as usize }
}

impl OnRows for F1 {
    const WRITING: &'static str = "read-write";

    fn label(&self) -> &'static str {
        self.name
    }

    fn draw(&self, random: &mut Pcg64Mcg) -> Plan {
        let writes = random.random::<f64>() < self.writes;
        let keys = self.table.popularity.draw(random.random_range(TXN_KEYS), random);
        let mut plan: Vec<MicroOperation> = reads(&keys).collect();
        if writes {
            let write = |key: &u64| {
                let value = Some(random.random_range(1..u64::MAX));
                MicroOperation::Write { key: *key, value }
            };
            plan.extend(keys.iter().map(write));
        }
        plan.into()
    }

    fn table(&self) -> &Table {
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;
    use crate::workload::Workload;

    fn plans(f1: &F1, seed: u64, count: usize) -> Vec<Plan> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        (0..count).map(|_| f1.plan(0, &mut random)).collect()
    }

    fn share_that_writes(f1: &F1) -> f64 {
        let plans = plans(f1, 1, 40_000);
        plans.iter().filter(|plan| !plan.only_reads()).count() as f64 / 40_000.0
    }

    #[test]
    fn the_share_of_writers_is_that_of_figure_5_or_the_requested_one() {
        let usual = Parameters::default();
        assert!((0.002..0.004).contains(&share_that_writes(&F1::new(&usual).unwrap())));
        let heavy = share_that_writes(&F1::write_heavy(&usual).unwrap());
        assert!((0.29..0.31).contains(&heavy), "{heavy}");
        for asked_for in [0.0, 0.1, 1.0] {
            let parameters = Parameters { writes: Some(asked_for), ..usual };
            let found = share_that_writes(&F1::new(&parameters).unwrap());
            assert!((found - asked_for).abs() < 0.01, "{found}");
        }
        for wrong in [-0.1, 1.1, f64::NAN] {
            let error = F1::new(&Parameters { writes: Some(wrong), ..usual }).unwrap_err();
            assert!(error.to_string().contains(&wrong.to_string()), "{error}");
        }
    }

    #[test]
    fn a_transaction_reads_1_to_10_keys_and_writes_all_or_none() {
        let f1 = F1::write_heavy(&Parameters::default()).unwrap();
        let mut of_size = [0; 11];
        for plan in plans(&f1, 1, 10_000) {
            let (reads, writes): (Vec<_>, Vec<_>) =
                plan.operations().iter().partition(|operation| operation.is_read());
            let keys = |operations: &[&MicroOperation]| -> BTreeSet<u64> {
                operations.iter().map(|operation| operation.key()).collect()
            };
            of_size[reads.len()] += 1;
            assert_eq!(keys(&reads).len(), reads.len());
            assert_eq!(writes.is_empty(), plan.only_reads());
            assert!(writes.is_empty() || keys(&writes) == keys(&reads));
            assert_eq!(f1.kind(&plan), if writes.is_empty() { "read-only" } else { "read-write" });
        }
        assert!(of_size[1..].iter().all(|count| (850..1150).contains(count)), "{of_size:?}");
    }

    #[test]
    fn rows_have_ten_columns_and_lengths_normally_distributed() {
        let f1 = F1::new(&Parameters::default()).unwrap();
        let rows = (0..10_000).map(|i| f1.initial(i * 100).unwrap().1);
        let written = (0..10_000).map(|number| f1.table.row(5, 1 + number));
        for rows in [rows.collect::<Vec<_>>(), written.collect()] {
            assert!(rows.iter().all(|row| row.as_bytes()[8..10] == 10u16.to_be_bytes()));
            let lengths: Vec<f64> = rows.iter().map(|row| row.len() as f64).collect();
            let mean = lengths.iter().sum::<f64>() / 10_000.0;
            let within = |bytes: f64| {
                lengths.iter().filter(|length| (**length - 1600.0).abs() <= bytes).count()
            };
            assert!((1595.0..1605.0).contains(&mean), "{mean}");
            // Of a normal distribution, 68.3 % are within one deviation and 95.4 % within two.
            assert!((6_650..7_000).contains(&within(119.0)), "{}", within(119.0));
            assert!((9_450..9_630).contains(&within(238.0)), "{}", within(238.0));
        }
    }

    #[test]
    fn the_same_seed_plans_the_same() {
        let parameters = Parameters { writes: Some(0.5), ..Parameters::default() };
        let planned = |seed| {
            let plans = plans(&F1::new(&parameters).unwrap(), seed, 500);
            plans.iter().map(|plan| plan.operations().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(planned(4), planned(4));
        assert_ne!(planned(4), planned(5));
    }
}
