//! Runs one point in the simulator.

use std::sync::Arc;
use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_model::{Geography, Transactions};
use serried_protocols::Visitor;
use serried_session::{Backoff, TransactOptions, TransactionKeyspace};
use serried_sim::{Clocks, Cluster, Configuration, Initial, NetworkFaults};
use serried_workload::{ClosedLoop, Measurement, OpenLoop, Window, Workload};

use crate::load::{counted, kinds, survive};
use crate::measured::OpenMeasured;
use crate::setup::OpenClients;
use crate::terminal::AnyTerminal;
use crate::{Error, Measured, Point};

/// How much is simulated at once, between looks at how far it is.
const SLICE: Duration = Duration::from_millis(20);
/// However many transactions are committed, so many of the longest round trips are awaited before
/// measuring, and measured.
const LEAST_ROUND_TRIPS: u32 = 10;

/// Runs `point`.
pub(crate) fn run(point: &Point) -> Result<Measured, Error> {
    let geography = Geography::named(point.geography)?;
    let mut workload = serried_workload::named(point.workload, &point.parameters)?;
    if point.terminals > 0 {
        workload = Arc::new(AnyTerminal::new(workload, point.terminals));
    }
    Ok(serried_protocols::visit(&point.protocol, Run { point, geography, workload })?)
}

struct Run<'a> {
    point: &'a Point,
    geography: Geography,
    workload: Arc<dyn Workload>,
}

impl Visitor<Transactions> for Run<'_> {
    type Output = Measured;

    fn visit<P: Protocol<Family = Transactions>>(self) -> Measured {
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
        Measured {
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

/// What the measured part of a run amounted to.
pub(crate) struct Stretch {
    /// How long it was, in simulated seconds.
    pub(crate) seconds: f64,
    /// Messages for each transaction or request.
    pub(crate) messages_each: f64,
    /// How long the replicas' cores were in use, all together, in seconds.
    pub(crate) busy_s: f64,
}

/// Has the clients of a cluster warm up and then measures what they do, each for so long, or until `most`
/// transactions or requests.
pub(crate) fn observe<P: Protocol>(
    cluster: &mut Cluster<P>,
    measurement: &Measurement,
    geography: Geography,
    (warm_up, measured): (Duration, Duration),
    most: u64,
) -> Stretch {
    let sites = 0..geography.sites.len();
    let farthest = sites.map(|site| geography.longest_round_trip(site)).max();
    let least = farthest.unwrap_or_default() * LEAST_ROUND_TRIPS;

    let from = advance(cluster, measurement, least, warm_up, most);
    let window = Window::new(from, Duration::ZERO, measured, Duration::ZERO);
    measurement.move_window(window);
    let (before, committed) = (cluster.statistics(), measurement.committed_so_far());
    let until = advance(cluster, measurement, least, measured, most);
    measurement.move_window(Window { from, until, stop: until });
    let after = cluster.statistics();

    let committed = (measurement.committed_so_far() - committed).max(1) as f64;
    let busy = |statistics: &serried_sim::Statistics| {
        statistics.replica_busy.iter().sum::<Duration>().as_secs_f64()
    };
    let messages = after.messages.total() - before.messages.total();
    Stretch {
        seconds: until.since(from).as_secs_f64(),
        messages_each: messages as f64 / committed,
        busy_s: busy(&after) - busy(&before),
    }
}

/// Goes on for `most`, or until `transactions` more have been committed, but for `least` anyhow; returns
/// the time then.
fn advance<P: Protocol>(
    cluster: &mut Cluster<P>,
    measurement: &Measurement,
    least: Duration,
    most: Duration,
    transactions: u64,
) -> Timestamp {
    let (begun, before) = (cluster.now(), measurement.committed_so_far());
    loop {
        let passed = cluster.now().since(begun);
        let committed = measurement.committed_so_far() - before;
        if passed >= most || passed >= least && committed >= transactions {
            return cluster.now();
        }
        cluster.run_until((cluster.now() + SLICE).min(begun + most));
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

    /// Has all clients from the `first` on begin.
    fn begin<P: Protocol<Family = Transactions>>(
        &self,
        cluster: &mut Cluster<P>,
        first: usize,
        measurement: &Arc<Measurement>,
    ) {
        for client in first..first + self.point.clients {
            match self.point.open {
                None => cluster.spawn(client, self.closed(client, cluster, measurement).run()),
                Some(open) => {
                    let client_loop = self.open(open, client, cluster, measurement);
                    cluster.spawn(client, client_loop.run());
                }
            }
        }
    }

    fn keyspace<P: Protocol<Family = Transactions>>(
        &self,
        client: usize,
        cluster: &Cluster<P>,
    ) -> TransactionKeyspace {
        let backoff = Backoff {
            first: Duration::from_millis(self.point.backoff_first_ms),
            most: Duration::from_millis(self.point.backoff_most_ms),
        };
        // Clients of the paper try until they succeed.
        let deadline = Duration::from_secs(3600);
        let options = TransactOptions { deadline, attempts: u32::MAX, backoff };
        cluster.keyspace(client).with_options(options)
    }

    fn closed<P: Protocol<Family = Transactions>>(
        &self,
        client: usize,
        cluster: &Cluster<P>,
        measurement: &Arc<Measurement>,
    ) -> ClosedLoop {
        ClosedLoop {
            keyspace: self.keyspace(client, cluster),
            workload: self.workload.clone(),
            measurement: measurement.clone(),
            recorder: None,
            client: client as u64,
            seed: self.point.seed,
        }
    }

    fn open<P: Protocol<Family = Transactions>>(
        &self,
        open: OpenClients,
        client: usize,
        cluster: &Cluster<P>,
        measurement: &Arc<Measurement>,
    ) -> OpenLoop {
        OpenLoop {
            keyspace: self.keyspace(client, cluster),
            workload: self.workload.clone(),
            measurement: measurement.clone(),
            recorder: None,
            client: client as u64,
            seed: self.point.seed,
            // Poisson processes add up to one.
            rate_per_s: open.rate_per_s / self.point.clients as f64,
            most_open: open.most_open,
        }
    }
}
