//! Loads for calibration, which differ in how many keys a transaction reads and writes.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Value};
use serried_session::Transaction;
use serried_workload::{Plan, Run, Workload};

/// Keys are drawn uniformly from this many, so that transactions hardly ever conflict.
const KEYS: u64 = 1_000_000;

/// Each transaction reads a number of keys at once, and then writes a number of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) reads: usize,
    pub(crate) writes: usize,
}

/// The loads that costs are fitted to.
pub(crate) const LOADS: &[Touch] = &[
    Touch { reads: 1, writes: 0 },
    Touch { reads: 4, writes: 0 },
    Touch { reads: 12, writes: 0 },
    Touch { reads: 0, writes: 1 },
    Touch { reads: 0, writes: 6 },
    Touch { reads: 0, writes: 20 },
    Touch { reads: 1, writes: 1 },
    Touch { reads: 4, writes: 4 },
    Touch { reads: 12, writes: 12 },
];

fn key(number: u64) -> Key {
    Key::from(number.to_be_bytes())
}

impl Workload for Touch {
    fn name(&self) -> &'static str {
        "touch"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let mut draw = || random.random_range(0..KEYS);
        let mut plan: Vec<MicroOperation> = (0..self.reads)
            .map(|_| MicroOperation::Read { key: draw(), result: ReadResult::Pending })
            .collect();
        let write = |key| MicroOperation::Write { key, value: Some(key) };
        plan.extend((0..self.writes).map(|_| write(draw())));
        plan.into()
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, _: bool) -> Run<'a> {
        Box::pin(async move {
            let (reads, writes) = plan.operations().split_at(self.reads);
            let keys = reads.iter().filter_map(|operation| match operation {
                MicroOperation::Read { key: number, .. } => Some(key(*number)),
                _ => None,
            });
            transaction.get_many(keys).await?;
            for operation in writes {
                if let MicroOperation::Write { key: number, .. } = operation {
                    transaction.put(key(*number), Value::from(number.to_be_bytes()));
                }
            }
            Ok(Vec::new())
        })
    }

    fn initial(&self, _: u64) -> Option<(Key, Value)> {
        None
    }

    fn initial_value(&self, _: &Key) -> Option<Value> {
        None
    }
}
