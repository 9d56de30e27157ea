//! Forgetting what is old, safely (001 §3.3.4).
//!
//! Truncations are a set time apart by the replicas' clocks, and happen once everything below them is
//! [`Settings::truncation_lag_ms`] old. The step numbers are the paper's:
//!
//! 1. The truncations `k * every` are known to all beforehand.
//! 2. A replica whose clock says so stops voting on what is below, and sends the truncation coordinator a
//!    digest of what has committed below and a list of what may yet ([`Message::Truncate`]).
//! 3. With a majority's, the coordinator has everything decided that is not, by recovery, and fetches
//!    what it has not got. What has then committed below the truncation is what ever will have; it
//!    proposes the digest of that.
//! 4. Replicas accept it, 5. which makes it durable; the coordinator tells them so, 6. and they raise
//!    their watermark, once they have all of it themselves.
//! 7. Where the coordinator is replaced, or two are at work, views decide.
//!
//! The paper's `merged_erecord` travels as a digest, since all replicas have nearly always the same; one
//! that differs fetches what it lacks from another (`catch_up`).
//!
//! Behind the watermark what was settled is put into the store (`settle`).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    outcomes_us: u64,
    /// It votes on nothing below.
    stopped: u64,
    /// Everything below is settled.
    watermark: u64,
    /// What has committed below the watermark.
    digest: Digest,
    /// It remembers how transactions ended from here on.
    horizon: u64,
    /// Reads of the past are answered from here on.
    readable_from: u64,
    /// The watermarks of the other partitions' replicas on this machine.
    elsewhere: Vec<u64>,
    /// What it has promised and accepted, by truncation.
    instances: BTreeMap<u64, Instance>,
    /// The truncation that it coordinates.
    merge: Option<Merge>,
    /// What it is to have below a truncation, and does not yet.
    pub(super) target: Option<(u64, Digest)>,
    /// For how many rounds it has waited for the truncation that it has stopped for.
    waited: u32,
    /// Positions of the log, and how far the versions go of all that lies before.
    marks: VecDeque<(u64, u64)>,
    logged_up_to: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Instance {
    view: View,
    accepted: Option<(View, Digest)>,
}

/// A truncation that this replica coordinates.
#[derive(Debug)]
struct Merge {
    upto: u64,
    view: View,
    snapshots: BTreeMap<usize, Snapshot>,
    /// What remains to be decided.
    undecided: Option<BTreeSet<Version>>,
    /// Of whom it has got all that they have committed.
    listed: BTreeSet<usize>,
    /// Whom it has asked for that, since it has their snapshot.
    asked: Option<usize>,
    proposed: Option<Digest>,
    accepted: BTreeSet<usize>,
}

impl Truncation {
    pub(super) fn new(settings: &Settings, partitions: u16) -> Truncation {
        Truncation {
            every_us: settings.truncation_every_ms.max(1) * 1000,
            lag_us: settings.truncation_lag_ms * 1000,
            outcomes_us: settings.outcomes_ms * 1000,
            stopped: 0,
            watermark: 0,
            digest: Digest::default(),
            horizon: 0,
            readable_from: 0,
            elsewhere: vec![0; usize::from(partitions)],
            instances: BTreeMap::new(),
            merge: None,
            target: None,
            waited: 0,
            marks: VecDeque::new(),
            logged_up_to: 0,
        }
    }

    /// It votes on nothing below.
    pub(super) fn stopped(&self) -> Version {
        Version::at(self.stopped)
    }

    /// Everything below is settled.
    pub(super) fn watermark(&self) -> Version {
        Version::at(self.watermark)
    }

    /// The same, in microseconds, with what has committed below.
    pub(super) fn finished(&self) -> (u64, Digest) {
        (self.watermark, self.digest)
    }

    /// It remembers how transactions ended from here on.
    pub(super) fn horizon(&self) -> Version {
        Version::at(self.horizon)
    }

    /// Reads of the past are answered from here on.
    pub(super) fn readable_from(&self, history_ms: u64) -> Version {
        Version::at(self.readable_from.max(self.watermark.saturating_sub(history_ms * 1000)))
    }

    pub(super) fn stop(&mut self, upto: u64) {
        self.stopped = self.stopped.max(upto);
    }

    pub(super) fn promise(&mut self, upto: u64, view: View, accepted: Option<(View, Digest)>) {
        self.instances.insert(upto, Instance { view, accepted });
    }

    /// A replica of another partition on this machine has come so far.
    pub(super) fn heard_of(&mut self, partition: u16, watermark: u64) {
        let known = &mut self.elsewhere[usize::from(partition)];
        *known = watermark.max(*known);
    }

    /// Notes how far the versions go in what is logged.
    pub(super) fn note(&mut self, record: &Record) {
        let version = match record {
            Record::Voted { version, .. }
            | Record::Confirmed { version, .. }
            | Record::Promised { version, .. }
            | Record::Accepted { version, .. }
            | Record::Committed { version, .. }
            | Record::Aborted { version } => version.timestamp_us,
            Record::Stopped { upto }
            | Record::Merging { upto, .. }
            | Record::Truncated { upto, .. } => *upto,
            Record::Floor { floor } => *floor,
        };
        self.logged_up_to = self.logged_up_to.max(version);
    }

    /// The position up to which nothing in the log is above `horizon`.
    pub(super) fn settled_log(&mut self, horizon: u64) -> Option<u64> {
        let mut position = None;
        while let Some((before, highest)) = self.marks.front()
            && *highest < horizon
        {
            position = Some(*before);
            self.marks.pop_front();
        }
        position
    }
}

impl Replica {
    pub(super) fn start_truncation(&mut self, cx: &mut Cx) {
        cx.set_timer(Timer::Truncation, Duration::from_micros(self.truncation.every_us));
        cx.set_timer(Timer::Settle, Duration::ZERO);
    }

    /// What has committed below `upto`, ever, as far as this replica knows.
    pub(super) fn committed_below(&self, upto: u64) -> Digest {
        let (watermark, digest) = self.truncation.finished();
        self.settled.digest(digest, Version::at(watermark), Version::at(upto))
    }

    /// Begins a truncation if it is time (steps 1 and 2), or goes on with one.
    pub(super) fn truncate(&mut self, cx: &mut Cx) {
        let Truncation { every_us, lag_us, .. } = self.truncation;
        cx.set_timer(Timer::Truncation, Duration::from_micros(every_us));
        let mark = (cx.log_position(), self.truncation.logged_up_to);
        self.truncation.marks.push_back(mark);
        if self.floor > 0 || self.truncation.target.is_some() {
            // It lacks something, and this may be the peer that has it.
            self.start_catch_up(cx);
        }
        if self.floor > self.truncation.watermark {
            return;
        }
        let due = cx.clock().midpoint_us().saturating_sub(lag_us) / every_us * every_us;
        if self.truncation.watermark < self.truncation.stopped {
            self.truncation.waited += 1;
            let (upto, round) = (self.truncation.stopped, self.truncation.waited);
            if self.is_coordinator_of(upto, round) {
                self.enter_view(upto, View { round, recoverer: self.id }, cx);
            } else {
                self.send_snapshot(upto, View::OWN, self.coordinator_of(upto, 0), cx);
            }
        } else if due > self.truncation.watermark {
            self.stop_voting(due, cx);
            self.truncation.waited = 0;
            self.send_snapshot(due, View::OWN, self.coordinator_of(due, 0), cx);
        }
        self.settle(cx);
    }

    /// Truncations take turns, and so do the rounds of one.
    fn coordinator_of(&self, upto: u64, round: u32) -> NodeId {
        let turn = (upto / self.truncation.every_us).wrapping_add(u64::from(round));
        let member = turn % self.group.size() as u64;
        NodeId::replica(self.id.partition(), member as usize)
    }

    fn is_coordinator_of(&self, upto: u64, round: u32) -> bool {
        self.coordinator_of(upto, round) == self.id
    }

    /// Votes on nothing below any more.
    fn stop_voting(&mut self, upto: u64, cx: &mut Cx) {
        if upto > self.truncation.stopped {
            self.truncation.stop(upto);
            self.append(Record::Stopped { upto }, cx);
        }
    }

    /// What this replica has below a truncation for which it has stopped.
    fn snapshot(&self, upto: u64) -> Snapshot {
        let careless = self.options.mutation == Some(Mutation::TruncationIgnoresVotes);
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

    /// Has the replicas enter a view of a truncation (step 7).
    fn enter_view(&mut self, upto: u64, view: View, cx: &mut Cx) {
        self.truncation.merge = Some(Merge::new(upto, view));
        let partition = self.id.partition();
        cx.broadcast(partition, self.group.all(), Message::TruncationPaxosPrepare { upto, view });
    }

    /// Whether a truncation is over here; whoever asks about it is told.
    fn has_finished(&self, from: NodeId, upto: u64, cx: &mut Cx) -> bool {
        let (watermark, merged) = self.truncation.finished();
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
        // Somebody's clock may be ahead of all others.
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
        self.send_snapshot(upto, view, from, cx);
    }

    /// Collects what replicas have (step 3).
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
        let merge = &mut self.truncation.merge;
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

    /// Goes on with the truncation that this replica coordinates.
    pub(super) fn merge(&mut self, cx: &mut Cx) {
        let majority = self.group.majority();
        let Some(merge) = &mut self.truncation.merge else { return };
        let (upto, view) = (merge.upto, merge.view);
        if merge.proposed.is_some() || merge.snapshots.len() < majority {
            return;
        }
        let accepted = merge.snapshots.values().filter_map(|snapshot| snapshot.accepted);
        let accepted = accepted.max_by_key(|(view, _)| *view).map(|(_, merged)| merged);
        if accepted.is_none() && !self.everything_is_decided(upto, cx) {
            return;
        }
        let merged = accepted.unwrap_or_else(|| self.committed_below(upto));
        let merge = self.truncation.merge.as_mut().expect("it is there");
        merge.proposed = Some(merged);
        let partition = self.id.partition();
        cx.broadcast(partition, self.group.all(), Message::ProposeMerge { upto, view, merged });
    }

    /// Has everything decided that a majority has below `upto`; whether it is, and this replica knows
    /// of all that has committed.
    fn everything_is_decided(&mut self, upto: u64, cx: &mut Cx) -> bool {
        let merge = self.truncation.merge.as_mut().expect("a truncation that it coordinates");
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
        let own = self.committed_below(upto);
        let merge = self.truncation.merge.as_mut().expect("a truncation that it coordinates");
        let complete = undecided.is_empty();
        merge.undecided = Some(undecided);
        let differs = |(member, snapshot): (&usize, &Snapshot)| {
            (snapshot.committed != own && !merge.listed.contains(member)).then_some(*member)
        };
        let Some(member) = merge.snapshots.iter().find_map(differs) else { return complete };
        if member == self.id.member() {
            merge.listed.insert(member); // What it has got since.
            return self.everything_is_decided(upto, cx);
        }
        let peer = NodeId::replica(self.id.partition(), member);
        if complete && self.catch_up_from(peer, cx) {
            let merge = self.truncation.merge.as_mut().expect("a truncation that it coordinates");
            merge.asked = Some(member);
        }
        false
    }

    /// This replica has got all that another had committed.
    pub(super) fn has_caught_up_with(&mut self, peer: NodeId, cx: &mut Cx) {
        if let Some(merge) = &mut self.truncation.merge {
            // A list that was begun before the peer's snapshot may lack what is in it.
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

    /// Makes the merge known once it is durable (step 5), or tries a later view (step 7).
    pub(super) fn on_propose_merge_reply(
        &mut self,
        from: NodeId,
        upto: u64,
        view: View,
        cx: &mut Cx,
    ) {
        let majority = self.group.majority();
        let Some(merge) = &mut self.truncation.merge else { return };
        if merge.upto != upto || view < merge.view {
            return;
        }
        if view > merge.view {
            self.truncation.merge = None; // Its own next turn comes.
            return;
        }
        let Some(merged) = merge.proposed else { return };
        merge.accepted.insert(from.member());
        if merge.accepted.len() == majority {
            let partition = self.id.partition();
            cx.broadcast(partition, self.group.all(), Message::TruncationFinished { upto, merged });
        }
    }

    /// Raises the watermark, if everything that has committed below is here (step 6).
    pub(super) fn on_truncation_finished(
        &mut self,
        from: NodeId,
        upto: u64,
        merged: Digest,
        cx: &mut Cx,
    ) {
        if upto <= self.truncation.watermark {
            return;
        }
        if self.committed_below(upto) != merged {
            if self.truncation.target.is_none_or(|(target, _)| target < upto) {
                self.truncation.target = Some((upto, merged));
                self.catch_up_from(from, cx);
            }
            return;
        }
        self.raise_watermark(upto, merged, false, cx);
    }

    /// Everything below `upto` is settled: what is still open has not committed.
    pub(super) fn raise_watermark(&mut self, upto: u64, digest: Digest, copied: bool, cx: &mut Cx) {
        let waiters = self.pass_watermark(upto, digest, copied);
        self.notify(cx);
        let machine = self.truncation.elsewhere.iter().enumerate();
        let elsewhere = machine.filter(|(p, _)| *p != usize::from(self.id.partition()));
        let lowest = elsewhere.map(|(_, watermark)| *watermark).min().unwrap_or(u64::MAX);
        let horizon = lowest.min(upto.saturating_sub(self.truncation.outcomes_us));
        self.truncation.horizon = horizon.max(self.truncation.horizon);
        if copied {
            self.truncation.horizon = upto;
        }
        self.log_truncation(copied, cx);
        for partition in 0..self.group.partitions() {
            if partition != self.id.partition() {
                let there = NodeId::replica(partition, self.id.member());
                cx.send(there, Message::Watermark { upto });
            }
        }
        for waiter in waiters {
            self.confirm(waiter, cx);
        }
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

    /// The part of it that is repeated when the log is replayed. Returns who waited for what is over.
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
        let truncation = &mut self.truncation;
        truncation.stop(upto);
        truncation.watermark = upto;
        truncation.digest = digest;
        truncation.instances = truncation.instances.split_off(&(upto + 1));
        truncation.waited = 0;
        if truncation.merge.as_ref().is_some_and(|merge| merge.upto <= upto) {
            truncation.merge = None;
        }
        if truncation.target.is_some_and(|(target, _)| target <= upto) {
            truncation.target = None;
        }
        if copied {
            truncation.readable_from = truncation.readable_from.max(upto);
        }
        waiters
    }

    fn log_truncation(&mut self, copied: bool, cx: &mut Cx) {
        let Truncation { watermark: upto, horizon, digest, readable_from, .. } = self.truncation;
        self.append(Record::Truncated { upto, horizon, digest, copied, readable_from }, cx);
    }

    pub(super) fn replay_truncated(
        &mut self,
        (upto, horizon, readable_from): (u64, u64, u64),
        digest: Digest,
        copied: bool,
    ) {
        self.pass_watermark(upto, digest, copied);
        self.truncation.horizon = horizon;
        self.truncation.readable_from = readable_from;
        self.notices.clear();
    }

    /// What comes from another replica lacks what was overwritten before `from`, in microseconds, so
    /// that the past can't be read here either from before.
    pub(super) fn raise_readable_from(&mut self, from: u64, cx: &mut Cx) {
        if from > self.truncation.readable_from {
            self.truncation.readable_from = from;
            self.log_truncation(false, cx);
        }
    }
}

impl Merge {
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
