//! Transactions that are known before they begin, and write without having read.

use std::sync::atomic::{AtomicU64, Ordering};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Value, Write};
use serried_session::Transaction;
use serried_workload::{OneShot, Plan, Run, Workload};

/// Half of its transactions write to one to three of a few keys, of which they delete every third, be it there
/// or not; the others read as many. One in four has to do with keys that are seldom touched, so that what
/// happened to these long ago is what is found at the end.
pub(crate) struct Blind {
    keys: u64,
    written: AtomicU64,
}

impl Blind {
    pub(crate) fn new(keys: u64) -> Blind {
        Blind { keys, written: AtomicU64::new(0) }
    }
}

/// How many keys are seldom touched.
const SELDOM: u64 = 48;

fn name(key: u64) -> Key {
    Key::from(key.to_be_bytes())
}

fn value(number: u64) -> Value {
    Value::from(number.to_be_bytes())
}

fn number(value: &Value) -> u64 {
    u64::from_be_bytes(value.as_bytes().try_into().expect("what was written"))
}

/// The plan, with what its reads have found.
fn fill(plan: &[MicroOperation], found: &[Option<Value>]) -> Vec<MicroOperation> {
    let mut found = found.iter();
    let fill = |operation: &MicroOperation| match operation {
        MicroOperation::Read { key, .. } => {
            let value = found.next().expect("one for each read").as_ref();
            let result = ReadResult::Register(value.map(number));
            MicroOperation::Read { key: *key, result }
        }
        other => other.clone(),
    };
    plan.iter().map(fill).collect()
}

impl Workload for Blind {
    fn name(&self) -> &'static str {
        "blind"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let writes = random.random_bool(0.5);
        let mut keys: Vec<u64> = match random.random_range(0..4) {
            0 => (self.keys..self.keys + SELDOM).collect(),
            _ => (0..self.keys).collect(),
        };
        let many = random.random_range(1..=keys.len().min(3));
        for place in 0..many {
            let other = random.random_range(place..keys.len());
            keys.swap(place, other);
        }
        let mut operation = |key: u64| match writes {
            true => {
                let number = self.written.fetch_add(1, Ordering::Relaxed) + 1;
                let value = Some(number).filter(|_| random.random_range(0..3) > 0);
                MicroOperation::Write { key, value }
            }
            false => MicroOperation::Read { key, result: ReadResult::Pending },
        };
        keys.into_iter().take(many).map(&mut operation).collect::<Vec<_>>().into()
    }

    fn run<'a>(&'a self, plan: &'a Plan, tx: Transaction, _: bool) -> Run<'a> {
        Box::pin(async move {
            let OneShot { reads, writes, fill, .. } = self.one_shot(plan).expect("they all are");
            let found = tx.get_many(reads).await?;
            for Write { key, value } in writes {
                match value {
                    Some(value) => tx.put(key, value),
                    None => tx.delete(key),
                }
            }
            Ok(fill(plan.operations(), &found))
        })
    }

    fn one_shot(&self, plan: &Plan) -> Option<OneShot> {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for operation in plan.operations() {
            match operation {
                MicroOperation::Write { key, value: number } => {
                    writes.push(Write { key: name(*key), value: number.map(value) });
                }
                operation => reads.push(name(operation.key())),
            }
        }
        Some(OneShot { reads, writes, modifies: Vec::new(), fill })
    }

    fn initial(&self, _: u64) -> Option<(Key, Value)> {
        None
    }

    fn initial_value(&self, _: &Key) -> Option<Value> {
        None
    }
}
