//! The server side: it puts operations into the log, and keeps them while there is no leader.

use std::collections::VecDeque;

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store};
use serried_model::{NodeId, Value};
use serried_parts::encode_cell;

use super::Mutation;
use super::message::{Message, Record, Request, Update};
use super::object::{Object, Operation};
use super::objects::{Asked, Client, Objects};
use super::state::State;
use crate::Mutated;
use crate::frameworks::replicated_log::{
    self, Ballot, Clocks, Host, ReplicatedLog, Span, Time, WriteBack,
};

/// How many requests wait for a leader. Others are dropped, and clients send them again.
const PENDING_AT_MOST: usize = 4096;

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica<O: Object> {
    log: ReplicatedLog<Update<O::Operation>>,
    objects: Objects<O>,
    /// Requests that wait for a leader, or that the leader has no room for.
    pending: VecDeque<Client<O::Operation>>,
    /// The ballot in which it leads, as far as the objects know.
    leads: Option<Ballot>,
    clock_bound_us: u64,
    clocks: Clocks,
    group: Group,
    write_back: WriteBack,
    mutation: Mutated<Mutation>,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// A timer of the log.
    Log(replicated_log::Timer),
    /// Put into the store what was applied.
    Store,
}

type Cx<'a, O> = Context<'a, Replica<O>>;

impl<O: Object> Host for Replica<O> {
    type Entry = Update<O::Operation>;

    fn message(message: replicated_log::Message<Self::Entry>) -> Self::Message {
        Message::Log(message)
    }

    fn record(record: Self::Record) -> Self::Record {
        record
    }

    fn timer(timer: replicated_log::Timer) -> Timer {
        Timer::Log(timer)
    }
}

impl<O: Object> Replica<O> {
    /// An empty replica, which does nothing wrong but `mutation`.
    pub fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica<O> {
        let mut log = ReplicatedLog::new(id, group.clone(), settings);
        if mutation.is(Mutation::AcknowledgedByLeaderAlone) {
            log = log.with_quorum(1);
        }
        Replica {
            log,
            objects: Objects::new(settings),
            pending: VecDeque::new(),
            leads: None,
            clock_bound_us: settings.clock_bound_ms.saturating_mul(1000),
            clocks: Clocks::new(group.size(), id.member()),
            group,
            write_back: WriteBack::default(),
            mutation,
        }
    }

    fn on_request(&mut self, client: Client<O::Operation>, cx: &mut Cx<'_, O>) {
        // Requests that wait come first.
        let at_once = self.pending.is_empty() && self.log.leads().is_some();
        let waits = if at_once { self.propose(client, cx) } else { Some(client) };
        waits.into_iter().for_each(|client| self.wait(client));
    }

    fn wait(&mut self, client: Client<O::Operation>) {
        if self.pending.len() < PENDING_AT_MOST {
            self.pending.push_back(client);
        }
    }

    /// Puts a request into the log, or its refusal. Returns the request if there is no room, or the time is not known yet. If
    /// it is not clear whether the client's clock is off, since the clocks of two replicas of three disagree, the request
    /// gets no answer, and the client sends it again.
    ///
    /// A leader can't know whether the log already contains an update that it refuses, or will contain it under another
    /// leader, because the request may have been sent twice. So the order in the log decides, and the client is told once
    /// that is known.
    fn propose(
        &mut self,
        mut client: Client<O::Operation>,
        cx: &mut Cx<'_, O>,
    ) -> Option<Client<O::Operation>> {
        let entry = match &client.asked {
            Asked::Read(_) => None,
            Asked::Operation(request) if !request.operation.is_update() => None,
            Asked::Operation(request) => {
                let time = self.clocks.time(cx.clock().midpoint_us(), cx.now());
                let Some(Span { earliest_us, latest_us }) = time else { return Some(client) };
                let (us, bound_us) = (request.token.timestamp_us, self.clock_bound_us);
                let is_refused = us > latest_us.saturating_add(bound_us);
                if !is_refused && us > earliest_us.saturating_add(bound_us) {
                    return None;
                }
                let ahead_us = i64::try_from(us.saturating_sub(latest_us)).unwrap_or(i64::MAX);
                client.ahead_us = is_refused.then_some(ahead_us);
                let Request { key, token, settled, operation, .. } = request.clone();
                let operation = if is_refused { Operation::REFUSAL } else { operation };
                Some(Update { key, token, settled, operation })
            }
        };
        let Some(slot) = self.log.propose(entry, cx) else { return Some(client) };
        self.objects.wait(slot, client);
        None
    }

    /// The log may have a new leader, or more room. Proposes requests that wait, or passes them to the leader.
    fn after_log(&mut self, cx: &mut Cx<'_, O>) {
        let leads = self.log.leads();
        if leads != self.leads {
            self.leads = leads;
            if leads.is_some() {
                self.ask_clocks(cx);
            }
            for client in self.objects.lead(leads) {
                self.wait(client);
            }
        }
        if leads.is_some() {
            while let Some(client) = self.pending.pop_front() {
                if let Some(client) = self.propose(client, cx) {
                    self.pending.push_front(client);
                    break;
                }
            }
            self.log.choose_alone(&mut self.objects, cx);
        } else if let Some(leader) = self.log.leader(cx.now()) {
            for Client { node: client, asked, .. } in self.pending.drain(..) {
                let message = match asked {
                    Asked::Operation(request) => Message::Forward { client, request },
                    Asked::Read(read) => Message::ForwardRead { client, read },
                };
                cx.send_before_durable(leader, message);
            }
        }
    }

    /// Asks the other replicas what their clocks say, unless they were asked lately.
    fn ask_clocks(&mut self, cx: &mut Cx<'_, O>) {
        let Some(question) = self.clocks.question(self.group.round_trip(), cx) else { return };
        let others = self.group.all().without([cx.id()].into_iter().collect());
        cx.broadcast(cx.id().partition(), others, Message::Time(question));
    }

    fn on_time(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_, O>) {
        if !self.group.contains(from) || from.partition() != cx.id().partition() {
            return cx.reject(|| format!("{from} has sent what only replicas of a partition send"));
        }
        if let Some(answer) = self.clocks.on_time(from, time, cx) {
            cx.send_before_durable(from, Message::Time(answer));
        }
    }

    fn store_some(&mut self, cx: &mut Cx<'_, O>) {
        if self.write_back.write(self.objects.cells_mut(), cx) {
            self.log.trim(&self.objects, cx);
        }
        WriteBack::schedule(Timer::Store, cx);
    }
}

impl<O: Object> Actor for Replica<O> {
    type Message = Message<O::Operation, O::Found>;
    type Timer = Timer;
    type Record = Record<O::Operation>;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_, O>) {
        self.log.on_start(&mut self.objects, cx);
        self.ask_clocks(cx);
        self.after_log(cx);
        WriteBack::schedule(Timer::Store, cx);
    }

    fn on_message(&mut self, from: NodeId, message: Self::Message, cx: &mut Cx<'_, O>) {
        cx.charge(1);
        match message {
            Message::Request(request) => self.on_request(Client::new(from, request), cx),
            // It is not passed on again: two replicas could send it back and forth.
            Message::Forward { .. } | Message::ForwardRead { .. }
                if self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id()) => {}
            Message::Forward { client, request } => {
                self.on_request(Client::new(client, request), cx);
            }
            Message::Read(read) => self.on_request(Client::reads(from, read), cx),
            Message::ForwardRead { client, read } => {
                self.on_request(Client::reads(client, read), cx);
            }
            Message::Log(message) => {
                self.log.on_message(from, message, &mut self.objects, cx);
            }
            Message::Time(time) => self.on_time(from, time, cx),
            Message::Reply { .. } | Message::Found { .. } => {
                cx.reject(|| format!("{from} has sent a replica what only clients are sent"));
            }
        }
        self.after_log(cx);
    }

    fn on_durable(&mut self, cx: &mut Cx<'_, O>) {
        self.log.on_durable(&mut self.objects, cx);
        self.after_log(cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, O>) {
        match timer {
            Timer::Log(timer) => {
                self.log.on_timer(timer, &mut self.objects, cx);
                self.after_log(cx);
            }
            Timer::Store => {
                if self.leads.is_some() {
                    self.ask_clocks(cx);
                }
                self.store_some(cx);
            }
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("resident_keys", self.objects.cells().resident() as u64);
        each("unstored_keys", self.objects.cells().unstored() as u64);
        each("log_slots", self.log.kept() as u64);
        each("applied_slots", self.log.applied());
        each("leads", u64::from(self.log.leads().is_some()));
        each("catching_up", u64::from(self.log.is_behind()));
    }
}

impl<O: Object> Recover for Replica<O> {
    fn replay(&mut self, record: Self::Record, _: &mut dyn Store) {
        self.log.replay(record);
    }

    fn rejoin(&mut self, cx: &mut Cx<'_, O>) {
        if !self.mutation.is(Mutation::RejoinsAtOnce) {
            self.log.rejoin(cx);
        }
    }

    fn on_stop(&mut self, cx: &mut Cx<'_, O>) {
        self.log.stop(cx);
        self.after_log(cx);
    }

    fn may_stop(&self) -> bool {
        self.log.may_stop()
    }

    fn standing(&self) -> Standing {
        self.log.standing()
    }

    fn stored(value: &Value) -> Vec<u8> {
        encode_cell(&State::of(O::holding(value.clone())))
    }
}
