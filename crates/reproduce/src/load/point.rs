//! One run of a figure of systems under load.

use serried_workload::Parameters;

use super::{LoadFigure, Shows};
use crate::setup::OpenClients;
use crate::{Costs, LoadEffort, Point};

/// "We use 8 machines as servers" (003 §6.1): as many partitions, of one replica each.
pub(crate) const SERVERS: u16 = 8;
/// "16-32 machines as clients" (003 §6.1).
pub(crate) const CLIENTS: usize = 24;
/// A partition runs on one core.
pub(crate) const SERVER_CORES: u32 = 1;
/// The length of values where it makes no difference to what computing costs.
const VALUE_BYTES: usize = 16;

impl Point {
    /// A run of `figure` with 003's set-up (§6.1) and this rate; at a place, if it is one of those of
    /// [`LoadFigure::places`]. The paper does not say how clients back off, before a retry or from an
    /// overloaded system, how far clocks were off or how much delays varied: those are this crate's choice.
    pub(crate) fn of_load(
        figure: &LoadFigure,
        protocol: &str,
        (rate_per_s, place): (f64, Option<f64>),
        effort: &LoadEffort,
        (costs, seed): (Costs, u64),
    ) -> Point {
        let size = effort.size.unwrap_or(figure.size);
        let bytes_cost = costs.replica.byte_ps > 0 || costs.client.byte_ps > 0;
        let mut parameters = Parameters {
            keys: Some(size),
            warehouses: Some(size),
            value_bytes: (!bytes_cost).then_some(VALUE_BYTES),
            ..Parameters::default()
        };
        let (mut recovery_after_ms, mut deaths) = (None, None);
        match (figure.shows, place) {
            (Shows::Writes { .. }, Some(writes)) => parameters.writes = Some(writes),
            // The least that the figure shows is that of the workload which the load is a share of.
            (Shows::Writes { all, .. }, None) => parameters.writes = all.first().copied(),
            (Shows::Deaths { .. }, Some(after_s)) => {
                recovery_after_ms = Some((after_s * 1e3) as u64);
                deaths = Some(effort.deaths);
            }
            _ => {}
        }
        Point {
            protocol: protocol.to_string(),
            workload: figure.workload,
            parameters,
            terminals: figure.terminals * size,
            geography: "lan",
            replicas: 1,
            partitions: SERVERS,
            replica_cores: SERVER_CORES,
            clients: effort.clients,
            backoff_first_ms: 1,
            backoff_most_ms: 100,
            clock_skew_us: 500,
            jitter: 0.01,
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            most_transactions: (effort.most_transactions / figure.weight).max(1),
            costs,
            seed,
            open: Some(OpenClients {
                rate_per_s,
                most_open: figure.most_open,
                recovery_after_ms,
                deaths,
            }),
        }
    }
}
