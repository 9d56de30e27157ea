//! What a run has counted by kinds of transactions, and what a protocol has counted of itself.

use std::collections::BTreeMap;

use serried_actor::{Actor, Protocol};
use serried_sim::Cluster;
use serried_workload::Report;

use super::Quantity;
use crate::Measured;
use crate::measured::OfKind;

/// For shares that a protocol alone can know: the gauges that count the cases, and all there are. Replicas and
/// coordinators may show them; where nobody does, a share is unknown.
const SHARES: &[(Quantity, &str, &str)] = &[
    (Quantity::PassedAtFirst, "safeguard_passes", "safeguard_checks"),
    (Quantity::NotDelayed, "immediate_responses", "responses"),
    (Quantity::RetriedWell, "smart_retry_passes", "smart_retries"),
];

/// What all replicas and clients have counted since they began, of what [`SHARES`] names.
pub(crate) fn counted<P: Protocol>(cluster: &Cluster<P>) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    let mut add = |name: &'static str, count: u64| {
        if SHARES.iter().any(|(_, some, all)| [*some, *all].contains(&name)) {
            *counted.entry(name.to_string()).or_insert(0) += count;
        }
    };
    let configuration = cluster.configuration();
    for partition in 0..configuration.partitions {
        for member in 0..configuration.replicas {
            cluster.replica_of(partition, member).gauges(&mut add);
        }
    }
    for client in 0..configuration.clients {
        cluster.coordinator(client).gauges(&mut add);
    }
    counted
}

/// A share that a protocol counts itself; none if it does not, or there was nothing to count.
pub(super) fn share(of: Quantity, measured: &Measured) -> Option<f64> {
    let (_, some, all) = SHARES.iter().find(|(quantity, ..)| *quantity == of)?;
    let counted = &measured.open.as_ref()?.counted;
    let (some, all) = (*counted.get(*some)?, *counted.get(*all)?);
    (all > 0).then(|| some as f64 / all as f64)
}

/// What was committed, by kinds.
pub(crate) fn kinds(report: &Report) -> Vec<OfKind> {
    let committed = report.kinds.iter().filter(|kind| kind.committed > 0);
    let of_kind = committed.map(|kind| OfKind {
        kind: kind.kind.to_string(),
        per_s: kind.goodput_per_s,
        latency_ms_p50: kind.latency_us_p50 as f64 / 1e3,
        latency_ms_p99: kind.latency_us_p99 as f64 / 1e3,
    });
    of_kind.collect()
}
