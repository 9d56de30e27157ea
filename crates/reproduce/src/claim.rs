//! The numbers that the text of a paper states about a figure.
//!
//! The figures themselves are plots: of their curves, only the numbers that the text states are known. No number is
//! read off a plot or invented.

use core::fmt;

use serde::{Serialize, Serializer};

use crate::figure::{Figure, Latency};

/// A number that the text of a paper states.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The panel.
    pub(crate) panel: usize,
    /// The place on the horizontal axis. Without one it is the only place, or the greatest number of all places.
    pub(crate) x: Option<f64>,
    pub(crate) protocol: &'static str,
    pub(crate) against: Against,
    pub(crate) of: Quantity,
    pub(crate) paper: Said,
    /// Where the paper states it.
    pub(crate) source: &'static str,
}

/// The system that a claim compares with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Against {
    /// The claim is about one system.
    Nothing,
    /// By how much the number exceeds this system's.
    Minus(&'static str),
    /// The ratio of the number to this system's.
    Over(&'static str),
}

/// The quantity of a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Quantity {
    /// The highest throughput.
    HighestThroughput,
    /// The highest throughput with a latency below [`crate::figure::Open::operating_ms`].
    OperatingPoint,
    /// The throughput at a place over the highest of the system at any place.
    Normalized,
    /// The share of attempts that commit, at the highest throughput.
    CommitRate,
    /// Re-executions per transaction, at the highest throughput.
    ReExecutions,
    /// A latency at the highest throughput.
    Latency(Latency),
    /// The figure's latency with the least load.
    LowLoadLatency,
    /// The figure's latency at half of the highest throughput, or half of the other system's if that is less.
    LatencyAtHalf,
    /// The share of attempts that pass the safeguard at first, at the operating point.
    PassedAtFirst,
    /// The share of transactions whose responses are not delayed, at least, at the operating point.
    NotDelayed,
    /// The share of smart retries among attempts that don't pass, at the operating point.
    RetriedWell,
    /// The share of a procedure's calls among all, at the highest throughput.
    Share(&'static str),
    /// The mean number of pieces of a procedure's calls.
    Pieces(&'static str),
    /// The share of values that were the newest acknowledged when they were read.
    Fresh,
    /// For how long the values at this quantile had not been the newest acknowledged when they were read.
    Stale(StaleAt),
    /// Rounds of requests for each read-only transaction.
    Rounds,
    /// The greatest number of rounds that a read-only transaction took.
    MostRounds,
    /// The share of read-only transactions that had to wait at a server.
    Blocked,
    /// The share of writes that were omitted.
    Omitted,
    /// Attempts from scratch after the first, for each transaction, at the operating point.
    StartedOver,
}

/// A quantile of staleness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StaleAt {
    P90,
    P99,
}

/// A number as the text states it, which is seldom exact.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Said {
    About(f64),
    Between(f64, f64),
    AtLeast(f64),
    Above(f64),
    Below(f64),
    /// About the same as the other system's.
    Similar,
}

impl Against {
    /// The other system.
    pub(crate) fn other(self) -> Option<&'static str> {
        match self {
            Against::Nothing => None,
            Against::Minus(other) | Against::Over(other) => Some(other),
        }
    }
}

impl Said {
    /// The number, if the text has one.
    pub(crate) fn number(self) -> Option<f64> {
        match self {
            Said::About(number) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::About(number) => write!(f, "{number}"),
            Said::Between(least, most) => write!(f, "{least} to {most}"),
            Said::AtLeast(least) => write!(f, "{least} or more"),
            Said::Above(bound) => write!(f, "above {bound}"),
            Said::Below(bound) => write!(f, "below {bound}"),
            Said::Similar => f.write_str("similar"),
        }
    }
}

impl Serialize for Said {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Said::About(number) => serializer.serialize_f64(*number),
            other => serializer.collect_str(other),
        }
    }
}

impl Claim {
    /// The one or two systems that it is about.
    pub(crate) fn systems(&self) -> String {
        match self.against {
            Against::Nothing => self.protocol.to_string(),
            Against::Minus(other) => format!("{} - {other}", self.protocol),
            Against::Over(other) => format!("{} / {other}", self.protocol),
        }
    }

    /// The unit of its number. `None` for a ratio.
    pub(crate) fn unit(&self, figure: &Figure) -> Option<&'static str> {
        match self.against {
            Against::Over(_) => None,
            _ => self.of.unit(figure),
        }
    }
}

impl Quantity {
    /// Its description.
    pub(crate) fn label(self, figure: &Figure) -> String {
        let label = match self {
            Quantity::HighestThroughput => "highest throughput",
            Quantity::OperatingPoint => "throughput at the operating point",
            Quantity::Normalized => "throughput over the system's highest",
            Quantity::CommitRate => "attempts that commit",
            Quantity::ReExecutions => "re-executions per transaction",
            Quantity::PassedAtFirst => "attempts that pass the safeguard at first",
            Quantity::NotDelayed => "transactions whose responses are not delayed",
            Quantity::RetriedWell => "of those that do not pass, moved by smart retry",
            Quantity::StartedOver => "attempts from scratch after the first",
            Quantity::Fresh => "values that were the newest",
            Quantity::Stale(StaleAt::P90) => "staleness of values, p90",
            Quantity::Stale(StaleAt::P99) => "staleness of values, p99",
            Quantity::Rounds => "rounds of read-only transactions",
            Quantity::MostRounds => "most rounds of a read-only transaction",
            Quantity::Blocked => "read-only transactions that had to wait",
            Quantity::Omitted => "writes that were omitted",
            Quantity::Share(kind) => return format!("{kind} among all calls"),
            Quantity::Pieces(kind) => return format!("pieces of {kind}"),
            Quantity::Latency(latency) if figure.searches() => {
                return format!("{} at the highest throughput", latency.label());
            }
            Quantity::Latency(latency) => return latency.label(),
            Quantity::LowLoadLatency => {
                return format!("{} with the least load", figure.latency.label());
            }
            Quantity::LatencyAtHalf => {
                return format!("{} at half of the highest throughput", figure.latency.label());
            }
        };
        label.to_string()
    }

    /// Its unit. `None` for a plain number.
    pub(crate) fn unit(self, figure: &Figure) -> Option<&'static str> {
        match self {
            Quantity::HighestThroughput | Quantity::OperatingPoint => Some(figure.per_s()),
            Quantity::Latency(_)
            | Quantity::LowLoadLatency
            | Quantity::LatencyAtHalf
            | Quantity::Stale(_) => Some("ms"),
            Quantity::Normalized
            | Quantity::ReExecutions
            | Quantity::Pieces(_)
            | Quantity::Rounds
            | Quantity::MostRounds => None,
            Quantity::StartedOver => Some("for 100 transactions"),
            _ => Some("%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_numbers_and_bounds_are_words() {
        let json = |said: Said| serde_json::to_string(&said).unwrap();
        assert_eq!(json(Said::About(11_800.0)), "11800.0");
        assert_eq!(json(Said::Between(2.0, 4.0)), "\"2 to 4\"");
        assert_eq!(json(Said::AtLeast(1.8)), "\"1.8 or more\"");
        assert_eq!(json(Said::Similar), "\"similar\"");
    }
}
