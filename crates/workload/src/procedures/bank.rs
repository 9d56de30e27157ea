//! A bank whose total never changes, and whose accounts are never overdrawn.

use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_procedures::{Datum, ProcedureSet, Results};
use serried_session::{CallError, ProcedureKeyspace};

use super::tally::Tally;
use super::{
    CallInspection, PlannedCall, ProcedureParameters, ProcedureWorkload, compile, list, numbers,
};
use crate::{InspectionError, WorkloadError};

/// The balance of each account before its first transfer: the default of the column.
const INITIAL: i64 = 100;
/// How many accounts one audit can read.
const MOST_ACCOUNTS: u64 = 1000;

/// A transfer looks at the balance before it writes anything. The other transfers decide how much is left, so `debit` and
/// `credit` can't be reordered: the checker merges them into one atomic piece.
const PROCEDURES: &str = r#"
[tables.accounts]
key = { account = "int" }
columns = { balance = { type = "int", default = 100 } }

[procedures.transfer]
inputs = { from = "int", to = "int", amount = "int" }
returns = { left = "debit.left" }

[procedures.transfer.pieces.debit]
rows = { row = { table = "accounts", key = ["from"] } }
reads = ["row.balance"]
checks = [{ that = "row.balance >= amount", otherwise = "the balance is too low" }]
writes.row.balance = "row.balance - amount"
outputs.left = "row.balance - amount"

[procedures.transfer.pieces.credit]
rows = { row = { table = "accounts", key = ["to"] } }
reads = ["row.balance"]
writes.row.balance = "row.balance + amount"

[procedures.audit]
inputs = { accounts = { list = "int", max = 1000 } }
returns = { balances = "read.balance" }

[procedures.audit.pieces.read]
for_each = { account = "accounts" }
rows = { row = { table = "accounts", key = ["account"] } }
reads = ["row.balance"]
outputs.balance = "row.balance"
"#;

/// Nine of ten calls transfer an amount between two accounts, and are refused if the balance is too low. The tenth reads
/// all accounts, and must find the total unchanged and no account overdrawn.
#[derive(Debug)]
pub struct BankCalls {
    set: Arc<ProcedureSet>,
    accounts: u64,
    /// The total before the run.
    total: Tally,
    /// What an audit has found that can't be.
    broken: Mutex<Option<String>>,
}

impl BankCalls {
    /// By default ten accounts, and at least two.
    ///
    /// # Errors
    /// If an audit can't read so many.
    pub fn new(parameters: &ProcedureParameters) -> Result<BankCalls, WorkloadError> {
        let accounts = parameters.keys.unwrap_or(10).max(2);
        if accounts > MOST_ACCOUNTS {
            return Err(WorkloadError::Keys(format!(
                "{accounts} accounts are too many to be read at once: choose from 2 to {MOST_ACCOUNTS}"
            )));
        }
        let total = Tally::default();
        total.set_before(accounts as i64 * INITIAL);
        Ok(BankCalls {
            set: compile(PROCEDURES, |_| true),
            accounts,
            total,
            broken: Mutex::default(),
        })
    }

    fn audit(&self) -> PlannedCall {
        PlannedCall::new("audit", [numbers(0..self.accounts)])
    }

    /// The total of an audit. The error says what is wrong with it.
    fn check(&self, results: &Results) -> Result<i64, String> {
        let balances = list(results, "balances")?.iter().map(|balance| match balance {
            Datum::Int(balance) => Ok(*balance),
            other => Err(format!("a balance is no integer: {other}")),
        });
        let balances: Vec<i64> = balances.collect::<Result<_, _>>()?;
        let (total, before) = (balances.iter().sum::<i64>(), self.total.before());
        if balances.len() as u64 != self.accounts {
            return Err(format!("an audit of {} accounts found {balances:?}", self.accounts));
        }
        if total != before {
            return Err(format!("an audit found {total} instead of {before}: {balances:?}"));
        }
        if let Some(overdrawn) = balances.iter().find(|balance| **balance < 0) {
            return Err(format!(
                "an audit found an account overdrawn to {overdrawn}: {balances:?}"
            ));
        }
        Ok(total)
    }
}

impl ProcedureWorkload for BankCalls {
    fn name(&self) -> &'static str {
        "bank-calls"
    }

    fn set(&self) -> &Arc<ProcedureSet> {
        &self.set
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> PlannedCall {
        if random.random_range(0..10) == 0 {
            return self.audit();
        }
        let from = random.random_range(0..self.accounts);
        let to = (from + random.random_range(1..self.accounts)) % self.accounts;
        // Often more than is there.
        let amount = random.random_range(1..=INITIAL);
        PlannedCall::new("transfer", [from as i64, to as i64, amount].map(Datum::Int))
    }

    fn ended(&self, planned: &PlannedCall, result: &Result<Results, CallError>) {
        let Ok(results) = result else { return };
        if planned.procedure == "audit"
            && let Err(broken) = self.check(results)
        {
            let mut first = self.broken.lock().expect("nobody panics while entering");
            first.get_or_insert(broken);
        }
    }

    fn look<'a>(
        &'a self,
        keyspace: &'a ProcedureKeyspace,
    ) -> core::pin::Pin<Box<dyn Future<Output = Result<(), CallError>> + Send + 'a>> {
        Box::pin(async {
            // Of a run with more accounts, some may have more than they had at first.
            let results = keyspace.call("audit", self.audit().inputs).await?;
            let balances = list(&results, "balances").unwrap_or_default().iter();
            let balances = balances.filter_map(|balance| match balance {
                Datum::Int(balance) => Some(*balance),
                _ => None,
            });
            self.total.set_before(balances.sum());
            Ok(())
        })
    }

    fn inspect<'a>(&'a self, keyspace: &'a ProcedureKeyspace) -> CallInspection<'a> {
        Box::pin(async {
            let broken = self.broken.lock().expect("nobody panics while entering").take();
            if let Some(broken) = broken {
                return Err(InspectionError::Broken(broken));
            }
            let results = keyspace.call("audit", self.audit().inputs).await?;
            let total = self.check(&results).map_err(InspectionError::Broken)?;
            Ok(Some(format!(
                "{} accounts hold {total}, as before, and none is overdrawn",
                self.accounts
            )))
        })
    }
}
