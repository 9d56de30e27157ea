//! How much effort a figure takes.

use serde::Serialize;

/// How much effort is made for a figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Effort {
    /// How long to run before measuring, in simulated seconds.
    pub warm_up_s: f64,
    /// How long to measure, in simulated seconds.
    pub measured_s: f64,
    /// Warming up and measuring each end earlier after so many transactions or operations, which bounds a
    /// run's time and memory. The more of them, the less time is needed for as good a measurement.
    pub most_operations: u64,
    /// Fewer places on the horizontal axis.
    pub few_places: bool,
    /// The number of keys or warehouses, if it is not the paper's. Of registers it is the number of keys that each
    /// client has of its own.
    pub size: Option<u64>,
    /// The load of the runs.
    pub search: Search,
    /// In a figure in which all clients die: when, and for how long others go on.
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
        /// After so many client counts in a row that did not raise the highest throughput, no more are run. Without
        /// it all are run.
        patience: Option<usize>,
    },
    /// Open loops.
    Rates {
        /// How many clients there are.
        clients: usize,
        /// How many transactions per second are offered, run by run. If there are none, the rate is doubled until
        /// a system can't follow.
        rates_per_s: Vec<f64>,
        /// How many runs then close in on what it can do.
        closer: u32,
    },
}

/// All clients die, and as many others go on. What is done is then measured from the beginning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Deaths {
    /// When they die, in simulated seconds.
    pub at_s: f64,
    /// How long the others go on, in simulated seconds.
    pub then_s: f64,
}
