//! What the runs of a figure of systems under load come to, beside what the paper says.

use serde::Serialize;

use super::{Claim, LoadEffort, LoadEngine, LoadFigure, Quantity, SystemFound};
use crate::Costs;

/// What a figure of systems under load came to, beside what the paper says.
#[derive(Clone, Debug, Serialize)]
pub struct LoadFindings {
    #[serde(skip)]
    pub(crate) figure: &'static LoadFigure,
    #[serde(rename = "figure")]
    name: &'static str,
    title: &'static str,
    summary: &'static str,
    pub(crate) seed: u64,
    pub(crate) effort: LoadEffort,
    pub(crate) costs: Costs,
    /// The numbers that the paper's text states, and ours.
    pub(crate) claims: Vec<ClaimFound>,
    /// What each system has come to.
    pub(crate) systems: Vec<SystemFound>,
    /// The paper's systems that are not in this build, or were not run.
    pub(crate) missing: Vec<&'static str>,
    remarks: &'static [&'static str],
}

/// A number of the paper's beside ours.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClaimFound {
    /// What it is of.
    pub(crate) what: String,
    /// None if a protocol was not run, or does not count it.
    pub(crate) ours: Option<f64>,
    /// In the paper's words.
    pub(crate) paper: &'static str,
    pub(crate) source: &'static str,
}

impl LoadFindings {
    pub(super) fn new(engine: &LoadEngine, systems: Vec<SystemFound>) -> LoadFindings {
        let figure = engine.figure;
        let claim = |claim: &'static Claim| ClaimFound {
            what: describe(figure, claim),
            ours: ours(figure, claim, &systems),
            paper: claim.paper,
            source: claim.source,
        };
        let was_run = |protocol: &&str| engine.protocols.iter().any(|run| run == protocol);
        LoadFindings {
            figure,
            name: figure.name,
            title: figure.title,
            summary: figure.summary,
            seed: engine.seed,
            effort: engine.effort.clone(),
            costs: engine.costs,
            claims: figure.claims.iter().map(claim).collect(),
            missing: figure.protocols().filter(|protocol| !was_run(protocol)).collect(),
            systems,
            remarks: figure.remarks,
        }
    }
}

fn describe(figure: &LoadFigure, claim: &Claim) -> String {
    let of = match claim.of {
        Quantity::OperatingPoint => "throughput at the operating point",
        Quantity::Peak => "highest throughput",
        Quantity::LatencyAtPeak => "median latency at the highest throughput",
        Quantity::LatencyAtHalf => "median latency at half of the highest throughput",
        Quantity::PassedAtFirst => "attempts that pass the safeguard at first, %",
        Quantity::NotDelayed => "transactions whose responses are not delayed, %",
        Quantity::RetriedWell => "of those that do not pass, moved by smart retry, %",
        Quantity::StartedOver => "attempts from scratch after the first, for 100 transactions",
    };
    let of = match claim.of {
        Quantity::LatencyAtPeak | Quantity::LatencyAtHalf => format!("{of}, {}", figure.kind),
        _ => of.to_string(),
    };
    match claim.over {
        None => format!("{}: {of}", claim.protocol),
        Some(over) => format!("{} / {over}: {of}", claim.protocol),
    }
}

/// Our number for a claim: a share is in percent.
fn ours(figure: &LoadFigure, claim: &Claim, systems: &[SystemFound]) -> Option<f64> {
    let system = |protocol: &str| systems.iter().find(|system| system.protocol == protocol);
    let one = system(claim.protocol)?;
    let Some(over) = claim.over else {
        let share = one.number(figure, claim.of, one)?;
        return (share.is_finite()).then_some(100.0 * share);
    };
    let other = system(over)?;
    let ratio = one.number(figure, claim.of, other)? / other.number(figure, claim.of, one)?;
    ratio.is_finite().then_some(ratio)
}
