//! Figures of systems under load: clients in open loops offer ever more, and each system shows what it does.
//!
//! ```text
//! paper_003  what a figure shows, how it was made, and the numbers that the paper's text gives
//! effort     how much effort is made
//! point      one run of it
//! climb      offers that go up until a system can't follow, and then close in on what it can do
//! deaths     all clients die, and others go on: what is done over time
//! counted    what protocols count of themselves
//! system     what one system has come to
//! engine     all systems of a figure; findings: what it comes to, beside what the paper says
//! ```
//!
//! As with the other figures, nothing is read off a plot: of the paper's numbers there are those that its
//! text states.

mod climb;
mod counted;
mod deaths;
mod effort;
mod engine;
mod findings;
mod paper_003;
mod point;
mod system;

use crate::registers::Series;

pub(crate) use counted::{counted, kinds};
pub(crate) use deaths::{SLOT, survive};
pub use effort::LoadEffort;
pub use engine::{LoadEngine, LoadNote};
pub use findings::LoadFindings;
pub(crate) use point::{CLIENTS, SERVER_CORES, SERVERS};
pub(crate) use system::{Dip, SystemFound, knee};

/// A figure that shows what systems do under load.
#[derive(Debug)]
pub struct LoadFigure {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is called in the paper.
    pub title: &'static str,
    /// What it shows, in a sentence.
    pub summary: &'static str,
    pub(crate) workload: &'static str,
    /// How many keys there are, or warehouses.
    pub(crate) size: u64,
    /// From how many terminals transactions come, one drawn for each, for every unit of size; 0 if
    /// clients make no difference.
    pub(crate) terminals: u64,
    /// The kind of transactions whose latency is shown.
    pub(crate) kind: &'static str,
    /// Whether throughput is that of this kind, and not of all transactions.
    pub(crate) kind_alone: bool,
    /// How many transactions per second are offered first.
    pub(crate) first_per_s: f64,
    /// How many transactions each client may have open.
    pub(crate) most_open: usize,
    /// How many times as much a transaction takes as one of F1, roughly: by so much fewer make a run.
    pub(crate) weight: u64,
    pub(crate) shows: Shows,
    pub(crate) series: &'static [Series],
    pub(crate) claims: &'static [Claim],
    /// What has to be known to compare the paper's numbers with ours.
    pub(crate) remarks: &'static [&'static str],
}

/// What a figure shows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Shows {
    /// Median latency over throughput.
    Curve,
    /// Throughput at a set share of the highest, over the share of transactions that write.
    Writes { all: &'static [f64], few: &'static [f64] },
    /// Throughput over time at a set share of the highest, when all clients die, for so many seconds until
    /// what they left undone is taken care of.
    Deaths { after_s: &'static [f64] },
}

/// A number that the paper's text gives: of a system, or its ratio to another's.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) of: Quantity,
    pub(crate) protocol: &'static str,
    pub(crate) over: Option<&'static str>,
    /// The number in the paper's words, as it is seldom exact.
    pub(crate) paper: &'static str,
    pub(crate) source: &'static str,
}

/// What a number is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quantity {
    /// The highest throughput with a median latency below [`OPERATING_MS`].
    OperatingPoint,
    /// The highest throughput.
    Peak,
    /// Median latency at the highest throughput: where nearly as much is done with the least offered.
    LatencyAtPeak,
    /// Median latency at half of the highest throughput, or half of another's if that is less.
    LatencyAtHalf,
    /// The share of attempts that pass the safeguard at first, at the operating point.
    PassedAtFirst,
    /// The share of transactions whose responses are not delayed, at least, at the operating point.
    NotDelayed,
    /// The share of smart retries among attempts that don't pass, at the operating point.
    RetriedWell,
    /// Attempts from scratch after the first, for each transaction, at the operating point.
    StartedOver,
}

/// The paper's operating point: "reasonably low latency (< 10 ms)" (003 §6.3), the median.
pub(crate) const OPERATING_MS: f64 = 10.0;
/// "Each system is run at ∼75% load according to Figure 7a" (003 §6.4).
pub(crate) const LOAD: f64 = 0.75;

/// All figures of systems under load that can be reproduced.
pub fn load_figures() -> &'static [LoadFigure] {
    paper_003::FIGURES
}

impl LoadFigure {
    /// The protocols of the paper, in its order, by their names in the registry; not all may be there.
    pub fn protocols(&self) -> impl Iterator<Item = &'static str> {
        self.series.iter().map(|series| series.protocol)
    }

    /// The places at which systems run at a share of their highest throughput; none if it shows how they get
    /// there.
    pub(crate) fn places(&self, few: bool) -> &'static [f64] {
        match self.shows {
            Shows::Curve => &[],
            Shows::Writes { few: some, .. } if few => some,
            Shows::Writes { all, .. } => all,
            Shows::Deaths { after_s } => after_s,
        }
    }

    /// What these places are.
    pub(crate) fn axis(&self) -> &'static str {
        match self.shows {
            Shows::Curve => "",
            Shows::Writes { .. } => "writes",
            Shows::Deaths { .. } => "timeout s",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_belongs_to_systems_of_its_figure() {
        for figure in load_figures() {
            let is_series = |protocol: &str| figure.protocols().any(|known| known == protocol);
            for claim in figure.claims {
                assert!(is_series(claim.protocol), "{}", claim.protocol);
                assert!(claim.over.is_none_or(is_series), "{:?}", claim.over);
            }
        }
    }
}
