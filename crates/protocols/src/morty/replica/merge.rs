//! The coordinator of a truncation (001 §3.3.4, steps 3, 5 and 7).
//!
//! Every coordinator proposes the same in every view: everything that has committed below the truncation. What can still
//! commit there has votes in every majority, and is decided by recovery before anything is proposed. The replicas that
//! have stopped vote on nothing there any more. So views are not needed for safety; they ensure that a truncation ends if
//! its coordinator fails.

use std::collections::{BTreeMap, BTreeSet};

use serried_model::{NodeId, Version};

use super::{Cx, Replica};
use crate::morty::digest::Digest;
use crate::morty::message::{Message, Snapshot, Truncating, View};

/// A truncation that this replica coordinates.
#[derive(Debug)]
pub(super) struct Merge {
    upto: u64,
    view: View,
    snapshots: BTreeMap<usize, Snapshot>,
    /// The transactions that remain to be decided, once a majority has sent snapshots.
    undecided: Option<BTreeSet<Version>>,
    /// The members whose commits this replica has all got.
    listed: BTreeSet<usize>,
    /// The member that it has asked for its commits after it got the member's snapshot.
    asked: Option<usize>,
    proposed: Option<Digest>,
    accepted: BTreeSet<usize>,
}

impl Merge {
    /// Whether the truncation is over once everything below `upto` is settled.
    pub(super) fn is_for(&self, upto: u64) -> bool {
        self.upto <= upto
    }

    fn new(upto: u64, view: View) -> Merge {
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
}

impl Replica {
    /// Truncations take turns, and so do the rounds of one.
    pub(super) fn coordinator_of(&self, upto: u64, round: u32) -> NodeId {
        let turn = (upto / self.setup.truncation_every_us()).wrapping_add(u64::from(round));
        let member = turn % self.setup.group.size() as u64;
        NodeId::replica(self.setup.id.partition(), member as usize)
    }

    pub(super) fn is_coordinator_of(&self, upto: u64, round: u32) -> bool {
        self.coordinator_of(upto, round) == self.setup.id
    }

    /// Asks the replicas to enter a view of a truncation (step 7).
    pub(super) fn enter_view(&mut self, upto: u64, view: View, cx: &mut Cx) {
        self.merge = Some(Merge::new(upto, view));
        let partition = self.setup.id.partition();
        cx.broadcast(
            partition,
            self.setup.group.all(),
            Message::Truncating(Truncating::TruncationPaxosPrepare { upto, view }),
        );
    }

    /// Collects the replicas' snapshots (step 3).
    pub(super) fn on_truncate(
        &mut self,
        from: NodeId,
        upto: u64,
        view: View,
        snapshot: Snapshot,
        cx: &mut Cx,
    ) {
        if self.has_finished(from, upto, cx) {
            return;
        }
        let own_view = view == View::OWN && self.is_coordinator_of(upto, 0);
        let merge = &mut self.merge;
        if own_view && merge.as_ref().is_none_or(|merge| merge.upto < upto) {
            *merge = Some(Merge::new(upto, view));
        }
        let Some(merge) = merge.as_mut().filter(|merge| (merge.upto, merge.view) == (upto, view))
        else {
            return;
        };
        if merge.undecided.is_none() {
            merge.snapshots.insert(from.member(), snapshot);
        }
        self.merge(cx);
    }

    /// Continues with the truncation that this replica coordinates.
    pub(super) fn merge(&mut self, cx: &mut Cx) {
        let majority = self.setup.group.majority();
        let Some(merge) = &mut self.merge else { return };
        let (upto, view) = (merge.upto, merge.view);
        if merge.proposed.is_some() || merge.snapshots.len() < majority {
            return;
        }
        let accepted = merge.snapshots.values().filter_map(|snapshot| snapshot.accepted);
        let accepted = accepted.max_by_key(|(view, _)| *view).map(|(_, merged)| merged);
        if accepted.is_none() && !self.everything_is_decided(upto, cx) {
            return;
        }
        let merged = accepted.unwrap_or_else(|| self.state.committed_below(upto));
        let merge = self.merge.as_mut().expect("it is there");
        merge.proposed = Some(merged);
        let partition = self.setup.id.partition();
        cx.broadcast(
            partition,
            self.setup.group.all(),
            Message::Truncating(Truncating::ProposeMerge { upto, view, merged }),
        );
    }

    /// Starts to recover everything that a majority has below `upto` and that is undecided. Returns whether all of it is
    /// decided and this replica knows of all commits.
    fn everything_is_decided(&mut self, upto: u64, cx: &mut Cx) -> bool {
        let merge = self.merge.as_mut().expect("a truncation that it coordinates");
        let first_time = merge.undecided.is_none();
        let snapshots = merge.snapshots.values();
        let all = || snapshots.flat_map(|snapshot| snapshot.undecided.iter().copied()).collect();
        let mut undecided: BTreeSet<Version> = merge.undecided.take().unwrap_or_else(all);
        undecided.retain(|version| self.settlement(*version).is_none());
        if first_time {
            for version in &undecided {
                self.recover(*version, None, cx);
            }
        }
        let own = self.state.committed_below(upto);
        let merge = self.merge.as_mut().expect("a truncation that it coordinates");
        let complete = undecided.is_empty();
        merge.undecided = Some(undecided);
        let differs = |(member, snapshot): (&usize, &Snapshot)| {
            (snapshot.committed != own && !merge.listed.contains(member)).then_some(*member)
        };
        let Some(member) = merge.snapshots.iter().find_map(differs) else { return complete };
        if member == self.setup.id.member() {
            merge.listed.insert(member); // It has got more since its snapshot.
            return self.everything_is_decided(upto, cx);
        }
        let peer = NodeId::replica(self.setup.id.partition(), member);
        if complete && self.catch_up.begin(peer, &self.setup, &mut self.state, cx) {
            let merge = self.merge.as_mut().expect("a truncation that it coordinates");
            merge.asked = Some(member);
        }
        false
    }

    /// This replica has got everything that `peer` had committed.
    pub(super) fn has_caught_up_with(&mut self, peer: NodeId, cx: &mut Cx) {
        if let Some(merge) = &mut self.merge {
            // A list that was begun before the peer's snapshot may lack something that is in the snapshot.
            if merge.asked == Some(peer.member()) {
                merge.listed.insert(peer.member());
            }
            merge.asked = None;
            self.merge(cx);
        }
        if let Some((upto, merged)) = self.truncation.target {
            self.on_truncation_finished(peer, upto, merged, cx);
        }
    }

    /// Announces the merge once it is durable (step 5). Gives up if a replica is in a later view (step 7).
    pub(super) fn on_propose_merge_reply(
        &mut self,
        from: NodeId,
        upto: u64,
        view: View,
        cx: &mut Cx,
    ) {
        let majority = self.setup.group.majority();
        let Some(merge) = &mut self.merge else { return };
        if merge.upto != upto || view < merge.view {
            return;
        }
        if view > merge.view {
            self.merge = None; // Its own next turn comes.
            self.truncation.follow(upto, view);
            return;
        }
        let Some(merged) = merge.proposed else { return };
        merge.accepted.insert(from.member());
        if merge.accepted.len() == majority {
            let partition = self.setup.id.partition();
            cx.broadcast(
                partition,
                self.setup.group.all(),
                Message::Truncating(Truncating::TruncationFinished { upto, merged }),
            );
        }
    }
}
