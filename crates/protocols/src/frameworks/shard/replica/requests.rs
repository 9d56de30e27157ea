//! How a leader handles requests of clients and of other shards.
//!
//! These handlers are methods of the leader, because a request can begin or end a transaction.

use std::sync::Arc;

use serried_actor::ClockInterval;
use serried_model::{NodeId, Version};

use super::super::calls::Pieces;
use super::super::control::{Control, Snapshots};
use super::super::message::{
    AdmissionWindow, AsOf, Decision, Led, Message, Refusal, Reply, Request, Run,
};
use super::super::program::Program;
use super::super::stamp::Stamp;
use super::Cx;
use super::admission::Admission;
use super::leader::{Leader, OPEN_AT_MOST};
use super::open::{Open, Standing, Taken};
use super::sets::in_use;
use super::shard::Common;
use super::snapshots::{Glanced, SnapshotRequest, glance_all};
use crate::frameworks::replicated_log::ReplicatedLog;

impl<C: Control> Leader<C> {
    /// Handles a request, or returns it if it has to wait.
    pub(super) fn on_request(
        &mut self,
        from: NodeId,
        request: Request,
        log: &mut ReplicatedLog<Led>,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
        let waits = self.handle(from, request, log, common, cx);
        self.take_in_all(common, cx);
        waits
    }

    fn handle(
        &mut self,
        from: NodeId,
        request: Request,
        log: &mut ReplicatedLog<Led>,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
        if let Request::Resolve { txn } = request
            && from.is_coordinator()
            && let Some(first) = self.is_to_commit_as(txn, common)
        {
            // Its client may know it as committed already. The sender asks again.
            self.resolve(first, common, cx);
            return None;
        }
        if let Request::Inspect { txn } | Request::Resolve { txn } = request
            && self.is_unknown(txn, common)
        {
            // It is about to be refused. The log or the window makes the refusal permanent.
            match self.admission(txn, common, cx) {
                Admission::Taken | Admission::Late => {}
                Admission::Waits => return Some(request),
                Admission::Unclear => return None,
                Admission::Skewed { ahead_us } => {
                    self.bar(txn, Refusal::ClockSkew { ahead_us }, from, common, cx);
                    return None;
                }
            }
        }
        match request {
            Request::Shot(_) | Request::Run(_) => return self.on_shot(from, request, common, cx),
            Request::Kept { txn } => {
                let has_committed = matches!(common.table.decision(txn), Some(Decision::Commit(_)));
                let kept = common.table.kept(txn, cx.store()).filter(|_| has_committed);
                self.reply_confirmed(from, Reply::Kept { txn, kept }, log, cx);
            }
            // The client asks again.
            Request::Set if !self.is_everywhere(common) => {}
            Request::Set => {
                let (version, set) = in_use(common);
                self.reply_confirmed(from, Reply::Set { version, set }, log, cx);
            }
            Request::Register { number, set, replaces } => {
                self.on_register((from, number), set, replaces, log, common, cx);
            }
            Request::Install { version, set } => {
                self.on_install(from, version, set, log, common, cx)
            }
            Request::Move { txn, to } => self.on_move(from, txn, to, common, cx),
            Request::End { txn, decision } => self.on_end(from, txn, decision, common, cx),
            Request::Snapshot { number, as_of, keys } => {
                let request = SnapshotRequest { from, number, as_of, keys };
                return self.on_snapshot(request, log, common, cx).map(Request::from);
            }
            Request::Alive(txns) => {
                let now = cx.now();
                for txn in txns {
                    self.open.entry(txn).and_modify(|open| open.heard = now);
                }
            }
            Request::Inspect { txn } => self.on_inspect(from, txn, common, cx),
            Request::Resolve { txn } => self.on_resolve(from, txn, common, cx),
            Request::Over { below_us } => self.others.are_over(from.partition(), below_us),
            Request::Prepared { txn, validity } => {
                self.on_prepared(from, (txn, validity), common, cx);
            }
        }
        None
    }

    /// Whether neither this transaction nor one that committed under its version is known.
    fn is_unknown(&self, txn: Version, common: &Common) -> bool {
        common.table.decision_of_version(txn).is_none()
            && self.refusals.reason(txn).is_none()
            && !self.open.contains_key(&txn)
    }

    fn on_shot(
        &mut self,
        client: NodeId,
        request: Request,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
        let (shot, run) = match &request {
            Request::Shot(shot) => (shot, None),
            Request::Run(run) => (&run.shot, Some(run)),
            _ => return None,
        };
        let txn = shot.txn;
        if shot.participants.is_some()
            && let Some(reply) = self.answered.get(txn)
        {
            cx.send(client, Message::Reply(reply.clone()));
            return None;
        }
        if let Some(decision) = common.table.decision(txn) {
            self.tell_decided(client, txn, decision, common, cx);
            return None;
        }
        if let Some(reason) = self.refusals.reason(txn) {
            common.say(client, Reply::Refused { txn, reason }, cx);
            return None;
        }
        if self.refusals.waits_to_be_barred(txn, client) {
            return None;
        }
        let now = cx.now();
        if !self.open.contains_key(&txn) {
            match self.admission(txn, common, cx) {
                Admission::Taken if self.open.len() >= OPEN_AT_MOST => return None,
                Admission::Taken => drop(self.open.insert(txn, Open::new(now))),
                Admission::Waits => return Some(request),
                Admission::Unclear => return None,
                Admission::Late => {
                    let reason = late(txn, common.table.window());
                    common.say(client, Reply::Refused { txn, reason }, cx);
                    return None;
                }
                Admission::Skewed { ahead_us } => {
                    self.bar(txn, Refusal::ClockSkew { ahead_us }, client, common, cx);
                    return None;
                }
            }
        }
        let certain_us = || C::GROUPS_DECIDE.then(|| common.clock(cx).earliest_us);
        let clock_us = certain_us().or_else(|| common.time(cx).map(|time| time.earliest_us));
        let clock_us = clock_us.unwrap_or_else(|| cx.clock().midpoint_us());
        let open = self.open.get_mut(&txn).expect("the transaction is open");
        open.heard = now;
        match open.take(client, shot, clock_us) {
            Taken::New => {
                cx.charge(shot.keys());
                match self.program(txn, run, common) {
                    Ok(program) => {
                        let at = common.store_and_clock(cx);
                        let table = &mut common.table;
                        self.controlled.execute(shot, program, table, at);
                    }
                    Err(reason) => self.discard(txn, reason, common, cx),
                }
            }
            Taken::Inherited => self.answer(txn, common, cx),
            Taken::Known if C::GROUPS_DECIDE && shot.participants.is_some() => {
                self.report_again(txn, common, cx);
            }
            Taken::Known => {}
            Taken::Answered(reply) => cx.send(client, Message::Reply(reply)),
        }
        None
    }

    /// The program of a shot that has just arrived, if it has one.
    ///
    /// # Errors
    /// If it is one of another set of procedures, or of none.
    fn program(
        &mut self,
        txn: Version,
        run: Option<&Run>,
        common: &Common,
    ) -> Result<Option<Arc<dyn Program>>, Refusal> {
        let Some(Run { call, pieces, is_refused, .. }) = run else { return Ok(None) };
        let open = self.open.get_mut(&txn).expect("the transaction is open");
        open.call.get_or_insert_with(|| call.clone());
        open.is_refused |= *is_refused;
        if pieces.is_empty() {
            return Ok(None); // The part consists of rows, whatever set is in use by now.
        }
        let set = common.table.set();
        let version = set.map_or(0, |set| set.version);
        let Some(set) = set.filter(|set| set.version == call.set) else {
            return Err(Refusal::OtherSet { version });
        };
        if !set.accepts(call.procedure, pieces, &mut open.pieces) {
            return Err(Refusal::CONFLICT); // No correct client sends this.
        }
        Ok(Some(Arc::new(Pieces::new(set.clone(), call.procedure, pieces.clone()))))
    }

    fn on_move(
        &mut self,
        from: NodeId,
        txn: Version,
        to: Stamp,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        if let Some(decision) = common.table.decision(txn) {
            return self.tell_decided(from, txn, decision, common, cx);
        }
        let Some(open) = self.open.get_mut(&txn) else { return };
        open.heard = cx.now();
        // If the part is not ready, the move happens when it is.
        open.mover = Some((from, to));
        self.answer(txn, common, cx);
    }

    fn on_end(
        &mut self,
        from: NodeId,
        txn: Version,
        decision: Decision,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        if from.is_coordinator() {
            self.answered.remove(txn);
        }
        let Some(open) = self.open.get_mut(&txn) else {
            // It must not begin here. A transaction before or after the window may begin
            // nevertheless, and has the same outcome: another shard has refused it permanently, or
            // it was abandoned before any part was prepared.
            let AdmissionWindow { from_us, to_us, .. } = common.table.window();
            let within = (from_us..to_us).contains(&txn.timestamp_us);
            if within && decision == Decision::Abort && self.is_unknown(txn, common) {
                self.refuse(txn, Refusal::CONFLICT, common, cx);
            }
            return self.acknowledgements.add(from, txn, cx);
        };
        // Other shards do not wait for that.
        if from.is_coordinator() && !open.enders.contains(&from) {
            open.enders.push(from);
        }
        match open.standing {
            Standing::Executing if decision == Decision::Abort => {
                self.discard(txn, Refusal::CONFLICT, common, cx);
            }
            // A correct sender knows no part that would commit.
            Standing::Executing => {}
            _ => self.decide(txn, decision, common, cx),
        }
    }

    /// Answers a read-only transaction, or parks it until another one ends. Returns it if it has to
    /// wait for the log.
    fn on_snapshot(
        &mut self,
        request: SnapshotRequest,
        log: &mut ReplicatedLog<Led>,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) -> Option<SnapshotRequest> {
        match (C::SNAPSHOTS, request.as_of) {
            (Snapshots::OfKnown, AsOf::Slot(_)) | (Snapshots::AtTimestamps, AsOf::Time(_)) => {}
            _ => return None, // No client sends this request.
        }
        if let AsOf::Time(txn) = request.as_of {
            if C::GROUPS_DECIDE && txn.timestamp_us > common.clock(cx).latest_us {
                self.wait_to_read(txn.timestamp_us, request, common, cx);
                return None;
            }
            match self.admission(txn, common, cx) {
                // The versions that it reads may still be kept.
                Admission::Taken | Admission::Late => {}
                Admission::Waits => return Some(request),
                Admission::Unclear => return None,
                Admission::Skewed { ahead_us } => {
                    // It only reads, so the refusal need not be permanent.
                    let (number, reason) = (request.number, Refusal::ClockSkew { ahead_us });
                    cx.send(request.from, Message::Reply(Reply::Unread { number, reason }));
                    return None;
                }
            }
        }
        if !self.has_proposed_all() {
            // The control may treat a transaction as ended whose end is not in the log. The
            // confirmation must not precede it.
            return Some(request);
        }
        let SnapshotRequest { from, number, as_of, ref keys } = request;
        cx.charge(keys.len());
        let at = common.store_and_clock(cx);
        let glanced = self
            .controlled
            .act(&mut common.table, at, |control, desk| glance_all(control, as_of, keys, desk));
        let (known, clock_us) = (common.known, common.clock(cx).earliest_us);
        match (glanced, as_of) {
            (Glanced::Waits(writer), _) => self.parked.insert(writer, request),
            (Glanced::WaitsUntil(us), _) => {
                self.parked.insert_until(us, request);
                self.watch_clock(common, cx);
            }
            (Glanced::Found(found), _) => {
                let reply = Reply::Snapshot { number, known, clock_us, found: Ok(found) };
                self.reply_confirmed(from, reply, log, cx);
            }
            // Nothing depends on a refusal, so the leader need not confirm its leadership.
            (Glanced::Refused(unseen), AsOf::Slot(_)) => {
                let reply = Reply::Snapshot { number, known, clock_us, found: Err(unseen) };
                cx.send(from, Message::Reply(reply));
            }
            (Glanced::Refused(_), AsOf::Time(_)) => {
                // All versions are kept that a transaction could read that is not late.
                let reason = Refusal::Late { from_us: common.table.window().from_us };
                cx.send(from, Message::Reply(Reply::Unread { number, reason }));
            }
        }
        None
    }

    /// A read is at a time that is still to come, by a clock that is uncertain. It waits until it may be that time, and is
    /// admitted only then. Otherwise it would move the window ahead, and the next leader's transactions would have to begin
    /// after it. So would those that commit here later, and wait for their moments. If the time is too far ahead, the client
    /// asks again.
    fn wait_to_read(
        &mut self,
        us: u64,
        request: SnapshotRequest,
        common: &Common,
        cx: &mut Cx<'_, C>,
    ) {
        let ClockInterval { earliest_us, latest_us } = common.clock(cx);
        let is_certain = common.time(cx).is_some();
        if is_certain && us > latest_us.saturating_add(self.windows.bound_us()) {
            let ahead_us = us.saturating_sub(latest_us).cast_signed();
            let (number, reason) = (request.number, Refusal::ClockSkew { ahead_us });
            return cx.send(request.from, Message::Reply(Reply::Unread { number, reason }));
        }
        self.parked.insert_until(us.saturating_sub(latest_us - earliest_us), request);
        self.watch_clock(common, cx);
    }

    /// Answers read-only transactions that waited for others to end, or for a time.
    pub(super) fn answer_parked(
        &mut self,
        log: &mut ReplicatedLog<Led>,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        while self.has_proposed_all()
            && let Some(request) = self.parked.pop()
        {
            if let Some(waits) = self.on_snapshot(request, log, common, cx) {
                return self.parked.put_back(waits);
            }
        }
    }
}

/// The reason for refusing a transaction that began before the window.
pub(super) fn late(txn: Version, window: AdmissionWindow) -> Refusal {
    let AdmissionWindow { from_us, forget_us, .. } = window;
    match txn.timestamp_us < forget_us {
        true => Refusal::Forgotten { from_us },
        false => Refusal::Late { from_us },
    }
}
