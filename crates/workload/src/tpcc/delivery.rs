//! The Delivery transaction (clause 2.7).

use serried_session::{Abort, Transaction};

use super::Tpcc;
use super::key::RowKey;
use super::request::Delivery;
use super::row::{Customer, DELIVERED, Order, OrderLine, OrderNumber, decode, encode};

/// An order that is being delivered.
struct Delivered {
    order: Order,
    /// The index of the customer's row among those read. The order's lines follow it.
    place: usize,
}

/// Delivers the oldest order of each district that has one, all in one transaction. Returns how many there were. Reads
/// in three round trips: the numbers of the orders, the orders, and their lines and customers.
pub(super) async fn run(tpcc: &Tpcc, tx: &Transaction, request: &Delivery) -> Result<usize, Abort> {
    let Delivery { warehouse: w, carrier, date } = *request;
    let districts = 1..=tpcc.scale.districts;
    let oldest: Vec<RowKey> = districts.clone().map(|d| RowKey::oldest_undelivered(w, d)).collect();
    let values = tpcc.read_for_update(tx, &oldest).await?;
    let mut orders = Vec::with_capacity(oldest.len());
    for (d, (row, value)) in districts.zip(oldest.iter().zip(&values)) {
        let number: OrderNumber = decode(*row, value)?;
        orders.push((d, number, RowKey::order(w, d, number)));
    }
    let rows: Vec<RowKey> = orders.iter().map(|(_, _, row)| *row).collect();
    let values = tpcc.read_for_update(tx, &rows).await?;

    let mut delivered = Vec::with_capacity(orders.len());
    let mut rows = Vec::new();
    // If there is no such order, all have been delivered.
    for ((district, number, row), value) in
        orders.into_iter().zip(&values).filter(|(_, value)| value.is_some())
    {
        let order: Order = decode(row, value)?;
        delivered.push(Delivered { order, place: rows.len() });
        rows.push(RowKey::customer(w, district, order.customer));
        let lines = (1..=order.lines).map(|line| RowKey::order_line(w, district, number, line));
        rows.extend(lines);
        // The next delivery waits for these rows, so they are written before the lines are read, and can be seen at
        // once.
        tx.put(RowKey::oldest_undelivered(w, district), encode(&(number + 1)));
        tx.put(RowKey::new_order(w, district, number), DELIVERED);
        tx.put(row, encode(&Order { carrier: Some(carrier), ..order }));
    }
    let values = tpcc.read_for_update(tx, &rows).await?;
    for &Delivered { order, place } in &delivered {
        let mut amount = 0;
        for place in place + 1..=place + usize::from(order.lines) {
            let line: OrderLine = decode(rows[place], &values[place])?;
            amount += line.amount;
            tx.put(rows[place], encode(&OrderLine { delivered: Some(date), ..line }));
        }
        let customer: Customer = decode(rows[place], &values[place])?;
        let customer = Customer {
            balance: customer.balance + amount,
            deliveries: customer.deliveries + 1,
            ..customer
        };
        tx.put(rows[place], encode(&customer));
    }
    Ok(delivered.len())
}
