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
//! 7. If the coordinator is replaced, or two coordinators are at work, views decide. The next replica takes its turn after
//!    the time between two truncations. It takes it at once if the coordinator says that it does not take part
//!    ([`Truncating::CannotMerge`]; see `rejoin`).
//!
//! The paper's `merged_erecord` is a digest here, because all replicas nearly always have the same. A replica whose digest
//! differs fetches what it lacks from another (`catch_up`).
//!
//! This module has what a replica promises and accepts, and whose turn it is. `merge` has what the coordinator knows, and
//! `truncate` carries the steps out and raises the watermark. How far truncations have come is in `progress`, and which
//! part of the log is still needed is in `log_marks`. `state` moves what lies below the watermark into the store.
//!
//! # Where this differs from the paper
//! The paper's replica answers `Truncated` to everything below a truncation for which it has stopped. Here it votes on
//! nothing new there either, but it still promises and accepts, because the recoveries of step 3 need that. Whatever
//! commits below after a replica has sent its snapshot had a majority's votes before those replicas stopped. So it is
//! listed as undecided in a snapshot of every majority.

use std::collections::BTreeMap;

use serried_model::{NodeId, Version};

use super::Cx;
use super::log_marks::LogMarks;
use super::merge::Merge;
use super::setup::Setup;
use crate::morty::digest::Digest;
use crate::morty::message::{Message, Snapshot, Truncating, View};
use crate::morty::record::Record;

/// A replica's part in truncations. Truncations are named by their microsecond of version time.
#[derive(Debug, Default)]
pub(super) struct Truncation {
    /// It votes on nothing below this.
    stopped: u64,
    /// The promises and acceptances, by truncation.
    instances: BTreeMap<u64, Instance>,
    /// A finished truncation and its digest, if this replica does not have everything below it yet.
    target: Option<(u64, Digest)>,
    /// The replica that has announced the target while this one was catching up with another, which may lack some of it.
    announced_by: Option<NodeId>,
    /// The round of the truncation that it has stopped for. It goes on by one each time the replica looks, and follows the
    /// others' (see [`Truncation::follow`]).
    round: u32,
    /// The truncation that it coordinates.
    merge: Option<Merge>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Instance {
    view: View,
    accepted: Option<(View, Digest)>,
}

/// The replica that coordinates a round of a truncation. Truncations take turns, and so do the rounds of one.
pub(super) fn coordinator_of(upto: u64, round: u32, setup: &Setup) -> NodeId {
    let turn = (upto / setup.truncation_every_us()).wrapping_add(u64::from(round));
    let member = turn % setup.group.size() as u64;
    NodeId::replica(setup.id.partition(), member as usize)
}

impl Truncation {
    /// It votes on nothing below this.
    pub(super) fn stopped(&self) -> Version {
        Version::at(self.stopped)
    }

    /// The log says that it votes on nothing below `upto`.
    pub(super) fn replay_stopped(&mut self, upto: u64) {
        self.stopped = self.stopped.max(upto);
    }

    /// Votes on nothing below `upto` any more.
    fn stop(&mut self, upto: u64, log: &mut LogMarks, cx: &mut Cx) {
        if upto > self.stopped {
            self.stopped = upto;
            log.append(Record::Stopped { upto }, cx);
        }
    }

    /// Begins a truncation.
    pub(super) fn begin(&mut self, upto: u64, log: &mut LogMarks, cx: &mut Cx) {
        self.stop(upto, log, cx);
        self.round = 0;
    }

    /// The truncation that it has stopped for, if that is not finished, because the watermark is below it.
    pub(super) fn unfinished(&self, watermark: u64) -> Option<u64> {
        (watermark < self.stopped).then_some(self.stopped)
    }

    /// Whether it waits for the first round of a truncation.
    pub(super) fn waits_for(&self, upto: u64, watermark: u64) -> bool {
        self.unfinished(watermark) == Some(upto) && self.round == 0
    }

    /// The truncations up to `upto` are over.
    pub(super) fn finish(&mut self, upto: u64) {
        self.stopped = self.stopped.max(upto);
        self.instances = self.instances.split_off(&(upto + 1));
        self.round = 0;
        self.target.take_if(|(target, _)| *target <= upto);
        self.merge.take_if(|merge| merge.upto() <= upto);
    }

    /// Enters the next round of the truncation that it has stopped for. If it is this replica's turn, asks the others to
    /// enter a view (step 7). Returns whether it is.
    pub(super) fn enter_next_round(&mut self, setup: &Setup, cx: &mut Cx) -> bool {
        self.round = self.round.saturating_add(1);
        let Truncation { stopped: upto, round, .. } = *self;
        let is_its_turn = coordinator_of(upto, round, setup) == setup.id;
        if is_its_turn {
            let view = View { round, recoverer: setup.id };
            self.merge = Some(Merge::new(upto, view));
            setup.broadcast(Truncating::TruncationPaxosPrepare { upto, view }, cx);
        }
        is_its_turn
    }

    /// Another replica is in a view of a truncation. A replica that stopped later is in earlier rounds. If it stayed there,
    /// no replica would follow it, and only the others would have turns. It enters the next round after the other has had this
    /// one for as long as it waits between two rounds.
    fn follow(&mut self, upto: u64, view: View) {
        if upto == self.stopped {
            self.round = self.round.max(view.round.saturating_sub(1));
        }
    }

    /// What it has accepted for a truncation, and in which view.
    pub(super) fn accepted(&self, upto: u64) -> Option<(View, Digest)> {
        self.instances.get(&upto).and_then(|instance| instance.accepted)
    }

    /// The log says what it has promised and accepted.
    pub(super) fn replay_merging(
        &mut self,
        upto: u64,
        view: View,
        accepted: Option<(View, Digest)>,
    ) {
        self.instances.insert(upto, Instance { view, accepted });
    }

    /// A truncation coordinator asks the replica to enter a view. Returns whether it does; then it sends its snapshot.
    pub(super) fn on_paxos_prepare(
        &mut self,
        from: NodeId,
        (upto, view): (u64, View),
        log: &mut LogMarks,
        cx: &mut Cx,
    ) -> bool {
        let instance = self.instances.entry(upto).or_default();
        if instance.view > view {
            let reply = Truncating::ProposeMergeReply { upto, view: instance.view };
            cx.send(from, Message::Truncating(reply));
            return false;
        }
        instance.view = view;
        log.append(Record::Merging { upto, view, accepted: instance.accepted }, cx);
        self.stop(upto, log, cx);
        self.follow(upto, view);
        true
    }

    /// Accepts a merge (step 4).
    pub(super) fn on_propose_merge(
        &mut self,
        from: NodeId,
        (upto, view): (u64, View),
        merged: Digest,
        log: &mut LogMarks,
        cx: &mut Cx,
    ) {
        let instance = self.instances.entry(upto).or_default();
        let current = instance.view.max(view);
        if instance.view <= view {
            let accepted = Some((view, merged));
            *instance = Instance { view, accepted };
            log.append(Record::Merging { upto, view, accepted }, cx);
            self.stop(upto, log, cx);
        }
        let reply = Truncating::ProposeMergeReply { upto, view: current };
        cx.send(from, Message::Truncating(reply));
    }

    /// The truncation that this replica coordinates.
    pub(super) fn merge(&mut self) -> Option<&mut Merge> {
        self.merge.as_mut()
    }

    /// Collects the replicas' snapshots (step 3). Returns whether this one is for the merge that the replica coordinates.
    pub(super) fn add_snapshot(
        &mut self,
        from: NodeId,
        (upto, view): (u64, View),
        snapshot: Snapshot,
        setup: &Setup,
    ) -> bool {
        let own_view = view == View::OWN && coordinator_of(upto, 0, setup) == setup.id;
        if own_view && self.merge.as_ref().is_none_or(|merge| merge.upto() < upto) {
            self.merge = Some(Merge::new(upto, view));
        }
        match &mut self.merge {
            Some(merge) if (merge.upto(), merge.view()) == (upto, view) => {
                merge.add(from.member(), snapshot);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Announces the merge once it is durable (step 5). Gives up if a replica is in a later view (step 7).
    pub(super) fn on_propose_merge_reply(
        &mut self,
        from: NodeId,
        (upto, view): (u64, View),
        setup: &Setup,
        cx: &mut Cx,
    ) {
        let Some(merge) = &mut self.merge else { return };
        if merge.upto() != upto || view < merge.view() {
            return;
        }
        if view > merge.view() {
            self.merge = None; // Its own next turn comes.
            self.follow(upto, view);
            return;
        }
        if let Some(merged) = merge.accept(from.member(), setup.group.majority()) {
            setup.broadcast(Truncating::TruncationFinished { upto, merged }, cx);
        }
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
