//! A run of calls of procedures.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serried_actor::{Protocol, Timestamp};
use serried_model::Geography;
use serried_procedures::Procedures;
use serried_protocols::Visitor;
use serried_session::{Backoff, CallOptions};
use serried_sim::{Cluster, Configuration, Disk, NetworkFaults};
use serried_workload::{CallClient, Measurement, ProcedureParameters, ProcedureWorkload, Window};

use super::registers::kinds;
use super::stretch::observe;
use super::watched::Watched;
use super::{Demand, Setting};
use crate::figure::{Calls, Parameter};
use crate::measured::CallsMeasured;
use crate::{Costs, Error};

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);
/// Warming up and measuring take at least so many calls of each client: all begin at once, and fast calls end first.
const CALLS_EACH: u64 = 5;
/// The length of simulated time between two looks at whether everything is loaded.
const SLICE: Duration = Duration::from_millis(20);
/// How long to wait after that until every client's first call has ended: a call waits while a set of procedures is
/// registered.
const SETTLED: Duration = Duration::from_millis(500);

/// One run. Together with the build, this determines its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct CallPoint {
    /// The protocol, by its name in the registry.
    protocol: String,
    /// The workload, by its name.
    workload: &'static str,
    /// The parameters of the workload.
    parameters: ProcedureParameters,
    /// Whether the pieces of calls are counted.
    counts_pieces: bool,
    /// The sites of the replicas and clients.
    geography: &'static str,
    /// How many replicas each server's partition has.
    replicas: usize,
    /// How many servers there are, each with a partition.
    servers: u16,
    /// How many clients there are.
    clients: usize,
    /// How long making a log durable takes, in milliseconds.
    flush_ms: f64,
    /// How late a message may be, as a fraction of its link's delay.
    jitter: f64,
    /// [`crate::Effort::warm_up_s`].
    warm_up_s: f64,
    /// [`crate::Effort::measured_s`].
    measured_s: f64,
    /// [`crate::Effort::most_operations`].
    most_calls: u64,
    /// The costs of computing.
    costs: Costs,
    /// The seed.
    seed: u64,
}

impl CallPoint {
    pub(super) fn new(setting: &Setting<'_>, work: Calls, demand: Demand) -> CallPoint {
        let Setting { figure, effort, costs, .. } = *setting;
        let value = |parameter| figure.value(parameter, setting.panel, setting.x);
        let servers = figure.servers_at(setting.panel, setting.x);
        let of_tpcc = work.districts_per_server > 0;
        let number = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        let parameters = ProcedureParameters {
            keys: (!of_tpcc).then(|| setting.effort.size.unwrap_or(work.size)),
            theta: (!of_tpcc).then_some(0.0),
            counters_per_call: value(Parameter::CountersPerCall).map(|counters| counters as u64),
            districts: of_tpcc.then(|| work.districts_per_server * u64::from(servers)),
            customers: of_tpcc.then_some(work.customers),
            items: of_tpcc.then(|| number(setting.effort.size.unwrap_or(work.size))),
            ..ProcedureParameters::default()
        };
        CallPoint {
            protocol: setting.protocol.to_string(),
            workload: work.workload,
            parameters,
            counts_pieces: work.counts_pieces,
            geography: setting.geography(),
            replicas: figure.servers.replicas,
            servers,
            clients: demand.clients(),
            flush_ms: value(Parameter::FlushMs).unwrap_or(0.0),
            jitter: 0.01,
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            most_calls: figure.most_operations(effort).max(CALLS_EACH * demand.clients() as u64),
            costs,
            seed: setting.seed,
        }
    }

    /// The name of the file with its result.
    pub(super) fn file(&self) -> String {
        let CallPoint { protocol, servers, clients, flush_ms, parameters, .. } = self;
        let counters = parameters.counters_per_call.map_or(String::new(), |n| format!("-each{n}"));
        format!("{protocol}-servers{servers}{counters}-flush{flush_ms}-clients{clients}.json")
    }

    /// Runs it.
    pub(super) fn run(&self) -> Result<CallsMeasured, Error> {
        let geography = Geography::named(self.geography)?;
        let workload = serried_workload::named_procedures(self.workload, &self.parameters)?;
        let workload = Arc::new(Watched::new(workload, self.counts_pieces));
        let run = Run { point: self, geography, workload };
        Ok(serried_protocols::visit(&self.protocol, run)?)
    }
}

struct Run<'a> {
    point: &'a CallPoint,
    geography: Geography,
    workload: Arc<Watched>,
}

impl Visitor<Procedures> for Run<'_> {
    type Output = CallsMeasured;

    fn visit<P: Protocol<Family = Procedures>>(self) -> CallsMeasured {
        let point = self.point;
        let mut cluster = Cluster::<P>::new(self.configuration());
        let times = [point.warm_up_s, point.measured_s].map(Duration::from_secs_f64);
        let window = Window::new(Timestamp(0), Duration::ZERO, FOR_EVER, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        // 002's systems try again at once.
        let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
        let options = CallOptions { deadline: Duration::from_secs(3600), backoff };
        for client in 0..point.clients {
            let call_client = CallClient {
                procedures: cluster.keyspace(client).with_options(options),
                workload: self.workload.clone(),
                measurement: measurement.clone(),
                recorder: None,
                inquiries: None,
                client: client as u64,
                clients: point.clients as u64,
                seed: point.seed,
            };
            cluster.spawn(client, call_client.run());
        }
        // Clients load the database first.
        while self.workload.loading().is_some_and(|loading| !loading.is_done()) {
            cluster.run_until(cluster.now() + SLICE);
        }
        let latest = cluster.now() + SETTLED;
        while !self.workload.have_begun(point.clients) && cluster.now() < latest {
            cluster.run_until(cluster.now() + SLICE);
        }
        // What was entered so far does not count.
        measurement.move_window(Window { from: FAR, until: FAR, stop: FAR });
        let stretch =
            observe(&mut cluster, &measurement, self.geography, times.into(), point.most_calls);
        let report = measurement.report();
        let cores = f64::from(point.servers) * point.replicas as f64;
        CallsMeasured {
            clients: point.clients,
            messages_per_call: stretch.messages_each,
            replica_cpu: stretch.busy_s / stretch.seconds / cores,
            seconds: stretch.seconds,
            failed: report.failed,
            commit_rate: report.commit_rate,
            kinds: kinds(&measurement, &report),
            pieces: self.workload.means(),
            event_hash: format!("{:016x}", cluster.event_hash()),
        }
    }
}

/// After any run.
const FAR: Timestamp = Timestamp(u64::MAX / 2);

impl Run<'_> {
    fn configuration(&self) -> Configuration {
        let point = self.point;
        Configuration {
            seed: point.seed,
            replicas: point.replicas,
            partitions: point.servers,
            clients: point.clients,
            geography: self.geography,
            network: NetworkFaults { jitter: point.jitter, ..NetworkFaults::NONE },
            disk: Disk { flush: Duration::from_secs_f64(point.flush_ms / 1e3), ..Disk::MEMORY },
            costs: point.costs.replica,
            client_costs: Some(point.costs.client),
            ..Configuration::default()
        }
    }
}
