//! What the papers' figures show, how they were made, and what their text says of them.
//!
//! The figures themselves are plots: of their curves, only the numbers that the text states are known.
//! Those are here, each with the place it stands at; nothing is read off a plot or made up.

mod paper_000;
mod series;

pub(crate) use series::{SERIES, layout, series};

use crate::{Error, LoadFigure, RegisterFigure, load_figures, register_figures};

/// A figure of a paper.
#[derive(Debug)]
pub struct Figure {
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
    pub(crate) panels: &'static [Panel],
    pub(crate) varies: Varies,
    pub(crate) stated: &'static [Stated],
    pub(crate) ratios: &'static [Ratio],
    /// What has to be known to compare the paper's numbers with ours.
    pub(crate) remarks: &'static [&'static str],
}

/// A part of a figure with a set-up of its own.
#[derive(Debug)]
pub(crate) struct Panel {
    /// What it is called.
    pub(crate) label: &'static str,
    pub(crate) geography: &'static str,
    pub(crate) theta: f64,
}

/// What is on a figure's horizontal axis, apart from the client count, which is always varied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Varies {
    /// Nothing else: the figure shows latency over goodput.
    Clients,
    /// The cores of a replica: the figure shows the highest goodput.
    Cores { all: &'static [u32], few: &'static [u32] },
    /// The exponent of the Zipf distribution: the figure shows the highest goodput and the commit rate
    /// there.
    Theta { all: &'static [f64], few: &'static [f64] },
}

/// A number that the paper's text gives.
#[derive(Debug)]
pub(crate) struct Stated {
    pub(crate) panel: usize,
    /// The place on the horizontal axis, where there is one.
    pub(crate) x: Option<f64>,
    pub(crate) protocol: &'static str,
    pub(crate) quantity: Quantity,
    pub(crate) value: f64,
    pub(crate) source: &'static str,
}

/// What a number is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quantity {
    /// The highest goodput, in transactions per second.
    Goodput,
    /// The share of attempts that commit, at the highest goodput.
    CommitRate,
    /// Re-executions per transaction, at the highest goodput.
    ReExecutions,
    /// Mean latency with the fewest clients, in milliseconds.
    LowLoadLatency,
}

/// By how much the highest goodput of one protocol exceeds that of another, as the text says.
#[derive(Debug)]
pub(crate) struct Ratio {
    pub(crate) panel: usize,
    pub(crate) x: Option<f64>,
    pub(crate) protocol: &'static str,
    pub(crate) over: &'static str,
    pub(crate) value: f64,
    pub(crate) source: &'static str,
}

/// All figures of transactions that can be reproduced.
pub fn figures() -> &'static [Figure] {
    paper_000::FIGURES
}

/// A figure of any kind.
#[derive(Clone, Copy, Debug)]
pub enum AnyFigure {
    /// One of transactions, which shows goodput.
    Transactions(&'static Figure),
    /// One of registers, which shows latencies.
    Registers(&'static RegisterFigure),
    /// One of systems under load, which shows latency over throughput.
    Load(&'static LoadFigure),
}

/// The names of all figures, and what they show.
pub fn all_figures() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_registers = register_figures().iter().map(|figure| (figure.name, figure.summary));
    let of_load = load_figures().iter().map(|figure| (figure.name, figure.summary));
    figures().iter().map(|figure| (figure.name, figure.summary)).chain(of_registers).chain(of_load)
}

/// The figure called `name`, of any kind.
///
/// # Errors
/// If there is none; the error lists those that there are.
pub fn any_figure(name: &str) -> Result<AnyFigure, Error> {
    let of_registers = register_figures().iter().find(|figure| figure.name == name);
    let of_load = load_figures().iter().find(|figure| figure.name == name);
    match (of_registers, of_load) {
        (Some(figure), _) => Ok(AnyFigure::Registers(figure)),
        (_, Some(figure)) => Ok(AnyFigure::Load(figure)),
        _ => figure(name).map(AnyFigure::Transactions),
    }
}

/// The figure of transactions called `name`.
///
/// # Errors
/// If there is none; the error lists all that there are.
pub fn figure(name: &str) -> Result<&'static Figure, Error> {
    figures().iter().find(|figure| figure.name == name).ok_or_else(|| {
        let choices: Vec<_> = all_figures().map(|(name, _)| name).collect();
        Error::UnknownFigure { name: name.to_string(), choices: choices.join(", ") }
    })
}

impl Figure {
    /// The places on its horizontal axis; a single one without a number if it is latency over goodput.
    pub(crate) fn places(&self, few: bool) -> Vec<Option<f64>> {
        match self.varies {
            Varies::Clients => vec![None],
            Varies::Cores { all, few: some } => {
                let cores = if few { some } else { all };
                cores.iter().map(|cores| Some(f64::from(*cores))).collect()
            }
            Varies::Theta { all, few: some } => {
                let thetas = if few { some } else { all };
                thetas.iter().map(|theta| Some(*theta)).collect()
            }
        }
    }

    /// What the text says of a protocol at a place.
    pub(crate) fn stated(
        &self,
        panel: usize,
        x: Option<f64>,
        protocol: &str,
        quantity: Quantity,
    ) -> Option<&'static Stated> {
        self.stated.iter().find(|stated| {
            (stated.panel, stated.x) == (panel, x)
                && (stated.protocol, stated.quantity) == (protocol, quantity)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_figure_is_answered_with_those_that_exist() {
        let error = figure("morty-fig5").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no figure `morty-fig5`; choose one of morty-fig6, morty-fig7, morty-fig8, morty-fig9, \
             gryff-fig7, gryff-fig8, gryff-fig9, gryff-fig10, gryff-fig11, gryff-fig12, gryff-fig13, gryff-fig14, \
             gryff-fig15, rsc-fig16, ncc-fig7a, ncc-fig7b, ncc-fig7c, ncc-fig8a, ncc-fig8b, ncc-fig8c"
        );
    }

    #[test]
    fn every_number_stands_at_a_place_that_is_run_and_belongs_to_a_series_of_the_paper() {
        for figure in figures() {
            for few in [false, true] {
                let places = figure.places(few);
                for Stated { panel, x, protocol, .. } in figure.stated {
                    assert!(places.contains(x), "{}: {x:?} is not run", figure.name);
                    assert!(*panel < figure.panels.len() && series(protocol).is_some());
                }
                for Ratio { panel, x, protocol, over, .. } in figure.ratios {
                    assert!(places.contains(x), "{}: {x:?} is not run", figure.name);
                    assert!(*panel < figure.panels.len());
                    assert!(series(protocol).is_some() && series(over).is_some());
                }
            }
        }
    }
}
