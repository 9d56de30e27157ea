//! A run of read-only transactions and writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serried_actor::{Protocol, Timestamp};
use serried_model::snapshots::VersionClocks;
use serried_model::{Geography, Snapshots};
use serried_protocols::Visitor;
use serried_session::SnapshotOptions;
use serried_sim::{Cluster, Configuration, Initial};
use serried_workload::{
    Measurement, SnapshotClient, SnapshotParameters, SnapshotWorkload, Staleness, Window,
};

use super::registers::kinds;
use super::stretch::observe;
use super::{Demand, Setting};
use crate::figure::{Groups, Parameter};
use crate::measured::{RegistersMeasured, SnapshotsMeasured};
use crate::{Costs, Error};

/// One run. Together with the build, this determines its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct SnapshotPoint {
    /// The protocol, by its name in the registry.
    protocol: String,
    /// The workload, by its name.
    workload: &'static str,
    /// The parameters of the workload.
    parameters: SnapshotParameters,
    /// How far sessions stay behind, in milliseconds. Infinite if they read at the stable frontier alone.
    freshness_ms: Option<f64>,
    /// The sites of the replicas and clients.
    geography: &'static str,
    /// How many replicas each partition has.
    replicas: usize,
    /// How many servers there are, each with a partition.
    servers: u16,
    /// How many clients there are.
    clients: usize,
    /// [`Effort::warm_up_s`].
    warm_up_s: f64,
    /// [`Effort::measured_s`].
    measured_s: f64,
    /// [`Effort::most_operations`].
    most_operations: u64,
    /// The costs of computing.
    costs: Costs,
    /// The seed.
    seed: u64,
}

impl SnapshotPoint {
    pub(super) fn new(setting: &Setting<'_>, work: Groups, demand: Demand) -> SnapshotPoint {
        let Setting { figure, effort, panel, x, .. } = *setting;
        let value = |parameter| figure.value(parameter, panel, x);
        let parameters = SnapshotParameters {
            writes: Some(value(Parameter::Writes).unwrap_or(work.writes)),
            keys: Some(effort.size.unwrap_or(work.size)),
            theta: Some(value(Parameter::Theta).unwrap_or(work.theta)),
            ..SnapshotParameters::default()
        };
        SnapshotPoint {
            protocol: setting.protocol.to_string(),
            workload: work.workload,
            parameters,
            freshness_ms: value(Parameter::FreshnessMs).filter(|ms| ms.is_finite()),
            geography: setting.geography(),
            replicas: figure.servers.replicas,
            servers: figure.servers_at(panel, x),
            clients: figure.clients_at(panel, x).unwrap_or(demand.clients()),
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            most_operations: figure.most_operations(effort),
            costs: setting.costs,
            seed: setting.seed,
        }
    }

    /// The name of the file with its result.
    pub(super) fn file(&self) -> String {
        let SnapshotPoint { protocol, clients, servers, parameters, freshness_ms, .. } = self;
        let share = |share: Option<f64>| share.unwrap_or_default();
        let (theta, writes) = (share(parameters.theta), share(parameters.writes));
        let fresh = freshness_ms.map_or("frontier".to_string(), |ms| format!("fresh{ms}"));
        format!(
            "{protocol}-servers{servers}-theta{theta}-writes{writes}-{fresh}-clients{clients}.json"
        )
    }

    /// Runs it.
    pub(super) fn run(&self) -> Result<SnapshotsMeasured, Error> {
        let geography = Geography::named(self.geography)?;
        let workload = serried_workload::named_snapshots(self.workload, &self.parameters)?;
        let run = Run { point: self, geography, workload };
        serried_protocols::visit(&self.protocol, run)?
    }
}

struct Run<'a> {
    point: &'a SnapshotPoint,
    geography: Geography,
    workload: Arc<dyn SnapshotWorkload>,
}

impl Visitor<Snapshots> for Run<'_> {
    type Output = Result<SnapshotsMeasured, Error>;

    fn visit<P: Protocol<Family = Snapshots>>(self) -> Self::Output {
        let Run { point, geography, mut workload } = self;
        if P::OFFERS.write_transactions {
            workload = workload.with_write_transactions().unwrap_or(workload);
        } else if workload.needs_write_transactions() {
            let (protocol, workload) = (point.protocol.clone(), point.workload);
            return Err(Error::NoWriteTransactions { protocol, workload });
        }
        let initial = workload.initial();
        let mut cluster = Cluster::<P>::new(Configuration {
            seed: point.seed,
            replicas: point.replicas,
            partitions: point.servers,
            clients: point.clients,
            geography,
            costs: point.costs.replica,
            client_costs: Some(point.costs.client),
            initial: initial.map(|value| Initial::new(move |_| Some(value.clone()))),
            ..Configuration::default()
        });
        let (warm_up, measured) =
            (Duration::from_secs_f64(point.warm_up_s), Duration::from_secs_f64(point.measured_s));
        let window = Window::new(Timestamp(0), warm_up, measured, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        let staleness = (P::OFFERS.version_clocks != VersionClocks::None)
            .then(|| Arc::new(Staleness::default()));
        let freshness =
            point.freshness_ms.map_or(Duration::MAX, |ms| Duration::from_secs_f64(ms / 1e3));
        let options = SnapshotOptions { deadline: Duration::from_secs(3600), freshness };
        for client in 0..point.clients {
            let snapshot_client = SnapshotClient {
                session: cluster.keyspace(client).with_options(options),
                workload: workload.clone(),
                measurement: measurement.clone(),
                recorder: None,
                staleness: staleness.clone(),
                front_ends: Vec::new(),
                client: client as u64,
                seed: point.seed,
                ended_sessions: 0,
            };
            cluster.spawn(client, snapshot_client.run());
        }
        let stretch = observe(
            &mut cluster,
            &measurement,
            geography,
            (warm_up, measured),
            point.most_operations,
        );
        let report = measurement.report();
        let cores = point.replicas * usize::from(point.servers);
        let requests = RegistersMeasured {
            clients: point.clients,
            messages_per_request: stretch.messages_each,
            replica_cpu: stretch.busy_s / stretch.seconds / cores as f64,
            seconds: stretch.seconds,
            failed: report.failed,
            kinds: kinds(&measurement, &report),
            event_hash: format!("{:016x}", cluster.event_hash()),
        };
        let mut means: BTreeMap<String, f64> =
            report.means.iter().map(|(name, mean)| (name.to_string(), *mean)).collect();
        let sum = |name| {
            let members = || 0..point.replicas;
            let all = (0..point.servers).flat_map(|server| members().map(move |m| (server, m)));
            let gauges = all.filter_map(|(server, member)| cluster.gauge(server, member, name));
            gauges.reduce(|one, other| one + other)
        };
        if let (Some(blocked), Some(reads)) = (sum("blocked_reads"), sum("reads")) {
            let confirmed = sum("confirmed_reads").unwrap_or(0);
            let share = (blocked + confirmed) as f64 / reads.max(1) as f64;
            means.insert("blocked_share".to_string(), share);
        }
        let staleness = staleness.map(|staleness| staleness.report());
        Ok(SnapshotsMeasured { requests, means, staleness })
    }
}
