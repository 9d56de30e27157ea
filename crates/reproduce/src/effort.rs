//! The effort for a figure.

use serde::Serialize;

/// The effort for a figure: the length and the load of its runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Effort {
    /// How long to run before measuring, in simulated seconds.
    pub warm_up_s: f64,
    /// How long to measure, in simulated seconds.
    pub measured_s: f64,
    /// Warming up and measuring each end earlier after this many transactions or operations. This bounds a run's time
    /// and memory. The higher the throughput, the less time a measurement needs.
    pub most_operations: u64,
    /// Whether to use fewer places on the horizontal axis.
    pub few_places: bool,
    /// Places on the horizontal axis in place of the paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<f64>>,
    /// The number of keys or warehouses, if it is not the paper's. For registers, the number of keys that each client
    /// has of its own.
    pub size: Option<u64>,
    /// The load of the runs.
    pub search: Search,
    /// In a figure in which all clients die: when they die, and how long others continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deaths: Option<Deaths>,
}

/// The load of the runs of a system at a place.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Search {
    /// Closed loops.
    Clients {
        /// The client counts, from few to many.
        counts: Vec<usize>,
        /// Runs end after this many consecutive client counts that did not raise the highest throughput. If `None`, all
        /// counts are run.
        patience: Option<usize>,
    },
    /// Open loops.
    Rates {
        /// How many clients there are.
        clients: usize,
        /// How many transactions per second are offered, run by run. If empty, the rate is doubled until a system can't
        /// keep up.
        rates_per_s: Vec<f64>,
        /// How many runs then narrow down the highest rate that it can keep up with.
        closer: u32,
    },
}

/// All clients die, and as many others continue. Throughput is then measured from the beginning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Deaths {
    /// When they die, in simulated seconds.
    pub at_s: f64,
    /// How long the others continue, in simulated seconds.
    pub then_s: f64,
}
