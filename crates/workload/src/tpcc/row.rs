//! What rows hold.
//!
//! A row is one value, as in other implementations over key-value stores: a transaction that changes a warehouse's
//! payments conflicts with one that reads its tax. Rows are encoded by postcard. Text is borrowed from the value when a
//! row is read, so that to change a number in a row is to copy it once.
//!
//! Money is in cents, rates are in hundredths of a per cent.

use serde::{Deserialize, Serialize};
use serried_model::{Key, Value};

/// A row could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum RowError {
    /// It must exist, but does not.
    #[error("the row {row} is missing", row = name(.0))]
    Missing(Key),
    /// It is none of this table's rows.
    #[error("the row {row} is not one of TPC-C's", row = name(.0))]
    Malformed(Key),
}

fn name(key: &Key) -> String {
    super::key::RowKey::of(key).map_or_else(|| key.to_string(), |row| row.to_string())
}

/// A row as a value.
pub(super) fn encode<R: Serialize>(row: &R) -> Value {
    let bytes = postcard::to_extend(row, Vec::with_capacity(48));
    Value::from(bytes.expect("a row is nothing that can't be encoded"))
}

/// A row from a value that must exist.
pub(super) fn decode<'v, R: Deserialize<'v>>(
    key: impl Into<Key>,
    value: &'v Option<Value>,
) -> Result<R, RowError> {
    match value {
        None => Err(RowError::Missing(key.into())),
        Some(value) => {
            postcard::from_bytes(value.as_bytes()).map_err(|_| RowError::Malformed(key.into()))
        }
    }
}

/// Where somebody is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Place<'v> {
    pub street_1: &'v str,
    pub street_2: &'v str,
    pub city: &'v str,
    pub state: &'v str,
    pub zip: &'v str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Warehouse<'v> {
    pub year_to_date: i64,
    pub tax: u16,
    pub name: &'v str,
    #[serde(borrow)]
    pub place: Place<'v>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct District<'v> {
    pub next_order: u32,
    pub year_to_date: i64,
    pub tax: u16,
    pub name: &'v str,
    #[serde(borrow)]
    pub place: Place<'v>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Customer<'v> {
    pub balance: i64,
    pub paid: i64,
    pub payments: u32,
    pub deliveries: u32,
    pub credit_limit: i64,
    pub discount: u16,
    pub good_credit: bool,
    pub since: u64,
    pub first: &'v str,
    pub middle: &'v str,
    pub last: &'v str,
    #[serde(borrow)]
    pub place: Place<'v>,
    pub phone: &'v str,
    pub data: &'v str,
}

/// A payment; whose it is stands in the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct History<'v> {
    /// Where it was made.
    pub warehouse: u16,
    pub district: u8,
    pub date: u64,
    pub amount: i64,
    pub data: &'v str,
}

/// What an order that has not been delivered has in NEW-ORDER.
pub(super) const OUTSTANDING: &[u8] = &[1];
/// What remains of that once it is delivered. A row is emptied, not deleted, because an absent row counts
/// as one that has not been touched since the database was made.
pub(super) const DELIVERED: &[u8] = &[];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub customer: u32,
    pub entered: u64,
    pub carrier: Option<u8>,
    pub lines: u8,
    pub all_local: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct OrderLine<'v> {
    pub item: u32,
    pub supplier: u16,
    pub delivered: Option<u64>,
    pub quantity: u8,
    pub amount: i64,
    pub info: &'v str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Item<'v> {
    pub image: u32,
    pub price: i64,
    pub name: &'v str,
    pub data: &'v str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Stock<'v> {
    pub quantity: i32,
    pub year_to_date: u32,
    pub orders: u32,
    pub remote_orders: u32,
    #[serde(borrow)]
    pub districts: [&'v str; 10],
    pub data: &'v str,
}

/// [`super::key::Table::CustomersByName`].
pub(super) type Customers = Vec<u32>;
/// [`super::key::Table::LatestOrder`] and [`super::key::Table::OldestUndelivered`].
pub(super) type OrderNumber = u32;
