//! Forgets what is old, safely (001 §3.3.4).
//!
//! Truncations are a fixed time apart by the replicas' clocks. One begins when everything below it is
//! [`Settings::truncation_lag_ms`] old. The step numbers are the paper's:
//!
//! 1. All replicas know the truncations, `k * every`, in advance.
//! 2. When its clock says so, a replica stops voting below the truncation. It sends the truncation coordinator a digest of
//!    what has committed below, and a list of what may still commit ([`Truncating::Truncate`]).
//! 3. When a majority has answered, the coordinator recovers everything that is undecided, and fetches the commits that it
//!    lacks. Then it knows everything that can ever have committed below the truncation. It proposes the digest of that.
//! 4. The replicas accept the proposal,
//! 5. which makes it durable. The coordinator announces that.
//! 6. Each replica raises its watermark once it has everything that is in the digest.
//! 7. If the coordinator is replaced, or two coordinators are at work, ballots decide. The next replica takes its turn after
//!    the time between two truncations. Turns become longer by as much each time that all have had one, since messages may
//!    take longer than that. It takes it at once if the coordinator says that it does not take part
//!    ([`Truncating::CannotMerge`]; see `rejoin`).
//!
//! The paper's `merged_erecord` is a digest here, because all replicas nearly always have the same. A replica whose digest
//! differs fetches what it lacks from another (`catch_up`).
//!
//! This module has what a replica promises and accepts, and whose turn it is. `merge` has what the coordinator knows, and
//! `truncate` carries the steps out and raises the watermark. How far truncations have come is in `progress`, and which
//! part of the log is still needed is in `log_marks`. `state` moves what lies below the watermark into the store.
//!
//! # Ballots
//! A [`Ballot`] is a view of a truncation. All ballots of a partition have one order, also those of different
//! truncations. A replica accepts nothing in an earlier ballot than the one that it is in. The snapshots of a majority
//! say what each has accepted last, and the coordinator proposes what was accepted in the highest ballot, even if that
//! merges an earlier truncation. If nothing was, or if that merge is finished at the coordinator, it proposes what has
//! committed. Each ballot has one coordinator. It accepts its own proposal, in its log, before others hear of it, so it
//! does not propose two merges in a ballot. It does not begin a ballot again after a restart either, except the first one
//! of a truncation, which begins without it.
//!
//! # Votes below a truncation
//! Under TAPIR a transaction `t` may be in doubt, so that it can be decided only with the vote of a replica which has
//! stopped above it. Merges that were made from this replica's earlier snapshots lack `t`. Therefore the coordinator of a
//! ballot `b`, other than a first one, *clears* the ballot if it is free to propose what has committed, and has to wait
//! for something undecided. A replica that accepts this agrees that merges of earlier ballots do not count any more,
//! unless they are finished. So the coordinator must have settled as much as any of the replicas whose snapshots it has,
//! and only those accept that have settled as much as the coordinator. When a majority has accepted, replicas that are in
//! `b` vote on what the merge waits for, if the recoverer is the coordinator of `b`
//! ([`LateVote`](crate::morty::LateVote)).
//!
//! *If `t` commits with such a vote, every durable merge above `t` contains it.* Suppose that a majority `M` has accepted
//! a merge above `t` and without it, in a ballot `a`.
//! - `a` is not before `b`. Otherwise, in each ballot between them whose coordinator has a majority's snapshots, one is
//!   of a member of `M`. It says that this merge was accepted, or what was proposed afterwards: the same merge again, one
//!   that contains it, or that a ballot was cleared. By induction over time, only coordinators that have finished the
//!   merge clear a ballot, for they have finished what they pass over, and have settled as much as those that have
//!   accepted an earlier clearing. So the coordinator of `b` has finished the merge, and does not wait for `t`, which is
//!   below it.
//! - `a` is not `b`, in which the merge waits until `t` is decided. A replica that has accepted the merge does not vote
//!   any more.
//! - `a` is not after `b`. Among the snapshots of a majority, one is of a replica that has accepted to clear `b`, or
//!   something later. So no merge from before `b` is proposed again. Another one rests on the snapshots of a majority,
//!   and one of these replicas has voted for `t`. If it voted late, it was in `b` then, so it voted before it entered the
//!   later ballot, and its snapshot lists `t`. Then the merge waits for `t`.
//!
//! # Where this differs from the paper
//! The paper's replica answers `Truncated` to everything below a truncation for which it has stopped. Here it votes on
//! nothing new there either, but it still promises and accepts, because the recoveries of step 3 need that. Whatever
//! commits below after a replica has sent its snapshot had a majority's votes before those replicas stopped, or in a cleared
//! ballot. So it is listed as undecided in a snapshot of every majority.

use serried_model::{NodeId, Version};

use super::Cx;
use super::log_marks::LogMarks;
use super::merge::Merge;
use super::setup::Setup;
use crate::morty::digest::Digest;
use crate::morty::message::{Ballot, Merged, Message, Snapshot, Truncating, View};
use crate::morty::record::Record;

/// A replica's part in truncations. Truncations are named by their microsecond of version time.
#[derive(Debug, Default)]
pub(super) struct Truncation {
    /// The ballot that it is in. It votes on nothing below its truncation, and accepts nothing in an earlier ballot.
    ballot: Ballot,
    /// What it has accepted last, and in which ballot.
    accepted: Option<(Ballot, Option<Merged>)>,
    /// A finished truncation and its digest, if this replica does not have everything below it yet.
    target: Option<(u64, Digest)>,
    /// The replica that has announced the target while this one was catching up with another, which may lack some of it.
    announced_by: Option<NodeId>,
    /// The round of the truncation that it has stopped for. It goes on by one when the replica has looked often enough, and
    /// follows the others' (see [`Truncation::follow`]).
    round: u32,
    /// How many times the replica looks before it enters the next round, without the last one.
    looks_before_next: u64,
    /// The truncation that it coordinates.
    merge: Option<Merge>,
}

/// Turns become longer up to this, in microseconds.
const LONGEST_TURN_US: u64 = 30_000_000;

/// The replica that coordinates a round of a truncation. Truncations take turns, and so do the rounds of one.
pub(super) fn coordinator_of(upto: u64, round: u32, setup: &Setup) -> NodeId {
    let turn = (upto / setup.truncation_every_us()).wrapping_add(u64::from(round));
    let member = turn % setup.group.size() as u64;
    NodeId::replica(setup.id.partition(), member as usize)
}

impl Truncation {
    /// It votes on nothing below this.
    pub(super) fn stopped(&self) -> Version {
        Version::at(self.ballot.upto)
    }

    /// The log says that it votes on nothing below `upto`.
    pub(super) fn replay_stopped(&mut self, upto: u64) {
        self.ballot = self.ballot.max(Ballot::first(upto));
    }

    /// Begins a truncation: votes on nothing below `upto` any more.
    pub(super) fn begin(&mut self, upto: u64, log: &mut LogMarks, cx: &mut Cx) {
        if upto > self.ballot.upto {
            self.ballot = Ballot::first(upto);
            log.append(Record::Stopped { upto }, cx);
        }
        self.begin_round(0, 0);
    }

    fn begin_round(&mut self, round: u32, looks_before_next: u64) {
        self.round = round;
        self.looks_before_next = looks_before_next;
    }

    /// The truncation that it has stopped for, if that is not finished, because the watermark is below it.
    pub(super) fn unfinished(&self, watermark: u64) -> Option<u64> {
        (watermark < self.ballot.upto).then_some(self.ballot.upto)
    }

    /// Whether it waits for the first round of a truncation.
    pub(super) fn waits_for(&self, upto: u64, watermark: u64) -> bool {
        self.unfinished(watermark).is_some()
            && self.ballot == Ballot::first(upto)
            && self.round == 0
    }

    /// The truncations up to `upto` are over.
    pub(super) fn finish(&mut self, upto: u64) {
        self.ballot = self.ballot.max(Ballot::first(upto));
        self.begin_round(0, 0);
        self.target.take_if(|(target, _)| *target <= upto);
        self.merge.take_if(|merge| merge.ballot().upto <= upto);
    }

    /// Enters a ballot that is later than its own.
    fn enter(&mut self, ballot: Ballot, log: &mut LogMarks, cx: &mut Cx) {
        if ballot.upto > self.ballot.upto {
            self.begin_round(0, 0);
        }
        self.ballot = ballot;
        log.append(Record::Merging { ballot, accepted: self.accepted }, cx);
    }

    /// Enters the next round of the truncation that it has stopped for, if this one has lasted long enough. If it is this
    /// replica's turn, asks the others to enter a ballot (step 7). Returns whether it is. The ballot is in the log before any
    /// message names it, so it is not used again after a restart.
    pub(super) fn enter_next_round(
        &mut self,
        setup: &Setup,
        log: &mut LogMarks,
        cx: &mut Cx,
    ) -> bool {
        self.follow(self.ballot);
        if self.looks_before_next > 0 {
            self.looks_before_next -= 1;
            return false;
        }
        let (upto, round) = (self.ballot.upto, self.round.saturating_add(1));
        let turns = u64::from(round) / setup.group.size() as u64;
        self.begin_round(round, turns.min(LONGEST_TURN_US / setup.truncation_every_us()));
        let ballot = Ballot { upto, view: View { round, recoverer: setup.id } };
        let is_its_turn = coordinator_of(upto, round, setup) == setup.id && ballot > self.ballot;
        if is_its_turn {
            self.enter(ballot, log, cx);
            self.merge = Some(Merge::new(ballot));
            setup.broadcast(Truncating::TruncationPaxosPrepare { ballot }, cx);
        }
        is_its_turn
    }

    /// A replica is in a view of the truncation that this one has stopped for. A replica that stopped later is in earlier
    /// rounds. If it stayed there, no replica would follow it, and only the others would have turns. It enters the other's round
    /// when it looks, and the next one after the other has had this one for long enough.
    fn follow(&mut self, ballot: Ballot) {
        let before = ballot.view.round.saturating_sub(1);
        if ballot.upto == self.ballot.upto && before > self.round {
            self.begin_round(before, 0);
        }
    }

    /// What it has accepted last, and in which ballot.
    pub(super) fn accepted(&self) -> Option<(Ballot, Option<Merged>)> {
        self.accepted
    }

    /// Whether it is in a ballot, and has accepted no merge there.
    pub(super) fn is_undecided_in(&self, ballot: Ballot) -> bool {
        self.ballot == ballot && self.accepted_in(ballot).is_none()
    }

    /// The merge that it has accepted in a ballot.
    fn accepted_in(&self, ballot: Ballot) -> Option<Merged> {
        self.accepted.filter(|(accepted_in, _)| *accepted_in == ballot).and_then(|(_, it)| it)
    }

    /// The log says which ballot it has entered, and what it has accepted.
    pub(super) fn replay_merging(
        &mut self,
        ballot: Ballot,
        accepted: Option<(Ballot, Option<Merged>)>,
    ) {
        self.ballot = self.ballot.max(ballot);
        self.accepted = accepted;
    }

    /// A truncation coordinator asks the replica to enter a ballot. Returns whether it does; then it sends its snapshot.
    pub(super) fn on_paxos_prepare(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        log: &mut LogMarks,
        cx: &mut Cx,
    ) -> bool {
        if ballot < self.ballot {
            self.say_ballot_is_over(from, cx);
            return false;
        }
        if ballot > self.ballot {
            self.enter(ballot, log, cx);
        }
        true
    }

    /// Accepts what is proposed in a ballot. Returns false if the replica is in a later ballot, or has accepted another merge
    /// in this one.
    pub(super) fn accept(
        &mut self,
        ballot: Ballot,
        merged: Option<Merged>,
        log: &mut LogMarks,
        cx: &mut Cx,
    ) -> bool {
        if ballot < self.ballot {
            return false;
        }
        match (self.accepted_in(ballot), merged) {
            (Some(accepted), Some(merged)) if accepted != merged => return false,
            (None, _) if self.accepted != Some((ballot, merged)) => {
                self.accepted = Some((ballot, merged));
                self.enter(ballot, log, cx);
            }
            (Some(_), _) | (None, _) => {} // Repeated, or overtaken by the merge.
        }
        true
    }

    /// A coordinator proposes a merge (step 4), or to clear its ballot.
    pub(super) fn on_propose_merge(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        merged: Option<Merged>,
        log: &mut LogMarks,
        cx: &mut Cx,
    ) {
        if ballot < self.ballot {
            self.say_ballot_is_over(from, cx);
        } else if self.accept(ballot, merged, log, cx) {
            let reply = Truncating::ProposeMergeReply { ballot, merged };
            cx.send(from, Message::Truncating(reply));
        }
    }

    fn say_ballot_is_over(&self, from: NodeId, cx: &mut Cx) {
        let over = Truncating::BallotIsOver { ballot: self.ballot };
        cx.send(from, Message::Truncating(over));
    }

    /// The truncation that this replica coordinates.
    pub(super) fn merge(&mut self) -> Option<&mut Merge> {
        self.merge.as_mut()
    }

    /// Coordinates no truncation any more. The next turn comes.
    pub(super) fn give_up_merge(&mut self) {
        self.merge = None;
    }

    /// Collects the replicas' snapshots (step 3). Returns whether this one is for the merge that the replica coordinates.
    pub(super) fn add_snapshot(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        snapshot: Snapshot,
        setup: &Setup,
    ) -> bool {
        let Ballot { upto, view } = ballot;
        let is_own = view == View::OWN && coordinator_of(upto, 0, setup) == setup.id;
        if is_own && self.merge.as_ref().is_none_or(|merge| merge.ballot().upto < upto) {
            self.merge = Some(Merge::new(ballot));
        }
        match &mut self.merge {
            Some(merge) if merge.ballot() == ballot => {
                merge.add(from.member(), snapshot);
                true
            }
            Some(_) | None => false,
        }
    }

    /// A replica is in a later ballot than one of this replica's. Gives up if it is one of the same truncation (step 7). If it
    /// is one of another truncation, the other's clock may be ahead, and the others may be enough.
    pub(super) fn on_ballot_is_over(&mut self, ballot: Ballot) {
        let Some(merge) = &self.merge else { return };
        if ballot > merge.ballot() && ballot.upto == merge.ballot().upto {
            self.give_up_merge();
            self.follow(ballot);
        }
    }

    /// Announces the merge once it is durable (step 5). Returns whether the ballot is cleared now.
    pub(super) fn on_propose_merge_reply(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        merged: Option<Merged>,
        setup: &Setup,
        cx: &mut Cx,
    ) -> bool {
        let Some(merge) = &mut self.merge else { return false };
        if ballot != merge.ballot() || !merge.accept(from.member(), merged, setup.group.majority())
        {
            return false;
        }
        if let Some(Merged { upto, digest: merged }) = merged {
            setup.broadcast(Truncating::TruncationFinished { upto, merged }, cx);
        }
        merged.is_none()
    }

    /// A finished truncation and its digest, if this replica does not have everything below it yet.
    pub(super) fn target(&self) -> Option<(u64, Digest)> {
        self.target
    }

    /// A truncation is finished below which this replica does not have everything. Returns whether that is news.
    pub(super) fn set_target(&mut self, upto: u64, merged: Digest) -> bool {
        let is_news = self.target.is_none_or(|(target, _)| target < upto);
        if is_news {
            self.target = Some((upto, merged));
        }
        is_news
    }

    /// Notes which replica has announced the target, if it could not be asked at once for what is missing.
    pub(super) fn set_announced_by(&mut self, announced_by: Option<NodeId>) {
        self.announced_by = announced_by;
    }

    /// The replica that has announced the target, if it was not asked yet for what is missing.
    pub(super) fn take_announced_by(&mut self) -> Option<NodeId> {
        self.target.and_then(|_| self.announced_by.take())
    }
}
