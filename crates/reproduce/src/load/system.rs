//! What one system has come to in a figure.

use serde::Serialize;

use super::counted::fared;
use super::{LoadFigure, OPERATING_MS, Quantity, SLOT, Shows};
use crate::Measured;
use crate::setup::{Deaths, RISE};

/// What one system has come to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SystemFound {
    /// Its name in the registry.
    pub(crate) protocol: String,
    /// The highest throughput with a median latency below [`OPERATING_MS`], between two runs if it is there.
    pub(crate) operating_point_per_s: Option<f64>,
    /// The highest throughput.
    pub(crate) peak_per_s: Option<f64>,
    /// Whether it was offered more than it can do. Otherwise it might have done more.
    pub(crate) saturated: bool,
    /// The runs, from low rates to high.
    pub(crate) runs: Vec<Measured>,
    /// Those at a share of its highest throughput.
    pub(crate) places: Vec<PlaceFound>,
}

/// A run at a place of the figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlaceFound {
    /// The place.
    pub(crate) x: f64,
    /// Its throughput over the highest of the system at any place.
    pub(crate) normalized: f64,
    /// What became of its throughput when all clients died, if they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dip: Option<Dip>,
    pub(crate) measured: Measured,
}

/// What became of throughput when all clients died.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Dip {
    /// Before, without the first half of that time.
    pub(crate) before_per_s: f64,
    /// In the worst [`SLOT`] after.
    pub(crate) lowest_per_s: f64,
    /// For how long it was below nine tenths of what it had been, in seconds.
    pub(crate) lasts_s: f64,
    /// In the last quarter of the time after.
    pub(crate) in_the_end_per_s: f64,
}

impl LoadFigure {
    /// The throughput that the figure shows.
    pub(crate) fn throughput(&self, measured: &Measured) -> f64 {
        if !self.kind_alone {
            return measured.goodput_per_s;
        }
        measured.kind(self.kind).map_or(0.0, |kind| kind.per_s)
    }

    /// The median latency that the figure shows, in milliseconds.
    pub(crate) fn latency_ms(&self, measured: &Measured) -> Option<f64> {
        measured.kind(self.kind).map(|kind| kind.latency_ms_p50)
    }
}

impl SystemFound {
    /// `runs` are from low rates to high, `places` are where a share of the highest throughput was offered.
    pub(super) fn new(
        figure: &LoadFigure,
        protocol: &str,
        (runs, saturated): (Vec<Measured>, bool),
        places: Vec<(f64, Measured)>,
        deaths: Deaths,
    ) -> SystemFound {
        let highest = places.iter().map(|(_, run)| run.goodput_per_s).fold(0.0, f64::max);
        let place = |(x, measured): (f64, Measured)| PlaceFound {
            x,
            normalized: if highest > 0.0 { measured.goodput_per_s / highest } else { 0.0 },
            dip: match figure.shows {
                Shows::Deaths { .. } => measured.open.as_ref().map(|o| dip(&o.over_time, deaths)),
                _ => None,
            },
            measured,
        };
        SystemFound {
            protocol: protocol.to_string(),
            operating_point_per_s: operating_point(figure, &runs),
            peak_per_s: peak(figure, &runs).map(|run| figure.throughput(run)),
            saturated,
            places: places.into_iter().map(place).collect(),
            runs,
        }
    }

    /// Our number for a quantity; beside `other`'s where that has a say in it. None if it is not known.
    pub(super) fn number(
        &self,
        figure: &LoadFigure,
        of: Quantity,
        other: &SystemFound,
    ) -> Option<f64> {
        let at_operating_point = || within(figure, &self.runs).max_by(by_throughput(figure));
        match of {
            Quantity::OperatingPoint => self.operating_point_per_s,
            Quantity::Peak => self.peak_per_s,
            Quantity::LatencyAtPeak => figure.latency_ms(knee(figure, &self.runs)?),
            Quantity::LatencyAtHalf => {
                let half = f64::min(self.peak_per_s?, other.peak_per_s?) / 2.0;
                latency_at(figure, &self.runs, half)
            }
            Quantity::StartedOver
            | Quantity::PassedAtFirst
            | Quantity::NotDelayed
            | Quantity::RetriedWell => fared(of, at_operating_point()?),
        }
    }
}

fn by_throughput(figure: &LoadFigure) -> impl Fn(&&Measured, &&Measured) -> core::cmp::Ordering {
    |a, b| figure.throughput(a).total_cmp(&figure.throughput(b))
}

/// The run with the highest throughput.
pub(super) fn peak<'a>(figure: &LoadFigure, runs: &'a [Measured]) -> Option<&'a Measured> {
    runs.iter().max_by(by_throughput(figure))
}

/// The first run with nearly the highest throughput: with more offered it would only have more to wait for.
pub(crate) fn knee<'a>(figure: &LoadFigure, runs: &'a [Measured]) -> Option<&'a Measured> {
    let nearly = figure.throughput(peak(figure, runs)?) * (1.0 - RISE);
    runs.iter().find(|run| figure.throughput(run) >= nearly)
}

/// The runs up to the first with too high a latency.
fn within<'a>(figure: &LoadFigure, runs: &'a [Measured]) -> impl Iterator<Item = &'a Measured> {
    let is_low = |run: &&Measured| figure.latency_ms(run).is_some_and(|ms| ms < OPERATING_MS);
    runs.iter().take_while(is_low)
}

/// Where the curve through the runs crosses [`OPERATING_MS`], or the highest throughput below it.
fn operating_point(figure: &LoadFigure, runs: &[Measured]) -> Option<f64> {
    let highest = within(figure, runs).max_by(by_throughput(figure))?;
    let highest = figure.throughput(highest);
    let count = within(figure, runs).count();
    let crossing = || {
        let (below, above) = (&runs[count - 1], runs.get(count)?);
        let [low, high] = [below, above].map(|run| figure.latency_ms(run));
        let (low, high) = (low?.ln(), high?.ln());
        let way = (OPERATING_MS.ln() - low) / (high - low);
        let [from, to] = [below, above].map(|run| figure.throughput(run));
        Some(from + way * (to - from))
    };
    Some(crossing().map_or(highest, |crossing| crossing.max(highest)))
}

/// Median latency at this throughput, on the line between two runs.
fn latency_at(figure: &LoadFigure, runs: &[Measured], throughput: f64) -> Option<f64> {
    let after = runs.iter().position(|run| figure.throughput(run) >= throughput)?;
    let above = &runs[after];
    let high = figure.latency_ms(above)?;
    let Some(below) = after.checked_sub(1).map(|before| &runs[before]) else { return Some(high) };
    let low = figure.latency_ms(below)?;
    let [from, to] = [below, above].map(|run| figure.throughput(run));
    Some(low + (high - low) * (throughput - from) / (to - from))
}

/// What became of throughput over time.
fn dip(over_time: &[f64], deaths: Deaths) -> Dip {
    let mean = |slots: &[f64]| slots.iter().sum::<f64>() / slots.len().max(1) as f64;
    let slots = (deaths.at_s / SLOT.as_secs_f64()).ceil() as usize;
    let (before, after) = over_time.split_at(slots.min(over_time.len()));
    let before_per_s = mean(&before[before.len() / 2..]);
    let below = after.iter().filter(|slot| **slot < 0.9 * before_per_s).count();
    Dip {
        before_per_s,
        lowest_per_s: after.iter().copied().fold(before_per_s, f64::min),
        lasts_s: below as f64 * SLOT.as_secs_f64(),
        in_the_end_per_s: mean(&after[after.len() - after.len() / 4..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::load_figures;
    use crate::measured::{OfKind, OpenMeasured};

    fn figure() -> &'static LoadFigure {
        &load_figures()[0]
    }

    fn runs(numbers: &[(f64, f64)]) -> Vec<Measured> {
        let run = |(goodput_per_s, latency_ms_p50): &(f64, f64)| {
            let (kind, per_s) = (figure().kind.to_string(), *goodput_per_s);
            let of_kind =
                OfKind { kind, per_s, latency_ms_p50: *latency_ms_p50, latency_ms_p99: 0.0 };
            let open = Some(OpenMeasured { kinds: vec![of_kind], ..OpenMeasured::nothing() });
            Measured { goodput_per_s: *goodput_per_s, open, ..Measured::nothing() }
        };
        numbers.iter().map(run).collect()
    }

    #[test]
    fn the_operating_point_is_where_the_curve_crosses_the_latency() {
        let point = |numbers: &[(f64, f64)]| operating_point(figure(), &runs(numbers));
        let crossing = point(&[(100.0, 1.0), (200.0, 2.0), (300.0, 50.0)]).unwrap();
        assert!((250.0 - crossing).abs() < 1e-6, "half way, as latency is logarithmic: {crossing}");
        assert_eq!(point(&[(100.0, 1.0), (200.0, 2.0)]), Some(200.0), "it was never crossed");
        assert_eq!(point(&[(100.0, 1.0), (80.0, 50.0)]), Some(100.0), "it does less beyond");
        assert_eq!(point(&[(100.0, 11.0), (200.0, 9.0)]), None, "it is never low enough");
    }

    #[test]
    fn where_nearly_as_much_is_done_with_less_offered_the_latency_of_that_counts() {
        let runs = runs(&[(100.0, 1.0), (199.0, 2.0), (200.0, 90.0)]);
        assert_eq!(peak(figure(), &runs), runs.last());
        assert_eq!(knee(figure(), &runs), runs.get(1));
    }

    #[test]
    fn latencies_at_the_same_throughput_are_compared_between_runs() {
        let at =
            |throughput| latency_at(figure(), &runs(&[(100.0, 1.0), (200.0, 3.0)]), throughput);
        assert_eq!([at(50.0), at(150.0), at(300.0)], [Some(1.0), Some(2.0), None]);
    }

    #[test]
    fn a_dip_is_measured_against_what_was_there_before_it() {
        let over_time = [0.0, 0.0, 100.0, 100.0, 40.0, 80.0, 95.0, 100.0];
        let found = dip(&over_time, Deaths { at_s: 1.0, then_s: 1.0 });
        let expected =
            Dip { before_per_s: 100.0, lowest_per_s: 40.0, lasts_s: 0.5, in_the_end_per_s: 100.0 };
        assert_eq!(found, expected);
    }
}
