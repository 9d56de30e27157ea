//! The costs of computing in a simulation.

use serde::{Deserialize, Serialize};
use serried_sim::CostModel;

/// The costs of computing at replicas and clients, as `serried calibrate` writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// At replicas.
    pub replica: CostModel,
    /// At clients.
    pub client: CostModel,
}

impl Costs {
    /// The costs of a CPU that is slower by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Costs {
        let times = |cost: u64| (cost as f64 * factor).round() as u64;
        let scale = |costs: CostModel| CostModel {
            event_ns: times(costs.event_ns),
            sent_message_ns: times(costs.sent_message_ns),
            work_unit_ns: times(costs.work_unit_ns),
            byte_ps: times(costs.byte_ps),
        };
        Costs { replica: scale(self.replica), client: scale(self.client) }
    }
}

impl Default for Costs {
    /// The built-in costs.
    fn default() -> Costs {
        Costs { replica: CostModel::default(), client: CostModel::CLIENT }
    }
}
