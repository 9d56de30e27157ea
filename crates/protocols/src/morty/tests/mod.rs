//! Morty on a network that is moved by hand: the messages of each rule, one by one.

mod admission;
mod ahead_of_log;
mod back_together;
mod by_hand;
mod commit;
mod confirming;
mod copying;
mod deleting;
mod execution;
mod forged;
mod forgotten;
mod history;
mod loaded;
mod merging;
mod missed_delete;
mod modifying;
mod partitions;
mod read_nothing;
mod recovery;
mod rejoining;
mod returning;
mod sealing;
mod slow_clock;
mod tapir;
mod torn_copy;
mod truncation;
mod views;
mod world;

use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serried_actor::{Actor, Group, NodeSet, Recover, Settings, Store, Timestamp};
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
use crate::testing::{self, client_id as coordinator_id, derefs_to_net};

type Envelope = testing::Envelope<Message>;
type Actors = testing::Net<Replica, Coordinator>;

/// Three replicas, any number of coordinators, and the messages between them, delivered in order. The coordinators' timers
/// go off only if a test [fires](Net::fire) them.
struct Net {
    net: Actors,
    options: Options,
    /// What the clients were told.
    outputs: Vec<(u64, Output)>,
    /// The transaction that each client has open, and the stamps of its reads.
    open: BTreeMap<u64, BTreeMap<Key, u32>>,
}

derefs_to_net!([] Net, net: Actors);

/// Replicas of such a group, and so many coordinators. Each event takes a microsecond.
fn actors(group: &Group, options: Options, clients: usize) -> Actors {
    let replica = |id| Replica::new(id, group.clone(), &Settings::default(), options);
    let mut actors = Actors::new(group.partitions(), group.size(), replica)
        .with_clients(clients as u64, |_| at_home(group, options));
    (actors.tick, actors.clients_idle) = (1, true);
    actors
}

/// A coordinator that knows the replicas' clocks, and so prepares without asking.
fn at_home(group: &Group, options: Options) -> Coordinator {
    let mut coordinator = Coordinator::new(group.clone(), &Settings::default(), options);
    coordinator.hears_time(0, Timestamp(0));
    coordinator
}

impl Net {
    fn new(options: Options, clients: usize) -> Net {
        let mut net = actors(&Group::new(3, Duration::from_millis(1)), options, clients);
        net.now = 1000;
        Net { net, options, outputs: Vec::new(), open: BTreeMap::new() }
    }

    /// A client asks for something, in a new transaction if the last one has ended.
    fn operate(&mut self, client: u64, operation: Operation) {
        self.hear();
        if let Entry::Vacant(closed) = self.open.entry(client) {
            closed.insert(BTreeMap::new());
            self.ask(client, Operation::Begin { only_reads: false, age: None });
        }
        self.ask(client, operation);
    }

    fn ask(&mut self, client: u64, operation: Operation) {
        self.net.operate(client, client, operation);
    }

    /// The clients hear what they were told.
    fn hear(&mut self) {
        for (_, (TxnId(client), output)) in self.net.outputs.drain(..) {
            match &output {
                Output::Value(read) | Output::Rewind(read) => {
                    let stamps = self.open.get_mut(&client).unwrap();
                    stamps.insert(read.key.clone(), read.stamp);
                }
                Output::Outcome(_) => drop(self.open.remove(&client)),
                Output::Began(_) | Output::Ending(_) | Output::Past(_) => {}
            }
            self.outputs.push((client, output));
        }
    }

    /// A replica that has nothing.
    fn fresh(&self, member: usize) -> Replica {
        let group = Group::new(3, Duration::from_millis(1));
        Replica::new(NodeId::replica(0, member), group, &Settings::default(), self.options)
    }

    /// A replica forgets all that is not in its log or its store.
    fn restart(&mut self, member: usize) {
        let fresh = self.fresh(member);
        self.net.restart(member, fresh);
    }

    /// A replica is replaced by one that has nothing.
    fn replace(&mut self, member: usize) {
        let fresh = self.fresh(member);
        self.net.replace(member, fresh);
    }

    /// Delivers a message to a replica, and returns what it sends.
    fn tell(&mut self, from: NodeId, member: usize, message: Message) -> Vec<(NodeId, Message)> {
        assert!(self.network.is_empty(), "what was sent before: {:?}", self.network);
        self.deliver((from, NodeId::replica(0, member), message));
        self.network.drain(..).map(|(_, to, message)| (to, message)).collect()
    }

    /// Delivers all messages, and returns a line for each.
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
        let id = coordinator_id(client);
        let timers = self.clients[id].timers.iter().filter(|(timer, _)| wanted(timer));
        let (timer, _) = timers.min_by_key(|(_, due)| **due).expect("the timer is set");
        let timer = *timer;
        self.fire_client(id, timer);
    }

    fn get(&mut self, client: u64, key: &str) {
        self.operate(client, Operation::Get { key: Key::from(key), for_update: false });
    }

    fn put(&mut self, client: u64, key: &str, value: &str) {
        self.operate(client, Operation::Put(write(key, value)));
    }

    fn commit(&mut self, client: u64, reads: &[&str], writes: &[(&str, &str)]) {
        self.hear();
        let stamps = self.open.get(&client).cloned().unwrap_or_default();
        let stamp =
            |key: &&str| ReadStamp { key: Key::from(*key), stamp: stamps[&Key::from(*key)] };
        let reads = reads.iter().map(stamp).collect();
        let writes = writes.iter().map(|(key, value)| write(key, value)).collect();
        self.operate(client, Operation::Commit { reads, writes, modifies: Vec::new() });
    }

    /// What `client` was told since the last call, except its version.
    fn told(&mut self, client: u64) -> Vec<String> {
        self.hear();
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
