//! What a sweep comes to, beside what the paper says.

use serde::Serialize;

use crate::paper::{Figure, Quantity, SERIES};
use crate::sweep::Sweep;
use crate::{Costs, Effort, Engine, Measured};

/// What a sweep came to, beside what the paper says.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    #[serde(skip)]
    pub(crate) figure: &'static Figure,
    #[serde(rename = "figure")]
    name: &'static str,
    title: &'static str,
    summary: &'static str,
    pub(crate) seed: u64,
    pub(crate) effort: Effort,
    pub(crate) costs: Costs,
    /// The highest goodput of each protocol at each place, and what the paper says of it.
    pub(crate) peaks: Vec<Peak>,
    /// How many times as much the paper's own system commits as the others.
    pub(crate) ratios: Vec<Comparison>,
    /// All runs.
    pub(crate) sweeps: Vec<Sweep>,
    remarks: &'static [&'static str],
}

/// The highest goodput of a protocol at a place of the figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Peak {
    #[serde(skip)]
    pub(crate) panel: usize,
    #[serde(rename = "panel")]
    pub(crate) label: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<f64>,
    pub(crate) protocol: String,
    /// The run with the highest goodput; none if the protocol was not run.
    pub(crate) ours: Option<Measured>,
    /// See [`Sweep::saturated`].
    pub(crate) saturated: bool,
    /// Mean latency with the fewest clients, in milliseconds.
    pub(crate) low_load_latency_ms: Option<f64>,
    pub(crate) paper: Paper,
    /// Our goodput over the paper's.
    pub(crate) ours_over_paper: Option<f64>,
}

/// What the paper's text says; nothing where it is silent.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Paper {
    pub(crate) goodput_per_s: Option<f64>,
    pub(crate) commit_rate: Option<f64>,
    pub(crate) re_executions_per_txn: Option<f64>,
    pub(crate) low_load_latency_ms: Option<f64>,
    /// Where it says so.
    pub(crate) sources: Vec<&'static str>,
}

/// A ratio of two protocols' highest goodputs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    #[serde(rename = "panel")]
    pub(crate) label: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<f64>,
    pub(crate) protocol: &'static str,
    pub(crate) over: String,
    pub(crate) ours: Option<f64>,
    pub(crate) paper: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<&'static str>,
}

impl Findings {
    pub(crate) fn new(engine: &Engine, sweeps: Vec<Sweep>) -> Findings {
        let figure = engine.figure;
        let mut peaks = Vec::new();
        let mut ratios = Vec::new();
        for (panel, part) in figure.panels.iter().enumerate() {
            for x in figure.places(engine.effort.few_places) {
                let here = in_order(&engine.protocols)
                    .map(|protocol| peak(figure, (panel, part.label), x, protocol, &sweeps))
                    .filter(|peak| peak.ours.is_some() || peak.paper.goodput_per_s.is_some());
                let here: Vec<Peak> = here.collect();
                ratios.extend(compare(figure, (panel, part.label), x, &here));
                peaks.extend(here);
            }
        }
        Findings {
            figure,
            name: figure.name,
            title: figure.title,
            summary: figure.summary,
            seed: engine.seed,
            effort: engine.effort.clone(),
            costs: engine.costs,
            peaks,
            ratios,
            sweeps,
            remarks: figure.remarks,
        }
    }
}

/// The paper's systems, then the others that were run.
fn in_order(protocols: &[String]) -> impl Iterator<Item = &str> {
    let papers = SERIES.iter().map(|series| series.protocol);
    let is_new = |name: &&str| SERIES.iter().all(|series| series.protocol != *name);
    papers.chain(protocols.iter().map(String::as_str).filter(is_new))
}

fn peak(
    figure: &'static Figure,
    (panel, label): (usize, &'static str),
    x: Option<f64>,
    protocol: &str,
    sweeps: &[Sweep],
) -> Peak {
    let is_it = |sweep: &&Sweep| (sweep.panel, sweep.x) == (panel, x) && sweep.protocol == protocol;
    let sweep = sweeps.iter().find(is_it);
    let ours = sweep.and_then(Sweep::peak).cloned();
    let mut sources = Vec::new();
    let mut stated = |quantity| {
        let stated = figure.stated(panel, x, protocol, quantity)?;
        sources.push(stated.source);
        Some(stated.value)
    };
    let mut paper = Paper {
        goodput_per_s: stated(Quantity::Goodput),
        commit_rate: stated(Quantity::CommitRate),
        re_executions_per_txn: stated(Quantity::ReExecutions),
        low_load_latency_ms: stated(Quantity::LowLoadLatency),
        sources: Vec::new(),
    };
    paper.sources = sources;
    let goodput = ours.as_ref().map(|ours| ours.goodput_per_s);
    Peak {
        panel,
        label,
        x,
        protocol: protocol.to_string(),
        saturated: sweep.is_some_and(|sweep| sweep.saturated),
        low_load_latency_ms: sweep.and_then(|sweep| Some(sweep.points.first()?.latency_ms_mean)),
        ours_over_paper: quotient(goodput, paper.goodput_per_s),
        ours,
        paper,
    }
}

/// How the paper's own system compares with the others at one place.
fn compare(
    figure: &'static Figure,
    (panel, label): (usize, &'static str),
    x: Option<f64>,
    peaks: &[Peak],
) -> Vec<Comparison> {
    let leader = SERIES[0].protocol;
    let goodput = |protocol: &str| {
        let peak = peaks.iter().find(|peak| peak.protocol == protocol)?;
        peak.ours.as_ref().map(|ours| ours.goodput_per_s)
    };
    let stated = |over: &str| {
        let found = figure.ratios.iter().find(|ratio| {
            (ratio.panel, ratio.x) == (panel, x) && (ratio.protocol, ratio.over) == (leader, over)
        });
        found.map(|ratio| (ratio.value, ratio.source))
    };
    let papers = SERIES.iter().skip(1).map(|series| series.protocol.to_string());
    let others = peaks.iter().map(|peak| peak.protocol.clone());
    let others = others.filter(|other| SERIES.iter().all(|series| series.protocol != *other));
    papers
        .chain(others)
        .map(|over| Comparison {
            label,
            x,
            protocol: leader,
            ours: quotient(goodput(leader), goodput(&over)),
            paper: stated(&over).map(|(value, _)| value),
            source: stated(&over).map(|(_, source)| source),
            over,
        })
        .filter(|comparison| comparison.ours.is_some() || comparison.paper.is_some())
        .collect()
}

fn quotient(over: Option<f64>, under: Option<f64>) -> Option<f64> {
    let quotient = over? / under?;
    quotient.is_finite().then_some(quotient)
}
