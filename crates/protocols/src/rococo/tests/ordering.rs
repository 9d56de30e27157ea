//! Read-only calls that are ordered among those that write.

use super::super::message::{Inputs, Message, Reply, Request, Start};
use super::super::registered::Registered;
use super::super::sound;
use super::*;
use hand::{Hand, OF_HAND, compiled, r, short, start_to, with_order};
use hunted::{Hunt, explore_more_all};
use merging::is_found;
use reading::{
    Envelope, LAST, answer_all, begin_to_add, call_meanwhile, requests, results, second_round,
};
use serried_procedures::limits::MAX_DATA_OF_CALL;

/// `look` reads a head and the list that it names, and another list and the list that this one names.
pub(super) const LOOK: &str = r#"
[procedures.look]
inputs = { a = "int", b = "int" }
returns = { head = "head.text", next = "next.text", other = "other.text", last = "last.text" }
[procedures.look.pieces.head]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.text"]
outputs.text = "row.text"
[procedures.look.pieces.next]
rows = { row = { table = "list", key = ["size(head.text) % 4"] } }
reads = ["row.text"]
outputs.text = "row.text"
[procedures.look.pieces.other]
rows = { row = { table = "list", key = ["b"] } }
reads = ["row.text"]
outputs.text = "row.text"
[procedures.look.pieces.last]
rows = { row = { table = "list", key = ["size(other.text) % 4"] } }
reads = ["row.text"]
outputs.text = "row.text"
"#;

/// Two partitions. The first input is a row of the first one, which is 5.
pub(super) fn two_partitions(settings: Settings) -> (Hand, [i64; 2]) {
    let mut hand = Hand::new(2, 1, settings);
    hand.register(with_order(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.call(1, "put", &[inputs[0], 5]);
    hand.call(0, "get", &inputs);
    (hand, inputs)
}

/// Takes the starts of client 0, in the order of their partitions.
pub(super) fn starts(hand: &mut Hand) -> Vec<Envelope> {
    let of_client = testing::client_id(0);
    let mut starts = hand.net.take(|(from, _, message)| *from == of_client && start_to(message));
    starts.sort_by_key(|(_, to, _)| *to);
    starts
}

pub(super) fn start((.., message): &Envelope) -> &Start {
    match message {
        Message::Request(Request::Start(start)) => start,
        other => panic!("{other:?}"),
    }
}

/// Takes the next answer to a start.
fn answer_to_start(hand: &mut Hand) -> Envelope {
    let is_answer = |(.., message): &Envelope| matches!(message, Message::Reply(Reply::Started(_)));
    loop {
        if let Some(answer) = hand.net.take_first(is_answer) {
            return answer;
        }
        assert!(hand.net.step(), "there is no answer");
    }
}

/// Begins a call that conflicts in its second round. Returns its number, its starts, and the commit of what conflicts.
pub(super) fn ordered(hand: &mut Hand, inputs: [i64; 2]) -> (u64, Vec<Envelope>, Envelope) {
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
    hand.take();
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

/// `grow` adds a row behind the head. Its piece that reads the head is immediate.
const GROW: &str = r#"
[procedures.grow]
inputs = { a = "int", n = "int" }
[procedures.grow.pieces.head]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"
outputs.n = "row.n"
[procedures.grow.pieces.row]
rows = { row = { table = "t", key = ["head.n"] } }
writes.row.n = "n"
"#;

/// Calls `last` when there are three rows, 1, 2 and 4. Before its transaction starts, the first row becomes 2, and `moves_on`
/// moves the head. Returns the starts of the transaction.
pub(super) fn last(hand: &mut Hand, moves_on: impl Fn(&mut Hand)) -> (u64, Vec<Envelope>) {
    hand.run(1000);
    for row in 0..4 {
        hand.call(1, "put", &[row, 1 << row]);
    }
    for _ in 0..3 {
        hand.call(1, "advance", &[0]);
    }
    assert_eq!(hand.call(0, "last", &[0]), [3, 0b0111]);
    let call = hand.begin(0, "last", &[0]);
    // The rows need the head.
    for _ in 0..2 {
        let first = requests(hand);
        answer_all(hand, first);
    }
    let second = requests(hand);
    let commit = begin_to_add(hand, [0, 0]);
    answer_all(hand, second);
    let started = starts(hand);
    hand.net.deliver(commit);
    moves_on(hand);
    (call, started)
}

fn head_is_deferred(mutation: Mutated<Mutation>) -> Vec<i64> {
    let mut hand = Hand::with_mutation(1, 1, short(), mutation);
    hand.register(with_order(&[OF_HAND, LAST].concat()));
    let (call, started) = last(&mut hand, |hand| {
        call_meanwhile(hand, "advance", &[0]);
    });
    assert_eq!(started.len(), 1);
    assert_eq!(start(&started[0]).pieces.len(), 4, "the head is predicted to be the same");
    started.into_iter().for_each(|start| hand.net.deliver(start));
    results(&mut hand, call)
}

#[test]
fn a_call_whose_prediction_was_wrong_is_ordered_again() {
    assert_eq!(head_is_deferred(Mutated::NONE), [3, 0b1110]);
    let by_prediction = head_is_deferred(Mutated::by(Mutation::OrdersUnchecked));
    assert_eq!(by_prediction, [3, 0b0110 + 2], "it makes no difference");
}

#[test]
fn outputs_of_immediate_pieces_are_not_predicted() {
    let mut hand = Hand::new(1, 1, short());
    hand.register(with_order(&[OF_HAND, LAST, GROW].concat()));
    let (call, first) = last(&mut hand, |hand| {
        call_meanwhile(hand, "grow", &[0, 8]);
    });
    assert_eq!(start(&first[0]).pieces.len(), 1, "the head alone");
    let txn = start(&first[0]).txn;
    first.into_iter().for_each(|start| hand.net.deliver(start));
    hand.net.settle_where(|(from, ..)| *from != testing::client_id(0));
    let then = starts(&mut hand);
    // What comes now is behind the transaction.
    hand.begin(1, "grow", &[0, 16]);
    hand.net.settle();
    assert_eq!((then.len(), start(&then[0]).txn, start(&then[0]).pieces.len()), (1, txn, 3));
    then.into_iter().for_each(|start| hand.net.deliver(start));
    assert_eq!(results(&mut hand, call), [3, 0b1110]);
    assert_eq!(hand.call(0, "last", &[0]), [3, 0b11100]);
}

#[test]
fn a_late_answer_to_the_first_start_says_nothing_of_the_second_one() {
    let mut hand = Hand::new(1, 1, short());
    hand.register(with_order(&[OF_HAND, LAST, GROW].concat()));
    let (call, first) = last(&mut hand, |hand| {
        call_meanwhile(hand, "grow", &[0, 8]);
    });
    first.into_iter().for_each(|start| hand.net.deliver(start));
    let answer = answer_to_start(&mut hand);
    hand.net.deliver(answer.clone());
    let then = starts(&mut hand);
    assert_eq!(then.len(), 1);
    hand.net.deliver(answer);
    let commits = hand.net.take(|(.., message)| is_commit_of(message, 0));
    assert_eq!(commits, [], "not all pieces are started");
    then.into_iter().for_each(|start| hand.net.deliver(start));
    assert_eq!(results(&mut hand, call), [3, 0b1110]);
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

/// Its pieces need nothing of others.
const SOME: &str = r#"
[procedures.some]
inputs = { rows = { list = "int", max = 3 } }
returns = { n = "size(row.n)" }
[procedures.some.pieces.row]
for_each = { at = "rows" }
rows = { row = { table = "t", key = ["at"] } }
reads = ["row.n"]
outputs.n = "row.n"
"#;

#[test]
fn a_call_without_pieces_ends_although_others_were_ordered() {
    let mut hand = Hand::new(1, 1, short());
    hand.register(with_order(&[OF_HAND, SOME].concat()));
    hand.run(1000);
    let begin = |hand: &mut Hand, rows: &[i64]| {
        let rows = Datum::list(rows.iter().copied().map(Datum::Int));
        hand.operate(0, Operation::Call { procedure: "some".into(), inputs: vec![rows], age: None })
    };
    begin(&mut hand, &[7]);
    hand.run(1000);
    let contended = begin(&mut hand, &[7]);
    let first = requests(&mut hand);
    answer_all(&mut hand, first);
    let second = requests(&mut hand);
    let commit = begin_to_add(&mut hand, [7, 7]);
    answer_all(&mut hand, second);
    hand.net.deliver(commit);
    assert_eq!(results(&mut hand, contended), [1]);
    for rows in [&[][..], &[7, 7, 8]] {
        let call = begin(&mut hand, rows);
        assert_eq!(requests(&mut hand), [], "it is ordered at once");
        assert_eq!(results(&mut hand, call), [rows.len() as i64]);
    }
}

/// Also after a restart, and if the call had pieces there before.
#[test]
fn a_call_that_is_closed_starts_nothing_any_more() {
    for has_pieces in [false, true] {
        let (mut hand, inputs) = two_partitions(Settings::default());
        let (_, mut starts, _) = ordered(&mut hand, inputs);
        let late = starts.pop().unwrap();
        if has_pieces {
            hand.net.deliver(late.clone());
        }
        let mut closes = late.clone();
        if let Message::Request(Request::Start(start)) = &mut closes.2 {
            start.pieces.clear();
        }
        hand.net.deliver(closes);
        hand.net.settle();
        let (group, settings) = (hand.group.clone(), hand.settings);
        hand.net.crash(r(1));
        hand.net.restart(r(1), Replica::new(r(1), group, &settings, Mutated::NONE));
        hand.net.cut.insert((testing::client_id(0), r(1)));
        hand.run(500);
        hand.net.cut.clear();
        assert_eq!(hand.net.gauge(r(1), "live_transactions"), 1);
        hand.net.deliver(late);
        match answer_to_start(&mut hand) {
            (.., Message::Reply(Reply::Started(started))) => {
                assert_eq!(started.pieces.len(), usize::from(has_pieces));
                assert!(started.is_closed);
            }
            other => panic!("{other:?}"),
        }
    }
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
    let has_sound_inputs = |bytes: u64| {
        let inputs = Inputs::new(&[Datum::Bytes(vec![0; bytes as usize].into())]);
        let message = changed(&|start| Arc::make_mut(&mut start.call).inputs = inputs.clone());
        sound::to_replica(*from, &message, 0, &hand.group)
    };
    assert!(has_sound_inputs(MAX_DATA_OF_CALL - 64) && !has_sound_inputs(MAX_DATA_OF_CALL));
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

fn explore_all(seeds: u64, faults: Faults) {
    for seed in 0..seeds * factor() {
        if let Err(wrong) = explore_with(seed, faults, Mutated::NONE, More::Looking) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn ordered_calls_are_strictly_serializable() {
    explore_all(60, Faults { members: 1, lossy: false, crashes: false, clients_leave: false });
    explore_all(30, Faults { members: 3, lossy: true, crashes: false, clients_leave: false });
    for members in [1, 3] {
        explore_all(30, Faults { members, lossy: true, crashes: true, clients_leave: false });
        explore_all(30, Faults { members, lossy: true, crashes: true, clients_leave: true });
    }
}

#[test]
fn ordered_calls_end_when_partitions_are_cut_off_and_sets_change() {
    let hunt = Hunt { more: More::Looking, ..hunted::NONE };
    explore_more_all("cut", 10, 3, short(), Hunt { cuts: true, ..hunt });
    explore_more_all("registers", 10, 1, short(), Hunt { registers: true, ..hunt });
}

#[test]
fn mistakes_with_ordered_calls_are_found() {
    let faults = Faults { members: 1, lossy: false, crashes: false, clients_leave: false };
    for mutation in [Mutation::OrdersUnchecked, Mutation::ForgetsEdge] {
        let mutated = Mutated::by(mutation);
        assert!(is_found(200, |seed| explore_with(seed, faults, mutated, More::Looking)));
    }
}

/// Servers do not take sets from clients that the offline checker has not made so.
#[test]
fn procedures_that_can_not_be_ordered_are_unfit() {
    let unfit = |file: &str, change: &dyn Fn(&mut ProcedureSet)| {
        let mut set = Arc::unwrap_or_clone(with_order(file));
        change(&mut set);
        let mut hand = Hand::new(1, 1, short());
        let number = hand.operate(0, Operation::Register { set: Arc::new(set), replaces: None });
        hand.run(1000);
        matches!(hand.registered(number), Some(Registration::Unfit(_)))
    };
    let some = &[OF_HAND, SOME].concat();
    assert!(!unfit(some, &|_| {}));
    assert!(unfit(some, &|set| set.procedures[0].ordered = true), "it writes");
    let can_fail = |set: &mut ProcedureSet| {
        let some = set.procedures.last_mut().unwrap();
        some.pieces[0].body.can_fail = true;
    };
    assert!(unfit(some, &can_fail), "it is deferred and can fail");
}
