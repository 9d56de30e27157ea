//! Resolution of a transaction by its backup coordinator (003 §5.6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::Version;

use super::super::message::Request;
use super::super::stamp::{Stamp, Validity};
use super::super::verdict::{Verdict, verdict};

/// The state of a transaction at its backup coordinator.
#[derive(Debug)]
pub(super) struct Resolution {
    /// The transaction.
    txn: Version,
    /// The shard of the backup coordinator.
    own: u16,
    participants: Arc<[u16]>,
    /// By shard, the interval in which its part holds, if the part is ready.
    ready: BTreeMap<u16, Validity>,
    /// The moment to which all parts are being moved, if any.
    to: Option<Stamp>,
    /// The shards whose parts hold at that moment.
    moved: BTreeSet<u16>,
    /// The moment at which it commits, once that is certain.
    commits_at: Option<Stamp>,
}

/// The next step of a backup coordinator.
pub(super) enum Step {
    /// Wait for other shards.
    Wait,
    /// Commit the transaction.
    Commit(Stamp),
    /// Move all parts to this moment.
    Move(Stamp),
}

impl Resolution {
    pub(super) fn new(txn: Version, own: u16, participants: Arc<[u16]>) -> Resolution {
        let (ready, moved) = (BTreeMap::new(), BTreeSet::new());
        Resolution { txn, own, participants, ready, to: None, moved, commits_at: None }
    }

    /// Whether a shard has a part of the transaction.
    pub(super) fn concerns(&self, shard: u16) -> bool {
        self.participants.contains(&shard)
    }

    /// The other participants.
    pub(super) fn others(&self) -> impl Iterator<Item = u16> {
        self.participants.iter().copied().filter(|shard| *shard != self.own)
    }

    /// The moment at which the transaction commits, once that is certain.
    pub(super) fn commits_at(&self) -> Option<Stamp> {
        self.commits_at
    }

    /// The other participants that have not answered.
    pub(super) fn missing(&self) -> impl Iterator<Item = u16> {
        self.others().filter(|shard| match self.to {
            None => !self.ready.contains_key(shard),
            Some(_) => !self.moved.contains(shard),
        })
    }

    /// The request to participants.
    pub(super) fn request(&self) -> Request {
        let txn = self.txn;
        match self.to {
            None => Request::Inspect { txn },
            Some(to) => Request::Move { txn, to },
        }
    }

    /// Records that a shard's part is ready.
    pub(super) fn on_ready(&mut self, shard: u16, validity: Validity) {
        self.ready.insert(shard, validity);
    }

    /// Records that a shard's part holds at the requested moment.
    pub(super) fn on_moved(&mut self, shard: u16) {
        self.moved.insert(shard);
    }

    /// The next step after this shard's own part is ready.
    pub(super) fn step(&mut self, validity: Validity) -> Step {
        self.on_ready(self.own, validity);
        if self.ready.len() < self.participants.len() {
            return Step::Wait;
        }
        if let Some(to) = self.to {
            let has_moved = self.moved.len() == self.participants.len();
            self.commits_at = has_moved.then_some(to);
            return self.commits_at.map_or(Step::Wait, Step::Commit);
        }
        match verdict(self.txn, self.ready.values().copied()) {
            Verdict::Commit(at) => {
                self.commits_at = Some(at);
                Step::Commit(at)
            }
            Verdict::Move(to) => {
                self.to = Some(to);
                self.on_moved(self.own);
                Step::Move(to)
            }
        }
    }
}
