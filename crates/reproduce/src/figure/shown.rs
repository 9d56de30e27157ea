//! What a figure shows.

use crate::claim::Quantity;

/// A latency of operations of a kind, or of all of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Latency {
    pub(crate) kind: Option<&'static str>,
    pub(crate) statistic: Statistic,
}

/// A number that stands for many latencies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Statistic {
    Mean,
    /// The quantile of this share of the operations.
    Quantile(f64),
}

/// A chart of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plot {
    /// The figure's latency over its throughput, run by run.
    LatencyOverThroughput { logarithmic: bool },
    /// A quantity over the swept parameter.
    OverPlaces(Quantity),
    /// How latencies of a kind of operations are distributed, and their tail in a second chart.
    Distribution(&'static str),
    /// Throughput over time, a chart for each place.
    OverTime,
}

impl Latency {
    /// The mean of all operations.
    pub(crate) const MEAN: Latency = Latency { kind: None, statistic: Statistic::Mean };

    /// The latency of operations of a kind at this quantile.
    pub(crate) const fn quantile(kind: Option<&'static str>, quantile: f64) -> Latency {
        Latency { kind, statistic: Statistic::Quantile(quantile) }
    }

    /// Its description.
    pub(crate) fn label(self) -> String {
        let of = match self.kind {
            None => String::new(),
            Some(kind) => format!(" of {}", plural(kind)),
        };
        match self.statistic {
            Statistic::Mean => format!("mean latency{of}"),
            Statistic::Quantile(0.5) => format!("median latency{of}"),
            Statistic::Quantile(quantile) => {
                format!("p{}{of}", (quantile * 1000.0).round() / 10.0)
            }
        }
    }
}

/// The plural of a kind of operations.
pub(crate) fn plural(kind: &str) -> String {
    match kind.contains('-') {
        true => format!("{kind} transactions"),
        false => format!("{kind}s"),
    }
}
