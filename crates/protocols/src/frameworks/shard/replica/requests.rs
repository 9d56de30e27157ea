//! What a leader does about requests.

use serried_actor::Context;
use serried_model::{NodeId, Version};

use super::super::control::{Control, Event};
use super::super::message::{Decision, Led, Message, Refusal, Reply, Request, Shot, Window};
use super::super::stamp::Stamp;
use super::Replica;
use super::leader::{OPEN_AT_MOST, Shard};
use super::open::{Open, Standing, Taken};
use super::snapshots::SnapshotRequest;
use super::windows::Admission;
use crate::frameworks::replicated_log::ReplicatedLog;

type Cx<'a, C> = Context<'a, Replica<C>>;

impl<C: Control> Shard<C> {
    /// Does what is wanted, or returns it if it has to wait.
    pub(super) fn on_request(
        &mut self,
        from: NodeId,
        request: Request,
        log: &mut ReplicatedLog<Led>,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
        let waits = self.handle(from, request, log, cx);
        self.take_in_all(cx);
        waits
    }

    fn handle(
        &mut self,
        from: NodeId,
        request: Request,
        log: &mut ReplicatedLog<Led>,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
        if let Request::Resolve { txn } = request
            && from.is_coordinator()
            && let Some(first) = self.is_to_commit_as(txn)
        {
            // It may have committed already, as far as its client knows. Whoever asks, asks again.
            self.resolve(first, cx);
            return None;
        }
        if let Request::Inspect { txn } | Request::Resolve { txn } = request
            && self.is_unknown(txn)
        {
            // It is about to be refused. The log or the window makes the refusal permanent.
            match self.admission(txn, cx) {
                Admission::Taken | Admission::Late => {}
                Admission::Waits => return Some(request),
                Admission::Unclear => return None,
                Admission::Skewed { ahead_us } => {
                    self.bar(txn, Refusal::ClockSkew { ahead_us }, from, cx);
                    return None;
                }
            }
        }
        match request {
            Request::Shot(shot) => return self.on_shot(from, shot, cx).map(Request::Shot),
            Request::Move { txn, to } => self.on_move(from, txn, to, cx),
            Request::End { txn, decision } => self.on_end(from, txn, decision, cx),
            Request::Snapshot { number, as_of, keys } => {
                return self.on_snapshot(SnapshotRequest { from, number, as_of, keys }, log, cx);
            }
            Request::Alive(txns) => {
                let now = cx.now();
                for txn in txns {
                    self.leader_mut().open.entry(txn).and_modify(|open| open.heard = now);
                }
            }
            Request::Inspect { txn } => self.on_inspect(from, txn, cx),
            Request::Resolve { txn } => self.on_resolve(from, txn, cx),
            Request::Over { below_us } => {
                self.leader_mut().over.insert(from.partition(), below_us);
            }
        }
        None
    }

    /// Whether nothing is known of a transaction, or of another that has committed under its version.
    fn is_unknown(&mut self, txn: Version) -> bool {
        self.table.decision_of_version(txn).is_none()
            && self.refusal(txn).is_none()
            && !self.leader_mut().open.contains_key(&txn)
    }

    fn on_shot(&mut self, client: NodeId, shot: Shot, cx: &mut Cx<'_, C>) -> Option<Shot> {
        let txn = shot.txn;
        if let Some(decision) = self.table.decision(txn) {
            cx.send(client, Message::Reply(Reply::Decided { txn, decision }));
            return None;
        }
        if let Some(reason) = self.refusal(txn) {
            self.say(client, Reply::Refused { txn, reason }, cx);
            return None;
        }
        if self.waits_to_be_barred(txn, client) {
            return None;
        }
        let now = cx.now();
        if !self.leader_mut().open.contains_key(&txn) {
            match self.admission(txn, cx) {
                Admission::Taken if self.leader_mut().open.len() >= OPEN_AT_MOST => return None,
                Admission::Taken => drop(self.leader_mut().open.insert(txn, Open::new(now))),
                Admission::Waits => return Some(shot),
                Admission::Unclear => return None,
                Admission::Late => {
                    let reason = self.late(txn);
                    self.say(client, Reply::Refused { txn, reason }, cx);
                    return None;
                }
                Admission::Skewed { ahead_us } => {
                    self.bar(txn, Refusal::ClockSkew { ahead_us }, client, cx);
                    return None;
                }
            }
        }
        let clock_us = self.time(cx).map(|time| time.earliest_us);
        let clock_us = clock_us.unwrap_or_else(|| cx.clock().midpoint_us());
        let open = self.leader_mut().open.get_mut(&txn).expect("it is open");
        open.heard = now;
        match open.take(client, &shot, clock_us) {
            Taken::New => {
                cx.charge(shot.keys());
                self.leader_mut().executed += 1;
                let (number, is_last) = (shot.number, shot.participants.is_some());
                self.with_control(cx, |control, desk| control.execute(&shot, desk));
                self.count_delay(txn, number, is_last);
            }
            Taken::Inherited => self.answer(txn, cx),
            Taken::Known => {}
            Taken::Answered(executed) => {
                cx.send(client, Message::Reply(Reply::Executed(executed)));
            }
        }
        None
    }

    /// The reason for refusing a transaction that began before the window.
    pub(super) fn late(&self, txn: Version) -> Refusal {
        let Window { from_us, forget_us, .. } = self.table.window();
        match txn.timestamp_us < forget_us {
            true => Refusal::Forgotten { from_us },
            false => Refusal::Late { from_us },
        }
    }

    /// Counts shots that other transactions keep from being answered.
    fn count_delay(&mut self, txn: Version, number: u16, is_last: bool) {
        let leader = self.leader_mut();
        let at_once = leader.events.iter().any(|event| match event {
            Event::Released(of, released) => *of == txn && *released == number,
            Event::Settled(of) => *of == txn && is_last,
            Event::Refused(of, _) => *of == txn,
            Event::Executed(_) => false,
        });
        leader.delayed += u64::from(!at_once);
    }

    fn on_move(&mut self, from: NodeId, txn: Version, to: Stamp, cx: &mut Cx<'_, C>) {
        if let Some(decision) = self.table.decision(txn) {
            return cx.send(from, Message::Reply(Reply::Decided { txn, decision }));
        }
        let Some(open) = self.leader_mut().open.get_mut(&txn) else { return };
        open.heard = cx.now();
        // If it is not ready, that is done once it is.
        open.mover = Some((from, to));
        self.answer(txn, cx);
    }

    fn on_end(&mut self, from: NodeId, txn: Version, decision: Decision, cx: &mut Cx<'_, C>) {
        let leader = self.leader_mut();
        let Some(open) = leader.open.get_mut(&txn) else {
            // It is not to begin here. Others that began before or after the window, and do begin, come to the same end:
            // somebody has refused them for ever, or they were given up before anything was ready to commit.
            let Window { from_us, to_us, .. } = self.table.window();
            let within = (from_us..to_us).contains(&txn.timestamp_us);
            if within && decision == Decision::Abort && self.is_unknown(txn) {
                self.refuse(txn, Refusal::CONFLICT, cx);
            }
            return self.acknowledge_soon(from, txn, cx);
        };
        if !open.enders.contains(&from) {
            open.enders.push(from);
        }
        match open.standing {
            Standing::Executing if decision == Decision::Abort => {
                self.discard(txn, Refusal::CONFLICT, cx);
            }
            // Nobody knows of a part that would commit.
            Standing::Executing => {}
            _ => self.decide(txn, decision, cx),
        }
    }

    /// Refuses a transaction that is not ready to commit and never will be.
    pub(super) fn discard(&mut self, txn: Version, reason: Refusal, cx: &mut Cx<'_, C>) {
        self.with_control(cx, |control, desk| control.discard(txn, desk));
        self.refuse(txn, reason, cx);
    }
}
