//! `serried bench`: a workload on a real cluster.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serried::{Database, Version};
use serried_model::Geography;
use serried_runtime::Durability;
use serried_workload::{RegisterWorkload, Workload, preload};

use crate::Ended;
use crate::arguments::{LoadArguments, WorkloadArguments, geographies, partitions};
use crate::cluster::{Cluster, Plan};
use crate::cost::Spent;
use crate::family::{self, Clients, Place};
use crate::load::Load;
use crate::progress::Progress;
use crate::table::{self, Row};

/// How many transactions load keys at the same time.
const LOADERS: u64 = 4;

const EXAMPLES: &str = "\
Examples:
  serried bench retwis --clients 16,64
  serried bench retwis --theta 0 --processes --json
  serried bench retwis --geo reg --clients 96
  serried bench counter --clients 64 --check
  serried bench tpcc --warehouses 1 --protocol morty --check
  serried bench f1-wf --keys 100000 --clients 4 --rate 2000
  serried bench bank --connect serried://127.0.0.1:7400 --keyspace accounts
  serried bench ycsb --clients 64 --conflicts 0.25
  serried bench ycsb --reads 0.945 --writes 0.045 --replicas 5 --thrifty --durability sync
  serried bench tail-at-scale --sub-requests 100 --clients 16
  serried bench register --connect serried://127.0.0.1:7400 --keyspace flags --check";

/// How many deletions are under way at once where keys are to be absent.
const DELETIONS: usize = 64;

/// Measure a workload on a real cluster, over TCP.
///
/// Without --connect it starts a cluster of its own on loopback for each run: its nodes are threads of
/// this process, or with --processes processes of their own. All clients run on one thread and share
/// one connection to each node; with --geo they run at each of its sites.
#[derive(Args, Clone)]
#[command(after_help = table::help(EXAMPLES))]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) workload: WorkloadArguments,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    /// Run the nodes as processes of their own
    #[arg(long, conflicts_with = "connect")]
    pub(crate) processes: bool,
    /// How many nodes to start, each with a replica of every partition
    #[arg(long, alias = "nodes", default_value_t = 3)]
    pub(crate) replicas: usize,
    /// How many partitions the keyspace has; nodes have a core for each, as far as the machine has them
    #[arg(long, default_value_t = 1, value_parser = partitions(), conflicts_with = "connect")]
    pub(crate) partitions: u16,
    /// Emulate a geography [default: no delays]
    #[arg(long, conflicts_with = "connect", value_parser = geographies())]
    pub(crate) geo: Option<String>,
    /// Run on the cluster at this address instead; --protocol is then what its keyspace has
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) connect: Option<String>,
    /// The keyspace of that cluster
    #[arg(long, default_value = "default")]
    pub(crate) keyspace: String,
    /// When a commit counts as durable in the clusters it starts: sync, buffered or memory
    #[arg(long, value_name = "HOW", default_value = "memory")]
    pub(crate) durability: Durability,
    /// Where their nodes keep their data [default: a temporary folder]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) data: Option<PathBuf>,
    /// Do not load the workload's keys before each run
    #[arg(long)]
    pub(crate) no_load: bool,
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let (rows, ended) = self.measure()?;
        table::print(&rows, self.load.json);
        Ok(ended)
    }

    /// Makes all runs.
    pub(crate) fn measure(&self) -> anyhow::Result<(Vec<Row>, Ended)> {
        let what = self.workload.clients()?;
        self.load.validate()?;
        self.load.check_arrivals(&what)?;
        let geography = self.geo.as_deref().map(Geography::named).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut rows = Vec::new();
        let mut ended = Ended::Well;
        if let Some(address) = &self.connect {
            let (address, keyspace) = (address.clone(), self.keyspace.clone());
            let cluster = Cluster::Existing { address, keyspace };
            let database = runtime.block_on(cluster.connect(None))?;
            let known = database.keyspaces().into_iter().find(|info| info.name == self.keyspace);
            let protocol = known.map_or(String::new(), |info| info.protocol);
            family::fits(&what, &protocol)?;
            drop(database);
            let run = (protocol.as_str(), self.load.clients.len() > 1);
            for clients in &self.load.clients {
                let (row, run_ended) =
                    runtime.block_on(self.run_on(&cluster, run, *clients, None))?;
                rows.push(row);
                ended = ended.and(run_ended);
            }
            return Ok((rows, ended));
        }
        let checked = what.family().check_replicas(self.replicas);
        checked.map_err(|reason| anyhow::anyhow!("--replicas {}: {reason}", self.replicas))?;
        let protocols = self.load.protocols(&what)?;
        let several = protocols.len() * self.load.clients.len() > 1;
        for protocol in &protocols {
            for clients in &self.load.clients {
                let plan = Plan {
                    nodes: self.replicas,
                    protocol,
                    partitions: self.partitions,
                    settings: self.workload.settings(),
                    geography: self.geo.as_deref(),
                    durability: self.durability,
                    data: self.data.as_deref(),
                };
                let cluster = match self.processes {
                    true => Cluster::processes(&plan)?,
                    false => Cluster::threads(&plan)?,
                };
                let run = self.run_on(&cluster, (protocol, several), *clients, geography);
                let (row, run_ended) = runtime.block_on(run)?;
                rows.push(row);
                ended = ended.and(run_ended);
            }
        }
        Ok((rows, ended))
    }

    async fn run_on(
        &self,
        cluster: &Cluster,
        run: (&str, bool),
        clients: usize,
        geography: Option<Geography>,
    ) -> anyhow::Result<(Row, Ended)> {
        let progress = Progress::new(self.load.json);
        let databases = cluster.connect_everywhere(geography).await?;
        let mut places = Vec::new();
        for database in &databases {
            places.push(Place::open(database, cluster.keyspace()).await?);
        }
        let what = self.workload.clients()?;
        let loaded = match (&what, &places[0]) {
            (Clients::Transactions(workload), Place::Keyspace(keyspace)) => {
                let keyspace = keyspace.with_options(self.load.options());
                Some(self.prepare(&keyspace, &**workload, &progress).await?)
            }
            (Clients::Registers(workload), Place::Registers(registers)) => {
                let is_used = matches!(cluster, Cluster::Existing { .. });
                if is_used && self.load.records() {
                    let registers = registers.with_options(self.load.options());
                    clear(&registers, &**workload, clients, &progress).await?;
                }
                None
            }
            _ => unreachable!("the workload fits the protocol"),
        };
        let now = places[0].now();
        let load = Load::new(&self.load, run, clients, what, now);
        let tasks: Vec<_> =
            (0..clients).map(|i| tokio::spawn(load.client(i, &places[i % places.len()]))).collect();
        let costs = self.watch(&load, &databases, &places[0], &progress).await;
        for task in tasks {
            task.await.context("a client panicked")?;
        }
        progress.say("looking at what was left behind".to_string());
        let inspected = load.inspect(&places[0]).await;
        drop(progress);
        drop(places);
        for database in databases {
            database.close().await;
        }
        let (before, after, committed) = costs;
        let (mut row, ended) = load.finish(loaded, inspected, self.load.json)?;
        row.costs = Some(after.since(&before, committed));
        Ok((row, ended))
    }

    /// Loads the workload's keys, and returns a version that is above all that was there before.
    async fn prepare(
        &self,
        keyspace: &serried::Keyspace,
        workload: &dyn Workload,
        progress: &Progress,
    ) -> anyhow::Result<Version> {
        let marker = keyspace.put("\u{0}serried-bench", "").await?;
        let mut latest = marker.version;
        if !self.no_load {
            let loaded = Cell::new(0);
            let tell = |count| {
                loaded.set(loaded.get() + count);
                progress.say(format!("{} keys loaded", loaded.get()));
            };
            let load = |loader| preload(keyspace, workload, loader, LOADERS, tell);
            let (a, b, c, d) = tokio::try_join!(load(0), load(1), load(2), load(3))?;
            latest = [latest, a, b, c, d].into_iter().max().unwrap_or(latest);
        }
        Ok(latest)
    }

    /// Shows how it goes, and measures what the measured part of the run costs.
    async fn watch(
        &self,
        load: &Load,
        databases: &[Database],
        place: &Place,
        progress: &Progress,
    ) -> (Spent, Spent, u64) {
        let window = load.measurement.window();
        let measurement = &load.measurement;
        let show = async {
            let mut last = (place.now(), measurement.committed_so_far());
            loop {
                place.sleep_until(last.0 + Duration::from_millis(250)).await;
                let now = (place.now(), measurement.committed_so_far());
                let rate = (now.1 - last.1) as f64 / now.0.since(last.0).as_secs_f64();
                progress.say(format!(
                    "{}, {} clients: {:.1} s of {:.1}, {} committed, {rate:.0} per second",
                    load.protocol,
                    load.clients,
                    now.0.0 as f64 / 1e9,
                    window.stop.0 as f64 / 1e9,
                    now.1,
                ));
                last = now;
            }
        };
        let measure = async {
            place.sleep_until(window.from).await;
            let before = (Spent::so_far(databases).await, measurement.committed_so_far());
            place.sleep_until(window.until).await;
            let after = (Spent::so_far(databases).await, measurement.committed_so_far());
            (before.0, after.0, after.1 - before.1)
        };
        tokio::select! {
            costs = measure => costs,
            () = show => unreachable!("it goes on until it is dropped"),
        }
    }
}

/// Deletes all keys that so many clients may touch, as a history of registers begins with none.
async fn clear(
    registers: &serried::Registers,
    workload: &dyn RegisterWorkload,
    clients: usize,
    progress: &Progress,
) -> anyhow::Result<()> {
    let (mut deletions, mut deleted) = (tokio::task::JoinSet::new(), 0);
    for number in workload.keys(clients as u64) {
        if deletions.len() >= DELETIONS {
            deletions.join_next().await.expect("some are under way")??;
        }
        let (registers, key) = (registers.clone(), workload.key(number));
        deletions.spawn(async move { registers.delete(key).await });
        deleted += 1;
        if deleted % 1000 == 0 {
            progress.say(format!("{deleted} keys deleted"));
        }
    }
    while let Some(ended) = deletions.join_next().await {
        ended??;
    }
    Ok(())
}
