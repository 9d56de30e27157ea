//! Which undecided transactions need looking after.

use std::collections::{BTreeSet, VecDeque};

use core::time::Duration;
use serried_actor::Timestamp;
use serried_model::Version;

use super::setup::Setup;

/// The open transactions, roughly in the order in which they are due to be looked at.
#[derive(Debug, Default)]
pub(super) struct Watch {
    queue: VecDeque<(Timestamp, Version)>,
    /// Those that have been looked at, and are still open.
    lingering: BTreeSet<Version>,
}

impl Watch {
    /// Has `version` looked at from `due` on.
    pub(super) fn add(&mut self, version: Version, due: Timestamp) {
        self.queue.push_back((due, version));
    }

    /// A transaction is decided.
    pub(super) fn remove(&mut self, version: Version) {
        if !self.lingering.is_empty() {
            self.lingering.remove(&version);
        }
    }

    /// The transactions below `version` that are `wanted`. Without that filter, some would be decided already.
    pub(super) fn below(
        &self,
        version: Version,
        wanted: impl Fn(&Version) -> bool,
    ) -> BTreeSet<Version> {
        let queued = self.queue.iter().map(|(_, queued)| *queued);
        let queued = queued.filter(|queued| *queued < version);
        queued.chain(self.lingering.range(..version).copied()).filter(wanted).collect()
    }

    /// Puts everything off until `due`, and returns what that is.
    pub(super) fn postpone_all(&mut self, due: Timestamp) -> impl Iterator<Item = &Version> {
        self.queue.iter_mut().map(move |(at, version)| {
            *at = due;
            &*version
        })
    }

    /// Takes the next transaction that is due by `now`, and says since when it is.
    pub(super) fn next_due(&mut self, now: Timestamp) -> Option<(Timestamp, Version)> {
        let (due, _) = self.queue.front()?;
        if *due > now {
            return None;
        }
        self.queue.pop_front()
    }

    /// A transaction was looked at and is still open.
    pub(super) fn linger(&mut self, version: Version) {
        self.lingering.insert(version);
    }
}

/// The time between two looks.
pub(super) fn look_every(setup: &Setup) -> Duration {
    (setup.settings.recovery_after() / 4).max(Duration::from_millis(10))
}

/// How long this replica waits before it recovers a transaction of which it hears nothing. Replicas take turns.
pub(super) fn patience_for(version: Version, setup: &Setup) -> Duration {
    let after = setup.settings.recovery_after();
    let turn =
        version.timestamp_us.wrapping_add(setup.id.member() as u64) % setup.group.size() as u64;
    after + after / 4 * turn as u32
}
