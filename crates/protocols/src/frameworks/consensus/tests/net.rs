//! A network of replicas and clients, in the words of consensus.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Group, Settings};
use serried_model::registers::{Operation, Outcome, Output};
use serried_model::{Access, Key, NodeId, Token, TxnId, Value, Version};
use serried_parts::Stamped;

use super::super::replica::Timer;
use super::super::{
    Body, Coordinator, Instance, InstanceId, Kind, Message, Mutation, OperationId, Record, Replica,
    Rules, Shown, State, Variant,
};
use crate::Mutated;
pub(super) use crate::testing::client_id as client;
use crate::testing::{self, Node, derefs_to_net};

const CLIENTS: u64 = 7;
/// The wall-clock time at which a test begins, in microseconds.
const EPOCH_US: u64 = 1_000_000_000;
/// The key that tests use unless they name another.
pub(super) const X: &str = "x";

pub(super) type Envelope = testing::Envelope<Message>;

/// Replicas and clients. Clocks are exchanged at once, all other messages by hand.
pub(super) struct Net {
    net: testing::Net<Replica, Coordinator>,
    pub(super) rules: Rules,
    pub(super) settings: Settings,
    members: usize,
}

derefs_to_net!([] Net, net: testing::Net<Replica, Coordinator>);

/// The update of this number, of those that a member coordinates.
pub(super) fn update(member: u8, number: u64) -> InstanceId {
    InstanceId { kind: Kind::Update, member, number }
}

/// The name of a message in scripts.
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

/// Whether a message is what a line of a script describes, such as `0>1 PreAccept` or `c0>2 Request`. `*` stands for any
/// sender, receiver or message.
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
        let replica =
            |id: NodeId| Replica::new(id, group(members, id.member(), 1), &settings, rules);
        let client = |number| {
            let group = group(members, number as usize, partitions);
            Coordinator::new(group, &settings, rules)
        };
        let mut net = testing::Net::new(partitions, members, replica).with_clients(CLIENTS, client);
        net.set_clock_us(EPOCH_US);
        // What clocks say arrives at once, so that it is no part of a test's script.
        net.is_instant = |message| matches!(message, Message::Time(_));
        net.start();
        Net { net, rules, settings, members }
    }

    /// A replica that has nothing.
    fn fresh(&self, member: usize) -> Replica {
        let group = group(self.members, member, 1);
        Replica::new(NodeId(member as u64), group, &self.settings, self.rules)
    }

    fn node(&self, member: u64) -> &Node<Replica> {
        &self.nodes[NodeId(member)]
    }

    /// What a client has answered to an operation.
    fn told(&self, number: u64, txn: u64) -> impl Iterator<Item = &Output> {
        let of_it = move |(id, (of, _)): &&(NodeId, (TxnId, Output))| {
            (*id, *of) == (client(number), TxnId(txn))
        };
        self.outputs.iter().filter(of_it).map(|(_, (_, output))| output)
    }

    // What clients do.

    /// A client that is near the replica of the same number begins an operation on a key.
    pub(super) fn ask_of(&mut self, number: u64, txn: u64, key: &str, access: Access) {
        let operation = Operation::Access { key: Key::from(key), access, token: None };
        self.operate(number, txn, operation);
    }

    pub(super) fn ask(&mut self, number: u64, txn: u64, access: Access) {
        self.ask_of(number, txn, X, access);
    }

    /// Begins an operation that was tried before under this token.
    pub(super) fn ask_again(&mut self, number: u64, txn: u64, access: Access, token: Token) {
        let operation = Operation::Access { key: Key::from(X), access, token: Some(token) };
        self.operate(number, txn, operation);
    }

    pub(super) fn give_up(&mut self, number: u64, txn: u64) {
        self.operate(number, txn, Operation::GiveUp);
    }

    /// The token of an update that has begun.
    pub(super) fn token(&self, number: u64, txn: u64) -> Version {
        let began = |output: &Output| match output {
            Output::Began(version) => Some(*version),
            _ => None,
        };
        self.told(number, txn).find_map(began).expect("an update begins with its token")
    }

    /// How a client's operation ended, with the value that it found; empty if it has not ended.
    pub(super) fn ended(&self, number: u64, txn: u64) -> String {
        let words = self.told(number, txn).filter_map(|output| match output {
            Output::Outcome(Outcome::Done(accessed)) => {
                let found = accessed.found.as_ref().map_or("-".into(), Value::to_string);
                Some(format!("{found} Committed"))
            }
            Output::Outcome(outcome) => Some(format!("{outcome:?}")),
            _ => None,
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Runs a client's operation to its end, and returns how it ended.
    pub(super) fn run(&mut self, number: u64, txn: u64, access: Access) -> String {
        self.ask(number, txn, access);
        self.settle();
        self.ended(number, txn)
    }

    // What the network does.

    /// Delivers the first message that a line describes.
    pub(super) fn deliver(&mut self, line: &str) {
        let envelope = self.take_first(|envelope| matches(line, envelope));
        let envelope = envelope.unwrap_or_else(|| panic!("no `{line}` among {:?}", self.waiting()));
        self.net.deliver(envelope);
    }

    /// Delivers the first message of each line.
    pub(super) fn script(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.deliver(line));
    }

    /// Takes all messages that a line describes out of the network.
    pub(super) fn hold(&mut self, line: &str) -> Vec<Envelope> {
        self.take(|envelope| matches(line, envelope))
    }

    pub(super) fn put_back(&mut self, held: Vec<Envelope>) {
        self.network.extend(held);
    }

    /// Loses all messages that the lines describe.
    pub(super) fn lose(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| drop(self.hold(line)));
    }

    /// How many messages that a line describes are under way.
    pub(super) fn count(&self, line: &str) -> usize {
        self.network.iter().filter(|envelope| matches(line, envelope)).count()
    }

    pub(super) fn waiting(&self) -> Vec<String> {
        let show = |(from, to, message): &Envelope| format!("{from}>{to} {}", kind(message));
        self.network.iter().map(show).collect()
    }

    /// Delivers a message that was not under way.
    pub(super) fn hand(&mut self, from: NodeId, to: NodeId, message: Message) {
        self.net.deliver((from, to, message));
    }

    /// Delivers all messages but those that a line describes, which stay under way.
    pub(super) fn settle_but(&mut self, line: &str) {
        self.settle_where(|envelope| !matches(line, envelope));
    }

    /// Messages to and from these replicas are lost.
    pub(super) fn part(&mut self, members: &[usize]) {
        for member in members {
            let id = NodeId(*member as u64);
            for other in self.ids().into_iter().chain((0..CLIENTS).map(client)) {
                self.cut.extend([(id, other), (other, id)]);
            }
        }
        let cut = self.cut.clone();
        self.network.retain(|(from, to, _)| !cut.contains(&(*from, *to)));
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    /// A replica recovers all instances that it waits for: its timer goes off twice.
    pub(super) fn recover(&mut self, member: u64) {
        self.fire(NodeId(member), Timer::Watch);
        self.fire(NodeId(member), Timer::Watch);
    }

    // What happens to replicas.

    /// Only the first records of a replica's log are durable when it crashes.
    pub(super) fn keep_records(&mut self, member: usize, kept: usize) {
        self.nodes[member].keep_records(kept);
    }

    /// A replica stops, and the messages to and from it are lost. It is down until it is [restarted](Net::restart) or
    /// [replaced](Net::replace).
    pub(super) fn crash(&mut self, member: usize) {
        self.part(&[member]);
        self.net.crash(member);
    }

    fn reconnect(&mut self, member: usize) {
        let id = NodeId(member as u64);
        self.cut.retain(|(from, to)| *from != id && *to != id);
    }

    /// A replica starts with what it has made durable.
    pub(super) fn restart(&mut self, member: usize) {
        self.reconnect(member);
        let fresh = self.fresh(member);
        self.net.restart(member, fresh);
    }

    /// A replica starts in the place of one whose disk was lost.
    pub(super) fn replace(&mut self, member: usize) {
        self.reconnect(member);
        let fresh = self.fresh(member);
        self.net.replace(member, fresh);
    }

    /// A replica crashes, its disk is lost, and another takes its place.
    pub(super) fn lose_disk(&mut self, member: usize) {
        self.crash(member);
        self.replace(member);
    }

    /// Makes a replica hold a value.
    pub(super) fn make_hold(&mut self, member: u64, stamped: Stamped) {
        self.make_hold_of(NodeId(member), X, stamped);
    }

    pub(super) fn make_hold_of(&mut self, id: NodeId, key: &str, stamped: Stamped) {
        let operation = OperationId { client: client(99), request: 0 };
        let apply = Message::Apply { operation, key: Key::from(key), stamped };
        self.quietly(id, apply);
    }

    /// What a replica answers to a message. The answers are not sent.
    fn quietly(&mut self, id: NodeId, message: Message) -> Vec<Message> {
        let cut = core::mem::take(&mut self.cut);
        let answers = self.answers(client(99), id, message);
        self.cut = cut;
        answers.into_iter().map(|(.., message)| message).collect()
    }

    // What replicas have.

    pub(super) fn state(&mut self, member: u64, key: &str) -> State {
        let key = Key::from(key);
        let before = core::mem::take(&mut self.network);
        let cut = core::mem::take(&mut self.cut);
        self.act(NodeId(member), |replica, cx| replica.hand_over(client(99), &key, cx));
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
        // The replica puts what it shows into its store. No test depends on that.
        let answers = self.quietly(NodeId(member), Message::Scan { after: None, incarnation: 0 });
        let Some(Message::Scanned { entries, .. }) = answers.into_iter().next() else { panic!() };
        let of_it = |shown: &Shown| shown.key == Key::from(X);
        let shown = entries.into_iter().find(of_it);
        shown.map(|shown| shown.instances.into_iter().collect()).unwrap_or_default()
    }

    /// An instance of the key as a replica has recorded it last. The replica may have forgotten it.
    pub(super) fn instance(&self, member: u64, id: InstanceId) -> Instance {
        let of_it = |(by, record): &(NodeId, Record)| match record {
            Record::Instance { key, id: of, instance }
                if (*by, *of) == (NodeId(member), id) && *key == Key::from(X) =>
            {
                Some((**instance).clone())
            }
            _ => None,
        };
        let known = self.appended.iter().rev().find_map(of_it);
        known.unwrap_or_else(|| panic!("{member} knew nothing of {id:?}"))
    }

    /// How many replies a replica has for the present phase of an instance of the key that it leads.
    pub(super) fn count_said(&mut self, member: u64, id: InstanceId) -> usize {
        self.nodes[NodeId(member)].said(&Key::from(X), id)
    }

    /// Appends nothing to the key at a replica, which catches up with the others by that.
    pub(super) fn touch(&mut self, number: u64) {
        self.ask(number, 1000, super::append(""));
        self.pass(Duration::from_secs(30));
        assert!(self.ended(number, 1000).ends_with("Committed"));
    }

    /// A gauge of a replica.
    pub(super) fn gauge(&self, member: u64, name: &str) -> u64 {
        self.node(member).gauge(name)
    }

    /// A gauge of a client.
    pub(super) fn coordinator_gauge(&self, number: u64, name: &str) -> u64 {
        self.clients[client(number)].gauge(name)
    }

    /// How many records lie in a replica's log.
    pub(super) fn log_length(&self, member: u64) -> usize {
        self.node(member).records.len()
    }

    /// Asserts that all replicas have executed the same commands and hold the same value.
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

/// The group as seen from near a member. The members are on a ring: the next one is nearest, then the one before, and so on.
fn group(members: usize, near: usize, partitions: u16) -> Group {
    let step = |i: usize| if i % 2 == 1 { i.div_ceil(2) } else { members - i / 2 };
    let nearest = (0..members).map(|i| (near + step(i)) % members).collect();
    Group::nearest_first(nearest, Duration::from_millis(10)).with_partitions(partitions)
}
