//! One run of a figure of registers: what determines it, and what it comes to.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_actor::{Protocol, Settings, Timestamp};
use serried_model::{Geography, Registers};
use serried_protocols::Visitor;
use serried_session::RegisterOptions;
use serried_sim::{Cluster, Configuration};
use serried_workload::{
    Measurement, RegisterClient, RegisterParameters, RegisterWorkload, Report, Window,
};

use super::{RegisterFigure, Shows};
use crate::run::observe;
use crate::store::Stored;
use crate::{Costs, Error};

/// How much effort is made for a figure of registers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RegisterEffort {
    /// How long to run before measuring, in simulated seconds.
    pub warm_up_s: f64,
    /// How long to measure, in simulated seconds.
    pub measured_s: f64,
    /// Warming up and measuring each end earlier when so many operations have been done.
    pub most_operations: u64,
    /// Fewer places on the horizontal axis.
    pub few_places: bool,
    /// How many clients there are, if not as many as in the paper; where they are on the horizontal axis,
    /// its places.
    pub clients: Vec<usize>,
    /// How many keys each client has of its own.
    pub keys: Option<u64>,
}

impl RegisterEffort {
    /// As much as the paper makes (001 §4.5.2), with a bound.
    pub fn full() -> RegisterEffort {
        RegisterEffort {
            warm_up_s: 15.0,
            measured_s: 150.0,
            most_operations: 300_000,
            few_places: false,
            clients: Vec::new(),
            keys: None,
        }
    }

    /// What it takes for a first impression.
    pub fn quick() -> RegisterEffort {
        RegisterEffort {
            warm_up_s: 3.0,
            measured_s: 20.0,
            most_operations: 40_000,
            few_places: true,
            ..RegisterEffort::full()
        }
    }
}

/// One run: together with the build, everything that its result is determined by.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RegisterPoint {
    /// The protocol, by its name in the registry.
    pub protocol: String,
    /// The workload, by its name.
    pub workload: &'static str,
    /// What the workload is told.
    pub parameters: RegisterParameters,
    /// Where the replicas and the clients are.
    pub geography: &'static str,
    /// How many replicas there are.
    pub replicas: usize,
    /// How many cores a replica has.
    pub replica_cores: usize,
    /// How many clients there are, the same number at each site.
    pub clients: usize,
    /// [`RegisterEffort::warm_up_s`].
    pub warm_up_s: f64,
    /// [`RegisterEffort::measured_s`].
    pub measured_s: f64,
    /// [`RegisterEffort::most_operations`].
    pub most_operations: u64,
    /// What computing costs.
    pub costs: Costs,
    /// The seed.
    pub seed: u64,
}

impl RegisterPoint {
    /// A run with 001's set-up (§4.5.1, §4.5.2): closed loops, and requests that go to no more replicas than
    /// have to answer.
    pub(crate) fn new(
        figure: &RegisterFigure,
        conflicts: f64,
        x: Option<f64>,
        protocol: &str,
        effort: &RegisterEffort,
        (costs, seed): (Costs, u64),
    ) -> RegisterPoint {
        let (mut shares, mut sub_requests) = (figure.shares, None);
        let clients = effort.clients.first().copied();
        let mut clients = clients.unwrap_or(figure.clients_each * figure.replicas);
        match (figure.shows, x) {
            (Shows::Writes { .. }, Some(writes)) => {
                shares.reads = 1.0 - figure.rmws() - writes;
                shares.writes = writes;
            }
            (Shows::Load { .. }, Some(x)) => clients = x as usize,
            (Shows::SubRequests { .. }, Some(x)) => sub_requests = Some(x as u64),
            _ => {}
        }
        let parameters = RegisterParameters {
            reads: Some(shares.reads),
            writes: Some(shares.writes),
            conflicts: Some(conflicts),
            keys: effort.keys,
            sub_requests,
            ..RegisterParameters::default()
        };
        RegisterPoint {
            protocol: protocol.to_string(),
            workload: figure.workload,
            parameters,
            geography: figure.geography,
            replicas: figure.replicas,
            replica_cores: figure.replica_cores,
            clients,
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            most_operations: effort.most_operations,
            costs,
            seed,
        }
    }

    /// Runs it.
    pub(crate) fn run(&self) -> Result<RegistersMeasured, Error> {
        let geography = Geography::named(self.geography)?;
        let workload = serried_workload::named_registers(self.workload, &self.parameters)?;
        let run = Run { point: self, geography, workload };
        Ok(serried_protocols::visit(&self.protocol, run)?)
    }
}

impl Stored for RegisterPoint {
    fn file(&self) -> String {
        let RegisterPoint { protocol, clients, parameters, .. } = self;
        let share = |share: Option<f64>| share.unwrap_or_default();
        let (conflicts, writes) = (share(parameters.conflicts), share(parameters.writes));
        let sub_requests = parameters.sub_requests.unwrap_or(1);
        format!(
            "{protocol}-conflicts{conflicts}-writes{writes}-sub{sub_requests}-clients{clients}.json"
        )
    }
}

/// What a run came to, in the time that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RegistersMeasured {
    /// How many clients there were.
    pub clients: usize,
    /// Messages per request.
    pub messages_per_request: f64,
    /// The share of the replicas' cores that was in use.
    pub replica_cpu: f64,
    /// How long was measured, in simulated seconds.
    pub seconds: f64,
    /// Requests that failed.
    pub failed: u64,
    /// Operations by their kinds, and requests, which is what they are together: the latency of a request is
    /// that of its slowest operation.
    pub kinds: Vec<KindMeasured>,
    /// The hash of all events of the run.
    pub event_hash: String,
}

/// Operations of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KindMeasured {
    /// The kind.
    pub kind: String,
    /// How many were done each second.
    pub per_s: f64,
    /// How many were done.
    pub count: u64,
    /// Mean latency in milliseconds.
    pub mean_ms: f64,
    /// What shares of them stayed within how many milliseconds: percent by percent up to 99 %, then ten
    /// for each power of ten up to 99.99 %.
    pub quantiles_ms: Vec<f64>,
}

/// The shares of operations for which latencies are kept: percent by percent, and then the tail, ten for
/// each power of ten up to 99.99 %.
pub(crate) fn quantiles() -> Vec<f64> {
    let percents = (1..=99).map(|percent| f64::from(percent) / 100.0);
    let tail = (21..=40).map(|tenth| 1.0 - 10f64.powf(-f64::from(tenth) / 10.0));
    percents.chain(tail).collect()
}

impl KindMeasured {
    /// What so large a share stayed within, in milliseconds; the next larger share that is kept.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let place = quantiles().iter().position(|kept| *kept >= quantile - 1e-9)?;
        self.quantiles_ms.get(place).copied()
    }
}

impl RegistersMeasured {
    /// Operations of a kind; none if there were none.
    pub(crate) fn kind(&self, kind: &str) -> Option<&KindMeasured> {
        self.kinds.iter().find(|measured| measured.kind == kind)
    }
}

/// The kind under which requests as a whole are counted.
pub(crate) const REQUEST: &str = "request";

struct Run<'a> {
    point: &'a RegisterPoint,
    geography: Geography,
    workload: Arc<dyn RegisterWorkload>,
}

impl Visitor<Registers> for Run<'_> {
    type Output = RegistersMeasured;

    fn visit<P: Protocol<Family = Registers>>(self) -> Self::Output {
        let Run { point, geography, workload } = self;
        let mut cluster = Cluster::<P>::new(Configuration {
            seed: point.seed,
            replicas: point.replicas,
            replica_cores: point.replica_cores,
            clients: point.clients,
            geography,
            settings: Settings { thrifty: true, ..Settings::default() },
            costs: point.costs.replica,
            client_costs: Some(point.costs.client),
            open_attempts: 4096,
            ..Configuration::default()
        });
        let (warm_up, measured) =
            (Duration::from_secs_f64(point.warm_up_s), Duration::from_secs_f64(point.measured_s));
        let window = Window::new(Timestamp(0), warm_up, measured, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        let deadline = Duration::from_secs(3600);
        let options = RegisterOptions { deadline };
        for client in 0..point.clients {
            let register_client = RegisterClient {
                registers: cluster.keyspace(client).with_options(options),
                workload: workload.clone(),
                measurement: measurement.clone(),
                recorder: None,
                epoch_ns: 0,
                client: client as u64,
                seed: point.seed,
            };
            cluster.spawn(client, register_client.run());
        }
        let most = point.most_operations / workload.width();
        let stretch =
            observe(&mut cluster, &measurement, geography, (warm_up, measured), most.max(1));
        RegistersMeasured {
            clients: point.clients,
            messages_per_request: stretch.messages_each,
            replica_cpu: stretch.busy_s
                / stretch.seconds
                / (point.replicas * point.replica_cores) as f64,
            seconds: stretch.seconds,
            failed: measurement.report().failed,
            kinds: kinds(&measurement, &measurement.report()),
            event_hash: format!("{:016x}", cluster.event_hash()),
        }
    }
}

fn kinds(measurement: &Measurement, report: &Report) -> Vec<KindMeasured> {
    let quantiles = quantiles();
    let ms = |us: Vec<u64>| us.into_iter().map(|us| us as f64 / 1e3).collect();
    let kind = |kind: &str, count: u64, mean_us: f64, us: Option<Vec<u64>>| KindMeasured {
        kind: kind.to_string(),
        per_s: count as f64 / report.seconds,
        count,
        mean_ms: mean_us / 1e3,
        quantiles_ms: us.map(ms).unwrap_or_default(),
    };
    let mut kinds = vec![kind(
        REQUEST,
        report.committed,
        report.latency_us_mean,
        measurement.request_quantiles_us(&quantiles),
    )];
    kinds.extend(report.kinds.iter().filter(|of_kind| of_kind.committed > 0).map(|of_kind| {
        let us = measurement.quantiles_us(of_kind.kind, &quantiles);
        kind(of_kind.kind, of_kind.committed, of_kind.latency_us_mean, us)
    }));
    kinds
}
