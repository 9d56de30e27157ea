//! Counters that all clients increment.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Modification, Value};
use serried_session::Transaction;

use crate::number;
use crate::retwis::fill;
use crate::workload::{Parameters, Plan, Run, Workload};

/// Each transaction reads one counter and writes it increased by one. This is the greatest possible contention. With
/// [`Parameters::modify`] it adds one instead, and reads the counter only if a history is recorded.
#[derive(Debug)]
pub struct Counter {
    counters: u64,
    modify: bool,
    plain_reads: bool,
}

impl Counter {
    /// By default one counter.
    pub fn new(parameters: &Parameters) -> Counter {
        Counter {
            counters: parameters.keys.unwrap_or(1).max(1),
            modify: parameters.modify,
            plain_reads: parameters.plain_reads,
        }
    }
}

impl Workload for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let key = random.random_range(0..self.counters);
        vec![
            MicroOperation::Read { key, result: ReadResult::Pending },
            MicroOperation::Write { key, value: None },
        ]
        .into()
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, record: bool) -> Run<'a> {
        Box::pin(async move {
            let plan = plan.operations();
            let MicroOperation::Read { key, .. } = plan[0] else {
                unreachable!("a counter is read first")
            };
            if self.modify {
                let added = transaction.modify(number::key(key, 8), Modification::add(1));
                return match record {
                    true => Ok(fill(plan, &[added.await?.found], number::of_decimal)),
                    false => Ok(Vec::new()),
                };
            }
            let old = match self.plain_reads {
                true => transaction.get(number::key(key, 8)).await?,
                false => transaction.get_for_update(number::key(key, 8)).await?,
            };
            let count = old.as_ref().map_or(0, number::number);
            transaction.put(number::key(key, 8), number::value(count + 1, 8));
            Ok(if record { fill(plan, &[old], number::number) } else { Vec::new() })
        })
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        let value = || if self.modify { number::decimal(0) } else { number::value(0, 8) };
        (i < self.counters).then(|| (number::key(i, 8), value()))
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        number::of_key(key, 8).and_then(|number| Some(self.initial(number)?.1))
    }
}
