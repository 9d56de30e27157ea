//! TPC-C on a database without concurrency.

mod conditions;
mod transactions;

use serde::Serialize;
use serried_model::{Key, Value};
use serried_session::TransactionKeyspace;

use super::key::RowKey;
use super::row::encode;
use super::{Scale, Tpcc};
use crate::{Parameters, serial};

/// A small database that has never been written to.
fn small(warehouses: u64) -> (Tpcc, TransactionKeyspace) {
    let scale = Scale::SMALL;
    let parameters = Parameters { warehouses: Some(warehouses), scale, ..Parameters::default() };
    (Tpcc::new(&parameters).unwrap(), serial::keyspace())
}

/// What a row holds now.
fn value(tpcc: &Tpcc, keyspace: &TransactionKeyspace, row: RowKey) -> Option<Value> {
    let written = serial::run(keyspace.get(Key::from(row))).unwrap();
    written.or_else(|| tpcc.initial.value(row))
}

fn put<R: Serialize>(keyspace: &TransactionKeyspace, row: RowKey, content: &R) {
    serial::run(keyspace.put(row, encode(content))).unwrap();
}

/// Reads a row, and whatever it borrows from.
macro_rules! row {
    ($database:expr, $row:expr => $name:ident: $type:ty) => {
        let value = super::value(&$database.0, &$database.1, $row);
        let $name: $type = $crate::tpcc::row::decode($row, &value).unwrap();
    };
}
use row;
