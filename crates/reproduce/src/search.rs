//! Searches for the highest load of a system, run by run.

use crate::{Error, Measured};

/// Throughput has risen if it is higher by this share. A smaller rise counts as noise.
pub(crate) const RISE: f64 = 0.03;
/// A system keeps up if it does at least this share of the offered load.
const FOLLOWS: f64 = 0.9;
/// The greatest number of times that a rate is doubled or halved.
const MOST_STEPS: u32 = 14;

/// The runs of a system, from little load to much, and whether more load would not raise its throughput.
pub(crate) type Searched = (Vec<Measured>, bool);

/// Runs more and more clients until throughput has not risen for `patience` counts.
pub(crate) fn saturate(
    clients: &[usize],
    patience: Option<usize>,
    mut run: impl FnMut(usize) -> Result<Measured, Error>,
) -> Result<Searched, Error> {
    let mut runs = Vec::new();
    let (mut highest, mut since) = (0.0, 0);
    for clients in clients {
        let measured = run(*clients)?;
        let per_s = measured.summary().per_s;
        runs.push(measured);
        since = if per_s > highest * (1.0 + RISE) { 0 } else { since + 1 };
        highest = per_s.max(highest);
        if patience.is_some_and(|patience| since >= patience) {
            break;
        }
    }
    Ok((runs, since >= patience.unwrap_or(1)))
}

/// Offers `rates`, one after the other.
pub(crate) fn offer(
    rates: &[f64],
    run: impl Fn(f64) -> Result<Measured, Error>,
) -> Result<Searched, Error> {
    let runs: Vec<Measured> = rates.iter().map(|rate| run(*rate)).collect::<Result<_, Error>>()?;
    let saturated = runs.last().is_some_and(|run| !follows(run));
    Ok((runs, saturated))
}

/// Offers `first` transactions per second. Doubles the rate in each run until the system can't keep up, or halves it
/// until it can. Then tries `closer` rates between the highest that the system could keep up with and the lowest that
/// it could not.
pub(crate) fn climb(
    first: f64,
    closer: u32,
    mut run: impl FnMut(f64) -> Result<Measured, Error>,
) -> Result<Searched, Error> {
    let (mut runs, mut can, mut cannot, mut between) = (Vec::new(), None, None, 0);
    for step in 0..most_runs(closer) as u32 {
        let rate = match (can, cannot) {
            (None, None) => first,
            (Some(can), None) => 2.0 * can,
            (None, Some(cannot)) => cannot / 2.0,
            (Some(can), Some(cannot)) => f64::sqrt(can * cannot),
        };
        let is_between = can.is_some() && cannot.is_some();
        if is_between && between >= closer || !is_between && step >= MOST_STEPS {
            break;
        }
        let rate = rounded(rate);
        let measured = run(rate)?;
        let end = if follows(&measured) { &mut can } else { &mut cannot };
        *end = Some(rate);
        between += u32::from(is_between);
        runs.push((rate, measured));
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let runs = runs.into_iter().map(|(_, measured)| measured).collect();
    Ok((runs, can.is_some() && cannot.is_some()))
}

/// The greatest number of runs of [`climb`].
pub(crate) fn most_runs(closer: u32) -> usize {
    (MOST_STEPS + closer) as usize
}

/// A rate with three digits.
pub(crate) fn rounded(rate_per_s: f64) -> f64 {
    let unit = 10f64.powf(rate_per_s.log10().floor() - 2.0);
    (rate_per_s / unit).round() * unit
}

/// Whether a system has kept up with the offered load.
fn follows(measured: &Measured) -> bool {
    let offered = measured.offered_per_s().unwrap_or(0.0);
    measured.summary().per_s >= FOLLOWS * offered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{OpenMeasured, TransactionsMeasured};

    /// The client counts that are run, given goodput by client count, and whether goodput has levelled off.
    fn sweep(goodput: fn(usize) -> f64, patience: Option<usize>) -> (Vec<usize>, bool) {
        let run = |clients| {
            let goodput_per_s = goodput(clients);
            let nothing = TransactionsMeasured::nothing();
            Ok(TransactionsMeasured { clients, goodput_per_s, ..nothing }.into())
        };
        let (runs, saturated) = saturate(&[1, 2, 4, 8, 16, 32], patience, run).unwrap();
        (runs.iter().map(|run| run.summary().clients).collect(), saturated)
    }

    #[test]
    fn a_sweep_ends_when_goodput_levels_off() {
        assert_eq!(sweep(|clients| clients.min(4) as f64, Some(2)), (vec![1, 2, 4, 8, 16], true));
        assert_eq!(sweep(|clients| 100.0 - clients as f64, Some(1)), (vec![1, 2], true));
    }

    #[test]
    fn a_small_rise_is_chance_however_often_it_comes() {
        let goodput = |clients| 100.0 + clients as f64 / 16.0;
        assert_eq!(sweep(goodput, Some(2)), (vec![1, 2, 4], true));
    }

    #[test]
    fn goodput_that_rises_to_the_end_is_not_saturated() {
        assert_eq!(sweep(|clients| clients as f64, Some(2)), (vec![1, 2, 4, 8, 16, 32], false));
        assert_eq!(sweep(|clients| clients as f64, None), (vec![1, 2, 4, 8, 16, 32], false));
    }

    #[test]
    fn without_patience_all_counts_are_run_and_the_last_one_tells() {
        let goodput = |clients: usize| clients.min(16) as f64;
        assert_eq!(sweep(goodput, None), (vec![1, 2, 4, 8, 16, 32], true));
    }

    /// The rates that are offered to a system that does at most `most_per_s` transactions per second.
    fn offered(most_per_s: f64, closer: u32) -> (Vec<f64>, bool) {
        let run = |rate_per_s: f64| {
            let goodput_per_s = rate_per_s.min(most_per_s);
            let open = Some(OpenMeasured { rate_per_s, ..OpenMeasured::nothing() });
            let nothing = TransactionsMeasured::nothing();
            Ok(TransactionsMeasured { goodput_per_s, open, ..nothing }.into())
        };
        let (runs, found) = climb(1000.0, closer, run).unwrap();
        (runs.iter().filter_map(Measured::offered_per_s).collect(), found)
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
