//! How votes become a decision (000 Table 1).
//!
//! A provisional vote is one to commit, on the condition that what was read commits as it was read.
//! Whether it does is decided only once, so when a single replica votes Commit without condition, all provisional
//! votes count.

use serried_actor::NodeSet;
use serried_model::NodeId;

use super::message::Vote;

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
    /// Commit, durably: all replicas voted for it.
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

    /// How many have voted, provisionally or finally.
    pub(super) fn count(&self) -> usize {
        self.settled().len() + self.provisional.len()
    }

    /// The replicas that have voted finally.
    pub(super) fn settled(&self) -> NodeSet {
        self.commit.union(self.tentative).union(self.last)
    }

    /// What the votes of `2f + 1` replicas come to so far, with `majority` being `f + 1`.
    pub(super) fn tally(&self, replicas: usize, majority: usize) -> Tally {
        let missing = replicas - self.settled().len() - self.provisional.len();
        let possible = replicas - self.tentative.len() - self.last.len();
        let commits = match self.commit.is_empty() {
            true => 0, // Nobody knows yet that what was read is committed.
            false => self.commit.len() + self.provisional.len(),
        };
        match commits {
            _ if commits == replicas => Tally::CommitFast,
            _ if !self.last.is_empty() => Tally::AbandonFast,
            _ if commits >= majority && self.tentative.is_empty() && missing > 0 => {
                Tally::CommitUnlessMore
            }
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
    use Vote::{AbandonFinal as F, AbandonTentative as T, Commit as C, Provisional as P};

    fn tally(votes: &[Vote], replicas: usize) -> Tally {
        let mut counted = Votes::default();
        for (replica, vote) in votes.iter().enumerate() {
            counted.record(NodeId(replica as u64), *vote);
        }
        counted.tally(replicas, replicas / 2 + 1)
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
        assert_eq!(votes.tally(3, 2), Tally::CommitFast);
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
    fn a_replica_votes_once() {
        let mut votes = Votes::default();
        for _ in 0..3 {
            votes.record(NodeId(0), C);
        }
        votes.record(NodeId(0), F);
        assert_eq!(votes.tally(3, 2), Tally::Undecided);
    }
}
