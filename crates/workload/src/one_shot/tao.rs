//! Facebook-TAO (003 Fig. 5).

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::MicroOperation;

use super::{KEYS, OnRows, Shape, THETA, Table, reads, write_share};
use crate::WorkloadError;
use crate::workload::{Parameters, Plan};

/// The greatest number of keys of a read, and of columns of a row.
const MOST: u64 = 1000;
/// The length of a value, in bytes, evenly distributed.
const BYTES: core::ops::RangeInclusive<usize> = 1000..=4000;
/// Two of this many keys are objects: 19 to 2 is 9.5 to 1.
const OBJECTS_IN: u64 = 21;

/// A social graph: transactions that read 1 to 1000 keys, and a few writes of one key each.
///
/// What Figure 5 leaves open, and the choice made here:
/// - **Keys read**: 1 to 1000, and the logarithm of their number is evenly distributed; the mean is 145 and the
///   median 32, as most of TAO's queries ask for little and a few for much.
/// - **Associations to objects 9.5 : 1**: of every 21 keys, 19 are lists of associations and 2 are objects. As
///   either may be as popular, so are accesses. An object has one column; a list has one for each association,
///   1 to 1000, the logarithm of the number evenly distributed again. That number is the key's, for good.
/// - **Values of 1 to 4 KB**: the whole value of a key with all its columns, evenly distributed from 1000 to
///   4000 bytes, and drawn anew when it is written.
/// - **Writes**: "non-transactional" (003 §6.4), so a transaction that writes one key without reading it.
#[derive(Debug)]
pub struct Tao {
    writes: f64,
    table: Table,
}

impl Tao {
    /// By default a million keys of a Zipf distribution with exponent 0.8, and 0.2 % writes.
    ///
    /// # Errors
    /// If a parameter is not valid.
    pub fn new(parameters: &Parameters) -> Result<Tao, WorkloadError> {
        let writes = write_share(parameters.writes, 0.002)?;
        Ok(Tao { writes, table: Table::new(parameters, (KEYS, THETA), shape)? })
    }
}

/// A number from 1 to `MOST` whose logarithm is evenly distributed.
fn few_or_many(random: &mut Pcg64Mcg) -> u64 {
    let power: f64 = random.random();
    (((MOST + 1) as f64).powf(power) as u64).clamp(1, MOST)
}

fn is_object(key: u64) -> bool {
    key % OBJECTS_IN < 2
}

fn shape(key: u64, [of_key, of_version]: [&mut Pcg64Mcg; 2]) -> Shape {
    let columns = if is_object(key) { 1 } else { few_or_many(of_key) };
    Shape { columns: columns as u16, bytes: of_version.random_range(BYTES) }
}

impl OnRows for Tao {
    const WRITING: &'static str = "write";

    fn label(&self) -> &'static str {
        "tao"
    }

    fn draw(&self, random: &mut Pcg64Mcg) -> Plan {
        let popularity = &self.table.popularity;
        if random.random::<f64>() < self.writes {
            let key = popularity.draw(1, random)[0];
            let value = Some(random.random_range(1..u64::MAX));
            return vec![MicroOperation::Write { key, value }].into();
        }
        let count = few_or_many(random) as usize;
        reads(&popularity.draw(count, random)).collect::<Vec<_>>().into()
    }

    fn table(&self) -> &Table {
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use serried_model::Value;

    use super::*;
    use crate::workload::Workload;

    fn plans(tao: &Tao, seed: u64, count: usize) -> Vec<Plan> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        (0..count).map(|_| tao.plan(0, &mut random)).collect()
    }

    fn columns(row: &Value) -> u64 {
        let columns = row.as_bytes()[8..].first_chunk::<2>().expect("a row has a header");
        u16::from_be_bytes(*columns).into()
    }

    #[test]
    fn a_few_transactions_write_one_key_and_the_others_read_1_to_1000() {
        let tao = Tao::new(&Parameters::default()).unwrap();
        let (mut writes, mut sizes) = (0, Vec::new());
        for plan in plans(&tao, 1, 6000) {
            match plan.operations() {
                [MicroOperation::Write { value: Some(_), .. }] => {
                    assert_eq!((tao.kind(&plan), plan.only_reads()), ("write", false));
                    writes += 1;
                }
                operations => {
                    assert_eq!((tao.kind(&plan), plan.only_reads()), ("read-only", true));
                    sizes.push(operations.len());
                }
            }
        }
        assert!((4..25).contains(&writes), "{writes} of 6000 should be 0.2 %");
        sizes.sort_unstable();
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        let median = sizes[sizes.len() / 2];
        assert!((135.0..155.0).contains(&mean) && (29..35).contains(&median), "{mean} {median}");
        assert!(sizes[0] == 1 && sizes.last().is_some_and(|most| (980..=1000).contains(most)));
    }

    #[test]
    fn there_are_9_5_lists_per_object_and_only_lists_have_many_columns() {
        let tao = Tao::new(&Parameters::default()).unwrap();
        let (mut objects, mut lists) = (0, Vec::new());
        for key in 0..21_000 {
            let columns = columns(&tao.table.row(key, 9));
            assert_eq!(columns, self::columns(&tao.table.row(key, 10)), "they are the key's");
            match is_object(key) {
                true => objects += columns,
                false => lists.push(columns),
            }
        }
        assert_eq!((objects, lists.len()), (2000, 19_000));
        let many = lists.iter().filter(|columns| **columns > 31).count();
        assert!((9_000..10_000).contains(&many), "{many}");
        assert!(lists.iter().all(|columns| (1..=1000).contains(columns)));
        assert!(lists.iter().any(|columns| *columns > 980));
    }

    #[test]
    fn values_have_1000_to_4000_bytes() {
        let tao = Tao::new(&Parameters::default()).unwrap();
        let mut lengths: Vec<usize> =
            (0..9000).map(|key| tao.initial(key).unwrap().1.len()).collect();
        lengths.sort_unstable();
        assert!(lengths[0] >= 1000 && lengths[8999] <= 4000);
        assert!((1950..2050).contains(&lengths[3000]) && (2950..3050).contains(&lengths[6000]));
    }

    #[test]
    fn the_same_seed_plans_the_same() {
        let planned = |seed| {
            let plans = plans(&Tao::new(&Parameters::default()).unwrap(), seed, 200);
            plans.iter().map(|plan| plan.operations().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(planned(4), planned(4));
        assert_ne!(planned(4), planned(5));
    }
}
