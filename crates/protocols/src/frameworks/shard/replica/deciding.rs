//! Two-phase commit whose coordinator is the group of the first participant ([`Control::GROUPS_DECIDE`]).
//!
//! ```text
//! client                leader of the first participant       leaders of the others
//!   | last Shot() -------->| Accept(Prepare(part)) in its group    |
//!   | last Shot() ---------------------------------------------->| Accept(Prepare(part)) in its group
//!   |                      |<----------- Prepared(validity) ------|
//!   |                      | Accept(Decide) in its group; waits until the moment is over
//!   |<------ Decided ------| End(commit) ------------------------>|
//! ```
//!
//! The parts decide, as everywhere: if all of them are chosen, the transaction commits, and they say at which moment. So the
//! leader reports the commit when the moment is over, even if its own entry is not chosen yet. Another leader would come to
//! the same moment.
//!
//! If a message is lost, another one takes its place. The client repeats its last shots. Then the others report their parts
//! again, and the deciding group asks for those that it lacks. If the client is silent, leaders ask each other after
//! [`serried_actor::Settings::recovery_after_ms`] (`recovery.rs`).

use serried_model::{NodeId, Version};

use super::super::Mutation;
use super::super::control::Control;
use super::super::message::{Decision, Message, Reply, Request};
use super::super::stamp::{Stamp, Validity};
use super::leader::Leader;
use super::resolution::Resolution;
use super::shard::Common;
use super::{Cx, Timer};

impl<C: Control> Leader<C> {
    /// Reports a part that is ready to the group that decides, once. Decides if that is this group.
    pub(super) fn report(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_, C>) {
        let own = common.shard();
        let Some(open) = self.open.get_mut(&txn) else { return };
        if !open.is_ready() || open.is_reported {
            return;
        }
        let (Some(decides), Some(participants)) = (open.backup(), open.participants.clone()) else {
            return;
        };
        open.is_reported = true;
        if decides != own {
            let request = Request::Prepared { txn, validity: open.validity };
            return self.others.send(decides, request, &common.group, cx);
        }
        if open.is_inherited {
            // What others have reported to a former leader is not known.
            return self.resolve(txn, common, cx);
        }
        let reported = core::mem::take(&mut open.reported);
        let resolution = Resolution::new(txn, own, participants);
        let resolution = self.resolutions.entry(txn).or_insert(resolution);
        for (shard, validity) in reported {
            if resolution.concerns(shard) {
                resolution.on_ready(shard, validity);
            }
        }
        self.continue_resolution(txn, common, cx);
    }

    /// The client has repeated its last shot, so a message may be lost.
    pub(super) fn report_again(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_, C>) {
        let Some(open) = self.open.get_mut(&txn).filter(|open| open.is_ready()) else { return };
        if open.backup() == Some(common.shard()) {
            return self.resolve(txn, common, cx);
        }
        open.is_reported = false;
        self.report(txn, common, cx);
    }

    /// A shard's part of a transaction is ready, on which this group decides.
    pub(super) fn on_prepared(
        &mut self,
        from: NodeId,
        (txn, validity): (Version, Validity),
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let shard = from.partition();
        self.others.heard_of(from);
        if let Some(decision) = common.table.decision(txn) {
            return self.tell_decided(from, txn, decision, common, cx);
        }
        if let Some(resolution) = self.resolution_with(txn, shard) {
            resolution.on_ready(shard, validity);
            return self.continue_resolution(txn, common, cx);
        }
        if let Some(open) = self.open.get_mut(&txn)
            && open.reported.iter().all(|(known, _)| *known != shard)
        {
            open.reported.push((shard, validity));
        }
    }

    /// All parts of a transaction hold at this moment. Its end is put into the log, and reported once the moment is over.
    pub(super) fn commit(
        &mut self,
        txn: Version,
        at: Stamp,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        self.decide(txn, Decision::Commit(at), common, cx);
        if C::GROUPS_DECIDE && self.is_over(at, common, cx) {
            self.conclude(txn, Decision::Commit(at), common, cx);
        } else if C::GROUPS_DECIDE {
            self.wait_for(at, txn, common, cx);
        }
    }

    /// Whether the end of a transaction waits for its moment, and is reported later.
    pub(super) fn waits(
        &mut self,
        txn: Version,
        decision: Decision,
        common: &Common,
        cx: &mut Cx<'_, C>,
    ) -> bool {
        let Decision::Commit(at) = decision else { return false };
        let decides =
            || self.open.get(&txn).is_some_and(|open| open.backup() == Some(common.shard()));
        if !C::GROUPS_DECIDE || !decides() || self.is_over(at, common, cx) {
            return false;
        }
        self.wait_for(at, txn, common, cx);
        true
    }

    fn is_over(&self, at: Stamp, common: &Common, cx: &Cx<'_, C>) -> bool {
        common.is_over(at.us, cx) || common.mutation.is(Mutation::NoCommitWait)
    }

    fn wait_for(&mut self, at: Stamp, txn: Version, common: &Common, cx: &mut Cx<'_, C>) {
        self.commit_waits.insert(at.us, txn);
        self.watch_clock(common, cx);
    }

    /// Reports the end of a transaction to its client and the other participants, unless that was done.
    fn conclude(&mut self, txn: Version, decision: Decision, common: &Common, cx: &mut Cx<'_, C>) {
        let Some(open) = self.open.get_mut(&txn) else { return };
        if core::mem::replace(&mut open.is_concluded, true) {
            return;
        }
        let reply = Reply::Decided { txn, decision };
        for to in open.answer_all(&reply) {
            cx.send(to, Message::Reply(reply.clone()));
        }
        if let Some(resolution) = self.resolutions.get(&txn) {
            self.tell_participants(txn, decision, resolution, common, cx);
        }
    }

    /// Reports how a transaction has ended, once its moment is over.
    pub(super) fn tell_decided(
        &mut self,
        to: NodeId,
        txn: Version,
        decision: Decision,
        common: &Common,
        cx: &mut Cx<'_, C>,
    ) {
        if C::GROUPS_DECIDE
            && let Decision::Commit(at) = decision
            && !self.is_over(at, common, cx)
        {
            self.commit_waits.tell(at.us, txn, to);
            return self.watch_clock(common, cx);
        }
        cx.send(to, Message::Reply(Reply::Decided { txn, decision }));
    }

    /// Sets the timer for the first time that something waits for.
    pub(super) fn watch_clock(&mut self, common: &Common, cx: &mut Cx<'_, C>) {
        let first = self.commit_waits.first_us().into_iter().chain(self.parked.first_us()).min();
        let Some(us) = first.filter(|us| self.watched_us.is_none_or(|watched| *us < watched))
        else {
            return;
        };
        self.watched_us = Some(us);
        let left_us = us.saturating_add(1).saturating_sub(common.clock(cx).earliest_us);
        cx.set_timer(Timer::Clock, core::time::Duration::from_micros(left_us));
    }

    /// Looks at the clock after each event, because timers are late by up to a millisecond.
    pub(super) fn look_at_clock(&mut self, common: &mut Common, cx: &mut Cx<'_, C>) {
        if self.watched_us.is_some_and(|us| common.is_over(us, cx)) {
            self.on_clock(common, cx);
        }
    }

    /// A time may be over that something waits for.
    pub(super) fn on_clock(&mut self, common: &mut Common, cx: &mut Cx<'_, C>) {
        self.watched_us = None;
        let earliest_us = common.clock(cx).earliest_us;
        self.parked.release_before(earliest_us);
        while let Some((txn, waiting)) = self.commit_waits.pop_before(earliest_us) {
            let decided = common.table.decision(txn);
            let begun = || self.resolutions.get(&txn).and_then(Resolution::commits_at);
            let Some(decision) = decided.or_else(|| begun().map(Decision::Commit)) else {
                continue;
            };
            self.conclude(txn, decision, common, cx);
            for to in waiting {
                cx.send(to, Message::Reply(Reply::Decided { txn, decision }));
            }
            if decided.is_some() {
                self.finish(txn, decision, common, cx);
            }
        }
        self.take_in_all(common, cx);
        self.watch_clock(common, cx);
    }
}
