//! The results of a figure, compared with the paper.

use serde::Serialize;

use crate::claim::{Against, Claim, Said};
use crate::engine::Engine;
use crate::sweep::{Place, Sweep, normalize};
use crate::{Costs, Effort, Figure};

/// The results of a figure, compared with the paper.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    #[serde(skip)]
    pub(crate) figure: &'static Figure,
    #[serde(rename = "figure")]
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) summary: &'static str,
    pub(crate) seed: u64,
    pub(crate) effort: Effort,
    pub(crate) costs: Costs,
    /// The numbers that the paper's text states, and ours.
    pub(crate) findings: Vec<Finding>,
    /// All runs.
    pub(crate) sweeps: Vec<Sweep>,
    /// The paper's systems that are not in this build, or were not run.
    pub(crate) missing: Vec<&'static str>,
    /// What a reader must know to compare the paper's numbers with ours.
    pub(crate) remarks: Vec<&'static str>,
}

/// A number of the paper, compared with ours.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) panel: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<f64>,
    /// The one or two systems that it is about.
    pub(crate) systems: String,
    /// The quantity.
    pub(crate) what: String,
    /// `None` for a ratio or a plain number.
    pub(crate) unit: Option<&'static str>,
    /// `None` if a protocol was not run, or does not count it.
    pub(crate) ours: Option<f64>,
    pub(crate) paper: Said,
    /// Our number over the paper's.
    pub(crate) ours_over_paper: Option<f64>,
    /// Where the paper states it.
    pub(crate) source: &'static str,
}

impl Findings {
    pub(crate) fn new(engine: &Engine, mut sweeps: Vec<Sweep>) -> Findings {
        let figure = engine.figure;
        if figure.has_rates() || figure.sets_clients() {
            normalize(&mut sweeps);
        }
        let was_run = |protocol: &&str| engine.protocols.iter().any(|run| run == protocol);
        Findings {
            figure,
            name: figure.name,
            title: figure.title(),
            summary: figure.summary,
            seed: engine.seed,
            effort: engine.effort.clone(),
            costs: engine.costs,
            findings: figure
                .claims
                .iter()
                .map(|claim| Finding::new(figure, claim, &sweeps))
                .collect(),
            missing: figure.protocols().filter(|protocol| !was_run(protocol)).collect(),
            sweeps,
            remarks: [figure.remarks, figure.common_remarks].concat(),
        }
    }

    /// The paper's systems, run or not, and then the others that were run.
    pub(crate) fn protocols(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.figure.protocols().collect();
        for sweep in &self.sweeps {
            if !all.contains(&sweep.protocol.as_str()) {
                all.push(&sweep.protocol);
            }
        }
        all
    }
}

impl Finding {
    fn new(figure: &Figure, claim: &Claim, sweeps: &[Sweep]) -> Finding {
        let ours = ours(claim, sweeps);
        let ours_over_paper = ours.zip(claim.paper.number()).map(|(ours, paper)| ours / paper);
        Finding {
            panel: figure.panels[claim.panel].label,
            x: claim.x,
            systems: claim.systems(),
            what: claim.of.label(figure),
            unit: claim.unit(figure),
            ours,
            paper: claim.paper,
            ours_over_paper: ours_over_paper.filter(|ratio| ratio.is_finite()),
            source: claim.source,
        }
    }
}

/// The sweep at a place. `None` if it was not run.
pub(crate) fn at<'a>(sweeps: &'a [Sweep], place: Place<'_>) -> Option<&'a Sweep> {
    sweeps.iter().find(|sweep| {
        (sweep.panel, sweep.x) == (place.panel, place.x) && sweep.protocol == place.protocol
    })
}

/// Our number for a claim: at its place, at the only place, or the greatest of all places. `None` if a protocol that it
/// is about was not run, or does not count it.
fn ours(claim: &Claim, sweeps: &[Sweep]) -> Option<f64> {
    let Claim { panel, protocol, .. } = *claim;
    let number = |x| {
        let sweep = at(sweeps, Place { panel, x, protocol })?;
        let Some(other) = claim.against.other() else { return sweep.number(claim.of, sweep) };
        let other = at(sweeps, Place { panel, x, protocol: other })?;
        let (one, another) = (sweep.number(claim.of, other)?, other.number(claim.of, sweep)?);
        match claim.against {
            Against::Over(_) => Some(one / another),
            _ => Some(one - another),
        }
    };
    let own = sweeps.iter().filter(|sweep| sweep.panel == panel && sweep.protocol == protocol);
    let places: Vec<Option<f64>> = own.map(|sweep| sweep.x).collect();
    let here = number(claim.x);
    if places.contains(&claim.x) {
        return here.filter(|number| number.is_finite());
    }
    let of_all = places.into_iter().filter(|_| claim.x.is_none());
    of_all.filter_map(number).filter(|number| number.is_finite()).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Quantity;
    use crate::figure;
    use crate::measured::TransactionsMeasured;

    /// A sweep with this throughput.
    fn sweep(protocol: &str, x: Option<f64>, goodput_per_s: f64) -> Sweep {
        let figure = figure("morty-fig9").unwrap();
        let nothing = TransactionsMeasured::nothing();
        let run = TransactionsMeasured { goodput_per_s, ..nothing }.into();
        let place = Place { panel: 0, x, protocol };
        Sweep::new(figure, place, &figure.effort(true), (vec![run], None))
    }

    fn number(x: Option<f64>, against: Against, sweeps: &[Sweep]) -> Option<f64> {
        let (of, paper) = (Quantity::HighestThroughput, Said::About(1.0));
        ours(&Claim { panel: 0, x, protocol: "a", against, of, paper, source: "" }, sweeps)
    }

    #[test]
    fn a_claim_is_about_one_system_or_its_lead_over_another() {
        let sweeps = [sweep("a", None, 30.0), sweep("b", None, 20.0), sweep("c", None, 0.0)];
        assert_eq!(number(None, Against::Nothing, &sweeps), Some(30.0));
        assert_eq!(number(None, Against::Minus("b"), &sweeps), Some(10.0));
        assert_eq!(number(None, Against::Over("b"), &sweeps), Some(1.5));
        assert_eq!(number(None, Against::Over("c"), &sweeps), None, "nothing to compare with");
        assert_eq!(number(None, Against::Over("d"), &sweeps), None, "it was not run");
    }

    #[test]
    fn a_claim_without_a_place_is_about_the_greatest_number_of_all_places() {
        let [one, two] = [Some(1.0), Some(2.0)];
        let mut sweeps = vec![sweep("a", one, 30.0), sweep("a", two, 40.0)];
        sweeps.extend([sweep("b", one, 10.0), sweep("b", two, 35.0)]);
        assert_eq!(number(None, Against::Nothing, &sweeps), Some(40.0));
        assert_eq!(number(None, Against::Minus("b"), &sweeps), Some(20.0), "at the first place");
        assert_eq!(number(two, Against::Minus("b"), &sweeps), Some(5.0));
        assert_eq!(number(Some(3.0), Against::Nothing, &sweeps), None, "it was not run");
    }

    #[test]
    fn a_search_for_the_highest_load_counts_before_runs_at_places() {
        let sweeps = [sweep("a", None, 30.0), sweep("a", Some(1.0), 40.0)];
        assert_eq!(number(None, Against::Nothing, &sweeps), Some(30.0));
    }
}
