//! Carries truncations out. [`truncation`](super::truncation) describes the steps.
//!
//! A truncation concerns all components: it needs everything that is open and settled, has transactions recovered and
//! fetched, and ends what is open below it. So these handlers belong to the replica.

use core::time::Duration;

use serried_model::{NodeId, Version};

use super::recovery::Next;
use super::transactions::{End, Undecided};
use super::truncation::coordinator_of;
use super::{Cx, Replica, Timer};
use crate::morty::Mutation;
use crate::morty::digest::Digest;
use crate::morty::message::{Ballot, Merged, Message, Snapshot, Truncating, View};
use crate::morty::votes::Quorums;

impl Replica {
    pub(super) fn start_truncation(&self, cx: &mut Cx) {
        let every = Duration::from_micros(self.setup.truncation_every_us());
        cx.set_timer(Timer::Truncation, every);
        cx.set_timer(Timer::Settle, Duration::ZERO);
    }

    /// Begins a truncation if it is time (steps 1 and 2), or goes on with one.
    pub(super) fn truncate(&mut self, cx: &mut Cx) {
        let every_us = self.setup.truncation_every_us();
        let ago_us = cx.clock().midpoint_us().saturating_sub(self.setup.truncation_lag_us());
        cx.set_timer(Timer::Truncation, Duration::from_micros(until_next(ago_us, every_us)));
        self.log.mark(cx.log_position());
        if !self.rejoin.takes_part() || self.truncation.target().is_some() {
            // It lacks something that another peer may have.
            self.catch_up.start(&self.setup, &mut self.state, cx);
        }
        if !self.rejoin.takes_part() {
            return;
        }
        let due = ago_us / every_us * every_us;
        let (watermark, _) = self.state.progress.finished();
        if let Some(upto) = self.truncation.unfinished(watermark) {
            if !self.truncation.enter_next_round(&self.setup, &mut self.log, cx) {
                self.send_first_snapshot(upto, cx);
            }
        } else if due > watermark {
            self.truncation.begin(due, &mut self.log, cx);
            self.send_first_snapshot(due, cx);
        }
        self.settle(cx);
    }

    /// The coordinator of a truncation has been replaced and does not take part yet. The next in turn goes on at once.
    pub(super) fn on_cannot_merge(&mut self, from: NodeId, upto: u64, cx: &mut Cx) {
        let (watermark, _) = self.state.progress.finished();
        let is_waiting = self.truncation.waits_for(upto, watermark);
        let is_coordinator = from == coordinator_of(upto, 0, &self.setup);
        if is_waiting && self.rejoin.takes_part() && is_coordinator {
            self.truncation.enter_next_round(&self.setup, &mut self.log, cx);
        }
    }

    fn send_first_snapshot(&self, upto: u64, cx: &mut Cx) {
        self.send_snapshot(Ballot::first(upto), coordinator_of(upto, 0, &self.setup), cx);
    }

    /// Sends what this replica knows below a truncation for which it has stopped.
    fn send_snapshot(&self, ballot: Ballot, to: NodeId, cx: &mut Cx) {
        let upto = ballot.upto;
        let careless = self.setup.options.mutation.is(Mutation::TruncationIgnoresVotes);
        let pending = |undecided: &Undecided| match careless {
            true => undecided.accepted.is_some(),
            false => undecided.may_commit(),
        };
        let (watermark, digest) = self.state.progress.finished();
        let snapshot = Snapshot {
            committed: self.state.committed_below(upto),
            undecided: self.transactions.below(Version::at(upto), pending).into_iter().collect(),
            finished: Merged { upto: watermark, digest },
            accepted: self.truncation.accepted(),
        };
        cx.send(to, Message::Truncating(Truncating::Truncate { ballot, snapshot }));
    }

    /// Whether a truncation is over at this replica. If so, `from` receives its end.
    fn has_finished(&self, from: NodeId, upto: u64, cx: &mut Cx) -> bool {
        let (watermark, merged) = self.state.progress.finished();
        if upto <= watermark {
            let finished = Truncating::TruncationFinished { upto: watermark, merged };
            cx.send(from, Message::Truncating(finished));
        }
        upto <= watermark
    }

    /// Whether it may be time for a truncation. If not, the sender's clock is ahead of all others.
    fn may_be_due(&self, upto: u64, cx: &Cx) -> bool {
        let bound_us = self.setup.settings.clock_bound_ms * 1000;
        upto.saturating_add(self.setup.truncation_lag_us()) <= cx.clock().latest_us + bound_us
    }

    pub(super) fn on_truncation_paxos_prepare(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        cx: &mut Cx,
    ) {
        let upto = ballot.upto;
        if self.has_finished(from, upto, cx) {
            return;
        }
        if !self.may_be_due(upto, cx) {
            return;
        }
        if self.truncation.on_paxos_prepare(from, ballot, &mut self.log, cx) {
            self.send_snapshot(ballot, from, cx);
        }
    }

    pub(super) fn on_propose_merge(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        merged: Merged,
        cx: &mut Cx,
    ) {
        if !self.has_finished(from, merged.upto, cx) {
            self.truncation.on_propose_merge(from, ballot, Some(merged), &mut self.log, cx);
        }
    }

    /// A coordinator clears its ballot. What was accepted before then counts no more. So this replica must know by itself of all
    /// that is finished, lest the others never learn of that.
    pub(super) fn on_clear(&mut self, from: NodeId, ballot: Ballot, watermark: u64, cx: &mut Cx) {
        let (settled, _) = self.state.progress.finished();
        if !self.has_finished(from, ballot.upto, cx) && settled >= watermark {
            self.truncation.on_propose_merge(from, ballot, None, &mut self.log, cx);
        }
    }

    pub(super) fn on_propose_merge_reply(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        merged: Option<Merged>,
        cx: &mut Cx,
    ) {
        if self.truncation.on_propose_merge_reply(from, ballot, merged, &self.setup, cx) {
            self.ask_the_stopped(ballot, cx);
        }
    }

    pub(super) fn on_truncate(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        snapshot: Snapshot,
        cx: &mut Cx,
    ) {
        if self.has_finished(from, ballot.upto, cx) || !self.may_be_due(ballot.upto, cx) {
            return;
        }
        // If this replica lacks a truncation that is finished, it can't clear a ballot.
        let Merged { upto, digest } = snapshot.finished;
        self.on_truncation_finished(from, upto, digest, cx);
        if self.truncation.add_snapshot(from, ballot, snapshot, &self.setup) {
            self.merge(cx);
        }
    }

    /// Continues with the truncation that this replica coordinates (step 3).
    pub(super) fn merge(&mut self, cx: &mut Cx) {
        let majority = self.setup.group.majority();
        let Some(merge) = self.truncation.merge() else { return };
        if !merge.may_propose(majority) {
            return;
        }
        let (watermark, _) = self.state.progress.finished();
        let (ballot, accepted) = (merge.ballot(), merge.accepted(watermark));
        let upto = ballot.upto;
        if accepted.is_none() && !self.everything_is_decided(upto, cx) {
            return self.clear(ballot, cx);
        }
        let merged =
            accepted.unwrap_or_else(|| Merged { upto, digest: self.state.committed_below(upto) });
        if self.propose(ballot, Some(merged), cx) {
            self.setup.broadcast(Truncating::ProposeMerge { ballot, merged }, cx);
        }
    }

    /// Proposes something in a ballot that this replica coordinates. It accepts that itself before others hear of it. So it
    /// proposes nothing else in the same ballot after a restart.
    fn propose(&mut self, ballot: Ballot, merged: Option<Merged>, cx: &mut Cx) -> bool {
        let may_propose = self.truncation.accept(ballot, merged, &mut self.log, cx);
        match self.truncation.merge() {
            Some(merge) if may_propose => merge.propose(merged),
            _ => self.truncation.give_up_merge(),
        }
        may_propose
    }

    /// Clears a ballot that this replica coordinates, so that replicas which have stopped may vote on what is in doubt. Those
    /// that have settled less receive what they lack, and accept in a later ballot. The first ballot can't be cleared, as its
    /// coordinator may use it again after a restart.
    fn clear(&mut self, ballot: Ballot, cx: &mut Cx) {
        let may_doubt = Quorums::of(&self.setup.group, &self.setup.options).allow_against(1);
        let Some(merge) = self.truncation.merge() else { return };
        let (upto, merged) = self.state.progress.finished();
        if !may_doubt || ballot == Ballot::first(ballot.upto) || !merge.may_clear(upto) {
            return;
        }
        if self.setup.options.mutation.is(Mutation::LateVotesWithoutClearing) {
            merge.propose(None);
            merge.accept(0, None, 1);
            return self.ask_the_stopped(ballot, cx);
        }
        if self.propose(ballot, None, cx) {
            self.setup.broadcast(Truncating::TruncationFinished { upto, merged }, cx);
            self.setup.broadcast(Truncating::Clear { ballot, watermark: upto }, cx);
        }
    }

    /// The ballot is cleared. Recovers what is in doubt and what the merge waits for, with the votes of replicas that have
    /// stopped.
    fn ask_the_stopped(&mut self, ballot: Ballot, cx: &mut Cx) {
        let Some(merge) = self.truncation.merge() else { return };
        for version in merge.undecided_if_cleared() {
            let view = self.transactions.get(version).map_or(View::OWN, |undecided| undecided.view);
            match self.recoveries.ask_the_stopped((version, view), ballot, &self.setup, cx) {
                Next::NewView(last) => self.begin_view(version, last, cx),
                Next::Wait | Next::GiveUp(_) => {}
            }
        }
    }

    /// Starts to recover everything that a majority has below `upto` and that is undecided. Returns whether all of it is
    /// decided and this replica knows of all commits.
    fn everything_is_decided(&mut self, upto: u64, cx: &mut Cx) -> bool {
        let Some(merge) = self.truncation.merge() else { return false };
        let (transactions, state) = (&self.transactions, &self.state);
        let is_settled = |version| transactions.settlement(version, state).is_some();
        for version in merge.begin_deciding(is_settled).unwrap_or_default() {
            self.recover(version, None, cx);
        }
        let (own, committed) = (self.setup.id, self.state.committed_below(upto));
        let Some(merge) = self.truncation.merge() else { return false };
        let is_decided = merge.is_decided();
        let Some(member) = merge.member_to_ask(own.member(), committed) else {
            return is_decided;
        };
        let peer = NodeId::replica(own.partition(), member);
        if is_decided && self.catch_up.begin(peer, &self.setup, &mut self.state, cx) {
            merge.asks(member);
        }
        false
    }

    /// This replica has got everything that `peer` had committed.
    pub(super) fn has_caught_up_with(&mut self, peer: NodeId, cx: &mut Cx) {
        if let Some(merge) = self.truncation.merge() {
            merge.has_caught_up_with(peer.member());
        }
        if let Some((upto, merged)) = self.truncation.target() {
            self.on_truncation_finished(peer, upto, merged, cx);
        }
        // It may have settled enough to clear its ballot now.
        self.merge(cx);
    }

    /// Raises the watermark if this replica has everything that has committed below (step 6).
    pub(super) fn on_truncation_finished(
        &mut self,
        from: NodeId,
        upto: u64,
        merged: Digest,
        cx: &mut Cx,
    ) {
        if Version::at(upto) <= self.state.progress.watermark() {
            return;
        }
        if self.state.committed_below(upto) == merged {
            self.raise_watermark(upto, merged, false, cx);
        } else if self.truncation.set_target(upto, merged) {
            let begins = self.catch_up.begin(from, &self.setup, &mut self.state, cx);
            self.truncation.set_announced_by((!begins).then_some(from));
        }
    }

    /// Raises the watermark: everything below `upto` is settled, and what is still open there has not committed.
    pub(super) fn raise_watermark(&mut self, upto: u64, digest: Digest, copied: bool, cx: &mut Cx) {
        if copied {
            // Aborts that this replica has heard of are forgotten.
            for waiter in self.transactions.waiters_below(Version::at(upto)) {
                self.vote_on_abort(waiter, cx);
            }
        }
        let mut waiters = self.pass_watermark(upto, digest, copied);
        self.notify(cx);
        if !copied {
            // What has not committed below the watermark has aborted. If the watermark has risen far, the horizon passes that
            // now, and it is forgotten.
            self.confirm_all(&mut waiters, cx);
        }
        let needed = self.transactions.found_nothing_from(self.setup.options.control);
        self.state.progress.raise_horizon(copied, needed);
        self.state.log_truncation(copied, &mut self.log, cx);
        for partition in 0..self.setup.group.partitions() {
            if partition != self.setup.id.partition() {
                let there = NodeId::replica(partition, self.setup.id.member());
                cx.send(there, Message::Watermark { upto });
            }
        }
        self.confirm_all(&mut waiters, cx);
        for version in self.recoveries.below(Version::at(upto)) {
            match copied {
                true => self.recoveries.give_up(version, cx),
                false => self.recovered(version, cx),
            }
        }
        cx.set_timer(Timer::Settle, Duration::ZERO);
    }

    fn confirm_all(&mut self, waiters: &mut Vec<Version>, cx: &mut Cx) {
        for waiter in waiters.drain(..) {
            self.confirm(waiter, cx);
        }
    }

    /// The part of raising the watermark that a replay repeats. Returns the transactions that waited for others below it.
    fn pass_watermark(&mut self, upto: u64, digest: Digest, copied: bool) -> Vec<Version> {
        let end = if copied { End::Unknown } else { End::Aborted };
        let waiters = self.transactions.pass(Version::at(upto), end, &mut self.state);
        self.truncation.finish(upto);
        self.state.progress.raise(upto, digest, copied);
        self.state.keys.set_settled(Version::at(upto));
        self.rejoin.pass(upto);
        if copied {
            self.state.rely_on_the_store(Version::at(upto));
        }
        waiters
    }

    pub(super) fn replay_truncated(
        &mut self,
        (upto, horizon, readable_from): (u64, u64, u64),
        digest: Digest,
        copied: bool,
    ) {
        self.pass_watermark(upto, digest, copied);
        self.state.progress.replay(horizon, readable_from);
        self.state.keys.forget_notices();
    }
}

/// How long after `us` the next multiple of `every_us` has passed, in microseconds. Since the replicas' clocks are close to
/// each other, they stop for a truncation at about the same time. Timers may be a little early.
fn until_next(us: u64, every_us: u64) -> u64 {
    const EARLY_US: u64 = 1000;
    every_us - us % every_us + EARLY_US
}
