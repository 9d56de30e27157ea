//! A network that is moved by hand.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{
    Actor, ClockInterval, Context, Coordinate, NodeSet, Random, Recover, Timestamp,
};
use serried_model::{Family, NodeId, TxnId};

use super::node::{Moment, NoClient, Node, Nodes, Slot, Turn, client_id};

/// A message with its sender and its receiver.
pub(crate) type Envelope<M> = (NodeId, NodeId, M);

/// More messages than any test needs.
const MESSAGES_AT_MOST: usize = 1_000_000;

/// Replicas, clients and the messages between them. A test delivers, loses, repeats and reorders the messages, lets time pass
/// so that timers go off, and stops replicas or replaces their disks. Nothing happens by itself.
///
/// What an actor sends is under way at once, even if its log is [held](Node::hold_log): a test sees what the actor sends
/// before its records are durable.
pub(crate) struct Net<R: Recover, C = NoClient<<R as Actor>::Message>>
where
    C: Actor<Message = R::Message>,
{
    pub(crate) nodes: Nodes<R>,
    pub(crate) clients: Nodes<C>,
    /// The messages that are under way, the oldest first.
    pub(crate) network: VecDeque<Envelope<R::Message>>,
    /// What the clients have told their sessions.
    pub(crate) outputs: Vec<(NodeId, C::Output)>,
    /// What was delivered to clients that the test plays.
    pub(crate) delivered: Vec<Envelope<R::Message>>,
    /// Copies of the messages that did not wait until what was appended before them is durable.
    pub(crate) early: Vec<Envelope<R::Message>>,
    /// All records that were ever appended, and by whom. Some may be trimmed or lost by now.
    pub(crate) appended: Vec<(NodeId, R::Record)>,
    /// What is sent from the first to the second is lost.
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    /// What is delivered to or from these machines is lost, and their timers don't go off by themselves.
    pub(crate) away: NodeSet,
    /// Messages to and from these machines stay under way, and their timers don't go off by themselves.
    pub(crate) held: NodeSet,
    /// The replicas that have crashed and are not back.
    down: BTreeSet<NodeId>,
    /// Which messages arrive when they are sent, so that they are no part of a test's script.
    pub(crate) is_instant: fn(&R::Message) -> bool,
    /// The clients' timers do not go off by themselves.
    pub(crate) clients_idle: bool,
    /// Records are durable as soon as they are appended, and not only after the event, unless a log is held.
    pub(crate) durable_at_once: bool,
    /// Messages may be rejected, because the test forges some.
    pub(crate) forged: bool,
    /// The time since the beginning, in microseconds.
    pub(crate) now: u64,
    /// How long each event takes, in microseconds.
    pub(crate) tick: u64,
    /// The wall-clock time of the beginning, in microseconds.
    epoch_us: i64,
    /// By how much the clocks of these are ahead, in microseconds.
    pub(crate) ahead_us: BTreeMap<NodeId, i64>,
    random: Random,
}

impl<R: Recover, C: Actor<Message = R::Message>> Net<R, C> {
    /// Replicas of so many partitions, `members` of each. They have not started.
    pub(crate) fn new(
        partitions: u16,
        members: usize,
        mut replica: impl FnMut(NodeId) -> R,
    ) -> Net<R, C> {
        let ids = (0..partitions).flat_map(|partition| {
            (0..members).map(move |member| NodeId::replica(partition, member))
        });
        Net {
            nodes: Nodes(ids.map(|id| (id, Node::new(replica(id)))).collect()),
            clients: Nodes(BTreeMap::new()),
            network: VecDeque::new(),
            outputs: Vec::new(),
            delivered: Vec::new(),
            early: Vec::new(),
            appended: Vec::new(),
            cut: BTreeSet::new(),
            away: NodeSet::EMPTY,
            held: NodeSet::EMPTY,
            down: BTreeSet::new(),
            is_instant: |_| false,
            clients_idle: false,
            durable_at_once: true,
            forged: false,
            now: 0,
            tick: 0,
            epoch_us: 0,
            ahead_us: BTreeMap::new(),
            random: Random::new(1),
        }
    }

    /// Adds so many clients, numbered from 0.
    pub(crate) fn with_clients(mut self, clients: u64, mut client: impl FnMut(u64) -> C) -> Self {
        let nodes = (0..clients).map(|number| (client_id(number), Node::new(client(number))));
        self.clients.0.extend(nodes);
        self
    }

    // What participants do.

    /// Runs `act` at a replica.
    pub(crate) fn act<T>(
        &mut self,
        slot: impl Slot,
        act: impl FnOnce(&mut R, &mut Context<'_, R>) -> T,
    ) -> T {
        let id = slot.id();
        self.now += self.tick;
        let (now, clock, durable_at_once) =
            (self.timestamp(), self.clock_of(id), self.durable_at_once);
        let moment = Moment { now, clock, durable_at_once, random: &mut self.random };
        let node = &mut self.nodes[id];
        let Turn { value, sent, outputs: _, appended, rejected, awaits_durable } =
            node.turn(id, moment, act);
        node.awaits_durable |= awaits_durable;
        let is_durable = node.awaits_durable && node.held_from.is_none();
        self.appended.extend(appended.into_iter().map(|record| (id, record)));
        self.end_event(id, sent, rejected);
        if is_durable {
            self.tell_durable(id);
        }
        value
    }

    /// Runs `act` at a client.
    pub(crate) fn act_client<T>(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut C, &mut Context<'_, C>) -> T,
    ) -> T {
        self.now += self.tick;
        let (now, clock, durable_at_once) =
            (self.timestamp(), self.clock_of(id), self.durable_at_once);
        let moment = Moment { now, clock, durable_at_once, random: &mut self.random };
        let Turn { value, sent, outputs, appended, rejected, .. } =
            self.clients[id].turn(id, moment, act);
        assert!(appended.is_empty(), "clients keep nothing");
        self.outputs.extend(outputs.into_iter().map(|output| (id, output)));
        self.end_event(id, sent, rejected);
        value
    }

    fn end_event(
        &mut self,
        id: NodeId,
        sent: Vec<(NodeId, R::Message, bool)>,
        rejected: Option<String>,
    ) {
        assert!(self.forged || rejected.is_none(), "{rejected:?}: nobody forges messages here");
        for (to, message, is_early) in sent {
            if is_early {
                self.early.push((id, to, message.clone()));
            }
            self.post((id, to, message));
        }
    }

    fn post(&mut self, envelope: Envelope<R::Message>) {
        let (from, to, message) = &envelope;
        let is_down = self.down.contains(from) || self.down.contains(to);
        if is_down || self.cut.contains(&(*from, *to)) {
            return;
        }
        if (self.is_instant)(message) {
            self.deliver(envelope);
        } else {
            self.network.push_back(envelope);
        }
    }

    fn tell_durable(&mut self, id: NodeId) {
        self.nodes[id].awaits_durable = false;
        self.act(id, |replica, cx| replica.on_durable(cx));
    }

    /// A session of a client asks for something.
    pub(crate) fn operate<F: Family>(&mut self, number: u64, txn: u64, operation: F::Operation)
    where
        C: Coordinate<F>,
    {
        self.act_client(client_id(number), |client, cx| {
            client.on_operation(TxnId(txn), operation, cx);
        });
    }

    /// Starts all replicas.
    pub(crate) fn start(&mut self) {
        for id in self.ids() {
            self.act(id, R::on_start);
        }
    }

    /// The replicas.
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// One of the numbers that a replica shows of its state.
    pub(crate) fn gauge(&self, slot: impl Slot, name: &str) -> u64 {
        self.nodes[slot].gauge(name)
    }

    // What the network does.

    /// Delivers a message, which need not have been under way.
    pub(crate) fn deliver(&mut self, (from, to, message): Envelope<R::Message>) {
        if self.down.contains(&to) || self.away.contains(from) || self.away.contains(to) {
            return;
        }
        if self.nodes.contains_key(&to) {
            self.act(to, |replica, cx| replica.on_message(from, message, cx));
        } else if self.clients.contains_key(&to) {
            self.act_client(to, |client, cx| client.on_message(from, message, cx));
        } else {
            self.delivered.push((from, to, message));
        }
    }

    /// Takes the first of the messages under way of which `wanted` holds.
    pub(crate) fn take_first(
        &mut self,
        wanted: impl Fn(&Envelope<R::Message>) -> bool,
    ) -> Option<Envelope<R::Message>> {
        let at = self.network.iter().position(wanted)?;
        self.network.remove(at)
    }

    /// Takes all messages under way of which `wanted` holds.
    pub(crate) fn take(
        &mut self,
        wanted: impl Fn(&Envelope<R::Message>) -> bool,
    ) -> Vec<Envelope<R::Message>> {
        let (taken, left) = core::mem::take(&mut self.network).into_iter().partition(wanted);
        self.network = left;
        Vec::from_iter::<VecDeque<_>>(taken)
    }

    /// Delivers the first message that is not held; false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        self.step_where(|_| true)
    }

    /// Delivers the first message that is not held and of which `wanted` holds; false if there is none.
    pub(crate) fn step_where(&mut self, wanted: impl Fn(&Envelope<R::Message>) -> bool) -> bool {
        let held = self.held;
        let moves =
            |(from, to, _): &Envelope<R::Message>| !held.contains(*from) && !held.contains(*to);
        let Some(envelope) = self.take_first(|envelope| moves(envelope) && wanted(envelope)) else {
            return false;
        };
        self.deliver(envelope);
        true
    }

    /// Delivers all messages that are not held, and what comes of them.
    pub(crate) fn settle(&mut self) {
        self.settle_where(|_| true);
    }

    /// Delivers all messages of which `wanted` holds, and those that come of them.
    pub(crate) fn settle_where(&mut self, wanted: impl Fn(&Envelope<R::Message>) -> bool) {
        for _ in 0..MESSAGES_AT_MOST {
            if !self.step_where(&wanted) {
                return;
            }
        }
        panic!("messages beget messages: {:?}", self.network);
    }

    /// Delivers a message while nothing else is under way, and returns what that leads its receiver to send.
    pub(crate) fn answers(
        &mut self,
        from: NodeId,
        to: impl Slot,
        message: R::Message,
    ) -> Vec<Envelope<R::Message>> {
        let before = core::mem::take(&mut self.network);
        self.deliver((from, to.id(), message));
        core::mem::replace(&mut self.network, before).into()
    }

    // What time does.

    /// What the clocks that are right read, in microseconds.
    pub(crate) fn clock_us(&self) -> u64 {
        self.now.saturating_add_signed(self.epoch_us)
    }

    /// Sets all clocks to this, in microseconds, without any time passing.
    pub(crate) fn set_clock_us(&mut self, clock_us: u64) {
        self.epoch_us = clock_us.cast_signed() - self.now.cast_signed();
    }

    /// The time as actors see it.
    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp(self.now * 1000)
    }

    fn clock_of(&self, id: NodeId) -> ClockInterval {
        let ahead_us = self.ahead_us.get(&id).copied().unwrap_or(0);
        let us = self.clock_us().saturating_add_signed(ahead_us);
        ClockInterval { earliest_us: us, latest_us: us }
    }

    /// Lets time pass without anything happening.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time.as_micros() as u64;
    }

    /// Lets time pass without anything happening, while the clocks stand still.
    pub(crate) fn wait_with_clocks_stopped(&mut self, time: Duration) {
        let clock_us = self.clock_us();
        self.wait(time);
        self.set_clock_us(clock_us);
    }

    /// Lets time pass: timers go off when they are due, in that order, and messages arrive at once.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time.as_micros() as u64;
        self.settle();
        while self.fire_next(Timestamp(end * 1000)) {
            self.settle();
        }
        self.now = self.now.max(end);
    }

    /// Fires the timer that is due first; false if none is due until `end`.
    fn fire_next(&mut self, end: Timestamp) -> bool {
        let runs = |id| !self.away.contains(id) && !self.held.contains(id);
        let replica = self.nodes.next_timer(runs).filter(|due| due.at <= end);
        let client = self.clients.next_timer(|_| !self.clients_idle).filter(|due| due.at <= end);
        let times = [replica.map(|due| due.at), client.map(|due| due.at)];
        let Some(first) = times.into_iter().flatten().min() else { return false };
        self.now = self.now.max(first.0.div_ceil(1000));
        match (replica, client) {
            (Some(due), _) if due.at == first => self.fire(due.id, due.timer),
            (_, Some(due)) => self.fire_client(due.id, due.timer),
            (_, None) => unreachable!("one of them is first"),
        }
        true
    }

    /// Fires a replica's timer now, whether it is set or not.
    pub(crate) fn fire(&mut self, slot: impl Slot, timer: R::Timer) {
        let id = slot.id();
        self.nodes[id].timers.remove(&timer);
        self.act(id, |replica, cx| replica.on_timer(timer, cx));
    }

    /// Fires this timer now at all replicas at which it is set.
    pub(crate) fn fire_where_set(&mut self, timer: R::Timer) {
        for id in self.ids() {
            if self.nodes[id].timers.contains_key(&timer) {
                self.fire(id, timer);
            }
        }
    }

    /// Fires a client's timer now, whether it is set or not.
    pub(crate) fn fire_client(&mut self, id: NodeId, timer: C::Timer) {
        self.clients[id].timers.remove(&timer);
        self.act_client(id, |client, cx| client.on_timer(timer, cx));
    }

    // What happens to replicas.

    /// A replica stops, until it is [restarted](Net::restart) or [replaced](Net::replace). Messages to it are lost.
    pub(crate) fn crash(&mut self, slot: impl Slot) {
        let id = slot.id();
        self.down.insert(id);
        self.nodes[id].timers.clear();
        self.network.retain(|(_, to, _)| *to != id);
    }

    /// A client stops for good. What it has sent is still under way.
    pub(crate) fn leave(&mut self, client: NodeId) {
        self.down.insert(client);
        self.clients[client].timers.clear();
        self.network.retain(|(_, to, _)| *to != client);
    }

    /// Fires the timers of a replica that are due now.
    pub(crate) fn fire_due(&mut self, slot: impl Slot) {
        let id = slot.id();
        let now = self.timestamp();
        let due = self.nodes[id].timers.iter().filter(|(_, at)| **at <= now);
        for timer in due.map(|(timer, _)| *timer).collect::<Vec<_>>() {
            self.fire(id, timer);
        }
    }

    /// Fires the timers of clients that are due now.
    pub(crate) fn fire_due_clients(&mut self) {
        let now = self.timestamp();
        let due = |client: &Node<C>| {
            let due = client.timers.iter().filter(|(_, at)| **at <= now);
            due.map(|(timer, _)| *timer).collect::<Vec<_>>()
        };
        let all: Vec<_> = self.clients.iter().map(|(id, client)| (*id, due(client))).collect();
        for (id, timers) in all {
            for timer in timers {
                self.fire_client(id, timer);
            }
        }
    }

    /// Everything that a replica has appended becomes durable.
    pub(crate) fn flush(&mut self, slot: impl Slot) {
        let id = slot.id();
        self.nodes[id].held_from = None;
        if self.nodes[id].awaits_durable {
            self.tell_durable(id);
        }
    }

    /// A replica starts again as `fresh`, with its store and the records that are durable.
    pub(crate) fn restart(&mut self, slot: impl Slot, fresh: R) {
        let id = slot.id();
        self.down.remove(&id);
        self.nodes[id].recover(fresh);
        self.act(id, R::on_start);
    }

    /// A replica's disk is lost, and `fresh` starts in its place.
    pub(crate) fn replace(&mut self, slot: impl Slot, fresh: R) {
        let id = slot.id();
        self.down.remove(&id);
        self.nodes[id] = Node::new(fresh);
        self.act(id, R::rejoin);
        self.act(id, R::on_start);
    }
}
