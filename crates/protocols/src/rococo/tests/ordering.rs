//! Read-only calls that are ordered among those that write.

use super::super::message::{Message, Request, Start};
use super::super::registered::Registered;
use super::super::sound;
use super::*;
use hand::{Hand, OF_HAND, compiled, r, short, start_to, with_order};
use reading::{
    Envelope, LAST, answer_all, begin_to_add, call_meanwhile, is_read, read, requests, results,
    second_round,
};

/// Two partitions. The first input is a row of the first one, which is 5.
fn two_partitions(settings: Settings) -> (Hand, [i64; 2]) {
    let mut hand = Hand::new(2, 1, settings);
    hand.register(with_order(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.call(1, "put", &[inputs[0], 5]);
    hand.call(0, "get", &inputs);
    (hand, inputs)
}

/// Takes the starts of client 0, in the order of their partitions.
fn starts(hand: &mut Hand) -> Vec<Envelope> {
    let of_client = testing::client_id(0);
    let mut starts = hand.net.take(|(from, _, message)| *from == of_client && start_to(message));
    starts.sort_by_key(|(_, to, _)| *to);
    starts
}

fn start((.., message): &Envelope) -> &Start {
    match message {
        Message::Request(Request::Start(start)) => start,
        other => panic!("{other:?}"),
    }
}

/// Begins a call that conflicts in its second round. Returns its number, its starts, and the commit of what conflicts.
fn ordered(hand: &mut Hand, inputs: [i64; 2]) -> (u64, Vec<Envelope>, Envelope) {
    let (call, second) = second_round(hand, &inputs);
    let commit = begin_to_add(hand, inputs);
    answer_all(hand, second);
    (call, starts(hand), commit)
}

#[test]
fn a_call_that_conflicts_in_its_second_round_is_ordered() {
    let (mut hand, inputs) = two_partitions(short());
    let (call, starts, commit) = ordered(&mut hand, inputs);
    assert_eq!(starts.len(), 2);
    for (at, envelope) in (0..).zip(&starts) {
        assert_eq!(envelope.1, r(at));
        assert_eq!((start(envelope).pieces.len(), &start(envelope).call.reads), (1, &vec![0, 1]));
    }
    starts.into_iter().for_each(|start| hand.net.deliver(start));
    // Something that comes after it.
    let later = begin_to_add(&mut hand, inputs);
    hand.net.settle_where(|(.., message)| !is_commit_of(message, 1));
    assert_eq!(hand.outcome(call), None, "it waits for what comes before it");
    hand.net.deliver(later);
    hand.net.settle();
    hand.net.deliver(commit);
    assert_eq!(results(&mut hand, call), [6, 0]);
    assert_eq!(requests(&mut hand), [], "no other round is read");
    assert_eq!(hand.call(1, "get", &inputs), [7, 0]);
}

/// Whether this is the commit of a client.
fn is_commit_of(message: &Message, client: u64) -> bool {
    let of_client = testing::client_id(client);
    matches!(message, Message::Request(Request::Commit(commit)) if commit.vertex.txn.coordinator == of_client)
}

#[test]
fn a_call_without_conflicts_starts_nothing() {
    let (mut hand, inputs) = two_partitions(short());
    let (call, second) = second_round(&mut hand, &inputs);
    answer_all(&mut hand, second);
    assert_eq!(starts(&mut hand), []);
    assert_eq!(results(&mut hand, call), [5, 0]);
}

/// The rows that the call reads follow from the head, which moves on before the call is ordered.
fn head_moves_on(mutation: Mutated<Mutation>) -> [i64; 2] {
    let mut hand = Hand::with_mutation(1, 1, short(), mutation);
    hand.register(with_order(&[OF_HAND, LAST].concat()));
    hand.run(1000);
    for row in 0..5 {
        hand.call(1, "put", &[row, 1 << row]);
    }
    for _ in 0..3 {
        hand.call(1, "advance", &[0]);
    }
    assert_eq!(hand.call(0, "last", &[0]), [3, 0b00111]);
    let call = hand.begin(0, "last", &[0]);
    // The rows need the head.
    for _ in 0..2 {
        let first = requests(&mut hand);
        answer_all(&mut hand, first);
    }
    let second = requests(&mut hand);
    let commit = begin_to_add(&mut hand, [0, 0]);
    answer_all(&mut hand, second);
    let started = starts(&mut hand);
    assert_eq!(started.len(), 1);
    hand.net.deliver(commit);
    call_meanwhile(&mut hand, "advance", &[0]);
    started.into_iter().for_each(|start| hand.net.deliver(start));
    hand.net.settle_where(|(.., message)| !is_read(message));
    let more = requests(&mut hand);
    assert_eq!((more.len(), read(&more[0]).pieces.len()), (1, 1), "row 3 has to be read, too");
    // Of these rows the call has already read one.
    call_meanwhile(&mut hand, "two", &[1, 3]);
    answer_all(&mut hand, more);
    results(&mut hand, call).try_into().unwrap()
}

#[test]
fn a_call_is_ordered_again_if_it_has_other_pieces_by_what_it_has_found() {
    assert_eq!(head_moves_on(Mutated::NONE), [3, 0b01110 + 2]);
    let torn = head_moves_on(Mutated::by(Mutation::OrdersUnchecked));
    assert_eq!(torn, [3, 0b01110 + 1], "it makes no difference");
}

/// The client is silent after the start at one partition. The other one is started with nothing, and what arrives later is
/// not started any more: all coordinators have the same edges.
#[test]
fn a_server_that_finishes_a_call_starts_nothing_for_it() {
    let (mut hand, inputs) = two_partitions(short());
    let (call, mut starts, commit) = ordered(&mut hand, inputs);
    let late = starts.pop().unwrap();
    hand.net.cut.extend([0, 1].map(|at| (testing::client_id(0), r(at))));
    hand.net.deliver(starts.pop().unwrap());
    hand.net.deliver(commit);
    hand.run(1000);
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 0, "the first partition has finished it");
    hand.net.cut.clear();
    hand.net.deliver(late);
    hand.run(1);
    assert_eq!(hand.net.gauge(r(1), "live_transactions"), 0);
    assert_eq!(results(&mut hand, call), [6, 0], "the client has tried again");
}

#[test]
fn pieces_for_a_call_that_can_not_be_ordered_are_rejected() {
    let (mut hand, inputs) = two_partitions(short());
    let (_, starts, _) = ordered(&mut hand, inputs);
    let (from, _, message) = &starts[0];
    let changed = |change: &dyn Fn(&mut Start)| {
        let mut message = message.clone();
        let Message::Request(Request::Start(start)) = &mut message else { unreachable!() };
        change(start);
        message
    };
    let is_sound = |reads: &[u16]| {
        let reads = reads.to_vec();
        let message = changed(&|start| Arc::make_mut(&mut start.call).reads = reads.clone());
        sound::to_replica(*from, &message, 0, &hand.group)
    };
    assert!(is_sound(&[0, 1]) && is_sound(&[0]));
    assert!(!is_sound(&[1]), "it is not at this partition");
    assert!(!is_sound(&[1, 0]) && !is_sound(&[0, 0]) && !is_sound(&[0, 2]));
    let accepts = |set: Arc<ProcedureSet>, change: &dyn Fn(&mut Start)| match changed(change) {
        Message::Request(Request::Start(start)) => Registered::new(1, set).accepts_start(&start),
        _ => unreachable!(),
    };
    let set = with_order(OF_HAND);
    assert!(accepts(set.clone(), &|_| {}) && accepts(set.clone(), &|start| start.pieces.clear()));
    assert!(!accepts(compiled(OF_HAND), &|_| {}), "the procedure can't be ordered");
    assert!(
        !accepts(set.clone(), &|start| Arc::make_mut(&mut start.call).procedure = 0),
        "it writes"
    );
    assert!(!accepts(set, &|start| Arc::make_mut(&mut start.call).reads.clear()));
}
