//! One partition's part in a recovery: an instance of consensus, as its proposer sees it in one view.
//!
//! It has three steps. The replicas are asked until their answers allow a choice ([`Instance::choose`]). The choice is
//! proposed. Once a majority has accepted the proposal, it is decided. A proposal never changes within a view, and an
//! acceptance counts only if it names the proposal.

use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::NodeSet;
use serried_model::NodeId;

use crate::morty::message::{Contents, Known, LateVote, Proposal, Settlement, View, Vote};
use crate::morty::votes::Quorums;

#[derive(Debug, Default)]
pub(super) struct Instance {
    /// The replicas' answers, by member.
    known: BTreeMap<usize, Known>,
    proposed: Option<Proposed>,
    /// The replicas that have accepted it.
    accepted: NodeSet,
    /// The replicas were asked to vote once more.
    doubted: bool,
}

/// A proposal to the replicas of a partition.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Proposed {
    /// This execution commits here, as far as this partition is concerned.
    Commit(u32, Arc<Contents>),
    /// This execution does not, and none before it.
    Abandon(u32),
}

/// What the answers of a partition allow.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Choice {
    /// Not enough is known.
    Open,
    /// The choice depends on transactions that were read from and are undecided.
    Unresolved,
    /// To commit this execution.
    Commit(u32, Arc<Contents>),
    /// So few have voted against this execution that a fast quorum may have voted for it, and too few are known to have
    /// voted for it to commit it. The others are asked to vote.
    Doubtful(u32, Arc<Contents>),
    /// To commit none, or not this one.
    Abandon,
}

/// How answers are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) quorums: Quorums,
    /// A mutation: accepted decisions are ignored.
    pub(super) ignores_accepted: bool,
    /// A mutation: what is [`Choice::Doubtful`] commits.
    pub(super) trusts_few: bool,
}

impl Proposed {
    pub(super) fn eid(&self) -> u32 {
        match self {
            Proposed::Commit(eid, _) | Proposed::Abandon(eid) => *eid,
        }
    }

    pub(super) fn decision(&self) -> Proposal {
        match self {
            Proposed::Commit(..) => Proposal::Commit,
            Proposed::Abandon(_) => Proposal::Abandon,
        }
    }
}

impl Instance {
    /// A replica has answered. It may have learned more since it answered first.
    pub(super) fn learn(&mut self, member: usize, known: Known) {
        self.known.insert(member, known);
    }

    /// A replica has accepted something. Returns whether that is new and is what was proposed.
    pub(super) fn accept(&mut self, replica: NodeId, eid: u32, decision: Proposal) -> bool {
        let proposed = self.proposed.as_ref().map(|it| (it.eid(), it.decision()));
        proposed == Some((eid, decision)) && self.accepted.insert(replica)
    }

    pub(super) fn propose(&mut self, proposed: Proposed) {
        assert!(self.proposed.is_none(), "{proposed:?} after {:?} in one view", self.proposed);
        self.proposed = Some(proposed);
    }

    pub(super) fn proposed(&self) -> Option<&Proposed> {
        self.proposed.as_ref()
    }

    /// The replicas that have accepted the proposal.
    pub(super) fn accepted(&self) -> NodeSet {
        self.accepted
    }

    /// The proposal, if a majority has accepted it.
    pub(super) fn decided(&self, majority: usize) -> Option<&Proposed> {
        self.proposed.as_ref().filter(|_| self.accepted.len() >= majority)
    }

    /// The answers of replicas that remember the transaction.
    pub(super) fn answers(&self) -> impl Iterator<Item = &Known> {
        self.known.values().filter(|known| known.settlement != Some(Settlement::Forgotten))
    }

    /// A member that has forgotten the transaction.
    pub(super) fn forgotten_by(&self) -> Option<usize> {
        let forgotten = |known: &Known| known.settlement == Some(Settlement::Forgotten);
        self.known.iter().find(|(_, known)| forgotten(known)).map(|(member, _)| *member)
    }

    /// Whether a replica says that the transaction has aborted.
    pub(super) fn is_aborted(&self) -> bool {
        self.answers().any(|known| known.settlement == Some(Settlement::Aborted))
    }

    /// A member that says that the transaction has committed, and the execution, if there is one.
    pub(super) fn committed(&self) -> Option<(usize, u32)> {
        self.known.iter().find_map(|(member, known)| match known.settlement {
            Some(Settlement::Committed { eid }) => Some((*member, eid)),
            _ => None,
        })
    }

    /// The home partitions that the known executions name.
    pub(super) fn homes(&self) -> impl Iterator<Item = u16> {
        let executions = self.answers().filter_map(|known| known.execution.as_ref());
        executions.map(|(.., contents)| contents.participants[0])
    }

    /// What an execution reads and writes in this partition, if an answer says so.
    pub(super) fn contents(&self, eid: u32) -> Option<Arc<Contents>> {
        self.answers().find_map(|known| match &known.execution {
            Some((other, _, contents)) if *other == eid => Some(contents.clone()),
            _ => None,
        })
    }

    /// What the answers allow (000 §4.3) for the execution that home has `chosen`, or, at home itself, for the latest one.
    pub(super) fn choose(&self, chosen: Option<u32>, rules: Rules) -> Choice {
        let majority = rules.quorums.majority;
        if self.answers().count() < majority {
            return Choice::Open;
        }
        // (i) The decision that was accepted in the highest view. In the coordinator's own view, only a decision to
        // commit is final: after one to abandon, the coordinator may have continued with the next execution.
        let accepted = self.answers().filter_map(|known| known.accepted).max();
        match accepted.filter(|_| !rules.ignores_accepted) {
            Some(accepted) if accepted.decision == Proposal::Commit => {
                return self.to_commit(accepted.eid);
            }
            Some(accepted) if accepted.view > View::OWN => return Choice::Abandon,
            _ => {}
        }
        // (ii) The result of the votes by Table 1.
        let executions = || self.answers().filter_map(|known| known.execution.as_ref());
        let Some(eid) = chosen.or(executions().map(|(eid, ..)| *eid).max()) else {
            return Choice::Abandon;
        };
        if self.answers().any(|known| known.abandoned_before > eid) {
            return Choice::Abandon;
        }
        let votes = |vote| {
            let same = |(other, voted, _): &&(u32, Option<Vote>, Arc<Contents>)| {
                *other == eid && *voted == Some(vote)
            };
            executions().filter(same).count()
        };
        let (commit, provisional) = (votes(Vote::Commit), votes(Vote::Provisional));
        match commit + provisional >= majority {
            // The coordinator may have aborted the execution because of this vote alone.
            _ if votes(Vote::AbandonFinal) > 0 => Choice::Abandon,
            false => self.doubt(eid, commit + provisional, rules),
            true if commit == 0 => Choice::Unresolved,
            true => self.to_commit(eid),
        }
    }

    /// Too few are known to have voted for an execution. If more replicas are against it than a fast quorum leaves over, it
    /// has not committed by its votes, and never will: all that have answered are in this view. In Morty, where all
    /// have to vote for it, one against it is enough.
    fn doubt(&self, eid: u32, votes: usize, rules: Rules) -> Choice {
        let against = self.answers().count() - votes;
        match self.contents(eid) {
            Some(contents) if rules.quorums.allow_against(against) => match rules.trusts_few {
                true => Choice::Commit(eid, contents),
                false => Choice::Doubtful(eid, contents),
            },
            _ => Choice::Abandon,
        }
    }

    /// Whether this is the first time that a choice is in doubt.
    pub(super) fn doubts_for_the_first_time(&mut self) -> bool {
        !core::mem::replace(&mut self.doubted, true)
    }

    /// What replicas have to vote on so that a choice can be made, if there is something.
    pub(super) fn doubtful(&self, chosen: Option<u32>, rules: Rules) -> Option<LateVote> {
        let Choice::Doubtful(eid, contents) = self.choose(chosen, rules) else { return None };
        let same = |known: &&Known| known.execution.as_ref().is_some_and(|it| it.0 == eid);
        let missed_nothing = self.answers().filter(same).map(|known| known.missed_nothing_below);
        let missed_nothing_below = missed_nothing.max().unwrap_or_default();
        let late = LateVote { eid, contents, missed_nothing_below, cleared: None };
        self.proposed.is_none().then_some(late)
    }

    /// To commit an execution, its contents must be known. A majority has voted on it, so a replica of any majority has
    /// them.
    fn to_commit(&self, eid: u32) -> Choice {
        self.contents(eid).map_or(Choice::Open, |contents| Choice::Commit(eid, contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::morty::message::Accepted;
    use Vote::{AbandonFinal as F, AbandonTentative as T, Commit as C, Provisional as P};

    /// What the answers of some of five replicas come to, three of which are a majority.
    fn choice(chosen: Option<u32>, answers: &[Known]) -> String {
        choice_if(chosen, answers, 5)
    }

    /// The same if so many votes commit without Finalize.
    fn choice_if(chosen: Option<u32>, answers: &[Known], fast: usize) -> String {
        let quorums = Quorums { replicas: 5, majority: 3, fast };
        let rules = Rules { quorums, ignores_accepted: false, trusts_few: false };
        let mut instance = Instance::default();
        for (member, known) in answers.iter().enumerate() {
            instance.learn(member, known.clone());
        }
        match instance.choose(chosen, rules) {
            Choice::Commit(eid, _) => format!("Commit {eid}"),
            Choice::Doubtful(eid, _) => format!("Doubtful {eid}"),
            other => format!("{other:?}"),
        }
    }

    fn voted(eid: u32, vote: Vote) -> Known {
        let contents =
            Arc::new(Contents { participants: [0].into_iter().collect(), ..Contents::default() });
        let execution = Some((eid, Some(vote), contents));
        Known { execution, abandoned_before: eid, ..Known::default() }
    }

    fn accepted(round: u32, eid: u32, decision: Proposal) -> Known {
        let view = View { round, recoverer: NodeId(0) };
        let accepted = Some(Accepted { view, eid, decision });
        let abandoned_before = match decision {
            Proposal::Abandon if round == 0 => eid + 1,
            _ => eid,
        };
        Known { accepted, abandoned_before, ..voted(eid, C) }
    }

    #[test]
    fn if_nothing_was_accepted_votes_decide_by_table_1() {
        for (votes, expected) in [
            (&[C, C][..], "Open"),
            (&[C, C, C], "Commit 0"),
            (&[C, P, P], "Commit 0"),
            (&[P, P, P], "Unresolved"),
            (&[C, C, T], "Abandon"),
            (&[P, P, T], "Abandon"),
            (&[C, C, C, T], "Commit 0"),
            (&[C, C, C, F], "Abandon"),
            (&[P, P, P, F], "Abandon"),
        ] {
            let answers: Vec<Known> = votes.iter().map(|vote| voted(0, *vote)).collect();
            assert_eq!(choice(None, &answers), expected, "{votes:?}");
            assert_eq!(choice(Some(0), &answers), expected, "{votes:?}");
        }
        assert_eq!(
            choice(None, &[(); 3].map(|()| Known::default())),
            "Abandon",
            "nobody knows of it"
        );
    }

    #[test]
    fn what_a_fast_quorum_of_four_may_have_committed_is_not_abandoned() {
        let none = Known::default();
        for (answers, expected) in [
            (&[voted(0, C), voted(0, C)][..], "Open"),
            (&[voted(0, C), voted(0, C), voted(0, C)], "Commit 0"),
            (&[voted(0, C), voted(0, C), voted(0, T)], "Doubtful 0"),
            (&[voted(0, C), voted(0, C), none.clone()], "Doubtful 0"),
            (&[voted(0, C), voted(0, T), none.clone()], "Abandon"),
            (&[voted(0, C), voted(0, C), voted(0, T), none.clone()], "Abandon"),
            (&[voted(0, C), voted(0, C), voted(0, T), voted(0, C)], "Commit 0"),
            (&[voted(0, C), voted(0, C), voted(0, F)], "Abandon"),
        ] {
            assert_eq!(choice_if(None, answers, 4), expected, "{answers:?}");
            assert_eq!(choice_if(Some(0), answers, 4), expected, "{answers:?}");
        }
    }

    #[test]
    fn an_execution_that_one_has_abandoned_is_not_chosen() {
        let abandoned = accepted(0, 0, Proposal::Abandon);
        assert_eq!(
            choice(None, &[voted(0, C), voted(0, C), voted(0, C), abandoned.clone()]),
            "Abandon"
        );
        // A replica that has prepared the next one does not count as a vote on the one before.
        assert_eq!(choice(None, &[voted(0, C), voted(0, C), voted(1, C)]), "Abandon");
        assert_eq!(
            choice(Some(0), &[voted(0, C), voted(0, C), voted(0, C), voted(1, C)]),
            "Abandon"
        );
        assert_eq!(choice(None, &[abandoned, voted(1, C), voted(1, C), voted(1, C)]), "Commit 1");
    }

    #[test]
    fn what_was_accepted_in_the_highest_view_stands() {
        let none = Known::default();
        let [commit, abandon] = [Proposal::Commit, Proposal::Abandon];
        assert_eq!(choice(None, &[voted(0, T), voted(0, T), accepted(0, 0, commit)]), "Commit 0");
        assert_eq!(
            choice(None, &[accepted(1, 0, commit), accepted(2, 0, abandon), voted(0, C)]),
            "Abandon"
        );
        assert_eq!(
            choice(None, &[accepted(2, 0, commit), accepted(1, 0, abandon), voted(0, C)]),
            "Commit 0"
        );
        // What is to be committed is known before that is proposed.
        let unknown = Known { execution: None, ..accepted(1, 0, commit) };
        assert_eq!(choice(None, &[unknown, none.clone(), none]), "Open");
    }

    #[test]
    fn a_replica_that_has_forgotten_the_transaction_does_not_count() {
        let forgotten = Known { settlement: Some(Settlement::Forgotten), ..voted(0, C) };
        assert_eq!(choice(None, &[voted(0, C), voted(0, C), forgotten]), "Open");
    }
}
