//! What the five transactions do.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{row, small, value};
use crate::serial;
use crate::tpcc::key::RowKey;
use crate::tpcc::request::{By, Customer as Who, OrderedItem};
use crate::tpcc::row::{Customer, District, History, Item, Order, OrderLine, Stock, Warehouse};
use crate::tpcc::{
    Delivery, NewOrder, OrderStatus, Payment, Scale, StockLevel, conditions, delivery, new_order,
    order_status, payment, stock_level,
};
use crate::{Parameters, RolledBack, Workload, WorkloadError, named};

/// Runs one transaction alone.
macro_rules! run {
    ($database:expr, $transaction:ident, $request:expr) => {{
        let (tpcc, keyspace) = (&$database.0, &$database.1);
        let request = &$request;
        let transact =
            keyspace.transact(|tx| async move { $transaction::run(tpcc, &tx, request).await });
        serial::run(transact).map(|committed| committed.value)
    }};
}

fn order(lines: &[(u32, u16, u8)]) -> NewOrder {
    let line = |&(item, supplier, quantity): &_| OrderedItem { item, supplier, quantity };
    let lines = lines.iter().map(line).collect();
    NewOrder { warehouse: 1, district: 2, customer: 3, lines, date: 77 }
}

#[test]
fn a_new_order_takes_the_next_number_and_its_items_from_stock() {
    let database = small(2);
    row!(database, RowKey::stock(1, 5) => before: Stock);
    row!(database, RowKey::item(5) => item: Item);
    let (quantity, info) = (before.quantity, before.districts[1].to_string());
    let ordered = run!(database, new_order, order(&[(5, 1, 10), (6, 2, 1), (5, 1, 3)])).unwrap();
    assert_eq!(ordered.order, Scale::SMALL.customers + 1);
    row!(database, RowKey::district(1, 2) => district: District);
    assert_eq!(district.next_order, ordered.order + 1);
    row!(database, RowKey::order(1, 2, ordered.order) => new: Order);
    let expected = Order { customer: 3, entered: 77, carrier: None, lines: 3, all_local: false };
    assert_eq!(new, expected);
    row!(database, RowKey::latest_order(1, 2, 3) => latest: u32);
    assert_eq!(latest, ordered.order);

    row!(database, RowKey::order_line(1, 2, ordered.order, 3) => line: OrderLine);
    assert_eq!((line.item, line.quantity, line.amount), (5, 3, 3 * item.price));
    assert_eq!((line.delivered, line.info), (None, info.as_str()));
    // Ordered twice in one order, and filled up whenever it would fall below 10.
    let take = |stock: i32, n| if stock >= n + 10 { stock - n } else { stock - n + 91 };
    row!(database, RowKey::stock(1, 5) => after: Stock);
    assert_eq!(after.quantity, take(take(quantity, 10), 3));
    assert_eq!((after.year_to_date, after.orders, after.remote_orders), (13, 2, 0));
    row!(database, RowKey::stock(2, 6) => remote: Stock);
    assert_eq!((remote.orders, remote.remote_orders), (1, 1));

    row!(database, RowKey::item(6) => other: Item);
    row!(database, RowKey::warehouse(1) => warehouse: Warehouse);
    row!(database, RowKey::customer(1, 2, 3) => customer: Customer);
    let sum = (13 * item.price + other.price) as f64;
    let tax = f64::from(warehouse.tax + district.tax) / 1e4;
    let total = sum * (1.0 - f64::from(customer.discount) / 1e4) * (1.0 + tax);
    assert!((ordered.total as f64 - total).abs() <= 1.0, "{} {total}", ordered.total);
}

#[test]
fn an_order_of_an_item_that_does_not_exist_is_rolled_back_and_leaves_nothing() {
    let database = small(1);
    let bad = Scale::SMALL.items + 1;
    let error = run!(database, new_order, order(&[(5, 1, 10), (bad, 1, 1)])).unwrap_err();
    assert!(error.application::<RolledBack>().is_some(), "{error}");
    row!(database, RowKey::district(1, 2) => district: District);
    assert_eq!(district.next_order, Scale::SMALL.customers + 1);
    row!(database, RowKey::stock(1, 5) => stock: Stock);
    assert_eq!(stock.orders, 0);
}

#[test]
fn a_payment_by_last_name_is_that_of_the_customer_in_the_middle_by_first_name() {
    let mut scale = Scale::FULL;
    scale.items = 15;
    let parameters = Parameters { warehouses: Some(1), scale, ..Parameters::default() };
    let database = (crate::tpcc::Tpcc::new(&parameters).unwrap(), serial::keyspace());
    let row = RowKey::customers_by_name(1, 1, 123);
    row!(database, row => namesakes: Vec<u32>);
    assert!(namesakes.len() > 1);
    let middle = namesakes[namesakes.len().div_ceil(2) - 1];
    let customer = Who { warehouse: 1, district: 1, by: By::Name(123) };
    let request = Payment { warehouse: 1, district: 2, customer, amount: 5_000, date: 8 };
    let balance = run!(database, payment, request).unwrap();
    assert_eq!(balance, -1_000 - 5_000);
    row!(database, RowKey::customer(1, 1, middle) => paid: Customer);
    assert_eq!((paid.balance, paid.paid, paid.payments), (balance, 6_000, 2));
    row!(database, RowKey::history(1, 1, middle, 2) => history: History);
    assert_eq!((history.warehouse, history.district, history.amount), (1, 2, 5_000));
    row!(database, RowKey::district(1, 2) => district: District);
    assert_eq!(district.year_to_date, 3_000 * 1_000 + 5_000);
    row!(database, RowKey::warehouse(1) => warehouse: Warehouse);
    assert_eq!(warehouse.year_to_date, 30_000 * 1_000 + 5_000);
}

#[test]
fn what_customers_of_bad_credit_pay_is_noted_in_front_of_at_most_500_characters() {
    let database = small(9);
    let all = (1..=9).flat_map(|w| (1..=Scale::SMALL.customers).map(move |c| (w, c)));
    let mut bad = all.filter(|(warehouse, number)| {
        row!(database, RowKey::customer(*warehouse, 1, *number) => customer: Customer);
        !customer.good_credit
    });
    let (warehouse, number) = bad.next().expect("one in ten has bad credit");
    for _ in 0..40 {
        let customer = Who { warehouse, district: 1, by: By::Number(number) };
        let request = Payment { warehouse: 1, district: 2, customer, amount: 100, date: 8 };
        run!(database, payment, request).unwrap();
    }
    row!(database, RowKey::customer(warehouse, 1, number) => customer: Customer);
    assert_eq!(customer.data.len(), 500);
    let payment = format!("{number} 1 {warehouse} 2 1 100|");
    assert!(customer.data.starts_with(&payment.repeat(2)), "{}", customer.data);
}

#[test]
fn a_delivery_delivers_the_oldest_order_of_each_district_until_there_is_none() {
    let database = small(1);
    let first = Scale::SMALL.customers - Scale::SMALL.undelivered + 1;
    let request = Delivery { warehouse: 1, carrier: 7, date: 99 };
    assert_eq!(run!(database, delivery, request).unwrap(), 2);
    row!(database, RowKey::order(1, 2, first) => order: Order);
    assert_eq!(order.carrier, Some(7));
    let mut sum = 0;
    for line in 1..=order.lines {
        row!(database, RowKey::order_line(1, 2, first, line) => line: OrderLine);
        assert_eq!(line.delivered, Some(99));
        sum += line.amount;
    }
    row!(database, RowKey::customer(1, 2, order.customer) => customer: Customer);
    assert_eq!((customer.balance, customer.deliveries), (sum - 1_000, 1));
    let row = RowKey::new_order(1, 2, first);
    assert!(value(&database.0, &database.1, row).unwrap().is_empty());

    run!(database, new_order, order_of_five()).unwrap();
    for _ in 1..Scale::SMALL.undelivered {
        assert_eq!(run!(database, delivery, request).unwrap(), 2);
    }
    // District 2 has one more.
    assert_eq!(run!(database, delivery, request).unwrap(), 1);
    assert_eq!(run!(database, delivery, request).unwrap(), 0);
}

fn order_of_five() -> NewOrder {
    order(&[(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (5, 1, 1)])
}

#[test]
fn the_status_of_an_order_is_that_of_the_latest_one() {
    let database = small(1);
    let ordered = run!(database, new_order, order_of_five()).unwrap();
    let mut amount = 0;
    for item in 1..=5 {
        row!(database, RowKey::item(item) => item: Item);
        amount += item.price;
    }
    // The third customer has the third last name, and is the only one.
    for by in [By::Number(3), By::Name(2)] {
        let request = OrderStatus { customer: Who { warehouse: 1, district: 2, by } };
        let status = run!(database, order_status, request).unwrap();
        let expected = order_status::Status { balance: -1_000, order: ordered.order, amount };
        assert_eq!(status, expected);
    }
}

#[test]
fn the_stock_level_counts_each_low_item_of_the_last_twenty_orders_once() {
    let database = small(1);
    for _ in 0..20 {
        run!(database, new_order, order_of_five()).unwrap();
    }
    let mut low = 0;
    for item in 1..=5 {
        row!(database, RowKey::stock(1, item) => stock: Stock);
        low += usize::from(stock.quantity < 60);
    }
    let request = StockLevel { warehouse: 1, district: 2, threshold: 60 };
    assert_eq!(run!(database, stock_level, request).unwrap(), low);
    let request = StockLevel { warehouse: 1, district: 2, threshold: 1000 };
    assert_eq!(run!(database, stock_level, request).unwrap(), 5);
}

#[test]
fn the_conditions_hold_after_any_transactions() {
    let database = small(2);
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let (tpcc, keyspace) = (&database.0, &database.1);
    let mut rolled_back = 0;
    for client in 0..600 {
        let plan = &tpcc.plan(client, &mut random);
        let run = serial::run(keyspace.transact(|tx| tpcc.run(plan, tx, true)));
        match run {
            Ok(_) => {}
            Err(error) if error.application::<RolledBack>().is_some() => rolled_back += 1,
            Err(error) => panic!("{plan:?}: {error}"),
        }
    }
    assert!((1..20).contains(&rolled_back), "{rolled_back}");
    let (broken, examined) = serial::run(conditions::examine(tpcc, keyspace)).unwrap();
    assert_eq!(broken, []);
    let initially = u64::from(4 * Scale::SMALL.customers);
    assert!(examined.orders > initially + 200 && examined.payments > initially + 200);
}

#[test]
fn impossible_numbers_are_answered_with_what_is_possible() {
    let of = |warehouses| Parameters { warehouses: Some(warehouses), ..Parameters::default() };
    for warehouses in [0, 65_536] {
        let error = named("tpcc", &of(warehouses)).err().expect("it is refused");
        assert_eq!(error, WorkloadError::Warehouses(warehouses));
        assert!(error.to_string().ends_with("choose from 1 to 65535"), "{error}");
    }
    assert!(named("tpcc", &of(65_535)).is_ok());
    let scale = Scale { items: 3, ..Scale::FULL };
    let error = named("tpcc", &Parameters { scale, ..of(1) }).err().expect("it is refused");
    assert!(error.to_string().contains("3 items, choose from 15 to 100000"), "{error}");
}
