//! The states of a shard's transactions: which are prepared, and how others ended.

use std::collections::{BTreeMap, BTreeSet};

use serried_model::Version;

use super::message::Decision;

/// The transactions that are prepared or have ended.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    prepared: BTreeSet<Version>,
    /// The outcomes of transactions, until they may be forgotten.
    decided: BTreeMap<Version, Decision>,
    /// Those that committed under another version than their first one, by that version.
    refined: BTreeMap<Version, Decision>,
}

impl Outcomes {
    /// A transaction's outcome, if it is known.
    pub(super) fn decision(&self, txn: Version) -> Option<Decision> {
        self.decided.get(&txn).copied()
    }

    /// The outcome of the transaction that began with this version, or committed under it. These
    /// may be two different transactions, which must not be confused.
    pub(super) fn decision_of_version(&self, version: Version) -> Option<Decision> {
        self.decision(version).or_else(|| self.refined.get(&version).copied())
    }

    /// The transactions that are prepared.
    pub(super) fn prepared(&self) -> &BTreeSet<Version> {
        &self.prepared
    }

    /// How many transactions that began at `us` or later are known to have ended.
    pub(super) fn decided_from(&self, us: u64) -> usize {
        self.decided.range(Version::at(us)..).count()
    }

    /// How many transactions are known to have ended.
    pub(super) fn remembered(&self) -> usize {
        self.decided.len()
    }

    /// Records that a transaction is prepared.
    pub(super) fn prepare(&mut self, txn: Version) {
        self.prepared.insert(txn);
    }

    /// Records a transaction's outcome.
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

    /// Forgets transactions that began before `forget_us`, and returns them.
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
