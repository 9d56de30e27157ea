//! A bank: many tasks transfer money between a few accounts at the same time.
//!
//! It shows
//! - a transaction, which is a closure that may run more than once;
//! - an error of the application, "not enough money", which comes back untouched;
//! - what to do about [`TransactionError::Unknown`]: `outcome` returns how the transaction ended.
//!
//! At the end no money may have been made or lost. Run it with a cluster in this process, or with one that you have:
//!
//! ```sh
//! cargo run -p serried --example bank
//! cargo run -p serried --example bank -- serried://127.0.0.1:7400
//! ```

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serried::{
    Abort, Committed, Ending, TransactOptions, Transaction, TransactionError, TransactionKeyspace,
    Value,
};
use tokio::task::JoinSet;

mod support;

const ACCOUNTS: [&str; 4] = ["bank/alice", "bank/bob", "bank/carol", "bank/dave"];
const TRANSFERS: usize = 30;

/// The application's own error.
#[derive(Debug)]
struct NotEnoughMoney {
    missing: u64,
}

impl fmt::Display for NotEnoughMoney {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not enough money: {} are missing", self.missing)
    }
}

impl Error for NotEnoughMoney {}

/// The balance that is stored in a value.
fn balance(value: Option<Value>) -> Result<u64, Abort> {
    let value = value.ok_or_else(|| Abort::new("no such account"))?;
    Ok(std::str::from_utf8(value.as_bytes())?.parse()?)
}

/// Moves money. After an error nothing was moved.
async fn transfer(
    bank: &TransactionKeyspace,
    from: &str,
    to: &str,
    amount: u64,
) -> Result<(), TransactionError> {
    loop {
        let result = bank
            .transact(|tx| async move {
                let left = balance(tx.get(from).await?)?;
                let Some(left) = left.checked_sub(amount) else {
                    return Err(NotEnoughMoney { missing: amount - left }.into());
                };
                let sum = balance(tx.get(to).await?)? + amount;
                tx.put(from, left.to_string());
                tx.put(to, sum.to_string());
                Ok(())
            })
            .await;
        if took_effect(bank, result).await? {
            return Ok(());
        }
    }
}

/// Whether a transaction took effect. If that is not known, this asks for it.
async fn took_effect<T>(
    bank: &TransactionKeyspace,
    result: Result<Committed<T>, TransactionError>,
) -> Result<bool, TransactionError> {
    match result {
        Ok(_) => Ok(true),
        Err(TransactionError::Unknown { txn, deadline }) => match bank.outcome(txn).await? {
            Ending::Committed => Ok(true),
            // It never will take effect, so it can be done again.
            Ending::Aborted => Ok(false),
            Ending::Forgotten => Err(TransactionError::Unknown { txn, deadline }),
        },
        Err(error) => Err(error),
    }
}

/// What the example does.
pub(crate) async fn run(address: Option<String>) -> Result<(), Box<dyn Error>> {
    let (db, _cluster) = support::open(address, Default::default()).await?;
    let bank = db.keyspace("accounts").await?;

    let open = |tx: Transaction| async move {
        ACCOUNTS.iter().for_each(|account| tx.put(*account, "100"));
        Ok(())
    };
    // The deadline of this client passes at once, so it does not know how its transaction ended. It asks for the
    // outcome with the ordinary deadline.
    let hasty = TransactOptions { deadline: Duration::ZERO, ..*bank.options() };
    let opened = bank.with_options(hasty).transact(open).await;
    let opened = took_effect(&bank, opened).await?;
    println!("the hasty transaction took effect: {opened}");
    if !opened {
        bank.transact(open).await?;
    }

    // Two accounts pay the other two. They have money for 20 of these transfers, in whatever order they come.
    let mut transfers = JoinSet::new();
    for i in 0..TRANSFERS {
        let (bank, from, to) = (bank.clone(), ACCOUNTS[i % 2], ACCOUNTS[2 + i / 2 % 2]);
        transfers.spawn(async move { transfer(&bank, from, to, 10).await });
    }
    let mut refused = 0;
    for result in transfers.join_all().await {
        if let Err(error) = result {
            // The closure's own error, or else one of the database.
            let Some(NotEnoughMoney { missing: 10 }) = error.application() else {
                return Err(error.into());
            };
            refused += 1;
        }
    }
    println!("{refused} of {TRANSFERS} transfers were refused because there was not enough money");

    let balances: Vec<u64> = bank
        .read_only(|snapshot| async move {
            snapshot.get_many(ACCOUNTS).await?.into_iter().map(balance).collect()
        })
        .await?
        .value;
    println!("the accounts hold {balances:?}");
    if balances.iter().sum::<u64>() != 400 || refused + 20 != TRANSFERS {
        return Err("money was made or lost".into());
    }
    db.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1)).await
}
