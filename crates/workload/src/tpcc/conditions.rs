//! The consistency conditions of the specification (clause 3.3.2), checked on a database at rest.
//!
//! All twelve are checked, two of them in another form. As written, condition 11 holds only for the initial database,
//! so it is checked with the deliveries since then. Conditions 2 and 3 are checked for those rows of NEW-ORDER that are
//! not empty. There are two additional conditions, for the rows that replace scans.

use core::fmt;
use std::collections::BTreeMap;

use serde::Deserialize;
use serried_model::Value;
use serried_session::TransactionKeyspace;

use super::Tpcc;
use super::key::RowKey;
use super::row::{
    Customer, District, History, Order, OrderLine, OrderNumber, RowError, Warehouse, decode,
};
use crate::InspectionError;

/// Rows read in one transaction. Nothing else is running, so several transactions read the same state.
const ROWS_AT_ONCE: usize = 1000;
/// The greatest number of lines of an order.
const LINES: u8 = 15;
/// The greatest number of broken conditions that are reported.
const REPORTED: usize = 10;

/// A condition that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Broken {
    pub(super) condition: Condition,
    what: String,
}

/// A condition: its number in the specification, or an additional one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Condition {
    Specified(u8),
    /// A customer's latest order is the one with the highest number.
    LatestOrder,
    /// A district's oldest undelivered order is the one with the lowest number.
    OldestUndelivered,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.condition {
            Condition::Specified(number) => write!(f, "consistency condition 3.3.2.{number}")?,
            Condition::LatestOrder => write!(f, "the index of latest orders")?,
            Condition::OldestUndelivered => write!(f, "the index of undelivered orders")?,
        }
        write!(f, " does not hold: {}", self.what)
    }
}

/// Checks all conditions. Returns what was found to be in order.
pub(super) async fn inspect(
    tpcc: &Tpcc,
    keyspace: &TransactionKeyspace,
) -> Result<String, InspectionError> {
    let (broken, examined) = examine(tpcc, keyspace).await?;
    if broken.is_empty() {
        return Ok(format!(
            "TPC-C's consistency conditions 1 to 12 hold of {} warehouses, {} orders and {} payments",
            tpcc.warehouses, examined.orders, examined.payments
        ));
    }
    let lines = broken.iter().take(REPORTED).map(Broken::to_string);
    let mut lines: Vec<String> = lines.collect();
    if broken.len() > REPORTED {
        lines.push(format!("and {} more", broken.len() - REPORTED));
    }
    Err(InspectionError::Broken(lines.join("\n")))
}

/// The numbers of rows that were checked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Examined {
    pub(super) orders: u64,
    pub(super) payments: u64,
}

/// All conditions that do not hold.
pub(super) async fn examine(
    tpcc: &Tpcc,
    keyspace: &TransactionKeyspace,
) -> Result<(Vec<Broken>, Examined), InspectionError> {
    let mut inspector = Inspector {
        tpcc,
        keyspace,
        broken: Vec::new(),
        examined: Examined::default(),
        paid: BTreeMap::new(),
        year_to_date: BTreeMap::new(),
    };
    for warehouse in 1..=tpcc.warehouses {
        for district in 1..=tpcc.scale.districts {
            inspector.district(warehouse, district).await?;
        }
    }
    // Customers also pay at other warehouses, so this must wait until all of them have been read.
    for warehouse in 1..=tpcc.warehouses {
        inspector.warehouse(warehouse).await?;
    }
    Ok((inspector.broken, inspector.examined))
}

struct Inspector<'a> {
    tpcc: &'a Tpcc,
    keyspace: &'a TransactionKeyspace,
    broken: Vec<Broken>,
    examined: Examined,
    /// The payments of each district, by HISTORY.
    paid: BTreeMap<(u16, u8), i64>,
    /// The payments of each district, by its own row.
    year_to_date: BTreeMap<(u16, u8), i64>,
}

/// A customer's accounts.
#[derive(Clone, Default)]
struct Account {
    balance: i64,
    paid: i64,
    deliveries: u32,
    /// The sum of the payments in HISTORY.
    history: i64,
    /// The sum of the lines of orders that were delivered.
    delivered: i64,
    latest_order: u32,
}

impl Inspector<'_> {
    fn demand(&mut self, condition: Condition, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(Broken { condition, what: what() });
        }
    }

    fn demand_equal<T: PartialEq + fmt::Display>(
        &mut self,
        number: u8,
        found: T,
        expected: T,
        what: impl FnOnce() -> String,
    ) {
        let text = || format!("{}: {found} is not {expected}", what());
        self.demand(Condition::Specified(number), found == expected, text);
    }

    /// Reads rows, in as many transactions as it takes.
    async fn read(&self, rows: &[RowKey]) -> Result<Vec<Option<Value>>, InspectionError> {
        let mut values = Vec::with_capacity(rows.len());
        for rows in rows.chunks(ROWS_AT_ONCE) {
            let read = self.keyspace.transact(|tx| async move { self.tpcc.read(&tx, rows).await });
            values.extend(read.await?.value);
        }
        Ok(values)
    }

    /// Conditions 1, 8 and 9, after all districts have been read.
    async fn warehouse(&mut self, w: u16) -> Result<(), InspectionError> {
        let row = RowKey::warehouse(w);
        let year_to_date = parse::<Warehouse>(row, &self.read(&[row]).await?[0])?.year_to_date;
        let (mut of_districts, mut of_history) = (0, 0);
        for d in 1..=self.tpcc.scale.districts {
            let of_district = self.year_to_date[&(w, d)];
            let paid = self.paid.get(&(w, d)).copied().unwrap_or(0);
            self.demand_equal(9, of_district, paid, || {
                format!("D_YTD of {w}/{d} and the sum of its H_AMOUNT")
            });
            of_districts += of_district;
            of_history += paid;
        }
        self.demand_equal(1, year_to_date, of_districts, || {
            format!("W_YTD of {w} and the sum of its D_YTD")
        });
        self.demand_equal(8, year_to_date, of_history, || {
            format!("W_YTD of {w} and the sum of its H_AMOUNT")
        });
        Ok(())
    }

    /// All other conditions.
    async fn district(&mut self, w: u16, d: u8) -> Result<(), InspectionError> {
        let [district, oldest] = [RowKey::district(w, d), RowKey::oldest_undelivered(w, d)];
        let values = self.read(&[district, oldest]).await?;
        let District { next_order, year_to_date, .. } = parse(district, &values[0])?;
        let oldest: OrderNumber = parse(oldest, &values[1])?;
        self.year_to_date.insert((w, d), year_to_date);
        let mut accounts = self.accounts(w, d).await?;
        // This includes the first order that must not exist.
        let orders = self.orders(w, d, next_order).await?;
        let outstanding = self.new_orders(w, d, next_order).await?;
        self.numbers(w, d, next_order, &orders, &outstanding, oldest);
        self.lines(w, d, &orders, &mut accounts).await?;
        self.customers(w, d, &orders, &outstanding, &accounts).await
    }

    async fn accounts(&mut self, w: u16, d: u8) -> Result<Vec<Account>, InspectionError> {
        let numbers = 1..=self.tpcc.scale.customers;
        let rows: Vec<RowKey> = numbers.clone().map(|c| RowKey::customer(w, d, c)).collect();
        let mut accounts = Vec::with_capacity(rows.len());
        let mut history = Vec::new();
        for (c, (row, value)) in numbers.zip(rows.iter().zip(&self.read(&rows).await?)) {
            let Customer { balance, paid, payments, deliveries, .. } = parse(*row, value)?;
            accounts.push(Account { balance, paid, deliveries, ..Account::default() });
            history.extend((1..=payments).map(|payment| RowKey::history(w, d, c, payment)));
        }
        for (row, value) in history.iter().zip(&self.read(&history).await?) {
            let History { warehouse, district, amount, .. } = parse(*row, value)?;
            *self.paid.entry((warehouse, district)).or_default() += amount;
            accounts[row.customer_and_payment().0 as usize - 1].history += amount;
        }
        self.examined.payments += history.len() as u64;
        Ok(accounts)
    }

    /// Orders 1 to `last`.
    async fn orders(
        &mut self,
        w: u16,
        d: u8,
        last: u32,
    ) -> Result<Vec<Option<Order>>, InspectionError> {
        let rows: Vec<RowKey> = (1..=last).map(|number| RowKey::order(w, d, number)).collect();
        let values = self.read(&rows).await?;
        let order = |(row, value): (&RowKey, &Option<Value>)| match value {
            None => Ok(None),
            Some(_) => parse(*row, value).map(Some),
        };
        rows.iter().zip(&values).map(order).collect()
    }

    /// Which of the orders 1 to `last` are in NEW-ORDER.
    async fn new_orders(&self, w: u16, d: u8, last: u32) -> Result<Vec<bool>, InspectionError> {
        let rows: Vec<RowKey> = (1..=last).map(|number| RowKey::new_order(w, d, number)).collect();
        let is_there = |value: &Option<Value>| value.as_ref().is_some_and(|v| !v.is_empty());
        Ok(self.read(&rows).await?.iter().map(is_there).collect())
    }

    /// Conditions 2, 3 and 5.
    fn numbers(
        &mut self,
        w: u16,
        d: u8,
        next: u32,
        orders: &[Option<Order>],
        outstanding: &[bool],
        oldest: u32,
    ) {
        let number = |place: usize| place as u32 + 1;
        let last = orders.iter().rposition(Option::is_some).map_or(0, number);
        self.demand_equal(2, next - 1, last, || {
            format!("D_NEXT_O_ID - 1 of {w}/{d} and its highest O_ID")
        });
        let lowest = outstanding.iter().position(|there| *there).map(number);
        let highest = outstanding.iter().rposition(|there| *there).map(number);
        if let (Some(lowest), Some(highest)) = (lowest, highest) {
            self.demand_equal(2, next - 1, highest, || {
                format!("D_NEXT_O_ID - 1 of {w}/{d} and its highest NO_O_ID")
            });
            let count = outstanding.iter().filter(|there| **there).count() as u32;
            self.demand_equal(3, highest - lowest + 1, count, || {
                format!("the range of NO_O_ID of {w}/{d} and the number of its rows")
            });
        }
        let undelivered = lowest.unwrap_or(next);
        self.demand(Condition::OldestUndelivered, oldest == undelivered, || {
            format!("in {w}/{d} it is {undelivered}, not {oldest}")
        });
        for (place, (order, there)) in orders.iter().zip(outstanding).enumerate() {
            let delivered = order.is_none_or(|order| order.carrier.is_some());
            self.demand(Condition::Specified(5), delivered != *there, || {
                let carrier = if delivered { "a carrier or is missing" } else { "no carrier" };
                let there = if *there { "in" } else { "not in" };
                format!("order {w}/{d}/{} has {carrier}, and is {there} NEW-ORDER", number(place))
            });
        }
    }

    /// Conditions 4, 6 and 7. Adds to the accounts what was delivered, and the latest orders.
    async fn lines(
        &mut self,
        w: u16,
        d: u8,
        orders: &[Option<Order>],
        accounts: &mut [Account],
    ) -> Result<(), InspectionError> {
        let (mut all_lines, mut all_found) = (0, 0);
        let numbered = (1..).zip(orders).filter_map(|(number, order)| Some((number, (*order)?)));
        let numbered: Vec<(u32, Order)> = numbered.collect();
        for orders in numbered.chunks(ROWS_AT_ONCE / usize::from(LINES)) {
            let rows = orders.iter().flat_map(|(number, _)| {
                (1..=LINES).map(|line| RowKey::order_line(w, d, *number, line))
            });
            let rows: Vec<RowKey> = rows.collect();
            let values = self.read(&rows).await?;
            let lines = rows.chunks(LINES.into()).zip(values.chunks(LINES.into()));
            for ((number, order), (rows, values)) in orders.iter().zip(lines) {
                let (mut found, mut amount) = (0, 0);
                for (row, value) in rows.iter().zip(values).filter(|(_, value)| value.is_some()) {
                    let line: OrderLine = parse(*row, value)?;
                    found += 1;
                    amount += line.amount;
                    let agree = line.delivered.is_some() == order.carrier.is_some();
                    self.demand(Condition::Specified(7), agree, || {
                        format!("{row} and its order do not agree whether it is delivered")
                    });
                }
                self.demand_equal(6, order.lines, found, || {
                    format!("O_OL_CNT of {w}/{d}/{number} and its lines")
                });
                all_lines += u64::from(order.lines);
                all_found += u64::from(found);
                if let Some(account) = accounts.get_mut((order.customer as usize).wrapping_sub(1)) {
                    account.latest_order = *number;
                    account.delivered += if order.carrier.is_some() { amount } else { 0 };
                }
            }
        }
        self.examined.orders += numbered.len() as u64;
        self.demand_equal(4, all_lines, all_found, || {
            format!("the sum of O_OL_CNT of {w}/{d} and its lines")
        });
        Ok(())
    }

    /// Conditions 10 to 12.
    async fn customers(
        &mut self,
        w: u16,
        d: u8,
        orders: &[Option<Order>],
        outstanding: &[bool],
        accounts: &[Account],
    ) -> Result<(), InspectionError> {
        let deliveries: u64 = accounts.iter().map(|account| u64::from(account.deliveries)).sum();
        let count = |place: &[bool]| place.iter().filter(|there| **there).count() as i64;
        let there: Vec<bool> = orders.iter().map(Option::is_some).collect();
        let delivered = i64::from(self.tpcc.scale.delivered()) + deliveries as i64;
        self.demand_equal(11, count(&there) - count(outstanding), delivered, || {
            format!(
                "the number of orders of {w}/{d} that are not in NEW-ORDER, and of those delivered"
            )
        });
        let rows = (1..).zip(accounts).map(|(c, _)| RowKey::latest_order(w, d, c));
        let rows: Vec<RowKey> = rows.collect();
        let values = self.read(&rows).await?;
        for ((row, value), account) in rows.iter().zip(&values).zip(accounts) {
            let latest: OrderNumber = parse(*row, value)?;
            self.demand(Condition::LatestOrder, latest == account.latest_order, || {
                format!("{row} is {latest}, not {}", account.latest_order)
            });
            let c = row.number();
            let expected = account.delivered - account.history;
            self.demand_equal(10, account.balance, expected, || {
                format!("C_BALANCE of {w}/{d}/{c}, and what it got less what it paid")
            });
            self.demand_equal(12, account.balance + account.paid, account.delivered, || {
                format!("C_BALANCE + C_YTD_PAYMENT of {w}/{d}/{c}, and what it got")
            });
        }
        Ok(())
    }
}

/// A row that must exist and be well-formed.
fn parse<'v, R: Deserialize<'v>>(
    row: RowKey,
    value: &'v Option<Value>,
) -> Result<R, InspectionError> {
    decode(row, value).map_err(|error: RowError| InspectionError::Broken(error.to_string()))
}
