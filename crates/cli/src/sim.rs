//! `serried sim`: a workload in simulated time.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use clap::builder::ArgPredicate;
use serried_actor::{Protocol, Timestamp};
use serried_model::Geography;
use serried_node::Durability;
use serried_protocols::Visitor;
use serried_sim::{Clocks, Cluster, Configuration, Disk, NetworkFaults};

use crate::Ended;
use crate::arguments::{LoadArguments, WorkloadArguments, geographies, partitions};
use crate::costs::CostArguments;
use crate::faults::FaultArguments;
use crate::load::{Inspected, Load};
use crate::misuse::{Misuse, number, partial_share};
use crate::progress::Progress;
use crate::table::{self, Row, Simulation};
use crate::wing::{Wing, with_wing};

const EXAMPLES: &str = "\
Examples:
  serried sim retwis --geo reg --clients 64,256
  serried sim counter --geo glo --protocol morty --clients 64 --seconds 20
  serried sim tpcc --geo reg --warehouses 10 --clients 100
  serried sim f1 --geo lan --partitions 8 --replicas 1 --cores 1 --rate 50000
  serried sim tao --geo lan --rate 500 --clients 8
  serried sim bank --geo con --loss 0.01 --reordering 0.1 --check --seed 7
  serried sim list-append --faults crashes,blackouts,partitions --check --seed 3
  serried sim ycsb --geo gryff-3 --clients 48 --conflicts 0.25 --thrifty
  serried sim tail-at-scale --geo gryff-5 --replicas 5 --clients 80 --sub-requests 100
  serried sim register --geo lan --loss 0.01 --check
  serried sim --trace accounts.trace --geo reg --protocol morty,ncc
  serried sim list-append-calls --geo lan --partitions 4 --faults crashes --check";

/// So many clients share a coordinator at most. Under some protocols versions of more open transactions of one coordinator may be
/// equal, which a check of the history would report (ARCHITECTURE.md, "Known limits").
const MOST_AT_ONE: usize = 32;
/// The longest that the inspection of a database may take, in simulated time.
const INSPECTION: Duration = Duration::from_secs(100_000);

/// How long writing a record takes before it is flushed.
const RECORD: Duration = Duration::from_micros(5);
/// The longest flush, in microseconds.
const MOST_FLUSH_US: u64 = 60_000_000;
/// The most cores of a replica.
const MOST_CORES: usize = 4096;
/// By how much clocks can be off, in milliseconds: a minute.
const MOST_SKEW_MS: f64 = 6e4;

/// Measure a workload in simulated time, in any geography.
///
/// The protocols, sessions and workloads are those of a real cluster. The network, the clocks, the disks
/// and the processors are simulated, in one thread, and one seed determines everything. Each client has
/// a coordinator of its own. Clients are spread evenly over the replicas' sites.
#[derive(Args)]
#[command(after_help = table::help(EXAMPLES))]
pub(crate) struct Sim {
    #[command(flatten)]
    pub(crate) workload: WorkloadArguments,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    /// The geography: how far the sites are from each other. With --shared-cores it is loopback, unless another one is given
    #[arg(long, default_value = "reg", value_parser = geographies(),
        default_value_if("shared_cores", ArgPredicate::IsPresent, "loopback"))]
    pub(crate) geo: String,
    /// How many replicas there are
    #[arg(long, default_value_t = 3)]
    pub(crate) replicas: usize,
    /// How many partitions the keyspace has, each with --replicas replicas
    #[arg(long, default_value_t = 1, value_parser = partitions())]
    partitions: u16,
    /// How many cores a replica has
    #[arg(long, default_value_t = 20, value_parser = number(1..=MOST_CORES))]
    cores: usize,
    /// Run everything on one machine with this many cores, as `serried bench` does: each replica is a process with one
    /// thread, and so are all clients together. A process reads and writes a connection once for all messages that it
    /// finds, and all clients of a site share its connections. The share of replica CPU is then one of all these cores [default: each replica has a machine with --cores, and each client one with one core]
    #[arg(long, value_name = "NUMBER", value_parser = number(1..=MOST_CORES))]
    pub(crate) shared_cores: Option<usize>,
    /// When a commit counts as durable: sync, buffered or memory
    #[arg(long, value_name = "HOW", default_value = "memory")]
    durability: Durability,
    /// With --durability sync: how long a disk takes for a flush, in microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200, value_parser = number(0..=MOST_FLUSH_US))]
    flush_us: u64,
    #[command(flatten)]
    pub(crate) costs: CostArguments,
    /// By how much clocks are off at most, in milliseconds [default: 0.5, and 0 with --shared-cores, as one machine has one
    /// clock]
    #[arg(long, value_parser = number(0.0..=MOST_SKEW_MS))]
    skew_ms: Option<f64>,
    /// By which share of a link's delay a message may be late
    #[arg(long, default_value_t = 0.01, value_parser = partial_share)]
    jitter: f64,
    /// The share of messages that are lost
    #[arg(long, default_value_t = 0.0, value_parser = partial_share)]
    loss: f64,
    /// The share of messages that arrive twice
    #[arg(long, default_value_t = 0.0, value_parser = partial_share)]
    duplication: f64,
    /// The share of messages that later ones may overtake
    #[arg(long, default_value_t = 0.0, value_parser = partial_share)]
    reordering: f64,
    #[command(flatten)]
    pub(crate) faults: FaultArguments,
}

impl Sim {
    /// Checks what can be wrong before anything is started; returns the geography.
    pub(crate) fn validate<W: Wing>(&self) -> anyhow::Result<Geography> {
        let workload = self.workload.workload::<W>()?;
        W::check_load(&workload, &self.load)?;
        let geography = Geography::named(&self.geo)?;
        self.load.protocols::<W>(&workload)?;
        self.costs.read()?;
        // Costs of one machine are there for all protocols or for none.
        self.shared_cores.map(|cores| self.costs.one_machine(cores, "")).transpose()?;
        let checked = W::NAME.check_replicas(self.replicas);
        checked.map_err(|reason| Misuse(format!("--replicas {}: {reason}", self.replicas)))?;
        Ok(geography)
    }

    /// How many coordinators the clients have: each its own, or on one machine those of a site one, unless they are many.
    pub(crate) fn coordinators(&self, geography: Geography, clients: usize) -> usize {
        match self.shared_cores {
            Some(_) => clients.min(geography.sites.len()).max(clients.div_ceil(MOST_AT_ONE)),
            None => clients,
        }
    }

    /// The configuration of a run of this protocol with so many coordinators of clients.
    pub(crate) fn configuration<W: Wing>(
        &self,
        geography: Geography,
        (protocol, clients): (&str, usize),
        workload: &Arc<W::Workload>,
    ) -> anyhow::Result<Configuration> {
        let costs = self.costs.read()?;
        let shared = self.shared_cores.map(|cores| self.costs.one_machine(cores, protocol));
        Ok(Configuration {
            seed: self.load.seed,
            replicas: self.replicas,
            partitions: self.partitions,
            clients,
            geography,
            network: NetworkFaults {
                jitter: self.jitter,
                loss: self.loss,
                duplication: self.duplication,
                reordering: self.reordering,
                extra_delay: geography.longest_round_trip(0) / 2,
            },
            clocks: Clocks { skew: self.skew(), drift_ppm: 0 },
            replica_cores: self.cores,
            one_machine: shared.transpose()?,
            disk: self.disk(),
            costs: costs.replica,
            client_costs: Some(costs.client),
            settings: self.workload.settings(),
            initial: W::initial(workload),
            limits: W::limits(workload),
            ..Configuration::default()
        })
    }

    /// By how much clocks are off at most.
    fn skew(&self) -> Duration {
        let usual_ms = if self.shared_cores.is_some() { 0.0 } else { 0.5 };
        Duration::from_secs_f64(self.skew_ms.unwrap_or(usual_ms) / 1e3)
    }

    /// The disk of a machine.
    fn disk(&self) -> Disk {
        let disk = |flush| Disk { append: RECORD, flush, keep_records: false };
        match self.durability {
            Durability::Memory => Disk::MEMORY,
            Durability::Buffered => disk(Duration::ZERO),
            Durability::Sync => disk(Duration::from_micros(self.flush_us)),
        }
    }

    pub(crate) fn run(mut self) -> anyhow::Result<Ended> {
        self.load.measure_as_long_as(&self.workload.trace)?;
        with_wing!(self.workload.family()?, W => self.run_as::<W>())
    }

    fn run_as<W: Wing>(self) -> anyhow::Result<Ended> {
        let geography = self.validate::<W>()?;
        let mut rows = Vec::new();
        let mut ended = Ended::Well;
        let workload = self.workload.workload::<W>()?;
        let protocols = self.load.protocols::<W>(&workload)?;
        let numbers = self.load.clients::<W>(&workload);
        let several = protocols.len() * numbers.len() > 1;
        for protocol in &protocols {
            for clients in &numbers {
                let (row, run_ended) =
                    self.run_once::<W>(geography, protocol, several, *clients)?;
                rows.push(row);
                ended = ended.and(run_ended);
            }
        }
        if !self.load.json {
            let Sim { workload, load, .. } = &self;
            let (title, place) = (workload.title()?, geography.name);
            println!("seed {}: {title} in simulated `{place}`", load.seed);
        }
        table::print(&rows, self.load.json);
        Ok(ended)
    }

    /// Makes one of `several` runs, or the only one.
    pub(crate) fn run_once<W: Wing>(
        &self,
        geography: Geography,
        protocol: &str,
        several: bool,
        clients: usize,
    ) -> anyhow::Result<(Row, Ended)> {
        W::visit(protocol, Run { sim: self, geography, protocol, several, clients })?
    }
}

struct Run<'a> {
    sim: &'a Sim,
    geography: Geography,
    protocol: &'a str,
    /// Whether there are other runs.
    several: bool,
    clients: usize,
}

impl<W: Wing> Visitor<W> for Run<'_> {
    type Output = anyhow::Result<(Row, Ended)>;

    fn visit<P: Protocol<Family = W>>(self) -> Self::Output {
        let Run { sim, geography, protocol, several, clients } = self;
        let seed = sim.load.seed;
        let workload = sim.workload.workload::<W>()?;
        let coordinators = sim.coordinators(geography, clients);
        let configuration =
            sim.configuration::<W>(geography, (protocol, coordinators), &workload)?;
        let load = Load::<W>::new(&sim.load, (protocol, several), clients, workload, Timestamp(0));
        let lasts = load.measurement.window().stop.since(Timestamp(0));
        let (configuration, plan) = sim.faults.apply_to(configuration, lasts);
        let mut cluster = Cluster::<P>::new(configuration);
        if let Some(plan) = &plan {
            cluster.follow(plan);
            for fault in plan.faults.iter().filter(|_| !sim.load.json) {
                println!("{protocol}, {clients} clients: {fault}");
            }
        }
        for client in 0..clients {
            let coordinator = client % coordinators;
            let task = load.client(client, &cluster.keyspace(coordinator));
            cluster.spawn(coordinator, task);
        }
        let window = load.measurement.window();
        let progress = Progress::new(sim.load.json);
        let started = Instant::now();
        let mut at = Timestamp(0);
        while at < window.stop {
            at = (at + Duration::from_millis(100)).min(window.stop);
            cluster.run_until(at);
            progress.say(format!(
                "{protocol}, {clients} clients: {at} of {} simulated, {} committed",
                window.stop,
                load.measurement.committed_so_far()
            ));
        }
        let simulated = cluster.statistics();
        let limit = window.stop + Duration::from_secs_f64(sim.load.deadline) * 2;
        let finished = cluster.run_until_done(limit);
        finished.with_context(|| format!("{protocol} with {clients} clients"))?;
        let took = started.elapsed().as_secs_f64();
        let (inspected, load) = inspect(&mut cluster, load, &progress)?;
        drop(progress);
        let all_committed = load.measurement.committed_so_far().max(1) as f64;
        let busy: Duration = simulated.replica_busy.iter().sum();
        let all_busy = busy + simulated.client_busy;
        let own = sim.replicas * sim.cores * usize::from(sim.partitions);
        let cores = sim.shared_cores.unwrap_or(own) as f64;
        let simulation = Simulation {
            geography: geography.name.to_string(),
            seed,
            event_hash: format!("{:016x}", cluster.event_hash()),
            events: cluster.events(),
            events_per_second: Some(cluster.events() as f64 / took),
            messages_per_txn: simulated.messages.total() as f64 / all_committed,
            cpu_us_per_txn: all_busy.as_secs_f64() * 1e6 / all_committed,
            replica_cpu: busy.as_secs_f64() / (window.stop.0 as f64 / 1e9) / cores,
        };
        drop(cluster);
        let (mut row, ended) = load.finish(W::Before::default(), inspected, sim.load.json)?;
        row.simulation = Some(simulation);
        Ok((row, ended))
    }
}

/// Lets the workload inspect the database that the run has left, as the first client.
fn inspect<W: Wing, P: Protocol<Family = W>>(
    cluster: &mut Cluster<P>,
    load: Load<W>,
    progress: &Progress,
) -> anyhow::Result<(Inspected, Load<W>)> {
    progress.say("looking at what was left behind".to_string());
    let keyspace = cluster.keyspace(0);
    let (sender, receiver) = mpsc::channel();
    cluster.spawn(0, async move {
        let inspected = load.inspect(&keyspace).await;
        // The receiver outlives the run.
        let _ = sender.send((inspected, load));
    });
    let limit = cluster.now() + INSPECTION;
    cluster.run_until_done(limit).context("the inspection of the database")?;
    receiver.recv().context("the inspection of the database ended without a result")
}
