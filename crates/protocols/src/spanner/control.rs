//! Locks, and timestamps that agree with their order.

use core::fmt;

use serried_model::{Guarantee, Key, Version};

use crate::Mutated;
use crate::frameworks::shard::{
    AsOf, Control, Desk, Found, Glance, Item, Keeps, Mutation, Part, Rounds, Shot, Snapshots,
    Stamp, Validity,
};
use crate::two_phase_locking::Locking;

/// The locks of a shard, and the latest timestamp that it has read at.
pub struct Timestamping {
    locking: Locking<true>,
    /// No transaction without parts has read at a later time, in microseconds since the Unix epoch.
    read_at_us: u64,
    mutation: Mutated<Mutation>,
}

impl fmt::Debug for Timestamping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, read at {}", self.locking, self.read_at_us)
    }
}

impl Control for Timestamping {
    const NAME: &'static str = "spanner";
    const SUMMARY: &'static str = "locks what is written or read with it, waits until its timestamp is past, and reads at \
         a timestamp without locks";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    const ROUNDS: Rounds = Rounds::ExecuteFirst;
    const SNAPSHOTS: Snapshots = Snapshots::AtTimestamps;
    const KEEPS: Keeps = Keeps::Recent;
    const GROUPS_DECIDE: bool = true;

    fn new(mutation: Mutated<Mutation>) -> Self {
        Timestamping { locking: Locking::new(mutation), read_at_us: 0, mutation }
    }

    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        let (txn, latest_us) = (shot.txn, desk.clock().latest_us);
        let is_first = !self.locking.knows(txn);
        self.locking.execute(shot, desk);
        if shot.participants.is_none() {
            return self.locking.begin_after(txn, latest_us);
        }
        // Its timestamp is rounded up to its lane. That is not after the latest, unless it has only just begun, so that
        // nothing waits if clocks are certain. A clock may go back.
        let after_us =
            if is_first { latest_us } else { latest_us.saturating_sub(Stamp::LANES + 1) };
        self.locking.begin_after(txn, after_us.max(self.read_at_us));
    }

    fn found(&mut self, txn: Version, keys: &[Key], desk: &mut Desk<'_>) -> Option<Vec<Found>> {
        self.locking.found(txn, keys, desk)
    }

    fn part(&mut self, txn: Version) -> Option<(Validity, Vec<Item>)> {
        self.locking.part(txn)
    }

    fn discard(&mut self, txn: Version, desk: &mut Desk<'_>) {
        self.locking.discard(txn, desk);
    }

    fn decided(&mut self, txn: Version, _: Option<Stamp>, desk: &mut Desk<'_>) {
        self.locking.end(txn, desk);
    }

    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>) {
        self.locking.inherit(parts, desk);
    }

    fn glance(&mut self, key: &Key, as_of: AsOf, desk: &mut Desk<'_>) -> Glance {
        let AsOf::Time(at) = as_of else { return Glance::Refused { anew: false } };
        let us = at.timestamp_us;
        let earliest_us = desk.clock().earliest_us;
        self.read_at_us = us.max(self.read_at_us);
        if let Some(writer) = self.locking.writes_by(key, us)
            && !self.mutation.is(Mutation::SafeTimeIgnoresPrepared)
        {
            return Glance::Waits(writer);
        }
        let mut versions = desk.row(key).versions();
        let Some(found) = versions.find(|version| version.stamp.version() < at) else {
            return Glance::Refused { anew: false };
        };
        if found.stamp.us >= earliest_us && !self.mutation.is(Mutation::NoCommitWait) {
            // A former leader has committed it, and its moment may not be over.
            return Glance::WaitsUntil(found.stamp.us);
        }
        Glance::Found(Found { version: found.stamp.version(), value: found.value.clone() })
    }
}
