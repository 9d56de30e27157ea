//! Least squares with costs that can't be negative.

use serde::Serialize;

use crate::Work;
use crate::sample::KINDS;

/// A fit, and how good it is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Fit {
    /// Nanoseconds for each event, each message sent, each unit of work, each system call and each byte.
    pub costs_ns: [f64; KINDS],
    /// The root mean square of the relative residuals.
    pub residual: f64,
}

impl Fit {
    /// The cost of this work by the fit, in nanoseconds.
    pub fn predict(&self, work: &Work) -> f64 {
        self.costs_ns.iter().zip(work.counts()).map(|(cost, count)| cost * count).sum()
    }
}

/// Which kinds of work have a cost, one bit each in the order of [`Fit::costs_ns`]: all but bytes.
pub(crate) const WITHOUT_BYTES: u8 = 0b0_1111;
/// All but messages sent. There are about as many of them as events.
pub(crate) const WITH_BYTES: u8 = 0b1_1101;

/// The costs of these `kinds` of work, none below zero, that come closest to the measurements. Relative errors count, so that
/// every measurement has the same weight. Returns `None` if too few measurements differ.
///
/// There are only a few costs, so the best fit is chosen among the fits of all subsets.
pub(crate) fn fit(measured: &[Work], kinds: u8) -> Option<Fit> {
    let rows: Vec<[f64; KINDS]> =
        measured.iter().map(|work| work.counts().map(|count| count / work.cpu_ns)).collect();
    let residual = |costs: &[f64; KINDS]| {
        let squares = rows.iter().map(|row| {
            let predicted: f64 = row.iter().zip(costs).map(|(count, cost)| count * cost).sum();
            (predicted - 1.0).powi(2)
        });
        (squares.sum::<f64>() / rows.len() as f64).sqrt()
    };
    let subsets = (1..1u8 << KINDS).filter(|subset| subset & !kinds == 0);
    let fits = subsets.filter_map(|subset| solve(&rows, subset));
    let fits = fits.filter(|costs| costs.iter().all(|cost| *cost >= 0.0));
    let fits = fits.map(|costs_ns| Fit { costs_ns, residual: residual(&costs_ns) });
    fits.min_by(|a, b| a.residual.total_cmp(&b.residual))
}

/// The least squares of `rows * costs = 1` with the costs outside of `subset` zero: the normal
/// equations by Gaussian elimination.
fn solve(rows: &[[f64; KINDS]], subset: u8) -> Option<[f64; KINDS]> {
    let chosen: Vec<usize> = (0..KINDS).filter(|i| subset & 1 << i != 0).collect();
    let n = chosen.len();
    let mut matrix = vec![vec![0.0; n + 1]; n];
    for row in rows {
        for (i, a) in chosen.iter().enumerate() {
            for (j, b) in chosen.iter().enumerate() {
                matrix[i][j] += row[*a] * row[*b];
            }
            matrix[i][n] += row[*a];
        }
    }
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, pivot);
        let scale: f64 = rows.iter().map(|row| row[chosen[column]].powi(2)).sum();
        // Columns that are not independent leave nothing.
        if matrix[column][column].abs() <= 1e-9 * scale {
            return None;
        }
        let pivot = matrix[column].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(other, _)| *other != column) {
            let factor = row[column] / pivot[column];
            for (place, above) in row.iter_mut().zip(&pivot) {
                *place -= factor * above;
            }
        }
    }
    let mut costs = [0.0; KINDS];
    for (i, place) in chosen.iter().enumerate() {
        costs[*place] = matrix[i][n] / matrix[i][i];
    }
    Some(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u8 = (1 << KINDS) - 1;

    fn work(events: f64, sent_messages: f64, work_units: f64, cpu_ns: f64) -> Work {
        let (system_calls, bytes) = (0.0, 0.0);
        Work { events, sent_messages, work_units, system_calls, bytes, cpu_ns }
    }

    /// Work that costs 1000, 500 and 200 ns. Every second measurement is larger by `off`.
    fn measured(off: f64) -> Vec<Work> {
        let counts = [(3.0, 2.0, 2.0), (10.0, 9.0, 40.0), (5.0, 1.0, 0.0), (2.0, 2.0, 16.0)];
        let cost = |(a, b, c)| 1000.0 * a + 500.0 * b + 200.0 * c;
        let enumerated = counts.iter().enumerate();
        enumerated
            .map(|(i, counts)| {
                let factor = if i % 2 == 0 { 1.0 + off } else { 1.0 - off };
                work(counts.0, counts.1, counts.2, cost(*counts) * factor)
            })
            .collect()
    }

    #[test]
    fn costs_that_were_put_in_come_out() {
        let Fit { costs_ns, residual } = fit(&measured(0.0), ALL).unwrap();
        for (cost, expected) in costs_ns.iter().zip([1000.0, 500.0, 200.0]) {
            assert!((cost - expected).abs() < 1e-6, "{costs_ns:?}");
        }
        assert!(residual < 1e-9);
    }

    #[test]
    fn noise_shows_in_the_residual_and_little_in_the_prediction() {
        let noisy = fit(&measured(0.05), ALL).unwrap();
        assert!((0.001..0.05).contains(&noisy.residual), "{noisy:?}");
        let predicted = noisy.predict(&work(10.0, 9.0, 40.0, 0.0));
        assert!((predicted / 22_500.0 - 1.0).abs() < 0.06, "{predicted}");
    }

    #[test]
    fn no_cost_is_negative_even_if_the_best_fit_has_one() {
        let measured =
            [work(1.0, 1.0, 0.0, 100.0), work(1.0, 2.0, 0.0, 90.0), work(2.0, 1.0, 1.0, 200.0)];
        let Fit { costs_ns, .. } = fit(&measured, ALL).unwrap();
        assert!(costs_ns.iter().all(|cost| *cost >= 0.0) && costs_ns[0] > 50.0, "{costs_ns:?}");
    }

    #[test]
    fn what_can_not_be_told_apart_is_not_made_up() {
        let same = [work(1.0, 1.0, 0.0, 100.0), work(2.0, 2.0, 0.0, 200.0)];
        let Fit { costs_ns, residual } = fit(&same, ALL).unwrap();
        assert_eq!(costs_ns.iter().filter(|cost| **cost > 0.0).count(), 1);
        assert!(residual < 1e-9);
        assert_eq!(fit(&[], ALL), None);
    }

    #[test]
    fn a_kind_of_work_without_a_cost_is_left_out() {
        let measured = [(3.0, 2.0, 2.0), (10.0, 9.0, 40.0), (5.0, 1.0, 7.0), (8.0, 2.0, 1.0)].map(
            |(events, sent_messages, system_calls)| Work {
                events,
                sent_messages,
                work_units: 0.0,
                system_calls,
                bytes: 100.0 * sent_messages,
                cpu_ns: 1000.0 * events + 500.0 * sent_messages + 4000.0 * system_calls,
            },
        );
        for (kinds, expected) in [
            (WITHOUT_BYTES, [1000.0, 500.0, 0.0, 4000.0, 0.0]),
            (WITH_BYTES, [1000.0, 0.0, 0.0, 4000.0, 5.0]),
        ] {
            let Fit { costs_ns, .. } = fit(&measured, kinds).unwrap();
            for (cost, expected) in costs_ns.iter().zip(expected) {
                assert!((cost - expected).abs() < 1e-6, "{costs_ns:?}");
            }
        }
    }
}
