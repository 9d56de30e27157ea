//! Histories that end well, and would not if a replica made a mistake.

use std::cell::RefCell;

use super::replicated::{node, replica, texts, world_with};
use super::*;
use crate::janus::Mutation;
use crate::janus::message::{CopyFrom, CopyRequest, Part};

/// Whether all three replicas have this text in the place of a number, and the same one.
fn agree(net: &mut Net, id: i64) -> Option<String> {
    let texts = texts(net, id);
    texts[0].clone().filter(|first| texts.iter().all(|text| text.as_ref() == Some(first)))
}

fn holds_only_without(mutation: Mutation, history: fn(Mutated<Mutation>) -> bool) {
    assert!(history(Mutated::NONE));
    assert!(!history(Mutated::by(mutation)), "{mutation:?} makes no difference");
}

/// A call is committed with what a majority has accepted. One replica has executed it, and is down. The two others, of which
/// one has accepted nothing, finish the call.
fn recovery_after_accept(mutation: Mutated<Mutation>) -> bool {
    let mut net = world_with(mutation);
    let id = at(0);
    call(&mut net, 2, 2, "both", &[id, id, 8]);
    net.wait(Duration::from_millis(1));
    call(&mut net, 1, 3, "both", &[id, id, 7]);
    // Two take 7 on first, which began later. The third takes 8 on first.
    let later = net.take(|(from, to, _)| *from == client_id(2) && *to != node(0, 2));
    net.settle_where(|(from, ..)| from.is_coordinator());
    for envelope in later {
        net.deliver(envelope);
    }
    // The client of 8 takes its time. That of 7 does not hear of one of the two.
    let pick = |(from, to, _): &Envelope<Message>| {
        let is_of_one = |node| *from == node || *to == node;
        is_of_one(client_id(1)) && !is_of_one(node(0, 1))
    };
    while let Some((from, to, message)) = net.take_first(pick) {
        let is_commit = matches!(message, Message::Request(Request::Commit(_)));
        if !is_commit || to == node(0, 2) {
            net.deliver((from, to, message));
        }
    }
    net.take(|(from, to, _)| *from == client_id(1) || *to == client_id(1));
    net.leave(client_id(1));
    // 8 commits, and the third replica executes both.
    net.settle_where(|(from, to, message)| {
        let is_of_two = from.is_coordinator() || to.is_coordinator();
        is_of_two && !matches!(message, Message::Request(Request::Commit(_)))
            || *to == node(0, 2) && from.is_coordinator()
    });
    net.crash(node(0, 2));
    net.pass(Duration::from_secs(5));
    net.restart(node(0, 2), replica(node(0, 2), mutation));
    net.pass(Duration::from_secs(5));
    agree(&mut net, id).is_some_and(|text| text == "8 8 7 7 ")
}

#[test]
fn a_recovery_proposes_what_was_accepted() {
    holds_only_without(Mutation::ReportsNothingAccepted, recovery_after_accept);
}

fn is_report_of_replica(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Report(_)))
}

/// Lets time pass while some messages are lost.
pub(super) fn pass_without(
    net: &mut Net,
    time: Duration,
    is_lost: impl Fn(&Envelope<Message>) -> bool,
) {
    let arrive = |net: &mut Net| {
        net.take(&is_lost);
        while net.step_where(|envelope| !is_lost(envelope)) {
            net.take(&is_lost);
        }
    };
    arrive(net);
    for _ in 0..time.as_millis() / 50 {
        net.wait(Duration::from_millis(50));
        for partition in 0..2 {
            (0..3).for_each(|member| net.fire_due(node(partition, member)));
        }
        net.fire_due_clients();
        arrive(net);
    }
}

/// Two replicas take part in a call, and one of them executes it. The other one loses its disk, and copies the data of the
/// third, which has never heard of the call.
fn replaced_disk(mutation: Mutated<Mutation>) -> bool {
    let mut net = world_with(mutation);
    let id = at(0);
    call(&mut net, 1, 2, "both", &[id, id, 7]);
    pass_without(&mut net, Duration::from_millis(600), |(_, to, message)| {
        let is_commit = matches!(message, Message::Request(Request::Commit(_)));
        let is_compare = matches!(message, Message::Request(Request::Compare(_)));
        let is_first = *to == node(0, 0) && (is_commit || is_compare);
        is_first || *to == node(0, 2) && !is_report_of_replica(message)
    });
    assert_eq!(results(&net).len(), 1, "one has executed it");
    net.crash(node(0, 0));
    net.replace(node(0, 0), replica(node(0, 0), mutation));
    // Of the second one nothing but reports is heard.
    let is_cut_off = |(from, to, message): &Envelope<Message>| {
        (*from == node(0, 1) || *to == node(0, 1)) && !is_report_of_replica(message)
    };
    pass_without(&mut net, Duration::from_secs(9), is_cut_off);
    call(&mut net, 2, 3, "both", &[id, id, 8]);
    pass_without(&mut net, Duration::from_secs(1), is_cut_off);
    net.pass(Duration::from_secs(9));
    agree(&mut net, id).is_some_and(|text| text == "7 7 8 8 ")
}

#[test]
fn a_replaced_disk_agrees_when_others_have_told_what_they_knew() {
    holds_only_without(Mutation::AgreesAtOnce, replaced_disk);
}

/// Whether this would tell the third replica of a call.
pub(super) fn is_news_for_third((from, to, message): &Envelope<Message>) -> bool {
    let is_compare = matches!(message, Message::Request(Request::Compare(_)));
    *to == node(0, 2) && (from.is_coordinator() || is_compare)
}

/// One replica hears of a call late, and only from other replicas.
fn one_knows_nothing(mutation: Mutated<Mutation>) -> bool {
    let mut net = world_with(mutation);
    let id = at(0);
    call(&mut net, 1, 2, "both", &[id, id, 7]);
    pass_without(&mut net, Duration::from_secs(1), is_news_for_third);
    net.pass(Duration::from_secs(5));
    agree(&mut net, id).is_some_and(|text| text == "7 7 ")
}

#[test]
fn replicas_keep_what_one_has_not_executed() {
    holds_only_without(Mutation::EndsByMajority, one_knows_nothing);
}

/// The others have executed the call, and nothing else comes after it.
#[test]
fn a_replica_that_has_missed_a_commit_gets_the_edges_from_others() {
    let mut net = world_with(Mutated::NONE);
    let id = at(0);
    call(&mut net, 1, 2, "both", &[id, id, 7]);
    pass_without(&mut net, Duration::from_millis(300), |(_, to, message)| {
        *to == node(0, 2) && matches!(message, Message::Request(Request::Commit(_)))
    });
    assert_eq!(results(&net).len(), 1, "the others have executed it");
    net.pass(Duration::from_secs(5));
    assert_eq!(agree(&mut net, id).as_deref(), Some("7 7 "));
}

/// A replica was away for so long that others have forgotten calls. It hears of another call before it hears that.
fn long_absence(mutation: Mutated<Mutation>) -> bool {
    let mut net = world_with(mutation);
    let id = at(0);
    net.crash(node(0, 2));
    for txn in 2..8 {
        call(&mut net, 1, txn, "both", &[id, id, 7]);
        net.pass(Duration::from_secs(2));
    }
    net.restart(node(0, 2), replica(node(0, 2), mutation));
    call(&mut net, 1, 9, "both", &[id, id, 7]);
    net.settle();
    assert_eq!(results(&net).len(), 7);
    texts(&mut net, id)[2].is_none()
}

#[test]
fn a_replica_executes_nothing_that_may_come_after_what_it_lacks() {
    holds_only_without(Mutation::IgnoresFloors, long_absence);
}

/// A replica copies the data of another one. Meanwhile there are calls of which it hears late, and only from other replicas.
fn copy_beside_calls(mutation: Mutated<Mutation>) -> bool {
    let mut net = world_with(mutation);
    net.crash(node(0, 2));
    net.pass(Duration::from_secs(4));
    net.restart(node(0, 2), replica(node(0, 2), mutation));
    let ids: Vec<i64> = (0..).filter(|id| place(*id) == 0).take(30).collect();
    for (txn, id) in (2..).zip(&ids) {
        call(&mut net, 1, txn, "both", &[*id, *id, 7]);
        pass_without(&mut net, Duration::from_millis(100), is_news_for_third);
    }
    net.pass(Duration::from_secs(9));
    ids.iter().all(|id| agree(&mut net, *id).is_some_and(|text| text == "7 7 "))
}

#[test]
fn a_copy_is_counted_before_its_last_part() {
    holds_only_without(Mutation::CopiesUncounted, copy_beside_calls);
}

fn is_copy_request((.., message): &Envelope<Message>) -> bool {
    matches!(message, Message::Request(Request::Copy { .. }))
}

fn is_copy_answer((.., message): &Envelope<Message>) -> bool {
    matches!(message, Message::Reply(Reply::Copied { .. }))
}

/// The third replica copies the data of another one. That sends the first part, executes a call, restarts, and gets the request
/// for the first part once more. Then it executes another call, and gets the request for the second part. It must not answer
/// that: it has forgotten that it executed the first call after it had sent the first part.
fn source_that_restarts(mutation: Mutated<Mutation>) -> bool {
    let mut net = world_with(mutation);
    let id = at(0);
    net.crash(node(0, 2));
    net.replace(node(0, 2), replica(node(0, 2), mutation));
    let requests = RefCell::new(Vec::new());
    while requests.borrow().is_empty() {
        pass_without(&mut net, Duration::from_millis(50), |envelope| {
            let is_request = is_copy_request(envelope);
            requests.borrow_mut().extend(is_request.then(|| envelope.clone()));
            is_request
        });
    }
    let first = requests.take().swap_remove(0);
    let source = first.1;
    net.deliver(first.clone());
    let part = net.take_first(is_copy_answer);
    net.deliver(part.expect("it is answered"));
    let second = net.take_first(is_copy_request).expect("it goes on");
    let is_for_third = |(_, to, _): &Envelope<Message>| *to == node(0, 2);
    let beside_copy =
        |envelope: &Envelope<Message>| is_for_third(envelope) || is_copy_request(envelope);
    call(&mut net, 1, 2, "both", &[id, id, 7]);
    pass_without(&mut net, Duration::from_secs(1), beside_copy);
    net.crash(source);
    net.restart(source, replica(source, mutation));
    pass_without(&mut net, Duration::from_secs(1), beside_copy);
    net.deliver(first);
    call(&mut net, 2, 3, "both", &[id, id, 8]);
    pass_without(&mut net, Duration::from_secs(1), beside_copy);
    net.take(is_copy_answer);
    net.deliver(second);
    let is_refused = net.take(is_copy_answer).is_empty();
    net.pass(Duration::from_secs(20));
    is_refused && agree(&mut net, id).is_some_and(|text| text == "7 7 8 8 ")
}

/// Seed 74795 of `lists_keep_their_guarantee_and_everything_finishes_whatever_goes_wrong` has found it.
#[test]
fn a_copy_does_not_go_on_with_a_source_that_has_restarted() {
    holds_only_without(Mutation::MixesSessions, source_that_restarts);
}

/// A replica that was away copies the data of another one, and is away again for so long that it is left out. Meanwhile the
/// others execute a call and forget it.
fn away_after_a_copy(mutation: Mutated<Mutation>) -> bool {
    let (mut net, id, third) = (world_with(mutation), at(0), node(0, 2));
    net.crash(third);
    net.pass(Duration::from_secs(4));
    net.restart(third, replica(third, mutation));
    // It learns that it was left out.
    net.pass(Duration::from_millis(300));
    while net.act(third, |replica, _| replica.part()) != Part::Full {
        net.pass(Duration::from_millis(100));
    }
    net.pass(Duration::from_millis(300));
    net.crash(third);
    call(&mut net, 1, 2, "both", &[id, id, 7]);
    net.pass(Duration::from_millis(4000));
    assert_eq!(results(&net).len(), 1);
    net.restart(third, replica(third, mutation));
    net.pass(Duration::from_secs(10));
    agree(&mut net, id).is_some_and(|text| text == "7 7 ")
}

#[test]
fn a_copy_whose_replica_was_left_out_is_not_counted_again() {
    holds_only_without(Mutation::CountsAgain, away_after_a_copy);
}

/// The session of which a request for the first part of a copy is answered.
fn session_of(net: &mut Net, copy: u64) -> u64 {
    let request = CopyRequest { copy, part: 0, from: CopyFrom::First, lacking: Vec::new() };
    let request = Message::Request(Request::Copy { request, session: 0 });
    net.deliver((node(0, 2), node(0, 0), request));
    match net.take_first(is_copy_answer) {
        Some((.., Message::Reply(Reply::Copied { session, .. }))) => session,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_copy_is_a_session_of_its_own() {
    let mut net = world_with(Mutated::NONE);
    let first = session_of(&mut net, 5);
    assert_eq!(session_of(&mut net, 5), first, "the answer was lost");
    assert_ne!(session_of(&mut net, 6), first);
}
