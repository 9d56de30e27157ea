//! A run of operations on registers.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serried_actor::{Protocol, Settings, Timestamp};
use serried_model::Geography;
use serried_protocols::Visitor;
use serried_session::RegisterOptions;
use serried_sim::{Cluster, Configuration};
use serried_workload::{
    Measurement, RegisterClient, RegisterParameters, RegisterWorkload, Report, Shares, Window,
};

use super::stretch::observe;
use super::{Demand, Setting};
use crate::figure::Parameter;
use crate::measured::{KindMeasured, REQUEST, RegistersMeasured, quantiles};
use crate::{Costs, Error};

/// One run. Together with the build, this determines its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct RegisterPoint {
    /// The protocol, by its name in the registry.
    pub(super) protocol: String,
    /// The workload, by its name.
    pub(super) workload: &'static str,
    /// The parameters of the workload.
    pub(super) parameters: RegisterParameters,
    /// The sites of the replicas and clients.
    pub(super) geography: &'static str,
    /// How many replicas there are.
    pub(super) replicas: usize,
    /// How many cores a replica has.
    pub(super) replica_cores: usize,
    /// How many clients there are, the same number at each site.
    pub(super) clients: usize,
    /// [`Effort::warm_up_s`].
    pub(super) warm_up_s: f64,
    /// [`Effort::measured_s`].
    pub(super) measured_s: f64,
    /// [`Effort::most_operations`].
    pub(super) most_operations: u64,
    /// The costs of computing.
    pub(super) costs: Costs,
    /// The seed.
    pub(super) seed: u64,
}

impl RegisterPoint {
    /// A run in which requests go only to as many replicas as must answer (001 §4.5.1).
    pub(super) fn new(
        setting: &Setting<'_>,
        workload: &'static str,
        mut shares: Shares,
        demand: Demand,
    ) -> RegisterPoint {
        let Setting { figure, effort, .. } = *setting;
        let value = |parameter| figure.value(parameter, setting.panel, setting.x);
        if let Some(writes) = value(Parameter::Writes) {
            let rmws = 1.0 - shares.reads - shares.writes;
            shares = Shares { reads: 1.0 - rmws - writes, writes };
        }
        let parameters = RegisterParameters {
            reads: Some(shares.reads),
            writes: Some(shares.writes),
            conflicts: value(Parameter::Conflicts),
            keys: effort.size,
            sub_requests: value(Parameter::SubRequests).map(|operations| operations as u64),
            ..RegisterParameters::default()
        };
        RegisterPoint {
            protocol: setting.protocol.to_string(),
            workload,
            parameters,
            geography: setting.geography(),
            replicas: figure.servers.replicas,
            replica_cores: figure.servers.cores as usize,
            clients: demand.clients(),
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            most_operations: figure.most_operations(effort),
            costs: setting.costs,
            seed: setting.seed,
        }
    }

    /// The name of the file with its result.
    pub(super) fn file(&self) -> String {
        let RegisterPoint { protocol, clients, parameters, .. } = self;
        let share = |share: Option<f64>| share.unwrap_or_default();
        let (conflicts, writes) = (share(parameters.conflicts), share(parameters.writes));
        let sub_requests = parameters.sub_requests.unwrap_or(1);
        format!(
            "{protocol}-conflicts{conflicts}-writes{writes}-sub{sub_requests}-clients{clients}.json"
        )
    }

    /// Runs it.
    pub(super) fn run(&self) -> Result<RegistersMeasured, Error> {
        let geography = Geography::named(self.geography)?;
        let workload = serried_workload::named_registers(self.workload, &self.parameters)?;
        let run = Run { point: self, geography, workload };
        Ok(serried_protocols::visit(&self.protocol, run)?)
    }
}

struct Run<'a> {
    point: &'a RegisterPoint,
    geography: Geography,
    workload: Arc<dyn RegisterWorkload>,
}

impl Visitor<serried_model::Registers> for Run<'_> {
    type Output = RegistersMeasured;

    fn visit<P: Protocol<Family = serried_model::Registers>>(self) -> RegistersMeasured {
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

/// Operations by kind, and whole requests.
pub(super) fn kinds(measurement: &Measurement, report: &Report) -> Vec<KindMeasured> {
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
        let us = measurement.quantiles_us(&of_kind.kind, &quantiles);
        kind(&of_kind.kind, of_kind.committed, of_kind.latency_us_mean, us)
    }));
    kinds
}
