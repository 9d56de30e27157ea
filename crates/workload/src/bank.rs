//! A bank whose total never changes.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::{EventKind, History, MicroOperation, ReadResult};
use serried_model::{Key, Value};
use serried_session::Transaction;

use crate::number;
use crate::workload::{Parameters, Plan, Run, Workload};

/// The balance of each account before its first transfer.
const INITIAL: u64 = 100;
/// Stands for the amount that leaves [`INITIAL`] in the account that pays.
const LEVEL: u64 = 0;

/// Nine of ten transactions transfer an amount between two accounts, at most the first one's balance. The tenth reads all
/// accounts, and must find the total unchanged.
///
/// An account that holds its initial balance is not stored. So a transfer that restores the initial balance deletes the
/// account's key. Every fourth transfer does that to the account that pays.
#[derive(Debug)]
pub struct Bank {
    accounts: u64,
}

impl Bank {
    /// By default ten accounts, and at least two.
    pub fn new(parameters: &Parameters) -> Bank {
        Bank { accounts: parameters.keys.unwrap_or(10).max(2) }
    }

    fn balance(value: &Option<Value>) -> u64 {
        value.as_ref().map_or(INITIAL, number::number)
    }
}

impl Workload for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let read = |key| MicroOperation::Read { key, result: ReadResult::Pending };
        if random.random_range(0..10) == 0 {
            return (0..self.accounts).map(read).collect::<Vec<_>>().into();
        }
        let from = random.random_range(0..self.accounts);
        let to = (from + random.random_range(1..self.accounts)) % self.accounts;
        let amount =
            if random.random_range(0..4) == 0 { LEVEL } else { random.random_range(1..=5) };
        // Until the balances are known, the write to the first account stands for the amount.
        vec![
            read(from),
            read(to),
            MicroOperation::Write { key: from, value: Some(amount) },
            MicroOperation::Write { key: to, value: None },
        ]
        .into()
    }

    fn kind(&self, plan: &Plan) -> &'static str {
        if plan.operations().iter().all(MicroOperation::is_read) { "audit" } else { "transfer" }
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, _: bool) -> Run<'a> {
        Box::pin(async move {
            let plan = plan.operations();
            let keys = plan.iter().filter_map(|operation| match operation {
                MicroOperation::Read { key, .. } => Some(*key),
                _ => None,
            });
            let keys: Vec<u64> = keys.collect();
            let reads = transaction.get_many(keys.iter().map(|key| number::key(*key, 8)));
            let is_transfer = plan.len() > keys.len();
            let values = reads.for_update(..if is_transfer { 2 } else { 0 }).await?;
            let mut done: Vec<MicroOperation> = keys
                .iter()
                .zip(&values)
                .map(|(key, value)| {
                    let result = ReadResult::Register(value.as_ref().map(number::number));
                    MicroOperation::Read { key: *key, result }
                })
                .collect();
            if let Some(MicroOperation::Write { value: Some(amount), .. }) = plan.get(keys.len()) {
                let (from, to) = (Self::balance(&values[0]), Self::balance(&values[1]));
                let amount = match *amount {
                    LEVEL => from.saturating_sub(INITIAL),
                    amount => amount.min(from),
                };
                for (key, balance) in keys.iter().zip([from - amount, to + amount]) {
                    let stored = Some(balance).filter(|balance| *balance != INITIAL);
                    match stored {
                        Some(balance) => {
                            transaction.put(number::key(*key, 8), number::value(balance, 8));
                        }
                        None => transaction.delete(number::key(*key, 8)),
                    }
                    done.push(MicroOperation::Write { key: *key, value: stored });
                }
            }
            Ok(done)
        })
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        (i < self.accounts).then(|| (number::key(i, 8), number::value(INITIAL, 8)))
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        number::of_key(key, 8).and_then(|number| Some(self.initial(number)?.1))
    }

    fn check(&self, history: &History) -> Result<(), String> {
        let total = self.accounts * INITIAL;
        for event in history.events.iter().filter(|event| event.kind == EventKind::Ok) {
            let balances = event.operations.iter().filter_map(|operation| match operation {
                MicroOperation::Read { result: ReadResult::Register(balance), .. } => {
                    Some(balance.unwrap_or(INITIAL))
                }
                _ => None,
            });
            let balances: Vec<u64> = balances.collect();
            let found: u64 = balances.iter().sum();
            if balances.len() as u64 == self.accounts
                && event.operations.len() == balances.len()
                && found != total
            {
                return Err(format!(
                    "process {} read all accounts at op {} and found {found} instead of {total}: {balances:?}",
                    event.process, event.index
                ));
            }
        }
        Ok(())
    }
}
