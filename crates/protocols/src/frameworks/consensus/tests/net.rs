//! Replicas, clients and what lies between them.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{
    Actor, ClockInterval, Context, Coordinate, Durable, Effect, Group, MemoryStore, Random,
    Recover, Settings, Timestamp,
};
use serried_model::registers::{Operation, Outcome, Output};
use serried_model::{Access, Key, NodeId, Token, TxnId, Value, Version};
use serried_parts::Stamped;

use super::super::coordinator::Repeat;
use super::super::replica::Timer;
use super::super::{
    Body, Coordinator, Instance, InstanceId, Kind, Message, Mutation, OperationId, Record, Replica,
    Rules, Shown, State, Variant,
};
use crate::Mutated;

const CLIENTS: u64 = 7;
/// The wall clock when the drivers' clocks start.
const EPOCH_US: u64 = 1_000_000_000;
/// The key that tests are about if they do not say.
pub(super) const X: &str = "x";

pub(super) type Envelope = (NodeId, NodeId, Message);

struct Node {
    replica: Replica,
    store: MemoryStore,
    /// What lies in its log, with the positions.
    log: VecDeque<(u64, Record)>,
    appended: u64,
    timers: BTreeMap<Timer, Timestamp>,
}

struct Client {
    coordinator: Coordinator,
    timers: BTreeMap<Repeat, Timestamp>,
    /// What it was told of each operation.
    told: BTreeMap<u64, Vec<Output>>,
}

/// Replicas and clients, and the messages between them, which are delivered in order unless a test does
/// otherwise. Nothing takes time but what a test lets [`pass`](Net::pass).
pub(super) struct Net {
    pub(super) rules: Rules,
    pub(super) settings: Settings,
    members: usize,
    nodes: BTreeMap<NodeId, Node>,
    clients: Vec<Client>,
    pub(super) network: VecDeque<Envelope>,
    /// Messages from these to those are lost.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    /// The replicas that have crashed.
    down: BTreeSet<NodeId>,
    /// How many messages replicas have received.
    pub(super) received: usize,
    /// What replicas have recorded last of each instance of a key, which they may have forgotten.
    recorded: BTreeMap<(NodeId, InstanceId), Instance>,
    random: Random,
    now: Timestamp,
    /// By how much the clocks of these are ahead, in microseconds.
    pub(super) ahead_us: BTreeMap<NodeId, u64>,
}

/// The client of a number.
pub(super) fn client(number: u64) -> NodeId {
    NodeId(NodeId::FIRST_COORDINATOR + number)
}

/// The update that a member coordinates as its so-and-so-many-th.
pub(super) fn update(member: u8, number: u64) -> InstanceId {
    InstanceId { kind: Kind::Update, member, number }
}

/// What a message is called in scripts.
fn kind(message: &Message) -> &'static str {
    match message {
        Message::Request { .. } => "Request",
        Message::Reply { .. } => "Reply",
        Message::Read1 { .. } => "Read1",
        Message::Read1Reply { .. } => "Read1Reply",
        Message::Write1 { .. } => "Write1",
        Message::Write1Reply { .. } => "Write1Reply",
        Message::Apply { .. } => "Apply",
        Message::Applied { .. } => "Applied",
        Message::Scan { .. } => "Scan",
        Message::Scanned { .. } => "Scanned",
        Message::Time(_) => "Time",
        Message::AlsoLost { .. } => "AlsoLost",
        Message::TakeOver { .. } => "TakeOver",
        Message::Instance { body, .. } => match **body {
            Body::PreAccept { .. } => "PreAccept",
            Body::PreAccepted { .. } => "PreAccepted",
            Body::Accept { .. } => "Accept",
            Body::Accepted { .. } => "Accepted",
            Body::Commit { .. } => "Commit",
            Body::Executed => "Executed",
            Body::Inquire => "Inquire",
            Body::Prepare { .. } => "Prepare",
            Body::Prepared { .. } => "Prepared",
            Body::Refused { .. } => "Refused",
            Body::Validate { .. } => "Validate",
            Body::Validated { .. } => "Validated",
        },
    }
}

/// What a line of a script says, `0>1 PreAccept` or `c0>2 Request`, where `*` stands for any: of a sender,
/// a receiver or a message.
fn matches(line: &str, (from, to, message): &Envelope) -> bool {
    let (route, what) = line.split_once(' ').expect("a route and a message");
    let (sender, receiver) = route.split_once('>').expect("a sender and a receiver");
    let is = |name: &str, node: NodeId| {
        let number = |name: &str| name.parse::<u64>().expect("a number");
        name == "*"
            || name.strip_prefix('c').map_or_else(|| NodeId(number(name)), |n| client(number(n)))
                == node
    };
    is(sender, *from) && is(receiver, *to) && (what == "*" || what == kind(message))
}

impl Net {
    pub(super) fn new(variant: Variant, members: usize) -> Net {
        Net::with(Rules::of(variant), members, Settings::default(), 1)
    }

    /// Three replicas, of which client 0 has asked 0 to append "a". The PreAccept to 1 is late, and all else is lost.
    pub(super) fn with_late_pre_accept(variant: Variant) -> (Net, Vec<Envelope>) {
        let mut net = Net::new(variant, 3);
        net.ask(0, 1, super::append("a"));
        net.deliver("c0>0 Request");
        let late = net.hold("0>1 PreAccept");
        net.lose(&["*>* *"]);
        (net, late)
    }

    pub(super) fn broken(variant: Variant, members: usize, mutation: Mutation) -> Net {
        let rules = Rules { variant, mutation: Mutated::by(mutation) };
        Net::with(rules, members, Settings::default(), 1)
    }

    pub(super) fn with(rules: Rules, members: usize, settings: Settings, partitions: u16) -> Net {
        let mut net = Net {
            rules,
            settings,
            members,
            nodes: BTreeMap::new(),
            clients: Vec::new(),
            network: VecDeque::new(),
            cut: BTreeSet::new(),
            down: BTreeSet::new(),
            received: 0,
            recorded: BTreeMap::new(),
            random: Random::new(1),
            now: Timestamp(0),
            ahead_us: BTreeMap::new(),
        };
        for number in 0..CLIENTS {
            let coordinator =
                Coordinator::new(net.group(number as usize, partitions), &settings, rules);
            net.clients.push(Client {
                coordinator,
                timers: BTreeMap::new(),
                told: BTreeMap::new(),
            });
        }
        for partition in 0..partitions {
            for member in 0..members {
                let id = NodeId::replica(partition, member);
                let replica = Replica::new(id, net.group(member, 1), &settings, rules);
                let (store, log, timers) = Default::default();
                net.nodes.insert(id, Node { replica, store, log, appended: 0, timers });
            }
        }
        for id in net.nodes.keys().copied().collect::<Vec<_>>() {
            net.replica(id, |replica, cx| replica.on_start(cx));
        }
        net
    }

    /// The group as one sees it that is near a member, on a ring: then come the next one and the one
    /// before, and so on.
    fn group(&self, near: usize, partitions: u16) -> Group {
        let n = self.members;
        let step = |i: usize| if i % 2 == 1 { i.div_ceil(2) } else { n - i / 2 };
        let nearest = (0..n).map(|i| (near + step(i)) % n).collect();
        Group::nearest_first(nearest, Duration::from_millis(10)).with_partitions(partitions)
    }

    fn clock(&self) -> ClockInterval {
        let us = EPOCH_US + self.now.0 / 1000;
        ClockInterval { earliest_us: us, latest_us: us }
    }

    fn clock_of(&self, id: NodeId) -> ClockInterval {
        let us = self.clock().latest_us + self.ahead_us.get(&id).copied().unwrap_or(0);
        ClockInterval { earliest_us: us, latest_us: us }
    }

    /// What all clocks read, in microseconds.
    pub(super) fn clock_us(&self) -> u64 {
        self.clock().latest_us
    }

    fn post(&mut self, from: NodeId, to: NodeId, message: Message) {
        if self.cut.contains(&(from, to)) || self.down.contains(&from) || self.down.contains(&to) {
            return;
        }
        // What clocks say arrives at once, so that it is no part of a test's script.
        match message {
            Message::Time(_) => {
                self.replica(to, |replica, cx| replica.on_message(from, message, cx))
            }
            _ => self.network.push_back((from, to, message)),
        }
    }

    pub(super) fn replica(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut Replica, &mut Context<'_, Replica>),
    ) {
        let (now, clock) = (self.now, self.clock_of(id));
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let mut effects = Vec::new();
        let durable = Durable {
            store: &mut node.store,
            log_position: node.appended,
            durable_position: u64::MAX,
        };
        let mut cx = Context::new(id, now, clock, &mut self.random, &mut effects, durable);
        act(&mut node.replica, &mut cx);
        assert_eq!(cx.take_rejected(), None, "nobody forges messages here");
        let mut sent = Vec::new();
        for effect in effects {
            match effect {
                Effect::Append(record) => {
                    if let Record::Instance { key, id: of, instance } = &record
                        && *key == Key::from(X)
                    {
                        self.recorded.insert((id, *of), (**instance).clone());
                    }
                    node.log.push_back((node.appended, record));
                    node.appended += 1;
                }
                Effect::TrimLog(position) => node.log.retain(|(at, _)| *at >= position),
                Effect::SetTimer { timer, after } => {
                    node.timers.insert(timer, now + after);
                }
                Effect::CancelTimer(timer) => {
                    node.timers.remove(&timer);
                }
                Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
                    sent.push((to, message));
                }
                Effect::Broadcast { partition, to, message } => sent.extend(
                    to.members()
                        .map(|member| (NodeId::replica(partition, member), message.clone())),
                ),
                Effect::Output(()) => {}
            }
        }
        sent.into_iter().for_each(|(to, message)| self.post(id, to, message));
    }

    /// Of a replica's log only the first records are durable when it crashes.
    pub(super) fn keep_records(&mut self, member: usize, kept: usize) {
        let node = self.nodes.get_mut(&NodeId(member as u64)).expect("a replica");
        node.log.truncate(kept);
        node.appended = node.log.back().map_or(0, |(at, _)| at + 1);
    }

    fn client(
        &mut self,
        number: u64,
        act: impl FnOnce(&mut Coordinator, &mut Context<'_, Coordinator>),
    ) {
        let (now, clock) = (self.now, self.clock_of(client(number)));
        let it = &mut self.clients[number as usize];
        let (mut effects, mut store) = (Vec::new(), MemoryStore::default());
        let durable = Durable { store: &mut store, log_position: 0, durable_position: u64::MAX };
        let mut cx =
            Context::new(client(number), now, clock, &mut self.random, &mut effects, durable);
        act(&mut it.coordinator, &mut cx);
        assert_eq!(cx.take_rejected(), None, "nobody forges messages here");
        let mut sent = Vec::new();
        for effect in effects {
            match effect {
                Effect::Broadcast { partition, to, message } => sent.extend(
                    to.members()
                        .map(|member| (NodeId::replica(partition, member), message.clone())),
                ),
                Effect::Output((txn, output)) => it.told.entry(txn.0).or_default().push(output),
                Effect::SetTimer { timer, after } => {
                    it.timers.insert(timer, now + after);
                }
                Effect::CancelTimer(timer) => {
                    it.timers.remove(&timer);
                }
                _ => unreachable!("a client does nothing else"),
            }
        }
        sent.into_iter().for_each(|(to, message)| self.post(client(number), to, message));
    }

    // What clients do.

    /// A client that is near the replica of the same number begins an operation on a key.
    pub(super) fn ask_of(&mut self, number: u64, txn: u64, key: &str, access: Access) {
        let operation = Operation::Access { key: Key::from(key), access, token: None };
        self.client(number, |coordinator, cx| coordinator.on_operation(TxnId(txn), operation, cx));
    }

    pub(super) fn ask(&mut self, number: u64, txn: u64, access: Access) {
        self.ask_of(number, txn, X, access);
    }

    /// The same of what was tried before by somebody.
    pub(super) fn ask_again(&mut self, number: u64, txn: u64, access: Access, token: Token) {
        let operation = Operation::Access { key: Key::from(X), access, token: Some(token) };
        self.client(number, |coordinator, cx| coordinator.on_operation(TxnId(txn), operation, cx));
    }

    pub(super) fn give_up(&mut self, number: u64, txn: u64) {
        let operation = Operation::GiveUp;
        self.client(number, |coordinator, cx| coordinator.on_operation(TxnId(txn), operation, cx));
    }

    /// The token of an update that was begun.
    pub(super) fn token(&self, number: u64, txn: u64) -> Version {
        let told = self.clients[number as usize].told[&txn].iter();
        let began = |output: &Output| match output {
            Output::Began(version) => Some(*version),
            _ => None,
        };
        told.filter_map(began).next().expect("an update begins with its token")
    }

    /// How a client's operation ended, with what it found; nothing if it has not.
    pub(super) fn ended(&self, number: u64, txn: u64) -> String {
        let told = self.clients[number as usize].told.get(&txn);
        let words = told.into_iter().flatten().filter_map(|output| match output {
            Output::Outcome(Outcome::Done(accessed)) => {
                let found = accessed.found.as_ref().map_or("-".into(), Value::to_string);
                Some(format!("{found} Committed"))
            }
            Output::Outcome(outcome) => Some(format!("{outcome:?}")),
            _ => None,
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Has a client do something and go on until it has ended: how.
    pub(super) fn run(&mut self, number: u64, txn: u64, access: Access) -> String {
        self.ask(number, txn, access);
        self.settle();
        self.ended(number, txn)
    }

    // What the network does.

    /// Delivers the first message that a line tells of.
    pub(super) fn deliver(&mut self, line: &str) {
        let at = self.network.iter().position(|envelope| matches(line, envelope));
        let at = at.unwrap_or_else(|| panic!("no `{line}` among {:?}", self.waiting()));
        let envelope = self.network.remove(at).expect("it is there");
        self.receive(envelope);
    }

    /// Delivers the first message of each line.
    pub(super) fn script(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.deliver(line));
    }

    /// Takes all messages that a line tells of out of the network.
    pub(super) fn hold(&mut self, line: &str) -> Vec<Envelope> {
        let (held, rest) = self.network.drain(..).partition(|envelope| matches(line, envelope));
        self.network = rest;
        Vec::from_iter::<VecDeque<Envelope>>(held)
    }

    pub(super) fn put_back(&mut self, held: Vec<Envelope>) {
        self.network.extend(held);
    }

    /// Loses all messages that the lines tell of.
    pub(super) fn lose(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| drop(self.hold(line)));
    }

    /// How many messages that a line tells of are under way.
    pub(super) fn count(&self, line: &str) -> usize {
        self.network.iter().filter(|envelope| matches(line, envelope)).count()
    }

    pub(super) fn waiting(&self) -> Vec<String> {
        let show = |(from, to, message): &Envelope| format!("{from}>{to} {}", kind(message));
        self.network.iter().map(show).collect()
    }

    /// Delivers a message that nobody has sent just now.
    pub(super) fn hand(&mut self, from: NodeId, to: NodeId, message: Message) {
        self.receive((from, to, message));
    }

    fn receive(&mut self, (from, to, message): Envelope) {
        if to.is_coordinator() {
            let number = to.0 - NodeId::FIRST_COORDINATOR;
            self.client(number, |coordinator, cx| coordinator.on_message(from, message, cx));
        } else {
            self.received += 1;
            self.replica(to, |replica, cx| replica.on_message(from, message, cx));
        }
    }

    /// Delivers all messages.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            let Some(envelope) = self.network.pop_front() else { return };
            self.receive(envelope);
        }
        panic!("messages beget messages: {:?}", self.waiting());
    }

    /// Delivers all messages but those that a line tells of, which stay under way.
    pub(super) fn settle_but(&mut self, line: &str) {
        let mut held = Vec::new();
        loop {
            held.extend(self.hold(line));
            let Some(envelope) = self.network.pop_front() else { break };
            self.receive(envelope);
        }
        self.put_back(held);
    }

    /// Messages to and from these replicas are lost.
    pub(super) fn part(&mut self, members: &[usize]) {
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        for member in members {
            let clients = (0..CLIENTS).map(client);
            for other in all.iter().copied().chain(clients) {
                self.cut.extend([(NodeId(*member as u64), other), (other, NodeId(*member as u64))]);
            }
        }
        let cut = self.cut.clone();
        self.network.retain(|(from, to, _)| !cut.contains(&(*from, *to)));
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    // What time does.

    /// Lets time pass: timers go off when they are due, and all messages arrive at once.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        loop {
            let nodes = self.nodes.iter().flat_map(|(id, node)| {
                node.timers.iter().map(move |(timer, due)| (*due, *id, Ok(*timer)))
            });
            let clients = self.clients.iter().enumerate().flat_map(|(number, it)| {
                let id = client(number as u64);
                it.timers.iter().map(move |(timer, due)| (*due, id, Err(*timer)))
            });
            let first = nodes.chain(clients).min_by_key(|(due, ..)| *due);
            let Some((due, id, timer)) = first.filter(|(due, ..)| *due <= end) else { break };
            self.now = self.now.max(due);
            match timer {
                Ok(timer) => self.fire(id, timer),
                Err(timer) => {
                    let number = id.0 - NodeId::FIRST_COORDINATOR;
                    self.clients[number as usize].timers.remove(&timer);
                    self.client(number, |coordinator, cx| coordinator.on_timer(timer, cx));
                }
            }
            self.settle();
        }
        self.now = end;
    }

    /// Lets time pass without anything going off.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Has a replica's timer go off now.
    pub(super) fn fire(&mut self, id: NodeId, timer: Timer) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.timers.remove(&timer);
        }
        self.replica(id, |replica, cx| replica.on_timer(timer, cx));
    }

    /// A replica recovers all instances that it waits for: its timer goes off twice.
    pub(super) fn recover(&mut self, member: u64) {
        self.fire(NodeId(member), Timer::Watch);
        self.fire(NodeId(member), Timer::Watch);
    }

    // What happens to replicas.

    /// A replica stops; it is not there until it is [restarted](Net::restart) or [replaced](Net::replace).
    pub(super) fn crash(&mut self, member: usize) {
        let node = NodeId(member as u64);
        self.part(&[member]);
        self.down.insert(node);
        self.nodes.get_mut(&node).expect("a replica").timers.clear();
    }

    /// A replica starts with what it has made durable.
    pub(super) fn restart(&mut self, member: usize) {
        let id = NodeId(member as u64);
        self.cut.retain(|(from, to)| *from != id && *to != id);
        self.down.remove(&id);
        let mut replica = Replica::new(id, self.group(member, 1), &self.settings, self.rules);
        let node = self.nodes.get_mut(&id).expect("a replica");
        for (_, record) in &node.log {
            replica.replay(record.clone(), &mut node.store);
        }
        (node.replica, node.timers) = (replica, BTreeMap::new());
        self.replica(id, |replica, cx| replica.on_start(cx));
    }

    /// A replica starts in the place of one whose disk was lost.
    pub(super) fn replace(&mut self, member: usize) {
        let id = NodeId(member as u64);
        self.cut.retain(|(from, to)| *from != id && *to != id);
        self.down.remove(&id);
        let replica = Replica::new(id, self.group(member, 1), &self.settings, self.rules);
        let (store, log, timers) = Default::default();
        self.nodes.insert(id, Node { replica, store, log, appended: 0, timers });
        self.replica(id, |replica, cx| {
            replica.rejoin(cx);
            replica.on_start(cx);
        });
    }

    /// A replica crashes, its disk is lost, and another takes its place.
    pub(super) fn lose_disk(&mut self, member: usize) {
        self.crash(member);
        self.replace(member);
    }

    /// What a replica is made to hold, by nobody in particular.
    pub(super) fn make_hold(&mut self, member: u64, stamped: Stamped) {
        self.make_hold_of(NodeId(member), X, stamped);
    }

    pub(super) fn make_hold_of(&mut self, id: NodeId, key: &str, stamped: Stamped) {
        let operation = OperationId { client: client(99), request: 0 };
        let apply = Message::Apply { operation, key: Key::from(key), stamped };
        self.quietly(id, apply);
    }

    /// What a replica answers to a message, if nobody is to hear of that.
    fn quietly(&mut self, id: NodeId, message: Message) -> Vec<Message> {
        let before = core::mem::take(&mut self.network);
        let cut = core::mem::take(&mut self.cut);
        self.replica(id, |replica, cx| replica.on_message(client(99), message, cx));
        self.cut = cut;
        let answers = core::mem::replace(&mut self.network, before);
        answers.into_iter().map(|(.., message)| message).collect()
    }

    // What replicas have.

    pub(super) fn state(&mut self, member: u64, key: &str) -> State {
        let key = Key::from(key);
        let before = core::mem::take(&mut self.network);
        let cut = core::mem::take(&mut self.cut);
        self.replica(NodeId(member), |replica, cx| replica.hand_over(client(99), &key, cx));
        self.cut = cut;
        let answers = core::mem::replace(&mut self.network, before);
        match answers.into_iter().next() {
            Some((.., Message::TakeOver { state, .. })) => *state,
            other => panic!("not a state: {other:?}"),
        }
    }

    /// What the key holds at a replica.
    pub(super) fn value(&mut self, member: u64) -> String {
        self.state(member, X).held.value.map_or("-".into(), |value| value.to_string())
    }

    pub(super) fn values(&mut self) -> Vec<String> {
        (0..self.members as u64).map(|member| self.value(member)).collect()
    }

    /// What a replica knows of the key's instances.
    pub(super) fn instances(&mut self, member: u64) -> BTreeMap<InstanceId, Instance> {
        // What it shows it puts into its store, which changes nothing that a test is about.
        let answers = self.quietly(NodeId(member), Message::Scan { after: None, incarnation: 0 });
        let Some(Message::Scanned { entries, .. }) = answers.into_iter().next() else { panic!() };
        let of_it = |shown: &Shown| shown.key == Key::from(X);
        let shown = entries.into_iter().find(of_it);
        shown.map(|shown| shown.instances.into_iter().collect()).unwrap_or_default()
    }

    /// What a replica knew last of an instance of the key.
    pub(super) fn instance(&self, member: u64, id: InstanceId) -> Instance {
        let known = self.recorded.get(&(NodeId(member), id));
        known.cloned().unwrap_or_else(|| panic!("{member} knew nothing of {id:?}"))
    }

    /// How many have said to a replica what it waits for in an instance of the key that it leads.
    pub(super) fn count_said(&mut self, member: u64, id: InstanceId) -> usize {
        let mut said = 0;
        let key = Key::from(X);
        self.replica(NodeId(member), |replica, _| said = replica.said(&key, id));
        said
    }

    /// Has a client of a replica's do something that changes nothing, so that the replica makes up for
    /// what it has missed.
    pub(super) fn touch(&mut self, number: u64) {
        self.ask(number, 1000, super::append(""));
        self.pass(Duration::from_secs(30));
        assert!(self.ended(number, 1000).ends_with("Committed"));
    }

    /// A gauge of a replica.
    pub(super) fn gauge(&self, member: u64, name: &str) -> u64 {
        let mut found = None;
        let each = &mut |other: &'static str, value| {
            if other == name {
                found = Some(value);
            }
        };
        self.nodes[&NodeId(member)].replica.gauges(each);
        found.expect("a gauge")
    }

    /// A gauge of a client.
    pub(super) fn coordinator_gauge(&self, number: u64, name: &str) -> u64 {
        let mut found = None;
        self.clients[number as usize].coordinator.gauges(&mut |other, value| {
            if other == name {
                found = Some(value);
            }
        });
        found.expect("a gauge")
    }

    /// How many records lie in a replica's log.
    pub(super) fn log_length(&self, member: u64) -> usize {
        self.nodes[&NodeId(member)].log.len()
    }

    /// All replicas have executed the same, and have the same.
    pub(super) fn assert_agree(&mut self, key: &str) {
        let all: Vec<State> = (0..self.members as u64).map(|m| self.state(m, key)).collect();
        let registers = self.rules.have_registers();
        for (member, state) in all.iter().enumerate() {
            let mut expected = all[0].clone();
            if registers {
                expected.held = state.held.clone();
            }
            assert_eq!(*state, expected, "replica {member} has something else than replica 0");
        }
    }
}
