//! Runs loads on a real cluster and in the simulator, and fits costs to the measurements.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serried::{
    ConnectError, ConnectOptions, Database, Statistics, TransactionError, TransportOptions,
};
use serried_actor::{Protocol, Timestamp};
use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions, StartError};
use serried_model::Transactions;
use serried_protocols::{UnknownProtocol, Visitor};
use serried_session::TransactOptions;
use serried_sim::{Cluster, Configuration, CostModel, Initial, Load};
use serried_workload::{
    ClosedLoop, Measurement, Parameters, Window, Workload, WorkloadError, named, preload,
};

use crate::cpu::CpuTime;
use crate::fit::{Fit, WITH_BYTES, WITHOUT_BYTES, fit};
use crate::load::{LOADS, LONG_LOADS, Touch};
use crate::sample::{Sample, Work};

const KEYSPACE: &str = "calibration";
const REPLICAS: usize = 3;
/// Clients run until they are stopped.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// A run with fewer transactions than this is measured for longer, up to `LONGER` times as long.
const LEAST_TRANSACTIONS: u64 = 100;
const LONGER: usize = 100;
/// Loads with few clients have one in so many.
const FEW: usize = 8;
/// The load whose system calls per event the simulator charges.
pub const TYPICAL: &str = "retwis, uniform";

/// The options of a calibration.
#[derive(Clone, Debug)]
pub struct Calibrate {
    /// The protocol, by its name in the registry.
    pub protocol: String,
    /// How many clients there are. In half of the loads each has connections of its own, and in the others all share
    /// them.
    pub clients: usize,
    /// How long to measure each run. A warm-up of a quarter of this comes before.
    pub measured: Duration,
    /// How often to run each load. The run with the least CPU time counts, because other work of the machine makes a
    /// run cost more, never less.
    pub rounds: usize,
    /// Whether to measure only what matters if all nodes run on one machine: clients share their connections in all
    /// loads, and a byte has a cost, which loads with long values show. In half of the loads there are few clients, so
    /// that a system call is for few messages.
    pub shared: bool,
}

/// The result of a calibration.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Calibration {
    /// The costs at replicas.
    pub replica: Side,
    /// The costs at clients, including those of the closed loop and its measurements.
    pub client: Side,
    /// The measurements.
    pub samples: Vec<Sample>,
}

/// The costs of one side.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Side {
    /// The costs. The simulator has no system calls, so each event is charged for those that it causes under
    /// [`TYPICAL`].
    pub costs: CostModel,
    /// How they were fitted.
    pub fit: Fit,
    /// The greatest relative error of the fit for loads that were not used for it.
    pub greatest_error: f64,
    /// The greatest relative error of the simulator's costs, over all loads. It is larger because the simulator has no
    /// system calls.
    pub greatest_simulated_error: f64,
}

/// Why costs can't be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such protocol.
    #[error(transparent)]
    Protocol(#[from] UnknownProtocol),
    /// A load can't be made.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The cluster does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A client can't connect.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster has no such keyspace, or does not answer.
    #[error(transparent)]
    Keyspace(#[from] TransactionError),
    /// The system does not report CPU time.
    #[error("can't measure CPU time: {0}")]
    Cpu(#[source] io::Error),
    /// Nothing was committed.
    #[error("nothing was committed under the load `{0}`: measure for longer")]
    Nothing(String),
}

/// A load and its name.
struct Named {
    name: String,
    workload: Arc<dyn Workload>,
    /// Whether keys are loaded before.
    loaded: bool,
    fitted: bool,
    /// Whether all clients share one connection to each node. A system call is then for many messages, which tells the
    /// cost of a message from that of a system call.
    shares: bool,
    /// Whether there is only one client in [`FEW`].
    few: bool,
}

/// The loads for the fit, and those that show how good the fit is. If `shared`, clients share their connections in all of
/// them, there are few in half of them, and some have long values.
fn loads(shared: bool) -> Result<Vec<Named>, WorkloadError> {
    let touch = |touch: Touch, shares, few| Named {
        name: format!(
            "{} read, {} written{}{}{}",
            touch.reads,
            touch.writes,
            if touch.long { ", long" } else { "" },
            if shares { ", shared" } else { "" },
            if few { ", few" } else { "" },
        ),
        workload: Arc::new(touch),
        loaded: touch.long,
        fitted: true,
        shares,
        few,
    };
    let touches = LOADS.into_iter().chain(LONG_LOADS.into_iter().filter(|_| shared));
    let both = |load| [false, true].map(|it| touch(load, shared || it, shared && it));
    let mut loads: Vec<Named> = touches.flat_map(both).collect();
    for (name, parameters) in [
        ("retwis", Parameters { keys: Some(1_000_000), theta: Some(0.0), ..Parameters::default() }),
        ("counter", Parameters { keys: Some(100_000), ..Parameters::default() }),
    ] {
        let workload = named(name, &parameters)?;
        let (name, loaded, fitted) = (format!("{name}, uniform"), false, false);
        loads.push(Named { name, workload, loaded, fitted, shares: shared, few: false });
    }
    Ok(loads)
}

impl Calibrate {
    /// That of the default protocol, with the clients and times with which the built-in costs were measured.
    pub fn usual() -> Calibrate {
        Calibrate {
            protocol: serried_protocols::DEFAULT.to_string(),
            clients: 32,
            measured: Duration::from_millis(800),
            rounds: 2,
            shared: false,
        }
    }

    /// This protocol on one machine, with shorter runs, as there are many protocols.
    pub fn on_one_machine(&self, protocol: &str) -> Calibrate {
        let (protocol, measured) = (protocol.to_string(), self.measured / 2);
        Calibrate { protocol, measured, rounds: 1, shared: true, ..*self }
    }

    /// Measures and fits. Calls `report` with lines about its progress.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn run(&self, report: impl Fn(String)) -> Result<Calibration, Error> {
        let loads = loads(self.shared)?;
        let rounds = (0..self.rounds).flat_map(|_| loads.iter().enumerate());
        let mut samples: Vec<Option<Sample>> = loads.iter().map(|_| None).collect();
        for (step, (number, load)) in rounds.enumerate() {
            report(format!("{} of {}: {}", step + 1, loads.len() * self.rounds, load.name));
            let sample = self.sample(load)?;
            let best = &mut samples[number];
            match best {
                None => *best = Some(sample),
                Some(best) => {
                    best.transactions += sample.transactions;
                    best.replicas = cheaper(best.replicas, sample.replicas);
                    best.clients = cheaper(best.clients, sample.clients);
                }
            }
        }
        let samples: Vec<Sample> = samples.into_iter().flatten().collect();
        let kinds = if self.shared { WITH_BYTES } else { WITHOUT_BYTES };
        let replica = side(&samples, kinds, |sample| sample.replicas)?;
        let client = side(&samples, kinds, |sample| sample.clients)?;
        Ok(Calibration { replica, client, samples })
    }

    /// How many clients a load has.
    fn clients_of(&self, load: &Named) -> usize {
        if load.few { self.clients.div_ceil(FEW) } else { self.clients }
    }

    fn sample(&self, load: &Named) -> Result<Sample, Error> {
        let clients = self.clients_of(load);
        let counted = serried_protocols::visit(
            &self.protocol,
            Count {
                clients,
                coordinators: if self.shared { 1 } else { clients },
                workload: load.workload.clone(),
            },
        )?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Cpu)?;
        let measured = runtime.block_on(self.measure(load))?;
        let per_txn = |count: u64| count as f64 / measured.transactions as f64;
        let time = |time: Duration| time.as_nanos() as f64 / measured.transactions as f64;
        let (replicas, clients) = (&measured.replicas, &measured.clients);
        Ok(Sample {
            load: load.name.clone(),
            fitted: load.fitted,
            transactions: measured.transactions,
            replicas: Work {
                events: per_txn(replicas.messages_received),
                sent_messages: per_txn(replicas.messages_sent),
                work_units: counted.replica_units,
                system_calls: per_txn(replicas.flushes + replicas.reads),
                bytes: counted.replica_bytes,
                cpu_ns: time(measured.cpu.nodes),
            },
            clients: Work {
                events: per_txn(clients.messages_received) + counted.client_batches,
                sent_messages: per_txn(clients.messages_sent),
                work_units: counted.client_units,
                system_calls: per_txn(clients.flushes + clients.reads),
                bytes: counted.client_bytes,
                cpu_ns: time(measured.cpu.others),
            },
        })
    }

    /// One run on a real cluster.
    async fn measure(&self, load: &Named) -> Result<Measured, Error> {
        let keyspaces = [KeyspaceConfiguration::new(KEYSPACE, &self.protocol)];
        // Threads that look for messages spend time that is no message's.
        let transport = TransportOptions { poll_us: 0, ..TransportOptions::default() };
        let options = LocalOptions { transport, ..LocalOptions::default() };
        let cluster = LocalCluster::start(REPLICAS, &keyspaces, options)?;
        let warm_up = self.measured / 4;
        let mut databases = Vec::new();
        let clients = self.clients_of(load);
        let connections = if load.shares { 1 } else { clients };
        for _ in 0..connections {
            let options = ConnectOptions::new(cluster.addresses());
            databases.push(Database::connect_with(options).await?);
        }
        if load.loaded {
            let keyspace = databases[0].keyspace(KEYSPACE).await?;
            preload(&keyspace, &*load.workload, 0, 1, |_| {}).await?;
        }
        let mut tasks = Vec::new();
        let mut books = Vec::new();
        for (client, database) in databases.iter().cycle().take(clients).enumerate() {
            let keyspace = database.keyspace(KEYSPACE).await?;
            let window = Window::new(keyspace.now(), Duration::ZERO, FOR_EVER, Duration::ZERO);
            let own = Arc::new(Measurement::new(window));
            let client_loop = ClosedLoop {
                keyspace: keyspace.with_options(TransactOptions::default()),
                workload: load.workload.clone(),
                measurement: own.clone(),
                recorder: None,
                client: client as u64,
                seed: 1,
            };
            tasks.push(tokio::spawn(client_loop.run()));
            books.push(own);
        }
        let so_far = || -> Result<Totals, Error> {
            let mut totals =
                Totals { cpu: CpuTime::so_far().map_err(Error::Cpu)?, ..Totals::new() };
            totals.committed = books.iter().map(|books| books.committed_so_far()).sum();
            for database in &databases {
                add(&mut totals.clients, &database.client().statistics());
            }
            for node in cluster.statistics() {
                add(&mut totals.replicas, &node.counters);
            }
            Ok(totals)
        };
        tokio::time::sleep(warm_up).await;
        let before = so_far()?;
        // However slow the machine is, at least one transaction must commit.
        let mut after = None;
        for _ in 0..LONGER {
            tokio::time::sleep(self.measured).await;
            let now = so_far()?;
            let committed = now.committed;
            after = Some(now);
            if committed >= before.committed + LEAST_TRANSACTIONS {
                break;
            }
        }
        let after = after.expect("it was measured at least once");
        for books in &books {
            let (from, until) = (books.window().from, books.window().until);
            books.move_window(Window { from, until, stop: Timestamp(0) });
        }
        for task in tasks {
            // A client that panics has reported why.
            let _ = task.await;
        }
        for database in databases {
            database.close().await;
        }
        cluster.stop();
        match after.committed - before.committed {
            0 => Err(Error::Nothing(load.name.clone())),
            transactions => Ok(Measured {
                transactions,
                cpu: CpuTime {
                    nodes: after.cpu.nodes.saturating_sub(before.cpu.nodes),
                    others: after.cpu.others.saturating_sub(before.cpu.others),
                },
                replicas: after.replicas.since(&before.replicas),
                clients: after.clients.since(&before.clients),
            }),
        }
    }
}

/// What a run has used so far.
struct Totals {
    committed: u64,
    cpu: CpuTime,
    replicas: Statistics,
    clients: Statistics,
}

impl Totals {
    fn new() -> Totals {
        let (replicas, clients) = (Statistics::default(), Statistics::default());
        Totals { committed: 0, cpu: CpuTime::default(), replicas, clients }
    }
}

fn add(total: &mut Statistics, more: &Statistics) {
    total.messages_sent += more.messages_sent;
    total.messages_received += more.messages_received;
    total.flushes += more.flushes;
    total.reads += more.reads;
}

/// What a run on a real cluster used.
struct Measured {
    transactions: u64,
    cpu: CpuTime,
    replicas: Statistics,
    clients: Statistics,
}

/// The cheaper of two measurements of the same work.
fn cheaper(one: Work, other: Work) -> Work {
    if other.cpu_ns < one.cpu_ns { other } else { one }
}

/// Fits the costs of one side.
fn side(samples: &[Sample], kinds: u8, of: fn(&Sample) -> Work) -> Result<Side, Error> {
    let fitted: Vec<Work> = samples.iter().filter(|sample| sample.fitted).map(of).collect();
    let nothing = || Error::Nothing(TYPICAL.to_string());
    let fit = fit(&fitted, kinds).ok_or_else(nothing)?;
    let typical = samples.iter().find(|sample| sample.load == TYPICAL).map(of);
    let typical = typical.ok_or_else(nothing)?;
    let [event, sent, unit, system_call, byte] = fit.costs_ns;
    let event = event + system_call * typical.system_calls / typical.events;
    let [event_ns, sent_message_ns, work_unit_ns] =
        [event, sent, unit].map(|cost| cost.round() as u64);
    let byte_ps = (byte * 1000.0).round() as u64;
    let simulated = |work: &Work| {
        event * work.events + sent * work.sent_messages + unit * work.work_units + byte * work.bytes
    };
    let others = samples.iter().filter(|sample| !sample.fitted).map(of);
    let error = |predicted: f64, work: Work| (predicted / work.cpu_ns - 1.0).abs();
    Ok(Side {
        costs: CostModel { event_ns, sent_message_ns, work_unit_ns, byte_ps },
        fit,
        greatest_error: others.map(|work| error(fit.predict(&work), work)).fold(0.0, f64::max),
        greatest_simulated_error: samples
            .iter()
            .map(of)
            .map(|work| error(simulated(&work), work))
            .fold(0.0, f64::max),
    })
}

/// The numbers that the nodes do not count, for each transaction.
struct Counted {
    replica_units: f64,
    client_units: f64,
    replica_bytes: f64,
    client_bytes: f64,
    /// Batches of operations, and timers.
    client_batches: f64,
}

/// Counts them in a simulation of the load.
struct Count {
    clients: usize,
    /// How many coordinators these have.
    coordinators: usize,
    workload: Arc<dyn Workload>,
}

impl Visitor<Transactions> for Count {
    type Output = Counted;

    fn visit<P: Protocol<Family = Transactions>>(self) -> Counted {
        let workload = self.workload.clone();
        let initial = Initial::new(move |key| workload.initial_value(key));
        let configuration = Configuration {
            clients: self.coordinators,
            initial: Some(initial),
            // Bytes are counted then.
            hash_contents: true,
            ..Configuration::default()
        };
        let mut cluster = Cluster::<P>::new(configuration);
        let (from, until) = (Duration::from_millis(100), Duration::from_millis(200));
        let window = Window::new(Timestamp(0), from, until, Duration::ZERO);
        let books = Arc::new(Measurement::new(window));
        for client in 0..self.clients {
            let coordinator = client % self.coordinators;
            let client_loop = ClosedLoop {
                keyspace: cluster.keyspace(coordinator),
                workload: self.workload.clone(),
                measurement: books.clone(),
                recorder: None,
                client: client as u64,
                seed: 1,
            };
            cluster.spawn(coordinator, client_loop.run());
        }
        cluster.run_until(Timestamp(0) + from);
        let (before, committed) = (cluster.statistics(), books.committed_so_far());
        cluster.run_until(Timestamp(0) + from + until);
        let after = cluster.statistics();
        let committed = (books.committed_so_far() - committed).max(1) as f64;
        let replicas: Load = after.replica_load - before.replica_load;
        let clients: Load = after.client_load - before.client_load;
        let received = after.messages.replica_to_client - before.messages.replica_to_client;
        Counted {
            replica_units: replicas.work_units as f64 / committed,
            client_units: clients.work_units as f64 / committed,
            replica_bytes: replicas.bytes as f64 / committed,
            client_bytes: clients.bytes as f64 / committed,
            client_batches: clients.events.saturating_sub(received) as f64 / committed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_makes_replicas_and_clients_work_on_the_real_runtime() {
        let protocol = serried_protocols::list()[0].name;
        // Each once with connections of its own for each client, and once with shared ones. Or all with shared ones.
        let long = 2 * (LOADS.len() + LONG_LOADS.len());
        for (shared, fitted) in [(false, 2 * LOADS.len()), (true, long)] {
            let calibrate = |doubled: u32| Calibrate {
                protocol: protocol.to_string(),
                clients: 2,
                measured: Duration::from_millis(20 << doubled),
                rounds: 1,
                shared,
            };
            // On a busy machine nothing may be committed in a short time.
            let calibrated = (0..10).find_map(|doubled| match calibrate(doubled).run(|_| {}) {
                Err(Error::Nothing(_)) => None,
                calibrated => Some(calibrated.unwrap()),
            });
            let Calibration { replica, client, samples } = calibrated.unwrap();
            for Sample { load, replicas, clients, .. } in &samples {
                let messages = replicas.events >= 3.0 && clients.sent_messages >= 3.0;
                assert!(messages, "{load}: {samples:?}");
                assert!(replicas.cpu_ns > 0.0 && clients.cpu_ns > 0.0, "{load}");
                // Three replicas receive what is written.
                let is_long = match load.starts_with("0 read") {
                    true => replicas.bytes > 3000.0,
                    false => clients.bytes > 1000.0,
                };
                assert_eq!(is_long, load.contains("long"), "{load}: {samples:?}");
            }
            assert_eq!(samples.iter().filter(|sample| sample.fitted).count(), fitted);
            for side in [replica, client] {
                assert!(side.fit.costs_ns.iter().sum::<f64>() > 0.0, "{side:?}");
                assert!(shared || side.costs.byte_ps == 0, "{side:?}");
            }
        }
    }

    #[test]
    fn a_simulation_counts_the_keys_of_a_transaction() {
        let counted = |touch: Touch| {
            let count = Count { clients: 2, coordinators: 1, workload: Arc::new(touch) };
            serried_protocols::visit(serried_protocols::list()[0].name, count).unwrap()
        };
        let (few, many) = (LOADS[0], LOADS[8]);
        let (few, many) = (counted(few), counted(many));
        assert!(many.replica_units > 10.0 * few.replica_units);
        assert!((1.0..8.0).contains(&few.client_batches), "{}", few.client_batches);
    }
}
