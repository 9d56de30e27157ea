//! Versions: a transaction's place in the speculative serialization order.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// A transaction's version: its coordinator's clock when it began, and the coordinator's identity
/// to break ties (000 §4.2, "Begin").
///
/// Versions are totally ordered and unique: a coordinator never uses a timestamp twice. Anyone who knows the version
/// can later ask for the transaction's outcome.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Version {
    /// Microseconds since the Unix epoch, by the coordinator's loosely synchronised clock.
    pub timestamp_us: u64,
    /// The coordinator that assigned it.
    pub coordinator: NodeId,
}

impl Version {
    /// The version of the initial value of every key. No transaction has it.
    pub const INITIAL: Version = Version { timestamp_us: 0, coordinator: NodeId(0) };

    /// The least version of this time. Exactly the versions of earlier times are below it.
    pub fn at(timestamp_us: u64) -> Version {
        Version { timestamp_us, coordinator: NodeId(0) }
    }
}

/// `timestamp_us.coordinator`, the format in histories.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.timestamp_us, self.coordinator.0)
    }
}

impl core::str::FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (timestamp, coordinator) = text.split_once('.')?;
            Some(Version {
                timestamp_us: timestamp.parse().ok()?,
                coordinator: NodeId(coordinator.parse().ok()?),
            })
        };
        parse().ok_or_else(|| {
            format!("`{text}` is not a version: expected <microseconds>.<coordinator>")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_time_before_coordinator() {
        let early = Version { timestamp_us: 1, coordinator: NodeId(9) };
        let late = Version { timestamp_us: 2, coordinator: NodeId(1) };
        assert!(Version::INITIAL < early && early < late);
    }

    #[test]
    fn a_version_survives_its_text() {
        let version = Version { timestamp_us: 12, coordinator: NodeId(u64::MAX) };
        assert_eq!(version.to_string().parse::<Version>(), Ok(version));
        assert!("12".parse::<Version>().is_err());
    }
}
