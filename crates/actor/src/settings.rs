//! The settings of a keyspace's protocol.

use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Times and bounds of a keyspace's protocol. They are the same at all participants. Each protocol uses the ones that
/// apply to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How often old transactions are truncated, in milliseconds. Default 2 s.
    pub truncation_every_ms: u64,
    /// The age at which a transaction is truncated, in milliseconds. No transaction may take longer. Default 10 s.
    pub truncation_lag_ms: u64,
    /// How long an overwritten version can still be read, in milliseconds. Default 0. Snapshots with version clocks
    /// keep versions for 1 s if this is less.
    pub history_ms: u64,
    /// How long the outcome of a transaction can be asked for after it was truncated, at least, in milliseconds.
    /// Default 30 s.
    pub outcomes_ms: u64,
    /// How long others wait for a transaction whose coordinator is silent before they finish or abort it, in
    /// milliseconds. Default 1 s.
    pub recovery_after_ms: u64,
    /// How much the clocks of a client and a replica may differ, in milliseconds. Default 2 s.
    pub clock_bound_ms: u64,
    /// How far a clock may be from true time, in microseconds, for protocols whose real-time order relies on clocks
    /// ([`crate::Protocol::RELIES_ON_CLOCKS`]). They wait for about twice as long before they report a commit. Default 10 ms.
    pub uncertainty_us: u64,
    /// How many keys a replica of one partition keeps in memory. The others stay on disk until they are used. Default 4
    /// million.
    pub resident_keys: usize,
    /// Whether a request that a quorum can answer is sent only to a quorum, and to the other replicas only when one
    /// of these is slow (001 §4.5.1). It applies to registers, and to the replicated log of shards, of MultiPaxos and
    /// of snapshots. Default: a request goes to all replicas.
    pub thrifty: bool,
    /// How long the leader of a partition may be silent before the other replicas elect another one, in milliseconds.
    /// Two round trips are added. A leader sends four heartbeats in this time. Default 200 ms.
    pub election_timeout_ms: u64,
    /// How many bytes of keys and values each partition of a keyspace with several sites keeps for sites that can't be
    /// reached. A site that lacks more copies all that has changed. Default 64 MiB.
    pub site_backlog_bytes: u64,
}

const _: () = assert!(
    Settings::LONGEST_MS < u64::MAX / 1_000_000 / 16,
    "sums and small multiples of times do not overflow in nanoseconds"
);

impl Default for Settings {
    fn default() -> Self {
        Settings {
            truncation_every_ms: 2000,
            truncation_lag_ms: 10_000,
            history_ms: 0,
            outcomes_ms: 30_000,
            recovery_after_ms: 1000,
            clock_bound_ms: 2000,
            uncertainty_us: 10_000,
            resident_keys: 4 << 20,
            thrifty: false,
            election_timeout_ms: 200,
            site_backlog_bytes: 64 << 20,
        }
    }
}

impl Settings {
    /// The longest time that can be set, in milliseconds: ten years. It keeps computed times in range.
    pub const LONGEST_MS: u64 = 10 * 366 * 24 * 3600 * 1000;

    /// The greatest [`Settings::uncertainty_us`]: ten seconds.
    pub const MOST_UNCERTAIN_US: u64 = 10_000_000;

    /// Checks that no time is too long.
    ///
    /// # Errors
    /// If a time is longer than [`Settings::LONGEST_MS`], or the uncertainty greater than
    /// [`Settings::MOST_UNCERTAIN_US`]. The error names it.
    pub fn check(&self) -> Result<(), String> {
        let times = [
            ("truncation_every_ms", self.truncation_every_ms),
            ("truncation_lag_ms", self.truncation_lag_ms),
            ("history_ms", self.history_ms),
            ("outcomes_ms", self.outcomes_ms),
            ("recovery_after_ms", self.recovery_after_ms),
            ("clock_bound_ms", self.clock_bound_ms),
            ("election_timeout_ms", self.election_timeout_ms),
        ];
        if let Some((name, ms)) = times.into_iter().find(|(_, ms)| *ms > Self::LONGEST_MS) {
            return Err(format!(
                "`{name}` is {ms}: choose {} (ten years) at most",
                Self::LONGEST_MS
            ));
        }
        let (us, most_us) = (self.uncertainty_us, Self::MOST_UNCERTAIN_US);
        if us > most_us {
            return Err(format!(
                "`uncertainty_us` is {us}: choose {most_us} (ten seconds) at most"
            ));
        }
        Ok(())
    }

    /// [`Settings::recovery_after_ms`].
    pub fn recovery_after(&self) -> Duration {
        Duration::from_millis(self.recovery_after_ms)
    }

    /// [`Settings::election_timeout_ms`] as a duration.
    pub fn election_timeout(&self) -> Duration {
        Duration::from_millis(self.election_timeout_ms)
    }
}
