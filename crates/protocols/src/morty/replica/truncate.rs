//! Carries truncations out. [`truncation`](super::truncation) describes the steps.
//!
//! A truncation concerns all components: it needs everything that is open and settled, has transactions recovered and
//! fetched, and ends what is open below it. So these handlers belong to the replica.

use core::time::Duration;

use serried_model::{NodeId, Version};

use super::transactions::{End, Undecided};
use super::truncation::coordinator_of;
use super::{Cx, Replica, Timer};
use crate::morty::Mutation;
use crate::morty::digest::Digest;
use crate::morty::message::{Message, Snapshot, Truncating, View};

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
            if !self.truncation.enter_next_round(&self.setup, cx) {
                self.send_snapshot(upto, View::OWN, coordinator_of(upto, 0, &self.setup), cx);
            }
        } else if due > watermark {
            self.truncation.begin(due, &mut self.log, cx);
            self.send_snapshot(due, View::OWN, coordinator_of(due, 0, &self.setup), cx);
        }
        self.settle(cx);
    }

    /// The coordinator of a truncation has been replaced and does not take part yet. The next in turn goes on at once.
    pub(super) fn on_cannot_merge(&mut self, from: NodeId, upto: u64, cx: &mut Cx) {
        let (watermark, _) = self.state.progress.finished();
        let is_waiting = self.truncation.waits_for(upto, watermark);
        let is_coordinator = from == coordinator_of(upto, 0, &self.setup);
        if is_waiting && self.rejoin.takes_part() && is_coordinator {
            self.truncation.enter_next_round(&self.setup, cx);
        }
    }

    /// Sends what this replica knows below a truncation for which it has stopped.
    fn send_snapshot(&self, upto: u64, view: View, to: NodeId, cx: &mut Cx) {
        let careless = self.setup.options.mutation.is(Mutation::TruncationIgnoresVotes);
        let pending = |undecided: &Undecided| match careless {
            true => undecided.accepted.is_some(),
            false => undecided.may_commit(),
        };
        let snapshot = Snapshot {
            committed: self.state.committed_below(upto),
            undecided: self.transactions.below(Version::at(upto), pending).into_iter().collect(),
            accepted: self.truncation.accepted(upto),
        };
        cx.send(to, Message::Truncating(Truncating::Truncate { upto, view, snapshot }));
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

    pub(super) fn on_truncation_paxos_prepare(
        &mut self,
        from: NodeId,
        upto: u64,
        view: View,
        cx: &mut Cx,
    ) {
        if self.has_finished(from, upto, cx) {
            return;
        }
        // The sender's clock may be ahead of all others.
        let bound_us = self.setup.settings.clock_bound_ms * 1000;
        let lag_us = self.setup.truncation_lag_us();
        if upto.saturating_add(lag_us) > cx.clock().latest_us + bound_us {
            return;
        }
        if self.truncation.on_paxos_prepare(from, (upto, view), &mut self.log, cx) {
            self.send_snapshot(upto, view, from, cx);
        }
    }

    pub(super) fn on_propose_merge(
        &mut self,
        from: NodeId,
        upto: u64,
        view: View,
        merged: Digest,
        cx: &mut Cx,
    ) {
        if !self.has_finished(from, upto, cx) {
            self.truncation.on_propose_merge(from, (upto, view), merged, &mut self.log, cx);
        }
    }

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
        if self.truncation.add_snapshot(from, (upto, view), snapshot, &self.setup) {
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
        let (upto, view, accepted) = (merge.upto(), merge.view(), merge.accepted());
        if accepted.is_none() && !self.everything_is_decided(upto, cx) {
            return;
        }
        let merged = accepted.unwrap_or_else(|| self.state.committed_below(upto));
        if let Some(merge) = self.truncation.merge() {
            merge.propose(merged);
        }
        self.setup.broadcast(Truncating::ProposeMerge { upto, view, merged }, cx);
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
            self.merge(cx);
        }
        if let Some((upto, merged)) = self.truncation.target() {
            self.on_truncation_finished(peer, upto, merged, cx);
        }
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
        let mut waiters = self.pass_watermark(upto, digest, copied);
        self.notify(cx);
        if !copied {
            // What has not committed below the watermark has aborted. If the watermark has risen far, the horizon passes that
            // now, and it is forgotten.
            self.confirm_all(&mut waiters, cx);
        }
        self.state.progress.raise_horizon(copied);
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
