//! The agreement of one partition's replicas on what comes before a transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::NodeId;

use super::super::message::{Ballot, Dependencies, Edge, PreAccepted};

/// How far the replicas of a partition have agreed, in one attempt.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// What replicas have reported that have taken the transaction on.
    known: BTreeMap<NodeId, Dependencies>,
    /// The replicas that do not know it.
    unknown: BTreeSet<NodeId>,
    /// Those of them that will never take it on.
    closed: BTreeSet<NodeId>,
    /// What replicas have accepted in former attempts.
    accepted: Option<(Ballot, Dependencies)>,
    /// The replicas that have not taken it on, because they would only do so if another one had.
    refused: BTreeSet<NodeId>,
    /// The latest incarnation of each replica that is known.
    incarnations: Vec<u64>,
    /// What is proposed, and the replicas that have accepted it.
    proposal: Option<(Dependencies, BTreeSet<NodeId>)>,
    agreed: Option<Dependencies>,
}

/// How many replicas a partition has, and which of them are not waited for.
pub(super) struct Quorum<'a> {
    pub(super) count: usize,
    pub(super) majority: usize,
    /// The replicas that have not answered lately.
    pub(super) slow: &'a BTreeSet<NodeId>,
    /// Whether a majority is enough.
    pub(super) hurries: bool,
}

/// What follows from an answer.
#[derive(Debug)]
pub(super) enum Next {
    Nothing,
    /// A majority has to accept this.
    Propose,
    Agreed,
}

impl Agreement {
    pub(super) fn agreed(&self) -> Option<&Dependencies> {
        self.agreed.as_ref()
    }

    pub(super) fn proposal(&self) -> Option<&Dependencies> {
        self.proposal.as_ref().map(|(dependencies, _)| dependencies)
    }

    pub(super) fn incarnations(&self) -> &[u64] {
        &self.incarnations
    }

    /// The partition has agreed that the transaction is void, if it has pieces there.
    pub(super) fn make_void(&mut self) {
        self.agreed = Some(Dependencies::default());
    }

    /// What was agreed on stays; everything else is asked for in another attempt.
    pub(super) fn restart(&mut self) {
        if self.agreed.is_none() {
            let incarnations = core::mem::take(&mut self.incarnations);
            *self = Agreement { incarnations, ..Agreement::default() };
        }
    }

    /// Whether a replica's answer to what is asked is missing.
    pub(super) fn lacks(&self, replica: NodeId) -> bool {
        match &self.proposal {
            Some((_, accepted)) => !accepted.contains(&replica),
            None => {
                let answered = self.known.contains_key(&replica)
                    || self.unknown.contains(&replica)
                    || self.refused.contains(&replica);
                !answered
            }
        }
    }

    /// Takes in the incarnations that an answer names. Answers of replicas that have lost their disks since do not count
    /// any more. Returns whether this one counts.
    pub(super) fn hear(&mut self, from: NodeId, named: &[u64]) -> bool {
        let members = named.len().max(self.incarnations.len());
        self.incarnations.resize(members, 0);
        for (member, known) in self.incarnations.iter_mut().enumerate() {
            let incarnation = named.get(member).copied().unwrap_or(0);
            if incarnation > *known {
                *known = incarnation;
                let is_other = |of: &NodeId| of.member() != member;
                self.known.retain(|of, _| is_other(of));
                self.unknown.retain(is_other);
                self.closed.retain(is_other);
                self.refused.retain(is_other);
                if let Some((_, accepted)) = &mut self.proposal {
                    accepted.retain(is_other);
                }
            }
        }
        let own = named.get(from.member()).copied().unwrap_or(0);
        own >= self.incarnations.get(from.member()).copied().unwrap_or(0)
    }

    /// Returns whether no replica that was asked is left which has not refused.
    pub(super) fn refuse(&mut self, from: NodeId, count: usize) -> bool {
        if !self.known.contains_key(&from) && self.proposal.is_none() {
            self.refused.insert(from);
        }
        self.are_all_refusing(count)
    }

    pub(super) fn are_all_refusing(&self, count: usize) -> bool {
        self.refused.len() == count
    }

    pub(super) fn has_refusals(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Replicas that refuse, or do not know the transaction, are asked again.
    pub(super) fn ask_again(&mut self) {
        self.refused.clear();
        self.unknown.clear();
    }

    pub(super) fn on_pre_accepted(
        &mut self,
        from: NodeId,
        reply: PreAccepted,
        quorum: &Quorum<'_>,
    ) -> Next {
        if self.agreed.is_some() || self.proposal.is_some() {
            return Next::Nothing; // late
        }
        self.refused.remove(&from);
        if reply.is_closed {
            self.closed.insert(from);
        }
        if let Some((ballot, dependencies)) = reply.accepted
            && self.accepted.as_ref().is_none_or(|(known, _)| *known < ballot)
        {
            self.accepted = Some((ballot, dependencies));
        }
        match reply.dependencies {
            Some(dependencies) => {
                self.unknown.remove(&from);
                self.known.insert(from, dependencies);
            }
            None => {
                self.unknown.insert(from);
            }
        }
        self.choose(quorum)
    }

    /// What can be agreed on or proposed by now.
    pub(super) fn choose(&mut self, quorum: &Quorum<'_>) -> Next {
        if self.agreed.is_some() || self.proposal.is_some() {
            return Next::Nothing;
        }
        if self.known.len() + self.unknown.len() < quorum.majority {
            return Next::Nothing;
        }
        if self.known.is_empty() {
            // Edges are proposed only after a majority has taken the transaction on. One of these would have answered. So edges
            // that were accepted came in a damaged message.
            return self.propose(Dependencies::default());
        }
        if let Some((_, accepted)) = self.accepted.clone() {
            return self.propose(accepted);
        }
        if quorum.count - self.closed.len() < quorum.majority {
            return self.propose(Dependencies::default());
        }
        if self.known.len() < quorum.majority {
            // Those that have not closed its time are asked to take it on.
            return match quorum.hurries && self.unknown.is_subset(&self.closed) {
                true => self.propose(Dependencies::default()),
                false => Next::Nothing,
            };
        }
        let (union, is_unanimous) = self.union();
        if is_unanimous && self.known.len() == quorum.count {
            self.agreed = Some(union);
            return Next::Agreed;
        }
        let missing = quorum.count - self.known.len();
        let slow = quorum.slow.iter().filter(|slow| !self.known.contains_key(slow)).count();
        if is_unanimous && missing > slow && !quorum.hurries {
            return Next::Nothing; // All may be of one mind.
        }
        self.propose(union)
    }

    /// Everything that replicas have reported, and whether all have reported the same. An edge makes no difference if some
    /// replica knows that it leads to a transaction which is settled.
    fn union(&self) -> (Dependencies, bool) {
        let floor_us = self.known.values().map(|known| known.floor_us).max().unwrap_or(0);
        let of_replica = |known: &Dependencies| -> Vec<Edge> {
            let edges = known.edges.iter().flat_map(|edges| edges.iter());
            edges.filter(|edge| edge.from.timestamp_us >= floor_us).copied().collect()
        };
        let mut all = self.known.values().map(of_replica);
        let first = all.next().unwrap_or_default();
        let mut is_unanimous = true;
        let mut union: BTreeSet<Edge> = first.iter().copied().collect();
        for other in all {
            is_unanimous &= other == first;
            union.extend(other);
        }
        let edges = Some(union.into_iter().collect::<Arc<[Edge]>>());
        (Dependencies { edges, floor_us }, is_unanimous)
    }

    fn propose(&mut self, dependencies: Dependencies) -> Next {
        self.proposal = Some((dependencies, BTreeSet::new()));
        Next::Propose
    }

    pub(super) fn on_accepted(&mut self, from: NodeId, majority: usize) -> Next {
        let Some((dependencies, accepted)) = &mut self.proposal else { return Next::Nothing };
        accepted.insert(from);
        if self.agreed.is_some() || accepted.len() < majority {
            return Next::Nothing;
        }
        self.agreed = Some(dependencies.clone());
        Next::Agreed
    }
}
