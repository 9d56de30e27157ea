//! `serried bench`: a workload on a real cluster.

mod processes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serried::{Database, TransportOptions};
use serried_model::{FamilyName, Geography};
use serried_node::Durability;
use serried_session::{Alarm, Driver};

use crate::Ended;
use crate::arguments::{
    LoadArguments, WorkloadArguments, check_sites, geographies, partitions, sites,
};
use crate::cluster::{Cluster, Plan};
use crate::cost::Spent;
use crate::load::Load;
use crate::misuse::{Misuse, number};
use crate::progress::Progress;
use crate::table::{self, Row};
use crate::wing::{self, Preparation, Wing, with_wing};
pub(crate) use processes::ClientsSpent;
use processes::{MOST_PROCESSES, Share};

const EXAMPLES: &str = "\
Examples:
  serried bench retwis --clients 16,64
  serried bench retwis --theta 0 --processes --json
  serried bench retwis --geo reg --clients 96
  serried bench counter --clients 64 --check
  serried bench counter --clients 64 --client-processes 8 --modify
  serried bench counter --clients 1 --poll-us 200
  serried bench tpcc --warehouses 1 --protocol morty --check
  serried bench f1-wf --keys 100000 --clients 4 --rate 2000
  serried bench bank --connect serried://127.0.0.1:7400 --keyspace accounts
  serried bench ycsb --clients 64 --conflicts 0.25
  serried bench ycsb --reads 0.945 --writes 0.045 --replicas 5 --thrifty --durability sync
  serried bench tail-at-scale --sub-requests 100 --clients 16
  serried bench eiger --protocol eiger-port --sites 3 --replicas 1
  serried bench --trace accounts.trace --protocol morty,ncc
  serried bench register --connect serried://127.0.0.1:7400 --keyspace flags --check";

/// Measure a workload on a real cluster, over TCP.
///
/// Without --connect it starts a cluster of its own on loopback for each run. The nodes are threads of
/// this process, or with --processes processes of their own. All clients run on one thread and share
/// one connection to each node. So a message carries what many of them ask, which saves much CPU time. With
/// --client-processes they are divided among as many processes, as those of applications are. With --geo
/// there are clients at each of its sites. With --sites the nodes are divided among the keyspace's sites,
/// and a site's nodes are at one place of the geography.
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
    /// Divide the clients among this many processes, each with connections of its own [default: all are in this
    /// process]. Not with --check or --history, nor for workloads of snapshots
    #[arg(long, value_name = "NUMBER", value_parser = number(1..=MOST_PROCESSES), conflicts_with_all = ["check", "history", "geo"])]
    pub(crate) client_processes: Option<usize>,
    /// For how long at most a thread of clients looks for messages before it sleeps, in microseconds. It then spends
    /// processor time that others may need, and answers sooner. Nodes do so for up to 200 us. With --connect add
    /// ?poll_us=N to the address instead
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = number(0..=TransportOptions::MOST_POLL_US), conflicts_with = "connect")]
    pub(crate) poll_us: u64,
    /// This process has some of the clients of another one.
    #[arg(long, hide = true)]
    pub(crate) share: Option<Share>,
    /// How many nodes to start at each site, each with a replica of every partition
    #[arg(long, alias = "nodes", default_value_t = 3)]
    pub(crate) replicas: usize,
    /// How many sites the keyspace has, each of which holds all keys; there are clients at each of them
    #[arg(long, default_value_t = 1, value_parser = sites(), conflicts_with = "connect")]
    pub(crate) sites: u16,
    /// How many partitions the keyspace has; nodes have a core for each, up to the number of the machine's
    #[arg(long, default_value_t = 1, value_parser = partitions(), conflicts_with = "connect")]
    pub(crate) partitions: u16,
    /// Emulate a geography [default: no delays]
    #[arg(long, conflicts_with = "connect", value_parser = geographies())]
    pub(crate) geo: Option<String>,
    /// Run on the cluster at this address; the protocol is then that of its keyspace
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) connect: Option<String>,
    /// The keyspace of that cluster
    #[arg(long, default_value = "default")]
    pub(crate) keyspace: String,
    /// With --trace and --connect: run the trace although the keyspace has keys of it, or is the one in which it was
    /// recorded. The values of these keys are lost
    #[arg(long, requires = "connect")]
    pub(crate) overwrite: bool,
    /// When a commit counts as durable in clusters that it starts: sync, buffered or memory
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
    pub(crate) fn run(mut self) -> anyhow::Result<Ended> {
        self.load.measure_as_long_as(&self.workload.trace)?;
        if let Some(share) = &self.share {
            with_wing!(self.workload.family()?, W => self.run_share::<W>(share))?;
            return Ok(Ended::Well);
        }
        let (rows, ended) = self.measure()?;
        table::print(&rows, self.load.json);
        Ok(ended)
    }

    /// Makes all runs.
    pub(crate) fn measure(&self) -> anyhow::Result<(Vec<Row>, Ended)> {
        with_wing!(self.workload.family()?, W => self.measure_as::<W>())
    }

    fn measure_as<W: Wing>(&self) -> anyhow::Result<(Vec<Row>, Ended)> {
        let workload = self.workload.workload::<W>()?;
        W::check_load(&workload, &self.load)?;
        demand!(
            self.client_processes.is_none() || W::NAME != FamilyName::Snapshots,
            "--client-processes is not for workloads of snapshots, whose clients compare what they have written"
        );
        demand!(
            self.client_processes.is_none() || self.sites == 1,
            "--client-processes is for keyspaces with one site"
        );
        let geography = self.geo.as_deref().map(Geography::named).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut rows = Vec::new();
        let mut ended = Ended::Well;
        if let Some(address) = &self.connect {
            let (address, keyspace) = (address.clone(), self.keyspace.clone());
            let cluster = Cluster::Existing { address, keyspace };
            let database = runtime.block_on(cluster.connect(None, None, 0))?;
            let cluster_name = database.client().cluster();
            demand!(
                self.overwrite || !self.workload.trace.is_of(cluster_name, &self.keyspace)?,
                "the trace was recorded in keyspace `{}` of this cluster, and the run would overwrite its keys: \
                 choose another keyspace, or add --overwrite if their values may be lost",
                self.keyspace
            );
            let known = database.keyspaces().into_iter().find(|info| info.name == self.keyspace);
            let protocol = known.map_or(String::new(), |info| info.protocol);
            let fits = wing::fits::<W>(&workload, &protocol);
            fits.map_err(|wrong| {
                Misuse(format!(
                    "{wrong}; the protocol is that of keyspace `{}`: choose another --keyspace or workload",
                    self.keyspace
                ))
            })?;
            drop(database);
            let numbers = self.load.clients::<W>(&workload);
            let run = (protocol.as_str(), numbers.len() > 1);
            for clients in &numbers {
                let (row, run_ended) =
                    runtime.block_on(self.run_on::<W>(&cluster, run, *clients, None))?;
                rows.push(row);
                ended = ended.and(run_ended);
            }
            return Ok((rows, ended));
        }
        let checked = W::NAME.check_replicas(self.replicas);
        checked.map_err(|reason| Misuse(format!("--replicas {}: {reason}", self.replicas)))?;
        let protocols = self.load.protocols::<W>(&workload)?;
        protocols
            .iter()
            .try_for_each(|protocol| check_sites(protocol, self.sites, self.replicas))?;
        let numbers = self.load.clients::<W>(&workload);
        let several = protocols.len() * numbers.len() > 1;
        for protocol in &protocols {
            for clients in &numbers {
                let plan = Plan {
                    nodes: usize::from(self.sites) * self.replicas,
                    sites: self.sites,
                    protocol,
                    partitions: self.partitions,
                    settings: self.workload.settings(),
                    geography: self.geo.as_deref(),
                    durability: self.durability,
                    limits: W::limits(&workload),
                    data: self.data.as_deref(),
                };
                let mut cluster = match self.processes {
                    true => Cluster::processes(&plan)?,
                    false => Cluster::threads(&plan)?,
                };
                let run = self.run_on::<W>(&cluster, (protocol, several), *clients, geography);
                let done = runtime.block_on(run);
                cluster.check()?;
                let (row, run_ended) = done?;
                rows.push(row);
                ended = ended.and(run_ended);
            }
        }
        Ok((rows, ended))
    }

    async fn run_on<W: Wing>(
        &self,
        cluster: &Cluster,
        run: (&str, bool),
        clients: usize,
        geography: Option<Geography>,
    ) -> anyhow::Result<(Row, Ended)> {
        let progress = Progress::new(self.load.json);
        let databases = cluster.connect_everywhere(geography, self.sites, self.poll_us).await?;
        let mut keyspaces = Vec::new();
        for database in &databases {
            keyspaces.push(database.open::<W>(cluster.keyspace()).await?);
        }
        let workload = self.workload.workload::<W>()?;
        let preparation = Preparation {
            arguments: &self.load,
            loads: !self.no_load,
            overwrites: self.overwrite,
            is_used: matches!(cluster, Cluster::Existing { .. }),
            clients,
            progress: &progress,
        };
        let keyspace = W::with_options(&keyspaces[0], W::options(&self.load));
        let data_before = W::prepare(&keyspace, &workload, preparation).await?;
        let driver = W::driver(&keyspaces[0]);
        if let Some(processes) = self.client_processes {
            drop(progress);
            let row = self
                .run_processes::<W>(cluster, run, (clients, processes), &databases, driver)
                .await?;
            return Ok((row, Ended::Well));
        }
        let load = Load::<W>::new(&self.load, run, clients, workload, driver.now());
        let client = |i| tokio::spawn(load.client(i, &keyspaces[i % keyspaces.len()]));
        let tasks: Vec<_> = (0..clients).map(client).collect();
        let costs = self.watch(&load, &databases, driver, &progress).await;
        for task in tasks {
            task.await.context("a client panicked")?;
        }
        progress.say("looking at what was left behind".to_string());
        let inspected = load.inspect(&keyspaces[0]).await;
        drop(progress);
        drop(keyspaces);
        for database in databases {
            database.close().await;
        }
        let (before, after, committed) = costs;
        let (mut row, ended) = load.finish(data_before, inspected, self.load.json)?;
        row.costs = Some(after.since(&before, committed));
        Ok((row, ended))
    }

    /// Shows how it goes, and measures what the measured part of the run costs.
    async fn watch<W: Wing>(
        &self,
        load: &Load<W>,
        databases: &[Database],
        driver: Arc<dyn Driver>,
        progress: &Progress,
    ) -> (Spent, Spent, u64) {
        let window = load.measurement.window();
        let measurement = &load.measurement;
        let sleep_until = |at| Alarm::at(driver.clone(), at).wait();
        let show = async {
            let mut last = (driver.now(), measurement.committed_so_far());
            loop {
                sleep_until(last.0 + Duration::from_millis(250)).await;
                let now = (driver.now(), measurement.committed_so_far());
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
            sleep_until(window.from).await;
            let before = (Spent::so_far(databases).await, measurement.committed_so_far());
            sleep_until(window.until).await;
            let after = (Spent::so_far(databases).await, measurement.committed_so_far());
            (before.0, after.0, after.1 - before.1)
        };
        tokio::select! {
            costs = measure => costs,
            () = show => unreachable!("it goes on until it is dropped"),
        }
    }
}
