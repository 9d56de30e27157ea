//! Registrations of sets of procedures, and requests under sets that are not in use.

use super::reading::{Envelope, read, second_round, two_partitions};
use super::*;
use crate::rococo::message::{Message, Reply, Request};
use hand::{Hand, OF_HAND, compiled, other, r, short, start_to};

#[test]
fn a_call_under_a_set_to_come_waits_for_it() {
    let mut hand = Hand::new(2, 1, Settings::default());
    hand.register(compiled(OF_HAND));
    hand.net.cut.insert((r(0), r(1))); // Partition 1 does not use the set yet.
    let a = hand.at(1, 0);
    let number = hand.begin(0, "add", &[a]);
    while hand.net.network.iter().all(|(_, _, message)| !start_to(message)) {
        assert!(hand.net.step());
    }
    let start = hand.net.network.iter().find(|(.., message)| start_to(message)).unwrap().clone();
    hand.run(5);
    hand.net.cut.clear();
    hand.run(2000);
    assert!(hand.outcome(number).is_some());
    assert_eq!(hand.began(number).len(), 1, "it was not refused");
    assert_eq!(hand.call(1, "get", &[a, a]), [1, 1]);
    hand.net.deliver(start); // It was repeated.
    hand.run(5000);
    assert_eq!(hand.call(1, "get", &[a, a]), [1, 1]);
}

#[test]
fn calls_under_the_last_set_end_while_the_next_is_registered() {
    let mut hand = Hand::new(2, 1, Settings::default());
    hand.register(compiled(OF_HAND));
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    let call = hand.begin(0, "two", &inputs);
    for _ in 0..20 {
        hand.net.step(); // The first partition starts it.
    }
    let set = other("more");
    let register = hand.operate(1, Operation::Register { set, replaces: None });
    hand.run(20_000);
    assert!(hand.registered(register).is_some(), "the registration has not ended");
    assert!(hand.outcome(call).is_some(), "the call has not ended");
}

#[test]
fn what_a_drained_partition_starts_ends_there() {
    let mut hand = Hand::new(2, 1, Settings { recovery_after_ms: 3000, ..Settings::default() });
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.call(0, "get", &inputs);
    let call = hand.begin(0, "two", &inputs);
    let held = hand.net.take(|(_, to, message)| *to == r(1) && start_to(message));
    assert!(!held.is_empty());
    hand.run(1);
    let second = hand.operate(1, Operation::Register { set: other("more"), replaces: None });
    // The client's requests to partition 1 wait until that has drained.
    hand.net.cut.insert((testing::client_id(0), r(1)));
    hand.run(600);
    hand.net.cut.clear();
    for envelope in held {
        hand.net.deliver(envelope);
    }
    for _ in 0..100 {
        hand.run(1);
        // The end at partition 1 is lost.
        let is_end = |message: &Message| matches!(message, Message::Request(Request::End(_)));
        hand.net.network.retain(|(_, to, message)| *to != r(1) || !is_end(message));
    }
    assert!(hand.outcome(call).is_some(), "the call has not ended");
    hand.run(20_000);
    assert!(hand.registered(second).is_some(), "the second set");
    let third = hand.operate(1, Operation::Register { set: other("others"), replaces: None });
    hand.run(20_000);
    assert_eq!(hand.net.gauge(r(1), "open_transactions"), 0);
    assert!(hand.registered(third).is_some(), "the third set");
}

#[test]
fn a_registration_that_is_repeated_late_changes_nothing() {
    let mut hand = Hand::new(2, 1, Settings::default());
    let register = hand.operate(0, Operation::Register { set: compiled(OF_HAND), replaces: None });
    for _ in 0..20 {
        if hand
            .net
            .network
            .iter()
            .any(|(.., message)| matches!(message, Message::Request(Request::Register { .. })))
        {
            break;
        }
        hand.net.step();
    }
    let is_register =
        |message: &Message| matches!(message, Message::Request(Request::Register { .. }));
    let twice = hand.net.network.iter().find(|(.., message)| is_register(message)).unwrap().clone();
    hand.run(2000);
    assert!(hand.registered(register).is_some());
    hand.register(other("more"));
    hand.run(1000);
    hand.net.deliver(twice);
    hand.run(3000);
    let list = hand.operate(2, Operation::List);
    hand.run(1000);
    let version = hand.outputs.iter().find_map(|(of, output)| match output {
        Output::Set(version, _) if *of == list => Some(*version),
        _ => None,
    });
    assert_eq!(version, Some(2));
}

#[test]
fn a_set_that_was_not_checked_is_refused() {
    let mut hand = Hand::new(1, 1, Settings::default());
    // The set is compiled and not checked, so immediacy was not spread.
    let mixed = r#"
[procedures.mixed]
inputs = { a = "int" }
[procedures.mixed.pieces.one]
rows = { row = { table = "t", key = ["a"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"
outputs.n = "row.n"
[procedures.mixed.pieces.other]
rows = { row = { table = "t", key = ["one.n % 4 + 100"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"
"#;
    let set = serried_chop::compile(&format!("{OF_HAND}{mixed}")).unwrap();
    let set = Arc::new(set);
    let register = hand.operate(0, Operation::Register { set, replaces: None });
    hand.run(2000);
    let registered = hand.registered(register);
    assert!(matches!(registered, Some(Registration::Unfit(_))), "{registered:?}");
}

/// A reply that a set is installed is repeated. Its copy comes while the next set is being put in use.
#[test]
fn a_late_reply_about_the_former_set_does_not_count_for_the_next() {
    let mut hand = Hand::new(2, 3, Settings::default());
    let is_installed =
        |message: &Message| matches!(message, Message::Reply(Reply::Installed { version: 1 }));
    let is_drained =
        |message: &Message| matches!(message, Message::Reply(Reply::Drained { version: 2 }));
    let first = hand.operate(3, Operation::Register { set: compiled(OF_HAND), replaces: None });
    let installed = hand.until(is_installed);
    hand.net.deliver(installed.clone());
    hand.run(1000);
    assert!(hand.registered(first).is_some());
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.call(0, "two", &inputs);
    hand.run(1000);
    let second = hand.operate(3, Operation::Register { set: other("more"), replaces: None });
    let drained = hand.until(is_drained);
    assert_eq!((drained.0, drained.1), (installed.0, installed.1));
    hand.net.deliver(drained);
    hand.net.deliver(installed);
    hand.run(10_000);
    assert!(hand.registered(second).is_some());
    let call = hand.begin(1, "two", &inputs);
    hand.run(30_000);
    assert!(hand.outcome(call).is_some(), "partition 1 does not get the second set");
}

/// The clock of a client is ten minutes ahead. The client leaves when its call has ended, before it says so to partitions.
#[test]
fn a_drain_does_not_wait_for_the_clock_of_a_client() {
    let mut hand = Hand::new(2, 1, short());
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.net.ahead_us.insert(testing::client_id(1), 600_000_000);
    let call = hand.begin(1, "two", &inputs);
    while hand.outcome(call).is_none() {
        hand.run(1);
    }
    hand.net.leave(testing::client_id(1));
    let second = hand.operate(3, Operation::Register { set: other("more"), replaces: None });
    hand.run(60_000);
    assert!(hand.registered(second).is_some(), "{}", hand.net.gauge(r(0), "open_transactions"));
}

#[test]
fn the_first_calls_under_a_set_do_not_wait_for_timers() {
    let mut hand = Hand::new(2, 1, short());
    hand.register(compiled(OF_HAND));
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    let (write, read) = (hand.begin(0, "two", &inputs), hand.begin(1, "get", &inputs));
    hand.run(30);
    assert!(hand.outcome(write).is_some() && hand.outcome(read).is_some());
}

#[test]
fn requests_under_sets_that_nobody_knows_stop_nothing() {
    let (mut hand, inputs) = two_partitions();
    let (_, second) = second_round(&mut hand, &inputs);
    assert_eq!(second.len(), 2);
    for request in second {
        let mut forged = read(&request).clone();
        forged.set = u64::MAX;
        hand.net.deliver((request.0, request.1, Message::Request(Request::Read(forged))));
    }
    hand.register(other("more"));
    assert_eq!(hand.call(0, "get", &inputs), [5, 0]);
}

/// A partition that has not put a set in use gets it before it drains for the next one.
#[test]
fn a_partition_uses_one_set_after_the_other() {
    let mut hand = Hand::new(2, 1, short());
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let of_set = |(_, to, message): &Envelope| match message {
        Message::Request(Request::Install { version, .. }) if *to == r(1) => Some((*version, true)),
        Message::Request(Request::Drain { version, .. }) if *to == r(1) => Some((*version, false)),
        _ => None,
    };
    let is_lost = |envelope: &Envelope| of_set(envelope).is_some_and(|step| step != (2, false));
    let mut steps = Vec::new();
    for name in ["more", "others"] {
        hand.operate(3, Operation::Register { set: other(name), replaces: None });
        for _ in 0..500 {
            loop {
                let lost = hand.net.take(|envelope| is_lost(envelope));
                steps.extend(lost.iter().filter_map(of_set));
                if !hand.net.step_where(|envelope| !is_lost(envelope)) {
                    break;
                }
            }
            hand.net.wait(Duration::from_millis(1));
            hand.net.ids().into_iter().for_each(|id| hand.net.fire_due(id));
            hand.net.fire_due_clients();
        }
    }
    steps.dedup();
    assert_eq!(steps, [(2, true)], "{steps:?}");
}
