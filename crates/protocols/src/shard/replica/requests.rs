//! What a leader does about requests.

use serried_actor::Context;
use serried_model::{NodeId, Version};

use super::super::control::{Control, Event};
use super::super::message::{Decision, Led, Message, Refusal, Reply, Request, Shot};
use super::super::stamp::Stamp;
use super::Replica;
use super::leader::Shard;
use super::open::{Open, Standing, Taken};
use super::snapshots::SnapshotRequest;
use crate::replicated_log::Log;

type Cx<'a, C> = Context<'a, Replica<C>>;

impl<C: Control> Shard<C> {
    /// Does what is wanted, or returns it if it has to wait.
    pub(super) fn on_request(
        &mut self,
        from: NodeId,
        request: Request,
        log: &mut Log<Led>,
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
        log: &mut Log<Led>,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
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
            // What is refused has to be in the window, so that it stays refused.
            Request::Inspect { txn } | Request::Resolve { txn } if self.is_ahead(txn, cx) => {
                self.extend_window(txn.timestamp_us, cx);
                return Some(request);
            }
            Request::Inspect { txn } => self.on_inspect(from, txn, cx),
            Request::Resolve { txn } => self.on_resolve(from, txn, cx),
            Request::Over { below_us } => {
                self.leader_mut().over.insert(from.partition(), below_us);
            }
        }
        None
    }

    /// Whether a transaction begins after the window, and no clock is so far off that it never should.
    pub(super) fn is_ahead(&self, txn: Version, cx: &Cx<'_, C>) -> bool {
        txn.timestamp_us >= self.table.window().to_us && self.ahead_us(txn, cx) <= self.bound_us()
    }

    /// By how much it begins after now, in microseconds.
    pub(super) fn ahead_us(&self, txn: Version, cx: &Cx<'_, C>) -> i64 {
        txn.timestamp_us as i64 - cx.clock().latest_us as i64
    }

    fn bound_us(&self) -> i64 {
        self.settings.clock_bound_ms as i64 * 1000
    }

    fn on_shot(&mut self, client: NodeId, shot: Shot, cx: &mut Cx<'_, C>) -> Option<Shot> {
        let txn = shot.txn;
        let reply = |reply: Reply| Message::Reply(reply);
        if let Some(decision) = self.table.decision(txn) {
            cx.send(client, reply(Reply::Decided { txn, decision }));
            return None;
        }
        if let Some(reason) = self.refusal(txn) {
            cx.send_before_durable(client, reply(Reply::Refused { txn, reason }));
            return None;
        }
        let (now, clock_us) = (cx.now(), cx.clock().midpoint_us());
        if !self.leader_mut().open.contains_key(&txn) {
            let window = self.table.window();
            let late = txn.timestamp_us < window.from_us;
            if self.is_ahead(txn, cx) {
                self.extend_window(txn.timestamp_us, cx);
                return Some(shot);
            }
            if late || txn.timestamp_us >= window.to_us {
                let forgotten = txn.timestamp_us < window.forget_us;
                let from_us = window.from_us;
                let reason = match late {
                    true if forgotten => Refusal::Forgotten { from_us },
                    true => Refusal::Late { from_us },
                    false => Refusal::ClockSkew { ahead_us: self.ahead_us(txn, cx) },
                };
                cx.send_before_durable(client, reply(Reply::Refused { txn, reason }));
                return None;
            }
            self.leader_mut().open.insert(txn, Open::new(now));
        }
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
            Taken::Answered(executed) => cx.send(client, reply(Reply::Executed(executed))),
        }
        None
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
            let known = self.table.decision(txn).is_some() || self.refusal(txn).is_some();
            if !known && decision == Decision::Abort {
                let reason = Refusal::Conflict { keys: Vec::new(), after_us: 0 };
                self.refuse(txn, reason, cx);
            }
            return self.acknowledge_soon(from, txn, cx);
        };
        if !open.enders.contains(&from) {
            open.enders.push(from);
        }
        match open.standing {
            Standing::Executing => {
                assert!(decision == Decision::Abort, "transaction {txn} is not ready to commit");
                self.discard(txn, cx);
            }
            _ => self.decide(txn, decision, cx),
        }
    }

    /// Refuses a transaction that is not ready to commit and never will be.
    pub(super) fn discard(&mut self, txn: Version, cx: &mut Cx<'_, C>) {
        self.with_control(cx, |control, desk| control.discard(txn, desk));
        self.refuse(txn, Refusal::Conflict { keys: Vec::new(), after_us: 0 }, cx);
    }
}
