//! The consistency conditions (clause 3.3.2) of a database at rest, as far as the scaled tables have them.
//!
//! There is no year-to-date of a warehouse, so conditions 1 and 8 and a half of 9 and 12 are absent. There are more for
//! what is known of the run: acknowledged orders and payments are there, and payments without effect are not.

use std::collections::BTreeMap;

use serried_procedures::{Datum, Results};
use serried_session::ProcedureKeyspace;

use super::load::quantity;
use super::places::Places;
use super::{End, Known, Ordered, Paid, TpccCalls};
use crate::InspectionError;
use crate::procedures::{integer, list, numbers};
use crate::tpcc::initial::PAID;

/// Rows that are read by one call.
const ROWS: usize = 100;
/// The greatest number of lines of an order.
const LINES: i64 = 15;
/// Orders whose lines are read by one call, with the place behind the last line.
const ORDERS: usize = 10;
/// The greatest number of broken conditions that are reported.
const REPORTED: usize = 10;

/// Checks all conditions. Returns what was found to be in order.
pub(super) async fn inspect(
    tpcc: &TpccCalls,
    keyspace: &ProcedureKeyspace,
) -> Result<String, InspectionError> {
    let known = std::mem::take(&mut *tpcc.known());
    let mut inspector = Inspector {
        tpcc,
        keyspace,
        known: &known,
        broken: Vec::new(),
        accounts: BTreeMap::new(),
        sold: BTreeMap::new(),
        orders: 0,
        payments: 0,
    };
    let result = inspector.all().await;
    let Inspector { broken, orders, payments, .. } = inspector;
    // Another inspection may follow.
    *tpcc.known() = known;
    result?;
    if broken.is_empty() {
        let places = match tpcc.places {
            Places::OfWarehouses => format!("{} warehouses", tpcc.warehouses),
            Places::OfOne => {
                format!(
                    "{} districts",
                    u32::from(tpcc.warehouses) * u32::from(tpcc.scale.districts)
                )
            }
        };
        return Ok(format!(
            "TPC-C's consistency conditions hold of {places}, {orders} orders and {payments} payments"
        ));
    }
    let more = broken.len().saturating_sub(REPORTED);
    let mut lines: Vec<String> = broken.into_iter().take(REPORTED).collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    Err(InspectionError::Broken(lines.join("\n")))
}

struct Inspector<'a> {
    tpcc: &'a TpccCalls,
    keyspace: &'a ProcedureKeyspace,
    known: &'a Known,
    broken: Vec<String>,
    /// Of each customer, by warehouse, district and number.
    accounts: BTreeMap<(u16, u8, i64), Account>,
    /// Of each warehouse and item, the orders and the quantity since the beginning.
    sold: BTreeMap<(u16, i64), (i64, i64)>,
    orders: u64,
    payments: u64,
}

/// What a customer's row has to say.
#[derive(Clone, Copy, Default)]
struct Account {
    paid: i64,
    payments: i64,
    /// Orders that were delivered in the run, and their totals.
    deliveries: i64,
    delivered: i64,
    last_order: i64,
}

/// The columns of rows that were read, by name.
struct Columns<'r>(&'r Results);

impl Columns<'_> {
    fn int(&self, name: &str, row: usize) -> Result<i64, InspectionError> {
        match list(self.0, name).map_err(InspectionError::Broken)?.get(row) {
            Some(Datum::Int(int)) => Ok(*int),
            other => Err(InspectionError::Broken(format!("`{name}` is no integer: {other:?}"))),
        }
    }

    fn bool(&self, name: &str, row: usize) -> Result<bool, InspectionError> {
        match list(self.0, name).map_err(InspectionError::Broken)?.get(row) {
            Some(Datum::Bool(bool)) => Ok(*bool),
            other => Err(InspectionError::Broken(format!("`{name}` is no bool: {other:?}"))),
        }
    }
}

impl Inspector<'_> {
    async fn all(&mut self) -> Result<(), InspectionError> {
        for warehouse in 1..=self.tpcc.warehouses {
            for district in 1..=self.tpcc.scale.districts {
                self.district(warehouse, district).await?;
            }
        }
        // Customers also pay and order elsewhere, so this must wait until all districts have been read.
        for warehouse in 1..=self.tpcc.warehouses {
            for district in 1..=self.tpcc.scale.districts {
                self.customers(warehouse, district).await?;
            }
            if self.tpcc.places.has_stock(warehouse) {
                self.stock(warehouse).await?;
            }
        }
        Ok(())
    }

    fn demand(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(format!("TPC-C: {}", what()));
        }
    }

    async fn call(
        &self,
        procedure: &str,
        place: &[i64],
        more: Option<Datum>,
    ) -> Result<Results, InspectionError> {
        let inputs = place.iter().copied().map(Datum::Int).chain(more).collect::<Vec<Datum>>();
        Ok(self.keyspace.call(procedure, inputs).await?)
    }

    async fn district(&mut self, warehouse: u16, district: u8) -> Result<(), InspectionError> {
        let place = self.tpcc.places.district(warehouse, district);
        let row = self.call("look_district", &place, None).await?;
        let column = |name| integer(&row, name).map_err(InspectionError::Broken);
        let (next_order, next_delivery) = (column("next_order")?, column("next_delivery")?);
        let (ytd, tax) = (column("ytd")?, column("tax")?);
        let first = i64::from(self.tpcc.scale.customers) + 1;
        self.demand(first <= next_order && next_delivery <= next_order, || {
            format!("district {place:?} delivers {next_delivery} next, and has {next_order} next")
        });
        let discounts = self.discounts(place).await?;
        let mut sums = BTreeMap::new();
        // The order behind the last one is not there.
        let all: Vec<i64> = (1..=next_order).collect();
        for some in all.chunks(ROWS) {
            let input = numbers(some.iter().map(|number| *number as u64));
            let rows = self.call("look_orders", &place, Some(input)).await?;
            let rows = Columns(&rows);
            let mut orders = Vec::new();
            for (at, number) in some.iter().copied().enumerate() {
                let (there, open) = (rows.bool("there", at)?, rows.bool("open", at)?);
                self.demand(there == (number < next_order), || {
                    format!("order {number} of {place:?} is there: {there}; {next_order} is next (3.3.2.2)")
                });
                self.demand(open == (there && number >= next_delivery), || {
                    format!("order {number} of {place:?} is in NEW-ORDER: {open}; {next_delivery} is delivered next (3.3.2.3)")
                });
                if !there {
                    continue;
                }
                let (carrier, delivered) = (rows.int("carrier", at)?, rows.int("delivered", at)?);
                self.demand((carrier == 0) == open && (delivered == 0) == open, || {
                    format!("order {number} of {place:?} has carrier {carrier} and was delivered at {delivered}, in NEW-ORDER: {open} (3.3.2.5, 3.3.2.7)")
                });
                let (customer, total) = (rows.int("customer", at)?, rows.int("total", at)?);
                let account = self.accounts.entry((warehouse, district, customer)).or_default();
                account.last_order = account.last_order.max(number);
                // What was delivered before the run counts for nothing.
                if !open && number > i64::from(self.tpcc.scale.delivered()) {
                    account.deliveries += 1;
                    account.delivered += total;
                }
                self.orders += 1;
                orders.push((number, customer, rows.int("lines", at)?, total));
            }
            for some in orders.chunks(ORDERS) {
                self.lines(place, some, tax, &discounts, &mut sums).await?;
            }
        }
        for Ordered { number, sum, .. } in self.of_district(&self.known.orders, warehouse, district)
        {
            let found = sums.get(&number).copied();
            self.demand(found == Some(sum), || {
                format!(
                    "order {number} of {place:?} was acknowledged with {sum}, and has {found:?}"
                )
            });
        }
        self.payments(place, ytd).await
    }

    fn of_district(&self, orders: &[Ordered], warehouse: u16, district: u8) -> Vec<Ordered> {
        let of = |order: &&Ordered| order.warehouse == warehouse && order.district == district;
        orders.iter().filter(of).copied().collect()
    }

    /// The discounts of a district's customers, from the first on.
    async fn discounts(&self, place: [i64; 2]) -> Result<Vec<i64>, InspectionError> {
        let mut discounts = Vec::new();
        let all: Vec<u64> = (1..=u64::from(self.tpcc.scale.customers)).collect();
        for some in all.chunks(ROWS) {
            let input = numbers(some.iter().copied());
            let rows = self.call("look_customers", &place, Some(input)).await?;
            for at in 0..some.len() {
                discounts.push(Columns(&rows).int("discount", at)?);
            }
        }
        Ok(discounts)
    }

    /// The lines of orders: there are as many as the order says, and they add up to its total.
    async fn lines(
        &mut self,
        place: [i64; 2],
        orders: &[(i64, i64, i64, i64)],
        tax: i64,
        discounts: &[i64],
        sums: &mut BTreeMap<i64, i64>,
    ) -> Result<(), InspectionError> {
        let last = |lines: i64| lines.clamp(0, LINES);
        let places = orders.iter().flat_map(|(number, _, lines, _)| {
            (0..=last(*lines)).map(|line| Datum::record([*number, line].map(Datum::Int)))
        });
        let rows = self.call("look_lines", &place, Some(Datum::list(places))).await?;
        let (rows, mut at) = (Columns(&rows), 0);
        for &(number, customer, lines, total) in orders {
            let (mut sum, mut count) = (0, 0);
            for line in 0..=last(lines) {
                let there = rows.bool("there", at)?;
                let sold = there && number > i64::from(self.tpcc.scale.customers);
                if there {
                    sum += rows.int("amount", at)?;
                    count += 1;
                }
                if sold {
                    let (supplier, item) = (rows.int("supplier", at)?, rows.int("item", at)?);
                    let sold = self.sold.entry((supplier as u16, item)).or_default();
                    sold.0 += 1;
                    sold.1 += rows.int("quantity", at)?;
                }
                self.demand(there == (line < lines), || {
                    format!("line {line} of order {number} of {place:?} is there: {there}; it has {lines} (3.3.2.4, 3.3.2.6)")
                });
                at += 1;
            }
            let wanted = match number > i64::from(self.tpcc.scale.customers) {
                true => {
                    let discount = discounts.get(customer as usize - 1).copied().unwrap_or(0);
                    sum * (10_000 - discount) / 10_000 * (10_000 + tax) / 10_000
                }
                false => sum,
            };
            self.demand(total == wanted && count == lines, || {
                format!("order {number} of {place:?} has a total of {total}, and its {count} lines make {wanted}")
            });
            sums.insert(number, sum);
        }
        Ok(())
    }

    /// The payments of a district make its year-to-date.
    async fn payments(&mut self, place: [i64; 2], ytd: i64) -> Result<(), InspectionError> {
        let (warehouse, district) = self.tpcc.places.at(place);
        let first = (1..=u64::from(self.tpcc.scale.customers)).map(|payment| Paid {
            warehouse,
            district,
            payment,
            customer_warehouse: warehouse,
            amount: PAID,
            end: End::Done,
        });
        let own = self
            .known
            .payments
            .iter()
            .copied()
            .filter(|paid| (paid.warehouse, paid.district) == (warehouse, district));
        let all: Vec<Paid> = first.chain(own).collect();
        let mut sum = 0;
        for some in all.chunks(ROWS) {
            let input = numbers(some.iter().map(|paid| paid.payment));
            let rows = self.call("look_history", &place, Some(input)).await?;
            for (at, paid) in some.iter().enumerate() {
                let rows = Columns(&rows);
                let there = rows.bool("there", at)?;
                let fits = match paid.end {
                    End::Unknown => true,
                    End::Done => there,
                    End::NoEffect => !there,
                };
                self.demand(fits, || format!("payment {paid:?} is there: {there}"));
                if !there {
                    continue;
                }
                let amount = rows.int("amount", at)?;
                self.demand(amount == paid.amount, || format!("payment {paid:?} is of {amount}"));
                sum += amount;
                self.payments += 1;
                let customer = rows.int("customer", at)?;
                let home = rows.int("customer_district", at)?;
                let account = match self.tpcc.places {
                    Places::OfWarehouses => (paid.customer_warehouse, home as u8, customer),
                    Places::OfOne => {
                        let (warehouse, district) = self.tpcc.places.at([1, home]);
                        (warehouse, district, customer)
                    }
                };
                let account = self.accounts.entry(account).or_default();
                account.paid += amount;
                account.payments += 1;
            }
        }
        self.demand(self.known.is_used || sum == ytd, || {
            format!("district {place:?} has {ytd} of the year, and payments of {sum} (3.3.2.9)")
        });
        Ok(())
    }

    async fn customers(&mut self, warehouse: u16, district: u8) -> Result<(), InspectionError> {
        let place = self.tpcc.places.district(warehouse, district);
        let all: Vec<u64> = (1..=u64::from(self.tpcc.scale.customers)).collect();
        for some in all.chunks(ROWS) {
            let input = numbers(some.iter().copied());
            let rows = self.call("look_customers", &place, Some(input)).await?;
            let rows = Columns(&rows);
            for (at, customer) in some.iter().enumerate() {
                let key = (warehouse, district, *customer as i64);
                let account = self.accounts.get(&key).copied().unwrap_or_default();
                let (balance, paid) = (rows.int("balance", at)?, rows.int("paid", at)?);
                let (payments, deliveries) =
                    (rows.int("payments", at)?, rows.int("deliveries", at)?);
                let last_order = rows.int("last_order", at)?;
                let is_used = self.known.is_used;
                self.demand(
                    is_used || (paid, payments) == (account.paid, account.payments),
                    || format!("customer {key:?} has paid {paid} in {payments} payments, of which {} in {} are there", account.paid, account.payments),
                );
                self.demand(balance + paid == account.delivered, || {
                    format!("customer {key:?} has a balance of {balance} and has paid {paid}, and got orders of {} (3.3.2.10, 3.3.2.12)", account.delivered)
                });
                self.demand(deliveries == account.deliveries, || {
                    format!(
                        "customer {key:?} counts {deliveries} deliveries of {}",
                        account.deliveries
                    )
                });
                self.demand(last_order == account.last_order, || {
                    format!(
                        "customer {key:?} has the last order {last_order} and not {}",
                        account.last_order
                    )
                });
            }
        }
        Ok(())
    }

    /// What was ordered is gone from the stock, which is refilled by 91 at a time.
    async fn stock(&mut self, warehouse: u16) -> Result<(), InspectionError> {
        let all: Vec<u64> = (1..=u64::from(self.tpcc.scale.items)).collect();
        for some in all.chunks(ROWS) {
            let input = numbers(some.iter().copied());
            let rows = self.call("look_stock", &[warehouse.into()], Some(input)).await?;
            let rows = Columns(&rows);
            for (at, item) in some.iter().enumerate() {
                let (left, ytd) = (rows.int("quantity", at)?, rows.int("ytd", at)?);
                let orders = rows.int("orders", at)?;
                let sold = self.sold.get(&(warehouse, *item as i64)).copied().unwrap_or_default();
                self.demand((orders, ytd) == sold, || {
                    format!("{ytd} of item {item} were ordered from warehouse {warehouse} in {orders} lines, and lines have {sold:?}")
                });
                let first = quantity(warehouse, *item as u32);
                self.demand((first - ytd - left).rem_euclid(91) == 0, || {
                    format!("{left} of item {item} are left in warehouse {warehouse} of {first} after {ytd}")
                });
            }
        }
        Ok(())
    }
}
