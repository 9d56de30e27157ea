//! The result of a run of read-only transactions and writes.

use core::fmt;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serried_workload::StalenessReport;

use super::{RegistersMeasured, Run, Summary};
use crate::figure::Statistic;

/// The result of a run of read-only transactions and writes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotsMeasured {
    /// What a run of registers has, too: here the requests are read-only transactions and groups of writes.
    pub(crate) requests: RegistersMeasured,
    /// The mean of further numbers, by name: `rounds` and `metadata_bytes` of read-only transactions, the
    /// `omitted_share` of writes, and the `blocked_share` of requests to read: how many had to wait at a server, of
    /// all.
    pub(crate) means: BTreeMap<String, f64>,
    /// How old what was read was. `None` without version clocks.
    pub(crate) staleness: Option<StalenessReport>,
}

impl Run for SnapshotsMeasured {
    fn summary(&self) -> Summary<'_> {
        self.requests.summary()
    }

    fn kinds(&self) -> Vec<&str> {
        self.requests.kinds()
    }

    fn per_s(&self, kind: &str) -> f64 {
        self.requests.per_s(kind)
    }

    fn latency_ms(&self, kind: Option<&str>, statistic: Statistic) -> Option<f64> {
        self.requests.latency_ms(kind, statistic)
    }
}

impl fmt::Display for SnapshotsMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests.fmt(f)?;
        self.means.iter().try_for_each(|(name, mean)| write!(f, ", {name} {mean:.2}"))?;
        match &self.staleness {
            Some(StalenessReport { fresh, stale_us_p90, .. }) => {
                let p90_ms = *stale_us_p90 as f64 / 1e3;
                write!(f, ", {:.0} % fresh, p90 {p90_ms:.1} ms stale", fresh * 100.0)
            }
            None => Ok(()),
        }
    }
}
