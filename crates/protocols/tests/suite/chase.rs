//! Transactions whose keys depend on what they read.

use std::sync::atomic::{AtomicU64, Ordering};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Value};
use serried_session::Transaction;
use serried_workload::{Plan, Run, Workload};

/// Reads a list, and appends to another that depends on what it found: a transaction whose key set
/// changes when it is re-executed.
#[derive(Default)]
pub(crate) struct Chase {
    elements: AtomicU64,
}

impl Workload for Chase {
    fn name(&self) -> &'static str {
        "chase"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let element = self.elements.fetch_add(1, Ordering::Relaxed);
        let key = random.random_range(0..4);
        let read = MicroOperation::Read { key, result: ReadResult::Pending };
        vec![read, MicroOperation::Append { key: 0, element }].into()
    }

    fn run<'a>(&'a self, plan: &'a Plan, tx: Transaction, _: bool) -> Run<'a> {
        Box::pin(async move {
            let list = |value: Option<Value>| -> Vec<u64> {
                let bytes = value.map_or(Vec::new(), |value| value.as_bytes().to_vec());
                bytes.chunks(8).map(|e| u64::from_be_bytes(e.try_into().unwrap())).collect()
            };
            let [MicroOperation::Read { key, .. }, MicroOperation::Append { element, .. }] =
                plan.operations()[..]
            else {
                // An audit.
                let mut found = Vec::new();
                for key in plan.operations().iter().map(MicroOperation::key) {
                    let result = ReadResult::List(list(tx.get(key.to_be_bytes()).await?));
                    found.push(MicroOperation::Read { key, result });
                }
                return Ok(found);
            };
            let found = list(tx.get(key.to_be_bytes()).await?);
            let next = found.len() as u64 % 4;
            let mut other = list(tx.get(next.to_be_bytes()).await?);
            other.push(element);
            let bytes: Vec<u8> = other.iter().flat_map(|element| element.to_be_bytes()).collect();
            tx.put(next.to_be_bytes(), bytes);
            let read = MicroOperation::Read { key, result: ReadResult::List(found) };
            Ok(vec![read, MicroOperation::Append { key: next, element }])
        })
    }

    fn initial(&self, _: u64) -> Option<(Key, Value)> {
        None
    }

    fn initial_value(&self, _: &Key) -> Option<Value> {
        None
    }

    fn records_versions(&self) -> bool {
        false
    }
}
