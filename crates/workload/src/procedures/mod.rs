//! Workloads of stored procedures.

mod bank;
mod client;
mod counters;
mod inquiries;
mod lists;
mod ready;
mod tally;
#[cfg(test)]
pub(crate) mod tests;

use core::future::Future;
use core::pin::Pin;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serried_procedures::{Datum, ProcedureSet, Results};
use serried_session::{CallError, ProcedureKeyspace};

use crate::InspectionError;

pub use bank::BankCalls;
pub use client::{CallClient, OpenCalls, audit_calls};
pub use counters::CounterCalls;
pub use inquiries::Inquiries;
pub use lists::ListCalls;
pub use ready::{NotReady, make_ready};

/// The progress of loading. All clients of a run share it.
#[derive(Debug)]
pub struct Loading {
    set: Arc<ProcedureSet>,
    calls: u64,
    /// The calls that are missing.
    missing: Mutex<BTreeSet<u64>>,
}

impl Loading {
    /// So many calls have to be made of procedures of this set, which is registered before the workload's own.
    pub fn new(set: Arc<ProcedureSet>, calls: u64) -> Loading {
        Loading { set, calls, missing: Mutex::new((0..calls).collect()) }
    }

    /// The set with the procedures that load.
    pub fn set(&self) -> &Arc<ProcedureSet> {
        &self.set
    }

    /// How many calls there are.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The first call from `from` on that is missing, or the first of all.
    pub fn missing(&self, from: u64) -> Option<u64> {
        let missing = self.missing.lock().expect("nobody panics while loading");
        missing.range(from..).next().or(missing.first()).copied()
    }

    /// This call has ended.
    pub fn enter(&self, call: u64) {
        self.missing.lock().expect("nobody panics while loading").remove(&call);
    }

    /// Everything is there.
    pub fn finish(&self) {
        self.missing.lock().expect("nobody panics while loading").clear();
    }

    /// Whether everything is there.
    pub fn is_done(&self) -> bool {
        self.missing(0).is_none()
    }
}

/// A list that was read: its number, and its elements.
pub type ReadList = (u64, Vec<u64>);

/// A planned call.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedCall {
    /// The procedure. Results are reported per procedure.
    pub procedure: &'static str,
    /// Its inputs.
    pub inputs: Vec<Datum>,
    /// The elements that it appends to numbered lists, for a history.
    pub appends: Vec<(u64, u64)>,
    /// The lists that it reads, as far as this is known before the call.
    pub reads: Vec<u64>,
}

impl PlannedCall {
    /// A call that uses no lists.
    pub fn new(procedure: &'static str, inputs: impl Into<Vec<Datum>>) -> PlannedCall {
        PlannedCall { procedure, inputs: inputs.into(), appends: Vec::new(), reads: Vec::new() }
    }
}

/// An inspection in progress. Returns what was found to be in order, if there was anything to inspect.
pub type CallInspection<'a> =
    Pin<Box<dyn Future<Output = Result<Option<String>, InspectionError>> + Send + 'a>>;

/// A workload of stored procedures: it has a set of procedures, and plans calls of them.
pub trait ProcedureWorkload: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The procedures.
    fn set(&self) -> &Arc<ProcedureSet>;

    /// Whether its procedures have merged pieces, which not every protocol offers.
    fn merges(&self) -> bool {
        self.set().procedures.iter().any(|procedure| !procedure.merged.is_empty())
    }

    /// What has to be loaded before a run, if anything has.
    fn loading(&self) -> Option<&Loading> {
        None
    }

    /// The `i`-th call that loads the database, of [`Loading::calls`]. It may be repeated.
    ///
    /// # Panics
    /// If nothing has to be loaded.
    fn load(&self, _i: u64) -> PlannedCall {
        panic!("`{}` loads nothing", self.name())
    }

    /// Numbers what calls use from `first` on, if others may have used the database before: it is above all numbers that
    /// they have used.
    fn begin_at(&self, _first: u64) {}

    /// The next call of a client.
    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> PlannedCall;

    /// What a call found that took effect: the lists that it has read.
    ///
    /// # Errors
    /// If the results are not those of the procedure. The error says what is wrong.
    fn observe(&self, _: &PlannedCall, _: &Results) -> Result<Vec<ReadList>, String> {
        Ok(Vec::new())
    }

    /// Learns of the end of a call that it has planned. A call of whose end it never learns has an unknown outcome.
    fn ended(&self, _: &PlannedCall, _: &Result<Results, CallError>) {}

    /// Calls that read all lists, to be made when all clients are done. Then a history shows whether anything was lost.
    fn audits(&self) -> Vec<PlannedCall> {
        Vec::new()
    }

    /// Learns what is in the database before a run, if others may have used it.
    fn look<'a>(
        &'a self,
        _: &'a ProcedureKeyspace,
    ) -> Pin<Box<dyn Future<Output = Result<(), CallError>> + Send + 'a>> {
        Box::pin(async { Ok(()) })
    }

    /// Checks conditions on the database, after a run of this workload has ended.
    fn inspect<'a>(&'a self, _: &'a ProcedureKeyspace) -> CallInspection<'a> {
        Box::pin(async { Ok(None) })
    }
}

/// What workloads of procedures can be told.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ProcedureParameters {
    /// How many counters, accounts, rows, or lists at a time there are. The workload's own default if `None`.
    pub keys: Option<u64>,
    /// The exponent of the Zipf distribution of keys; 0 is uniform. For `counter-calls` and `list-append-calls`, which
    /// have 0.9 if it is `None`, and `f1-calls`, `f1-wf-calls` and `tao-calls`, which have 0.8.
    pub theta: Option<f64>,
    /// The share of calls that write, from 0 to 1. For `f1-calls`, which has 0.003 if it is `None`, `f1-wf-calls` 0.3 and
    /// `tao-calls` 0.002.
    pub writes: Option<f64>,
    /// The length of every value in bytes, at least 10. For `f1-calls`, `f1-wf-calls` and `tao-calls`, whose values
    /// differ in length if it is `None`.
    pub value_bytes: Option<usize>,
    /// How many counters a call of `counter-calls` increments; 10 if `None`.
    pub counters_per_call: Option<u64>,
    /// How many warehouses there are, from 1 to 65535; 1 if `None`. For `tpcc-calls`.
    pub warehouses: Option<u64>,
    /// For `tpcc-calls`: one warehouse has this many districts. Then `warehouses` must be `None`.
    pub districts: Option<u64>,
    /// For `tpcc-calls`: how many customers a district has, from 1 to 3000.
    pub customers: Option<u32>,
    /// For `tpcc-calls`: how many items there are, from 15 to 100,000.
    pub items: Option<u32>,
    /// Whether the warehouses of `tpcc-calls` are as small as possible.
    pub small: bool,
    /// Whether `list-append-calls` and `bank-calls` also have calls with two immediate pieces that are merged into one.
    pub merged: bool,
}

/// Compiles a procedure file of a workload, keeps the procedures that are wanted, checks them, and merges pieces where that
/// is needed.
pub(crate) fn compile(text: &str, wanted: impl Fn(&str) -> bool) -> Arc<ProcedureSet> {
    let mut set = serried_chop::compile(text).unwrap_or_else(|mistake| panic!("{mistake}"));
    set.procedures.retain(|procedure| wanted(&procedure.name));
    serried_chop::check_and_merge(&mut set);
    Arc::new(set)
}

/// A result that is an integer.
pub(crate) fn integer(results: &Results, name: &str) -> Result<i64, String> {
    match results.get(name) {
        Some(Datum::Int(integer)) => Ok(*integer),
        other => Err(format!("`{name}` is no integer: {other:?}")),
    }
}

/// A result that is a list.
pub(crate) fn list<'r>(results: &'r Results, name: &str) -> Result<&'r [Datum], String> {
    match results.get(name) {
        Some(Datum::List(elements)) => Ok(elements),
        other => Err(format!("`{name}` is no list: {other:?}")),
    }
}

/// A list of numbers as an input.
pub(crate) fn numbers(numbers: impl IntoIterator<Item = u64>) -> Datum {
    Datum::list(numbers.into_iter().map(|number| Datum::Int(number as i64)))
}
