//! The coordinator of a truncation (001 §3.3.4, steps 3, 5 and 7).
//!
//! It proposes everything that has committed below the truncation. What can still commit there has votes in every majority,
//! and is decided by recovery before anything is proposed. If a merge was accepted before, that is proposed instead. It is the
//! same, unless replicas have voted below the truncation since. The module [`truncation`](super::truncation) says why that
//! is safe.

use std::collections::{BTreeMap, BTreeSet};

use serried_model::Version;

use crate::morty::digest::Digest;
use crate::morty::message::{Ballot, Merged, Snapshot};

/// A truncation that this replica coordinates.
#[derive(Debug)]
pub(super) struct Merge {
    ballot: Ballot,
    snapshots: BTreeMap<usize, Snapshot>,
    /// The transactions that remain to be decided, once a majority has sent snapshots.
    undecided: Option<BTreeSet<Version>>,
    /// The members all of whose commits this replica has.
    listed: BTreeSet<usize>,
    /// The member that it has asked for its commits after it got the member's snapshot.
    asked: Option<usize>,
    /// What it has proposed last: nothing yet, to clear the ballot, or a merge.
    proposed: Option<Option<Merged>>,
    /// The members that have accepted that.
    accepted: BTreeSet<usize>,
    /// A majority has accepted to clear the ballot.
    is_cleared: bool,
}

impl Merge {
    pub(super) fn new(ballot: Ballot) -> Merge {
        Merge {
            ballot,
            snapshots: BTreeMap::new(),
            undecided: None,
            listed: BTreeSet::new(),
            asked: None,
            proposed: None,
            accepted: BTreeSet::new(),
            is_cleared: false,
        }
    }

    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// A replica has sent a snapshot. Those that come after a majority's do not count.
    pub(super) fn add(&mut self, member: usize, snapshot: Snapshot) {
        if self.undecided.is_none() {
            self.snapshots.insert(member, snapshot);
        }
    }

    /// Whether a majority has sent snapshots, and no merge is proposed yet.
    pub(super) fn may_propose(&self, majority: usize) -> bool {
        !matches!(self.proposed, Some(Some(_))) && self.snapshots.len() >= majority
    }

    /// The merge that was accepted in the highest ballot. Only that can be proposed then. None if that ballot was cleared, or
    /// if the merge is finished at the coordinator, because everything below `watermark` is settled there.
    pub(super) fn accepted(&self, watermark: u64) -> Option<Merged> {
        let accepted = self.snapshots.values().filter_map(|snapshot| snapshot.accepted);
        let highest = accepted.max_by_key(|(ballot, merged)| (*ballot, merged.is_some()));
        highest.and_then(|(_, merged)| merged).filter(|merged| merged.upto > watermark)
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

    /// What remains to be decided, if the ballot is cleared: replicas that have stopped may vote on that.
    pub(super) fn undecided_if_cleared(&self) -> Vec<Version> {
        self.undecided.iter().filter(|_| self.is_cleared).flatten().copied().collect()
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

    /// Whether the ballot may be cleared by a coordinator that has settled everything below `watermark`: nothing has been
    /// proposed yet, and none of the others has settled more.
    pub(super) fn may_clear(&self, watermark: u64) -> bool {
        let mut settled = self.snapshots.values().map(|snapshot| snapshot.finished.upto);
        self.proposed.is_none() && settled.all(|settled| settled <= watermark)
    }

    /// Proposes a merge, or to clear the ballot.
    pub(super) fn propose(&mut self, merged: Option<Merged>) {
        self.proposed = Some(merged);
        self.accepted.clear();
    }

    /// A member has accepted a proposal. Returns whether that makes it durable.
    pub(super) fn accept(
        &mut self,
        member: usize,
        merged: Option<Merged>,
        majority: usize,
    ) -> bool {
        if self.proposed != Some(merged) {
            return false;
        }
        let is_durable = self.accepted.insert(member) && self.accepted.len() == majority;
        self.is_cleared |= is_durable && merged.is_none();
        is_durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::morty::message::View;
    use serried_model::NodeId;

    fn ballot(upto: u64, round: u32) -> Ballot {
        Ballot { upto, view: View { round, recoverer: NodeId(1) } }
    }

    fn merged(upto: u64) -> Option<Merged> {
        Some(Merged { upto, digest: Digest::default() })
    }

    #[test]
    fn an_acceptance_counts_only_for_what_was_proposed_last() {
        let mut merge = Merge::new(ballot(10, 1));
        merge.propose(None);
        assert!(!merge.accept(0, None, 3));
        assert!(!merge.accept(1, merged(10), 3));
        assert!(!merge.accept(0, None, 3), "it is the same member");
        merge.propose(merged(10));
        assert!(!merge.accept(2, None, 3), "that is over");
        assert!(!merge.accept(0, merged(10), 3) && !merge.accept(1, merged(10), 3));
        assert!(merge.accept(2, merged(10), 3));
    }

    #[test]
    fn what_was_accepted_in_the_highest_ballot_is_proposed_unless_that_is_cleared_or_over() {
        let [first, second, later] = [ballot(10, 1), ballot(10, 2), ballot(20, 1)];
        for (accepted, watermark, expected) in [
            (&[][..], 0, None),
            (&[(first, merged(10)), (second, None)], 0, None),
            (&[(second, merged(10)), (first, None)], 0, merged(10)),
            (&[(second, None), (second, merged(10))], 0, merged(10)),
            (&[(later, merged(10)), (second, None)], 0, merged(10)),
            (&[(later, None), (second, merged(10))], 0, None),
            (&[(first, merged(20)), (second, merged(10))], 0, merged(10)),
            (&[(first, merged(20)), (second, merged(10))], 10, None),
            (&[(first, merged(10)), (second, merged(10))], 10, None),
        ] {
            let mut merge = Merge::new(ballot(30, 1));
            for (member, accepted) in accepted.iter().enumerate() {
                merge.add(member, Snapshot { accepted: Some(*accepted), ..Snapshot::default() });
            }
            assert_eq!(merge.accepted(watermark), expected, "{accepted:?} at {watermark}");
        }
    }

    #[test]
    fn the_stopped_vote_only_if_the_ballot_is_cleared() {
        let versions = [5, 9].map(Version::at);
        let mut merge = Merge::new(ballot(10, 1));
        for (member, upto) in [0, 5, 2].into_iter().enumerate() {
            let (undecided, finished) = (versions.to_vec(), merged(upto).unwrap());
            merge.add(member, Snapshot { undecided, finished, ..Snapshot::default() });
        }
        merge.begin_deciding(|_| false);
        assert!(!merge.may_clear(4) && merge.may_clear(5), "one has settled more than 4");
        merge.propose(None);
        assert!(!merge.may_clear(5));
        assert!(!merge.accept(0, None, 2));
        assert_eq!(merge.undecided_if_cleared(), []);
        assert!(merge.accept(1, None, 2));
        assert_eq!(merge.undecided_if_cleared(), versions);
    }
}
