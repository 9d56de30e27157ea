//! A ticket shop: more customers than tickets, and one counter that all of them need.
//!
//! It shows
//! - a hot key, beside rows that belong to one customer each;
//! - a program that is safe to repeat: a customer who has a ticket keeps it, so even after
//!   [`TransactionError::Unknown`] the purchase is simply tried again;
//! - how often transactions ran again: `attempts` and `re_executions`.
//!
//! At the end exactly the tickets that there were are sold. Run it with a cluster in this process, or with one that you
//! have:
//!
//! ```sh
//! cargo run -p serried --example ticket_shop
//! cargo run -p serried --example ticket_shop -- serried://127.0.0.1:7400
//! ```

use std::error::Error;

use serried::{Abort, Committed, TransactionError, TransactionKeyspace, Value};
use tokio::task::JoinSet;

mod support;

const TICKETS: u64 = 20;
const CUSTOMERS: u64 = 30;
const LEFT: &str = "ticket-shop/left";

fn row(customer: u64) -> String {
    format!("ticket-shop/customer-{customer}")
}

/// The number that is stored in a value.
fn number(value: Value) -> Result<u64, Abort> {
    Ok(std::str::from_utf8(value.as_bytes())?.parse()?)
}

/// Sells a ticket. Returns its number, or nothing if there is none left.
async fn buy(
    shop: &TransactionKeyspace,
    customer: u64,
) -> Result<Committed<Option<u64>>, TransactionError> {
    let row = row(customer);
    let row = row.as_str();
    loop {
        let bought = shop
            .transact(|tx| async move {
                // Both reads are sent together.
                let values = tx.get_many([row, LEFT]).await?;
                let [ticket, left] = <[Option<Value>; 2]>::try_from(values)
                    .map_err(|_| Abort::new("two keys have two values"))?;
                if let Some(ticket) = ticket {
                    return Ok(Some(number(ticket)?));
                }
                let left = number(left.ok_or_else(|| Abort::new("the shop is closed"))?)?;
                if left == 0 {
                    return Ok(None);
                }
                tx.put(LEFT, (left - 1).to_string());
                tx.put(row, left.to_string());
                Ok(Some(left))
            })
            .await;
        match bought {
            // If that transaction took effect, the next one finds the ticket.
            Err(TransactionError::Unknown { .. }) => {}
            known => return known,
        }
    }
}

/// What the example does.
pub(crate) async fn run(address: Option<String>) -> Result<(), Box<dyn Error>> {
    let (db, _cluster) = support::open(address, Default::default()).await?;
    let shop = db.keyspace("accounts").await?;
    shop.transact(|tx| async move {
        tx.put(LEFT, TICKETS.to_string());
        (0..CUSTOMERS).for_each(|customer| tx.delete(row(customer)));
        Ok(())
    })
    .await?;

    let mut customers = JoinSet::new();
    for customer in 0..CUSTOMERS {
        let shop = shop.clone();
        customers.spawn(async move { buy(&shop, customer).await });
    }
    let (mut tickets, mut attempts, mut re_executions) = (Vec::new(), 0, 0);
    for bought in customers.join_all().await {
        let bought = bought?;
        tickets.extend(bought.value);
        attempts += bought.attempts;
        re_executions += bought.re_executions;
    }
    println!("{CUSTOMERS} customers bought {} tickets", tickets.len());
    println!(
        "that took {attempts} attempts, and {re_executions} re-executions in those that committed"
    );

    // Each ticket was sold once.
    tickets.sort();
    if !tickets.iter().copied().eq(1..=TICKETS) {
        return Err(format!("these tickets were sold: {tickets:?}").into());
    }
    // And the database says the same.
    let rows = shop.get_many((0..CUSTOMERS).map(row)).await?;
    let (sold, left) = (rows.iter().flatten().count(), shop.get(LEFT).await?);
    if sold as u64 != TICKETS || left != Some(Value::from("0")) {
        return Err(format!("{sold} rows hold a ticket, and {left:?} are left").into());
    }
    println!("{sold} rows hold a ticket, and none are left");
    db.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1)).await
}
