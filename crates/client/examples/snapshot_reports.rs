//! Reports on stock that is being moved between warehouses all the time.
//!
//! It shows
//! - `read_only` with `get_many`: a report finds all that there was at one time, so its sum is always right;
//! - `one_shot`: it closes the warehouses and takes stock in the same transaction;
//! - `get_at`: what there was at the time of a transaction can still be read later, if the keyspace keeps history.
//!
//! Run it with a cluster in this process, or with one that you have:
//!
//! ```sh
//! cargo run -p serried --example snapshot_reports
//! cargo run -p serried --example snapshot_reports -- serried://127.0.0.1:7400
//! ```

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use serried::{Abort, Key, TransactOptions, TransactionError, TransactionKeyspace, Value, Write};
use serried_actor::Settings;
use tokio::task::JoinSet;

mod support;

const WAREHOUSES: [&str; 3] = ["stock/north", "stock/south", "stock/west"];
const CLOSED: &str = "stock/closed";
const TOTAL: u64 = 300;
const REPORTS: usize = 50;

/// The number of things that a value says there are.
fn number(value: Option<Value>) -> Result<u64, Abort> {
    let value = value.ok_or_else(|| Abort::new("no such warehouse"))?;
    Ok(std::str::from_utf8(value.as_bytes())?.parse()?)
}

/// Moves one thing at a time until the warehouses are closed. Returns how many were moved.
async fn move_stock(
    stock: TransactionKeyspace,
    from: &str,
    to: &str,
) -> Result<u64, TransactionError> {
    let mut moved = 0;
    loop {
        let open = stock.transact(|tx| async move {
            if tx.get(CLOSED).await?.is_some() {
                return Ok(false);
            }
            let (left, sum) = (number(tx.get(from).await?)?, number(tx.get(to).await?)?);
            if let Some(left) = left.checked_sub(1) {
                tx.put(from, left.to_string());
                tx.put(to, (sum + 1).to_string());
            }
            Ok(true)
        });
        if !open.await?.value {
            return Ok(moved);
        }
        moved += 1;
    }
}

/// How much there is in each warehouse. It is an error if there is not as much in all as there has to be.
fn check(values: Vec<Option<Value>>) -> Result<Vec<u64>, Abort> {
    let counts = values.into_iter().map(number).collect::<Result<Vec<u64>, Abort>>()?;
    match counts.iter().sum() {
        TOTAL => Ok(counts),
        sum => Err(Abort::new(format!("{counts:?} are {sum} together, not {TOTAL}"))),
    }
}

/// What the example does.
pub(crate) async fn run(address: Option<String>) -> Result<(), Box<dyn Error>> {
    // History is kept only where it is asked for. A short lag lets it be read soon.
    let settings = Settings {
        history_ms: 60_000,
        truncation_lag_ms: 300,
        truncation_every_ms: 20,
        ..Settings::default()
    };
    let (db, _cluster) = support::open(address, settings).await?;
    let stock = db.keyspace("accounts").await?;
    stock
        .transact(|tx| async move {
            WAREHOUSES.iter().for_each(|warehouse| tx.put(*warehouse, "100"));
            tx.delete(CLOSED);
            Ok(())
        })
        .await?;

    let mut movers = JoinSet::new();
    for i in 0..WAREHOUSES.len() {
        let (from, to) = (WAREHOUSES[i], WAREHOUSES[(i + 1) % WAREHOUSES.len()]);
        movers.spawn(move_stock(stock.clone(), from, to));
    }

    // Each report has the same sum. One that does not makes the program fail.
    let report =
        || stock.read_only(|snapshot| async move { check(snapshot.get_many(WAREHOUSES).await?) });
    let (mut reports, mut attempts) = (BTreeSet::new(), 0);
    for _ in 0..REPORTS {
        let report = report().await?;
        attempts += report.attempts;
        reports.insert(report.value);
    }
    println!("{REPORTS} reports in {attempts} attempts found {} different states", reports.len());

    // The writes are known beforehand, so this needs no closure.
    let close = Write { key: Key::from(CLOSED), value: Some(Value::from("yes")) };
    let closing = stock.one_shot(WAREHOUSES, [close]).await?;
    let mut moved = 0;
    for mover in movers.join_all().await {
        moved += mover?;
    }
    println!("{moved} things were moved until the warehouses were closed");

    // Nothing is moved after that.
    println!("in stock are {:?}", report().await?.value);
    if stock.get_many(WAREHOUSES).await? != closing.value {
        return Err("something was moved after the warehouses had been closed".into());
    }
    // The past is what the transactions before that one had left.
    let keyspace = db.keyspaces().into_iter().find(|keyspace| keyspace.name == "accounts");
    let keeps_history = keyspace
        .is_some_and(|keyspace| keyspace.protocol == "morty" && keyspace.settings.history_ms > 0);
    if keeps_history {
        // It can be read when it is settled. With the default settings that takes longer than the default deadline.
        let patient = TransactOptions { deadline: Duration::from_secs(60), ..*stock.options() };
        let patient = stock.with_options(patient);
        for (warehouse, held) in WAREHOUSES.into_iter().zip(closing.value) {
            if patient.get_at(warehouse, closing.version).await? != held {
                return Err(format!("{warehouse} has another past").into());
            }
        }
        println!("the past was read, and agrees");
    }
    db.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1)).await
}
