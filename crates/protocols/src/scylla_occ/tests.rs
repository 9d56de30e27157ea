//! A client whose messages are moved by hand.

use core::time::Duration;

use serried_actor::{Group, Settings};
use serried_model::snapshots::{Operation, Outcome, Output, Own};
use serried_model::{Key, NodeId, Value, Write};

use super::{Coordinator, Message, Mutation, Replica};
use crate::Mutated;
use crate::testing::{self, client_id};

type Net = testing::Net<Replica, Coordinator>;

/// One replica of each of two partitions, and two clients.
fn net(mutation: Mutated<Mutation>) -> Net {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(2);
    let settings = Settings::default();
    let replica = |id| Replica::new(id, group.clone(), &settings, Mutated::NONE);
    let mut net: Net = testing::Net::new(2, 1, replica)
        .with_clients(2, |_| Coordinator::new(group.clone(), &settings, mutation));
    net.now = 1000;
    net.set_clock_us(1_000_000);
    net.start();
    net.pass(Duration::from_millis(1));
    net
}

fn write(net: &mut Net, txn: u64, key: &str, value: &str) {
    let write = Write { key: Key::from(key), value: Some(Value::from(value)) };
    net.operate(
        1,
        txn,
        Operation::Write { writes: vec![write], session: 0, era: None, at: None, token: None },
    );
    let from = client_id(1);
    net.settle_where(|(sender, receiver, _)| *sender == from || *receiver == from);
    net.outputs.clear();
}

/// What a read of all keys has found, and in how many rounds, if it has ended.
fn read(net: &mut Net) -> Option<(Vec<Option<String>>, u32)> {
    let outcome = net.outputs.drain(..).find_map(|(_, (_, output))| match output {
        Output::Outcome(Outcome::Read(read)) => Some(read),
        _ => None,
    })?;
    let text = |value: Option<Value>| value.map(|value| value.to_string());
    Some((outcome.found.into_iter().map(|(value, _)| text(value)).collect(), outcome.rounds))
}

/// A read of four keys whose messages the test moves.
fn reading(mutation: Mutated<Mutation>) -> Net {
    let mut net = net(mutation);
    let keys = ["a", "b", "c", "d"];
    keys.iter().zip(1..).for_each(|(key, txn)| write(&mut net, txn, key, "1"));
    let all = keys.iter().map(|key| Key::from(*key)).collect();
    net.operate(0, 1, Operation::Read { keys: all, at: None, own: Own::default() });
    net
}

/// Has both partitions answer. What is sent while they do is another round.
fn round(net: &mut Net) {
    let reader = client_id(0);
    for _ in 0..4 {
        assert!(net.step_where(|(from, to, _)| *from == reader || *to == reader));
    }
}

#[test]
fn a_read_goes_on_until_two_rounds_find_the_same_versions() {
    let mut net = reading(Mutated::NONE);
    round(&mut net);
    assert_eq!(read(&mut net), None, "it was not validated");
    // The value comes back, but the version does not.
    write(&mut net, 11, "b", "2");
    write(&mut net, 12, "b", "1");
    round(&mut net);
    assert_eq!(read(&mut net), None);
    write(&mut net, 13, "c", "3");
    round(&mut net);
    assert_eq!(read(&mut net), None);
    round(&mut net);
    let one = || Some("1".to_string());
    assert_eq!(read(&mut net), Some((vec![one(), one(), Some("3".into()), one()], 4)));
    assert!(net.network.iter().all(|(_, _, message)| !matches!(message, Message::Read(_))));
}

#[test]
fn a_read_that_compares_values_ends_although_a_version_is_another() {
    let mut net = reading(Mutated::by(Mutation::ComparesValues));
    round(&mut net);
    write(&mut net, 11, "b", "2");
    write(&mut net, 12, "b", "1");
    round(&mut net);
    assert_eq!(read(&mut net).map(|(_, rounds)| rounds), Some(2));
}

#[test]
fn a_read_that_is_given_up_after_many_rounds_says_so() {
    let mut net = reading(Mutated::NONE);
    for number in 0..3 {
        round(&mut net);
        write(&mut net, 11 + number, "b", &number.to_string());
    }
    net.operate(0, 1, Operation::GiveUp);
    let outcome = net.outputs.drain(..).find_map(|(_, (_, output))| match output {
        Output::Outcome(outcome) => Some(outcome),
        Output::Began(_) | Output::Era(_) => None,
    });
    assert_eq!(outcome, Some(Outcome::Contended { rounds: 4 }));
}

#[test]
fn a_leader_that_may_be_deposed_answers_no_read() {
    let group = Group::new(3, Duration::from_millis(1));
    let settings = Settings::default();
    let new = |id| Replica::new(id, group.clone(), &settings, Mutated::NONE);
    let mut net: Net = testing::Net::new(1, 3, new)
        .with_clients(1, |_| Coordinator::new(group.clone(), &settings, Mutated::NONE));
    net.now = 1000;
    net.set_clock_us(1_000_000);
    net.start();
    net.pass(Duration::from_millis(10));
    assert_eq!(net.gauge(0, "leads"), 1);
    for (from, to) in [(0, 1), (0, 2), (1, 0), (2, 0)] {
        net.cut.insert((NodeId(from), NodeId(to)));
    }
    net.operate(
        0,
        1,
        Operation::Read { keys: vec![Key::from("a")], at: None, own: Own::default() },
    );
    net.settle();
    assert_eq!(read(&mut net), None, "it can't know whether it still leads");
}

#[test]
fn a_read_that_is_given_up_in_its_second_round_is_not_contended() {
    let mut net = reading(Mutated::NONE);
    round(&mut net);
    net.operate(0, 1, Operation::GiveUp);
    let outcome = net.outputs.drain(..).find_map(|(_, (_, output))| match output {
        Output::Outcome(outcome) => Some(outcome),
        Output::Began(_) | Output::Era(_) => None,
    });
    assert_eq!(outcome, Some(Outcome::NoEffect));
}

#[test]
fn a_write_that_was_given_up_is_remembered_until_it_is_tried_again() {
    let mut net = net(Mutated::NONE);
    let operation = |value: &str, token| {
        let write = Write { key: Key::from("a"), value: Some(Value::from(value)) };
        Operation::Write { writes: vec![write], session: 0, era: None, at: None, token }
    };
    net.operate(0, 1, operation("first", None));
    let client = client_id(0);
    net.settle_where(|(_, to, _)| *to != client);
    net.operate(0, 1, Operation::GiveUp);
    let outputs: Vec<Output> = net.outputs.drain(..).map(|(_, (_, output))| output).collect();
    let [Output::Began(token), Output::Outcome(Outcome::Unknown)] = outputs[..] else {
        panic!("{outputs:?}")
    };
    // The answer comes after that, and the same client writes the key again.
    net.settle();
    net.operate(0, 2, operation("second", None));
    net.settle();
    net.outputs.clear();
    net.operate(0, 3, operation("first", Some(token)));
    net.settle();
    let outcome = net.outputs.drain(..).find_map(|(_, (_, output))| match output {
        Output::Outcome(outcome) => Some(outcome),
        Output::Began(_) | Output::Era(_) => None,
    });
    assert!(matches!(outcome, Some(Outcome::Written(_))), "{outcome:?}");
}
