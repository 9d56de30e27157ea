//! `serried windows`: what bounds the throughput of the hottest keys.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, Args};
use serde::Serialize;
use serried_actor::{Observation, Observed, Protocol, Timestamp};
use serried_model::{Geography, NodeId, Transactions};
use serried_protocols::Visitor;
use serried_sim::Cluster;
use serried_windows::{
    Collector, Diagnosis, KeyWindows, Setting, analyse, diagnose, text, timeline,
};
use serried_workload::Witnessed;

use crate::Ended;
use crate::hot::{setting, simulated_trips};
use crate::live;
use crate::load::Load;
use crate::misuse::{number, time};
use crate::progress::Progress;
use crate::sim::Sim;

const EXAMPLES: &str = "\
Examples:
  serried windows serried://127.0.0.1:7400 --keyspace accounts
  serried windows serried://127.0.0.1:7400 --keyspace accounts --key alice --for 1s --svg alice.svg
  serried windows --sim counter --geo reg --clients 64
  serried windows --sim retwis --dependent --geo glo --protocol morty --svg windows.svg
  serried windows --sim tpcc --warehouses 4 --clients 32 --for 500ms --json";

/// The most events that are kept: about a hundred bytes each.
pub(crate) const MOST_EVENTS: usize = 1 << 20;
/// This many of the longest round trips are recorded before and after the time that is shown, so that
/// windows at its edges are whole.
pub(crate) const MARGIN_ROUND_TRIPS: u32 = 6;
pub(crate) const LEAST_MARGIN: Duration = Duration::from_millis(250);

/// How many keys are considered for advice, whether they are shown or not.
pub(crate) const CONSIDERED: usize = 16;

/// The most keys to show.
const MOST_HOTTEST: usize = 1000;

/// See what bounds the throughput of the hottest keys.
///
/// A transaction that reads a key and writes it again has two windows on the key: a serialization window,
/// from the write that it has read to its own write, and a validity window, from the commit of what it has
/// read to its own commit. Windows of committed transactions never overlap. So 1 divided by their mean
/// length is the most such transactions that can commit per second. The command finds the keys that are
/// written most during --warm-up. For a part of a second after that it shows their windows, the bound that
/// follows, the throughput that they achieve, and which transactions held them.
///
/// If a key is hot, it also says what would help: an operation on the value in place of a read and a write,
/// reading for update, another protocol, or several keys in place of one. For each it estimates by which factor the
/// throughput changes.
///
/// On a running cluster it watches the nearest node; the other nodes do nothing for it. With --sim it
/// watches a simulation and takes the options of `serried sim`. It makes a run for each protocol and number
/// of clients.
#[derive(Args)]
#[command(after_help = EXAMPLES, mut_args = for_either)]
pub(crate) struct Windows {
    /// Watch a simulation
    #[arg(long = "sim", id = SIMULATED)]
    simulated: bool,
    #[command(flatten)]
    pub(crate) sim: Sim,
    /// The keyspace of a running cluster
    #[arg(long, default_value = "default", conflicts_with = SIMULATED)]
    pub(crate) keyspace: String,
    /// Show this key of a running cluster instead of those written most; may be given several times
    #[arg(
        long = "key",
        id = "key",
        value_name = "KEY",
        conflicts_with = SIMULATED,
        value_parser = NonEmptyStringValueParser::new(),
    )]
    pub(crate) keys: Vec<String>,
    /// How many keys to show
    #[arg(long, default_value_t = 3, value_parser = number(1..=MOST_HOTTEST))]
    pub(crate) hottest: usize,
    /// How long a time is shown, in ms or s
    #[arg(long = "for", id = "for", value_name = "TIME", default_value = "300ms", value_parser = time(60.0))]
    pub(crate) span: Duration,
    /// How many transactions to list for each key
    #[arg(long, default_value_t = 8, value_parser = number(0..=MOST_EVENTS))]
    list: usize,
    /// Draw the windows as a timeline into this file; if there are several runs, each one's protocol and
    /// number of clients are added to the name
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

const SIMULATED: &str = "simulated";
/// The options that have a meaning for a running cluster.
const EITHER: [&str; 9] =
    [SIMULATED, "warm_up", "json", "keyspace", "key", "hottest", "for", "list", "svg"];

/// One argument names what to watch: a workload to simulate, or a running cluster's address. An option that
/// has no meaning for a running cluster is refused with one.
fn for_either(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "workload" => argument
            .value_name("ADDRESS|WORKLOAD")
            .value_parser(clap::builder::NonEmptyStringValueParser::new())
            .help(
                "A cluster's address, serried://host:port,host:port; with --sim, what clients do",
            ),
        id if EITHER.contains(&id) => argument,
        _ => argument.requires(SIMULATED),
    }
}

/// What is shown of a cluster or of a simulation.
pub(crate) struct Shown<'a> {
    pub(crate) keys: &'a [KeyWindows],
    pub(crate) advice: &'a [Diagnosis],
    pub(crate) shown: Range<Timestamp>,
    pub(crate) forgotten: u64,
    /// What was watched.
    pub(crate) title: String,
}

/// What one run shows.
#[derive(Serialize)]
struct Seen {
    protocol: String,
    workload: &'static str,
    clients: usize,
    seed: u64,
    /// Who has observed it: replicas, or clients where replicas report nothing.
    observed_by: &'static str,
    /// What is shown, in nanoseconds of simulated time.
    from_ns: u64,
    until_ns: u64,
    /// How many events were dropped for lack of memory: if there are any, windows are missing.
    forgotten: u64,
    /// Committed transactions per second, and attempts for each.
    committed_per_s: f64,
    attempts_per_txn: f64,
    /// What would help the keys, in their order.
    advice: Vec<Diagnosis>,
    keys: Vec<KeyWindows>,
}

impl Windows {
    pub(crate) fn run(mut self) -> anyhow::Result<Ended> {
        let what = &self.sim.workload.workload;
        if !self.simulated {
            let workloads = serried_workload::list();
            demand!(
                workloads.iter().all(|workload| workload.name != what),
                "`{what}` is no cluster's address: write serried://host:port, or --sim {what}"
            );
            return live::run(&self, what);
        }
        self.sim.load.measure_as_long_as(&self.sim.workload.trace)?;
        let geography = self.sim.validate::<Transactions>()?;
        let load = &self.sim.load;
        let workload = self.sim.workload.workload::<Transactions>()?;
        let protocols = load.protocols::<Transactions>(&*workload)?;
        let numbers = load.clients::<Transactions>(&*workload);
        let several = protocols.len() * numbers.len() > 1;
        for protocol in &protocols {
            for clients in &numbers {
                let run = Run { windows: &self, geography, protocol, clients: *clients };
                let seen = serried_protocols::visit(protocol, run)??;
                self.show_run(&seen, several)?;
            }
        }
        Ok(Ended::Well)
    }

    /// Shows one of `several` runs, or the only one.
    fn show_run(&self, seen: &Seen, several: bool) -> anyhow::Result<()> {
        let Seen { protocol, clients, .. } = seen;
        let svg = self.svg.as_ref().map(|file| {
            if !several {
                return file.clone();
            }
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            file.with_file_name(format!("{stem}-{protocol}-{clients}.svg"))
        });
        let from = Timestamp(seen.from_ns);
        let title = format!(
            "{protocol}, {} with {clients} clients in simulated `{}`: {} ms from {from} on, as {} see it, seed {}",
            seen.workload,
            self.sim.geo,
            self.span.as_secs_f64() * 1e3,
            seen.observed_by,
            seen.seed
        );
        let shown = from..Timestamp(seen.until_ns);
        let shown = Shown {
            keys: &seen.keys,
            advice: &seen.advice,
            shown,
            forgotten: seen.forgotten,
            title,
        };
        self.show(&shown, seen, svg.as_deref())
    }

    /// Prints what is shown, or `json`, and draws it into a file.
    pub(crate) fn show(
        &self,
        seen: &Shown<'_>,
        json: &impl Serialize,
        svg: Option<&Path>,
    ) -> anyhow::Result<()> {
        if let Some(file) = svg {
            std::fs::write(file, timeline(seen.keys, seen.shown.clone()))
                .with_context(|| format!("can't write {}", file.display()))?;
        }
        if self.sim.load.json {
            println!("{}", serde_json::to_string(json)?);
            return Ok(());
        }
        println!("{}\n", seen.title);
        if seen.forgotten > 0 {
            println!("{} events were forgotten: windows are missing\n", seen.forgotten);
        }
        print!("{}", text(seen.keys, seen.advice, seen.shown.start.0, self.list));
        Ok(())
    }
}

struct Run<'a> {
    windows: &'a Windows,
    geography: Geography,
    protocol: &'a str,
    clients: usize,
}

/// The collectors of a run: what replicas say, and what clients know.
#[derive(Clone)]
struct Collectors {
    replicas: Arc<Mutex<Collector>>,
    clients: Arc<Mutex<Collector>>,
    /// When each transaction ended, and how many attempts it took.
    ended: Arc<Mutex<Vec<(Timestamp, u32)>>>,
}

fn lock(collector: &Mutex<Collector>) -> MutexGuard<'_, Collector> {
    collector.lock().expect("nobody panics while observing")
}

impl Collectors {
    fn new() -> Collectors {
        let collector = || Arc::new(Mutex::new(Collector::new(MOST_EVENTS)));
        Collectors { replicas: collector(), clients: collector(), ended: Arc::default() }
    }

    /// A replica has said something.
    fn replica(&self, at: Timestamp, node: NodeId, what: Observation) {
        lock(&self.replicas).observe(Observed { at_ns: at.0, node, what });
    }

    /// A transaction has committed, as its client knows. What it wrote became visible a message's
    /// delay after `written_at`, at the earliest, and the windows are as long as if it had been then.
    fn client(&self, witnessed: Witnessed<'_>) {
        let Witnessed { ended: at, kind, version, attempts, footprint, .. } = witnessed;
        self.ended.lock().expect("nobody panics while observing").push((at, attempts));
        lock(&self.replicas).name(version, kind);
        let mut collector = lock(&self.clients);
        collector.name(version, kind);
        let node = version.coordinator;
        for write in &footprint.writes {
            let what = Observation::Written { key: write.key.clone(), version, revision: 0 };
            collector.observe(Observed { at_ns: footprint.written_at.0, node, what });
        }
        let reads = footprint.reads.iter().map(|read| (read.key.clone(), read.version)).collect();
        let writes = footprint.writes.iter().map(|write| write.key.clone()).collect();
        let what = Observation::Committed { version, reads, writes, leads: true };
        collector.observe(Observed { at_ns: at.0, node, what });
    }
}

impl Visitor<Transactions> for Run<'_> {
    type Output = anyhow::Result<Seen>;

    fn visit<P: Protocol<Family = Transactions>>(self) -> Self::Output {
        let Run { windows, geography, protocol, clients } = self;
        let (sim, arguments) = (&windows.sim, &windows.sim.load);
        let workload = sim.workload.workload::<Transactions>()?;
        let name = workload.name();
        let coordinators = sim.coordinators(geography, clients);
        let run = (protocol, coordinators);
        let configuration = sim.configuration::<Transactions>(geography, run, &workload)?;
        let mut cluster = Cluster::<P>::new(configuration);
        let collectors = Collectors::new();
        let load = Load::<Transactions>::new(
            arguments,
            (protocol, false),
            clients,
            workload,
            Timestamp(0),
        );
        let witness = collectors.clone();
        let load = load.with_witness(Box::new(move |witnessed| {
            witness.client(witnessed);
        }));
        let watcher = collectors.clone();
        cluster.watch(Box::new(move |at, node, what| watcher.replica(at, node, what)));

        let sites = (0..geography.sites.len()).map(|site| geography.longest_round_trip(site));
        let margin = sites.max().unwrap_or_default() * MARGIN_ROUND_TRIPS;
        let margin = margin.max(LEAST_MARGIN);
        let chosen = Timestamp(0) + Duration::from_secs_f64(arguments.warm_up);
        let from = chosen + margin;
        let until = from + windows.span;
        // Clients go on until the recording is over.
        load.measurement.move_window(serried_workload::Window {
            from,
            until,
            stop: until + margin * 2,
        });
        for client in 0..clients {
            let coordinator = client % coordinators;
            let task = load.client(client, &cluster.keyspace(coordinator));
            cluster.spawn(coordinator, task);
        }
        let progress = Progress::new(arguments.json);
        progress.say(format!("{protocol}, {clients} clients: warming up"));
        cluster.run_until(chosen);
        for collector in [&collectors.replicas, &collectors.clients] {
            lock(collector).choose_hottest(windows.hottest.max(CONSIDERED));
        }
        progress.say(format!("{protocol}, {clients} clients: watching"));
        cluster.run_until(until + margin);
        drop((cluster, progress));
        let replicas_speak = lock(&collectors.replicas).heard() > 0;
        let (collector, observed_by) = match replicas_speak {
            true => (&collectors.replicas, "replicas"),
            false => (&collectors.clients, "clients"),
        };
        let collector = std::mem::replace(&mut *lock(collector), Collector::new(1));
        let recording = collector.finish();
        let mut keys = analyse(&recording, from..until);
        // What clients took is known from the beginning of the recording on.
        let ended = collectors.ended.lock().expect("nobody panics while observing");
        let within = ended.iter().filter(|(at, _)| (from..until).contains(at));
        let (committed, attempts) =
            within.fold((0, 0), |(count, sum), (_, attempts)| (count + 1, sum + attempts));
        let attempts_per_txn = f64::from(attempts) / f64::from(committed.max(1));
        let setting = Setting {
            clients: clients as f64,
            committed_per_s: f64::from(committed) / windows.span.as_secs_f64(),
            attempts: Some(attempts_per_txn),
            trips: simulated_trips(&geography, sim, clients)?,
            cores: None,
            ..setting(protocol)
        };
        let mut advice = diagnose(&keys, &setting);
        keys.truncate(windows.hottest);
        advice.truncate(windows.hottest);
        Ok(Seen {
            committed_per_s: setting.committed_per_s,
            attempts_per_txn,
            advice,
            protocol: protocol.to_string(),
            workload: name,
            clients,
            seed: arguments.seed,
            observed_by,
            from_ns: from.0,
            until_ns: until.0,
            forgotten: recording.forgotten,
            keys,
        })
    }
}
