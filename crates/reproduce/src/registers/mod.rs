//! Figures of registers: latencies of reads, writes and read-modify-writes, each place of a figure with a
//! set number of clients.
//!
//! As with the other figures, nothing is read off a plot: of the paper's numbers there are those that its
//! text states.

mod engine;
mod findings;
mod paper_001;
mod point;

use serried_workload::Shares;

pub use engine::{RegisterEngine, RegisterNote};
pub use findings::RegisterFindings;
pub(crate) use findings::RunFound;
pub use point::KindMeasured;
pub(crate) use point::{REQUEST, quantiles};
pub use point::{RegisterEffort, RegisterPoint, RegistersMeasured};

/// A figure that shows latencies of registers.
#[derive(Debug)]
pub struct RegisterFigure {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is called in the paper.
    pub title: &'static str,
    /// What it shows, in a sentence.
    pub summary: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) geography: &'static str,
    pub(crate) replicas: usize,
    /// How many cores a replica has.
    pub(crate) replica_cores: usize,
    /// How many clients there are at each replica.
    pub(crate) clients_each: usize,
    pub(crate) shares: Shares,
    pub(crate) panels: &'static [Conflicts],
    pub(crate) shows: Shows,
    pub(crate) series: &'static [Series],
    pub(crate) claims: &'static [Claim],
    /// What has to be known to compare the paper's numbers with ours.
    pub(crate) remarks: &'static [&'static str],
}

/// A part of a figure: how many operations conflict.
#[derive(Debug)]
pub(crate) struct Conflicts {
    /// What it is called.
    pub(crate) label: &'static str,
    /// The share of operations on the key that all clients have in common.
    pub(crate) share: f64,
}

/// A system of the paper, by the name under which the registry has it, or will.
#[derive(Debug)]
pub(crate) struct Series {
    /// Its name in the registry.
    pub(crate) protocol: &'static str,
    /// Its name in the paper.
    pub(crate) label: &'static str,
}

/// What a figure shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shows {
    /// How latencies of these kinds of operations are distributed.
    Distributions { kinds: &'static [&'static str] },
    /// The 99th percentile of these kinds of operations over the share of writes; the rest read, but for
    /// the read-modify-writes.
    Writes { kinds: &'static [&'static str], all: &'static [f64], few: &'static [f64] },
    /// Median latency over throughput, for so many clients.
    Load { all: &'static [f64], few: &'static [f64] },
    /// The median latency of requests over the number of their operations.
    SubRequests { all: &'static [f64], few: &'static [f64] },
}

/// A number that the paper's text gives: of a protocol, or by how much it exceeds another's.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) panel: usize,
    /// The place on the horizontal axis; the greatest over all places if there is none but the figure has
    /// places.
    pub(crate) x: Option<f64>,
    pub(crate) protocol: &'static str,
    pub(crate) minus: Option<&'static str>,
    pub(crate) of: Quantity,
    pub(crate) value: f64,
    pub(crate) source: &'static str,
}

/// What a number is about.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Quantity {
    /// What so large a share of the operations of a kind stay within, in milliseconds.
    Latency { kind: &'static str, quantile: f64 },
    /// Requests per second.
    Throughput,
}

/// All figures of registers that can be reproduced.
pub fn register_figures() -> &'static [RegisterFigure] {
    paper_001::FIGURES
}

impl RegisterFigure {
    /// The protocols of the paper, in its order, by their names in the registry; not all may be there.
    pub fn protocols(&self) -> impl Iterator<Item = &'static str> {
        self.series.iter().map(|series| series.protocol)
    }

    /// Whether there are read-modify-writes among the operations.
    pub fn modifies(&self) -> bool {
        self.rmws() > 1e-9
    }

    fn rmws(&self) -> f64 {
        1.0 - self.shares.reads - self.shares.writes
    }

    /// The places on its horizontal axis; a single one without a number if there is none.
    pub(crate) fn places(&self, few: bool) -> Vec<Option<f64>> {
        match self.shows {
            Shows::Distributions { .. } => vec![None],
            Shows::Writes { all, few: some, .. }
            | Shows::Load { all, few: some }
            | Shows::SubRequests { all, few: some } => {
                let places = if few { some } else { all };
                places.iter().map(|place| Some(*place)).collect()
            }
        }
    }

    /// What is on the horizontal axis.
    pub(crate) fn axis(&self) -> Option<&'static str> {
        match self.shows {
            Shows::Distributions { .. } => None,
            Shows::Writes { .. } => Some("writes"),
            Shows::Load { .. } => Some("clients"),
            Shows::SubRequests { .. } => Some("sub-requests"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_at_a_place_that_is_run_and_belongs_to_systems_of_the_paper() {
        for figure in register_figures() {
            let is_series = |protocol: &str| figure.protocols().any(|known| known == protocol);
            for claim in figure.claims {
                assert!(claim.panel < figure.panels.len(), "{}", figure.name);
                for few in [false, true] {
                    let here = claim.x.is_none() || figure.places(few).contains(&claim.x);
                    assert!(here, "{}: {:?} is not run", figure.name, claim.x);
                }
                assert!(is_series(claim.protocol), "{}", claim.protocol);
                assert!(claim.minus.is_none_or(is_series), "{:?}", claim.minus);
            }
        }
    }
}
