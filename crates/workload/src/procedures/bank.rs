//! A bank whose total never changes, and whose accounts are never overdrawn.

use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_procedures::{Datum, ProcedureSet, Results};
use serried_session::{CallError, ProcedureKeyspace};

use super::tally::Tally;
use super::{
    CallInspection, PlannedCall, ProcedureParameters, ProcedureWorkload, ReadList, compile, list,
    numbers,
};
use crate::{InspectionError, WorkloadError};

/// The cash of each account before its first payment: the default of the column.
const INITIAL: i64 = 100;
/// How many accounts one audit can read.
const MOST_ACCOUNTS: u64 = 1000;

/// An account has cash, of which no more can be paid than there is, and credit, which may be negative. A payment of cash
/// looks at it first, so that all pieces that change cash are immediate. Those that change credit can be deferred. No call
/// changes the cash of two accounts, so its pieces can be reordered.
const PROCEDURES: &str = r#"
[tables.accounts]
key = { account = "int" }
columns = { cash = { type = "int", default = 100 }, credit = "int" }

[procedures.pay]
inputs = { from = "int", to = "int", amount = "int" }
returns = { left = "debit.left" }

[procedures.pay.pieces.debit]
rows = { row = { table = "accounts", key = ["from"] } }
reads = ["row.cash"]
checks = [{ that = "row.cash >= amount", otherwise = "there is not enough cash" }]
writes.row.cash = "row.cash - amount"
outputs.left = "row.cash - amount"

[procedures.pay.pieces.credit]
rows = { row = { table = "accounts", key = ["to"] } }
reads = ["row.credit"]
writes.row.credit = "row.credit + amount"

[procedures.draw]
inputs = { from = "int", to = "int", amount = "int" }

[procedures.draw.pieces.owe]
rows = { row = { table = "accounts", key = ["from"] } }
reads = ["row.credit"]
writes.row.credit = "row.credit - amount"

[procedures.draw.pieces.receive]
rows = { row = { table = "accounts", key = ["to"] } }
reads = ["row.cash"]
writes.row.cash = "row.cash + amount"

[procedures.audit]
inputs = { accounts = { list = "int", max = 1000 } }
returns = { cash = "read.cash", credit = "read.credit" }

[procedures.audit.pieces.read]
for_each = { account = "accounts" }
rows = { row = { table = "accounts", key = ["account"] } }
reads = ["row.cash", "row.credit"]
outputs = { cash = "row.cash", credit = "row.credit" }
"#;

/// Both pieces of `transfer` change cash, so the checker merges them.
const MERGED: &str = r#"
[procedures.transfer]
inputs = { from = "int", to = "int", amount = "int" }
returns = { left = "debit.left" }

[procedures.transfer.pieces.debit]
rows = { row = { table = "accounts", key = ["from"] } }
reads = ["row.cash"]
checks = [{ that = "row.cash >= amount", otherwise = "there is not enough cash" }]
writes.row.cash = "row.cash - amount"
outputs.left = "row.cash - amount"

[procedures.transfer.pieces.credit]
rows = { row = { table = "accounts", key = ["to"] } }
reads = ["row.cash"]
writes.row.cash = "row.cash + amount"
"#;

/// Nine of ten calls move an amount from one account to another, and are refused if they pay more cash than there is. The
/// tenth reads all accounts, and must find the total unchanged and no cash below nothing.
#[derive(Debug)]
pub struct BankCalls {
    set: Arc<ProcedureSet>,
    accounts: u64,
    /// The procedures that move amounts.
    moves: &'static [&'static str],
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
        let (text, moves): (_, &[_]) = match parameters.merged {
            true => (&*[PROCEDURES, MERGED].concat(), &["pay", "draw", "transfer"]),
            false => (PROCEDURES, &["pay", "draw"]),
        };
        let set = compile(text, |_| true);
        Ok(BankCalls { set, accounts, moves, total, broken: Mutex::default() })
    }

    fn audit(&self) -> PlannedCall {
        PlannedCall::new("audit", [numbers(0..self.accounts)])
    }

    /// The total of an audit, and the least cash of an account.
    fn total(&self, results: &Results) -> Result<(i64, i64), String> {
        let column = |name| -> Result<Vec<i64>, String> {
            let amounts = list(results, name)?.iter().map(|amount| match amount {
                Datum::Int(amount) => Ok(*amount),
                other => Err(format!("an amount is no integer: {other}")),
            });
            let amounts: Vec<i64> = amounts.collect::<Result<_, _>>()?;
            match amounts.len() as u64 == self.accounts {
                true => Ok(amounts),
                false => Err(format!("an audit of {} accounts found {amounts:?}", self.accounts)),
            }
        };
        let (cash, credit) = (column("cash")?, column("credit")?);
        let least = cash.iter().copied().min().unwrap_or(0);
        Ok((cash.iter().chain(&credit).sum(), least))
    }

    /// The total of an audit. The error says what is wrong with it.
    fn check(&self, results: &Results) -> Result<i64, String> {
        let ((total, least), before) = (self.total(results)?, self.total.before());
        if total != before {
            return Err(format!("an audit found {total} instead of {before}: {:?}", results.data));
        }
        if least < 0 {
            return Err(format!("an audit found {least} in cash: {:?}", results.data));
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
        let procedure = self.moves[random.random_range(0..self.moves.len())];
        PlannedCall::new(procedure, [from as i64, to as i64, amount].map(Datum::Int))
    }

    /// Checks an audit.
    fn observe(&self, planned: &PlannedCall, results: &Results) -> Result<Vec<ReadList>, String> {
        if planned.procedure == "audit" {
            self.check(results)?;
        }
        Ok(Vec::new())
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
            if let Ok((total, _)) = self.total(&results) {
                self.total.set_before(total);
            }
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
                "{} accounts hold {total}, as before, and no cash is overdrawn",
                self.accounts
            )))
        })
    }
}
