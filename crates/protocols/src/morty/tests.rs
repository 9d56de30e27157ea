//! Morty on a network that is moved by hand: the messages of each rule, one by one.

use core::time::Duration;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use serried_actor::{
    Actor, ClockInterval, Context, Coordinate, Durable, Effect, Group, MemoryStore, NodeSet,
    Random, Recover, Settings, Timestamp,
};
use serried_model::{
    Key, NodeId, Operation, Outcome, Output, ReadStamp, TxnId, Value, Version, Write,
};

use super::Options;
use super::coordinator::execution::REWINDS_AT_ONCE;
use super::coordinator::{Coordinator, Timer};
use super::message::{Decision, Message, Proposal, Record, View, Vote};
use super::replica::Replica;

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
    stores: [MemoryStore; 3],
    random: Random,
    now: u64,
}

fn replica(group: &Group, member: usize, options: Options) -> Replica {
    Replica::new(NodeId::replica(0, member), group.clone(), &Settings::default(), options)
}

fn coordinator_id(client: u64) -> NodeId {
    NodeId(NodeId::FIRST_COORDINATOR + client)
}

impl Net {
    fn new(options: Options, clients: usize) -> Net {
        let group = Group::new(3, Duration::from_millis(1));
        Net {
            replicas: (0..3).map(|member| replica(&group, member, options)).collect(),
            coordinators: (0..clients)
                .map(|_| (Coordinator::new(group.clone(), &Settings::default(), options), vec![]))
                .collect(),
            network: VecDeque::new(),
            held: NodeSet::EMPTY,
            outputs: Vec::new(),
            open: BTreeMap::new(),
            logs: Default::default(),
            stores: Default::default(),
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
            self.ask(client, Operation::Begin);
        }
        self.ask(client, operation);
    }

    fn ask(&mut self, client: u64, operation: Operation) {
        let (now, clock) = self.clock();
        let mut effects = Vec::new();
        let id = coordinator_id(client);
        let durable = Durable { store: &mut self.stores[0], log_position: 0 };
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
        let (now, clock) = self.clock();
        if to.is_coordinator() {
            let client = to.0 - NodeId::FIRST_COORDINATOR;
            let mut effects = Vec::new();
            let durable = Durable { store: &mut self.stores[0], log_position: 0 };
            let mut cx = Context::new(to, now, clock, &mut self.random, &mut effects, durable);
            self.coordinators[client as usize].0.on_message(from, message, &mut cx);
            self.carry_out(client, effects);
            return;
        }
        let mut effects = Vec::new();
        let store = &mut self.stores[to.member()];
        let durable = Durable { store, log_position: self.logs[to.member()].len() as u64 };
        let mut cx = Context::new(to, now, clock, &mut self.random, &mut effects, durable);
        self.replicas[to.0 as usize].on_message(from, message, &mut cx);
        for effect in effects {
            match effect {
                Effect::Send { to: next, message }
                | Effect::SendBeforeDurable { to: next, message } => {
                    self.network.push_back((to, next, message));
                }
                Effect::Append(record) => self.logs[to.0 as usize].push(record),
                _ => {}
            }
        }
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
        let timers = &mut self.coordinators[client as usize].1;
        let position = timers.iter().position(wanted).expect("the timer is set");
        let timer = timers.remove(position);
        self.now += 10_000_000;
        let (now, clock) = self.clock();
        let mut effects = Vec::new();
        let id = coordinator_id(client);
        let durable = Durable { store: &mut self.stores[0], log_position: 0 };
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
        Message::Get { key, .. } => format!("Get {key}"),
        Message::GetReply { key, value, .. } => format!("GetReply {}", show(key, value)),
        Message::Put { key, value, .. } => format!("Put {}", show(key, value)),
        Message::Prepare { eid, .. } => format!("Prepare {eid}"),
        Message::PrepareReply { eid, vote, .. } => format!("PrepareReply {eid} {vote:?}"),
        Message::Finalize { eid, decision, .. } => format!("Finalize {eid} {decision:?}"),
        Message::FinalizeReply { eid, .. } => format!("FinalizeReply {eid}"),
        Message::Decide { eid, decision, .. } => format!("Decide {eid} {decision:?}"),
        Message::Acknowledge { .. } => "Acknowledge".to_string(),
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

#[test]
fn a_lone_transaction_takes_one_round_to_its_nearest_replica_and_one_to_all() {
    let mut net = morty(1);
    net.get(0, "x");
    assert_eq!(net.trace(), ["c0 -> n0 Get x", "n0 -> c0 GetReply x = absent"]);
    net.commit(0, &["x"], &[("x", "1")]);
    assert_eq!(
        net.trace(),
        [
            "c0 -> n0 Prepare 0",
            "c0 -> n1 Prepare 0",
            "c0 -> n2 Prepare 0",
            "n0 -> c0 PrepareReply 0 Commit",
            "n1 -> c0 PrepareReply 0 Commit",
            "n2 -> c0 PrepareReply 0 Commit",
            "c0 -> n0 Decide 0 Commit",
            "c0 -> n1 Decide 0 Commit",
            "c0 -> n2 Decide 0 Commit",
        ]
    );
    assert_eq!(net.told(0), ["value x = absent", "committed"]);
}

/// 000 Fig. 3: overlapping serialization windows are lined up by moving reads forward.
#[test]
fn re_execution_lines_up_three_overlapping_transactions_without_an_abort() {
    let mut net = morty(3);
    for client in 0..3 {
        net.get(client, "x");
    }
    net.settle();
    for client in 0..3 {
        net.commit(client, &["x"], &[("x", "1")]);
    }
    net.settle();
    // The first one's write was missed by the others, and reached them before their votes.
    assert_eq!(net.told(0), ["value x = absent", "committed"]);
    assert_eq!(net.told(1), ["value x = absent", "rewind x = 1"]);
    assert_eq!(net.told(2), ["value x = absent", "rewind x = 1", "rewind x = 1"]);
    net.commit(1, &["x"], &[("x", "2")]);
    net.settle();
    assert_eq!(net.told(1), ["committed"]);
    assert_eq!(net.told(2), ["rewind x = 2"]);
    net.commit(2, &["x"], &[("x", "3")]);
    net.settle();
    assert_eq!(net.told(2), ["committed"]);
    net.get(0, "x");
    net.settle();
    assert_eq!(net.told(0), ["value x = 3"]);
}

#[test]
fn without_re_execution_the_transaction_that_missed_a_write_is_aborted() {
    let mut net = overlapping(mvtso(2));
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    net.commit(1, &["x"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    assert_eq!(net.told(1), ["aborted over [\"x\"]"]);
}

#[test]
fn a_put_is_shown_to_readers_before_its_transaction_ends() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    net.commit(1, &["x"], &[("x", "2")]);
    net.settle();
    assert_eq!(net.told(1), [] as [&str; 0], "its vote waits for what it read");
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    assert_eq!(net.told(1), ["committed"]);
}

#[test]
fn an_unchanged_write_is_not_sent_again_and_a_changed_one_supersedes_it() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    net.put(0, "x", "1");
    assert_eq!(net.trace(), [] as [&str; 0]);
    net.put(0, "x", "2");
    assert!(net.trace().contains(&"c0 -> n1 Put x = 2".to_string()));
    assert_eq!(net.told(1), ["rewind x = 1", "rewind x = 2"]);
}

#[test]
fn a_write_that_the_next_execution_does_not_make_is_withdrawn() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    net.commit(0, &["x"], &[("y", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    assert_eq!(net.told(1), ["rewind x = absent"]);
    net.commit(1, &["x"], &[]);
    net.settle();
    assert_eq!(net.told(1), ["committed"]);
}

#[test]
fn readers_of_an_aborted_write_are_told_what_is_there_without_it() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    net.operate(0, Operation::Rollback);
    net.settle();
    assert_eq!(net.told(0), ["aborted over []"]);
    assert_eq!(net.told(1), ["rewind x = 1", "rewind x = absent"]);
}

#[test]
fn a_delete_is_a_write_and_an_absent_key_can_be_read() {
    let mut net = morty(1);
    for (value, read) in [("1", "value x = 1"), ("", "value x = absent")] {
        net.commit(0, &[], &[("x", value)]);
        net.settle();
        assert_eq!(net.told(0), ["committed"]);
        net.get(0, "x");
        net.settle();
        net.commit(0, &["x"], &[]);
        net.settle();
        assert_eq!(net.told(0), [read, "committed"]);
    }
}

#[test]
fn two_votes_of_three_commit_the_slow_way_once_the_third_is_given_up() {
    let mut net = morty(1);
    net.held.insert(NodeId(2));
    net.commit(0, &[], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), [] as [&str; 0]);
    net.fire(0, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    // The third replica hears of the decision, and what it is about, when the network is whole.
    net.held = NodeSet::EMPTY;
    net.network.clear();
    net.fire(0, |timer| *timer == Timer::RepeatDecisions);
    net.settle();
    net.get(0, "x");
    net.settle();
    let id = |replica: usize| {
        let record = net.replicas[replica].record(&Key::from("x")).unwrap();
        record.committed.latest().unwrap().value.clone()
    };
    assert_eq!(id(2), Some(Value::from("1")));
    assert_eq!(id(2), id(0));
}

#[test]
fn without_a_majority_nothing_is_decided() {
    let mut net = morty(1);
    net.held = [NodeId(1), NodeId(2)].into_iter().collect();
    net.commit(0, &[], &[("x", "1")]);
    net.settle();
    net.fire(0, |timer| matches!(timer, Timer::Repeat(_)));
    net.settle();
    assert_eq!(net.told(0), [] as [&str; 0]);
    net.held = NodeSet::EMPTY;
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
}

#[test]
fn a_prepared_execution_is_abandoned_by_the_prepare_of_the_next() {
    let mut net = morty(2);
    net.get(1, "x"); // the older of the two
    net.settle();
    net.get(0, "x");
    net.settle();
    net.commit(0, &["x"], &[("x", "old")]);
    // One replica votes for it; the others do not hear of it.
    net.network.retain(|(_, to, _)| *to == NodeId(0));
    net.settle();
    net.commit(1, &["x"], &[("x", "new")]);
    net.settle();
    assert_eq!(net.told(0), ["value x = absent", "rewind x = new"]);
    net.commit(0, &["x"], &[("x", "newer")]);
    net.settle();
    assert_eq!(net.told(1)[1..], ["committed"]);
    assert_eq!(net.told(0), ["committed"]);
    let record = net.replicas[1].record(&Key::from("x")).unwrap();
    assert_eq!(record.committed.len(), 2);
    assert_eq!(record.committed.latest().unwrap().value, Some(Value::from("newer")));
    assert!(record.is_idle(), "nothing is left of a decided transaction: {record:?}");
}

#[test]
fn a_vote_for_an_execution_that_was_abandoned_counts_no_more() {
    let mut net = overlapping(morty(2));
    net.commit(1, &["x"], &[("x", "old")]);
    net.held = [NodeId(0), NodeId(1), NodeId(2)].into_iter().collect();
    for _ in 0..3 {
        let prepare = net.network.pop_front().unwrap();
        net.deliver(prepare);
    }
    // All three votes to commit are on their way when the older transaction's write arrives.
    let votes: Vec<_> = net.network.drain(..).collect();
    net.put(0, "x", "1");
    net.held = NodeSet::EMPTY;
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    net.commit(1, &["x"], &[("x", "new")]);
    net.network.extend(votes);
    net.settle();
    assert_eq!(net.told(1), [] as [&str; 0], "it waits for the one it has read from");
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    assert_eq!(net.told(1), ["committed"]);
}

#[test]
fn a_program_that_runs_again_and_reads_more_gives_up_what_it_had_prepared() {
    let mut net = overlapping(morty(2));
    net.held.insert(NodeId(2));
    net.commit(1, &["x"], &[("x", "old")]);
    net.settle();
    net.put(0, "x", "1");
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    net.get(1, "y");
    let sent: Vec<_> = net.network.iter().map(|(_, to, message)| (*to, name(message))).collect();
    assert!(sent.contains(&(NodeId(1), "Finalize 0 Abandon".to_string())), "{sent:?}");
}

#[test]
fn late_and_repeated_messages_of_a_decided_transaction_leave_nothing_behind() {
    let mut net = morty(1);
    let version = Version { timestamp_us: 5, coordinator: coordinator_id(0) };
    let key = Key::from("x");
    let from = coordinator_id(0);
    let decide = Message::Decide { version, eid: 0, decision: Decision::Abort, contents: None };
    net.deliver((from, NodeId(0), decide.clone()));
    let late = [
        Message::Get { version, key: key.clone() },
        Message::Put { version, key: key.clone(), tag: 1, value: None },
        Message::Prepare { version, eid: 0, next_tag: 1, contents: Default::default() },
        decide,
    ];
    for message in late {
        net.deliver((from, NodeId(0), message));
    }
    let finalize =
        Message::Finalize { version, eid: 0, view: View::OWN, decision: Proposal::Abandon };
    net.deliver((from, NodeId(0), finalize));
    assert!(net.replicas[0].record(&key).is_none());
    assert_eq!(net.replicas[0].undecided(), 0);
}

#[test]
fn a_write_too_late_for_a_committed_read_is_refused_for_good() {
    let mut net = morty(2);
    net.get(0, "y"); // Takes the older version.
    net.settle();
    net.get(1, "x");
    net.settle();
    net.commit(1, &["x"], &[]);
    net.settle();
    net.commit(0, &["y"], &[("x", "1")]);
    let trace = net.trace();
    assert!(trace.contains(&format!("n0 -> c0 PrepareReply 0 {:?}", Vote::AbandonFinal)));
    assert_eq!(net.told(0), ["value y = absent", "aborted over [\"x\"]"]);
}

#[test]
fn a_commit_that_crosses_a_rewind_is_ignored() {
    let mut net = overlapping(morty(2));
    let stale = net.open[&1].clone();
    net.put(0, "x", "1");
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    let reads = vec![ReadStamp { key: Key::from("x"), stamp: stale[&Key::from("x")] }];
    net.operate(1, Operation::Commit { reads, writes: vec![write("y", "of absent")] });
    assert!(net.network.is_empty(), "{:?}", net.network);
}

#[test]
fn what_is_asked_of_a_transaction_that_has_ended_is_ignored() {
    let mut net = morty(1);
    net.commit(0, &[], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    net.ask(0, Operation::Get { key: Key::from("x") });
    net.ask(0, Operation::Put(write("x", "2")));
    net.ask(0, Operation::Commit { reads: Vec::new(), writes: vec![write("x", "2")] });
    assert!(net.network.is_empty());
}

#[test]
fn a_tentative_vote_is_overcome_although_a_replica_is_down() {
    let mut net = morty(2);
    net.get(1, "x"); // The older of the two.
    net.settle();
    net.get(0, "x");
    net.settle();
    net.held.insert(NodeId(2));
    net.commit(0, &["x"], &[("x", "young")]);
    net.network.retain(|(_, to, _)| *to != NodeId(1));
    net.settle();
    // One replica has prepared the younger read, one is free, one is down.
    net.commit(1, &["x"], &[("x", "old")]);
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "rewind x = old");
    net.commit(0, &["x"], &[("x", "younger")]);
    net.settle();
    net.fire(1, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    net.fire(1, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(1).last().unwrap(), "committed");
    net.fire(0, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "committed");
}

#[test]
fn a_replica_answers_after_a_restart_as_it_answered_before() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    net.commit(1, &["x"], &[("x", "2")]);
    net.settle();
    // It has voted provisionally on the second, which has read from the first.
    let log = core::mem::take(&mut net.logs[0]);
    let group = Group::new(3, Duration::from_millis(1));
    let mut restarted = replica(&group, 0, Options::default());
    for record in log {
        restarted.replay(record, &mut net.stores[0]);
    }
    net.replicas[0] = restarted;
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "committed");
    assert_eq!(net.told(1).last().unwrap(), "committed");
    let record = net.replicas[0].record(&Key::from("x")).unwrap();
    assert_eq!(record.committed.latest().unwrap().value, Some(Value::from("2")));
    assert_eq!(net.replicas[0].undecided(), 0);
}

/// Client 0 has changed `x` as often as client 1 runs again for at once, and then two times more.
fn overwhelmed() -> Net {
    let mut net = overlapping(morty(2));
    for change in 1..=REWINDS_AT_ONCE + 2 {
        let value = change.to_string();
        net.put(0, "x", &value);
        net.settle();
        if change <= REWINDS_AT_ONCE {
            assert_eq!(net.told(1), [format!("rewind x = {value}")]);
            net.commit(1, &["x"], &[("x", &value)]);
            net.settle();
        }
    }
    assert_eq!(net.told(1), [] as [&str; 0], "the last two are held");
    net
}

#[test]
fn changes_that_come_thick_and_fast_are_taken_together() {
    let mut net = overwhelmed();
    let last = (REWINDS_AT_ONCE + 2).to_string();
    net.fire(1, |timer| matches!(timer, Timer::Rewind(_)));
    assert_eq!(net.told(1), [format!("rewind x = {last}")]);
    net.commit(1, &["x"], &[("x", "later")]);
    net.commit(0, &["x"], &[("x", &last)]);
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "committed");
    assert_eq!(net.told(1).last().unwrap(), "committed");
}

#[test]
fn what_is_held_is_told_at_once_when_the_execution_is_voted_down() {
    let mut net = overwhelmed();
    let last = (REWINDS_AT_ONCE + 2).to_string();
    // What client 1 has prepared rests on an earlier value than the one that commits.
    net.commit(0, &["x"], &[("x", &last)]);
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "committed");
    assert_eq!(net.told(1), [format!("rewind x = {last}")]);
}
