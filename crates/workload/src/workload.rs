//! Workloads, and the list of all of them.

use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serried_history::{History, MicroOperation};
use serried_model::{FamilyName, Key, Limits, Modification, Value, Version, Write};
use serried_session::{Abort, Footprint, Transaction, TransactionKeyspace};

use crate::tpcc::{self, Scale, Tpcc, TpccCalls};
use crate::{
    Bank, BankCalls, Counter, CounterCalls, Eiger, F1, Inspection, ListAppend, ListCalls,
    OneShotCalls, ProcedureParameters, ProcedureWorkload, RegisterMix, RegisterParameters,
    RegisterWorkload, Report, Retwis, SnapshotMix, SnapshotParameters, SnapshotWorkload, Tao, Ycsb,
    YcsbGroups, YcsbTransactions,
};

/// The plan of one transaction.
#[derive(Debug)]
pub enum Plan {
    /// Operations on numbered keys. Results and values that depend on them are still open.
    Operations(Vec<MicroOperation>),
    /// A transaction of TPC-C, whose operations are known once it has run.
    Tpcc(tpcc::Request),
    /// A transaction of a trace.
    Traced {
        /// Its number.
        number: usize,
        /// How long the client waits before it begins.
        think: Duration,
    },
}

impl Plan {
    /// The operations that are known before the transaction is run.
    pub fn operations(&self) -> &[MicroOperation] {
        match self {
            Plan::Operations(operations) => operations,
            Plan::Tpcc(_) | Plan::Traced { .. } => &[],
        }
    }

    /// Whether the transaction only reads, whatever it finds. It may then be run as a read-only transaction.
    pub fn only_reads(&self) -> bool {
        match self {
            Plan::Operations(operations) => operations.iter().all(MicroOperation::is_read),
            // The trace says it.
            Plan::Traced { .. } => false,
            Plan::Tpcc(request) => {
                matches!(request, tpcc::Request::OrderStatus(_) | tpcc::Request::StockLevel(_))
            }
        }
    }
}

impl From<Vec<MicroOperation>> for Plan {
    fn from(operations: Vec<MicroOperation>) -> Plan {
        Plan::Operations(operations)
    }
}

/// The contents of a transaction whose keys and writes are known before it begins.
#[derive(Debug)]
pub struct OneShot {
    /// The keys that it reads, in the order of the plan's reads.
    pub reads: Vec<Key>,
    /// What it writes, whatever it reads.
    pub writes: Vec<Write>,
    /// What it does to other keys, whatever it reads.
    pub modifies: Vec<(Key, Modification)>,
    /// Fills in the values that were read into the plan's operations, for a history.
    pub fill: fn(&[MicroOperation], &[Option<Value>]) -> Vec<MicroOperation>,
}

/// A running transaction. It returns its operations, if they are recorded.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<Vec<MicroOperation>, Abort>> + Send + 'a>>;

/// The error of a transaction that gives up as its workload planned. It is not an error of the database, and is not
/// counted as a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rolled back, as planned: {0}")]
pub struct RolledBack(pub &'static str);

/// A workload: it plans transactions, and runs them.
pub trait Workload: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &'static str;

    /// How many clients it has unless another number is chosen, if it knows that.
    fn usual_clients(&self) -> Option<usize> {
        None
    }

    /// A run has this many clients. Called before their first plans.
    fn set_clients(&self, _clients: usize) {}

    /// How long a client in a closed loop waits before it begins `plan`.
    fn think(&self, _: &Plan) -> Duration {
        Duration::ZERO
    }

    /// The least limits of a keyspace in which it can be run.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// The keys that it uses and that others may use, too, as they are not of its own making.
    fn foreign_keys(&self) -> &[Key] {
        &[]
    }

    /// Whether clients in a closed loop pause between transactions.
    fn keeps_pauses(&self) -> bool {
        false
    }

    /// Whether histories of its transactions can be recorded.
    fn keeps_histories(&self) -> bool {
        true
    }

    /// The next transaction of `client`.
    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> Plan;

    /// The kind of the planned transaction. Results are reported per kind.
    fn kind(&self, _: &Plan) -> &'static str {
        self.name()
    }

    /// Runs `plan`. With `record` it returns the plan with its results filled in.
    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, record: bool) -> Run<'a>;

    /// Whether `plan` only reads, whatever it finds. If so, it may be run as a read-only transaction.
    fn only_reads(&self, plan: &Plan) -> bool {
        plan.only_reads()
    }

    /// The contents of `plan`, if they are all known before it begins. It is then run as a one-shot transaction.
    fn one_shot(&self, _: &Plan) -> Option<OneShot> {
        None
    }

    /// The operations of a committed transaction, for a history. By default these are what its run returned. A workload
    /// may derive them from the footprint instead.
    fn operations(&self, done: Vec<MicroOperation>, _: &Footprint) -> Vec<MicroOperation> {
        done
    }

    /// Prepares for a keyspace that was used before, by runs that ended before `after`. Called before the first plan. A
    /// workload needs this if loading its keys does not make the database as it was before its first run.
    fn start_afresh(&self, _after: Version) {}

    /// Whether a run leaves keys behind that would be wrong in the next one, even after loading and
    /// [`Workload::start_afresh`]. If so, a history can be checked only of the first run on a keyspace.
    fn needs_an_unused_keyspace(&self) -> bool {
        false
    }

    /// The `i`-th key to load before a run, and its value. `None` after the last one. The workload treats an absent key
    /// like a loaded one, so loading only gives the database a realistic size.
    fn initial(&self, i: u64) -> Option<(Key, Value)>;

    /// The value of a key before a run, computed only from the key. It is the value that [`Workload::initial`] lists,
    /// and `None` for every other key.
    fn initial_value(&self, key: &Key) -> Option<Value>;

    /// Whether a history's reads are recorded with versions. Otherwise its values identify the writes.
    fn records_versions(&self) -> bool {
        true
    }

    /// Checks conditions on a history that are specific to this workload.
    ///
    /// # Errors
    /// If a condition is broken. The error says which one.
    fn check(&self, _: &History) -> Result<(), String> {
        Ok(())
    }

    /// Checks conditions on the database that are specific to this workload, after a run has ended. Called by
    /// [`inspect`](crate::inspect()).
    fn inspect<'a>(&'a self, _: &'a TransactionKeyspace) -> Inspection<'a> {
        Box::pin(async { Ok(None) })
    }

    /// Figures by which this workload is usually compared, by name.
    fn figures(&self, _: &Report) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// The parameters of workloads.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Parameters {
    /// How many keys there are, for `retwis`, `list-append`, `f1` and `tao`; counters for `counter`;
    /// accounts for `bank`. The workload's own default if `None`.
    pub keys: Option<u64>,
    /// The exponent of the Zipf distribution of keys; 0 is uniform. For `retwis` and `list-append`, which
    /// have 0.9 if it is `None`, `f1` and `tao`, which have 0.8.
    pub theta: Option<f64>,
    /// The length of a key in bytes, at least 8. For `retwis`, `f1`, `tao` and
    /// `ycsb-transactions`.
    pub key_bytes: usize,
    /// The length of every value in bytes, at least 8. For `retwis`, which has 8 if it is `None`, `f1` and
    /// `tao`, whose values then differ in length.
    pub value_bytes: Option<usize>,
    /// The share of transactions that write, from 0 to 1. For `f1`, which has 0.003 if it is `None`,
    /// `f1-wf` 0.3, `tao` 0.002 and `ycsb-transactions` 0.05.
    pub writes: Option<f64>,
    /// Whether writes to keys that were read depend on the values read. For `retwis`.
    pub dependent: bool,
    /// Whether operations on values ([`Transaction::modify`]) take the place of reads and writes. For `counter`, `list-append`,
    /// and `retwis` if it is dependent. Numbers are then decimal text.
    pub modify: bool,
    /// Whether what will be written is read without saying so ([`Transaction::get`]). For `counter`.
    pub plain_reads: bool,
    /// Whether a transaction reads one key after the other, and not several at once. For `retwis` and `tpcc`.
    pub sequential: bool,
    /// How many warehouses there are, from 1 to 65535; 100 if `None`. For `tpcc`.
    pub warehouses: Option<u64>,
    /// How large a warehouse is. For `tpcc`.
    pub scale: Scale,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            keys: None,
            theta: None,
            key_bytes: 8,
            value_bytes: None,
            writes: None,
            dependent: false,
            modify: false,
            plain_reads: false,
            sequential: false,
            warehouses: None,
            scale: Scale::FULL,
        }
    }
}

impl Parameters {
    /// The exponent of the Zipf distribution of keys.
    pub(crate) fn theta_or(&self, usual: f64) -> f64 {
        self.theta.unwrap_or(usual).max(0.0)
    }
}

/// The properties of a workload that its name determines.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// Its name.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    make: Make,
}

/// How a workload is made, by family.
#[derive(Clone, Copy, Debug)]
enum Make {
    Transactions(fn(&Parameters) -> Result<Arc<dyn Workload>, WorkloadError>),
    Registers(fn(&RegisterParameters) -> Result<Arc<dyn RegisterWorkload>, WorkloadError>),
    Procedures(fn(&ProcedureParameters) -> Result<Arc<dyn ProcedureWorkload>, WorkloadError>),
    Snapshots(fn(&SnapshotParameters) -> Result<Arc<dyn SnapshotWorkload>, WorkloadError>),
}

impl WorkloadInfo {
    /// The family of its keyspaces.
    pub fn family(&self) -> FamilyName {
        match self.make {
            Make::Transactions(_) => FamilyName::Transactions,
            Make::Registers(_) => FamilyName::Registers,
            Make::Procedures(_) => FamilyName::Procedures,
            Make::Snapshots(_) => FamilyName::Snapshots,
        }
    }
}

/// The most accounts: every audit reads all of them in one transaction.
const MOST_ACCOUNTS: u64 = 10_000;
/// The most lists at a time: each has a counter.
const MOST_LISTS: u64 = 1 << 20;

/// Checks that so many keys are possible, if their number is chosen.
fn check_keys(keys: Option<u64>, least: u64, most: u64) -> Result<(), WorkloadError> {
    match keys.filter(|keys| !(least..=most).contains(keys)) {
        None => Ok(()),
        Some(keys) if most == u64::MAX => Err(WorkloadError::Keys(format!(
            "{keys} keys are not possible: choose {least} or more"
        ))),
        Some(keys) => Err(WorkloadError::Keys(format!(
            "{keys} keys are not possible: choose from {least} to {most}"
        ))),
    }
}

const WORKLOADS: &[WorkloadInfo] = &[
    WorkloadInfo {
        name: "retwis",
        summary: "a social network: short transactions, half of them read-only (000 Table 4)",
        make: Make::Transactions(|parameters| {
            check_keys(parameters.keys, Retwis::LEAST_KEYS, u64::MAX)?;
            Ok(Arc::new(Retwis::new(parameters)))
        }),
    },
    WorkloadInfo {
        name: "tpcc",
        summary: "orders, payments and deliveries of a wholesale supplier (000 §5.1.1, Table 3)",
        make: Make::Transactions(|parameters| Ok(Arc::new(Tpcc::new(parameters)?))),
    },
    WorkloadInfo {
        name: "f1",
        summary: "rows of 10 columns, read a few at a time, and seldom written (003 Fig. 5, Google-F1)",
        make: Make::Transactions(|parameters| Ok(Arc::new(F1::new(parameters)?))),
    },
    WorkloadInfo {
        name: "f1-wf",
        summary: "the same with many writes (003 §6.4, Google-WF)",
        make: Make::Transactions(|parameters| Ok(Arc::new(F1::write_heavy(parameters)?))),
    },
    WorkloadInfo {
        name: "tao",
        summary: "a social graph: reads of up to 1000 keys, single writes (003 Fig. 5, Facebook-TAO)",
        make: Make::Transactions(|parameters| Ok(Arc::new(Tao::new(parameters)?))),
    },
    WorkloadInfo {
        name: "ycsb-transactions",
        summary: "ycsb-groups as transactions: reads of 5 records, or writes of 5 (004 §7.2)",
        make: Make::Transactions(|parameters| Ok(Arc::new(YcsbTransactions::new(parameters)?))),
    },
    WorkloadInfo {
        name: "bank",
        summary: "transfers between accounts, and audits: the total never changes",
        make: Make::Transactions(|parameters| {
            check_keys(parameters.keys, 2, MOST_ACCOUNTS)?;
            Ok(Arc::new(Bank::new(parameters)))
        }),
    },
    WorkloadInfo {
        name: "list-append",
        summary: "appends to and reads of lists, whose histories speak for themselves",
        make: Make::Transactions(|parameters| {
            check_keys(parameters.keys, 1, MOST_LISTS)?;
            Ok(Arc::new(ListAppend::new(parameters)))
        }),
    },
    WorkloadInfo {
        name: "counter",
        summary: "a few counters that everybody increments",
        make: Make::Transactions(|parameters| {
            check_keys(parameters.keys, 1, u64::MAX)?;
            Ok(Arc::new(Counter::new(parameters)))
        }),
    },
    WorkloadInfo {
        name: "ycsb",
        summary: "registers: reads, writes and read-modify-writes, by shares (001 §4.5)",
        make: Make::Registers(|parameters| Ok(Arc::new(Ycsb::new(parameters)?))),
    },
    WorkloadInfo {
        name: "tail-at-scale",
        summary: "registers: requests of many operations, each as slow as its slowest (001 §4.5.6)",
        make: Make::Registers(|parameters| Ok(Arc::new(Ycsb::tail_at_scale(parameters)?))),
    },
    WorkloadInfo {
        name: "register",
        summary: "registers: operations on a few keys whose histories can be checked",
        make: Make::Registers(|parameters| {
            check_keys(parameters.keys, 1, u64::MAX)?;
            Ok(Arc::new(RegisterMix::new(parameters)?))
        }),
    },
    WorkloadInfo {
        name: "counter-calls",
        summary: "procedures: each call increments a few counters (002 §5.3)",
        make: Make::Procedures(|parameters| {
            check_keys(parameters.keys, 1, u64::MAX)?;
            Ok(Arc::new(CounterCalls::new(parameters)?))
        }),
    },
    WorkloadInfo {
        name: "bank-calls",
        summary: "procedures: transfers that are refused if the balance is too low, and audits",
        make: Make::Procedures(|parameters| {
            check_keys(parameters.keys, 2, MOST_ACCOUNTS)?;
            Ok(Arc::new(BankCalls::new(parameters)?))
        }),
    },
    WorkloadInfo {
        name: "list-append-calls",
        summary: "procedures: appends to and reads of lists, whose histories can be checked",
        make: Make::Procedures(|parameters| {
            check_keys(parameters.keys, 1, MOST_LISTS)?;
            Ok(Arc::new(ListCalls::new(parameters)))
        }),
    },
    WorkloadInfo {
        name: "f1-calls",
        summary: "procedures: the reads and writes of f1 (003 Fig. 5)",
        make: Make::Procedures(|parameters| Ok(Arc::new(OneShotCalls::f1(parameters)?))),
    },
    WorkloadInfo {
        name: "f1-wf-calls",
        summary: "procedures: those of f1-wf (003 §6.4)",
        make: Make::Procedures(|parameters| {
            Ok(Arc::new(OneShotCalls::f1_write_heavy(parameters)?))
        }),
    },
    WorkloadInfo {
        name: "tao-calls",
        summary: "procedures: those of tao (003 Fig. 5)",
        make: Make::Procedures(|parameters| Ok(Arc::new(OneShotCalls::tao(parameters)?))),
    },
    WorkloadInfo {
        name: "tpcc-calls",
        summary: "procedures: TPC-C scaled inside a warehouse (002 §5.4)",
        make: Make::Procedures(|parameters| Ok(Arc::new(TpccCalls::new(parameters)?))),
    },
    WorkloadInfo {
        name: "ycsb-groups",
        summary: "snapshots: read-only transactions of 5 records, and groups of writes (004 §7.2)",
        make: Make::Snapshots(|parameters| {
            check_keys(parameters.keys, 1, u64::MAX)?;
            Ok(Arc::new(YcsbGroups::new(parameters)?))
        }),
    },
    WorkloadInfo {
        name: "eiger",
        summary: "snapshots: read-only and write transactions of 5 rows of 5 columns (004 §9)",
        make: Make::Snapshots(|parameters| {
            check_keys(parameters.keys, 1, u64::MAX)?;
            Ok(Arc::new(Eiger::new(parameters)?))
        }),
    },
    WorkloadInfo {
        name: "snapshot",
        summary: "snapshots: reads and writes of a few keys whose histories can be checked",
        make: Make::Snapshots(|parameters| {
            check_keys(parameters.keys, 1, u64::MAX)?;
            Ok(Arc::new(SnapshotMix::new(parameters)?))
        }),
    },
];

/// All workloads.
pub fn list() -> &'static [WorkloadInfo] {
    WORKLOADS
}

/// The family of the workload called `name`.
///
/// # Errors
/// If there is none. The error says what can be chosen.
pub fn family(name: &str) -> Result<FamilyName, WorkloadError> {
    Ok(info(name)?.family())
}

fn info(name: &str) -> Result<&'static WorkloadInfo, WorkloadError> {
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
    found.ok_or_else(|| WorkloadError::Unknown(name.into()))
}

/// The workload of transactions called `name`.
///
/// # Errors
/// If there is none, or the parameters are not valid for it. The error says what can be chosen.
pub fn named(name: &str, parameters: &Parameters) -> Result<Arc<dyn Workload>, WorkloadError> {
    match info(name)?.make {
        Make::Transactions(make) => make(parameters),
        _ => Err(other_family(name, FamilyName::Transactions)),
    }
}

/// The workload of registers called `name`.
///
/// # Errors
/// As [`named`].
pub fn named_registers(
    name: &str,
    parameters: &RegisterParameters,
) -> Result<Arc<dyn RegisterWorkload>, WorkloadError> {
    match info(name)?.make {
        Make::Registers(make) => make(parameters),
        _ => Err(other_family(name, FamilyName::Registers)),
    }
}

/// The workload of procedures called `name`.
///
/// # Errors
/// As [`named`].
pub fn named_procedures(
    name: &str,
    parameters: &ProcedureParameters,
) -> Result<Arc<dyn ProcedureWorkload>, WorkloadError> {
    match info(name)?.make {
        Make::Procedures(make) => make(parameters),
        _ => Err(other_family(name, FamilyName::Procedures)),
    }
}

/// The workload of snapshots called `name`.
///
/// # Errors
/// As [`named`].
pub fn named_snapshots(
    name: &str,
    parameters: &SnapshotParameters,
) -> Result<Arc<dyn SnapshotWorkload>, WorkloadError> {
    match info(name)?.make {
        Make::Snapshots(make) => make(parameters),
        _ => Err(other_family(name, FamilyName::Snapshots)),
    }
}

fn other_family(name: &str, wanted: FamilyName) -> WorkloadError {
    let names = names(|family| family == wanted);
    WorkloadError::OtherFamily { name: name.into(), wanted, names }
}

/// Why there is no such workload.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("there is no workload `{0}`; choose one of {names}", names = names(|_| true))]
    Unknown(String),
    /// It is a workload of another family than the one that is needed.
    #[error("`{name}` is no workload of {wanted}; choose one of {names}")]
    OtherFamily {
        /// Its name.
        name: String,
        /// The family that is needed.
        wanted: FamilyName,
        /// The workloads of that family.
        names: String,
    },
    /// The shares of reads and writes are not valid.
    #[error(
        "{reads} reads and {writes} writes are no shares: each is from 0 to 1, and so is their sum"
    )]
    Shares {
        /// The share of reads.
        reads: f64,
        /// The share of writes.
        writes: f64,
    },
    /// The share of transactions that write is not valid.
    #[error("{0} is no share of transactions that write: choose from 0 to 1")]
    WriteShare(f64),
    /// The length of rows is not valid.
    #[error("a row of {bytes} bytes is not possible: choose {least} or more")]
    RowBytes {
        /// The length that was requested.
        bytes: usize,
        /// The least that is possible.
        least: usize,
    },
    /// The length of the values of calls is not valid.
    #[error("calls that write values of {bytes} bytes are not possible: choose at most {most}")]
    CallBytes {
        /// The length that was requested.
        bytes: usize,
        /// The greatest that is possible.
        most: usize,
    },
    /// The keys are not valid.
    #[error("{0}")]
    Keys(String),
    /// The number of warehouses of TPC-C is not valid.
    #[error("TPC-C with {0} warehouses is not possible: choose from 1 to {most}", most = u16::MAX)]
    Warehouses(u64),
    /// The scale of TPC-C is not valid.
    #[error("TPC-C at this scale is not possible: {0}")]
    Scale(String),
}

fn names(of: impl Fn(FamilyName) -> bool) -> String {
    let workloads = WORKLOADS.iter().filter(|workload| of(workload.family()));
    workloads.map(|workload| workload.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_of_another_family_is_refused_with_those_of_the_right_one() {
        let error = named("ycsb", &Parameters::default()).err().unwrap().to_string();
        let what = "`ycsb` is no workload of transactions; choose one of retwis, tpcc,";
        assert!(error.starts_with(what), "{error}");
        let error = named_registers("bank", &RegisterParameters::default()).err().unwrap();
        assert!(
            error
                .to_string()
                .starts_with("`bank` is no workload of registers; choose one of ycsb,")
        );
    }

    #[test]
    fn a_number_of_keys_that_is_not_possible_is_refused_by_every_workload() {
        for info in list().iter().filter(|info| !info.name.starts_with("tpcc")) {
            let keys = Some(0);
            let refused = match info.family() {
                FamilyName::Registers => {
                    let parameters = RegisterParameters { keys, ..RegisterParameters::default() };
                    named_registers(info.name, &parameters).err()
                }
                FamilyName::Procedures => {
                    let parameters = ProcedureParameters { keys, ..ProcedureParameters::default() };
                    named_procedures(info.name, &parameters).err()
                }
                FamilyName::Snapshots => {
                    let parameters = SnapshotParameters { keys, ..SnapshotParameters::default() };
                    named_snapshots(info.name, &parameters).err()
                }
                FamilyName::Transactions => {
                    named(info.name, &Parameters { keys, ..Parameters::default() }).err()
                }
            };
            let error = refused.expect(info.name).to_string();
            assert!(error.starts_with("0 keys") && error.contains("choose"), "{error}");
        }
        for (name, keys) in
            [("retwis", 15), ("bank", 1), ("bank", u64::MAX), ("list-append", u64::MAX)]
        {
            let parameters = Parameters { keys: Some(keys), ..Parameters::default() };
            assert!(named(name, &parameters).is_err(), "{name} {keys}");
        }
    }

    #[test]
    fn the_initial_value_of_a_key_is_the_one_that_is_loaded() {
        for info in list().iter().filter(|info| info.family() == FamilyName::Transactions) {
            let small = Parameters {
                keys: Some(20),
                key_bytes: 12,
                warehouses: Some(2),
                scale: Scale::SMALL,
                ..Parameters::default()
            };
            let large = Parameters { keys: None, scale: Scale::FULL, ..small };
            for (parameters, step) in [(small, 1), (large, 30_011)] {
                let workload = named(info.name, &parameters).unwrap();
                let listed = (0..).step_by(step).map_while(|i| workload.initial(i));
                let mut count = 0;
                for (key, value) in listed {
                    assert_eq!(workload.initial_value(&key), Some(value), "{} {key:?}", info.name);
                    count += 1;
                }
                assert!(count > 0 || info.name == "list-append", "{}", info.name);
                for key in ["", "other", "another one, longer than all"] {
                    assert_eq!(workload.initial_value(&Key::from(key)), None, "{}", info.name);
                }
            }
        }
    }
}
