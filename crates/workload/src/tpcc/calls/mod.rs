//! TPC-C as stored procedures, scaled inside a warehouse (002 §5.4): the rows of a district are at the district's server,
//! and those of an item at the item's.
//!
//! The tables are those of `crates/chop/procedures/tpcc.toml`. In contrast to the transactions of [`super::Tpcc`]:
//! - No order is of an item that there is not. A deferred piece can't roll an order back.
//! - The initial database is loaded, because a procedure can't compute it from a key. By default it is small.

mod conditions;
mod load;
mod places;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rand_pcg::Pcg64Mcg;
use serried_chop::tpcc::{LOADS, LOOKS, TRANSACTIONS};
use serried_procedures::{Datum, ProcedureSet, Results};
use serried_session::{CallError, ProcedureKeyspace};

use super::initial::Initial;
use super::request::{By, Customer, Request, Terminal};
use super::{Scale, draw};
use crate::procedures::{
    CallInspection, Loading, PlannedCall, ProcedureParameters, ProcedureWorkload, compile, integer,
};
use crate::{Failure, WorkloadError};
use places::Places;

/// A warehouse that is loaded soon: some 12,000 rows.
const SCALE: Scale = Scale { items: 1000, districts: 10, customers: 60, undelivered: 18 };

/// TPC-C as stored procedures.
#[derive(Debug)]
pub struct TpccCalls {
    set: Arc<ProcedureSet>,
    warehouses: u16,
    places: Places,
    scale: Scale,
    initial: Initial,
    loading: Loading,
    shares: Vec<load::Share>,
    /// Dates count requests, because with a clock a simulation could not be repeated.
    date: AtomicU64,
    /// The number of the next payment.
    payments: AtomicU64,
    known: Mutex<Known>,
}

/// What is known of a run.
#[derive(Debug, Default)]
struct Known {
    /// Whether earlier runs have used the database.
    is_used: bool,
    payments: Vec<Paid>,
    orders: Vec<Ordered>,
}

/// A payment that was planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Paid {
    warehouse: u16,
    district: u8,
    payment: u64,
    customer_warehouse: u16,
    amount: i64,
    end: End,
}

/// How a call ended, as far as that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Unknown,
    Done,
    NoEffect,
}

/// An order that was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ordered {
    warehouse: u16,
    district: u8,
    number: i64,
    /// The sum of its lines.
    sum: i64,
}

impl TpccCalls {
    /// By default one warehouse of ten districts.
    ///
    /// # Errors
    /// If a number is not valid.
    pub fn new(parameters: &ProcedureParameters) -> Result<TpccCalls, WorkloadError> {
        Self::scaled(parameters, if parameters.small { Scale::SMALL } else { SCALE })
    }

    fn scaled(parameters: &ProcedureParameters, scale: Scale) -> Result<TpccCalls, WorkloadError> {
        let customers = parameters.customers.unwrap_or(scale.customers);
        let undelivered = match parameters.customers {
            // The same share as usual.
            Some(customers) => (u64::from(customers) * 3 / 10) as u32,
            None => scale.undelivered,
        };
        let items = parameters.items.unwrap_or(scale.items);
        let mut scale = Scale { items, customers, undelivered, ..scale };
        let (warehouses, places) = match (parameters.warehouses, parameters.districts) {
            (number, None) => {
                let number = number.unwrap_or(1);
                let warehouses = u16::try_from(number).ok().filter(|warehouses| *warehouses > 0);
                (warehouses.ok_or(WorkloadError::Warehouses(number))?, Places::OfWarehouses)
            }
            (None, Some(districts)) => {
                let (tens, districts) = places::split(districts)?;
                scale.districts = districts;
                (tens, Places::OfOne)
            }
            (Some(_), Some(_)) => {
                let reason =
                    "districts of one warehouse, and several warehouses: choose one of both";
                return Err(WorkloadError::Scale(reason.to_string()));
            }
        };
        scale.check()?;
        let shares = load::shares(warehouses, places, scale);
        let tables = compile(&[TRANSACTIONS, LOADS].concat(), |name| name.starts_with("load_"));
        Ok(TpccCalls {
            set: compile(&[TRANSACTIONS, LOOKS].concat(), |_| true),
            warehouses,
            places,
            scale,
            initial: Initial::new(warehouses, scale),
            loading: Loading::new(tables, shares.len() as u64),
            shares,
            date: AtomicU64::new(1),
            // The first payments are the customers'.
            payments: AtomicU64::new(u64::from(scale.customers) + 1),
            known: Mutex::default(),
        })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics while entering")
    }

    /// What a payment or an inquiry says of its customer: whether it names the last name, the number, the last name.
    fn customer(by: By) -> [Datum; 3] {
        let name = |name: u32| Datum::from(draw::last_name(name).as_str());
        match by {
            By::Name(number) => [true.into(), 0.into(), name(number)],
            By::Number(number) => [false.into(), i64::from(number).into(), Datum::from("")],
        }
    }

    fn planned(&self, request: &Request) -> PlannedCall {
        let int = |number: i64| Datum::Int(number);
        match request {
            Request::NewOrder(order) => {
                let lines = order.lines.iter().map(|line| {
                    let item = line.item.min(self.scale.items);
                    let supplier = self.places.supplier(line.supplier);
                    let fields = [item.into(), supplier.into(), line.quantity.into()];
                    Datum::record(fields.map(Datum::Int))
                });
                let [w, d] = self.places.district(order.warehouse, order.district);
                let numbers = [w, d, order.customer.into(), order.date as i64].map(int);
                let inputs: Vec<Datum> = numbers.into_iter().chain([Datum::list(lines)]).collect();
                PlannedCall::new("new_order", inputs)
            }
            Request::Payment(payment) => {
                let Customer { warehouse, district, by } = payment.customer;
                let number = self.payments.fetch_add(1, Ordering::Relaxed);
                self.known().payments.push(Paid {
                    warehouse: payment.warehouse,
                    district: payment.district,
                    payment: number,
                    customer_warehouse: warehouse,
                    amount: payment.amount,
                    end: End::Unknown,
                });
                let [w, d] = self.places.district(payment.warehouse, payment.district);
                let [home, home_district] = self.places.district(warehouse, district);
                let places = [w, d, home, home_district].map(int);
                let last = [payment.amount, payment.date as i64, number as i64].map(int);
                let inputs = places.into_iter().chain(Self::customer(by)).chain(last);
                PlannedCall::new("payment", inputs.collect::<Vec<Datum>>())
            }
            Request::Delivery(delivery) => {
                let place = |district| self.places.district(delivery.warehouse, district);
                let districts = (1..=self.scale.districts).map(|district| int(place(district)[1]));
                let [w, _] = place(1);
                let numbers = [w, delivery.carrier.into(), delivery.date as i64].map(int);
                let inputs = numbers.into_iter().chain([Datum::list(districts)]);
                PlannedCall::new("delivery", inputs.collect::<Vec<Datum>>())
            }
            Request::OrderStatus(status) => {
                let Customer { warehouse, district, by } = status.customer;
                let place = self.places.district(warehouse, district).map(int);
                let inputs = place.into_iter().chain(Self::customer(by));
                PlannedCall::new("order_status", inputs.collect::<Vec<Datum>>())
            }
            Request::StockLevel(level) => {
                let [w, d] = self.places.district(level.warehouse, level.district);
                PlannedCall::new("stock_level", [w, d, level.threshold.into()].map(int))
            }
        }
    }
}

impl ProcedureWorkload for TpccCalls {
    fn name(&self) -> &'static str {
        "tpcc-calls"
    }

    fn set(&self) -> &Arc<ProcedureSet> {
        &self.set
    }

    fn loading(&self) -> Option<&Loading> {
        Some(&self.loading)
    }

    fn load(&self, i: u64) -> PlannedCall {
        self.shares[i as usize].call(&self.initial, self.places)
    }

    fn begin_at(&self, first: u64) {
        self.payments.fetch_max(first, Ordering::Relaxed);
    }

    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> PlannedCall {
        let date = self.date.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal::of(client, self.warehouses, self.scale);
        self.planned(&terminal.request(date, random))
    }

    fn ended(&self, planned: &PlannedCall, result: &Result<Results, CallError>) {
        let input = |at: usize| match &planned.inputs[at] {
            Datum::Int(input) => *input,
            other => panic!("an input of TPC-C is no integer: {other}"),
        };
        match (planned.procedure, result) {
            ("payment", result) => {
                let end = match result {
                    Ok(_) => End::Done,
                    Err(error) if error.is_unknown() => return,
                    Err(_) => End::NoEffect,
                };
                let number = input(9) as u64;
                let payments = &mut self.known().payments;
                // It is one of the last.
                let paid = payments.iter_mut().rev().find(|paid| paid.payment == number);
                paid.expect("a payment was planned").end = end;
            }
            ("new_order", Ok(results)) => {
                let result = |name| integer(results, name).expect("the set says so");
                let (warehouse, district) = self.places.at([input(0), input(1)]);
                self.known().orders.push(Ordered {
                    warehouse,
                    district,
                    number: result("number"),
                    sum: result("total"),
                });
            }
            _ => {}
        }
    }

    fn look<'a>(
        &'a self,
        _: &'a ProcedureKeyspace,
    ) -> core::pin::Pin<Box<dyn Future<Output = Result<(), CallError>> + Send + 'a>> {
        self.known().is_used = true;
        Box::pin(async { Ok(()) })
    }

    /// Checks the specification's consistency conditions, as far as the tables are the specification's.
    fn inspect<'a>(&'a self, keyspace: &'a ProcedureKeyspace) -> CallInspection<'a> {
        Box::pin(async move {
            match self.loading.is_done() {
                true => Ok(Some(conditions::inspect(self, keyspace).await?)),
                // The run ended before anything could be called.
                false => Ok(None),
            }
        })
    }
}
