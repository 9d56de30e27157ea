//! The Payment transaction (clause 2.5).

use serried_session::{Abort, Transaction};

use super::Tpcc;
use super::key::RowKey;
use super::request::{By, Payment};
use super::row::{Customer, Customers, District, History, RowError, Warehouse, decode, encode};

/// The greatest length of the data of a customer with bad credit.
const DATA_CHARACTERS: usize = 500;

/// The row by which a customer is found: its own row, or the row of all customers with its last name.
pub(super) fn found_by(customer: &super::request::Customer) -> RowKey {
    let super::request::Customer { warehouse, district, by } = *customer;
    match by {
        By::Number(number) => RowKey::customer(warehouse, district, number),
        By::Name(name) => RowKey::customers_by_name(warehouse, district, name),
    }
}

/// The middle one of the customers with one last name (clause 2.5.2.2).
pub(super) fn middle(row: RowKey, customers: &Customers) -> Result<u32, RowError> {
    let middle = customers.get(customers.len().saturating_sub(1) / 2);
    middle.copied().ok_or_else(|| RowError::Malformed(row.into()))
}

/// Reads in one round trip, or in two if the customer is looked up by name. Returns the customer's new
/// balance, for the terminal.
pub(super) async fn run(tpcc: &Tpcc, tx: &Transaction, request: &Payment) -> Result<i64, Abort> {
    let Payment { warehouse: w, district: d, customer: who, amount, date } = *request;
    let (warehouse, district) = (RowKey::warehouse(w), RowKey::district(w, d));
    let found_by = found_by(&who);
    let rows = [warehouse, district, found_by];
    // All three are written afterwards, unless the last one is an index of customers.
    let written = if matches!(who.by, By::Number(_)) { 3 } else { 2 };
    let values = tpcc.found(&rows, tx.get_many(rows).for_update(..written)).await?;
    // The most contended rows come first, because writes before the next read can be seen at once.
    let warehouse_row: Warehouse = decode(warehouse, &values[0])?;
    let district_row: District = decode(district, &values[1])?;
    let year_to_date = warehouse_row.year_to_date + amount;
    tx.put(warehouse, encode(&Warehouse { year_to_date, ..warehouse_row }));
    let year_to_date = district_row.year_to_date + amount;
    tx.put(district, encode(&District { year_to_date, ..district_row }));
    let number = match who.by {
        By::Number(number) => number,
        By::Name(_) => middle(found_by, &decode(found_by, &values[2])?)?,
    };
    let customer = RowKey::customer(who.warehouse, who.district, number);
    let read;
    let value = match who.by {
        By::Number(_) => &values[2],
        By::Name(_) => {
            read = tpcc.read_for_update(tx, &[customer]).await?;
            &read[0]
        }
    };
    let customer_row: Customer = decode(customer, value)?;

    let mut customer_data = String::new();
    if !customer_row.good_credit {
        let (home, home_district) = (who.warehouse, who.district);
        let old = customer_row.data;
        let data = format!("{number} {home_district} {home} {d} {w} {amount}|{old}");
        customer_data = data.chars().take(DATA_CHARACTERS).collect();
    }
    let balance = customer_row.balance - amount;
    let payments = customer_row.payments + 1;
    let paid = Customer {
        balance,
        paid: customer_row.paid + amount,
        payments,
        data: if customer_row.good_credit { customer_row.data } else { &customer_data },
        ..customer_row
    };
    tx.put(customer, encode(&paid));
    let data = format!("{}    {}", warehouse_row.name, district_row.name);
    let history = History { warehouse: w, district: d, date, amount, data: &data };
    tx.put(RowKey::history(who.warehouse, who.district, number, payments), encode(&history));
    Ok(balance)
}
