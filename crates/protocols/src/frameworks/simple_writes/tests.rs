//! Replicas with versionstamps, whose messages are moved by hand.

use core::time::Duration;

use serried_actor::{Group, Settings};
use serried_model::snapshots::{Operation, Outcome, Output, Own, Read, Written};
use serried_model::{Key, NodeId, Value, Versionstamp, Write, WriteToken};

use super::machine::Machine;
use super::message::Entry;
use super::replica::Client;
use super::{Answer, Coordinator, Found, Message, Mutation, Replica, Request, Timer};
use crate::Mutated;
use crate::frameworks::replicated_log::{Ballot, Chosen, Led, StateMachine};
use crate::testing::{self, client_id};

type Net = testing::Net<Replica<Versionstamp>, Coordinator<Versionstamp>>;

/// A client that the test plays.
const STRANGER: NodeId = NodeId(NodeId::FIRST_COORDINATOR + 1000);

fn replica(id: NodeId, members: usize) -> Replica<Versionstamp> {
    broken(id, members, Mutated::NONE)
}

fn broken(id: NodeId, members: usize, mutation: Mutated<Mutation>) -> Replica<Versionstamp> {
    let group = Group::new(members, Duration::from_millis(1));
    Replica::new(id, group, &Settings::default(), mutation)
}

/// So many replicas, of which the first leads, and a client.
fn net(members: usize) -> Net {
    net_of(members, Mutated::NONE)
}

/// The same, with a mistake.
fn net_of(members: usize, mutation: Mutated<Mutation>) -> Net {
    let group = Group::new(members, Duration::from_millis(1));
    let mut net: Net = testing::Net::new(1, members, |id| broken(id, members, mutation))
        .with_clients(1, |_| Coordinator::new(group.clone(), Mutated::NONE));
    net.now = 1000;
    net.start();
    net.pass(Duration::from_millis(10));
    assert_eq!(net.gauge(0, "leads"), 1);
    net
}

fn write(requested: Versionstamp, key: &str, value: &str) -> Request<Versionstamp> {
    Request::Write { requested, key: Key::from(key), value: Some(Value::from(value)) }
}

fn read(at: Versionstamp, keys: &[&str]) -> Request<Versionstamp> {
    Request::Read { at, keys: keys.iter().map(|key| Key::from(*key)).collect() }
}

/// Sends a request to a replica, as a client that the test plays.
fn send(net: &mut Net, to: usize, number: u64, request: Request<Versionstamp>) {
    net.deliver((STRANGER, NodeId(to as u64), Message::Request { number, request }));
}

/// The answers that have arrived since the last call.
fn answers(net: &mut Net) -> Vec<(u64, Answer<Versionstamp>)> {
    let delivered = core::mem::take(&mut net.delivered);
    let answer = |message| match message {
        Message::Reply { number, answer } => Some((number, answer)),
        _ => None,
    };
    delivered.into_iter().filter_map(|(_, _, message)| answer(message)).collect()
}

/// The answer to a request, once all messages have arrived.
fn ask(net: &mut Net, to: usize, request: Request<Versionstamp>) -> Answer<Versionstamp> {
    send(net, to, 7, request);
    net.pass(Duration::ZERO);
    let answers = answers(net);
    let [(7, answer)] = &answers[..] else { panic!("one answer: {answers:?}") };
    answer.clone()
}

fn shown(net: &mut Net, to: usize) -> Versionstamp {
    match ask(net, to, Request::ReadClock) {
        Answer::Clock(shown) => shown,
        other => panic!("{other:?}"),
    }
}

/// A place that is not before that of the write, and whether it was omitted.
fn placed(answer: &Answer<Versionstamp>) -> (Versionstamp, bool) {
    match answer {
        Answer::Written { shown, omitted, .. } => (*shown, *omitted),
        other => panic!("{other:?}"),
    }
}

fn values(answer: &Answer<Versionstamp>) -> Vec<Option<String>> {
    let text = |found: &Found<_>| found.value.as_ref().map(Value::to_string);
    match answer {
        Answer::Values { found, .. } => found.iter().map(text).collect(),
        other => panic!("{other:?}"),
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_string())
}

#[test]
fn a_read_finds_what_was_there_and_no_later_write_gets_a_place_before_it() {
    for members in [1, 3] {
        let mut net = net(members);
        let (first, omitted) = placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a")));
        assert!(!omitted);
        let at = first.after(Duration::from_millis(100));
        assert_eq!(values(&ask(&mut net, 0, read(at, &["x", "y"]))), [some("a"), None]);
        let (second, omitted) = placed(&ask(&mut net, 0, write(first.next(), "x", "b")));
        assert!(second > at && !omitted, "it was promoted up to {at}");
        assert_eq!(values(&ask(&mut net, 0, read(at, &["x"]))), [some("a")]);
        assert_eq!(values(&ask(&mut net, 0, read(second, &["x"]))), [some("b")]);
        let before = first.before(Duration::from_micros(1));
        assert_eq!(values(&ask(&mut net, 0, read(before, &["x"]))), [None]);
    }
}

#[test]
fn a_write_is_omitted_for_one_whose_place_is_not_before_what_it_requested() {
    let mut net = net(3);
    let first = ask(&mut net, 0, write(Versionstamp(1), "x", "a"));
    let Answer::Written { stamp, omitted: false, shown } = first else { panic!("{first:?}") };
    assert!(stamp < shown);
    for requested in [Versionstamp(2), stamp, stamp.next(), shown] {
        let second = ask(&mut net, 0, write(requested, "x", "b"));
        let Answer::Written { stamp: other, omitted: true, .. } = second else {
            panic!("{second:?}")
        };
        assert_eq!(other, stamp);
    }
    let (_, omitted) = placed(&ask(&mut net, 0, write(shown, "y", "b")));
    assert!(!omitted, "that is another key");
    let (later, omitted) = placed(&ask(&mut net, 0, write(shown.next(), "x", "c")));
    assert!(later > shown && !omitted);
    assert_eq!(net.gauge(0, "omitted_writes"), 4);
}

#[test]
fn a_write_that_arrives_again_changes_nothing() {
    let mut net = net(3);
    let first = write(Versionstamp(5), "x", "a");
    let (place, _) = placed(&ask(&mut net, 0, first.clone()));
    ask(&mut net, 0, write(place.next(), "x", "b"));
    let delete = Request::Write { requested: place.next().next(), key: "x".into(), value: None };
    assert!(placed(&ask(&mut net, 0, delete)).1, "it has not seen the last one");
    let at = shown(&mut net, 0).after(Duration::from_millis(1));
    net.wait(Duration::from_millis(5));
    let delete = Request::Write { requested: at, key: "x".into(), value: None };
    assert!(!placed(&ask(&mut net, 0, delete)).1);
    assert!(placed(&ask(&mut net, 0, first)).1, "the key is deleted, and was written before");
    let at = at.after(Duration::from_secs(1));
    assert_eq!(values(&ask(&mut net, 0, read(at, &["x"]))), [None]);
}

#[test]
fn writes_of_a_key_that_has_one_in_the_log_wait_for_it_and_are_omitted_without_an_entry() {
    let mut net = net(3);
    let slots = net.gauge(0, "applied_slots");
    for number in 0..20 {
        send(&mut net, 0, number, write(Versionstamp(number + 1), "x", "a"));
    }
    assert_eq!(answers(&mut net), [], "nothing is chosen");
    net.pass(Duration::ZERO);
    let answers: Vec<_> =
        answers(&mut net).iter().map(|(number, answer)| (*number, placed(answer).1)).collect();
    let expected: Vec<_> = (0..20).map(|number| (number, number > 0)).collect();
    assert_eq!(answers, expected);
    assert_eq!(net.gauge(0, "applied_slots"), slots + 1);
}

#[test]
fn a_read_does_not_wait_for_a_write_that_is_not_applied_and_that_one_comes_after_it() {
    let mut net = net(3);
    ask(&mut net, 0, write(Versionstamp(1), "x", "a"));
    let requested = shown(&mut net, 0).after(Duration::from_millis(2));
    send(&mut net, 0, 1, write(requested, "x", "b"));
    let at = requested.after(Duration::from_millis(5));
    send(&mut net, 0, 2, read(at, &["x"]));
    net.settle_where(|(_, to, _)| *to == STRANGER);
    let at_once = answers(&mut net);
    assert_eq!(at_once.len(), 1);
    assert_eq!(values(&at_once[0].1), [some("a")]);
    net.pass(Duration::ZERO);
    let written = answers(&mut net);
    let (place, omitted) = placed(&written[0].1);
    assert!(place > at && !omitted);
    assert_eq!(values(&ask(&mut net, 0, read(at, &["x"]))), [some("a")]);
    assert_eq!(values(&ask(&mut net, 0, read(place, &["x"]))), [some("b")]);
    assert_eq!(net.gauge(0, "blocked_reads"), 0);
}

/// Whether a write under a new leader comes before a read under the former one, which has not found it.
fn comes_before_what_was_promoted(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(3, mutation);
    let (place, _) = placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a")));
    // The bound is 5 s ahead. What is read stays 1.25 s below it.
    let far = place.after(Duration::from_millis(3700));
    assert_eq!(values(&ask(&mut net, 0, read(far, &["x"]))), [some("a")]);
    net.crash(0);
    net.pass(Duration::from_secs(1));
    let leader = (1..3).find(|member| net.gauge(*member, "leads") == 1).expect("one leads");
    let requested = shown(&mut net, leader);
    let (written, omitted) = placed(&ask(&mut net, leader, write(requested, "x", "b")));
    assert!(!omitted);
    assert_eq!(values(&ask(&mut net, leader, read(written, &["x"]))), [some("b")]);
    let early = ask(&mut net, leader, read(far, &["x"]));
    // What was when under the former leader is not known to it.
    let is_too_old = matches!(early, Answer::TooOld { .. });
    assert!(is_too_old || values(&early) == [some("b")]);
    // The former leader comes back as a follower, and passes requests on.
    net.restart(0, broken(NodeId(0), 3, mutation));
    net.pass(Duration::from_millis(500));
    assert_eq!(values(&ask(&mut net, 0, read(written, &["x"]))), [some("b")]);
    !is_too_old
}

#[test]
fn a_new_leader_places_writes_after_all_that_its_predecessor_may_have_promoted() {
    assert!(!comes_before_what_was_promoted(Mutated::NONE));
    assert!(comes_before_what_was_promoted(Mutated::by(Mutation::PromotionForgotten)));
}

/// Whether a write takes effect that was omitted before, and arrives again under a new leader.
fn takes_effect_after_it_was_omitted(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(3, mutation);
    let first = ask(&mut net, 0, write(Versionstamp(1), "x", "a"));
    let Answer::Written { stamp, shown, .. } = first else { panic!("{first:?}") };
    let late = write(shown, "x", "b");
    assert!(stamp < shown && placed(&ask(&mut net, 0, late.clone())).1);
    net.crash(0);
    net.pass(Duration::from_secs(1));
    let leader = (1..3).find(|member| net.gauge(*member, "leads") == 1).expect("one leads");
    let answer = ask(&mut net, leader, late);
    let at = self::shown(&mut net, leader);
    let found = values(&ask(&mut net, leader, read(at, &["x"])));
    match answer {
        Answer::Outdated { .. } => assert_eq!(found, [some("a")]),
        _ => assert_eq!(found, [some("b")]),
    }
    // What was requested after all of that does take effect.
    assert!(!placed(&ask(&mut net, leader, write(at.next(), "x", "c"))).1);
    found == [some("b")]
}

#[test]
fn a_write_that_was_omitted_takes_no_effect_when_it_arrives_again_under_a_new_leader() {
    assert!(!takes_effect_after_it_was_omitted(Mutated::NONE));
    assert!(takes_effect_after_it_was_omitted(Mutated::by(Mutation::OutdatedWritten)));
}

/// Whether a leader that was deposed, and does not know it, answers a read at the place of another leader's write with
/// the value from before it.
fn answers_after_it_was_deposed(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(3, mutation);
    let (place, _) = placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a")));
    for (from, to) in [(0, 1), (0, 2), (1, 0), (2, 0)] {
        net.cut.insert((NodeId(from), NodeId(to)));
    }
    // Its timers don't go off, so it does not notice. Its clock goes on.
    net.held = testing::set(&[0]);
    net.pass(Duration::from_secs(3));
    let leader = (1..3).find(|member| net.gauge(*member, "leads") == 1).expect("one leads");
    assert_eq!(net.gauge(0, "leads"), 1, "it does not know");
    let requested = shown(&mut net, leader);
    let (later, _) = placed(&ask(&mut net, leader, write(requested, "x", "b")));
    net.held = testing::set(&[]);
    let take = |net: &mut Net| {
        net.settle_where(|(_, to, _)| *to == STRANGER);
        answers(net)
    };
    send(&mut net, 0, 1, read(place.after(Duration::from_secs(3)), &["x"]));
    assert_eq!(values(&take(&mut net)[0].1), [some("a")], "the other one writes nothing there");
    assert!(later > place.after(Duration::from_secs(4)));
    send(&mut net, 0, 2, read(later, &["x"]));
    let answers = take(&mut net);
    answers.iter().for_each(|(_, answer)| assert_eq!(values(answer), [some("a")]));
    !answers.is_empty()
}

#[test]
fn a_deposed_leader_answers_no_read_above_the_bound() {
    assert!(!answers_after_it_was_deposed(Mutated::NONE));
    assert!(answers_after_it_was_deposed(Mutated::by(Mutation::PromotionUnbounded)));
}

#[test]
fn the_only_replica_knows_after_a_restart_what_it_may_have_promoted() {
    let mut net = net(1);
    let (place, _) = placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a")));
    let far = place.after(Duration::from_millis(3700));
    ask(&mut net, 0, read(far, &["x"]));
    for _ in 0..100 {
        net.fire(0, Timer::Store);
    }
    net.crash(0);
    net.restart(0, replica(NodeId(0), 1));
    net.pass(Duration::from_secs(1));
    // It knows the write's versionstamp, and not its place.
    let early = ask(&mut net, 0, read(far, &["x"]));
    assert!(matches!(early, Answer::TooOld { .. }), "{early:?}");
    let requested = shown(&mut net, 0);
    let (later, omitted) = placed(&ask(&mut net, 0, write(requested, "x", "b")));
    assert!(later > far && !omitted);
    assert_eq!(values(&ask(&mut net, 0, read(later, &["x"]))), [some("b")]);
}

#[test]
fn the_bound_is_raised_while_time_passes_and_nobody_asks_for_anything() {
    let mut net = net(3);
    net.pass(Duration::from_secs(30));
    let at = shown(&mut net, 0);
    assert!(at > Versionstamp::ZERO.after(Duration::from_secs(29)), "{at}");
    let blocked = net.gauge(0, "blocked_reads");
    ask(&mut net, 0, read(at.after(Duration::from_millis(100)), &["x"]));
    assert_eq!(net.gauge(0, "blocked_reads"), blocked);
    // Some session has come from far ahead.
    let far = at.after(Duration::from_secs(60));
    assert_eq!(values(&ask(&mut net, 0, read(far, &["x"]))), [None]);
    assert_eq!(net.gauge(0, "blocked_reads"), blocked + 1);
    assert!(shown(&mut net, 0) >= far);
    net.pass(Duration::from_secs(10));
    ask(&mut net, 0, read(far.after(Duration::from_secs(10)), &["x"]));
    assert_eq!(net.gauge(0, "blocked_reads"), blocked + 1, "its clock goes on from there");
}

#[test]
fn a_bound_that_was_lost_is_proposed_again_when_its_replica_leads_again() {
    let mut net = net(3);
    let far = shown(&mut net, 0).after(Duration::from_secs(60));
    for to in [1, 2] {
        net.cut.insert((NodeId(0), NodeId(to)));
    }
    send(&mut net, 0, 1, read(far, &["x"]));
    net.pass(Duration::from_secs(3));
    assert_eq!(net.gauge(0, "leads"), 0, "it was deposed");
    net.cut.clear();
    // It is the preferred leader.
    net.pass(Duration::from_secs(20));
    assert_eq!(net.gauge(0, "leads"), 1);
    answers(&mut net);
    assert_eq!(values(&ask(&mut net, 0, read(far, &["x"]))), [None]);
}

#[test]
fn a_write_raises_the_bound_to_what_it_needs() {
    let mut net = net(3);
    let far = shown(&mut net, 0).after(Duration::from_secs(60));
    let (place, _) = placed(&ask(&mut net, 0, write(far, "x", "a")));
    assert_eq!(values(&ask(&mut net, 0, read(place, &["x"]))), [some("a")]);
    assert_eq!(net.gauge(0, "blocked_reads"), 0);
    net.crash(0);
    net.pass(Duration::from_secs(1));
    let leader = (1..3).find(|member| net.gauge(*member, "leads") == 1).expect("one leads");
    assert!(shown(&mut net, leader) > place);
}

#[test]
fn writes_that_are_requested_alike_have_different_versionstamps() {
    let mut net = net(3);
    for (number, key) in [(1, "x"), (2, "y")] {
        send(&mut net, 0, number, write(Versionstamp(1), key, "a"));
    }
    net.pass(Duration::ZERO);
    let stamp = |(_, answer): &(u64, Answer<Versionstamp>)| match answer {
        Answer::Written { stamp, .. } => *stamp,
        other => panic!("{other:?}"),
    };
    let stamps: Vec<_> = answers(&mut net).iter().map(stamp).collect();
    assert!(stamps.len() == 2 && stamps[0] != stamps[1], "{stamps:?}");
}

#[test]
fn the_durable_log_is_trimmed() {
    let mut net = net(3);
    for number in 0..200 {
        ask(&mut net, 0, write(Versionstamp(1), &format!("key-{number}"), "a"));
    }
    net.pass(Duration::from_secs(5));
    for member in 0..3 {
        let trimmed = net.nodes[member].trimmed.unwrap_or(0);
        assert!(net.nodes[member].log_position() - trimmed < 20, "{member}");
    }
}

#[test]
fn a_versionstamp_that_no_session_can_have_is_rejected() {
    let mut net = net(1);
    net.forged = true;
    for request in [read(Versionstamp(u64::MAX), &["x"]), write(Versionstamp(1 << 63), "x", "a")] {
        send(&mut net, 0, 1, request);
        net.settle();
        assert_eq!(answers(&mut net), []);
    }
    assert!(!placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a"))).1);
}

#[test]
fn overwritten_versions_are_forgotten_after_a_second() {
    let mut net = net(3);
    let (first, _) = placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a")));
    net.wait(Duration::from_millis(1));
    ask(&mut net, 0, write(first.next(), "x", "b"));
    assert_eq!(net.gauge(0, "overwritten_versions"), 2);
    net.pass(Duration::from_millis(900));
    assert_eq!(values(&ask(&mut net, 0, read(first, &["x"]))), [some("a")]);
    net.pass(Duration::from_millis(200));
    assert_eq!(net.gauge(0, "overwritten_versions"), 0);
    let Answer::TooOld { shown } = ask(&mut net, 0, read(first, &["x"])) else {
        panic!("it is not kept")
    };
    assert_eq!(values(&ask(&mut net, 0, read(shown, &["x"]))), [some("b")]);
}

/// What the client tells its session.
fn outcome(net: &mut Net) -> Outcome {
    net.pass(Duration::from_millis(1));
    let outputs = net.outputs.drain(..).filter_map(|(_, (_, output))| match output {
        Output::Outcome(outcome) => Some(outcome),
        Output::Began(_) | Output::Era(_) => None,
    });
    let outcomes: Vec<_> = outputs.collect();
    let [outcome] = &outcomes[..] else { panic!("one outcome: {outcomes:?}") };
    outcome.clone()
}

#[test]
fn a_session_that_knows_nothing_asks_for_the_clocks_first_and_one_that_is_too_old_reads_again() {
    let mut net = net(3);
    let (first, _) = placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a")));
    let keys = vec![Key::from("x"), Key::from("y"), Key::from("x")];
    net.operate(0, 1, Operation::Read { keys: keys.clone(), at: None, own: Own::default() });
    let Outcome::Read(Read { found, at, rounds, .. }) = outcome(&mut net) else { panic!("a read") };
    assert_eq!(found.len(), 3);
    assert_eq!((found[0].clone(), found[1].clone()), (found[2].clone(), Default::default()));
    assert!(at >= first && rounds == 2);
    net.operate(0, 2, Operation::Read { keys: keys.clone(), at: Some(at), own: Own::default() });
    let Outcome::Read(read) = outcome(&mut net) else { panic!("a read") };
    assert_eq!((read.found, read.rounds), (found, 1));
    ask(&mut net, 0, write(at.next(), "x", "b"));
    net.pass(Duration::from_secs(10));
    net.operate(0, 3, Operation::Read { keys, at: Some(first), own: Own::default() });
    let Outcome::Read(Read { found, rounds, .. }) = outcome(&mut net) else { panic!("a read") };
    assert_eq!((found[0].0.clone(), rounds), (Some(Value::from("b")), 2));
    let write = Write { key: Key::from("x"), value: None };
    net.operate(
        0,
        4,
        Operation::Write { writes: vec![write], session: 0, era: None, at: None, token: None },
    );
    let Outcome::Written(Written { omitted, .. }) = outcome(&mut net) else { panic!("a write") };
    assert!(!omitted, "what was acknowledged before it began is not after it");
}

#[test]
fn a_client_requests_a_write_again_that_may_have_been_omitted_under_a_former_leader() {
    let mut net = net(3);
    let (place, _) = placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a")));
    net.crash(0);
    net.pass(Duration::from_secs(1));
    let write = Write { key: Key::from("x"), value: None };
    net.operate(
        0,
        1,
        Operation::Write {
            writes: vec![write],
            session: 0,
            era: None,
            at: Some(place.next()),
            token: None,
        },
    );
    net.pass(Duration::from_secs(1));
    let outputs: Vec<Output> = net.outputs.drain(..).map(|(_, (_, output))| output).collect();
    let [Output::Began(first), Output::Began(second), Output::Outcome(Outcome::Written(written))] =
        &outputs[..]
    else {
        panic!("{outputs:?}")
    };
    assert!(*first == WriteToken::Requested(place.next()) && first < second);
    assert!(!written.omitted);
    // From now on it asks the one that has answered.
    let leader = (1..3).find(|member| net.gauge(*member, "leads") == 1).expect("one leads");
    net.operate(
        0,
        2,
        Operation::Read { keys: vec!["x".into()], at: Some(place), own: Own::default() },
    );
    let is_asked = |(_, to, message): &(NodeId, NodeId, Message<_>)| {
        matches!(message, Message::Request { .. }) && *to == NodeId(leader as u64)
    };
    assert!(net.network.iter().any(is_asked));
}

#[test]
fn a_write_that_is_tried_again_keeps_its_request_whatever_the_session_has_seen_since() {
    let mut net = net(3);
    let (place, _) = placed(&ask(&mut net, 0, write(Versionstamp(1), "x", "a")));
    let (last, _) = placed(&ask(&mut net, 0, write(place.next(), "x", "b")));
    let write = Write { key: "x".into(), value: Some("a".into()) };
    let token = Some(WriteToken::Requested(Versionstamp(1)));
    let at = Some(last.after(Duration::from_secs(1)));
    net.operate(0, 1, Operation::Write { writes: vec![write], session: 0, era: None, at, token });
    let Outcome::Written(Written { omitted, .. }) = outcome(&mut net) else { panic!("a write") };
    assert!(omitted);
    assert_eq!(values(&ask(&mut net, 0, read(last, &["x"]))), [some("b")]);
}

#[test]
fn a_read_that_is_too_old_is_read_again_as_of_the_latest_clock() {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(2);
    let new = |id| Replica::new(id, group.clone(), &Settings::default(), Mutated::NONE);
    let mut net: Net = testing::Net::new(2, 1, new)
        .with_clients(1, |_| Coordinator::new(group.clone(), Mutated::NONE));
    net.now = 1000;
    net.start();
    net.pass(Duration::from_millis(10));
    let of = |partition| {
        let mut keys = (0u32..).map(|number| Key::from(number.to_be_bytes()));
        keys.find(|key| group.partition_of(key) == partition).expect("each has keys")
    };
    let keys = vec![of(0), of(1)];
    let far = Versionstamp::ZERO.after(Duration::from_secs(60));
    let write = Write { key: of(0), value: Some("a".into()) };
    net.operate(
        0,
        1,
        Operation::Write { writes: vec![write], session: 0, era: None, at: Some(far), token: None },
    );
    outcome(&mut net);
    // The version before is forgotten.
    net.pass(Duration::from_secs(2));
    let at = Some(Versionstamp::ZERO.after(Duration::from_secs(1)));
    net.operate(0, 2, Operation::Read { keys, at, own: Own::default() });
    let Outcome::Read(Read { rounds, found, .. }) = outcome(&mut net) else { panic!("a read") };
    assert_eq!((rounds, found[0].0.clone()), (2, Some(Value::from("a"))));
}

#[test]
fn what_is_given_up_may_have_taken_effect_if_it_is_a_write_that_was_sent() {
    let mut net = net(3);
    net.away = testing::set(&[0, 1, 2]);
    let write = || Write { key: Key::from("x"), value: None };
    let read = Operation::Read {
        keys: vec![Key::from("x")],
        at: Some(Versionstamp(5)),
        own: Own::default(),
    };
    let sent = Operation::Write {
        writes: vec![write()],
        session: 0,
        era: None,
        at: Some(Versionstamp(5)),
        token: None,
    };
    let unsent =
        Operation::Write { writes: vec![write()], session: 0, era: None, at: None, token: None };
    let token = Some(WriteToken::Requested(Versionstamp(3)));
    let again = Operation::Write { writes: vec![write()], session: 0, era: None, at: None, token };
    let operations = [
        (read, Outcome::NoEffect),
        (sent, Outcome::Unknown),
        (unsent, Outcome::NoEffect),
        (again, Outcome::Unknown),
    ];
    for (number, (operation, expected)) in (1..).zip(operations) {
        net.operate(0, number, operation);
        net.operate(0, number, Operation::GiveUp);
        assert_eq!(outcome(&mut net), expected, "{number}");
    }
    assert!(net.clients.contains_key(&client_id(0)));
    // Nobody sends it again.
    net.network.clear();
    net.away = testing::set(&[]);
    net.pass(Duration::from_secs(10));
    for member in 0..3 {
        assert_eq!(net.gauge(member, "reads") + net.gauge(member, "writes"), 0);
    }
}

#[test]
fn a_write_that_is_applied_without_being_led_is_not_what_a_client_waits_for() {
    let mut net = net(1);
    let ballot = Ballot { round: 9, member: 0 };
    let request = write(Versionstamp(1), "x", "a");
    let (requested, stamp) = (Versionstamp(1), Versionstamp(2));
    let entry = Entry::Write { key: Key::from("x"), value: None, requested, stamp };
    let entry = Led { by: ballot, number: 1, entry };
    let waits_after = |net: &mut Net, led_in| {
        net.act(0, |_, cx| {
            let mut machine = Machine::<Versionstamp>::new(&Settings::default(), Mutated::NONE);
            machine.lead(Some(ballot));
            machine.wait(3, Client { node: STRANGER, number: 9, request: request.clone() });
            machine.apply(Chosen { slot: 3, position: 1, entry: Some(&entry), led_in }, cx);
            machine.lead(None).len()
        })
    };
    assert_eq!((waits_after(&mut net, None), answers(&mut net)), (1, Vec::new()));
    assert_eq!(waits_after(&mut net, Some(ballot)), 0, "its own write is answered");
}
