//! The result of a run of calls of procedures.

use core::fmt;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{KindMeasured, OpenMeasured, REQUEST, Run, Summary};
use crate::figure::Statistic;

/// The result of a run of calls.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CallsMeasured {
    /// How many clients there were.
    pub(crate) clients: usize,
    /// Messages per call.
    pub(crate) messages_per_call: f64,
    /// The share of the replicas' cores that was in use.
    pub(crate) replica_cpu: f64,
    /// The length of the measurement, in simulated seconds.
    pub(crate) seconds: f64,
    /// Calls that failed.
    pub(crate) failed: u64,
    /// Calls that took effect, over the attempts that their clients made.
    pub(crate) commit_rate: f64,
    /// Calls by procedure, and all of them.
    pub(crate) kinds: Vec<KindMeasured>,
    /// The mean number of pieces of a call, by procedure, if they were counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) pieces: BTreeMap<String, f64>,
    /// The hash of all events of the run.
    pub(crate) event_hash: String,
    /// Further results of clients in open loops. Their kinds are among those above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open: Option<OpenMeasured>,
}

impl CallsMeasured {
    /// Calls of a procedure. `None` if there were none.
    fn kind(&self, kind: &str) -> Option<&KindMeasured> {
        self.kinds.iter().find(|of| of.kind == kind)
    }

    /// The share of a procedure's calls among all.
    pub(crate) fn share(&self, kind: &str) -> Option<f64> {
        let all = self.kind(REQUEST)?.count;
        (all > 0).then(|| self.kind(kind).map_or(0, |of| of.count) as f64 / all as f64)
    }
}

impl Run for CallsMeasured {
    fn summary(&self) -> Summary<'_> {
        let all = self.kind(REQUEST);
        Summary {
            clients: self.clients,
            done: all.map_or(0, |all| all.count),
            failed: self.failed,
            per_s: all.map_or(0.0, |all| all.per_s),
            messages_each: self.messages_per_call,
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

impl fmt::Display for CallsMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.latency_ms(None, Statistic::Quantile(0.5)).unwrap_or_default();
        let (per_s, rate) = (self.summary().per_s, self.commit_rate * 100.0);
        let offered = self.open.as_ref().map(|open| format!(" of {:.0}", open.rate_per_s));
        let of = offered.unwrap_or_default();
        write!(
            f,
            "{per_s:.0}{of} call/s, median latency {ms:.2} ms, {rate:.1} % of attempts commit"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_all_calls() {
        let kind = |kind: &str, count| KindMeasured {
            kind: kind.to_string(),
            per_s: 0.0,
            count,
            mean_ms: 0.0,
            quantiles_ms: Vec::new(),
        };
        let measured = |kinds| CallsMeasured {
            clients: 1,
            messages_per_call: 0.0,
            replica_cpu: 0.0,
            seconds: 1.0,
            failed: 0,
            commit_rate: 1.0,
            kinds,
            pieces: BTreeMap::new(),
            event_hash: String::new(),
            open: None,
        };
        let some = measured(vec![kind(REQUEST, 4), kind("pay", 3), kind("audit", 1)]);
        assert_eq!((some.share("pay"), some.share("draw")), (Some(0.75), Some(0.0)));
        assert_eq!(measured(vec![kind(REQUEST, 0)]).share("pay"), None);
    }
}
