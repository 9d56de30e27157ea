//! How votes become a decision (000 Table 1).
//!
//! A provisional vote is one to commit, on the condition that what was read commits as it was read.
//! Whether it does is decided only once, so when a single replica votes Commit without condition, all provisional
//! votes count.

use serried_actor::{Group, NodeSet};
use serried_model::NodeId;

use super::message::Vote;
use super::{FastQuorum, Mutation, Options};

/// How many of the `2f + 1` replicas of a partition have to vote alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quorums {
    pub(super) replicas: usize,
    /// `f + 1`: enough to propose to commit.
    pub(super) majority: usize,
    /// Enough to commit without Finalize.
    pub(super) fast: usize,
}

impl Quorums {
    pub(super) fn of(group: &Group, options: &Options) -> Quorums {
        let (replicas, majority) = (group.size(), group.majority());
        let fast = match options.fast_quorum {
            FastQuorum::All => replicas,
            FastQuorum::ThreeQuarters => (3 * group.faults()).div_ceil(2) + 1,
        };
        let missing = usize::from(options.mutation.is(Mutation::FastQuorumOneShort));
        Quorums { replicas, majority, fast: fast - missing }
    }

    /// Whether so many replicas may be against an execution which others have committed without Finalize.
    pub(super) fn allow_against(self, against: usize) -> bool {
        against + self.fast <= self.replicas
    }
}

/// The votes on one execution, one per replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Votes {
    commit: NodeSet,
    provisional: NodeSet,
    tentative: NodeSet,
    last: NodeSet,
}

/// What the votes so far allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tally {
    /// Nothing yet.
    Undecided,
    /// Commit, durably: a fast quorum of replicas voted for it.
    CommitFast,
    /// Commit, once it is made durable by Finalize. Votes are missing that could make it so at once.
    CommitUnlessMore,
    /// Commit, once it is made durable by Finalize.
    CommitSlow,
    /// Abandon, as too many vote against it, unless missing votes change that.
    AbandonUnlessMore,
    /// Abandon, durably: some replica saw a conflict with something committed, so no majority can
    /// ever vote to commit.
    AbandonFast,
    /// Abandon, once it is made durable by Finalize.
    AbandonSlow,
}

impl Votes {
    /// Counts a vote. A replica votes once, or provisionally and then finally; repeated and late
    /// messages change nothing.
    pub(super) fn record(&mut self, replica: NodeId, vote: Vote) {
        if self.settled().contains(replica) {
            return;
        }
        self.provisional = self.provisional.without([replica].into_iter().collect());
        match vote {
            Vote::Commit => self.commit.insert(replica),
            Vote::Provisional => self.provisional.insert(replica),
            Vote::AbandonTentative => self.tentative.insert(replica),
            Vote::AbandonFinal => self.last.insert(replica),
        };
    }

    /// Whether `replica` votes to commit what others know can't commit. If a read found nothing (`is_absent`), no replica
    /// is certain of that, so a majority's tentative votes are enough. None until the replica has voted.
    pub(super) fn is_behind(
        &self,
        replica: NodeId,
        is_absent: bool,
        majority: usize,
    ) -> Option<bool> {
        let against = !self.last.is_empty() || is_absent && self.tentative.len() >= majority;
        let voted = self.settled().contains(replica);
        voted.then(|| self.commit.contains(replica) && against)
    }

    /// Whether `replica` does not know of a conflict with a committed transaction that others know of. None until it has
    /// voted.
    pub(super) fn lacks_a_decision(&self, replica: NodeId) -> Option<bool> {
        let voted = self.settled().contains(replica);
        voted.then(|| !self.last.is_empty() && !self.last.contains(replica))
    }

    /// How many have voted, provisionally or finally.
    pub(super) fn count(&self) -> usize {
        self.settled().len() + self.provisional.len()
    }

    /// The replicas that have voted finally.
    pub(super) fn settled(&self) -> NodeSet {
        self.commit.union(self.tentative).union(self.last)
    }

    /// What the votes of a partition's replicas come to so far.
    pub(super) fn tally(&self, quorums: Quorums) -> Tally {
        let Quorums { replicas, majority, fast } = quorums;
        let missing = replicas - self.settled().len() - self.provisional.len();
        let possible = replicas - self.tentative.len() - self.last.len();
        let commits = match self.commit.is_empty() {
            true => 0, // Nobody knows yet that what was read is committed.
            false => self.commit.len() + self.provisional.len(),
        };
        match commits {
            _ if commits >= fast => Tally::CommitFast,
            _ if !self.last.is_empty() => Tally::AbandonFast,
            _ if commits >= majority && commits + missing >= fast => Tally::CommitUnlessMore,
            _ if commits >= majority => Tally::CommitSlow,
            _ if possible < majority => Tally::AbandonSlow,
            _ if missing > 0 && commits + self.tentative.len() >= majority && commits > 0 => {
                Tally::AbandonUnlessMore
            }
            _ => Tally::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mutated;
    use Vote::{AbandonFinal as F, AbandonTentative as T, Commit as C, Provisional as P};

    const THREE: Quorums = Quorums { replicas: 3, majority: 2, fast: 3 };

    fn tally(votes: &[Vote], replicas: usize) -> Tally {
        let mut counted = Votes::default();
        for (replica, vote) in votes.iter().enumerate() {
            counted.record(NodeId(replica as u64), *vote);
        }
        counted.tally(Quorums { replicas, majority: replicas / 2 + 1, fast: replicas })
    }

    #[test]
    fn a_fast_quorum_is_three_quarters_of_the_replicas() {
        let options = |mutation| Options {
            fast_quorum: FastQuorum::ThreeQuarters,
            mutation,
            ..Options::default()
        };
        let of = |replicas, mutation| {
            let group = Group::new(replicas, core::time::Duration::ZERO);
            Quorums::of(&group, &options(mutation))
        };
        let fast = [1, 3, 5, 7, 9, 11].map(|replicas| of(replicas, Mutated::NONE).fast);
        assert_eq!(fast, [1, 3, 4, 6, 7, 9]);
        for replicas in [3, 5, 7, 9, 11] {
            let Quorums { majority, fast, .. } = of(replicas, Mutated::NONE);
            // Two that conflict can't both have so many votes in one majority.
            let in_a_majority = fast + majority - replicas;
            assert!(2 * in_a_majority > majority, "{replicas}");
        }
        let five = of(5, Mutated::NONE);
        let tally = |votes: &[Vote]| {
            let mut counted = Votes::default();
            for (replica, vote) in votes.iter().enumerate() {
                counted.record(NodeId(replica as u64), *vote);
            }
            counted.tally(five)
        };
        assert_eq!(tally(&[C, C, C, C]), Tally::CommitFast);
        assert_eq!(tally(&[C, C, C]), Tally::CommitUnlessMore);
        assert_eq!(tally(&[C, C, C, T]), Tally::CommitUnlessMore);
        assert_eq!(tally(&[C, C, C, C, T]), Tally::CommitFast);
        assert_eq!(tally(&[C, C, C, T, T]), Tally::CommitSlow);
        assert_eq!(tally(&[C, C, T, T, T]), Tally::AbandonSlow);
        assert_eq!(tally(&[C, C, C, F]), Tally::AbandonFast);
    }

    #[test]
    fn votes_decide_as_in_table_1() {
        assert_eq!(tally(&[], 3), Tally::Undecided);
        assert_eq!(tally(&[C], 3), Tally::Undecided);
        assert_eq!(tally(&[C, C], 3), Tally::CommitUnlessMore);
        assert_eq!(tally(&[C, C, C], 3), Tally::CommitFast);
        assert_eq!(tally(&[T, C, C], 3), Tally::CommitSlow);
        assert_eq!(tally(&[T], 3), Tally::Undecided);
        assert_eq!(tally(&[T, C], 3), Tally::AbandonUnlessMore);
        assert_eq!(tally(&[T, T], 3), Tally::AbandonSlow);
        assert_eq!(tally(&[T, T, C], 3), Tally::AbandonSlow);
        assert_eq!(tally(&[F], 3), Tally::AbandonFast);
        assert_eq!(tally(&[T, C, F], 3), Tally::AbandonFast);
        assert_eq!(tally(&[C, C, C, T], 5), Tally::CommitSlow);
        assert_eq!(tally(&[C, C, C], 5), Tally::CommitUnlessMore);
        assert_eq!(tally(&[C, C, T, T], 5), Tally::AbandonUnlessMore);
        assert_eq!(tally(&[C, T, T], 5), Tally::AbandonUnlessMore);
        assert_eq!(tally(&[C, T], 5), Tally::Undecided);
        assert_eq!(tally(&[C, T, T, T], 5), Tally::AbandonSlow);
        assert_eq!(tally(&[C], 1), Tally::CommitFast);
    }

    #[test]
    fn provisional_votes_count_once_one_replica_votes_commit() {
        assert_eq!(tally(&[P, P, P], 3), Tally::Undecided);
        assert_eq!(tally(&[P, P, C], 3), Tally::CommitFast);
        assert_eq!(tally(&[P, C], 3), Tally::CommitUnlessMore);
        assert_eq!(tally(&[P, T, C], 3), Tally::CommitSlow);
        assert_eq!(tally(&[P, P, T], 3), Tally::Undecided);
        assert_eq!(tally(&[P, T], 3), Tally::Undecided);
        assert_eq!(tally(&[P, T, T], 3), Tally::AbandonSlow);
        assert_eq!(tally(&[P, P, F], 3), Tally::AbandonFast);
    }

    #[test]
    fn a_provisional_vote_never_replaces_a_final_one() {
        let mut votes = Votes::default();
        for (replica, vote) in [(0, P), (1, P), (2, P), (1, C), (1, P)] {
            votes.record(NodeId(replica), vote);
        }
        assert_eq!(votes.tally(THREE), Tally::CommitFast);
        assert_eq!(votes.settled().len(), 1);
    }

    #[test]
    fn tentative_votes_show_who_is_behind_if_nothing_was_found() {
        let is_behind = |votes: [Vote; 3], is_absent| {
            let mut counted = Votes::default();
            votes.iter().zip(0..).for_each(|(vote, i)| counted.record(NodeId(i), *vote));
            counted.is_behind(NodeId(0), is_absent, 2)
        };
        for (votes, is_absent, expected) in [
            ([C, F, C], false, Some(true)),
            ([C, T, T], false, Some(false)),
            ([C, T, T], true, Some(true)),
            ([C, T, C], true, Some(false)),
            ([T, T, T], true, Some(false)),
            ([P, T, T], true, None),
        ] {
            assert_eq!(is_behind(votes, is_absent), expected, "{votes:?} {is_absent}");
        }
    }

    #[test]
    fn who_votes_to_commit_or_tentatively_lacks_a_decision_that_others_know() {
        for (votes, expected) in [
            (&[F, C, C][..], Some(false)),
            (&[C, F, C], Some(true)),
            (&[T, F, C], Some(true)),
            (&[T, T, C], Some(false)),
            (&[F, F, F], Some(false)),
            (&[], None),
            (&[P, F], None),
        ] {
            let mut counted = Votes::default();
            votes.iter().zip(0..).for_each(|(vote, i)| counted.record(NodeId(i), *vote));
            assert_eq!(counted.lacks_a_decision(NodeId(0)), expected, "{votes:?}");
        }
    }

    #[test]
    fn a_replica_votes_once() {
        let mut votes = Votes::default();
        for _ in 0..3 {
            votes.record(NodeId(0), C);
        }
        votes.record(NodeId(0), F);
        assert_eq!(votes.tally(THREE), Tally::Undecided);
    }
}
