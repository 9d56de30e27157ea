//! What is offered to a system, run by run, to find out what it can do.

use crate::{Error, Measured};

/// A system follows if it does so much of what is offered.
const FOLLOWS: f64 = 0.9;
/// More often than that a rate is not doubled or halved.
const MOST_STEPS: u32 = 14;

/// How many runs [`climb`] makes at most.
pub(super) fn most_runs(closer: u32) -> usize {
    (MOST_STEPS + closer) as usize
}

/// A rate with three digits.
pub(super) fn rounded(rate_per_s: f64) -> f64 {
    let unit = 10f64.powf(rate_per_s.log10().floor() - 2.0);
    (rate_per_s / unit).round() * unit
}

/// Whether a system has done what was offered to it.
pub(super) fn follows(measured: &Measured) -> bool {
    measured.goodput_per_s >= FOLLOWS * measured.rate_per_s()
}

/// Offers `first` transactions per second and then twice as many in each run until the system can't follow,
/// or half as many until it can; then goes between the most that it could do and the least that it could not,
/// so many times. Returns the runs by their rates, and whether the end was found.
pub(super) fn climb(
    first: f64,
    closer: u32,
    mut run: impl FnMut(f64) -> Result<Measured, Error>,
) -> Result<(Vec<Measured>, bool), Error> {
    let (mut runs, mut can, mut cannot) = (Vec::new(), None, None);
    for step in 0..most_runs(closer) as u32 {
        let rate = match (can, cannot) {
            (None, None) => first,
            (Some(can), None) => 2.0 * can,
            (None, Some(cannot)) => cannot / 2.0,
            (Some(can), Some(cannot)) => f64::sqrt(can * cannot),
        };
        let is_between = can.is_some() && cannot.is_some();
        if is_between && closes_in(&runs) >= closer || !is_between && step >= MOST_STEPS {
            break;
        }
        let rate = rounded(rate);
        let measured = run(rate)?;
        let end = if follows(&measured) { &mut can } else { &mut cannot };
        *end = Some(rate);
        runs.push((is_between, measured));
    }
    let mut runs: Vec<Measured> = runs.into_iter().map(|(_, measured)| measured).collect();
    runs.sort_by(|a, b| a.rate_per_s().total_cmp(&b.rate_per_s()));
    Ok((runs, can.is_some() && cannot.is_some()))
}

/// How many of the runs were made between others.
fn closes_in(runs: &[(bool, Measured)]) -> u32 {
    runs.iter().filter(|(is_between, _)| *is_between).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::OpenMeasured;

    /// What is offered to a system that does so many transactions per second at most.
    fn offered(most_per_s: f64, closer: u32) -> (Vec<f64>, bool) {
        let run = |rate_per_s: f64| {
            let goodput_per_s = rate_per_s.min(most_per_s);
            let open = Some(OpenMeasured { rate_per_s, ..OpenMeasured::nothing() });
            Ok(Measured { goodput_per_s, open, ..Measured::nothing() })
        };
        let (runs, found) = climb(1000.0, closer, run).unwrap();
        (runs.iter().map(Measured::rate_per_s).collect(), found)
    }

    #[test]
    fn rates_are_doubled_until_the_system_cannot_follow_and_then_close_in() {
        assert_eq!(offered(3000.0, 0), (vec![1000.0, 2000.0, 4000.0], true));
        assert_eq!(offered(3000.0, 2), (vec![1000.0, 2000.0, 2830.0, 3360.0, 4000.0], true));
    }

    #[test]
    fn rates_are_halved_until_a_slow_system_can_follow() {
        assert_eq!(offered(300.0, 1), (vec![250.0, 354.0, 500.0, 1000.0], true));
    }

    #[test]
    fn a_system_that_always_follows_is_left_at_some_rate() {
        let (rates, found) = offered(f64::INFINITY, 3);
        assert_eq!((rates.len(), found), (MOST_STEPS as usize, false));
        assert!(rates.windows(2).all(|pair| pair[1] > 1.9 * pair[0]), "{rates:?}");
    }
}
