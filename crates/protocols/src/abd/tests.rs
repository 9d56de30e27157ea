//! Coordinators and replicas with the messages between them moved by hand.

use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;
use serried_actor::{
    Actor, ClockInterval, Context, Coordinate, Durable, Effect, Group, MemoryStore, NodeSet,
    Recover, Settings, Timestamp,
};
use serried_model::registers::{Operation, Outcome, Output};
use serried_model::{Access, Carstamp, Key, Modification, NodeId, Token, TxnId, Value};
use serried_parts::Stamped;

use super::{Coordinator, Message, Record, Replica};
use crate::Mutated;

mod returning;

const CLIENTS: u64 = 2;

/// Three replicas, two coordinators, and the messages between them, delivered in order.
struct Net {
    replicas: Vec<Replica>,
    coordinators: Vec<Coordinator>,
    stores: [MemoryStore; 3],
    /// What each has recorded.
    logs: [Vec<Record>; 3],
    network: VecDeque<(NodeId, NodeId, Message)>,
    /// Messages to these replicas are lost.
    away: NodeSet,
    outputs: Vec<(u64, Output)>,
    random: Pcg64Mcg,
}

fn client(number: u64) -> NodeId {
    NodeId(NodeId::FIRST_COORDINATOR + number)
}

fn write(value: &str) -> Access {
    Access::Write(Some(Value::from(value)))
}

fn set(members: &[u64]) -> NodeSet {
    members.iter().map(|member| NodeId(*member)).collect()
}

impl Net {
    fn new(thrifty: bool) -> Net {
        let group = Group::new(3, Duration::from_millis(1));
        let settings = Settings { thrifty, ..Settings::default() };
        let coordinator = |_| Coordinator::new(group.clone(), &settings, Mutated::NONE);
        let replica = |member| Replica::new(NodeId(member), group.clone(), &settings);
        Net {
            replicas: (0..3).map(replica).collect(),
            coordinators: (0..CLIENTS).map(coordinator).collect(),
            stores: Default::default(),
            logs: Default::default(),
            network: VecDeque::new(),
            away: NodeSet::EMPTY,
            outputs: Vec::new(),
            random: Pcg64Mcg::new(1),
        }
    }

    fn client(
        &mut self,
        number: u64,
        act: impl FnOnce(&mut Coordinator, &mut Context<'_, Coordinator>),
    ) {
        let mut effects = Vec::new();
        let clock = ClockInterval { earliest_us: 5, latest_us: 5 };
        let durable = Durable {
            store: &mut MemoryStore::default(),
            log_position: 0,
            durable_position: u64::MAX,
        };
        let mut cx = Context::new(
            client(number),
            Timestamp(0),
            clock,
            &mut self.random,
            &mut effects,
            durable,
        );
        act(&mut self.coordinators[number as usize], &mut cx);
        for effect in effects {
            match effect {
                Effect::Broadcast { to, message, .. } => {
                    let each =
                        to.members().map(|m| (client(number), NodeId(m as u64), message.clone()));
                    self.network.extend(each);
                }
                Effect::Output((_, output)) => self.outputs.push((number, output)),
                _ => {}
            }
        }
    }

    fn replica(
        &mut self,
        member: usize,
        act: impl FnOnce(&mut Replica, &mut Context<'_, Replica>),
    ) {
        let mut effects = Vec::new();
        let clock = ClockInterval { earliest_us: 5, latest_us: 5 };
        let durable = Durable {
            store: &mut self.stores[member],
            log_position: 0,
            durable_position: u64::MAX,
        };
        let id = NodeId(member as u64);
        let mut cx = Context::new(id, Timestamp(0), clock, &mut self.random, &mut effects, durable);
        act(&mut self.replicas[member], &mut cx);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.network.push_back((id, to, message)),
                Effect::Append(record) => self.logs[member].push(record),
                _ => {}
            }
        }
    }

    fn ask(&mut self, number: u64, txn: u64, access: Access, token: Option<Token>) {
        let operation = Operation::Access { key: Key::from("x"), access, token };
        self.client(number, |coordinator, cx| coordinator.on_operation(TxnId(txn), operation, cx));
    }

    /// Delivers one message.
    fn step(&mut self) -> bool {
        let Some((from, to, message)) = self.network.pop_front() else { return false };
        if to.is_coordinator() {
            let number = to.0 - NodeId::FIRST_COORDINATOR;
            self.client(number, |coordinator, cx| coordinator.on_message(from, message, cx));
        } else if !self.away.contains(to) {
            self.replica(to.member(), |replica, cx| replica.on_message(from, message, cx));
        }
        true
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    /// What a replica is made to hold, by nobody in particular.
    fn hold(&mut self, member: usize, value: &str, timestamp: u64) {
        let carstamp = Carstamp { timestamp, ..Carstamp::INITIAL };
        let stamped = Stamped { value: Some(Value::from(value)), carstamp };
        let apply = Message::Apply { request: 99, key: Key::from("x"), stamped };
        self.replica(member, |replica, cx| replica.on_message(client(9), apply, cx));
        self.network.clear();
    }

    /// How the client's operations ended, with what they found.
    fn ended(&mut self, number: u64) -> Vec<String> {
        let told = self.outputs.extract_if(.., |(other, _)| *other == number);
        let outcomes = told.filter_map(|(_, output)| match output {
            Output::Outcome(outcome) => Some(outcome),
            _ => None,
        });
        let words = outcomes.flat_map(|outcome| match outcome {
            Outcome::Done(accessed) => {
                let found = accessed.found.map(|found| found.to_string());
                found.into_iter().chain(["Committed".to_string()]).collect::<Vec<_>>()
            }
            outcome => vec![format!("{outcome:?}")],
        });
        words.collect()
    }

    fn placed(&self) -> Vec<Carstamp> {
        let placed = self.outputs.iter().filter_map(|(_, output)| match output {
            Output::Placed(carstamp) => Some(*carstamp),
            _ => None,
        });
        placed.collect()
    }
}

#[test]
fn a_read_ends_after_one_phase_only_if_a_majority_holds_the_same() {
    let mut net = Net::new(false);
    net.away = set(&[2]);
    net.hold(0, "new", 1);
    net.ask(0, 1, Access::Read, None);
    for _ in 0..5 {
        net.step();
    }
    assert_eq!(net.ended(0), [] as [&str; 0], "one of the majority does not hold it");
    net.settle();
    assert_eq!(net.ended(0), ["new", "Committed"]);
    // Whoever asks any majority now finds it.
    net.away = set(&[0]);
    net.ask(1, 2, Access::Read, None);
    net.settle();
    assert_eq!(net.ended(1), ["new", "Committed"]);
    net.away = set(&[2]);
    net.ask(0, 3, Access::Read, None);
    for _ in 0..5 {
        net.step();
    }
    assert_eq!(net.ended(0), ["new", "Committed"], "all of the majority hold it");
}

#[test]
fn what_is_older_than_what_is_held_is_acknowledged_and_changes_nothing() {
    let mut net = Net::new(false);
    net.hold(0, "new", 2);
    net.hold(0, "old", 1);
    net.hold(1, "new", 2);
    net.away = set(&[2]);
    net.ask(0, 1, Access::Read, None);
    net.settle();
    assert_eq!(net.ended(0), ["new", "Committed"]);
}

#[test]
fn writes_of_one_client_at_the_same_time_have_carstamps_of_their_own() {
    let mut net = Net::new(false);
    net.hold(0, "before", 7);
    net.hold(1, "before", 7);
    net.ask(0, 1, write("a"), None);
    net.ask(0, 2, write("b"), None);
    net.settle();
    let placed = net.placed();
    assert_eq!(net.ended(0), ["Committed", "Committed"]);
    assert!(placed.len() == 2 && placed[0] != placed[1], "{placed:?}");
    assert!(placed.iter().all(|carstamp| carstamp.timestamp > 7 && carstamp.rmwc == 0));
}

#[test]
fn a_write_that_is_given_up_may_take_effect_only_once_it_has_a_place() {
    let mut net = Net::new(false);
    let give_up = |net: &mut Net| {
        net.client(0, |coordinator, cx| coordinator.on_operation(TxnId(1), Operation::GiveUp, cx));
    };
    net.ask(0, 1, write("a"), None);
    give_up(&mut net);
    assert_eq!(net.ended(0), ["NoEffect"]);
    net.settle();
    assert!(net.placed().is_empty());

    net.ask(0, 1, write("a"), None);
    while net.placed().is_empty() {
        net.step();
    }
    give_up(&mut net);
    assert_eq!(net.outputs.last().unwrap().1, Output::Outcome(Outcome::Unknown));
}

#[test]
fn a_write_that_is_tried_again_with_its_token_takes_effect_once() {
    let mut net = Net::new(false);
    net.ask(0, 1, write("a"), None);
    while net.placed().is_empty() {
        net.step();
    }
    let carstamp = net.placed()[0];
    let Output::Began(id) = net.outputs[0].1 else { panic!("it begins with its token") };
    // One replica hears of it, and others write and read meanwhile.
    net.network.retain(|(_, to, _)| *to == NodeId(0));
    net.settle();
    net.ask(1, 2, write("b"), None);
    net.settle();
    net.outputs.clear();
    net.ask(1, 3, write("a"), Some(Token { id, carstamp: Some(carstamp) }));
    net.settle();
    assert_eq!(net.placed(), [carstamp]);
    assert_eq!(net.ended(1), ["Committed"]);
    net.ask(1, 4, Access::Read, None);
    net.settle();
    assert_eq!(net.ended(1), ["b", "Committed"], "what was written over does not come back");
}

#[test]
fn a_replica_that_lost_its_disk_answers_no_first_phase_before_a_majority_has_shown_what_it_holds() {
    let mut net = Net::new(false);
    net.hold(0, "acknowledged", 1);
    // With the help of replica 2, which has lost it; replica 1 never heard of it.
    net.replica(2, |replica, cx| {
        replica.rejoin(cx);
        replica.on_start(cx);
    });
    net.away = set(&[0]);
    net.settle();
    net.ask(0, 1, Access::Read, None);
    net.settle();
    assert_eq!(net.ended(0), [] as [&str; 0]);
    net.away = NodeSet::EMPTY;
    net.replica(2, |replica, cx| replica.on_start(cx));
    net.settle();
    net.away = set(&[0]);
    net.ask(1, 2, Access::Read, None);
    net.settle();
    assert_eq!(net.ended(1), ["acknowledged", "Committed"]);
}

#[test]
fn a_thrifty_request_goes_to_a_majority_and_to_the_others_when_one_is_slow() {
    let mut net = Net::new(true);
    let asked = |net: &Net| -> Vec<u64> { net.network.iter().map(|(_, to, _)| to.0).collect() };
    net.away = set(&[1]);
    net.ask(0, 1, Access::Read, None);
    assert_eq!(asked(&net), [0, 1]);
    net.settle();
    net.client(0, |coordinator, cx| coordinator.on_timer(super::coordinator::Repeat(TxnId(1)), cx));
    assert_eq!(asked(&net), [1, 2]);
    net.settle();
    assert_eq!(net.ended(0), ["Committed"]);
    net.ask(0, 2, Access::Read, None);
    assert_eq!(asked(&net), [0, 2], "who was slow is asked last");
}

#[test]
fn read_modify_writes_are_refused_and_nothing_is_sent() {
    let mut net = Net::new(false);
    net.ask(0, 1, Access::Modify(Modification::add(1)), None);
    assert_eq!(net.ended(0), ["NoEffect"]);
    assert!(net.network.is_empty());
}

/// The replica `first` alone has applied a write when its disk is lost. It is replaced, and takes over what
/// others hold. With the net come the messages of the write to the others, which are late.
fn replaced_in_a_write(first: u64) -> (Net, Vec<(NodeId, NodeId, Message)>) {
    let mut net = Net::new(false);
    net.ask(0, 1, write("v"), None);
    while net.placed().is_empty() {
        net.step();
    }
    let applies = net.network.drain(..).filter(|(.., m)| matches!(m, Message::Apply { .. }));
    let (now, late): (Vec<_>, Vec<_>) = applies.partition(|(_, to, _)| *to == NodeId(first));
    net.network = now.into();
    net.settle();
    assert_eq!(net.ended(0), [] as [&str; 0], "one of three");
    net.replace(first as usize);
    net.settle();
    (net, late)
}

#[test]
fn what_a_replica_applied_before_its_disk_was_lost_does_not_count() {
    for first in 0..3 {
        let (mut net, late) = replaced_in_a_write(first);
        // One more applies it, which is all who hold it.
        let next = (first + 1) % 3;
        net.network.extend(late.iter().filter(|(_, to, _)| *to == NodeId(next)).cloned());
        net.settle();
        assert_eq!(net.ended(0), [] as [&str; 0]);
        // Asked again the new one applies it as well.
        let again = super::coordinator::Repeat(TxnId(1));
        net.away = set(&[(first + 2) % 3]);
        net.client(0, |coordinator, cx| coordinator.on_timer(again, cx));
        net.settle();
        assert_eq!(net.ended(0), ["Committed"]);
        net.away = set(&[next]);
        net.ask(1, 2, Access::Read, None);
        net.settle();
        assert_eq!(net.ended(1), ["v", "Committed"]);
    }
}

#[test]
fn what_a_replica_said_before_its_disk_was_lost_does_not_count_if_it_comes_late() {
    let mut net = Net::new(false);
    net.ask(0, 1, write("v"), None);
    while net.placed().is_empty() {
        net.step();
    }
    net.network.retain(|(.., message)| matches!(message, Message::Apply { .. }));
    net.away = set(&[1, 2]);
    for _ in 0..3 {
        net.step();
    }
    let late: Vec<_> = net.network.drain(..).collect();
    assert!(matches!(late[..], [(NodeId(0), _, Message::Applied { .. })]));
    net.away = NodeSet::EMPTY;
    net.replace(0);
    net.settle();
    let again = super::coordinator::Repeat(TxnId(1));
    net.away = set(&[0, 2]);
    net.client(0, |coordinator, cx| coordinator.on_timer(again, cx));
    net.settle();
    net.network.extend(late);
    net.settle();
    assert_eq!(net.ended(0), [] as [&str; 0], "1 alone holds it");
}

#[test]
fn a_replica_that_does_not_know_what_it_held_acknowledges_nothing() {
    let mut net = Net::new(false);
    net.away = set(&[1, 2]);
    net.replace(0);
    net.settle();
    net.ask(0, 1, Access::Read, None);
    let carstamp = Carstamp { timestamp: 1, ..Carstamp::INITIAL };
    let stamped = Stamped { value: Some(Value::from("v")), carstamp };
    let apply = Message::Apply { request: 99, key: Key::from("x"), stamped };
    net.replica(0, |replica, cx| replica.on_message(client(0), apply, cx));
    net.network.retain(|(_, to, _)| !net.away.contains(*to));
    while net.network.iter().any(|(_, to, _)| !to.is_coordinator()) {
        net.step();
    }
    assert!(net.network.is_empty(), "{:?}", net.network);
}

#[test]
fn a_client_that_passes_for_a_replaced_replica_ends_nobody_and_changes_nothing() {
    let mut net = Net::new(false);
    for number in 0..64 {
        let scan = Message::Scan { after: None, incarnation: 1 };
        net.replica(0, |replica, cx| replica.on_message(client(number), scan, cx));
    }
    assert!(net.network.is_empty() && net.logs[0].is_empty());
}

#[test]
fn a_replica_whose_predecessor_had_a_clock_that_was_ahead_is_in_a_later_incarnation() {
    let mut net = Net::new(false);
    for member in [1, 2] {
        let scan = Message::Scan { after: None, incarnation: 1000 };
        net.replica(member, |replica, cx| replica.on_message(NodeId(0), scan, cx));
    }
    net.network.clear();
    net.replace(0);
    net.settle();
    assert_eq!(net.named_by_first().map(|named| named[0]), Some(1001));
}

/// Replica 0's clock was ahead when it replaced a lost disk. The others, who know its number, are replaced one after the
/// other, and then replica 0 is again.
#[test]
fn who_replaces_a_lost_disk_takes_over_which_numbers_the_others_know() {
    let mut net = Net::new(false);
    for member in [1, 2] {
        let scan = Message::Scan { after: None, incarnation: 1000 };
        net.replica(member, |replica, cx| replica.on_message(NodeId(0), scan, cx));
    }
    net.network.clear();
    for member in [1, 2, 0] {
        net.replace(member);
        net.settle();
    }
    assert_eq!(net.named_by_first().map(|named| named[0]), Some(1001));
}

#[test]
fn a_replica_knows_after_a_restart_whose_disks_were_lost() {
    let mut net = Net::new(false);
    net.replace(0);
    net.settle();
    let group = Group::new(3, Duration::from_millis(1));
    let mut restarted = Replica::new(NodeId(1), group, &Settings::default());
    for record in net.logs[1].drain(..) {
        restarted.replay(record, &mut net.stores[1]);
    }
    net.replicas[1] = restarted;
    net.replica(1, |replica, cx| replica.on_start(cx));
    let read = Message::Read1 { request: 99, key: Key::from("x") };
    net.replica(1, |replica, cx| replica.on_message(client(0), read, cx));
    let named = net.network.iter().find_map(|(.., message)| match message {
        Message::Read1Reply { incarnations, .. } => Some(incarnations.clone()),
        _ => None,
    });
    assert_eq!(named, Some(vec![5, 0, 0]), "by when the first replica's began");
    assert!(net.logs[1].contains(&Record::Incarnations(vec![5, 0, 0])), "at the log's end again");
}

impl Net {
    /// The incarnations that replica 0 names, if it answers.
    fn named_by_first(&mut self) -> Option<Vec<u64>> {
        self.ask(0, 1, Access::Read, None);
        self.step();
        self.network.iter().find_map(|(from, _, message)| match message {
            Message::Read1Reply { incarnations, .. } if *from == NodeId(0) => {
                Some(incarnations.clone())
            }
            _ => None,
        })
    }

    /// A replica starts in the place of one whose disk was lost.
    fn replace(&mut self, member: usize) {
        let group = Group::new(3, Duration::from_millis(1));
        let id = NodeId(member as u64);
        self.replicas[member] = Replica::new(id, group, &Settings::default());
        self.stores[member] = MemoryStore::default();
        self.replica(member, |replica, cx| {
            replica.rejoin(cx);
            replica.on_start(cx);
        });
    }
}
