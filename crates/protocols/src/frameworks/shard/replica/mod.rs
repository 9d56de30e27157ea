//! The server side: a replica of one shard.

mod leader;
mod open;
mod redirect;
mod refusals;
mod requests;
mod resolve;
mod snapshots;
#[cfg(test)]
mod tests;
mod windows;

use core::time::Duration;
use std::collections::VecDeque;

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store};
use serried_model::{NodeId, Value};
use serried_parts::encode_cell;

use super::Mutation;
use super::control::Control;
use super::message::{Led, Message, Record, Reply, Request};
use super::row::{Cell, Row};
use super::sound;
use crate::Mutated;
use crate::frameworks::replicated_log::{self, Ballot, Host, Log};
use leader::Shard;

/// How often what was applied is put into the store, and what is not needed any more trimmed.
const STORE_EVERY: Duration = Duration::from_millis(20);
/// How many keys at a time; more where there are very many.
const STORED_AT_ONCE: usize = 512;
/// For how many times of [`STORE_EVERY`] a key stays out of the store after a change.
const STORED_AFTER: usize = 50;
/// How many times of [`STORE_EVERY`] lie between marks in the log.
const TRIM_EVERY: usize = 10;
/// How many requests wait for a leader; more are forgotten, and come again.
const PENDING_AT_MOST: usize = 4096;
/// How long clients may wait to be told that it is known how their transactions ended.
const ACKNOWLEDGED_AFTER: Duration = Duration::from_millis(20);

/// One replica of a shard.
#[derive(Debug)]
pub struct Replica<C: Control> {
    log: Log<Led>,
    shard: Shard<C>,
    /// Requests that nobody leads for, or that the leader does not take yet.
    pending: VecDeque<(NodeId, Request)>,
    /// The ballot in which it leads, as far as the shard was told.
    leads: Option<Ballot>,
    /// Where the durable log was at each of the last times that something was stored.
    positions: VecDeque<u64>,
    /// Until it is trimmed.
    untrimmed: usize,
}

/// What a replica does by the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// That of the log.
    Log(replicated_log::Timer),
    /// Put into the store what was applied.
    Store,
    /// Look after transactions that don't end.
    Watch,
    /// Tell clients that it is known how their transactions ended.
    Acknowledge,
}

type Cx<'a, C> = Context<'a, Replica<C>>;

impl<C: Control> Host for Replica<C> {
    type Entry = Led;

    fn message(message: replicated_log::Message<Led>) -> Message {
        Message::Log(message)
    }

    fn record(record: Record) -> Record {
        record
    }

    fn timer(timer: replicated_log::Timer) -> Timer {
        Timer::Log(timer)
    }
}

impl<C: Control> Replica<C> {
    /// An empty replica, which does nothing wrong but `mutation`.
    pub fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica<C> {
        Replica {
            log: Log::new(id, group.clone(), settings),
            shard: Shard::new(id, group, settings, mutation),
            pending: VecDeque::new(),
            leads: None,
            positions: VecDeque::new(),
            untrimmed: 0,
        }
    }

    fn on_request(&mut self, from: NodeId, request: Request, cx: &mut Cx<'_, C>) {
        // Requests that wait come first. But a client that says it is alive must not be taken for silent meanwhile.
        let waits = !self.pending.is_empty() && !matches!(request, Request::Alive(_));
        if waits || !self.shard.has_proposed_all() {
            return self.wait(from, request);
        }
        if let Some(request) = self.shard.on_request(from, request, &mut self.log, cx) {
            self.wait(from, request);
        }
    }

    fn wait(&mut self, from: NodeId, request: Request) {
        if self.pending.len() < PENDING_AT_MOST {
            self.pending.push_back((from, request));
        }
    }

    /// After anything has happened: what it has led to is put into the log, and those who wait may have to
    /// wait for another leader.
    fn after(&mut self, cx: &mut Cx<'_, C>) {
        let leads = self.log.leads();
        if leads != self.leads {
            self.leads = leads;
            if let (None, Some(leader)) = (leads, self.log.leader(cx.now())) {
                self.shard.redirect(leader, cx);
            }
            self.shard.lead(leads, &mut self.log, cx);
        }
        if leads.is_none() {
            if let Some(leader) = self.log.leader(cx.now()) {
                for (from, request) in self.pending.drain(..) {
                    cx.send_before_durable(leader, Message::Forward { from, request });
                }
            }
            return;
        }
        self.shard.begin(&mut self.log, cx);
        loop {
            self.propose(cx);
            self.shard.answer_parked(&mut self.log, cx);
            if !self.shard.has_proposed_all() {
                return;
            }
            let Some((from, request)) = self.pending.pop_front() else { return };
            let taken = self.shard.window();
            if let Some(request) = self.shard.on_request(from, request, &mut self.log, cx) {
                self.pending.push_front((from, request));
                self.propose(cx);
                if self.shard.window() == taken {
                    return; // Until what it waits for is chosen.
                }
            }
        }
    }

    /// Puts into the log what has to be there; alone, it comes of it at once.
    fn propose(&mut self, cx: &mut Cx<'_, C>) {
        self.shard.propose(&mut self.log, cx);
        while self.log.is_alone() && self.log.has_queued() {
            self.log.choose_alone(&mut self.shard, cx);
            self.shard.propose(&mut self.log, cx);
        }
    }

    fn store_some(&mut self, cx: &mut Cx<'_, C>) {
        self.positions.push_back(cx.log_position());
        if self.positions.len() > STORED_AFTER {
            let before = self.positions.pop_front().expect("there are many");
            if !cx.store().is_behind() {
                let table = self.shard.table_mut();
                let mut left = STORED_AT_ONCE.max(table.cells().unstored() / STORED_AFTER);
                while left > 0 && table.cells().needs_log_from().is_some_and(|at| at < before) {
                    table.store_some(1, cx.store());
                    left -= 1;
                }
            }
        }
        self.untrimmed += 1;
        if self.untrimmed >= TRIM_EVERY {
            self.untrimmed = 0;
            self.log.trim(&self.shard, cx);
        }
        cx.set_timer(Timer::Store, STORE_EVERY);
    }
}

impl<C: Control> Actor for Replica<C> {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_, C>) {
        self.shard.load(cx);
        self.log.on_start(&mut self.shard, cx);
        self.after(cx);
        cx.set_timer(Timer::Store, STORE_EVERY);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_, C>) {
        cx.charge(1);
        if !sound::to_replica(from, &message, self.shard.id.partition(), &self.shard.group) {
            return cx.reject(|| format!("{from} has sent a replica what no correct sender sends"));
        }
        match message {
            Message::Request(request) => self.on_request(from, request, cx),
            // It would not do to send it back and forth.
            Message::Forward { .. }
                if self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id()) => {}
            Message::Forward { from, request } => self.on_request(from, request, cx),
            Message::Reply(reply) => self.on_reply(from, reply, cx),
            Message::Log(message) => self.log.on_message(from, message, &mut self.shard, cx),
            Message::Time(time) => self.shard.on_time(from, time, cx),
        }
        self.after(cx);
    }

    fn on_durable(&mut self, cx: &mut Cx<'_, C>) {
        self.log.on_durable(&mut self.shard, cx);
        self.after(cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, C>) {
        match timer {
            Timer::Log(timer) => self.log.on_timer(timer, &mut self.shard, cx),
            Timer::Store => return self.store_some(cx),
            Timer::Watch => self.shard.watch(cx),
            Timer::Acknowledge => return self.shard.acknowledge(cx),
        }
        self.after(cx);
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let cells = self.shard.table().cells();
        each("resident_keys", cells.resident() as u64);
        each("unstored_keys", cells.unstored() as u64);
        each("log_slots", self.log.kept() as u64);
        each("applied_slots", self.log.applied());
        each("leads", u64::from(self.log.leads().is_some()));
        each("catching_up", u64::from(self.log.is_behind()));
        self.shard.gauges(each);
    }
}

impl<C: Control> Replica<C> {
    /// Another shard's leader answers.
    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_, C>) {
        if !from.is_coordinator() && self.shard.serves() {
            self.shard.on_reply(from, reply, cx);
        }
    }
}

impl<C: Control> Recover for Replica<C> {
    fn replay(&mut self, record: Record, _: &mut dyn Store) {
        self.log.replay(record);
    }

    fn rejoin(&mut self, cx: &mut Cx<'_, C>) {
        self.log.rejoin(cx);
    }

    fn on_stop(&mut self, cx: &mut Cx<'_, C>) {
        self.log.stop(cx);
        self.after(cx);
    }

    fn may_stop(&self) -> bool {
        self.log.may_stop()
    }

    fn standing(&self) -> Standing {
        self.log.standing()
    }

    fn stored(value: &Value) -> Vec<u8> {
        encode_cell(&Cell::Row(Row::holding(value.clone())))
    }
}
