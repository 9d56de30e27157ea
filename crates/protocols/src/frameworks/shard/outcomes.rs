//! How the transactions of a shard stand: which are ready to commit, and how others ended.

use std::collections::{BTreeMap, BTreeSet};

use serried_model::Version;

use super::message::Decision;

/// The transactions that are ready to commit, or over.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    prepared: BTreeSet<Version>,
    /// How transactions ended, until that may be forgotten.
    decided: BTreeMap<Version, Decision>,
    /// Those of them that have committed under another version than they began with, by that version.
    refined: BTreeMap<Version, Decision>,
}

impl Outcomes {
    /// How a transaction ended, if that is known.
    pub(super) fn decision(&self, txn: Version) -> Option<Decision> {
        self.decided.get(&txn).copied()
    }

    /// How a transaction ended that began with this version, or has committed under it. The two must not be taken for each
    /// other.
    pub(super) fn decision_of_version(&self, version: Version) -> Option<Decision> {
        self.decision(version).or_else(|| self.refined.get(&version).copied())
    }

    /// The transactions that are ready to commit.
    pub(super) fn prepared(&self) -> &BTreeSet<Version> {
        &self.prepared
    }

    /// How many transactions that began at `us` or later are known to be over.
    pub(super) fn decided_from(&self, us: u64) -> usize {
        self.decided.range(Version::at(us)..).count()
    }

    /// How many transactions are known to be over.
    pub(super) fn remembered(&self) -> usize {
        self.decided.len()
    }

    /// A transaction is ready to commit.
    pub(super) fn prepare(&mut self, txn: Version) {
        self.prepared.insert(txn);
    }

    /// A transaction is over.
    pub(super) fn decide(&mut self, txn: Version, decision: Decision) {
        self.prepared.remove(&txn);
        self.decided.insert(txn, decision);
        if let Decision::Commit(at) = decision
            && at.txn == txn
            && at.version() != txn
        {
            self.refined.insert(at.version(), decision);
        }
    }

    /// Forgets transactions that began before this, and returns them.
    pub(super) fn forget_below(&mut self, forget_us: u64) -> impl Iterator<Item = Version> + use<> {
        let first = Version::at(forget_us);
        self.refined = self.refined.split_off(&first);
        let decided = self.decided.split_off(&first);
        let old = core::mem::replace(&mut self.decided, decided).into_iter();
        let (forgotten, kept): (Vec<_>, Vec<_>) =
            old.partition(|(txn, decision)| can_forget(*txn, *decision, forget_us));
        self.decided.extend(kept);
        let prepared = self.prepared.split_off(&first);
        let prepared = core::mem::replace(&mut self.prepared, prepared);
        forgotten.into_iter().map(|(txn, _)| txn).chain(prepared)
    }
}

/// Whether nobody asks any more how a transaction ended: it began before `forget_us`, and has not committed under a later
/// version, by which it could be asked for.
pub(super) fn can_forget(txn: Version, decision: Decision, forget_us: u64) -> bool {
    let last = match decision {
        Decision::Commit(at) => txn.max(at.version()),
        Decision::Abort => txn,
    };
    last.timestamp_us < forget_us
}
