//! What the runs of a figure of registers come to, beside what the paper says.

use serde::Serialize;

use super::{
    Claim, Quantity, REQUEST, RegisterEffort, RegisterEngine, RegisterFigure, RegistersMeasured,
};
use crate::Costs;

/// What a figure of registers came to, beside what the paper says.
#[derive(Clone, Debug, Serialize)]
pub struct RegisterFindings {
    #[serde(skip)]
    pub(crate) figure: &'static RegisterFigure,
    #[serde(rename = "figure")]
    name: &'static str,
    title: &'static str,
    summary: &'static str,
    pub(crate) seed: u64,
    pub(crate) effort: RegisterEffort,
    pub(crate) costs: Costs,
    /// The numbers that the paper's text states, and ours.
    pub(crate) claims: Vec<ClaimFound>,
    /// All runs.
    pub(crate) runs: Vec<RunFound>,
    /// The paper's systems that are not in this build, or were not run.
    pub(crate) missing: Vec<&'static str>,
    remarks: &'static [&'static str],
}

/// A run at its place.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunFound {
    #[serde(skip)]
    pub(crate) panel: usize,
    #[serde(rename = "panel")]
    pub(crate) label: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<f64>,
    pub(crate) protocol: String,
    pub(crate) measured: RegistersMeasured,
}

/// A number of the paper's beside ours.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClaimFound {
    #[serde(rename = "panel")]
    pub(crate) label: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<f64>,
    /// What it is of.
    pub(crate) what: String,
    /// None if a protocol was not run.
    pub(crate) ours: Option<f64>,
    pub(crate) paper: f64,
    pub(crate) source: &'static str,
}

impl RegisterFindings {
    pub(crate) fn new(engine: &RegisterEngine, runs: Vec<RunFound>) -> RegisterFindings {
        let figure = engine.figure;
        let places = engine.places();
        let claim = |claim: &'static Claim| ClaimFound {
            label: figure.panels[claim.panel].label,
            x: claim.x,
            what: describe(claim),
            ours: ours(claim, &places, &runs),
            paper: claim.value,
            source: claim.source,
        };
        let was_run = |protocol: &&str| engine.protocols.iter().any(|run| run == protocol);
        RegisterFindings {
            figure,
            name: figure.name,
            title: figure.title,
            summary: figure.summary,
            seed: engine.seed,
            effort: engine.effort.clone(),
            costs: engine.costs,
            claims: figure.claims.iter().map(claim).collect(),
            missing: figure.protocols().filter(|protocol| !was_run(protocol)).collect(),
            runs,
            remarks: figure.remarks,
        }
    }
}

fn describe(claim: &Claim) -> String {
    let of = match claim.of {
        Quantity::Latency { kind, quantile } => {
            format!("p{} of {kind}s, ms", (quantile * 1000.0).round() / 10.0)
        }
        Quantity::Throughput => "highest throughput, op/s".to_string(),
    };
    match claim.minus {
        None => format!("{}: {of}", claim.protocol),
        Some(minus) => format!("{} - {minus}: {of}", claim.protocol),
    }
}

/// Our number for a claim; none if a protocol that it is about was not run.
fn ours(claim: &Claim, places: &[Option<f64>], runs: &[RunFound]) -> Option<f64> {
    let at = |protocol: &str, x: Option<f64>| {
        let is_it =
            |run: &&RunFound| (run.panel, run.x) == (claim.panel, x) && run.protocol == protocol;
        let measured = &runs.iter().find(is_it)?.measured;
        match claim.of {
            Quantity::Latency { kind, quantile } => measured.kind(kind)?.quantile_ms(quantile),
            Quantity::Throughput => Some(measured.kind(REQUEST)?.per_s),
        }
    };
    let places = places.iter().filter(|x| claim.x.is_none() || **x == claim.x);
    let greatest =
        |numbers: &mut dyn Iterator<Item = Option<f64>>| numbers.flatten().max_by(f64::total_cmp);
    match (claim.minus, claim.of) {
        (None, _) => greatest(&mut places.map(|x| at(claim.protocol, *x))),
        // Each at its best, wherever that is.
        (Some(minus), Quantity::Throughput) => {
            let highest = greatest(&mut places.clone().map(|x| at(claim.protocol, *x)))?;
            Some(highest - greatest(&mut places.map(|x| at(minus, *x)))?)
        }
        (Some(minus), Quantity::Latency { .. }) => {
            greatest(&mut places.map(|x| Some(at(claim.protocol, *x)? - at(minus, *x)?)))
        }
    }
}
