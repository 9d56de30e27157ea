//! The server side: a replica of one shard.

mod acknowledgements;
mod admission;
mod answered;
mod commit_waits;
mod controlled;
mod deciding;
mod leader;
mod open;
mod other_shards;
mod recovery;
mod refusals;
mod requests;
mod resolution;
mod sets;
mod shard;
mod snapshots;
#[cfg(test)]
mod tests;
mod uncertain;

use std::collections::VecDeque;

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store};
use serried_model::{NodeId, Value};
use serried_parts::encode_cell;

pub(super) use admission::WINDOW_US;

use super::Mutation;
use super::control::Control;
use super::message::{Led, Message, Record, Request};
use super::row::{Cell, Row};
use crate::Mutated;
use crate::frameworks::replicated_log::{self, Ballot, Host, ReplicatedLog, WriteBack};
use shard::Shard;

/// How many requests wait for a leader. Others are dropped, and clients send them again.
const PENDING_AT_MOST: usize = 4096;

/// One replica of a shard.
#[derive(Debug)]
pub struct Replica<C: Control> {
    log: ReplicatedLog<Led>,
    shard: Shard<C>,
    /// Requests that wait for a leader, or that the leader can't handle yet.
    pending: VecDeque<(NodeId, Request)>,
    /// The ballot in which it leads, as the shard was last notified.
    leads: Option<Ballot>,
    write_back: WriteBack,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// A timer of the log.
    Log(replicated_log::Timer),
    /// Write applied state to the store.
    Store,
    /// Resolve transactions that do not end.
    Watch,
    /// Acknowledge the ends of transactions.
    Acknowledge,
    /// A time is over that a transaction waits for.
    Clock,
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
    /// Creates an empty replica. `mutation` is the only deliberate mistake in it.
    pub fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica<C> {
        Replica::with(id, group, settings, mutation, false)
    }

    /// The same for a keyspace of procedures.
    pub fn running_calls(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica<C> {
        Replica::with(id, group, settings, mutation, true)
    }

    fn with(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
        runs_calls: bool,
    ) -> Replica<C> {
        Replica {
            log: ReplicatedLog::new(id, group.clone(), settings),
            shard: Shard::new(id, group, settings, mutation, runs_calls),
            pending: VecDeque::new(),
            leads: None,
            write_back: WriteBack::default(),
        }
    }

    fn on_request(&mut self, from: NodeId, request: Request, cx: &mut Cx<'_, C>) {
        // Waiting requests come first. But a client that reports open transactions must not count
        // as silent meanwhile.
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

    /// Runs after every event. Proposes the entries that resulted from it, and forwards waiting
    /// requests to another leader if there is one.
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
        self.shard.look_at_clock(cx);
        loop {
            self.propose(cx);
            let taken = self.shard.window();
            self.shard.answer_parked(&mut self.log, cx);
            if !self.shard.has_proposed_all() {
                self.propose(cx);
                if self.shard.window() == taken {
                    return; // They wait until their entry is chosen.
                }
                continue;
            }
            let Some((from, request)) = self.pending.pop_front() else { return };
            if let Some(request) = self.shard.on_request(from, request, &mut self.log, cx) {
                self.pending.push_front((from, request));
                self.propose(cx);
                if self.shard.window() == taken {
                    return; // It waits until its entry is chosen.
                }
            }
        }
    }

    /// Proposes the waiting entries. At a single replica they are chosen at once, and may lead to
    /// more.
    fn propose(&mut self, cx: &mut Cx<'_, C>) {
        self.shard.propose(&mut self.log, cx);
        while self.log.is_alone() && self.log.has_queued() {
            self.log.choose_alone(&mut self.shard, cx);
            self.shard.propose(&mut self.log, cx);
        }
    }

    fn store_some(&mut self, cx: &mut Cx<'_, C>) {
        if self.write_back.write(self.shard.cells_mut(), cx) {
            self.log.trim(&self.shard, cx);
        }
        WriteBack::schedule(Timer::Store, cx);
    }
}

impl<C: Control> Actor for Replica<C> {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_, C>) {
        if self.log.is_alone() && cx.store().ends_with_run() {
            cx.store().scan(None, 1, &mut |_, _| panic!("what is stored would not be read"));
            self.shard.cells_mut().keep_all();
        }
        self.shard.load(cx.store());
        self.log.on_start(&mut self.shard, cx);
        self.after(cx);
        WriteBack::schedule(Timer::Store, cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_, C>) {
        cx.charge(1);
        if !self.shard.is_sound(from, &message) {
            return cx.reject(|| {
                format!("{from} has sent a message that no correct node sends to a replica")
            });
        }
        match message {
            Message::Request(request) => self.on_request(from, request, cx),
            // A forwarded request is not forwarded again: two replicas could send it back and
            // forth.
            Message::Forward { .. }
                if self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id()) => {}
            Message::Forward { from, request } => self.on_request(from, request, cx),
            Message::Reply(reply) => self.shard.on_reply(from, reply, cx),
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
            Timer::Clock => self.shard.on_clock(cx),
        }
        self.after(cx);
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let cells = self.shard.cells();
        each("resident_keys", cells.resident() as u64);
        each("unstored_keys", cells.unstored() as u64);
        each("log_slots", self.log.kept() as u64);
        each("applied_slots", self.log.applied());
        each("leads", u64::from(self.log.leads().is_some()));
        each("catching_up", u64::from(self.log.is_behind()));
        self.shard.gauges(each);
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
