//! Recovery from failed clients (003 §5.6), and removal of transactions that have ended at all
//! shards.
//!
//! These handlers are methods of the leader, because they end a transaction in every state: at the
//! control, in the log, or with another shard.

use core::time::Duration;

use serried_model::{NodeId, Version};

use super::super::control::Control;
use super::super::message::{Decision, Message, Refusal, Reply, Request};
use super::super::stamp::Stamp;
use super::Cx;
use super::leader::Leader;
use super::open::{Open, Standing};
use super::requests::late;
use super::resolution::{Resolution, Step};
use super::shard::Common;

impl<C: Control> Leader<C> {
    /// Reports the state of a transaction at this shard. Refuses it if it has no part.
    pub(super) fn on_inspect(
        &mut self,
        from: NodeId,
        txn: Version,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        if let Some(decision) = common.table.decision(txn) {
            return self.tell_decided(from, txn, decision, common, cx);
        }
        if let Some(open) = self.open.get_mut(&txn) {
            if open.standing == Standing::Executing {
                self.discard(txn, Refusal::CONFLICT, common, cx);
                return self.tell_refused(from, txn, cx);
            }
            if !open.inspectors.contains(&from) {
                open.inspectors.push(from);
            }
            if open.must_abort() {
                // The call was refused. If its client has validated what it had read, it aborts the call as well.
                return self.give_up(txn, common, cx);
            }
            return self.answer(txn, common, cx);
        }
        let window = common.table.window();
        if self.refusals.reason(txn).is_some() {
            self.tell_refused(from, txn, cx);
        } else if txn.timestamp_us < window.from_us {
            let reason = late(txn, window);
            cx.send(from, Message::Reply(Reply::Refused { txn, reason }));
        } else {
            self.bar(txn, Refusal::CONFLICT, from, common, cx);
        }
    }

    /// Handles a participant's or a client's question about a transaction's outcome. This shard is
    /// its backup coordinator.
    pub(super) fn on_resolve(
        &mut self,
        from: NodeId,
        txn: Version,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        if from.is_coordinator()
            && let Some(decision) = common.table.decision_of_version(txn)
        {
            return self.tell_decided(from, txn, decision, common, cx);
        }
        self.on_inspect(from, txn, common, cx);
        self.resolve(txn, common, cx);
    }

    /// The open transaction that is ready here and may commit under this version, though it began
    /// with another one. Its shards know it by its first version until they learn the outcome. Its
    /// program may know the other version already.
    pub(super) fn is_to_commit_as(&self, version: Version, common: &Common) -> Option<Version> {
        if common.table.decision_of_version(version).is_some() || self.open.contains_key(&version) {
            return None;
        }
        let mut open = self.open.iter();
        let may = open.find(|(first, open)| {
            let at = Stamp { us: version.timestamp_us, txn: **first };
            first.coordinator == version.coordinator
                && open.standing != Standing::Executing
                && open.validity.holds_at(at)
        });
        may.map(|(first, _)| *first)
    }

    /// Resolves a transaction, unless its outcome is known.
    pub(super) fn resolve(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_, C>) {
        let own = common.shard();
        let Some(open) = self.open.get(&txn) else { return };
        if open.standing == Standing::Ending || open.backup() != Some(own) {
            return;
        }
        let Some(participants) = open.participants.clone() else { return };
        let new = || Resolution::new(txn, own, participants);
        let resolution = self.resolutions.entry(txn).or_insert_with(new);
        for shard in resolution.missing() {
            // The former leader may have been replaced.
            self.others.forget_leader(shard);
            self.others.send(shard, resolution.request(), &common.group, cx);
        }
        self.continue_resolution(txn, common, cx);
    }

    /// Continues to resolve a transaction, if it is being resolved and its part is ready.
    pub(super) fn continue_resolution(
        &mut self,
        txn: Version,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let Some(resolution) = self.resolutions.get_mut(&txn) else { return };
        let Some(open) = self.open.get(&txn).filter(|open| open.is_ready()) else { return };
        match resolution.step(open.validity) {
            Step::Wait => {}
            Step::Commit(_) if open.must_abort() => {
                self.give_up(txn, common, cx);
            }
            Step::Commit(at) => self.commit(txn, at, common, cx),
            Step::Move(to) => {
                for shard in resolution.others() {
                    self.others.send(shard, resolution.request(), &common.group, cx);
                }
                self.reposition(txn, to, common, cx);
            }
        }
    }

    /// The leader of another shard reports the state of a transaction there.
    pub(super) fn on_reply(
        &mut self,
        from: NodeId,
        reply: Reply,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let shard = from.partition();
        self.others.heard_of(from);
        match reply {
            Reply::Prepared { txn, validity } => {
                if let Some(resolution) = self.resolution_with(txn, shard) {
                    resolution.on_ready(shard, validity);
                    self.continue_resolution(txn, common, cx);
                }
            }
            Reply::Moved { txn } => {
                if let Some(resolution) = self.resolution_with(txn, shard) {
                    resolution.on_moved(shard);
                    self.continue_resolution(txn, common, cx);
                }
            }
            Reply::Refused { txn, reason } => {
                // No shard forgets the outcome of a transaction that is open here, so no correct
                // shard answers so.
                if !matches!(reason, Refusal::Forgotten { .. }) {
                    self.end(txn, Decision::Abort, common, cx);
                }
            }
            Reply::Decided { txn, decision } => self.end(txn, decision, common, cx),
            Reply::Installed { version } => self.on_installed(shard, version, common, cx),
            // These replies are for clients.
            Reply::Executed(_)
            | Reply::Ran { .. }
            | Reply::Kept { .. }
            | Reply::Set { .. }
            | Reply::Registered { .. }
            | Reply::Ended(_)
            | Reply::Snapshot { .. }
            | Reply::Unread { .. }
            | Reply::Follow { .. } => {}
        }
    }

    /// The resolution of a transaction that has a part at `shard`.
    pub(super) fn resolution_with(&mut self, txn: Version, shard: u16) -> Option<&mut Resolution> {
        self.resolutions.get_mut(&txn).filter(|resolution| resolution.concerns(shard))
    }

    /// Moves a ready part to another moment. If that is impossible, aborts its transaction, so that
    /// a repeated request gets the same answer. Returns whether the part holds at that moment
    /// already.
    pub(super) fn reposition(
        &mut self,
        txn: Version,
        to: Stamp,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) -> bool {
        let Some(open) = self.open.get(&txn) else { return false };
        if open.validity.holds_at(to) {
            return true;
        }
        if to < open.validity.from {
            return false; // No sender that knows the part's interval requests this.
        }
        let at = common.store_and_clock(cx);
        let can_move = self
            .controlled
            .act(&mut common.table, at, |control, desk| control.reposition(txn, to, desk));
        if !can_move {
            self.give_up(txn, common, cx);
        }
        false
    }

    fn end(&mut self, txn: Version, decision: Decision, common: &mut Common, cx: &mut Cx<'_, C>) {
        let Some(open) = self.open.get(&txn) else { return };
        match open.standing {
            Standing::Executing => self.discard(txn, Refusal::CONFLICT, common, cx),
            _ => self.decide(txn, decision, common, cx),
        }
    }

    /// Sends the outcome of a transaction that was resolved here to the other participants.
    pub(super) fn tell_participants(
        &self,
        txn: Version,
        decision: Decision,
        resolution: &Resolution,
        common: &Common,
        cx: &mut Cx<'_, C>,
    ) {
        for shard in resolution.others() {
            self.others.send(shard, Request::End { txn, decision }, &common.group, cx);
        }
    }

    /// Resolves transactions whose clients have been silent.
    pub(super) fn watch(&mut self, common: &mut Common, cx: &mut Cx<'_, C>) {
        common.ask_clocks(cx);
        common.compare_clock(cx);
        self.count_ahead(common);
        let (now, patience) = (cx.now(), common.settings.recovery_after());
        let limit_ms = common.settings.truncation_lag_ms;
        let longest = Duration::from_millis(limit_ms);
        let own = common.shard();
        let runs_too_long =
            |open: &Open| open.standing == Standing::Executing && now.since(open.began) >= longest;
        let overdue: Vec<(Version, Standing, bool)> = self
            .open
            .iter()
            .filter(|(_, open)| now.since(open.heard) >= patience || runs_too_long(open))
            .map(|(txn, open)| (*txn, open.standing, runs_too_long(open)))
            .collect();
        for (txn, standing, too_long) in overdue {
            match standing {
                Standing::Executing if too_long => {
                    self.discard(txn, Refusal::TooLong { limit_ms }, common, cx);
                }
                Standing::Executing => self.discard(txn, Refusal::CONFLICT, common, cx),
                Standing::Ending => {}
                Standing::Preparing(_) | Standing::Prepared => {
                    let Some(backup) = self.open.get(&txn).and_then(Open::backup) else { continue };
                    if backup == own {
                        self.resolve(txn, common, cx);
                    } else {
                        self.others.forget_leader(backup);
                        self.others.send(backup, Request::Resolve { txn }, &common.group, cx);
                    }
                }
            }
        }
        self.tidy(common, cx);
        self.advance_sets(common, cx);
        self.watch_later(common, cx);
    }

    /// Reports to the other shards the time below which all transactions have ended here. Forgets
    /// transactions that have ended at all shards.
    fn tidy(&mut self, common: &mut Common, cx: &mut Cx<'_, C>) {
        let every = Duration::from_millis(common.settings.truncation_every_ms);
        let now = cx.now();
        // Entries that the log can't accept now must not pile up.
        let Some(time) = common.time(cx).filter(|_| self.has_proposed_all()) else { return };
        if now.since(self.tidied) < every {
            return;
        }
        self.tidied = now;
        let own = common.shard();
        let window = common.table.window();
        let from_us = window.from_us;
        let open_us = self.open.keys().next().map(|txn| txn.timestamp_us);
        let below_us = open_us.map_or(from_us, |us| us.min(from_us));
        self.others.are_over(own, below_us);
        // Even if this shard has nothing to forget, the others may wait for its report.
        let none_refused = self.refusals.len() == 0;
        if common.table.remembered() == 0 && none_refused && self.others.latest_over_us() <= from_us
        {
            return;
        }
        let shards = common.group.partitions();
        for shard in (0..shards).filter(|shard| *shard != own) {
            self.others.send(shard, Request::Over { below_us }, &common.group, cx);
        }
        // While a commit waits for its moment, its outcome is not reported. So this time does not count.
        let waits_us = if C::GROUPS_DECIDE { 4 * common.settings.uncertainty_us } else { 0 };
        let outcomes_us = common.settings.outcomes_ms.saturating_mul(1000).saturating_add(waits_us);
        let kept_us = time.earliest_us.saturating_sub(outcomes_us);
        let forget_us = self.others.all_over_us(shards).min(kept_us);
        self.windows.forget(forget_us, window, time, &mut self.unproposed);
    }
}
