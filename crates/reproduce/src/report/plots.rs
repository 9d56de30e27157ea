//! The charts of a figure.

use super::chart::{Axis, Chart, Line, OTHER_STYLE, STYLES};
use crate::Findings;
use crate::claim::{Against, Claim, Quantity};
use crate::figure::{Latency, Load, Panel, Plot, Statistic, Swept, plural};
use crate::measured::quantiles;
use crate::point::SLOT;
use crate::sweep::Sweep;

impl Findings {
    pub(super) fn charts(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        for panel in 0..self.figure.panels.len() {
            for plot in self.figure.plots {
                charts.extend(self.plot(panel, *plot));
            }
        }
        charts
    }

    fn plot(&self, panel: usize, plot: Plot) -> Vec<Chart> {
        match plot {
            Plot::LatencyOverThroughput { logarithmic } => {
                vec![self.latency_over_throughput(panel, logarithmic)]
            }
            Plot::OverPlaces(of) => self
                .figure
                .swept
                .map(|swept| self.over_places(panel, swept, of))
                .into_iter()
                .collect(),
            Plot::Distribution(kind) => {
                vec![self.distribution(panel, kind, false), self.distribution(panel, kind, true)]
            }
            Plot::OverTime => {
                let places = self.figure.places_of(&self.effort);
                places.iter().map(|x| self.over_time(panel, *x)).collect()
            }
        }
    }

    fn latency_over_throughput(&self, panel: usize, logarithmic: bool) -> Chart {
        let figure = self.figure;
        let mut lines = self.lines(
            panel,
            |sweep| {
                let point = |run| Some((sweep.throughput(run), sweep.latency_ms(run)?));
                sweep.runs.iter().filter_map(point).collect()
            },
            |of, _, number| (of == Quantity::HighestThroughput).then_some((Some(number), None)),
        );
        if let Load::Open(open) = figure.load {
            let stated = vec![(None, Some(open.operating_ms))];
            let name = "operating point".to_string();
            lines.push(Line { name, style: OTHER_STYLE, points: Vec::new(), stated });
        }
        let of = figure.throughput_of.map_or(String::new(), |kind| format!(" of {}", plural(kind)));
        Chart {
            title: self.chart_title(panel, None),
            x: Axis { label: format!("throughput{of}, {}", figure.per_s()), logarithmic },
            y: Axis { label: format!("{}, ms", figure.latency.label()), logarithmic: true },
            lines,
        }
    }

    /// A quantity over the swept parameter.
    fn over_places(&self, panel: usize, swept: Swept, of: Quantity) -> Chart {
        let scale = swept.parameter.scale();
        let lines = self.lines(
            panel,
            |sweep| {
                let point = |x| Some((x * scale, sweep.number(of, sweep)?));
                sweep.x.and_then(point).into_iter().collect()
            },
            |stated, x, number| (stated == of).then_some((x.map(|x| x * scale), Some(number))),
        );
        let label = of.label(self.figure);
        let unit = of.unit(self.figure).map_or(String::new(), |unit| format!(", {unit}"));
        let several = self.figure.plots.len() > 1;
        Chart {
            title: self.chart_title(panel, several.then_some(&*label)),
            x: Axis { label: swept.parameter.axis().into(), logarithmic: swept.logarithmic },
            y: Axis {
                label: format!("{label}{unit}"),
                logarithmic: of == Quantity::HighestThroughput,
            },
            lines,
        }
    }

    /// Shares of operations over latencies. For the tail, the shares above them.
    fn distribution(&self, panel: usize, kind: &'static str, tail: bool) -> Chart {
        let point =
            |(share, ms): (f64, &f64)| (*ms, 100.0 * if tail { 1.0 - share } else { share });
        let points = |sweep: &Sweep| {
            let found = sweep.at_highest().and_then(|run| run.registers()?.kind(kind));
            let Some(found) = found else { return Vec::new() };
            // Quantiles beyond the last operation are not known.
            let known = |share: f64| (1.0 - share) * found.count as f64 >= 1.0;
            let places = quantiles().into_iter().zip(&found.quantiles_ms);
            let places = places.filter(|(share, _)| known(*share) && (tail || *share <= 0.99));
            places.map(point).collect()
        };
        let stated = |of, _, number| match of {
            Quantity::Latency(Latency {
                kind: Some(of),
                statistic: Statistic::Quantile(share),
            }) if of == kind && !tail => Some((Some(number), Some(100.0 * share))),
            _ => None,
        };
        let (what, share) = match tail {
            true => (format!("{kind}s, the tail"), "share of operations above it, %"),
            false => (format!("{kind}s"), "share of operations, %"),
        };
        Chart {
            title: self.chart_title(panel, Some(&what)),
            x: Axis { label: "latency, ms".into(), logarithmic: false },
            y: Axis { label: share.into(), logarithmic: tail },
            lines: self.lines(panel, points, stated),
        }
    }

    /// Throughput over time at a place.
    fn over_time(&self, panel: usize, place: f64) -> Chart {
        let mut lines = self.lines(
            panel,
            |sweep| {
                let run = sweep.runs.first().filter(|_| sweep.x == Some(place));
                let open = run.and_then(|run| run.open());
                let slots = open.into_iter().flat_map(|open| &open.over_time).enumerate();
                slots
                    .map(|(slot, per_s)| ((slot as f64 + 0.5) * SLOT.as_secs_f64(), *per_s))
                    .collect()
            },
            |_, _, _| None,
        );
        if let Some(deaths) = self.effort.deaths {
            let highest = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
            let highest = highest.fold(0.0, f64::max);
            let points = vec![(deaths.at_s, 0.0), (deaths.at_s, highest)];
            let name = "all clients die".to_string();
            lines.push(Line { name, style: OTHER_STYLE, points, stated: Vec::new() });
        }
        Chart {
            title: self.chart_title(panel, Some(&format!("recovery after {place} s"))),
            x: Axis { label: "time, s".into(), logarithmic: false },
            y: Axis { label: format!("throughput, {}", self.figure.per_s()), logarithmic: false },
            lines,
        }
    }

    fn chart_title(&self, panel: usize, what: Option<&str>) -> String {
        let Panel { label, .. } = self.figure.panels[panel];
        match what {
            Some(what) => format!("{label}: {what}"),
            None => label.to_string(),
        }
    }

    /// A line for each system. `points` are those of a sweep; `stated` is the mark of a number that the text states of
    /// a system at a place.
    fn lines(
        &self,
        panel: usize,
        points: impl Fn(&Sweep) -> Vec<(f64, f64)>,
        stated: impl Fn(Quantity, Option<f64>, f64) -> Option<(Option<f64>, Option<f64>)>,
    ) -> Vec<Line> {
        let line = |(style, protocol): (usize, &str)| {
            let sweeps = self.sweeps.iter();
            let own = sweeps.filter(|sweep| sweep.panel == panel && sweep.protocol == protocol);
            let claims = self.figure.claims.iter().filter(|claim| {
                claim.panel == panel
                    && claim.protocol == protocol
                    && claim.against == Against::Nothing
            });
            let mark = |claim: &Claim| stated(claim.of, claim.x, claim.paper.number()?);
            Line {
                name: self.label(protocol),
                style: style % STYLES,
                points: own.flat_map(&points).collect(),
                stated: claims.filter_map(mark).collect(),
            }
        };
        let lines = self.protocols().into_iter().enumerate().map(line);
        lines.filter(|line| !line.points.is_empty() || !line.stated.is_empty()).collect()
    }
}
