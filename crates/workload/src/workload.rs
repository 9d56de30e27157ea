//! What a workload is, and which there are.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serried_history::{History, MicroOperation};
use serried_model::{Key, Value};
use serried_session::{Abort, Transaction};

use crate::{Bank, Counter, ListAppend, Retwis};

/// What one transaction is going to do. Results, and values that depend on them, are still open.
pub type Plan = Vec<MicroOperation>;

/// A transaction being run; it returns what it did, if that was asked for.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<Vec<MicroOperation>, Abort>> + Send + 'a>>;

/// A workload: it plans transactions, and runs them.
pub trait Workload: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The next transaction of `client`.
    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> Plan;

    /// Runs `plan`. With `record` it returns the plan with its results filled in.
    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, record: bool) -> Run<'a>;

    /// The `i`-th key to be loaded before a run, and its value; `None` from the last on. Workloads
    /// treat an absent key like a loaded one, so loading is for the sake of a realistic size.
    fn initial(&self, i: u64) -> Option<(Key, Value)>;

    /// Whether a history's reads are recorded with versions; otherwise its values speak for
    /// themselves.
    fn records_versions(&self) -> bool {
        true
    }

    /// Checks what this workload alone can know of a history.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, _: &History) -> Result<(), String> {
        Ok(())
    }
}

/// What the workloads can be told.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Parameters {
    /// How many keys there are, for `retwis` and `list-append`; counters for `counter`; accounts for
    /// `bank`. The workload's own default if `None`.
    pub keys: Option<u64>,
    /// The exponent of the Zipf distribution of keys; 0 is uniform. For `retwis`, `list-append`.
    pub theta: f64,
    /// The length of a key in bytes, at least 8. For `retwis`.
    pub key_bytes: usize,
    /// The length of a value in bytes, at least 8. For `retwis`.
    pub value_bytes: usize,
    /// Whether what is written to a key that was read depends on it. For `retwis`.
    pub dependent: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters { keys: None, theta: 0.9, key_bytes: 8, value_bytes: 8, dependent: false }
    }
}

/// What is known of a workload by its name.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// Its name.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    make: fn(&Parameters) -> Arc<dyn Workload>,
}

const WORKLOADS: &[WorkloadInfo] = &[
    WorkloadInfo {
        name: "retwis",
        summary: "a social network: short transactions, half of them read-only (000 Table 4)",
        make: |parameters| Arc::new(Retwis::new(parameters)),
    },
    WorkloadInfo {
        name: "bank",
        summary: "transfers between accounts, and audits: the total never changes",
        make: |parameters| Arc::new(Bank::new(parameters)),
    },
    WorkloadInfo {
        name: "list-append",
        summary: "appends to and reads of lists, whose histories speak for themselves",
        make: |parameters| Arc::new(ListAppend::new(parameters)),
    },
    WorkloadInfo {
        name: "counter",
        summary: "a few counters that everybody increments",
        make: |parameters| Arc::new(Counter::new(parameters)),
    },
];

/// All workloads.
pub fn list() -> &'static [WorkloadInfo] {
    WORKLOADS
}

/// The workload called `name`.
///
/// # Errors
/// If there is none; the error lists those that there are.
pub fn named(name: &str, parameters: &Parameters) -> Result<Arc<dyn Workload>, UnknownWorkload> {
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
    found.map(|workload| (workload.make)(parameters)).ok_or_else(|| UnknownWorkload(name.into()))
}

/// There is no workload of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownWorkload(String);

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        write!(f, "there is no workload `{}`; choose one of {}", self.0, names.join(", "))
    }
}

impl core::error::Error for UnknownWorkload {}
