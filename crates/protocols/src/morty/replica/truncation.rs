//! Forgets what is old, safely (001 §3.3.4).
//!
//! Truncations are a fixed time apart by the replicas' clocks. One begins when everything below it is
//! [`Settings::truncation_lag_ms`] old. The step numbers are the paper's:
//!
//! 1. All replicas know the truncations, `k * every`, in advance.
//! 2. When its clock says so, a replica stops voting below the truncation. It sends the truncation coordinator a digest of
//!    what has committed below, and a list of what may still commit ([`Message::Truncate`]).
//! 3. When a majority has answered, the coordinator recovers everything that is undecided, and fetches the commits that it
//!    lacks. Then it knows everything that can ever have committed below the truncation. It proposes the digest of that.
//! 4. The replicas accept the proposal,
//! 5. which makes it durable. The coordinator tells them so.
//! 6. Each replica raises its watermark once it has everything that is in the digest.
//! 7. If the coordinator is replaced, or two coordinators are at work, views decide. The next replica takes its turn after
//!    the time between two truncations. It takes it at once if the coordinator says that it does not take part
//!    ([`Message::CannotMerge`]; see `rejoin`).
//!
//! The paper's `merged_erecord` is a digest here, because all replicas nearly always have the same. A replica whose digest
//! differs fetches what it lacks from another (`catch_up`).
//!
//! This module has a replica's part in truncations, and raises its watermark. The coordinator's steps 3, 5 and 7 are in
//! `merge`, how far truncations have come is in `progress`, and which part of the log is still needed is in `log_marks`.
//! `settle` moves what lies below the watermark into the store.
//!
//! # Where this differs from the paper
//! The paper's replica answers `Truncated` to everything below a truncation for which it has stopped. Here it votes on
//! nothing new there either, but it still promises and accepts, because the recoveries of step 3 need that. Whatever
//! commits below after a replica has sent its snapshot had a majority's votes before those replicas stopped. So it is
//! listed as undecided in a snapshot of every majority.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::Settings;
use serried_model::{NodeId, Version};

use super::{Cx, End, Replica, Timer, Undecided};
use crate::morty::Mutation;
use crate::morty::digest::Digest;
use crate::morty::message::{Message, Record, Snapshot, View};

/// A replica's part in truncations.
#[derive(Debug)]
pub(super) struct Truncation {
    pub(super) every_us: u64,
    lag_us: u64,
    /// It votes on nothing below this, in microseconds of version time.
    stopped: u64,
    /// The promises and acceptances, by truncation.
    instances: BTreeMap<u64, Instance>,
    /// A finished truncation and its digest, if this replica does not have everything below it yet.
    pub(super) target: Option<(u64, Digest)>,
    /// Who has announced the target while this replica was catching up with another, which may lack something of it.
    pub(super) announced_by: Option<NodeId>,
    /// The round of the truncation that it has stopped for. It goes on by one each time the replica looks, and follows the
    /// others' (see [`Truncation::follow`]).
    round: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Instance {
    view: View,
    accepted: Option<(View, Digest)>,
}

impl Truncation {
    pub(super) fn new(settings: &Settings) -> Truncation {
        Truncation {
            every_us: settings.truncation_every_ms.max(1) * 1000,
            lag_us: settings.truncation_lag_ms * 1000,
            stopped: 0,
            instances: BTreeMap::new(),
            target: None,
            announced_by: None,
            round: 0,
        }
    }

    /// It votes on nothing below this.
    pub(super) fn stopped(&self) -> Version {
        Version::at(self.stopped)
    }

    pub(super) fn stop(&mut self, upto: u64) {
        self.stopped = self.stopped.max(upto);
    }

    /// The truncations up to `upto` are over.
    fn finish(&mut self, upto: u64) {
        self.stop(upto);
        self.instances = self.instances.split_off(&(upto + 1));
        self.round = 0;
        self.target.take_if(|(target, _)| *target <= upto);
    }

    /// Another replica is in a view of a truncation. A replica that stopped later is in earlier rounds. If it stayed there,
    /// nobody would follow it, and the others alone would have turns. It enters the next round after the other has had this
    /// one for as long as it waits between two rounds.
    pub(super) fn follow(&mut self, upto: u64, view: View) {
        if upto == self.stopped {
            self.round = self.round.max(view.round.saturating_sub(1));
        }
    }

    pub(super) fn promise(&mut self, upto: u64, view: View, accepted: Option<(View, Digest)>) {
        self.instances.insert(upto, Instance { view, accepted });
    }
}

impl Replica {
    pub(super) fn start_truncation(&mut self, cx: &mut Cx) {
        cx.set_timer(Timer::Truncation, Duration::from_micros(self.truncation.every_us));
        cx.set_timer(Timer::Settle, Duration::ZERO);
    }

    /// The digest of everything that has committed below `upto`, as far as this replica knows.
    pub(super) fn committed_below(&self, upto: u64) -> Digest {
        let (watermark, digest) = self.progress.finished();
        self.settled.digest(digest, Version::at(watermark), Version::at(upto))
    }

    /// Begins a truncation if it is time (steps 1 and 2), or goes on with one.
    pub(super) fn truncate(&mut self, cx: &mut Cx) {
        let Truncation { every_us, lag_us, .. } = self.truncation;
        let ago_us = cx.clock().midpoint_us().saturating_sub(lag_us);
        cx.set_timer(Timer::Truncation, Duration::from_micros(until_next(ago_us, every_us)));
        self.log_marks.mark(cx.log_position());
        if !self.takes_part() || self.truncation.target.is_some() {
            // It lacks something that another peer may have.
            self.start_catch_up(cx);
        }
        if !self.takes_part() {
            return;
        }
        let due = ago_us / every_us * every_us;
        let (watermark, _) = self.progress.finished();
        if watermark < self.truncation.stopped {
            if !self.enter_next_round(cx) {
                let upto = self.truncation.stopped;
                self.send_snapshot(upto, View::OWN, self.coordinator_of(upto, 0), cx);
            }
        } else if due > watermark {
            self.stop_voting(due, cx);
            self.truncation.round = 0;
            self.send_snapshot(due, View::OWN, self.coordinator_of(due, 0), cx);
        }
        self.settle(cx);
    }

    /// Enters the next round of the truncation that it has stopped for. Returns whether it is this replica's turn.
    fn enter_next_round(&mut self, cx: &mut Cx) -> bool {
        self.truncation.round = self.truncation.round.saturating_add(1);
        let Truncation { stopped: upto, round, .. } = self.truncation;
        let is_its_turn = self.is_coordinator_of(upto, round);
        if is_its_turn {
            self.enter_view(upto, View { round, recoverer: self.id }, cx);
        }
        is_its_turn
    }

    /// The coordinator of a truncation has been replaced and does not take part yet. The next in turn goes on at once.
    pub(super) fn on_cannot_merge(&mut self, from: NodeId, upto: u64, cx: &mut Cx) {
        let Truncation { stopped, round, .. } = self.truncation;
        let (watermark, _) = self.progress.finished();
        let is_waiting = upto == stopped && watermark < upto && round == 0;
        if is_waiting && self.takes_part() && from == self.coordinator_of(upto, 0) {
            self.enter_next_round(cx);
        }
    }

    /// Votes on nothing below `upto` any more.
    fn stop_voting(&mut self, upto: u64, cx: &mut Cx) {
        if upto > self.truncation.stopped {
            self.truncation.stop(upto);
            self.append(Record::Stopped { upto }, cx);
        }
    }

    /// What this replica knows below a truncation for which it has stopped.
    fn snapshot(&self, upto: u64) -> Snapshot {
        let careless = self.options.mutation.is(Mutation::TruncationIgnoresVotes);
        let pending = |undecided: &Undecided| match careless {
            true => undecided.accepted.is_some(),
            false => undecided.may_commit(),
        };
        let pending = |version: &Version| self.transactions.get(version).is_some_and(pending);
        Snapshot {
            committed: self.committed_below(upto),
            undecided: self.watch.below(Version::at(upto), pending).into_iter().collect(),
            accepted: self.truncation.instances.get(&upto).and_then(|instance| instance.accepted),
        }
    }

    fn send_snapshot(&mut self, upto: u64, view: View, to: NodeId, cx: &mut Cx) {
        let snapshot = self.snapshot(upto);
        cx.send(to, Message::Truncate { upto, view, snapshot });
    }

    /// Whether a truncation is over at this replica. If so, `from` is told.
    pub(super) fn has_finished(&self, from: NodeId, upto: u64, cx: &mut Cx) -> bool {
        let (watermark, merged) = self.progress.finished();
        if upto <= watermark {
            cx.send(from, Message::TruncationFinished { upto: watermark, merged });
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
        let bound_us = self.settings.clock_bound_ms * 1000;
        if upto.saturating_add(self.truncation.lag_us) > cx.clock().latest_us + bound_us {
            return;
        }
        let instance = self.truncation.instances.entry(upto).or_default();
        if instance.view > view {
            let view = instance.view;
            cx.send(from, Message::ProposeMergeReply { upto, view });
            return;
        }
        instance.view = view;
        let accepted = instance.accepted;
        self.append(Record::Merging { upto, view, accepted }, cx);
        self.stop_voting(upto, cx);
        self.truncation.follow(upto, view);
        self.send_snapshot(upto, view, from, cx);
    }

    /// Accepts a merge (step 4).
    pub(super) fn on_propose_merge(
        &mut self,
        from: NodeId,
        upto: u64,
        view: View,
        merged: Digest,
        cx: &mut Cx,
    ) {
        if self.has_finished(from, upto, cx) {
            return;
        }
        let instance = self.truncation.instances.entry(upto).or_default();
        if instance.view <= view {
            let accepted = Some((view, merged));
            *instance = Instance { view, accepted };
            self.append(Record::Merging { upto, view, accepted }, cx);
            self.stop_voting(upto, cx);
        }
        let view = self.truncation.instances.get(&upto).map_or(view, |instance| instance.view);
        cx.send(from, Message::ProposeMergeReply { upto, view });
    }

    /// Raises the watermark if this replica has everything that has committed below (step 6).
    pub(super) fn on_truncation_finished(
        &mut self,
        from: NodeId,
        upto: u64,
        merged: Digest,
        cx: &mut Cx,
    ) {
        if Version::at(upto) <= self.progress.watermark() {
            return;
        }
        if self.committed_below(upto) != merged {
            if self.truncation.target.is_none_or(|(target, _)| target < upto) {
                self.truncation.target = Some((upto, merged));
                self.truncation.announced_by = (!self.catch_up_from(from, cx)).then_some(from);
            }
            return;
        }
        self.raise_watermark(upto, merged, false, cx);
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
        self.progress.raise_horizon(copied);
        self.log_truncation(copied, cx);
        for partition in 0..self.group.partitions() {
            if partition != self.id.partition() {
                let there = NodeId::replica(partition, self.id.member());
                cx.send(there, Message::Watermark { upto });
            }
        }
        self.confirm_all(&mut waiters, cx);
        let over: Vec<Version> =
            self.recoveries.range(..Version::at(upto)).map(|(version, _)| *version).collect();
        for version in over {
            match copied {
                true => self.give_up(version, cx),
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
        let mut waiters = Vec::new();
        let open = |version: &Version| self.transactions.contains_key(version);
        let open = self.watch.below(Version::at(upto), open);
        for version in open {
            let end = if copied { End::Unknown } else { End::Aborted };
            waiters.extend(self.carry_out(version, end));
        }
        let later = self.waiting.split_off(&Version::at(upto));
        waiters.extend(core::mem::replace(&mut self.waiting, later).into_values().flatten());
        self.truncation.finish(upto);
        self.progress.raise(upto, digest, copied);
        self.merge.take_if(|merge| merge.is_for(upto));
        self.floor.pass(upto);
        if copied {
            self.rely_on_the_store(Version::at(upto));
        }
        waiters
    }

    fn log_truncation(&mut self, copied: bool, cx: &mut Cx) {
        self.append(self.progress.record(copied), cx);
        self.progress.is_logged_at(cx.log_position());
    }

    pub(super) fn replay_truncated(
        &mut self,
        (upto, horizon, readable_from): (u64, u64, u64),
        digest: Digest,
        copied: bool,
    ) {
        self.pass_watermark(upto, digest, copied);
        self.progress.replay(horizon, readable_from);
        self.notices.clear();
    }

    /// Data from another replica lacks versions that were overwritten before `from`, in microseconds of version time. So
    /// the past can't be read here from before that either.
    pub(super) fn raise_readable_from(&mut self, from: u64, cx: &mut Cx) {
        if self.progress.lack(from) {
            self.log_truncation(false, cx);
        }
    }
}

/// How long after `us` the next multiple of `every_us` has passed, in microseconds. Since the replicas' clocks are close to
/// each other, they stop for a truncation at about the same time. Timers may be a little early.
fn until_next(us: u64, every_us: u64) -> u64 {
    const EARLY_US: u64 = 1000;
    every_us - us % every_us + EARLY_US
}
