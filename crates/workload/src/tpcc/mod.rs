//! TPC-C: the orders, payments and deliveries of a wholesale supplier (specification 5.11; 000 §5.1.1).
//!
//! The five transactions are programs over the public API that read and write rows by their keys, in the
//! mix of 000 Table 3. Terminals do not wait between transactions, so the rate of new orders is
//! not that of an audited run, whose terminals think and type.
//!
//! **Rows.** Each row of the specification's tables is one value, as in other implementations over key-value stores:
//! New-Order reads the warehouse that every Payment writes, and both write their district. Where the specification
//! scans, additional rows replace the scan, which the same transactions maintain: the customers with one last name, a
//! customer's latest order, and the oldest undelivered order of a district. A customer's payments are numbered, so that
//! HISTORY has a key.
//!
//! **The initial database** is a function of the key. An absent row counts as unchanged, so the database need not be
//! loaded. Rows are never deleted: Delivery makes rows of NEW-ORDER empty.
//!
//! **Reads** that do not depend on each other go out together: New-Order reads in one round trip.

mod calls;
mod conditions;
mod delivery;
mod draw;
mod initial;
mod key;
mod listing;
mod new_order;
mod order_status;
mod payment;
pub(crate) mod permutation;
mod request;
mod row;
mod scale;
mod stock_level;
#[cfg(test)]
mod tests;

use core::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::FixedState;
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Value};
use serried_session::{Abort, Footprint, GetMany, Transaction, TransactionKeyspace};

use initial::Initial;
use key::RowKey;
use request::Terminal;

pub use calls::TpccCalls;
pub use request::{Delivery, NewOrder, OrderStatus, Payment, Request, StockLevel};
pub use scale::Scale;

use crate::{Inspection, Parameters, Plan, Report, Run, Workload, WorkloadError};

/// The default number of warehouses, as in the paper.
const WAREHOUSES: u64 = 100;

/// TPC-C.
#[derive(Debug)]
pub struct Tpcc {
    warehouses: u16,
    scale: Scale,
    initial: Initial,
    /// See [`Parameters::sequential`].
    sequential: bool,
    /// Dates count requests, because with a clock a simulation could not be repeated.
    date: AtomicU64,
}

impl Tpcc {
    /// By default 100 warehouses, as in the paper.
    ///
    /// # Errors
    /// If the number of warehouses or the scale is not valid.
    pub fn new(parameters: &Parameters) -> Result<Tpcc, WorkloadError> {
        let number = parameters.warehouses.unwrap_or(WAREHOUSES);
        let warehouses = u16::try_from(number).ok().filter(|warehouses| *warehouses > 0);
        let warehouses = warehouses.ok_or(WorkloadError::Warehouses(number))?;
        let scale = parameters.scale;
        scale.check()?;
        let initial = Initial::new(warehouses, scale);
        let sequential = parameters.sequential;
        Ok(Tpcc { warehouses, scale, initial, sequential, date: AtomicU64::new(1) })
    }

    /// Reads rows together. Rows that were never written have their initial values.
    async fn read(&self, tx: &Transaction, rows: &[RowKey]) -> Result<Vec<Option<Value>>, Abort> {
        self.found(rows, tx.get_many(rows.iter().copied())).await
    }

    /// The same for rows that are all written afterwards.
    async fn read_for_update(
        &self,
        tx: &Transaction,
        rows: &[RowKey],
    ) -> Result<Vec<Option<Value>>, Abort> {
        self.found(rows, tx.get_many(rows.iter().copied()).for_update(..)).await
    }

    /// What these reads of rows find.
    async fn found(&self, rows: &[RowKey], reads: GetMany) -> Result<Vec<Option<Value>>, Abort> {
        let mut values = reads.one_by_one(self.sequential).await?;
        for (row, value) in rows.iter().zip(&mut values) {
            if value.is_none() {
                *value = self.initial.value(*row);
            }
        }
        Ok(values)
    }

    async fn serve(&self, request: &Request, tx: &Transaction) -> Result<(), Abort> {
        // The output of terminals is computed, but not shown.
        match request {
            Request::NewOrder(request) => drop(new_order::run(self, tx, request).await?),
            Request::Payment(request) => drop(payment::run(self, tx, request).await?),
            Request::OrderStatus(request) => drop(order_status::run(self, tx, request).await?),
            Request::Delivery(request) => drop(delivery::run(self, tx, request).await?),
            Request::StockLevel(request) => drop(stock_level::run(self, tx, request).await?),
        }
        Ok(())
    }
}

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        "tpcc"
    }

    /// Loading sets the districts back to their first orders, and leaves later ones where they are.
    fn needs_an_unused_keyspace(&self) -> bool {
        true
    }

    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> Plan {
        let date = self.date.fetch_add(1, Ordering::Relaxed);
        Plan::Tpcc(Terminal::of(client, self.warehouses, self.scale).request(date, random))
    }

    fn kind(&self, plan: &Plan) -> &'static str {
        match plan {
            Plan::Tpcc(request) => request.kind(),
            Plan::Operations(_) | Plan::Traced { .. } => self.name(),
        }
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, _: bool) -> Run<'a> {
        let Plan::Tpcc(request) = plan else {
            unreachable!("TPC-C plans nothing but its requests")
        };
        Box::pin(async move {
            self.serve(request, &transaction).await?;
            Ok(Vec::new())
        })
    }

    /// Rows are registers. A hash identifies their values.
    fn operations(&self, _: Vec<MicroOperation>, footprint: &Footprint) -> Vec<MicroOperation> {
        let key = |key: &Key| RowKey::of(key).map_or(0, |row| row.0);
        let hash = |value: &Option<Value>| {
            let hash = |value: &Value| FixedState::default().hash_one(value.as_bytes());
            value.as_ref().map(hash)
        };
        let reads = footprint.reads.iter().map(|read| MicroOperation::Read {
            key: key(&read.key),
            result: ReadResult::Register(hash(&read.value)),
        });
        let writes = footprint
            .writes
            .iter()
            .map(|write| MicroOperation::Write { key: key(&write.key), value: hash(&write.value) });
        reads.chain(writes).collect()
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        let row = self.initial.nth(i)?;
        Some((row.into(), self.initial.value(row)?))
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        self.initial.value(RowKey::of(key)?)
    }

    /// Checks the specification's consistency conditions.
    fn inspect<'a>(&'a self, keyspace: &'a TransactionKeyspace) -> Inspection<'a> {
        Box::pin(async move { Ok(Some(conditions::inspect(self, keyspace).await?)) })
    }

    fn figures(&self, report: &Report) -> Vec<(&'static str, f64)> {
        let orders = report.kinds.iter().find(|kind| kind.kind == "new-order");
        let per_second = orders.map_or(0.0, |kind| kind.goodput_per_s);
        vec![
            ("new_orders_per_s", per_second),
            // An audited run would call this tpmC, but its terminals wait and ours do not.
            ("new_orders_per_min", per_second * 60.0),
        ]
    }
}
