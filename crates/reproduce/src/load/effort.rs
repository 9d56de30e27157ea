//! How much effort is made for a figure of systems under load.

use serde::Serialize;

use super::CLIENTS;
use crate::setup::Deaths;

/// How much effort is made for a figure of systems under load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadEffort {
    /// How long to run before measuring, in simulated seconds.
    pub warm_up_s: f64,
    /// How long to measure, in simulated seconds.
    pub measured_s: f64,
    /// Warming up and measuring each end earlier when so many transactions of F1 have been committed, or
    /// fewer of larger ones.
    pub most_transactions: u64,
    /// How many client machines there are.
    pub clients: usize,
    /// How many transactions per second are offered, run by run; if there are none, twice as many in each
    /// run until a system can't follow.
    pub rates_per_s: Vec<f64>,
    /// How many runs then close in on what it can do.
    pub closer: u32,
    /// Fewer places on the horizontal axis.
    pub few_places: bool,
    /// Where all clients die: when, and for how long others go on.
    pub deaths: Deaths,
    /// How many keys there are, or warehouses, if not as many as in the paper.
    pub size: Option<u64>,
}

impl LoadEffort {
    /// What it takes for numbers to report. The paper makes three runs of 60 s each; a simulated run repeats
    /// itself, and has nothing but transactions in it.
    pub fn full() -> LoadEffort {
        LoadEffort {
            warm_up_s: 2.0,
            measured_s: 8.0,
            most_transactions: 150_000,
            clients: CLIENTS,
            rates_per_s: Vec::new(),
            closer: 4,
            few_places: false,
            deaths: Deaths { at_s: 10.0, then_s: 10.0 },
            size: None,
        }
    }

    /// What it takes for a first impression.
    pub fn quick() -> LoadEffort {
        LoadEffort {
            warm_up_s: 0.5,
            measured_s: 1.5,
            most_transactions: 12_000,
            closer: 2,
            few_places: true,
            deaths: Deaths { at_s: 1.0, then_s: 4.0 },
            ..LoadEffort::full()
        }
    }
}
