//! The runs of a system at a place of a figure, and their summary.

use core::cmp::Ordering;

use serde::Serialize;

use crate::claim::{Quantity, StaleAt};
use crate::dip::Dip;
use crate::fared::fared;
use crate::figure::{Figure, Load};
use crate::search::RISE;
use crate::{Effort, Measured};

/// The runs of a system at a place of a figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sweep {
    #[serde(skip)]
    pub(crate) figure: &'static Figure,
    /// The panel's number.
    #[serde(skip)]
    pub(crate) panel: usize,
    /// The panel.
    #[serde(rename = "panel")]
    pub(crate) label: &'static str,
    /// The place on the horizontal axis. In a figure of open loops, the runs without one look for the highest load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<f64>,
    /// The protocol, by its name in the registry.
    pub(crate) protocol: String,
    /// Whether throughput has levelled off, as far as the runs show. `None` if they all had the same load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) saturated: Option<bool>,
    /// The highest throughput.
    pub(crate) highest_per_s: Option<f64>,
    /// The highest throughput with a low latency, interpolated between two runs if necessary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operating_point_per_s: Option<f64>,
    /// The highest throughput over the system's highest at any place, at a share of the highest load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) normalized: Option<f64>,
    /// How throughput dropped when all clients died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dip: Option<Dip>,
    /// The runs, from little load to much.
    pub(crate) runs: Vec<Measured>,
}

/// The place of a sweep in a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) panel: usize,
    pub(crate) x: Option<f64>,
    pub(crate) protocol: &'a str,
}

impl Sweep {
    pub(crate) fn new(
        figure: &'static Figure,
        place: Place<'_>,
        effort: &Effort,
        (runs, saturated): (Vec<Measured>, Option<bool>),
    ) -> Sweep {
        let Place { panel, x, protocol } = place;
        let over_time = runs.first().and_then(Measured::open).map(|open| &open.over_time);
        let deaths = effort.deaths.filter(|_| x.is_some());
        let mut sweep = Sweep {
            figure,
            panel,
            label: figure.panels[panel].label,
            x,
            protocol: protocol.to_string(),
            saturated,
            highest_per_s: None,
            operating_point_per_s: None,
            normalized: None,
            dip: over_time.zip(deaths).map(|(over_time, deaths)| Dip::new(over_time, deaths)),
            runs,
        };
        sweep.highest_per_s = sweep.peak().map(|run| sweep.throughput(run));
        if let (Load::Open(open), Some(_)) = (figure.load, saturated) {
            sweep.operating_point_per_s = sweep.operating_point(open.operating_ms);
        }
        sweep
    }

    /// The throughput that the figure shows.
    pub(crate) fn throughput(&self, run: &Measured) -> f64 {
        run.per_s(self.figure.throughput_of)
    }

    /// The latency that the figure shows, in milliseconds.
    pub(crate) fn latency_ms(&self, run: &Measured) -> Option<f64> {
        run.latency_ms(self.figure.latency.kind, self.figure.latency.statistic)
    }

    /// The run with the highest throughput.
    pub(crate) fn peak(&self) -> Option<&Measured> {
        self.runs.iter().max_by(self.by_throughput())
    }

    /// The run that shows the system at its highest throughput. In open loops this is the first run with nearly the
    /// highest throughput: a higher rate only adds waiting time.
    pub(crate) fn at_highest(&self) -> Option<&Measured> {
        let peak = self.peak()?;
        match self.figure.load {
            Load::Closed { .. } => Some(peak),
            Load::Open(_) => {
                let nearly = self.throughput(peak) * (1.0 - RISE);
                self.runs.iter().find(|run| self.throughput(run) >= nearly)
            }
        }
    }

    /// Our number for a quantity. Some quantities also depend on `other`. `None` if it is not known.
    pub(crate) fn number(&self, of: Quantity, other: &Sweep) -> Option<f64> {
        let transactions = || self.at_highest()?.transactions();
        let snapshots = || self.at_highest()?.snapshots();
        let staleness = || snapshots()?.staleness.as_ref();
        let mean = |name: &str| self.at_highest()?.mean(name);
        match of {
            Quantity::HighestThroughput => self.highest_per_s,
            Quantity::OperatingPoint => self.operating_point_per_s,
            Quantity::Normalized => self.normalized,
            Quantity::CommitRate => Some(100.0 * self.at_highest()?.commit_rate()?),
            Quantity::ReExecutions => Some(transactions()?.re_executions_per_txn),
            Quantity::Share(kind) => Some(100.0 * self.at_highest()?.calls()?.share(kind)?),
            Quantity::Pieces(kind) => self.at_highest()?.calls()?.pieces.get(kind).copied(),
            Quantity::Latency(latency) => {
                self.at_highest()?.latency_ms(latency.kind, latency.statistic)
            }
            Quantity::LowLoadLatency => self.latency_ms(self.runs.first()?),
            Quantity::LatencyAtHalf => {
                self.latency_at(f64::min(self.highest_per_s?, other.highest_per_s?) / 2.0)
            }
            Quantity::Fresh => Some(100.0 * staleness()?.fresh),
            Quantity::Stale(StaleAt::P90) => Some(staleness()?.stale_us_p90 as f64 / 1e3),
            Quantity::Stale(StaleAt::P99) => Some(staleness()?.stale_us_p99 as f64 / 1e3),
            Quantity::Rounds => mean("rounds"),
            Quantity::MostRounds => mean("most_rounds"),
            Quantity::Blocked => Some(100.0 * mean("blocked_share")?),
            Quantity::Omitted => Some(100.0 * mean("omitted_share")?),
            Quantity::PassedAtFirst
            | Quantity::NotDelayed
            | Quantity::RetriedWell
            | Quantity::StartedOver => {
                let Load::Open(open) = self.figure.load else { return None };
                let run = self.within(open.operating_ms).max_by(self.by_throughput())?;
                Some(100.0 * fared(of, run)?)
            }
        }
    }

    fn by_throughput(&self) -> impl Fn(&&Measured, &&Measured) -> Ordering {
        |a, b| self.throughput(a).total_cmp(&self.throughput(b))
    }

    /// The runs up to the first with too high a latency.
    fn within(&self, most_ms: f64) -> impl Iterator<Item = &Measured> {
        let is_low = move |run: &&Measured| self.latency_ms(run).is_some_and(|ms| ms < most_ms);
        self.runs.iter().take_while(is_low)
    }

    /// Where the curve through the runs crosses a latency, or the highest throughput below it.
    fn operating_point(&self, most_ms: f64) -> Option<f64> {
        let highest = self.throughput(self.within(most_ms).max_by(self.by_throughput())?);
        let count = self.within(most_ms).count();
        let crossing = || {
            let (below, above) = (&self.runs[count - 1], self.runs.get(count)?);
            let [low, high] = [below, above].map(|run| self.latency_ms(run));
            let (low, high) = (low?.ln(), high?.ln());
            let way = (most_ms.ln() - low) / (high - low);
            let [from, to] = [below, above].map(|run| self.throughput(run));
            Some(from + way * (to - from))
        };
        Some(crossing().map_or(highest, |crossing| crossing.max(highest)))
    }

    /// The figure's latency at this throughput, on the line between two runs.
    fn latency_at(&self, throughput: f64) -> Option<f64> {
        let after = self.runs.iter().position(|run| self.throughput(run) >= throughput)?;
        let above = &self.runs[after];
        let high = self.latency_ms(above)?;
        let Some(below) = after.checked_sub(1).map(|before| &self.runs[before]) else {
            return Some(high);
        };
        let low = self.latency_ms(below)?;
        let [from, to] = [below, above].map(|run| self.throughput(run));
        Some(low + (high - low) * (throughput - from) / (to - from))
    }
}

/// Sets each system's throughput at its places, divided by its highest at any place.
pub(crate) fn normalize(sweeps: &mut [Sweep]) {
    let at_places: Vec<(String, f64)> = sweeps
        .iter()
        .filter(|sweep| sweep.x.is_some())
        .filter_map(|sweep| Some((sweep.protocol.clone(), sweep.highest_per_s?)))
        .collect();
    for sweep in sweeps.iter_mut().filter(|sweep| sweep.x.is_some()) {
        let own = at_places.iter().filter(|(protocol, _)| *protocol == sweep.protocol);
        let highest = own.map(|(_, per_s)| *per_s).fold(0.0, f64::max);
        sweep.normalized =
            sweep.highest_per_s.map(|per_s| if highest > 0.0 { per_s / highest } else { 0.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure;
    use crate::measured::{OfKind, OpenMeasured, TransactionsMeasured};

    /// A sweep whose runs have these throughputs and median latencies.
    fn sweep(numbers: &[(f64, f64)]) -> Sweep {
        let figure = figure("ncc-fig7a").unwrap();
        let run = |(goodput_per_s, latency_ms_p50): &(f64, f64)| {
            let (kind, per_s) = (figure.latency.kind.unwrap().to_string(), *goodput_per_s);
            let of_kind =
                OfKind { kind, per_s, latency_ms_p50: *latency_ms_p50, latency_ms_p99: 0.0 };
            let open = Some(OpenMeasured { kinds: vec![of_kind], ..OpenMeasured::nothing() });
            let nothing = TransactionsMeasured::nothing();
            TransactionsMeasured { goodput_per_s: *goodput_per_s, open, ..nothing }.into()
        };
        let runs = numbers.iter().map(run).collect();
        let place = Place { panel: 0, x: None, protocol: "ncc" };
        Sweep::new(figure, place, &figure.effort(true), (runs, Some(true)))
    }

    #[test]
    fn the_operating_point_is_where_the_curve_crosses_the_latency() {
        let point = |numbers: &[(f64, f64)]| sweep(numbers).operating_point_per_s;
        let crossing = point(&[(100.0, 1.0), (200.0, 2.0), (300.0, 50.0)]).unwrap();
        assert!((250.0 - crossing).abs() < 1e-6, "half way, as latency is logarithmic: {crossing}");
        assert_eq!(point(&[(100.0, 1.0), (200.0, 2.0)]), Some(200.0), "it was never crossed");
        assert_eq!(point(&[(100.0, 1.0), (80.0, 50.0)]), Some(100.0), "it does less beyond");
        assert_eq!(point(&[(100.0, 11.0), (200.0, 9.0)]), None, "it is never low enough");
    }

    #[test]
    fn the_latency_of_the_lowest_rate_with_nearly_the_highest_counts() {
        let sweep = sweep(&[(100.0, 1.0), (199.0, 2.0), (200.0, 90.0)]);
        assert_eq!(sweep.peak(), sweep.runs.last());
        assert_eq!(sweep.at_highest(), sweep.runs.get(1));
    }

    #[test]
    fn latencies_at_the_same_throughput_are_compared_between_runs() {
        let sweep = sweep(&[(100.0, 1.0), (200.0, 3.0)]);
        let at = |throughput| sweep.latency_at(throughput);
        assert_eq!([at(50.0), at(150.0), at(300.0)], [Some(1.0), Some(2.0), None]);
    }
}
