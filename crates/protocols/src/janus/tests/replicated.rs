//! Rules of partitions with three replicas.

use serried_model::Version;

use super::broken::pass_without;
use super::*;
use crate::janus::Mutation;
use crate::janus::message::{
    Ballot, Configuration, Entry, NotAccepted, Part, PreAccept, Record, Report, Vote, Window,
};

const SETTINGS: fn() -> Settings = || Settings {
    truncation_lag_ms: 300,
    outcomes_ms: 2000,
    recovery_after_ms: 400,
    ..Settings::default()
};

pub(super) fn group_of(members: usize) -> Group {
    Group::new(members, Duration::from_millis(1)).with_partitions(2)
}

pub(super) fn replica(id: NodeId, mutation: Mutated<Mutation>) -> Replica {
    Replica::new(id, Members::replicated(group_of(3)), &SETTINGS(), mutation)
}

fn world() -> Net {
    world_with(Mutated::NONE)
}

/// Two partitions with three replicas each, and three clients that know the set.
pub(super) fn world_with(mutation: Mutated<Mutation>) -> Net {
    let client = |_| Coordinator::new(Members::replicated(group_of(3)), &SETTINGS());
    let mut net = Net::new(2, 3, |id| replica(id, mutation)).with_clients(3, client);
    net.set_clock_us(1_000_000_000);
    net.tick = 1;
    net.start();
    assert_eq!(register(&mut net, set()), Registration::InUse { version: 1 });
    for client in 1..3 {
        call(&mut net, client, 1, "both", &[500, 500, 0]);
        net.settle();
    }
    net.pass(Duration::from_secs(1));
    net.outputs.clear();
    net
}

pub(super) fn node(partition: u16, member: usize) -> NodeId {
    NodeId::replica(partition, member)
}

/// What replicas have in the place of a text.
pub(super) fn texts(net: &mut Net, id: i64) -> Vec<Option<String>> {
    let partition = group_of(3).partition_of(&placement_key(&[Datum::Int(id)]));
    let key = row_key(0, &[Datum::Int(id)]);
    let text = |net: &mut Net, member| {
        net.act(node(partition, member), |replica, cx| replica.text(&key, cx))
    };
    (0..3).map(|member| text(net, member)).collect()
}

fn sent_names(net: &mut Net, wanted: impl Fn(&Message) -> bool) -> usize {
    let mut count = 0;
    while let Some(envelope) = net.take_first(|_| true) {
        count += usize::from(wanted(&envelope.2));
        net.deliver(envelope);
    }
    count
}

/// The id of the call that has begun.
pub(super) fn began(net: &Net) -> Version {
    let began = net.outputs.iter().find_map(|(_, (_, output))| match output {
        Output::Began(call) => Some(*call),
        _ => None,
    });
    began.expect("it has begun")
}

pub(super) fn is_accept(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Accept(_)))
}

#[test]
fn replicas_that_report_the_same_agree_in_one_round() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    assert_eq!(sent_names(&mut net, is_accept), 0);
    assert_eq!(results(&net).len(), 1);
    let texts = texts(&mut net, at(0));
    assert!(texts.iter().all(|text| *text == Some("7 ".to_owned())), "{texts:?}");
}

#[test]
fn replicas_that_report_different_edges_accept_all_of_them() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    call(&mut net, 2, 3, "both", &[at(0), at(0), 8]);
    // One replica takes them on in the opposite order.
    let late = net.take_first(|(from, to, _)| *from == client_id(1) && *to == node(0, 2));
    let early = net.take_first(|(from, to, _)| *from == client_id(2) && *to == node(0, 2));
    net.deliver(early.unwrap());
    net.deliver(late.unwrap());
    assert!(sent_names(&mut net, is_accept) > 0);
    assert_eq!(results(&net).len(), 2);
    let texts = texts(&mut net, at(0));
    assert!(texts.iter().all(|text| text.is_some() && *text == texts[0]), "{texts:?}");
}

#[test]
fn a_replica_that_is_down_is_waited_for_once() {
    let mut net = world();
    net.crash(node(0, 1));
    net.crash(node(1, 1));
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    net.settle();
    assert!(results(&net).is_empty(), "all replicas might agree");
    net.pass(Duration::from_millis(300));
    assert_eq!(results(&net).len(), 1);
    call(&mut net, 1, 3, "both", &[at(0), at(1), 7]);
    net.settle();
    assert_eq!(results(&net).len(), 2, "it is known to be down");
}

#[test]
fn a_call_of_a_client_that_has_left_is_finished_in_one_way() {
    for reached in 1..=3 {
        let mut net = world();
        call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
        let mut sent = net.take(|(from, ..)| *from == client_id(1));
        net.leave(client_id(1));
        sent.retain(|(_, to, _)| to.member() < reached);
        for envelope in sent {
            net.deliver(envelope);
        }
        net.pass(Duration::from_secs(5));
        assert_eq!(sevens(&mut net, at(0), at(1)), [1, 1], "{reached} have known it");
        for id in [at(0), at(1)] {
            let texts = texts(&mut net, id);
            assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
        }
    }
}

/// A client has asked everywhere for the outcome of a call, and has left. The call is on a cycle with another one, which
/// also has pieces where this one has none.
#[test]
fn a_question_where_a_call_has_no_pieces_blocks_nothing() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    let call_id = began(&net);
    net.operate(2, 3, Operation::Inquire { call: call_id });
    let asked = net.take(|(from, ..)| *from == client_id(2));
    net.leave(client_id(2));
    for envelope in asked.into_iter().filter(|(_, to, _)| to.partition() == 1) {
        net.deliver(envelope);
    }
    call(&mut net, 0, 4, "both", &[at(0), at(1), 7]);
    // One replica takes them on in the opposite order.
    let late = net.take_first(|(from, to, _)| *from == client_id(1) && *to == node(0, 2));
    let early = net.take_first(|(from, to, _)| *from == client_id(0) && *to == node(0, 2));
    net.deliver(early.unwrap());
    net.deliver(late.unwrap());
    net.pass(Duration::from_secs(5));
    assert_eq!(results(&net).len(), 2);
    for id in [at(0), at(1)] {
        let texts = texts(&mut net, id);
        assert!(texts.iter().all(|text| text.is_some() && *text == texts[0]), "{texts:?}");
    }
}

/// A replica alone has taken a call on, and others after it. It is lost before anybody else knows the call.
#[test]
fn a_call_that_only_a_lost_replica_knows_is_void() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    let sent = net.take(|(from, ..)| *from == client_id(1));
    net.leave(client_id(1));
    for envelope in sent.into_iter().filter(|(_, to, _)| *to == node(0, 1)) {
        net.deliver(envelope);
    }
    call(&mut net, 2, 3, "both", &[at(0), at(0), 8]);
    // The edge of the lost replica becomes one of those that are agreed on.
    let to_second = net.take(|(_, to, _)| *to == node(0, 2));
    let asks = |message: &Message| matches!(message, Message::Request(Request::Fetch { .. }));
    net.settle_where(|(_, to, message)| *to != node(0, 2) && !asks(message));
    net.fire_client(
        client_id(2),
        crate::janus::coordinator::Timer::Repeat(serried_model::TxnId(3)),
    );
    net.settle_where(|(_, to, message)| {
        !asks(message) && (*to != node(0, 2) || is_accept(message))
    });
    drop(to_second);
    net.crash(node(0, 1));
    net.pass(Duration::from_secs(8));
    let done = results(&net);
    assert_eq!(done.len(), 1, "it waits for no call that nobody knows");
    assert_eq!(sevens(&mut net, at(0), at(0)), [0, 0]);
}

#[test]
fn a_replaced_disk_is_filled_before_the_replica_agrees_again() {
    let mut net = world();
    for txn in 2..12 {
        call(&mut net, 1, txn, "both", &[at(0), at(1), 7]);
        net.settle();
    }
    net.crash(node(0, 0));
    net.replace(node(0, 0), replica(node(0, 0), Mutated::NONE));
    let part = |net: &mut Net| net.act(node(0, 0), |replica, _| replica.part());
    assert_eq!(part(&mut net), Part::Lost);
    call(&mut net, 1, 20, "both", &[at(0), at(1), 7]);
    let reports = net.take(|(from, _, message)| {
        *from == node(0, 0) && matches!(message, Message::Reply(Reply::PreAccepted(_)))
    });
    assert!(reports.is_empty());
    net.pass(Duration::from_secs(5));
    assert_eq!(part(&mut net), Part::Full);
    let texts = texts(&mut net, at(0));
    assert!(texts.iter().all(|text| *text == Some("7 ".repeat(11))), "{texts:?}");
}

/// The second replica has copied all data and does not agree yet, since it does not hear what the first one knows. Then the
/// first one loses its disk, too, and copies all data.
#[test]
fn a_replaced_disk_agrees_only_if_a_majority_has_not_lost_theirs() {
    let mut net = world();
    let part = |net: &mut Net, of: NodeId| net.act(of, |replica, _| replica.part());
    let lose_disk = |net: &mut Net, of: NodeId| {
        net.crash(of);
        net.replace(of, replica(of, Mutated::NONE));
    };
    lose_disk(&mut net, node(0, 1));
    pass_without(&mut net, Duration::from_secs(5), |(from, _, message)| {
        *from == node(0, 0) && matches!(message, Message::Reply(Reply::Joined { .. }))
    });
    assert_eq!(part(&mut net, node(0, 1)), Part::Restored);
    lose_disk(&mut net, node(0, 0));
    net.pass(Duration::from_secs(9));
    for member in 0..2 {
        assert_eq!(part(&mut net, node(0, member)), Part::Restored);
    }
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    net.pass(Duration::from_secs(1));
    assert!(results(&net).is_empty(), "one replica is no majority");
}

#[test]
fn a_replica_that_was_away_for_long_copies_what_others_have_forgotten() {
    let mut net = world();
    net.crash(node(0, 2));
    net.crash(node(1, 2));
    for txn in 2..8 {
        call(&mut net, 1, txn, "both", &[at(0), at(1), 7]);
        net.pass(Duration::from_secs(2));
    }
    for partition in 0..2 {
        assert_eq!(net.gauge(node(partition, 0), "absent_replicas"), 1);
        assert!(net.gauge(node(partition, 0), "remembered_transactions") < 6);
        net.restart(node(partition, 2), replica(node(partition, 2), Mutated::NONE));
    }
    net.pass(Duration::from_millis(300));
    call(&mut net, 1, 9, "both", &[at(0), at(1), 7]);
    net.pass(Duration::from_secs(8));
    for partition in 0..2 {
        let part = net.act(node(partition, 2), |replica, _| replica.part());
        assert_eq!(part, Part::Full);
        assert_eq!(net.gauge(node(partition, 0), "absent_replicas"), 0);
        let texts = texts(&mut net, at(partition));
        assert!(texts.iter().all(|text| *text == Some("7 ".repeat(7))), "{texts:?}");
    }
}

#[test]
fn an_inquiry_settles_a_call_that_nobody_knows() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    let call = began(&net);
    let sent = net.take(|(from, ..)| *from == client_id(1));
    net.leave(client_id(1));
    net.operate(2, 3, Operation::Inquire { call });
    net.pass(Duration::from_secs(1));
    let is_none = |(_, (_, output)): &(NodeId, (serried_model::TxnId, Output))| {
        matches!(output, Output::Outcome(Outcome::NoEffect))
    };
    assert!(net.outputs.iter().any(is_none));
    // What the client had sent arrives late.
    let late = |message: &Message| {
        matches!(message, Message::Request(Request::PreAccept(PreAccept { .. })))
    };
    for envelope in sent.into_iter().filter(|(_, _, message)| late(message)) {
        net.deliver(envelope);
    }
    net.pass(Duration::from_secs(3));
    assert_eq!(sevens(&mut net, at(0), at(1)), [0, 0]);
}

/// A partition at which the call has no pieces knows nothing of it.
#[test]
fn inquiries_find_out_what_a_call_has_returned() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    net.settle();
    let call = began(&net);
    for inquiry in 3..6 {
        net.operate(2, inquiry, Operation::Inquire { call });
        net.pass(Duration::from_secs(1));
        let (txn, found) = results(&net).pop().expect("it is known");
        assert_eq!((txn, found.len()), (inquiry, 2));
    }
    assert_eq!(sevens(&mut net, at(0), at(1)), [2, 0]);
}

/// A client whose clock is behind begins its call again with a later time.
#[test]
fn a_call_of_a_client_whose_clock_is_behind_is_begun_again() {
    let mut net = world();
    net.pass(Duration::from_secs(5));
    let now_us = net.clock_us();
    net.set_clock_us(now_us - 4_000_000);
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    net.settle();
    net.set_clock_us(now_us);
    net.pass(Duration::from_secs(1));
    assert_eq!(sevens(&mut net, at(0), at(1)), [1, 1]);
}

/// A coordinator that has heard of nothing for long goes on with it. Nothing must become of that.
#[test]
fn a_call_that_was_executed_and_forgotten_is_not_voided() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    let first = net
        .take_first(|(_, _, message)| matches!(message, Message::Request(Request::PreAccept(_))));
    let (_, to, message) = first.unwrap();
    net.deliver((client_id(1), to, message.clone()));
    net.settle();
    net.pass(Duration::from_secs(9));
    let Message::Request(Request::PreAccept(pre_accept)) = message else { unreachable!() };
    let ballot = Ballot { number: 9, by: client_id(2) };
    let late = PreAccept { insist: true, ballot, ..pre_accept };
    for member in 0..3 {
        let message = Message::Request(Request::PreAccept(late.clone()));
        net.deliver((client_id(2), node(0, member), message));
        let answer = net.take_first(|(from, ..)| *from == node(0, member));
        let why = match answer {
            Some((_, _, Message::Reply(Reply::NotAccepted { why, .. }))) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why, NotAccepted::Forgotten);
    }
}

/// The last vote of a replica for a configuration.
fn last_vote(net: &Net, of: NodeId) -> Vote {
    let vote = |(by, record): &(NodeId, Record)| match record {
        Record::Entry { entry: Entry::Vote(vote), .. } if *by == of => Some(vote.clone()),
        _ => None,
    };
    net.appended.iter().rev().find_map(vote).expect("it has voted")
}

/// The report of a replica with this vote.
fn report(vote: Vote) -> Message {
    Message::Request(Request::Report(Report {
        below_us: 0,
        window: Window::default(),
        copy: 0,
        is_whole: true,
        is_voter: true,
        vote,
        incarnations: vec![0; 3],
    }))
}

/// The first replica has accepted that the third one is left out, and so has perhaps the second one, which is silent by
/// now. The third one does not hear of it before it proposes to leave the second one out.
#[test]
fn a_proposer_takes_over_the_configuration_that_another_replica_has_accepted() {
    let mut net = world();
    let own = node(0, 2);
    let hear_first =
        |net: &mut Net, promised: Ballot, accepted: Option<(Ballot, Configuration)>| {
            let vote = Vote { promised, accepted, ..Vote::default() };
            net.deliver((node(0, 0), own, report(vote)));
        };
    // The test plays them.
    net.held = testing::set(&[0, 1]);
    net.pass(Duration::from_secs(3));
    hear_first(&mut net, Ballot::default(), None);
    net.pass(Duration::from_millis(400));
    let ballot = Ballot { number: 1, by: own };
    let proposal = last_vote(&net, own);
    assert_eq!((proposal.promised, proposal.accepted), (ballot, None));
    let chosen = Configuration { number: 1, counted: vec![Some(0), Some(0), None] };
    let of_second = Ballot { number: 1, by: node(0, 1) };
    hear_first(&mut net, ballot, Some((of_second, chosen.clone())));
    assert_eq!(last_vote(&net, own).accepted, Some((ballot, chosen.clone())));
    hear_first(&mut net, ballot, Some((ballot, chosen)));
    assert_eq!(net.gauge(own, "absent_replicas"), 0, "the second one is counted");
    assert_eq!(net.gauge(own, "catching_up"), 1, "the third one is not");
}

/// The third replica has promised to take part in a later ballot of the second one. Then it hears that the first one has
/// accepted something in an earlier ballot.
#[test]
fn a_configuration_of_a_ballot_before_the_promised_one_is_not_accepted() {
    let mut net = world();
    let own = node(0, 2);
    let [early, late] = [1, 2].map(|number| Ballot { number, by: node(0, 1) });
    let without_second = Configuration { number: 1, counted: vec![Some(0), None, Some(0)] };
    let accepted = |ballot| {
        let accepted = Some((ballot, without_second.clone()));
        report(Vote { promised: ballot, accepted, ..Vote::default() })
    };
    let promise = Vote { promised: late, ..Vote::default() };
    net.deliver((node(0, 1), own, report(promise.clone())));
    assert_eq!(last_vote(&net, own), promise);
    net.deliver((node(0, 0), own, accepted(early)));
    assert_eq!(last_vote(&net, own), promise);
    net.deliver((node(0, 0), own, accepted(late)));
    assert_eq!(last_vote(&net, own).chosen, without_second, "two of three have accepted it");
}
