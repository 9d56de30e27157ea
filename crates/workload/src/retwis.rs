//! Retwis: a social network (000 §5.1.2, Table 4).

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Modification, Value};
use serried_session::{Abort, Transaction};

use crate::number;
use crate::workload::{Parameters, Plan, Run, Workload};

/// Add-User, Follow, Post-Tweet and Load-Timeline, in the proportions 5, 15, 30 and 50, over keys of
/// a Zipf distribution.
///
/// Values are what users wrote, as in the paper's implementation: each write has a unique value that does not depend on
/// reads. With [`Parameters::dependent`], a key that is both read and written is incremented instead, so that a reader
/// of an increment depends on all earlier ones. With [`Parameters::modify`], these keys are not read, and one is added to each
/// where it is. If a history is recorded, they are read all the same.
#[derive(Debug)]
pub struct Retwis {
    keys: u64,
    key_bytes: usize,
    value_bytes: usize,
    dependent: bool,
    modify: bool,
    sequential: bool,
    popularity: Zipf<f64>,
}

/// How many keys are drawn for a transaction, before the remaining ones are chosen without drawing.
const MOST_DRAWS: usize = 1000;

impl Retwis {
    /// By default 10 million keys, as in the paper, and at least [`Retwis::LEAST_KEYS`].
    pub fn new(parameters: &Parameters) -> Retwis {
        let keys = parameters.keys.unwrap_or(10_000_000).max(Retwis::LEAST_KEYS);
        let popularity = Zipf::new(keys as f64, parameters.theta_or(0.9));
        Retwis {
            keys,
            key_bytes: parameters.key_bytes,
            value_bytes: parameters.value_bytes.unwrap_or(8),
            dependent: parameters.dependent,
            modify: parameters.modify && parameters.dependent,
            sequential: parameters.sequential,
            popularity: popularity.expect("a positive number of keys and an exponent from 0 on"),
        }
    }

    /// The least number of keys.
    pub const LEAST_KEYS: u64 = 16;

    fn value(&self, number: u64) -> Value {
        match self.modify {
            true => number::decimal(number),
            false => number::value(number, self.value_bytes),
        }
    }

    fn number(&self, value: &Value) -> u64 {
        if self.modify { number::of_decimal(value) } else { number::number(value) }
    }

    /// Runs a plan without reading what it increments.
    async fn modify(
        &self,
        plan: &[MicroOperation],
        transaction: &Transaction,
    ) -> Result<Vec<MicroOperation>, Abort> {
        let key = |number| number::key(number, self.key_bytes);
        let mut reads = Vec::new();
        for operation in plan {
            match operation {
                MicroOperation::Read { key, .. } => reads.push(*key),
                MicroOperation::Write { key: written, value: Some(number) } => {
                    transaction.put(key(*written), self.value(*number));
                }
                operation => {
                    let key = key(operation.key());
                    drop(transaction.modify(key, Modification::add(1)));
                }
            }
        }
        // What is written was read to be incremented.
        if plan.len() == reads.len() {
            let reads = transaction.get_many(reads.into_iter().map(key));
            reads.one_by_one(self.sequential).await?;
        }
        Ok(Vec::new())
    }

    /// `count` different keys.
    fn draw(&self, count: usize, random: &mut Pcg64Mcg) -> Vec<u64> {
        let mut keys = Vec::with_capacity(count);
        for _ in 0..MOST_DRAWS {
            if keys.len() == count {
                return keys;
            }
            let key = self.popularity.sample(random) as u64 - 1;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        // If a few keys have nearly all the weight, take the next ones in order of popularity.
        let missing: Vec<u64> =
            (0..self.keys).filter(|key| !keys.contains(key)).take(count).collect();
        keys.extend(missing.into_iter().take(count - keys.len()));
        keys
    }
}

impl Workload for Retwis {
    fn name(&self) -> &'static str {
        "retwis"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let (reads, writes) = match random.random_range(0..100) {
            0..5 => (1, 2),                             // Add-User
            5..20 => (2, 2),                            // Follow, Unfollow
            20..50 => (3, 5),                           // Post-Tweet
            _ => (random.random_range(1..=10usize), 0), // Load-Timeline
        };
        let keys = self.draw(reads.max(writes), random);
        let read = |key: &u64| MicroOperation::Read { key: *key, result: ReadResult::Pending };
        let mut plan: Vec<MicroOperation> = keys[..reads].iter().map(read).collect();
        for (i, key) in keys[..writes].iter().enumerate() {
            let increment = self.dependent && i < reads;
            let greatest = if self.modify { i64::MAX as u64 } else { u64::MAX };
            let value = (!increment).then(|| random.random_range(0..greatest));
            plan.push(MicroOperation::Write { key: *key, value });
        }
        plan.into()
    }

    fn kind(&self, plan: &Plan) -> &'static str {
        let operations = plan.operations();
        let reads = operations.iter().filter(|operation| operation.is_read()).count();
        match (reads, operations.len() - reads) {
            (_, 0) => "load-timeline",
            (1, _) => "add-user",
            (2, _) => "follow",
            _ => "post-tweet",
        }
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, record: bool) -> Run<'a> {
        Box::pin(async move {
            let plan = plan.operations();
            let key = |number| number::key(number, self.key_bytes);
            if self.modify && !record {
                return self.modify(plan, &transaction).await;
            }
            let keys = plan.iter().map_while(|operation| match operation {
                MicroOperation::Read { key, .. } => Some(*key),
                _ => None,
            });
            let reads = transaction.get_many(keys.map(key)).one_by_one(self.sequential);
            // The first keys are written, too.
            let writes = plan.iter().filter(|operation| !operation.is_read()).count();
            let values = reads.for_update(..writes).await?;
            for (i, operation) in plan[values.len()..].iter().enumerate() {
                if let MicroOperation::Write { key: written, value } = operation {
                    let old = values
                        .get(i)
                        .and_then(Option::as_ref)
                        .map_or(0, |value| self.number(value));
                    let new = value.unwrap_or(old.wrapping_add(1));
                    transaction.put(key(*written), self.value(new));
                }
            }
            Ok(if record { fill(plan, &values, |value| self.number(value)) } else { Vec::new() })
        })
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        let loaded = || (number::key(i, self.key_bytes), self.value(0));
        (i < self.keys).then(loaded)
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        number::of_key(key, self.key_bytes).and_then(|number| Some(self.initial(number)?.1))
    }
}

/// Fills in the results of a plan of reads followed by writes. A write without a value increments the value that was
/// read at the same place.
pub(crate) fn fill(
    plan: &[MicroOperation],
    values: &[Option<Value>],
    number: impl Fn(&Value) -> u64,
) -> Vec<MicroOperation> {
    let numbers: Vec<Option<u64>> =
        values.iter().map(|value| value.as_ref().map(&number)).collect();
    let read = |(operation, number): (&MicroOperation, &Option<u64>)| match operation {
        MicroOperation::Read { key, .. } => {
            MicroOperation::Read { key: *key, result: ReadResult::Register(*number) }
        }
        other => other.clone(),
    };
    let write = |(i, operation): (usize, &MicroOperation)| match operation {
        MicroOperation::Write { key, value } => {
            let old = numbers.get(i).copied().flatten().unwrap_or(0);
            MicroOperation::Write { key: *key, value: value.or(Some(old.wrapping_add(1))) }
        }
        other => other.clone(),
    };
    let reads = plan.iter().zip(&numbers).map(read);
    reads.chain(plan[values.len()..].iter().enumerate().map(write)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn the_mix_is_that_of_table_4() {
        let retwis = Retwis::new(&Parameters { keys: Some(1000), ..Parameters::default() });
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut counts = [0; 4];
        for _ in 0..20_000 {
            let plan = retwis.plan(0, &mut random);
            let operations = plan.operations();
            let writes = |o: &&MicroOperation| matches!(o, MicroOperation::Write { .. });
            let writes = operations.iter().filter(writes).count();
            let (kind, name) = match (operations.len() - writes, writes) {
                (1, 2) => (0, "add-user"),
                (2, 2) => (1, "follow"),
                (3, 5) => (2, "post-tweet"),
                (1..=10, 0) => (3, "load-timeline"),
                other => panic!("no transaction of Retwis reads and writes {other:?} keys"),
            };
            counts[kind] += 1;
            assert_eq!(retwis.kind(&plan), name);
        }
        for (count, percent) in counts.iter().zip([5, 15, 30, 50]) {
            assert!((percent * 180..percent * 220).contains(count), "{counts:?}");
        }
    }

    #[test]
    fn theta_decides_how_often_the_hottest_key_is_drawn() {
        let share = |theta| {
            let parameters =
                Parameters { keys: Some(1_000_000), theta: Some(theta), ..Parameters::default() };
            let retwis = Retwis::new(&parameters);
            let mut random = Pcg64Mcg::seed_from_u64(1);
            let drawn = (0..50_000).filter(|_| retwis.draw(1, &mut random)[0] == 0).count();
            drawn as f64 / 50_000.0
        };
        // 1 over the sum of k^-0.9 for k up to a million, which is 30.2.
        assert!((0.030..0.036).contains(&share(0.9)));
        assert!(share(0.0) < 0.001);
    }

    #[test]
    fn different_keys_are_drawn_even_if_one_has_nearly_all_the_weight() {
        for theta in [10.0, 1e3] {
            let parameters =
                Parameters { keys: Some(100), theta: Some(theta), ..Parameters::default() };
            let keys = Retwis::new(&parameters).draw(10, &mut Pcg64Mcg::seed_from_u64(1));
            assert_eq!(keys, (0..10).collect::<Vec<_>>());
        }
    }
}
