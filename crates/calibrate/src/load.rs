//! Loads for calibration, which differ in how many keys a transaction reads and writes.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Value};
use serried_session::Transaction;
use serried_workload::{Plan, Run, Workload};

/// Keys are drawn uniformly from this many, so that transactions hardly ever conflict.
const KEYS: u64 = 1_000_000;
/// So many have long values, which are loaded before. A transaction reads or writes them, and does not do both.
const LONG: u64 = 20_000;
/// The length of a long value, in bytes.
const LONG_BYTES: usize = 1000;

/// Each transaction reads a number of keys at once, and then writes a number of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    /// Whether values are long. Others have 8 bytes, and are absent until they are written.
    pub(crate) long: bool,
}

const fn short(reads: usize, writes: usize) -> Touch {
    Touch { reads, writes, long: false }
}

/// The loads that costs are fitted to.
pub(crate) const LOADS: [Touch; 9] = [
    short(1, 0),
    short(4, 0),
    short(12, 0),
    short(0, 1),
    short(0, 6),
    short(0, 20),
    short(1, 1),
    short(4, 4),
    short(12, 12),
];

/// Loads with long values, which show what a byte costs.
pub(crate) const LONG_LOADS: [Touch; 4] = [
    Touch { reads: 1, writes: 0, long: true },
    Touch { reads: 6, writes: 0, long: true },
    Touch { reads: 0, writes: 1, long: true },
    Touch { reads: 0, writes: 6, long: true },
];

fn key(number: u64) -> Key {
    Key::from(number.to_be_bytes())
}

impl Touch {
    fn keys(self) -> u64 {
        if self.long { LONG } else { KEYS }
    }

    fn value(self, number: u64) -> Value {
        let mut value = number.to_be_bytes().to_vec();
        if self.long {
            value.resize(LONG_BYTES, 0);
        }
        Value::from(value)
    }
}

impl Workload for Touch {
    fn name(&self) -> &'static str {
        "touch"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let mut draw = || random.random_range(0..self.keys());
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
                    transaction.put(key(*number), self.value(*number));
                }
            }
            Ok(Vec::new())
        })
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        (self.long && i < LONG).then(|| (key(i), self.value(i)))
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        let number = u64::from_be_bytes(key.as_bytes().try_into().ok()?);
        self.initial(number).map(|(_, value)| value)
    }
}
