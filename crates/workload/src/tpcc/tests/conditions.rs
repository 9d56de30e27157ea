//! Each consistency condition, broken.

use serried_model::Value;

use super::{put, row, small};
use crate::serial;
use crate::tpcc::Scale;
use crate::tpcc::conditions::{Condition, examine};
use crate::tpcc::key::RowKey;
use crate::tpcc::row::{
    Customer, DELIVERED, District, History, OUTSTANDING, Order, OrderLine, Warehouse,
};
use crate::{InspectionError, Workload};

type Database = (crate::tpcc::Tpcc, serried_session::TransactionKeyspace);

/// The conditions that a database breaks, once `corrupt` has been at it.
fn broken_by(corrupt: impl Fn(&Database)) -> Vec<Condition> {
    let database = small(2);
    let examined = serial::run(examine(&database.0, &database.1)).unwrap();
    assert_eq!(examined.0, []);
    corrupt(&database);
    let broken = serial::run(examine(&database.0, &database.1)).unwrap().0;
    let text = serial::run(database.0.inspect(&database.1)).unwrap_err().to_string();
    assert!(text.contains("does not hold"), "{text}");
    let mut conditions: Vec<Condition> = broken.iter().map(|broken| broken.condition).collect();
    conditions.sort();
    conditions.dedup();
    conditions
}

fn specified(numbers: &[u8]) -> Vec<Condition> {
    numbers.iter().copied().map(Condition::Specified).collect()
}

/// The last order to begin with, which has not been delivered.
const LAST: u32 = Scale::SMALL.customers;
/// The oldest one.
const OLDEST: u32 = Scale::SMALL.customers - Scale::SMALL.undelivered + 1;

fn put_raw(database: &Database, row: RowKey, value: &[u8]) {
    serial::run(database.1.put(row, Value::from(value))).unwrap();
}

#[test]
fn a_warehouse_that_does_not_add_up_breaks_1_and_8() {
    let broken = broken_by(|database| {
        let row = RowKey::warehouse(2);
        row!(database, row => warehouse: Warehouse);
        let year_to_date = warehouse.year_to_date + 1;
        put(&database.1, row, &Warehouse { year_to_date, ..warehouse });
    });
    assert_eq!(broken, specified(&[1, 8]));
}

#[test]
fn a_district_that_does_not_add_up_breaks_1_and_9() {
    let broken = broken_by(|database| {
        let row = RowKey::district(1, 2);
        row!(database, row => district: District);
        let year_to_date = district.year_to_date - 1;
        put(&database.1, row, &District { year_to_date, ..district });
    });
    assert_eq!(broken, specified(&[1, 9]));
}

#[test]
fn an_order_whose_number_was_not_taken_from_its_district_breaks_2() {
    let broken = broken_by(|database| {
        let row = RowKey::order(1, 1, LAST + 1);
        let order = Order { customer: 0, entered: 0, carrier: Some(1), lines: 0, all_local: true };
        put(&database.1, row, &order);
    });
    assert_eq!(broken, specified(&[2, 11]));
}

#[test]
fn a_number_that_was_taken_for_no_order_breaks_2() {
    let broken = broken_by(|database| {
        let row = RowKey::district(1, 2);
        row!(database, row => district: District);
        put(&database.1, row, &District { next_order: LAST + 2, ..district });
    });
    assert_eq!(broken, specified(&[2]));
}

#[test]
fn a_gap_in_what_is_to_be_delivered_breaks_3_5_and_11() {
    let broken = broken_by(|database| {
        put_raw(database, RowKey::new_order(1, 1, OLDEST + 1), DELIVERED);
    });
    assert_eq!(broken, specified(&[3, 5, 11]));
}

#[test]
fn an_order_that_is_delivered_and_still_to_be_delivered_breaks_5() {
    let broken = broken_by(|database| {
        put_raw(database, RowKey::new_order(1, 1, OLDEST - 1), OUTSTANDING);
        put(&database.1, RowKey::oldest_undelivered(1, 1), &(OLDEST - 1));
    });
    assert_eq!(broken, specified(&[5, 11]));
}

#[test]
fn an_order_with_a_line_too_many_breaks_4_and_6() {
    let broken = broken_by(|database| {
        let row = RowKey::order(2, 2, LAST);
        row!(database, row => order: Order);
        put(&database.1, row, &Order { lines: order.lines - 1, ..order });
    });
    assert_eq!(broken, specified(&[4, 6]));
}

#[test]
fn lines_that_were_exchanged_between_orders_break_6_and_not_4() {
    let broken = broken_by(|database| {
        for (number, change) in [(LAST, 1), (LAST - 1, -1)] {
            let row = RowKey::order(2, 2, number);
            row!(database, row => order: Order);
            let lines = order.lines.checked_add_signed(change).unwrap();
            put(&database.1, row, &Order { lines, ..order });
        }
    });
    assert_eq!(broken, specified(&[6]));
}

#[test]
fn a_line_that_is_delivered_before_its_order_breaks_7() {
    let broken = broken_by(|database| {
        let row = RowKey::order_line(1, 1, LAST, 2);
        row!(database, row => line: OrderLine);
        put(&database.1, row, &OrderLine { delivered: Some(4), ..line });
    });
    assert_eq!(broken, specified(&[7]));
}

#[test]
fn a_payment_that_is_noted_with_another_amount_breaks_8_9_and_10() {
    let broken = broken_by(|database| {
        let row = RowKey::history(1, 2, 3, 1);
        row!(database, row => history: History);
        put(&database.1, row, &History { amount: history.amount + 1, ..history });
    });
    assert_eq!(broken, specified(&[8, 9, 10]));
}

#[test]
fn a_balance_that_does_not_add_up_breaks_10_and_12() {
    let broken = broken_by(|database| {
        let row = RowKey::customer(1, 2, 3);
        row!(database, row => customer: Customer);
        put(&database.1, row, &Customer { balance: customer.balance + 1, ..customer });
    });
    assert_eq!(broken, specified(&[10, 12]));
}

#[test]
fn a_delivery_that_is_not_counted_breaks_11() {
    let broken = broken_by(|database| {
        let row = RowKey::customer(1, 2, 3);
        row!(database, row => customer: Customer);
        put(&database.1, row, &Customer { deliveries: 1, ..customer });
    });
    assert_eq!(broken, specified(&[11]));
}

#[test]
fn payments_that_do_not_add_up_break_12() {
    let broken = broken_by(|database| {
        let row = RowKey::customer(1, 2, 3);
        row!(database, row => customer: Customer);
        put(&database.1, row, &Customer { paid: customer.paid + 1, ..customer });
    });
    assert_eq!(broken, specified(&[12]));
}

#[test]
fn indices_that_point_elsewhere_are_found() {
    let broken = broken_by(|database| {
        put(&database.1, RowKey::oldest_undelivered(1, 1), &(OLDEST + 1));
        put(&database.1, RowKey::latest_order(1, 1, 4), &(LAST + 1));
    });
    assert_eq!(broken, [Condition::LatestOrder, Condition::OldestUndelivered]);
}

#[test]
fn a_row_that_is_none_is_named() {
    let (tpcc, keyspace) = small(1);
    serial::run(keyspace.put(RowKey::order(1, 1, 3), "")).unwrap();
    let error = serial::run(tpcc.inspect(&keyspace)).unwrap_err();
    assert!(matches!(error, InspectionError::Broken(_)));
    assert_eq!(error.to_string(), "the row Order 1/1/3 is not one of TPC-C's");
}
