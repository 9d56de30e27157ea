//! Replicas whose messages are moved by hand.

mod refusals;

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use serried_actor::{
    Actor, ClockInterval, Context, Coordinate, Durable, Effect, Group, MemoryStore, Settings,
    Timestamp,
};
use serried_model::registers::{Operation, Outcome, Output};
use serried_model::{Access, Key, Modification, NodeId, TxnId, Value, Version};

use super::{Answer, Coordinator, Message, Replica, Request};
use crate::Mutated;
use crate::frameworks::replicated_log::{self, Ballot};

const CLIENT: NodeId = NodeId(NodeId::FIRST_COORDINATOR);

/// What an actor wants when something happens to it.
fn effects<A: Actor>(
    actor: &mut A,
    id: NodeId,
    act: impl FnOnce(&mut A, &mut Context<'_, A>),
) -> Vec<Effect<A>> {
    effects_at(0, actor, id, act)
}

/// The same, when its log has so many records.
fn effects_at<A: Actor>(
    log_position: u64,
    actor: &mut A,
    id: NodeId,
    act: impl FnOnce(&mut A, &mut Context<'_, A>),
) -> Vec<Effect<A>> {
    let mut effects = Vec::new();
    let clock = ClockInterval { earliest_us: 5, latest_us: 5 };
    let durable =
        Durable { store: &mut MemoryStore::default(), log_position, durable_position: u64::MAX };
    let mut random = Pcg64Mcg::new(1);
    let mut cx = Context::new(id, Timestamp(1), clock, &mut random, &mut effects, durable);
    act(actor, &mut cx);
    effects
}

fn sent<A: Actor<Message = Message>>(effects: Vec<Effect<A>>) -> Vec<(NodeId, Message)> {
    let sent = effects.into_iter().filter_map(|effect| match effect {
        Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
            Some((to, message))
        }
        _ => None,
    });
    sent.collect()
}

fn replica(member: u64, of: usize) -> Replica {
    let group = Group::new(of, Duration::from_millis(1));
    let mut replica = Replica::new(NodeId(member), group, &Settings::default(), Mutated::NONE);
    effects(&mut replica, NodeId(member), |replica, cx| replica.on_start(cx));
    replica
}

fn request(number: u64, us: u64, access: Access) -> Request {
    let (token, settled) = (Version::at(us), Version::at(0));
    Request { number, key: Key::from("x"), token, settled, access }
}

/// What the only replica of a group answers to requests that come in one turn.
fn answers(replica: &mut Replica, requests: &[Request]) -> Vec<(u64, Answer)> {
    let effects = effects(replica, NodeId(0), |replica, cx| {
        for request in requests {
            replica.on_message(CLIENT, Message::Request(request.clone()), cx);
        }
        replica.on_timer(super::replica::Timer::Log(replicated_log::Timer::Flush), cx);
    });
    let answers = sent(effects).into_iter().filter_map(|(_, message)| match message {
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
    let mut only = replica(0, 1);
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
fn an_update_that_is_in_the_log_twice_takes_effect_once_and_is_answered_the_same() {
    let mut only = replica(0, 1);
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
    let mut only = replica(0, 1);
    let far = request(1, 60_000_000, Access::Write(None));
    let [(1, Answer::ClockSkew { ahead_us })] = answers(&mut only, &[far])[..] else {
        panic!("it is refused")
    };
    assert_eq!(ahead_us, 60_000_000 - 5);
}

#[test]
fn a_replica_that_does_not_lead_passes_requests_on_but_those_that_were_passed_on_to_it() {
    let mut follower = replica(1, 3);
    let wanted = request(1, 1, Access::Read);
    let ask = |follower: &mut Replica, message: Message| {
        sent(effects(follower, NodeId(1), |replica, cx| replica.on_message(CLIENT, message, cx)))
    };
    assert_eq!(ask(&mut follower, Message::Request(wanted.clone())), [], "nobody leads yet");
    let ballot = Ballot { round: 1, member: 2 };
    let beat =
        replicated_log::Message::Beat { ballot, number: 1, chosen: 0, base: 0, behind: false };
    let told = sent(effects(&mut follower, NodeId(1), |replica, cx| {
        replica.on_message(NodeId(2), Message::Log(beat), cx);
    }));
    let forward = Message::Forward { client: CLIENT, request: wanted.clone() };
    assert!(told.contains(&(NodeId(2), forward.clone())), "{told:?}");
    let passed_on = ask(&mut follower, Message::Request(wanted));
    assert_eq!(passed_on, [(NodeId(2), forward.clone())]);
    assert_eq!(ask(&mut follower, forward), []);
}

#[test]
fn a_client_asks_whoever_has_answered_and_others_if_that_one_does_not() {
    let mut client =
        Coordinator::new(Group::new(3, Duration::from_millis(1)), &Settings::default());
    let read = |client: &mut Coordinator, txn: u64| {
        let (key, access) = (Key::from("x"), Access::Read);
        let operation = Operation::Access { key, access, token: None };
        sent(effects(client, CLIENT, |client, cx| client.on_operation(TxnId(txn), operation, cx)))
    };
    assert_eq!(read(&mut client, 1)[0].0, NodeId(0));
    let answer = Answer::Done(Default::default());
    let outcome = effects(&mut client, CLIENT, |client, cx| {
        client.on_message(NodeId(2), Message::Reply { request: 1, answer }, cx);
    });
    let is_done = |effect: &Effect<Coordinator>| {
        matches!(effect, Effect::Output((TxnId(1), Output::Outcome(Outcome::Done(_)))))
    };
    assert!(outcome.iter().any(is_done));
    assert_eq!(read(&mut client, 2)[0].0, NodeId(2));
    let repeat = |client: &mut Coordinator| {
        let timer = super::coordinator::Repeat(TxnId(2));
        sent(effects(client, CLIENT, |client, cx| client.on_timer(timer, cx)))[0].0
    };
    assert_eq!([repeat(&mut client), repeat(&mut client)], [NodeId(1), NodeId(2)]);
}

#[test]
fn what_is_given_up_may_have_taken_effect_if_it_is_an_update() {
    let mut client =
        Coordinator::new(Group::new(3, Duration::from_millis(1)), &Settings::default());
    let mut give_up = |txn: u64, access: Access| {
        let operation = Operation::Access { key: Key::from("x"), access, token: None };
        effects(&mut client, CLIENT, |client, cx| client.on_operation(TxnId(txn), operation, cx));
        let effects = effects(&mut client, CLIENT, |client, cx| {
            client.on_operation(TxnId(txn), Operation::GiveUp, cx);
        });
        let outcomes = effects.into_iter().filter_map(|effect| match effect {
            Effect::Output((_, Output::Outcome(outcome))) => Some(outcome),
            _ => None,
        });
        outcomes.collect::<Vec<_>>()
    };
    assert_eq!(give_up(1, Access::Read), [Outcome::NoEffect]);
    assert_eq!(give_up(2, Access::Write(None)), [Outcome::Unknown]);
}

/// What a client sends first for an operation on `x`.
fn first_request(client: &mut Coordinator, txn: u64, access: Access) -> Request {
    let operation = Operation::Access { key: Key::from("x"), access, token: None };
    let sent =
        sent(effects(client, CLIENT, |client, cx| client.on_operation(TxnId(txn), operation, cx)));
    let [(_, Message::Request(request))] = &sent[..] else { panic!("{sent:?}") };
    request.clone()
}

fn reply(client: &mut Coordinator, from: NodeId, request: u64) -> Vec<Effect<Coordinator>> {
    let reply = Message::Reply { request, answer: Answer::Done(Default::default()) };
    effects(client, CLIENT, |client, cx| client.on_message(from, reply, cx))
}

#[test]
fn an_update_says_of_those_before_it_that_they_are_over_once_they_were_answered_and_not_if_given_up()
 {
    let mut client =
        Coordinator::new(Group::new(3, Duration::from_millis(1)), &Settings::default());
    let first = first_request(&mut client, 1, Access::Write(None));
    let second = first_request(&mut client, 2, Access::Write(None));
    assert!(second.settled <= first.token, "{second:?} while {first:?} is under way");
    reply(&mut client, NodeId(0), 1);
    reply(&mut client, NodeId(0), 2);
    let third = first_request(&mut client, 3, Access::Write(None));
    assert!(third.settled > second.token, "{third:?} after {second:?}");
    // Whoever gives an update up may try it again.
    effects(&mut client, CLIENT, |client, cx| {
        client.on_operation(TxnId(3), Operation::GiveUp, cx);
    });
    let fourth = first_request(&mut client, 4, Access::Write(None));
    assert!(fourth.settled <= third.token, "{fourth:?} after {third:?} was given up");
}

#[test]
fn a_client_takes_answers_of_replicas_alone() {
    let mut client =
        Coordinator::new(Group::new(3, Duration::from_millis(1)), &Settings::default());
    first_request(&mut client, 1, Access::Write(None));
    let is_output = |effect: &Effect<Coordinator>| matches!(effect, Effect::Output(_));
    for stranger in [NodeId(3), NodeId::replica(1, 0), CLIENT] {
        assert!(!reply(&mut client, stranger, 1).iter().any(is_output), "{stranger}");
    }
    assert!(reply(&mut client, NodeId(2), 1).iter().any(is_output));
}

#[test]
fn requests_that_wait_for_a_leader_are_bounded_in_number() {
    let mut follower = replica(1, 3);
    for number in 0..10_000 {
        let wanted = Message::Request(request(number, 1, Access::Read));
        effects(&mut follower, NodeId(1), |replica, cx| replica.on_message(CLIENT, wanted, cx));
    }
    let ballot = Ballot { round: 1, member: 2 };
    let beat =
        replicated_log::Message::Beat { ballot, number: 1, chosen: 0, base: 0, behind: false };
    let told = sent(effects(&mut follower, NodeId(1), |replica, cx| {
        replica.on_message(NodeId(2), Message::Log(beat), cx);
    }));
    let forwarded =
        told.iter().filter(|(_, message)| matches!(message, Message::Forward { .. })).count();
    assert!((1..5000).contains(&forwarded), "{forwarded}");
}

#[test]
fn the_log_is_kept_from_the_first_update_on_that_is_not_in_the_store() {
    let mut only = replica(0, 1);
    answers(&mut only, &[request(1, 2, Access::Write(Some(Value::from("a"))))]);
    let mut trimmed = Vec::new();
    for _ in 0..20 {
        let effects = effects_at(9, &mut only, NodeId(0), |replica, cx| {
            replica.on_timer(super::replica::Timer::Store, cx);
        });
        trimmed.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::TrimLog(position) => Some(position),
            _ => None,
        }));
    }
    assert!(!trimmed.is_empty() && trimmed.iter().all(|position| *position == 0), "{trimmed:?}");
}

#[test]
fn clocks_of_other_partitions_do_not_count() {
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
    let mut replica = Replica::new(NodeId(0), group, &Settings::default(), Mutated::NONE);
    let mut answers = |from| {
        let ask = Message::Time(replicated_log::Time::Ask { number: 1 });
        sent(effects(&mut replica, NodeId(0), |replica, cx| replica.on_message(from, ask, cx)))
    };
    assert_eq!(answers(NodeId::replica(0, 1)).len(), 1);
    assert_eq!(answers(NodeId::replica(1, 1)), []);
}
