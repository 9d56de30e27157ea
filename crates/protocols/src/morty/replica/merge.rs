//! The coordinator of a truncation (001 §3.3.4, steps 3, 5 and 7).
//!
//! Every coordinator proposes the same in every view: everything that has committed below the truncation. What can still
//! commit there has votes in every majority, and is decided by recovery before anything is proposed. The replicas that
//! have stopped vote on nothing there any more. So views are not needed for safety; they ensure that a truncation ends if
//! its coordinator fails.

use std::collections::{BTreeMap, BTreeSet};

use serried_model::Version;

use crate::morty::digest::Digest;
use crate::morty::message::{Snapshot, View};

/// A truncation that this replica coordinates.
#[derive(Debug)]
pub(super) struct Merge {
    upto: u64,
    view: View,
    snapshots: BTreeMap<usize, Snapshot>,
    /// The transactions that remain to be decided, once a majority has sent snapshots.
    undecided: Option<BTreeSet<Version>>,
    /// The members all of whose commits this replica has.
    listed: BTreeSet<usize>,
    /// The member that it has asked for its commits after it got the member's snapshot.
    asked: Option<usize>,
    proposed: Option<Digest>,
    accepted: BTreeSet<usize>,
}

impl Merge {
    pub(super) fn new(upto: u64, view: View) -> Merge {
        Merge {
            upto,
            view,
            snapshots: BTreeMap::new(),
            undecided: None,
            listed: BTreeSet::new(),
            asked: None,
            proposed: None,
            accepted: BTreeSet::new(),
        }
    }

    pub(super) fn upto(&self) -> u64 {
        self.upto
    }

    pub(super) fn view(&self) -> View {
        self.view
    }

    /// A replica has sent a snapshot. Those that come after a majority's do not count.
    pub(super) fn add(&mut self, member: usize, snapshot: Snapshot) {
        if self.undecided.is_none() {
            self.snapshots.insert(member, snapshot);
        }
    }

    /// Whether a majority has sent snapshots, and nothing is proposed yet.
    pub(super) fn may_propose(&self, majority: usize) -> bool {
        self.proposed.is_none() && self.snapshots.len() >= majority
    }

    /// What a replica has accepted in the highest view, if any has accepted something. Only that can be proposed then.
    pub(super) fn accepted(&self) -> Option<Digest> {
        let accepted = self.snapshots.values().filter_map(|snapshot| snapshot.accepted);
        accepted.max_by_key(|(view, _)| *view).map(|(_, merged)| merged)
    }

    /// Notes which transactions are settled by now. Returns what remains to be decided, if it is asked for the first time.
    pub(super) fn begin_deciding(
        &mut self,
        is_settled: impl Fn(Version) -> bool,
    ) -> Option<Vec<Version>> {
        let snapshots = self.snapshots.values();
        let all = || snapshots.flat_map(|snapshot| snapshot.undecided.iter().copied()).collect();
        let is_first = self.undecided.is_none();
        let undecided = self.undecided.get_or_insert_with(all);
        undecided.retain(|version| !is_settled(*version));
        is_first.then(|| undecided.iter().copied().collect())
    }

    /// Whether nothing remains to be decided.
    pub(super) fn is_decided(&self) -> bool {
        self.undecided.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// A member other than `own` whose commits differ from these, and of which this replica may lack some.
    pub(super) fn member_to_ask(&self, own: usize, committed: Digest) -> Option<usize> {
        let differs = |(member, snapshot): (&usize, &Snapshot)| {
            let is_known = *member == own || self.listed.contains(member);
            (snapshot.committed != committed && !is_known).then_some(*member)
        };
        self.snapshots.iter().find_map(differs)
    }

    /// This replica asks a member for all its commits.
    pub(super) fn asks(&mut self, member: usize) {
        self.asked = Some(member);
    }

    /// This replica has got all commits of a member. A list that was begun before the member's snapshot may lack something
    /// that is in the snapshot.
    pub(super) fn has_caught_up_with(&mut self, member: usize) {
        if self.asked.take() == Some(member) {
            self.listed.insert(member);
        }
    }

    pub(super) fn propose(&mut self, merged: Digest) {
        self.proposed = Some(merged);
    }

    /// A member has accepted the proposal. Returns the proposal if that makes it durable.
    pub(super) fn accept(&mut self, member: usize, majority: usize) -> Option<Digest> {
        let merged = self.proposed?;
        self.accepted.insert(member);
        (self.accepted.len() == majority).then_some(merged)
    }
}
