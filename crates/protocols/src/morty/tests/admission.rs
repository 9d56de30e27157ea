//! A transaction that has read nothing is prepared only when the replicas let it in.

use super::*;
use crate::morty::message::Refusal;

/// By how much clocks may differ, in microseconds.
fn bound_us() -> u64 {
    Settings::default().clock_bound_ms * 1000
}

/// A client that has just come.
fn stranger(options: Options) -> Net {
    let mut net = Net::new(options, 1);
    let group = Group::new(3, Duration::from_millis(1));
    net.clients[coordinator_id(0)].actor = Coordinator::new(group, &Settings::default(), options);
    net
}

/// Begins a transaction by a clock that is ahead by so much, and commits a write by one that is right.
fn write_from_ahead(net: &mut Net, ahead_us: u64) {
    net.now += ahead_us;
    net.open.insert(0, BTreeMap::new());
    net.ask(0, Operation::Begin { only_reads: false, age: None });
    net.now -= ahead_us;
    net.commit(0, &[], &[("x", "1")]);
}

fn sent(net: &Net, name: &str) -> usize {
    net.network.iter().filter(|(.., message)| super::name(message).starts_with(name)).count()
}

#[test]
fn the_first_blind_write_asks_and_those_that_follow_do_not() {
    let mut net = stranger(Options::default());
    net.commit(0, &[], &[("x", "1")]);
    assert_eq!((sent(&net, "AskAdmission"), sent(&net, "Prepare")), (3, 0));
    // A majority is enough.
    net.held.insert(NodeId(2));
    net.settle();
    net.held = NodeSet::EMPTY;
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    for passed_us in [0, 3600 * 1_000_000] {
        net.now += passed_us;
        net.commit(0, &[], &[("x", "2")]);
        assert_eq!((sent(&net, "AskAdmission"), sent(&net, "Prepare")), (0, 3));
        net.settle();
        assert_eq!(net.told(0), ["committed"]);
    }
}

#[test]
fn who_has_read_does_not_ask() {
    let mut net = stranger(Options::default());
    net.get(0, "x");
    net.settle();
    net.commit(0, &["x"], &[("x", "1")]);
    assert_eq!((sent(&net, "AskAdmission"), sent(&net, "Prepare")), (0, 3));
}

#[test]
fn what_a_majority_does_not_let_in_is_never_prepared() {
    let mvtso = Options { re_execution: false, provisional_votes: false, ..Options::default() };
    for options in [Options::default(), mvtso] {
        for knows_time in [false, true] {
            let mut net = stranger(options);
            if knows_time {
                net.clients[coordinator_id(0)].hears_time(0, Timestamp(0));
            }
            write_from_ahead(&mut net, bound_us() + 1_000_000);
            let trace = net.trace().join(", ");
            assert!(!trace.contains("Prepare"), "{trace}");
            // Its clock has been set right since, but its versions go on from where they were.
            let told = net.told(0);
            assert!(told[0].contains("ClockSkew"), "{told:?}");
            assert!(
                net.nodes.values().all(|node| node.records.is_empty()),
                "nothing is kept of it"
            );
        }
    }
}

#[test]
fn a_client_whose_clock_is_behind_is_told_so_before_anything_is_prepared() {
    for behind_us in [0, bound_us() - 1000, bound_us() + 1000, 3 * bound_us()] {
        let mut net = stranger(Options::default());
        net.commit(0, &[], &[("x", "1")]);
        assert_eq!(sent(&net, "AskAdmission"), 3);
        net.now += behind_us;
        for _ in 0..3 {
            let asked = net.network.pop_front().unwrap();
            net.deliver(asked);
        }
        net.now -= behind_us;
        let is_too_much = behind_us > bound_us();
        let prepared = net.trace().iter().any(|line| line.contains("Prepare"));
        assert_eq!(prepared, !is_too_much, "{behind_us}");
        let told = net.told(0);
        assert_eq!(told[0].contains("ClockSkew { ahead_us: -"), is_too_much, "{told:?}");
        assert_eq!(told[0] == "committed", !is_too_much, "{told:?}");
    }
}

#[test]
fn one_replica_alone_refuses_nobody() {
    let mut net = stranger(Options::default());
    net.commit(0, &[], &[("x", "1")]);
    let Some((_, _, Message::Request(Request::AskAdmission { version }))) =
        net.network.front().cloned()
    else {
        panic!("it asks: {:?}", net.network);
    };
    net.network.retain(|(_, to, _)| *to != NodeId(0));
    let refusal = Refusal::Ahead { clock_us: 0 };
    net.deliver((
        NodeId(0),
        coordinator_id(0),
        Message::Reply(Reply::Refused { version, refusal }),
    ));
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
}

#[test]
fn a_question_that_is_lost_is_asked_again() {
    let mut net = stranger(Options::default());
    net.commit(0, &[], &[("x", "1")]);
    net.network.clear();
    net.fire(0, |timer| matches!(timer, Timer::Repeat(_)));
    assert_eq!((sent(&net, "AskAdmission"), sent(&net, "Prepare")), (3, 0));
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
}
