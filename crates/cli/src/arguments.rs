//! Arguments that several commands share.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use clap::builder::{
    ArgPredicate, PossibleValue, PossibleValuesParser, RangedI64ValueParser, RangedU64ValueParser,
};
use serried::Backoff;
use serried_actor::{NodeSet, Settings};
use serried_model::{FamilyName, Geography, NodeId};
use serried_node::Replicas;
use serried_protocols::ProtocolInfo;
use serried_workload::{Replay, TRACE, Trace, TraceHeader};

use crate::misuse::{
    LEAST_DEADLINE, MOST_CLIENTS, MOST_KEYS, MOST_SECONDS, MOST_THETA, number, seconds_above_0,
};
use crate::record;
use crate::wing::snapshots::SessionArguments;
use crate::wing::{self, FamilyArguments, Wing};

/// A trace in place of a workload.
#[derive(Args, Clone, Default)]
pub(crate) struct TraceArguments {
    /// In place of a workload, run the transactions of a trace that `serried record` has written, each client those of
    /// one of its clients, with the same pauses between them, over and over
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// With --trace: leave out the pauses between transactions
    #[arg(long)]
    closed: bool,
    /// The trace, once it was read.
    #[arg(skip)]
    read: OnceLock<Arc<Trace>>,
}

impl TraceArguments {
    /// The trace, if there is one.
    fn trace(&self) -> anyhow::Result<Option<&Arc<Trace>>> {
        let Some(file) = &self.trace else { return Ok(None) };
        if let Some(trace) = self.read.get() {
            return Ok(Some(trace));
        }
        let trace = Arc::new(record::read(file)?);
        Ok(Some(self.read.get_or_init(|| trace)))
    }

    /// How long to measure if nothing else is said: as long as the recording took, but not longer than this, and at least
    /// a second. `None` if there is no trace, or no pauses are kept.
    pub(crate) fn usual_seconds(&self, most_s: f64) -> anyhow::Result<Option<f64>> {
        let trace = self.trace()?.filter(|_| !self.closed);
        Ok(trace.map(|trace| trace.header().lasted().as_secs_f64().clamp(1.0, most_s)))
    }

    /// Whether the trace, if there is one, was recorded in this keyspace.
    pub(crate) fn is_of(&self, cluster: &str, keyspace: &str) -> anyhow::Result<bool> {
        let is_of = |header: &TraceHeader| header.cluster == cluster && header.keyspace == keyspace;
        Ok(self.trace()?.is_some_and(|trace| is_of(trace.header())))
    }

    /// The workload that runs the trace, if there is one.
    pub(crate) fn workload(&self) -> anyhow::Result<Option<Arc<Replay>>> {
        let trace = self.trace()?;
        Ok(trace.map(|trace| Arc::new(Replay::new(trace.clone(), !self.closed))))
    }
}

/// Which workload, and how large.
#[derive(Args, Clone)]
pub(crate) struct WorkloadArguments {
    /// What clients do
    #[arg(value_parser = workloads(), required = false, required_unless_present = "trace", hide_default_value = true,
          default_value_if("trace", ArgPredicate::IsPresent, TRACE))]
    pub(crate) workload: String,
    #[command(flatten)]
    pub(crate) trace: TraceArguments,
    /// How many keys, rows, counters, accounts or lists there are [default: 1000000 for retwis, ycsb-groups,
    /// ycsb-transactions and eiger, and for f1, f1-wf and tao with or without -calls, 10 for bank and bank-calls, 8 for
    /// list-append, list-append-calls, register and snapshot, 1 for counter, 1000 for counter-calls; for ycsb and
    /// tail-at-scale 1000 of each client's own, or 1000000 with --theta]
    #[arg(long, value_parser = number(1..=MOST_KEYS))]
    pub(crate) keys: Option<u64>,
    /// The exponent of the Zipf distribution of keys, at most 10; 0 is uniform [default: 0.8 for f1, f1-wf and tao,
    /// with or without -calls, and for eiger, 0.99 for ycsb-groups and ycsb-transactions, 0.9 for others; ycsb and
    /// tail-at-scale have --conflicts unless it is given]
    #[arg(long, value_parser = number(0.0..=MOST_THETA))]
    pub(crate) theta: Option<f64>,
    /// The length of a key in bytes
    #[arg(long, default_value_t = 8, value_parser = number(8..=MOST_KEY_BYTES))]
    pub(crate) key_bytes: usize,
    /// The length of a value in bytes; for eiger that of a column, of which a value has 5 [default: 8; for f1, f1-wf
    /// and their calls 1600 with a standard deviation of 119; for tao and tao-calls 1000 to 4000; 1000 for ycsb-groups
    /// and ycsb-transactions, 128 for eiger]
    #[arg(long, value_parser = number(8..=MOST_VALUE_BYTES))]
    pub(crate) value_bytes: Option<usize>,
    /// For f1, f1-wf and tao, with or without -calls: the share of transactions that write [default: 0.003, 0.3 and
    /// 0.002]. For ycsb-transactions too [default: 0.05]. For snapshots: the share of requests that write [default: 0.05
    /// for ycsb-groups, 0.1 for eiger, 0.5 for snapshot]. For registers: the share of operations that write; operations
    /// that neither read nor write are read-modify-writes. Without --reads, all others read [default: 0.495 for ycsb, 0.009 for tail-at-scale, 0.25 for
    /// register]
    #[arg(long, value_name = "SHARE")]
    pub(crate) writes: Option<f64>,
    #[command(flatten)]
    pub(crate) of_family: FamilyArguments,
    /// For registers, and for protocols with leaders: send requests to no more replicas than a quorum, and to the
    /// others only if one of these is slow
    #[arg(long)]
    pub(crate) thrifty: bool,
    /// For spanner: how far a clock may be from true time, in microseconds. Transactions that write wait for about twice
    /// as long
    #[arg(long, value_name = "MICROSECONDS", default_value_t = Settings::default().uncertainty_us,
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=Settings::MOST_UNCERTAIN_US))]
    pub(crate) uncertainty_us: u64,
}

impl WorkloadArguments {
    /// The workload's family.
    pub(crate) fn family(&self) -> anyhow::Result<FamilyName> {
        demand!(
            !self.trace.closed || self.trace.trace.is_some(),
            "--closed is for traces: write --trace FILE in place of a workload"
        );
        if self.workload == TRACE {
            demand!(
                self.trace.trace.is_some(),
                "`{TRACE}` needs a trace: write --trace FILE in its place"
            );
            self.trace.trace()?;
            return Ok(FamilyName::Transactions);
        }
        Ok(serried_workload::family(&self.workload)?)
    }

    /// What clients do, for people.
    pub(crate) fn title(&self) -> anyhow::Result<String> {
        let TraceArguments { trace: file, closed, .. } = &self.trace;
        Ok(match (file, self.trace.trace()?) {
            (Some(file), Some(trace)) => format!(
                "{}{} ({})",
                file.display(),
                if *closed { " without pauses" } else { "" },
                record::describe(trace)
            ),
            _ => self.workload.clone(),
        })
    }

    /// The settings of clusters that are started for it.
    pub(crate) fn settings(&self) -> Settings {
        let WorkloadArguments { thrifty, uncertainty_us, .. } = *self;
        Settings { thrifty, uncertainty_us, ..Settings::default() }
    }

    /// The workload, which is of the family `W`.
    pub(crate) fn workload<W: Wing>(&self) -> anyhow::Result<Arc<W::Workload>> {
        W::workload(self)
    }
}

/// How transactions arrive if not one after the other.
#[derive(Args, Clone, Default)]
pub(crate) struct OpenLoopArguments {
    /// An open loop: this many transactions per second arrive at all clients together, as a Poisson process,
    /// whether or not earlier ones have ended. Latencies are counted from the arrival
    #[arg(long, value_name = "PER SECOND", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// With --rate: how many transactions each client may have open. A transaction that arrives when there are
    /// as many is dropped, so that an overloaded system can recover; the report says how many were dropped
    #[arg(long, value_name = "NUMBER", default_value_t = 32, requires = "rate",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_OPEN))]
    pub(crate) most_open: usize,
}

/// How long a run is measured if nothing else is said, and how long at most if a trace lasts longer, in seconds.
const USUAL_SECONDS: f64 = 5.0;
const MOST_USUAL_SECONDS: f64 = 60.0;
/// The longest key and value, in bytes.
const MOST_KEY_BYTES: usize = 1 << 16;
const MOST_VALUE_BYTES: usize = 16 << 20;
/// The largest number of transactions that one client may have open.
const MOST_OPEN: u64 = 1 << 16;
/// The largest number of transactions per second that can be scheduled.
pub(crate) const MOST_PER_S: f64 = 1e7;
/// The longest wait between two attempts, in milliseconds.
const MOST_BACKOFF_MS: f64 = 1e6;

/// Reads a number of transactions per second.
fn rate(text: &str) -> Result<f64, String> {
    let read = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= MOST_PER_S);
    read.ok_or_else(|| format!("choose above 0, and at most {MOST_PER_S}"))
}

/// How the load is made, and for how long.
#[derive(Args, Clone)]
pub(crate) struct LoadArguments {
    /// Protocols to compare, one run each, separated by commas [default: morty,mvtso for transactions; for
    /// registers and snapshots all that offer the workload's operations; for procedures the first that
    /// offers what the workload needs]
    #[arg(long, value_delimiter = ',', value_parser = protocols())]
    pub(crate) protocol: Vec<String>,
    /// How many clients there are; without --rate each runs one transaction or request after the other. Several
    /// numbers, separated by commas, are a run each [default: 16; with --trace as many as it has]
    #[arg(long, value_delimiter = ',', value_parser = number(1..=MOST_CLIENTS))]
    pub(crate) clients: Vec<usize>,
    #[command(flatten)]
    pub(crate) open_loop: OpenLoopArguments,
    #[command(flatten)]
    pub(crate) sessions: SessionArguments,
    /// How long to measure, in seconds [default: 5; with --trace as long as the recording took, at least 1 and at most 60]
    #[arg(long, value_parser = seconds_above_0)]
    pub(crate) seconds: Option<f64>,
    /// How long to run before that, in seconds
    #[arg(long, default_value_t = 1.0, value_parser = number(0.0..=MOST_SECONDS))]
    pub(crate) warm_up: f64,
    /// How long to run after that, in seconds
    #[arg(long, default_value_t = 0.2, value_parser = number(0.0..=MOST_SECONDS))]
    pub(crate) cool_down: f64,
    /// The seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The longest that a transaction may take with all its attempts, in seconds
    #[arg(long, default_value_t = 30.0, value_parser = number(LEAST_DEADLINE..=MOST_SECONDS))]
    pub(crate) deadline: f64,
    /// The longest wait before the first retry of an aborted transaction, in milliseconds; it doubles
    /// from retry to retry [default: as long as the last attempt took, at most 1; 1 if --backoff-most-ms is
    /// given]
    #[arg(long, value_parser = number(0.0..=MOST_BACKOFF_MS))]
    pub(crate) backoff_first_ms: Option<f64>,
    /// The longest wait between two attempts, in milliseconds [default: 500; 2500 if --backoff-first-ms is
    /// given]
    #[arg(long, value_parser = number(0.0..=MOST_BACKOFF_MS))]
    pub(crate) backoff_most_ms: Option<f64>,
    /// Record the history in this file, as JSON lines in Jepsen's form, and check it; if there are several
    /// runs, each one's protocol and number of clients are added to the name
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Check the history, and what the workload can check of the database after the run, without writing the
    /// history to a file
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl LoadArguments {
    /// The protocols to run, all of them able to do the workload.
    pub(crate) fn protocols<W: Wing>(&self, workload: &W::Workload) -> anyhow::Result<Vec<String>> {
        if self.protocol.is_empty() {
            return Ok(W::usual_protocols(workload));
        }
        self.protocol.iter().try_for_each(|protocol| wing::fits::<W>(workload, protocol))?;
        Ok(self.protocol.clone())
    }

    /// The numbers of clients, a run each.
    pub(crate) fn clients<W: Wing>(&self, workload: &W::Workload) -> Vec<usize> {
        match self.clients.is_empty() {
            true => vec![W::usual_clients(workload)],
            false => self.clients.clone(),
        }
    }

    /// How long to measure.
    pub(crate) fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(USUAL_SECONDS))
    }

    /// Measures as long as the recording of the trace took, if there is one and no time is given.
    pub(crate) fn measure_as_long_as(&mut self, trace: &TraceArguments) -> anyhow::Result<()> {
        self.seconds = self.seconds.or(trace.usual_seconds(MOST_USUAL_SECONDS)?);
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.deadline)
    }

    pub(crate) fn backoff(&self) -> Backoff {
        let milliseconds = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        match (self.backoff_first_ms, self.backoff_most_ms) {
            (None, None) => Backoff::Following,
            (first, most) => Backoff::Exponential {
                first: milliseconds(first.unwrap_or(1.0)),
                most: milliseconds(most.unwrap_or(2500.0)),
            },
        }
    }

    pub(crate) fn records(&self) -> bool {
        self.check || self.history.is_some()
    }

    /// The file for the history of one run; the only one under a protocol and with so many clients unless
    /// there are `several`.
    pub(crate) fn history_file(
        &self,
        protocol: &str,
        clients: usize,
        several: bool,
    ) -> Option<PathBuf> {
        let file = self.history.as_ref()?;
        if !several {
            return Some(file.clone());
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let extension = file.extension().map_or("jsonl".into(), |e| e.to_string_lossy());
        Some(file.with_file_name(format!("{stem}-{protocol}-{clients}.{extension}")))
    }
}

/// The names of all protocols.
pub(crate) fn protocols() -> PossibleValuesParser {
    names(serried_protocols::list().iter())
}

/// The names of the protocols of a family.
pub(crate) fn protocols_of(family: FamilyName) -> PossibleValuesParser {
    names(serried_protocols::of(family))
}

fn names(protocols: impl Iterator<Item = &'static ProtocolInfo>) -> PossibleValuesParser {
    protocols.map(|protocol| PossibleValue::new(protocol.name).help(protocol.summary)).into()
}

/// The names of all workloads.
fn workloads() -> PossibleValuesParser {
    let workloads = serried_workload::list().iter();
    let listed = workloads.map(|workload| PossibleValue::new(workload.name).help(workload.summary));
    listed.chain([PossibleValue::new(TRACE).hide(true)]).into()
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

/// How many sites there may be.
pub(crate) fn sites() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=NodeSet::CAPACITY as i64)
}

/// Checks that keyspaces of a protocol can have so many sites, with so many nodes each.
///
/// # Errors
/// If they can't. The error says what to choose.
pub(crate) fn check_sites(protocol: &str, sites: u16, each: usize) -> anyhow::Result<()> {
    let replicas = Replicas::default();
    let offers = replicas.find(protocol).is_ok_and(|entry| entry.offers_sites);
    demand!(
        sites == 1 || offers,
        "--sites {sites}: `{protocol}` has only one: choose --protocol {}",
        replicas.with_sites().collect::<Vec<_>>().join(" or ")
    );
    let (nodes, most) = (usize::from(sites) * each, NodeSet::CAPACITY);
    demand!(nodes <= most, "--sites {sites}: {nodes} nodes are too many: choose {most} at most");
    Ok(())
}
