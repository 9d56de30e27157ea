//! A run of calls of procedures.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serried_actor::{Protocol, Timestamp};
use serried_model::Geography;
use serried_procedures::Procedures;
use serried_protocols::Visitor;
use serried_session::{Backoff, CallOptions};
use serried_sim::{Clocks, Cluster, Configuration, Disk, NetworkFaults};
use serried_workload::{
    CallClient, Measurement, OpenCalls, ProcedureParameters, ProcedureWorkload, Window,
};

use super::registers::kinds;
use super::stretch::observe;
use super::watched::Watched;
use super::{Demand, Setting};
use crate::fared::counted;
use crate::figure::{Calls, Districts, Load, Parameter, Warehouses};
use crate::measured::{CallsMeasured, OpenMeasured};
use crate::{Costs, Error};

/// After any run.
const FAR: Timestamp = Timestamp(u64::MAX / 2);
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
    /// The number of TPC-C's districts, if one is drawn for each call. 0 if each client has its own.
    terminals: u64,
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
    /// The longest wait before the first retry, in milliseconds.
    backoff_first_ms: u64,
    /// The longest wait before any retry, in milliseconds.
    backoff_most_ms: u64,
    /// The greatest error of a clock, in microseconds.
    clock_skew_us: u64,
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
    /// The load of clients in open loops. `None` if they are in closed loops.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<OpenCallers>,
}

/// The load of clients in open loops.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct OpenCallers {
    /// How many calls arrive each second, at all clients together.
    rate_per_s: f64,
    /// How many calls each client may have open.
    most_open: usize,
}

impl CallPoint {
    pub(super) fn new(setting: &Setting<'_>, work: Calls, demand: Demand) -> CallPoint {
        let Setting { figure, effort, costs, .. } = *setting;
        let value = |parameter| figure.value(parameter, setting.panel, setting.x);
        let servers = figure.servers_at(setting.panel, setting.x);
        let size = setting.effort.size.unwrap_or(work.size);
        let bytes_cost = costs.replica.byte_ps > 0 || costs.client.byte_ps > 0;
        let mut parameters = ProcedureParameters {
            theta: work.theta,
            writes: value(Parameter::Writes),
            // Otherwise their length makes no difference.
            value_bytes: (!bytes_cost).then_some(16),
            counters_per_call: value(Parameter::CountersPerCall).map(|counters| counters as u64),
            ..ProcedureParameters::default()
        };
        let mut terminals = 0;
        match work.tpcc {
            None => parameters.keys = Some(size),
            Some(Warehouses { customers, districts }) => {
                parameters.customers = Some(customers);
                parameters.items = Some(u32::try_from(size).unwrap_or(u32::MAX));
                match districts {
                    Districts::OfOneWarehouse { per_server } => {
                        parameters.districts = Some(per_server * u64::from(servers));
                    }
                    Districts::OfWarehouses { warehouses } => {
                        parameters.warehouses = Some(warehouses);
                        terminals = 10 * warehouses;
                    }
                }
            }
        }
        let open = match (figure.load, demand) {
            (Load::Open(open), Demand::Rate { per_s, .. }) => {
                Some(OpenCallers { rate_per_s: per_s, most_open: open.most_open })
            }
            _ => None,
        };
        CallPoint {
            protocol: setting.protocol.to_string(),
            workload: work.workload,
            parameters,
            terminals,
            counts_pieces: work.counts_pieces,
            geography: setting.geography(),
            replicas: figure.servers.replicas,
            servers,
            clients: demand.clients(),
            flush_ms: value(Parameter::FlushMs).unwrap_or(0.0),
            backoff_first_ms: work.backoff_most_ms.min(1),
            backoff_most_ms: work.backoff_most_ms,
            clock_skew_us: work.clock_skew_us,
            jitter: 0.01,
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            most_calls: figure.most_operations(effort).max(CALLS_EACH * demand.clients() as u64),
            costs,
            seed: setting.seed,
            open,
        }
    }

    /// The name of the file with its result.
    pub(super) fn file(&self) -> String {
        let CallPoint { protocol, servers, clients, flush_ms, parameters, .. } = self;
        if let Some(OpenCallers { rate_per_s, .. }) = self.open {
            let writes =
                parameters.writes.map_or(String::new(), |writes| format!("-writes{writes}"));
            return format!("{protocol}-rate{rate_per_s}{writes}.json");
        }
        let counters = parameters.counters_per_call.map_or(String::new(), |n| format!("-each{n}"));
        format!("{protocol}-servers{servers}{counters}-flush{flush_ms}-clients{clients}.json")
    }

    /// Runs it.
    pub(super) fn run(&self) -> Result<CallsMeasured, Error> {
        let geography = Geography::named(self.geography)?;
        let workload = serried_workload::named_procedures(self.workload, &self.parameters)?;
        let workload = Arc::new(Watched::new(workload, self.terminals, self.counts_pieces));
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
        // Nothing counts until everything is loaded.
        let measurement = Arc::new(Measurement::new(Window { from: FAR, until: FAR, stop: FAR }));
        let backoff = Backoff::Exponential {
            first: Duration::from_millis(point.backoff_first_ms),
            most: Duration::from_millis(point.backoff_most_ms),
        };
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
            match point.open {
                None => cluster.spawn(client, call_client.run()),
                Some(OpenCallers { rate_per_s, most_open }) => {
                    // The sum of Poisson processes is one too, so clients share the rate.
                    let rate_per_s = rate_per_s / point.clients as f64;
                    let open = OpenCalls { client: call_client, rate_per_s, most_open };
                    cluster.spawn(client, open.run());
                }
            }
        }
        // Clients load the database first.
        while self.workload.loading().is_some_and(|loading| !loading.is_done()) {
            cluster.run_until(cluster.now() + SLICE);
        }
        let latest = cluster.now() + SETTLED;
        while !self.workload.have_begun(point.clients) && cluster.now() < latest {
            cluster.run_until(cluster.now() + SLICE);
        }
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
            open: point.open.map(|open| OpenMeasured {
                rate_per_s: open.rate_per_s,
                dropped: report.arrivals.as_ref().map_or(0, |arrivals| arrivals.dropped),
                kinds: Vec::new(),
                counted: counted(&cluster),
                over_time: Vec::new(),
            }),
        }
    }
}

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
            clocks: Clocks { skew: Duration::from_micros(point.clock_skew_us), drift_ppm: 0 },
            disk: Disk { flush: Duration::from_secs_f64(point.flush_ms / 1e3), ..Disk::MEMORY },
            costs: point.costs.replica,
            client_costs: Some(point.costs.client),
            ..Configuration::default()
        }
    }
}
