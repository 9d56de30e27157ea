//! Arguments that several commands share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, RangedI64ValueParser};
use serried_model::{Family, Geography, NodeId};
use serried_session::{Backoff, TransactOptions};
use serried_workload::tpcc::Scale;
use serried_workload::{Parameters, Workload};

/// Which workload, and how large.
#[derive(Args, Clone)]
pub(crate) struct WorkloadArguments {
    /// What clients do
    #[arg(value_parser = workloads())]
    pub(crate) workload: String,
    /// How many keys, counters or accounts there are [default: 1000000 for retwis, 10 for bank, 8 for
    /// list-append, 1 for counter]
    #[arg(long)]
    pub(crate) keys: Option<u64>,
    /// The exponent of the Zipf distribution of keys; 0 is uniform
    #[arg(long, default_value_t = 0.9)]
    pub(crate) theta: f64,
    /// The length of a key in bytes
    #[arg(long, default_value_t = 8)]
    pub(crate) key_bytes: usize,
    /// The length of a value in bytes
    #[arg(long, default_value_t = 8)]
    pub(crate) value_bytes: usize,
    /// For retwis: increment the keys that are both read and written, instead of writing values that do
    /// not depend on what was read
    #[arg(long)]
    pub(crate) dependent: bool,
    /// For tpcc: how many warehouses there are, from 1 to 65535; each is some 540,000 keys and 70 MB of data
    /// [default: 100]
    #[arg(long)]
    pub(crate) warehouses: Option<u64>,
    /// For tpcc: warehouses of some 400 keys, with the same transactions; for a quick check
    #[arg(long)]
    pub(crate) small: bool,
}

impl WorkloadArguments {
    pub(crate) fn make(&self) -> anyhow::Result<Arc<dyn Workload>> {
        anyhow::ensure!(
            self.theta >= 0.0 && self.theta.is_finite(),
            "--theta {} is no exponent: it must be 0 or more",
            self.theta
        );
        anyhow::ensure!(
            self.key_bytes >= 8 && self.value_bytes >= 8,
            "keys and values have at least 8 bytes"
        );
        let keys = self.keys.or((self.workload == "retwis").then_some(1_000_000));
        let parameters = Parameters {
            keys,
            theta: self.theta,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            dependent: self.dependent,
            warehouses: self.warehouses,
            scale: if self.small { Scale::SMALL } else { Scale::FULL },
        };
        Ok(serried_workload::named(&self.workload, &parameters)?)
    }
}

/// How the load is made, and for how long.
#[derive(Args, Clone)]
pub(crate) struct LoadArguments {
    /// Protocols to compare, one run each, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "morty,mvtso", value_parser = protocols())]
    pub(crate) protocol: Vec<String>,
    /// How many clients run transactions, each one after the other; several numbers for a run each
    #[arg(long, value_delimiter = ',', default_value = "16")]
    pub(crate) clients: Vec<usize>,
    /// How long to measure, in seconds
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// How long to run before that, in seconds
    #[arg(long, default_value_t = 1.0)]
    pub(crate) warm_up: f64,
    /// How long to run after that, in seconds
    #[arg(long, default_value_t = 0.2)]
    pub(crate) cool_down: f64,
    /// The seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The longest that a transaction may take, all attempts included, in seconds
    #[arg(long, default_value_t = 30.0)]
    pub(crate) deadline: f64,
    /// The longest wait before the first retry of an aborted transaction, in milliseconds; it doubles
    /// from retry to retry
    #[arg(long, default_value_t = 1.0)]
    pub(crate) backoff_first_ms: f64,
    /// The longest wait between two attempts, in milliseconds
    #[arg(long, default_value_t = 2500.0)]
    pub(crate) backoff_most_ms: f64,
    /// Record the history in this file, as JSON lines in Jepsen's form, and check it; with several
    /// runs their protocol and clients are added to its name
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Check the history without writing it anywhere, and what the workload can check of the database
    /// it leaves behind
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl LoadArguments {
    /// Checks what can be wrong before anything is started.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.clients.iter().all(|clients| *clients > 0),
            "--clients must be above 0"
        );
        let times = [self.seconds, self.warm_up, self.cool_down, self.deadline];
        let times = times.into_iter().chain([self.backoff_first_ms, self.backoff_most_ms]);
        for time in times {
            anyhow::ensure!(
                (0.0..1e6).contains(&time),
                "{time} is no time: it must be 0 or more, and below a million"
            );
        }
        anyhow::ensure!(self.seconds > 0.0, "--seconds must be above 0");
        Ok(())
    }

    pub(crate) fn options(&self) -> TransactOptions {
        TransactOptions {
            deadline: Duration::from_secs_f64(self.deadline),
            attempts: u32::MAX,
            backoff: Backoff {
                first: Duration::from_secs_f64(self.backoff_first_ms / 1e3),
                most: Duration::from_secs_f64(self.backoff_most_ms / 1e3),
            },
        }
    }

    pub(crate) fn records(&self) -> bool {
        self.check || self.history.is_some()
    }

    /// The file for the history of one run.
    pub(crate) fn history_file(&self, protocol: &str, clients: usize) -> Option<PathBuf> {
        let file = self.history.as_ref()?;
        if self.protocol.len() * self.clients.len() == 1 {
            return Some(file.clone());
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let extension = file.extension().map_or("jsonl".into(), |e| e.to_string_lossy());
        Some(file.with_file_name(format!("{stem}-{protocol}-{clients}.{extension}")))
    }
}

/// The names of the protocols that have transactions.
pub(crate) fn protocols() -> PossibleValuesParser {
    let protocols = serried_protocols::of(Family::Transactions);
    protocols.map(|protocol| PossibleValue::new(protocol.name).help(protocol.summary)).into()
}

/// The names of all workloads.
fn workloads() -> PossibleValuesParser {
    let workloads = serried_workload::list().iter();
    workloads.map(|workload| PossibleValue::new(workload.name).help(workload.summary)).into()
}

/// The names of all geographies.
pub(crate) fn geographies() -> PossibleValuesParser {
    let geographies = Geography::all().iter();
    geographies.map(|geography| PossibleValue::new(geography.name).help(geography.summary)).into()
}

/// How many partitions there may be.
pub(crate) fn partitions() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=NodeId::PARTITIONS as i64)
}
