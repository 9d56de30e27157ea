//! The Order-Status transaction (clause 2.6).

use serried_session::{Abort, Transaction};

use super::Tpcc;
use super::key::RowKey;
use super::payment::{found_by, middle};
use super::request::{By, OrderStatus};
use super::row::{Customer, Order, OrderLine, OrderNumber, decode};

/// The output of the terminal: a part of what the transaction reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Status {
    /// The customer's balance.
    pub(super) balance: i64,
    /// The latest order.
    pub(super) order: u32,
    /// The sum of its lines.
    pub(super) amount: i64,
}

/// Reads the customer and the number of the latest order, then that order, and then its lines. If the customer is
/// looked up by last name, that is read first.
pub(super) async fn run(
    tpcc: &Tpcc,
    tx: &Transaction,
    request: &OrderStatus,
) -> Result<Status, Abort> {
    let who = request.customer;
    let (w, d) = (who.warehouse, who.district);
    let number = match who.by {
        By::Number(number) => number,
        By::Name(_) => {
            let row = found_by(&who);
            middle(row, &decode(row, &tpcc.read(tx, &[row]).await?[0])?)?
        }
    };
    let (customer, latest) = (RowKey::customer(w, d, number), RowKey::latest_order(w, d, number));
    let values = tpcc.read(tx, &[customer, latest]).await?;
    let balance = decode::<Customer>(customer, &values[0])?.balance;
    let number: OrderNumber = decode(latest, &values[1])?;
    let row = RowKey::order(w, d, number);
    let order: Order = decode(row, &tpcc.read(tx, &[row]).await?[0])?;
    let rows = (1..=order.lines).map(|line| RowKey::order_line(w, d, number, line));
    let rows: Vec<RowKey> = rows.collect();
    let values = tpcc.read(tx, &rows).await?;
    let mut amount = 0;
    for (row, value) in rows.iter().zip(&values) {
        amount += decode::<OrderLine>(*row, value)?.amount;
    }
    Ok(Status { balance, order: number, amount })
}
