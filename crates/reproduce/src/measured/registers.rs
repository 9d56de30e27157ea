//! The result of a run of operations on registers.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Run, Summary};
use crate::figure::Statistic;

/// The kind of whole requests.
pub(crate) const REQUEST: &str = "request";

/// The result of a run of operations on registers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RegistersMeasured {
    /// How many clients there were.
    pub(crate) clients: usize,
    /// Messages per request.
    pub(crate) messages_per_request: f64,
    /// The share of the replicas' cores that was in use.
    pub(crate) replica_cpu: f64,
    /// The length of the measurement, in simulated seconds.
    pub(crate) seconds: f64,
    /// Requests that failed.
    pub(crate) failed: u64,
    /// Operations by kind, and whole requests. The latency of a request is that of its slowest operation.
    pub(crate) kinds: Vec<KindMeasured>,
    /// The hash of all events of the run.
    pub(crate) event_hash: String,
}

/// Operations of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct KindMeasured {
    /// The kind.
    pub(crate) kind: String,
    /// How many were done each second.
    pub(crate) per_s: f64,
    /// How many were done.
    pub(crate) count: u64,
    /// Mean latency in milliseconds.
    pub(crate) mean_ms: f64,
    /// Quantiles of the latency in milliseconds: percent by percent up to 99 %, then ten for each power of ten up to
    /// 99.99 %.
    pub(crate) quantiles_ms: Vec<f64>,
}

/// The quantiles for which latencies are kept: percent by percent up to 99 %, then ten for each power of ten up to
/// 99.99 %.
pub(crate) fn quantiles() -> Vec<f64> {
    let percents = (1..=99).map(|percent| f64::from(percent) / 100.0);
    let tail = (21..=40).map(|tenth| 1.0 - 10f64.powf(-f64::from(tenth) / 10.0));
    percents.chain(tail).collect()
}

impl KindMeasured {
    /// The latency at this quantile, or at the next larger one that is kept, in milliseconds.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let place = quantiles().iter().position(|kept| *kept >= quantile - 1e-9)?;
        self.quantiles_ms.get(place).copied()
    }
}

impl RegistersMeasured {
    /// Operations of a kind. `None` if there were none.
    pub(crate) fn kind(&self, kind: &str) -> Option<&KindMeasured> {
        self.kinds.iter().find(|of| of.kind == kind)
    }
}

impl Run for RegistersMeasured {
    fn summary(&self) -> Summary<'_> {
        let requests = self.kind(REQUEST);
        Summary {
            clients: self.clients,
            done: requests.map_or(0, |requests| requests.count),
            failed: self.failed,
            per_s: requests.map_or(0.0, |requests| requests.per_s),
            messages_each: self.messages_per_request,
            replica_cpu: self.replica_cpu,
            seconds: self.seconds,
            event_hash: &self.event_hash,
        }
    }

    fn kinds(&self) -> Vec<&str> {
        self.kinds.iter().map(|of| &*of.kind).filter(|kind| *kind != REQUEST).collect()
    }

    fn per_s(&self, kind: &str) -> f64 {
        self.kind(kind).map_or(0.0, |of| of.per_s)
    }

    fn latency_ms(&self, kind: Option<&str>, statistic: Statistic) -> Option<f64> {
        let of = self.kind(kind.unwrap_or(REQUEST))?;
        match statistic {
            Statistic::Mean => Some(of.mean_ms),
            Statistic::Quantile(quantile) => of.quantile_ms(quantile),
        }
    }
}

impl fmt::Display for RegistersMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds.iter();
        let kinds =
            kinds.map(|of| format!("{} {:.0}/s with {:.1} ms", of.kind, of.per_s, of.mean_ms));
        f.write_str(&kinds.collect::<Vec<_>>().join(", "))
    }
}
