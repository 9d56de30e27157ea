//! A run of transactions.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serried_actor::{Protocol, Settings, Timestamp};
use serried_model::Geography;
use serried_protocols::Visitor;
use serried_session::{Backoff, TransactOptions, TransactionKeyspace};
use serried_sim::{Clocks, Cluster, Configuration, Initial, NetworkFaults};
use serried_workload::{ClosedLoop, Measurement, OpenLoop, Parameters, Report, Window, Workload};

use super::deaths::survive;
use super::stretch::observe;
use super::terminal::AnyTerminal;
use super::{Demand, Setting};
use crate::effort::Deaths;
use crate::fared::counted;
use crate::figure::{Load, Parameter, Transactions};
use crate::measured::{OfKind, OpenMeasured, TransactionsMeasured};
use crate::{Costs, Error};

/// One run. Together with the build, this determines its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct TransactionPoint {
    /// The protocol, by its name in the registry.
    pub(super) protocol: String,
    /// The workload, by its name.
    pub(super) workload: &'static str,
    /// The parameters of the workload.
    pub(super) parameters: Parameters,
    /// The number of terminals. One is drawn for each transaction. 0 if the workload has no terminals.
    pub(super) terminals: u64,
    /// The sites of the replicas and clients.
    pub(super) geography: &'static str,
    /// How many replicas a partition has.
    pub(super) replicas: usize,
    /// How many partitions there are.
    pub(super) partitions: u16,
    /// How many cores a replica of one of them has.
    pub(super) replica_cores: u32,
    /// How many clients there are, the same number at each site.
    pub(super) clients: usize,
    /// The longest wait before the first retry, in milliseconds.
    pub(super) backoff_first_ms: u64,
    /// The longest wait before any retry, in milliseconds.
    pub(super) backoff_most_ms: u64,
    /// The greatest error of a clock, in microseconds.
    pub(super) clock_skew_us: u64,
    /// How late a message may be, as a fraction of its link's delay.
    pub(super) jitter: f64,
    /// [`Effort::warm_up_s`].
    pub(super) warm_up_s: f64,
    /// [`Effort::measured_s`].
    pub(super) measured_s: f64,
    /// [`Effort::most_operations`].
    pub(super) most_transactions: u64,
    /// The costs of computing.
    pub(super) costs: Costs,
    /// The seed.
    pub(super) seed: u64,
    /// The load of clients in open loops. `None` if they are in closed loops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) open: Option<OpenClients>,
}

/// What else determines a run of clients in open loops.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct OpenClients {
    /// How many transactions arrive each second, at all of them together.
    pub(super) rate_per_s: f64,
    /// How many transactions each of them may have open.
    pub(super) most_open: usize,
    /// [`serried_actor::Settings::recovery_after_ms`], if it is not the default.
    pub(super) recovery_after_ms: Option<u64>,
    /// When all of them die, and how long as many others continue.
    pub(super) deaths: Option<Deaths>,
}

impl TransactionPoint {
    /// A run with random exponential backoff. The papers do not say where the backoff starts, how large clock errors
    /// were, or how much delays varied. This crate chooses these.
    pub(super) fn new(
        setting: &Setting<'_>,
        work: Transactions,
        demand: Demand,
    ) -> TransactionPoint {
        let Setting { figure, effort, costs, .. } = *setting;
        let value = |parameter| figure.value(parameter, setting.panel, setting.x);
        let cores = value(Parameter::Cores).map_or(figure.servers.cores, |cores| cores as u32);
        let (partitions, replica_cores) = figure.layout(setting.protocol, cores);
        let (size, open) = (setting.size(work), OpenClients::new(setting, demand));
        let bytes_cost = costs.replica.byte_ps > 0 || costs.client.byte_ps > 0;
        let parameters = Parameters {
            keys: Some(size),
            warehouses: Some(size),
            theta: value(Parameter::Theta),
            writes: value(Parameter::Writes),
            value_bytes: work.value_bytes.filter(|_| !bytes_cost),
            ..Parameters::default()
        };
        TransactionPoint {
            protocol: setting.protocol.to_string(),
            workload: work.workload,
            parameters,
            terminals: work.terminals * size,
            geography: setting.geography(),
            replicas: figure.servers.replicas,
            partitions,
            replica_cores,
            clients: demand.clients(),
            backoff_first_ms: 1,
            backoff_most_ms: work.backoff_most_ms,
            clock_skew_us: 500,
            jitter: 0.01,
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            most_transactions: figure.most_operations(effort),
            costs,
            seed: setting.seed,
            open,
        }
    }

    /// The total number of cores of the replicas.
    fn all_cores(&self) -> f64 {
        self.replicas as f64 * f64::from(self.partitions) * f64::from(self.replica_cores)
    }

    /// How many clients there are during a run, including those that replace dead ones.
    fn all_clients(&self) -> usize {
        let dies = self.open.is_some_and(|open| open.deaths.is_some());
        if dies { 2 * self.clients } else { self.clients }
    }

    /// The settings of the protocol.
    fn settings(&self) -> Settings {
        let usual = Settings::default();
        let after = self.open.and_then(|open| open.recovery_after_ms);
        Settings { recovery_after_ms: after.unwrap_or(usual.recovery_after_ms), ..usual }
    }

    fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up_s)
    }

    fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.measured_s)
    }

    /// The name of the file with its result.
    pub(super) fn file(&self) -> String {
        let TransactionPoint { protocol, geography, partitions, replica_cores, clients, .. } = self;
        if let Some(open) = self.open {
            let writes = self.parameters.writes.map_or(String::new(), |w| format!("-writes{w}"));
            let after = open.recovery_after_ms.map_or(String::new(), |ms| format!("-after{ms}"));
            return format!("{protocol}-rate{}{writes}{after}.json", open.rate_per_s);
        }
        let cores = u32::from(*partitions) * replica_cores;
        let theta = self.parameters.theta.expect("every point has an exponent");
        format!("{protocol}-{geography}-theta{theta}-cores{cores}-clients{clients}.json")
    }

    /// Runs it.
    pub(super) fn run(&self) -> Result<TransactionsMeasured, Error> {
        let geography = Geography::named(self.geography)?;
        let mut workload = serried_workload::named(self.workload, &self.parameters)?;
        if self.terminals > 0 {
            workload = Arc::new(AnyTerminal::new(workload, self.terminals));
        }
        let run = Run { point: self, geography, workload };
        Ok(serried_protocols::visit(&self.protocol, run)?)
    }
}

impl OpenClients {
    fn new(setting: &Setting<'_>, demand: Demand) -> Option<OpenClients> {
        let (Load::Open(open), Demand::Rate { per_s, .. }) = (setting.figure.load, demand) else {
            return None;
        };
        let after_s = setting.figure.value(Parameter::RecoveryAfter, setting.panel, setting.x);
        Some(OpenClients {
            rate_per_s: per_s,
            most_open: open.most_open,
            recovery_after_ms: after_s.map(|after_s| (after_s * 1e3) as u64),
            deaths: setting.effort.deaths.filter(|_| after_s.is_some()),
        })
    }
}

struct Run<'a> {
    point: &'a TransactionPoint,
    geography: Geography,
    workload: Arc<dyn Workload>,
}

impl Visitor<serried_model::Transactions> for Run<'_> {
    type Output = TransactionsMeasured;

    fn visit<P: Protocol<Family = serried_model::Transactions>>(self) -> TransactionsMeasured {
        let point = self.point;
        let mut cluster = Cluster::<P>::new(self.configuration());
        let (warm_up, measured) = (point.warm_up(), point.measured());
        let window = Window::new(Timestamp(0), warm_up, measured, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        self.begin(&mut cluster, 0, &measurement);
        let times = (point.warm_up(), point.measured());
        let most = point.most_transactions;
        let mut over_time = Vec::new();
        let stretch = match point.open.and_then(|open| open.deaths) {
            None => observe(&mut cluster, &measurement, self.geography, times, most),
            Some(deaths) => {
                survive(&mut cluster, &measurement, deaths, &mut over_time, |cluster| {
                    (0..point.clients).for_each(|client| cluster.crash_client(client));
                    self.begin(cluster, point.clients, &measurement);
                })
            }
        };

        let report = measurement.report();
        TransactionsMeasured {
            clients: point.clients,
            goodput_per_s: report.goodput_per_s,
            commit_rate: report.commit_rate,
            re_executions_per_txn: report.re_executions_per_txn,
            latency_ms_mean: report.latency_us_mean / 1e3,
            latency_ms_p50: report.latency_us_p50 as f64 / 1e3,
            latency_ms_p99: report.latency_us_p99 as f64 / 1e3,
            messages_per_txn: stretch.messages_each,
            replica_cpu: stretch.busy_s / stretch.seconds / point.all_cores(),
            committed: report.committed,
            failed: report.failed,
            seconds: stretch.seconds,
            event_hash: format!("{:016x}", cluster.event_hash()),
            open: point.open.map(|open| OpenMeasured {
                rate_per_s: open.rate_per_s,
                dropped: report.arrivals.as_ref().map_or(0, |arrivals| arrivals.dropped),
                kinds: kinds(&report),
                counted: counted(&cluster),
                over_time,
            }),
        }
    }
}

impl Run<'_> {
    fn configuration(&self) -> Configuration {
        let (point, workload) = (self.point, self.workload.clone());
        let clocks = Clocks { skew: Duration::from_micros(point.clock_skew_us), drift_ppm: 0 };
        Configuration {
            seed: point.seed,
            replicas: point.replicas,
            partitions: point.partitions,
            clients: point.all_clients(),
            geography: self.geography,
            network: NetworkFaults { jitter: point.jitter, ..NetworkFaults::NONE },
            clocks,
            settings: point.settings(),
            replica_cores: point.replica_cores as usize,
            costs: point.costs.replica,
            client_costs: Some(point.costs.client),
            initial: Some(Initial::new(move |key| workload.initial_value(key))),
            ..Configuration::default()
        }
    }

    /// Starts all clients from number `first` on.
    fn begin<P: Protocol<Family = serried_model::Transactions>>(
        &self,
        cluster: &mut Cluster<P>,
        first: usize,
        measurement: &Arc<Measurement>,
    ) {
        let TransactionPoint { clients, seed, open, .. } = *self.point;
        for number in first..first + clients {
            let (keyspace, client) = (self.keyspace(number, cluster), number as u64);
            let (workload, measurement) = (self.workload.clone(), measurement.clone());
            let closed =
                ClosedLoop { keyspace, workload, measurement, recorder: None, client, seed };
            match open {
                None => cluster.spawn(number, closed.run()),
                Some(open) => cluster.spawn(number, self.open(open, closed).run()),
            }
        }
    }

    fn keyspace<P: Protocol<Family = serried_model::Transactions>>(
        &self,
        client: usize,
        cluster: &Cluster<P>,
    ) -> TransactionKeyspace {
        let backoff = Backoff::Exponential {
            first: Duration::from_millis(self.point.backoff_first_ms),
            most: Duration::from_millis(self.point.backoff_most_ms),
        };
        // The paper's clients try until they succeed.
        let deadline = Duration::from_secs(3600);
        let options = TransactOptions { deadline, attempts: u32::MAX, backoff };
        cluster.keyspace(client).with_options(options)
    }

    /// The same client in an open loop.
    fn open(&self, open: OpenClients, closed: ClosedLoop) -> OpenLoop {
        let ClosedLoop { keyspace, workload, measurement, recorder, client, seed } = closed;
        // The sum of Poisson processes is one too, so clients share the rate.
        let rate_per_s = open.rate_per_s / self.point.clients as f64;
        let most_open = open.most_open;
        OpenLoop { keyspace, workload, measurement, recorder, client, seed, rate_per_s, most_open }
    }
}

/// The committed transactions, by kind.
fn kinds(report: &Report) -> Vec<OfKind> {
    let committed = report.kinds.iter().filter(|kind| kind.committed > 0);
    let of_kind = committed.map(|kind| OfKind {
        kind: kind.kind.to_string(),
        per_s: kind.goodput_per_s,
        latency_ms_p50: kind.latency_us_p50 as f64 / 1e3,
        latency_ms_p99: kind.latency_us_p99 as f64 / 1e3,
    });
    of_kind.collect()
}
