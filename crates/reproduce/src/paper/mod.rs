//! The figures of the papers, a file of data for each paper.

mod eiger;
mod gryff;
mod morty;
mod ncc;
mod port;
mod rococo;

use crate::{Error, Figure};

/// All figures that can be reproduced.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    let transactions = [morty::FIGURES, gryff::FIGURES, ncc::FIGURES];
    let others = [rococo::FIGURES, port::FIGURES, eiger::FIGURES];
    transactions.into_iter().chain(others).flatten()
}

/// The figure called `name`.
///
/// # Errors
/// If there is none; the error lists all that there are.
pub fn figure(name: &str) -> Result<&'static Figure, Error> {
    figures().find(|figure| figure.name == name).ok_or_else(|| {
        let choices: Vec<_> = figures().map(|figure| figure.name).collect();
        Error::UnknownFigure { name: name.to_string(), choices: choices.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Quantity;

    #[test]
    fn an_unknown_figure_is_answered_with_those_that_exist() {
        let error = figure("morty-fig5").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no figure `morty-fig5`; choose one of morty-fig6, morty-fig7, morty-fig8, morty-fig9, \
             gryff-fig7, gryff-fig8, gryff-fig9, gryff-fig10, gryff-fig11, gryff-fig12, gryff-fig13, gryff-fig14, \
             gryff-fig15, rsc-fig16, ncc-fig7a, ncc-fig7b, ncc-fig7c, ncc-fig8a, ncc-fig8b, ncc-fig8c, \
             ncc-fig7a-calls, ncc-fig7b-calls, ncc-fig7c-calls, ncc-fig8a-calls, \
             rococo-fig11, rococo-fig14, rococo-fig15, rococo-table1, rococo-table2, \
             port-fig4a, port-fig4b, port-fig4c, port-fig4d, port-fig4e, port-fig4f, port-fig9, \
             eiger-fig8a, eiger-fig8b, eiger-fig8c, eiger-fig8d, eiger-fig8e, eiger-fig8f"
        );
    }

    #[test]
    fn every_number_stands_at_a_place_that_is_run_and_belongs_to_systems_of_its_figure() {
        for figure in figures() {
            let is_system = |protocol: &str| figure.protocols().any(|known| known == protocol);
            for claim in figure.claims {
                assert!(claim.panel < figure.panels.len(), "{}", figure.name);
                for few in [false, true] {
                    let here = claim.x.is_none_or(|x| figure.places(few).contains(&x));
                    // A quick run of it leaves out the places that take long.
                    let is_long = few && figure.name == "rococo-fig15";
                    assert!(here || is_long, "{}: {:?} is not run", figure.name, claim.x);
                }
                // The greatest number of all places is a latency, the peak of a system, or what happens at worst.
                let is_greatest = matches!(
                    claim.of,
                    Quantity::Latency(_)
                        | Quantity::HighestThroughput
                        | Quantity::MostRounds
                        | Quantity::Blocked
                );
                assert!(claim.x.is_some() || figure.swept.is_none() || is_greatest);
                assert!(is_system(claim.protocol), "{}", claim.protocol);
                assert!(claim.against.other().is_none_or(is_system), "{:?}", claim.against);
            }
        }
    }

    #[test]
    fn every_figure_has_a_name_of_its_own_and_says_where_it_stands() {
        let names: std::collections::BTreeSet<_> = figures().map(|figure| figure.name).collect();
        assert_eq!(names.len(), figures().count());
        assert_eq!(figure("gryff-fig7").unwrap().title(), "Figure 4.7 of Gryff (001 §4.5.3)");
        assert!(figures().all(|figure| !figure.section.is_empty() && !figure.summary.is_empty()));
    }
}
