//! Morty on a network that is moved by hand: the messages of each rule, one by one.

mod admission;
mod ahead_of_log;
mod back_together;
mod by_hand;
mod commit;
mod copying;
mod deleting;
mod execution;
mod forged;
mod forgotten;
mod history;
mod loaded;
mod merging;
mod missed_delete;
mod partitions;
mod read_nothing;
mod recovery;
mod rejoining;
mod returning;
mod torn_copy;
mod truncation;
mod views;
mod world;

use core::time::Duration;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use serried_actor::{
    Actor, ClockInterval, Context, Coordinate, Durable, Effect, Group, MemoryStore, NodeSet,
    Random, Recover, Settings, Store, Timestamp,
};
use serried_model::transactions::{Operation, Outcome, Output};
use serried_model::{Key, NodeId, ReadStamp, TxnId, Value, Version, Write};

use super::Options;
use super::coordinator::execution::REVISIONS_AT_ONCE;
use super::coordinator::{Coordinator, Timer};
use super::message::{
    CatchingUp, Decision, Message, Proposal, Recovering, Rejoining, Reply, Request, Status,
    Truncating, View, Vote,
};
use super::record::Record;
use super::replica::{Replica, Timer as ReplicaTimer};

type Envelope = (NodeId, NodeId, Message);

/// Three replicas, any number of coordinators, and the messages between them, delivered in order.
struct Net {
    replicas: Vec<Replica>,
    coordinators: Vec<(Coordinator, Vec<Timer>)>,
    network: VecDeque<Envelope>,
    /// Messages for or from these replicas stay where they are.
    held: NodeSet,
    outputs: Vec<(u64, Output)>,
    /// The transaction that each client has open, and the stamps of its reads.
    open: BTreeMap<u64, BTreeMap<Key, u32>>,
    /// What each replica has made durable.
    logs: [Vec<Record>; 3],
    stores: [TestStore; 3],
    /// When the timers of each replica are due, in microseconds. Only [`Net::pass`] has them go off.
    timers: [BTreeMap<ReplicaTimer, u64>; 3],
    options: Options,
    /// How many messages each replica has reported as such that no correct sender sends.
    rejected: [u64; 3],
    random: Random,
    now: u64,
}

/// A store that says that it is behind if it is told to.
#[derive(Default)]
struct TestStore {
    store: MemoryStore,
    is_behind: bool,
}

impl Store for TestStore {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.store.get(key)
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.store.put(key, value);
    }

    fn is_behind(&self) -> bool {
        self.is_behind
    }

    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        self.store.scan(after, bytes, each)
    }
}

fn replica(group: &Group, member: usize, options: Options) -> Replica {
    Replica::new(NodeId::replica(0, member), group.clone(), &Settings::default(), options)
}

/// A coordinator that knows the replicas' clocks, and so prepares without asking.
fn at_home(group: &Group, options: Options) -> Coordinator {
    let mut coordinator = Coordinator::new(group.clone(), &Settings::default(), options);
    coordinator.hears_time(0, Timestamp(0));
    coordinator
}

fn coordinator_id(client: u64) -> NodeId {
    NodeId(NodeId::FIRST_COORDINATOR + client)
}

impl Net {
    fn new(options: Options, clients: usize) -> Net {
        let group = Group::new(3, Duration::from_millis(1));
        Net {
            replicas: (0..3).map(|member| replica(&group, member, options)).collect(),
            coordinators: (0..clients).map(|_| (at_home(&group, options), vec![])).collect(),
            network: VecDeque::new(),
            held: NodeSet::EMPTY,
            outputs: Vec::new(),
            open: BTreeMap::new(),
            logs: Default::default(),
            stores: Default::default(),
            timers: Default::default(),
            rejected: [0; 3],
            options,
            random: rand_pcg(),
            now: 1000,
        }
    }

    fn clock(&mut self) -> (Timestamp, ClockInterval) {
        self.now += 1;
        let us = self.now;
        (Timestamp(us * 1000), ClockInterval { earliest_us: us, latest_us: us })
    }

    /// Has a client ask for something, in a new transaction if the last one has ended.
    fn operate(&mut self, client: u64, operation: Operation) {
        if let Entry::Vacant(closed) = self.open.entry(client) {
            closed.insert(BTreeMap::new());
            self.ask(client, Operation::Begin { only_reads: false });
        }
        self.ask(client, operation);
    }

    fn ask(&mut self, client: u64, operation: Operation) {
        let (now, clock) = self.clock();
        let mut effects = Vec::new();
        let id = coordinator_id(client);
        let durable =
            Durable { store: &mut self.stores[0], log_position: 0, durable_position: u64::MAX };
        let mut cx = Context::new(id, now, clock, &mut self.random, &mut effects, durable);
        self.coordinators[client as usize].0.on_operation(TxnId(client), operation, &mut cx);
        self.carry_out(client, effects);
    }

    fn carry_out(&mut self, client: u64, effects: Vec<Effect<Coordinator>>) {
        let from = coordinator_id(client);
        for effect in effects {
            match effect {
                Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
                    self.network.push_back((from, to, message));
                }
                Effect::Broadcast { to, message, .. } => {
                    let each =
                        to.members().map(|to| (from, NodeId::replica(0, to), message.clone()));
                    self.network.extend(each);
                }
                Effect::SetTimer { timer, .. } => {
                    self.coordinators[client as usize].1.push(timer);
                }
                Effect::CancelTimer(timer) => {
                    self.coordinators[client as usize].1.retain(|other| *other != timer);
                }
                Effect::Output((_, output)) => {
                    match &output {
                        Output::Value(read) | Output::Rewind(read) => {
                            let stamps = self.open.get_mut(&client).unwrap();
                            stamps.insert(read.key.clone(), read.stamp);
                        }
                        Output::Outcome(_) => drop(self.open.remove(&client)),
                        Output::Began(_) => {}
                        Output::Ending(_) | Output::Past(_) => {}
                    }
                    self.outputs.push((client, output));
                }
                Effect::Append(()) | Effect::TrimLog(_) => {
                    unreachable!("coordinators keep nothing")
                }
            }
        }
    }

    /// Delivers one message.
    fn deliver(&mut self, (from, to, message): Envelope) {
        if to.is_coordinator() {
            let (now, clock) = self.clock();
            let client = to.0 - NodeId::FIRST_COORDINATOR;
            let mut effects = Vec::new();
            let durable =
                Durable { store: &mut self.stores[0], log_position: 0, durable_position: u64::MAX };
            let mut cx = Context::new(to, now, clock, &mut self.random, &mut effects, durable);
            self.coordinators[client as usize].0.on_message(from, message, &mut cx);
            self.carry_out(client, effects);
            return;
        }
        self.act(to.member(), |replica, cx| replica.on_message(from, message, cx));
    }

    /// Has a replica do something.
    fn act(&mut self, member: usize, does: impl FnOnce(&mut Replica, &mut Context<'_, Replica>)) {
        let (now, clock) = self.clock();
        let id = NodeId::replica(0, member);
        let mut effects = Vec::new();
        let store = &mut self.stores[member];
        let durable = Durable {
            store,
            log_position: self.logs[member].len() as u64,
            durable_position: u64::MAX,
        };
        let mut cx = Context::new(id, now, clock, &mut self.random, &mut effects, durable);
        does(&mut self.replicas[member], &mut cx);
        self.rejected[member] += u64::from(cx.take_rejected().is_some());
        for effect in effects {
            match effect {
                Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
                    self.network.push_back((id, to, message));
                }
                Effect::Broadcast { to, message, .. } => {
                    let each = to.members().map(|to| (id, NodeId::replica(0, to), message.clone()));
                    self.network.extend(each);
                }
                Effect::Append(record) => self.logs[member].push(record),
                Effect::SetTimer { timer, after } => {
                    self.timers[member].insert(timer, self.now + after.as_micros() as u64);
                }
                Effect::CancelTimer(timer) => drop(self.timers[member].remove(&timer)),
                Effect::TrimLog(_) | Effect::Output(()) => {}
            }
        }
    }

    /// Has all replicas do what they do by the clock from now on.
    fn start(&mut self) {
        for member in 0..self.replicas.len() {
            self.act(member, Replica::on_start);
        }
    }

    /// A replica forgets all that is not in its log or its store.
    fn restart(&mut self, member: usize) {
        let group = Group::new(3, Duration::from_millis(1));
        self.replicas[member] = replica(&group, member, self.options);
        self.timers[member].clear();
        for record in &self.logs[member] {
            self.replicas[member].replay(record.clone(), &mut self.stores[member]);
        }
        self.act(member, Replica::on_start);
    }

    /// A replica is replaced by one that has nothing.
    fn replace(&mut self, member: usize) {
        let group = Group::new(3, Duration::from_millis(1));
        self.replicas[member] = replica(&group, member, self.options);
        self.timers[member].clear();
        self.logs[member].clear();
        self.stores[member] = TestStore::default();
        self.act(member, Replica::rejoin);
        self.act(member, Replica::on_start);
    }

    /// Lets time pass: the timers of replicas that are not held go off as they are due, and everything
    /// that is not held is delivered.
    fn pass(&mut self, duration: Duration) {
        let until = self.now + duration.as_micros() as u64;
        loop {
            self.settle();
            let due = |(member, timers): (usize, &BTreeMap<ReplicaTimer, u64>)| {
                let (timer, at) = timers.iter().min_by_key(|(timer, at)| (**at, **timer))?;
                let runs = !self.held.contains(NodeId::replica(0, member)) && *at <= until;
                runs.then_some((*at, member, *timer))
            };
            let Some((at, member, timer)) = self.timers.iter().enumerate().filter_map(due).min()
            else {
                break;
            };
            self.timers[member].remove(&timer);
            self.now = self.now.max(at);
            self.act(member, |replica, cx| replica.on_timer(timer, cx));
        }
        self.now = self.now.max(until);
    }

    /// A replica gets a message; returns what it sends.
    fn tell(&mut self, from: NodeId, member: usize, message: Message) -> Vec<(NodeId, Message)> {
        assert!(self.network.is_empty(), "what was sent before: {:?}", self.network);
        self.deliver((from, NodeId::replica(0, member), message));
        self.network.drain(..).map(|(_, to, message)| (to, message)).collect()
    }

    fn gauge(&self, member: usize, wanted: &str) -> u64 {
        let mut found = None;
        self.replicas[member].gauges(&mut |name, value| {
            if name == wanted {
                found = Some(value);
            }
        });
        found.expect("a gauge of that name")
    }

    /// Delivers everything that is not held, until nothing moves.
    fn settle(&mut self) {
        while let Some(position) = self
            .network
            .iter()
            .position(|(from, to, _)| !self.held.contains(*from) && !self.held.contains(*to))
        {
            let envelope = self.network.remove(position).unwrap();
            self.deliver(envelope);
        }
    }

    /// As [`Net::settle`], and returns each message that was delivered as one line.
    fn trace(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some((from, to, message)) = self.network.pop_front() {
            lines.push(format!("{from} -> {to} {}", name(&message)));
            self.deliver((from, to, message));
        }
        lines
    }

    fn fire(&mut self, client: u64, wanted: impl Fn(&Timer) -> bool) {
        self.now += 10_000_000;
        self.fire_now(client, wanted);
    }

    /// One of a client's timers goes off.
    fn fire_now(&mut self, client: u64, wanted: impl Fn(&Timer) -> bool) {
        let timers = &mut self.coordinators[client as usize].1;
        let position = timers.iter().position(wanted).expect("the timer is set");
        let timer = timers.remove(position);
        let (now, clock) = self.clock();
        let mut effects = Vec::new();
        let id = coordinator_id(client);
        let durable =
            Durable { store: &mut self.stores[0], log_position: 0, durable_position: u64::MAX };
        let mut cx = Context::new(id, now, clock, &mut self.random, &mut effects, durable);
        self.coordinators[client as usize].0.on_timer(timer, &mut cx);
        self.carry_out(client, effects);
    }

    fn get(&mut self, client: u64, key: &str) {
        self.operate(client, Operation::Get { key: Key::from(key) });
    }

    fn put(&mut self, client: u64, key: &str, value: &str) {
        self.operate(client, Operation::Put(write(key, value)));
    }

    fn commit(&mut self, client: u64, reads: &[&str], writes: &[(&str, &str)]) {
        let stamps = self.open.get(&client).cloned().unwrap_or_default();
        let stamp =
            |key: &&str| ReadStamp { key: Key::from(*key), stamp: stamps[&Key::from(*key)] };
        let reads = reads.iter().map(stamp).collect();
        let writes = writes.iter().map(|(key, value)| write(key, value)).collect();
        self.operate(client, Operation::Commit { reads, writes });
    }

    /// What `client` was told since the last call, but for its version.
    fn told(&mut self, client: u64) -> Vec<String> {
        let told = self.outputs.extract_if(.., |(other, _)| *other == client);
        let lines = told.filter_map(|(_, output)| match output {
            Output::Began(_) => None,
            Output::Ending(ending) => Some(format!("{ending:?}")),
            Output::Past(past) => Some(format!("{past:?}")),
            Output::Value(read) => Some(format!("value {}", show(&read.key, &read.value))),
            Output::Rewind(read) => Some(format!("rewind {}", show(&read.key, &read.value))),
            Output::Outcome(Outcome::Committed) => Some("committed".to_string()),
            Output::Outcome(Outcome::Aborted { conflicts }) => {
                Some(format!("aborted over {conflicts:?}"))
            }
            Output::Outcome(outcome) => Some(format!("{outcome:?}")),
        });
        lines.collect()
    }
}

fn rand_pcg() -> Random {
    Random::new(1)
}

fn show(key: &Key, value: &Option<Value>) -> String {
    format!("{key} = {}", value.as_ref().map_or("absent".to_string(), ToString::to_string))
}

fn write(key: &str, value: &str) -> Write {
    Write { key: Key::from(key), value: (!value.is_empty()).then(|| Value::from(value)) }
}

fn name(message: &Message) -> String {
    match message {
        Message::Request(Request::Get { key, .. }) => format!("Get {key}"),
        Message::Reply(Reply::GetReply { key, value, .. }) => {
            format!("GetReply {}", show(key, value))
        }
        Message::Request(Request::Put { key, value, .. }) => format!("Put {}", show(key, value)),
        Message::Request(Request::Prepare { eid, .. }) => format!("Prepare {eid}"),
        Message::Reply(Reply::PrepareReply { eid, vote, .. }) => {
            format!("PrepareReply {eid} {vote:?}")
        }
        Message::Request(Request::Finalize { eid, decision, .. }) => {
            format!("Finalize {eid} {decision:?}")
        }
        Message::Status(Status::FinalizeReply { eid, .. }) => format!("FinalizeReply {eid}"),
        Message::Request(Request::Decide { eid, decision, .. }) => {
            format!("Decide {eid} {decision:?}")
        }
        Message::Reply(Reply::Acknowledge { .. }) => "Acknowledge".to_string(),
        Message::Request(Request::AskAdmission { .. }) => "AskAdmission".to_string(),
        other => format!("{other:?}"),
    }
}

fn morty(clients: usize) -> Net {
    Net::new(Options::default(), clients)
}

fn mvtso(clients: usize) -> Net {
    let options = Options { re_execution: false, provisional_votes: false, ..Options::default() };
    Net::new(options, clients)
}

/// Two transactions that read `x` before either has written it, the first of them the older.
fn overlapping(mut net: Net) -> Net {
    net.get(0, "x");
    net.get(1, "x");
    net.settle();
    assert_eq!(net.told(0), ["value x = absent"]);
    assert_eq!(net.told(1), ["value x = absent"]);
    net
}
