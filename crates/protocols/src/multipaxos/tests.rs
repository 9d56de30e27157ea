//! Replicas whose messages are moved by hand.

mod gaps;
mod refusals;

use core::time::Duration;

use serried_actor::{Actor, Group, Settings};
use serried_model::registers::{Operation, Outcome, Output};
use serried_model::{Access, Key, Modification, NodeId, TxnId, Value, Version};

use super::{Answer, Coordinator, Message, Replica, Request};
use crate::Mutated;
use crate::frameworks::replicated_log::{self, Ballot};
use crate::frameworks::replicated_objects::Timer;
use crate::testing;

const CLIENT: NodeId = NodeId(NodeId::FIRST_COORDINATOR);

type Net = testing::Net<Replica, Coordinator>;

/// So many replicas, none of which has started.
fn replicas<C: Actor<Message = Message>>(members: usize) -> testing::Net<Replica, C> {
    let group = Group::new(members, Duration::from_millis(1));
    let settings = Settings::default();
    let replica = |id| Replica::new(id, group.clone(), &settings, Mutated::NONE);
    let mut net = testing::Net::new(1, members, replica);
    net.now = 1;
    net.set_clock_us(5);
    net
}

/// The only replica of a group.
fn only() -> Net {
    let mut net = replicas(1);
    net.start();
    net
}

/// Three replicas, of which only the second has started.
fn follower() -> Net {
    let mut net = replicas(3);
    net.act(1, |replica, cx| replica.on_start(cx));
    net.network.clear();
    net
}

/// A client of three replicas that do nothing.
fn client() -> Net {
    let group = Group::new(3, Duration::from_millis(1));
    replicas(3).with_clients(1, |_| Coordinator::new(group.clone(), &Settings::default()))
}

/// What was sent since the last call.
fn sent(net: &mut Net) -> Vec<(NodeId, Message)> {
    net.network.drain(..).map(|(_, to, message)| (to, message)).collect()
}

/// What a replica sends when it gets a message.
fn tell(net: &mut Net, from: NodeId, member: usize, message: Message) -> Vec<(NodeId, Message)> {
    net.deliver((from, NodeId::replica(0, member), message));
    sent(net)
}

fn request(number: u64, us: u64, access: Access) -> Request {
    let (token, settled) = (Version::at(us), Version::at(0));
    Request { number, key: Key::from("x"), token, settled, operation: access }
}

/// What the only replica of a group answers to requests that come in one turn.
fn answers(only: &mut Net, requests: &[Request]) -> Vec<(u64, Answer)> {
    only.act(0, |replica, cx| {
        for request in requests {
            replica.on_message(CLIENT, Message::Request(request.clone()), cx);
        }
        replica.on_timer(Timer::Log(replicated_log::Timer::Flush), cx);
    });
    let answers = sent(only).into_iter().filter_map(|(_, message)| match message {
        Message::Reply { request, answer } => Some((request, answer)),
        _ => None,
    });
    answers.collect()
}

fn found(answer: &Answer) -> Option<String> {
    let Answer::Done(stamped) = answer else { panic!("{answer:?}") };
    stamped.value.as_ref().map(Value::to_string)
}

#[test]
fn a_read_finds_what_was_put_into_the_log_before_it_and_nothing_later() {
    let mut only = only();
    let write = |text: &str| Access::Write(Some(Value::from(text)));
    let answers = answers(
        &mut only,
        &[
            request(1, 1, Access::Read),
            request(2, 2, write("a")),
            request(3, 3, Access::Read),
            request(4, 4, write("b")),
        ],
    );
    let found: Vec<_> = answers.iter().map(|(number, answer)| (*number, found(answer))).collect();
    assert_eq!(found, [(1, None), (2, None), (3, Some("a".into())), (4, None)]);
}

#[test]
fn an_update_that_is_logged_twice_takes_effect_once() {
    let mut only = only();
    let add = request(1, 2, Access::Modify(Modification::add(1)));
    let twice = answers(&mut only, &[add.clone(), add.clone()]);
    assert_eq!(twice[0], twice[1]);
    assert_eq!(answers(&mut only, &[add])[0], twice[0]);
    let [(_, answer)] = &answers(&mut only, &[request(3, 3, Access::Read)])[..] else {
        panic!("one answer")
    };
    assert_eq!(found(answer).as_deref(), Some("1"));
}

#[test]
fn an_update_of_a_client_whose_clock_is_far_ahead_is_refused() {
    let mut only = only();
    let far = request(1, 60_000_000, Access::Write(None));
    let [(1, Answer::ClockSkew { ahead_us })] = answers(&mut only, &[far])[..] else {
        panic!("it is refused")
    };
    assert_eq!(ahead_us, 60_000_000 - 5);
}

#[test]
fn a_follower_forwards_requests_once() {
    let mut follower = follower();
    let wanted = request(1, 1, Access::Read);
    let ask = |follower: &mut Net, message| tell(follower, CLIENT, 1, message);
    assert_eq!(ask(&mut follower, Message::Request(wanted.clone())), [], "nobody leads yet");
    let ballot = Ballot { round: 1, member: 2 };
    let beat =
        replicated_log::Message::Beat { ballot, number: 1, chosen: 0, base: 0, behind: false };
    let told = tell(&mut follower, NodeId(2), 1, Message::Log(beat));
    let forward = Message::Forward { client: CLIENT, request: wanted.clone() };
    assert!(told.contains(&(NodeId(2), forward.clone())), "{told:?}");
    let passed_on = ask(&mut follower, Message::Request(wanted));
    assert_eq!(passed_on, [(NodeId(2), forward.clone())]);
    assert_eq!(ask(&mut follower, forward), []);
}

#[test]
fn a_client_asks_whoever_has_answered_and_others_if_that_one_does_not() {
    let mut client = client();
    let read = |client: &mut Net, txn: u64| {
        let (key, access) = (Key::from("x"), Access::Read);
        client.operate(0, txn, Operation::Access { key, access, token: None });
        sent(client)
    };
    assert_eq!(read(&mut client, 1)[0].0, NodeId(0));
    reply(&mut client, NodeId(2), 1);
    let is_done = |(_, output): &(NodeId, (TxnId, Output))| {
        matches!(output, (TxnId(1), Output::Outcome(Outcome::Done(_))))
    };
    assert!(client.outputs.iter().any(is_done));
    assert_eq!(read(&mut client, 2)[0].0, NodeId(2));
    let repeat = |client: &mut Net| {
        client.fire_client(CLIENT, super::coordinator::Repeat(TxnId(2)));
        sent(client)[0].0
    };
    assert_eq!([repeat(&mut client), repeat(&mut client)], [NodeId(1), NodeId(2)]);
}

#[test]
fn what_is_given_up_may_have_taken_effect_if_it_is_an_update() {
    let mut client = client();
    let mut give_up = |txn: u64, access: Access| {
        client.operate(0, txn, Operation::Access { key: Key::from("x"), access, token: None });
        client.outputs.clear();
        client.operate(0, txn, Operation::GiveUp);
        let outcomes = client.outputs.drain(..).filter_map(|(_, (_, output))| match output {
            Output::Outcome(outcome) => Some(outcome),
            _ => None,
        });
        outcomes.collect::<Vec<_>>()
    };
    assert_eq!(give_up(1, Access::Read), [Outcome::NoEffect]);
    assert_eq!(give_up(2, Access::Write(None)), [Outcome::Unknown]);
}

/// What a client sends first for an operation on `x`.
fn first_request(client: &mut Net, txn: u64, access: Access) -> Request {
    client.operate(0, txn, Operation::Access { key: Key::from("x"), access, token: None });
    let sent = sent(client);
    let [(_, Message::Request(request))] = &sent[..] else { panic!("{sent:?}") };
    request.clone()
}

/// What a client tells its session when a request is answered.
fn reply(client: &mut Net, from: NodeId, request: u64) -> usize {
    let before = client.outputs.len();
    let answer = Answer::Done(Default::default());
    client.deliver((from, CLIENT, Message::Reply { request, answer }));
    client.outputs.len() - before
}

#[test]
fn an_update_settles_answered_updates_before_it_but_not_abandoned_ones() {
    let mut client = client();
    let first = first_request(&mut client, 1, Access::Write(None));
    let second = first_request(&mut client, 2, Access::Write(None));
    assert!(second.settled <= first.token, "{second:?} while {first:?} is under way");
    reply(&mut client, NodeId(0), 1);
    reply(&mut client, NodeId(0), 2);
    let third = first_request(&mut client, 3, Access::Write(None));
    assert!(third.settled > second.token, "{third:?} after {second:?}");
    // Whoever gives an update up may try it again.
    client.operate(0, 3, Operation::GiveUp);
    let fourth = first_request(&mut client, 4, Access::Write(None));
    assert!(fourth.settled <= third.token, "{fourth:?} after {third:?} was given up");
}

#[test]
fn a_client_takes_answers_of_replicas_alone() {
    let mut client = client();
    client.forged = true;
    first_request(&mut client, 1, Access::Write(None));
    for stranger in [NodeId(3), NodeId::replica(1, 0), CLIENT] {
        assert_eq!(reply(&mut client, stranger, 1), 0, "{stranger}");
    }
    assert!(reply(&mut client, NodeId(2), 1) > 0);
}

#[test]
fn requests_that_wait_for_a_leader_are_bounded_in_number() {
    let mut follower = follower();
    for number in 0..10_000 {
        let wanted = Message::Request(request(number, 1, Access::Read));
        tell(&mut follower, CLIENT, 1, wanted);
    }
    let ballot = Ballot { round: 1, member: 2 };
    let beat =
        replicated_log::Message::Beat { ballot, number: 1, chosen: 0, base: 0, behind: false };
    let told = tell(&mut follower, NodeId(2), 1, Message::Log(beat));
    let forwarded =
        told.iter().filter(|(_, message)| matches!(message, Message::Forward { .. })).count();
    assert!((1..5000).contains(&forwarded), "{forwarded}");
}

#[test]
fn the_log_is_kept_from_the_first_unstored_update() {
    let mut only = only();
    let first = only.nodes[0].log_position();
    answers(&mut only, &[request(1, 2, Access::Write(Some(Value::from("a"))))]);
    for _ in 0..20 {
        only.fire(0, Timer::Store);
    }
    assert_eq!(only.nodes[0].trimmed, Some(first));
}

#[test]
fn clocks_of_other_partitions_do_not_count() {
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
    let mut replica =
        Net::new(1, 1, |id| Replica::new(id, group.clone(), &Settings::default(), Mutated::NONE));
    replica.forged = true;
    let mut answers = |from| {
        let ask = Message::Time(replicated_log::Time::Ask { number: 1 });
        tell(&mut replica, from, 0, ask)
    };
    assert_eq!(answers(NodeId::replica(0, 1)).len(), 1);
    assert_eq!(answers(NodeId::replica(1, 1)), []);
}
