//! `serried windows`: what bounds the throughput of the hottest keys.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serried_actor::{Observation, Protocol, Timestamp};
use serried_model::{Geography, NodeId, Version};
use serried_protocols::Visitor;
use serried_session::Footprint;
use serried_sim::Cluster;
use serried_windows::{Collector, KeyWindows, Observed, analyse, text, timeline};

use crate::Ended;
use crate::load::Load;
use crate::progress::Progress;
use crate::sim::Sim;

const EXAMPLES: &str = "\
Examples:
  serried windows --sim counter --geo reg --clients 64
  serried windows --sim retwis --dependent --geo glo --protocol morty --svg windows.svg
  serried windows --sim tpcc --warehouses 4 --clients 32 --span-ms 500 --json";

/// The most events that are kept: about a hundred bytes each.
const MOST_EVENTS: usize = 1 << 20;
/// So many of the longest round trips are recorded before and after the time that is shown, so that
/// windows at its edges are whole.
const MARGIN_ROUND_TRIPS: u32 = 6;
const LEAST_MARGIN: Duration = Duration::from_millis(250);

/// See what bounds the throughput of the hottest keys.
///
/// A transaction that reads a key and writes it again has a serialization window on the key, from the
/// write that it has read to its own, and a validity window, from the commit of what it has read to its
/// own. Windows of committed transactions never overlap, so that one over their mean length is the most
/// that such a key can do per second. Shown are the keys that are written most, for a part of a second
/// after --warm-up: their windows, the bound that follows, what they achieve, and which transactions
/// held them. Takes the options of `serried sim`; a run for each protocol and number of clients.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Windows {
    /// Watch a simulation
    #[arg(long = "sim", required = true)]
    simulated: bool,
    #[command(flatten)]
    sim: Sim,
    /// How many keys to show
    #[arg(long, default_value_t = 3)]
    hottest: usize,
    /// How long to watch, in milliseconds
    #[arg(long, default_value_t = 300.0)]
    span_ms: f64,
    /// How many transactions to list of each key
    #[arg(long, default_value_t = 8)]
    list: usize,
    /// Draw the windows as a timeline into this file; with several runs their protocol and clients are
    /// added to its name
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What one run shows.
#[derive(Serialize)]
struct Seen {
    protocol: String,
    workload: &'static str,
    clients: usize,
    seed: u64,
    /// Who has observed it: replicas, or clients where replicas say nothing.
    observed_by: &'static str,
    /// What is shown, in nanoseconds of simulated time.
    from_ns: u64,
    until_ns: u64,
    /// How many events were forgotten for want of room: if any, windows are missing.
    forgotten: u64,
    keys: Vec<KeyWindows>,
}

impl Windows {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let geography = self.sim.validate()?;
        anyhow::ensure!(self.hottest > 0, "--hottest must be above 0");
        anyhow::ensure!(
            self.span_ms > 0.0 && self.span_ms <= 60_000.0,
            "--span-ms {}: it must be above 0, and at most a minute",
            self.span_ms
        );
        let load = &self.sim.load;
        for protocol in &load.protocol {
            for clients in &load.clients {
                let run = Run { windows: &self, geography, protocol, clients: *clients };
                let seen = serried_protocols::visit(protocol, run)??;
                self.show(&seen)?;
            }
        }
        Ok(Ended::Well)
    }

    fn show(&self, seen: &Seen) -> anyhow::Result<()> {
        let Seen { protocol, clients, from_ns, until_ns, .. } = seen;
        if let Some(file) = &self.svg {
            let file = match self.sim.load.protocol.len() * self.sim.load.clients.len() {
                1 => file.clone(),
                _ => {
                    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
                    file.with_file_name(format!("{stem}-{protocol}-{clients}.svg"))
                }
            };
            let svg = timeline(&seen.keys, Timestamp(*from_ns)..Timestamp(*until_ns));
            std::fs::write(&file, svg)
                .with_context(|| format!("can't write {}", file.display()))?;
        }
        if self.sim.load.json {
            println!("{}", serde_json::to_string(seen)?);
            return Ok(());
        }
        println!(
            "{protocol}, {} with {clients} clients in simulated `{}`: {} ms from {} on, as {} see it, seed {}\n",
            seen.workload,
            self.sim.geo,
            self.span_ms,
            Timestamp(*from_ns),
            seen.observed_by,
            seen.seed
        );
        if seen.forgotten > 0 {
            println!("{} events were forgotten: windows are missing\n", seen.forgotten);
        }
        print!("{}", text(&seen.keys, *from_ns, self.list));
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
}

fn lock(collector: &Mutex<Collector>) -> MutexGuard<'_, Collector> {
    collector.lock().expect("nobody panics while observing")
}

impl Collectors {
    fn new() -> Collectors {
        let collector = || Arc::new(Mutex::new(Collector::new(MOST_EVENTS)));
        Collectors { replicas: collector(), clients: collector() }
    }

    /// A replica has said something.
    fn replica(&self, at: Timestamp, node: NodeId, what: Observation) {
        lock(&self.replicas).observe(Observed { at_ns: at.0, node, what });
    }

    /// A transaction has committed, as its client knows. What it wrote became visible a message's
    /// delay after `written_at`, at the earliest, and the windows are as long as if it had been then.
    fn client(&self, at: Timestamp, kind: &'static str, version: Version, footprint: &Footprint) {
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
        let what = Observation::Committed { version, reads, writes };
        collector.observe(Observed { at_ns: at.0, node, what });
    }
}

impl Visitor for Run<'_> {
    type Output = anyhow::Result<Seen>;

    fn visit<P: Protocol>(self) -> Self::Output {
        let Run { windows, geography, protocol, clients } = self;
        let (sim, arguments) = (&windows.sim, &windows.sim.load);
        let workload = sim.workload.make()?;
        let name = workload.name();
        let configuration = sim.configuration(geography, clients, workload.clone())?;
        let mut cluster = Cluster::<P>::new(configuration);
        let collectors = Collectors::new();
        let load = Load::new(arguments, protocol, clients, workload, Timestamp(0));
        let witness = collectors.clone();
        let load = load.with_witness(Box::new(move |at, kind, version, footprint| {
            witness.client(at, kind, version, footprint);
        }));
        let watcher = collectors.clone();
        cluster.watch(Box::new(move |at, node, what| watcher.replica(at, node, what)));

        let sites = (0..geography.sites.len()).map(|site| geography.longest_round_trip(site));
        let margin = sites.max().unwrap_or_default() * MARGIN_ROUND_TRIPS;
        let margin = margin.max(LEAST_MARGIN);
        let chosen = Timestamp(0) + Duration::from_secs_f64(arguments.warm_up);
        let from = chosen + margin;
        let until = from + Duration::from_secs_f64(windows.span_ms / 1e3);
        // Clients go on until the recording is over.
        load.measurement.move_window(serried_workload::Window {
            from,
            until,
            stop: until + margin * 2,
        });
        for client in 0..clients {
            let client_loop = load.client(client, &cluster.keyspace(client));
            cluster.spawn(client, client_loop.run());
        }
        let progress = Progress::new(arguments.json);
        progress.say(format!("{protocol}, {clients} clients: warming up"));
        cluster.run_until(chosen);
        for collector in [&collectors.replicas, &collectors.clients] {
            lock(collector).choose_hottest(windows.hottest);
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
        Ok(Seen {
            protocol: protocol.to_string(),
            workload: name,
            clients,
            seed: arguments.seed,
            observed_by,
            from_ns: from.0,
            until_ns: until.0,
            forgotten: recording.forgotten,
            keys: analyse(&recording, from..until),
        })
    }
}
