//! Transactions of ordered read-only calls that end before the call does, so that another one follows.

use super::super::message::{Message, Request};
use super::*;
use hand::{Hand, OF_HAND, r, start_to, with_order};
use ordering::{start, starts};
use reading::{
    Envelope, answer_all, begin_to_add, call_meanwhile, is_read, read, requests, results,
};

/// `chase` reads a head, the row that it names, and the row that this one names. `aim` moves a head, and writes the row that
/// it has named. The pieces of heads are immediate, and all others are deferred.
const CHASE: &str = r#"
[tables.head]
key = { id = "int" }
columns = { n = "int" }

[procedures.aim]
inputs = { a = "int", to = "int", n = "int" }
[procedures.aim.pieces.head]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.n"]
writes.row.n = "to"
outputs.n = "row.n"
[procedures.aim.pieces.row]
rows = { row = { table = "t", key = ["head.n"] } }
writes.row.n = "n"

[procedures.chase]
inputs = { a = "int" }
returns = { n = "last.n" }
[procedures.chase.pieces.head]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.chase.pieces.next]
rows = { row = { table = "t", key = ["head.n"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.chase.pieces.last]
rows = { row = { table = "t", key = ["next.n"] } }
reads = ["row.n"]
outputs.n = "row.n"
"#;

pub(super) fn registered(partitions: u16, members: usize, settings: Settings) -> Hand {
    let mut hand = Hand::new(partitions, members, settings);
    hand.register(with_order(&[OF_HAND, CHASE].concat()));
    hand.run(1000);
    hand
}

/// Calls `chase`, and something conflicts. The head names the row `from`, but before the transaction starts, it is moved to
/// the row `to`, which the call has not read. Both rows name the row `end`, which is 9. Returns the number
/// of the call, and the start of the head.
pub(super) fn chase(hand: &mut Hand, [head, from, to, end]: [i64; 4]) -> (u64, Envelope) {
    hand.call(1, "aim", &[head, from, 0]);
    for inputs in [[from, end], [to, end], [end, 9]] {
        hand.call(1, "put", &inputs);
    }
    assert_eq!(hand.call(0, "chase", &[head]), [9]);
    let call = hand.begin(0, "chase", &[head]);
    let mut second = vec![hand.until(is_of_further_round)];
    second.extend(requests(hand));
    hand.begin(1, "add", &[from]);
    let commit = hand.until(is_commit);
    second.into_iter().for_each(|request| hand.net.deliver(request));
    let started = hand.until(start_to);
    assert_eq!(start(&started).pieces.len(), 1, "the head alone");
    hand.net.deliver(commit);
    call_meanwhile(hand, "aim", &[head, to, end]);
    (call, started)
}

/// Whether this is a request of a further round.
fn is_of_further_round(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Read(read)) if !read.again.is_empty())
}

fn is_commit(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Commit(_)))
}

/// Whether pieces are started with this. Servers that finish a call start none.
fn starts_pieces(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Start(start)) if !start.pieces.is_empty())
}

/// Lets so much time pass that clients repeat what was not answered.
fn lose_patience(hand: &mut Hand) {
    hand.net.wait(Duration::from_millis(100));
    hand.net.fire_due_clients();
}

/// The leader does not answer what has to be predicted. If the next transaction did not know it either, it could always be so.
#[test]
fn what_could_not_be_predicted_is_started_so_that_the_next_transaction_knows_it() {
    let mut hand = registered(1, 1, Settings::default());
    let (call, started) = chase(&mut hand, [0, 1, 2, 3]);
    let first = start(&started).txn;
    hand.net.deliver(started);
    drop(hand.until(is_read));
    lose_patience(&mut hand);
    let rest = starts(&mut hand);
    assert_eq!(rest.len(), 1);
    assert_eq!((start(&rest[0]).txn, start(&rest[0]).pieces.len()), (first, 1));
    rest.into_iter().for_each(|start| hand.net.deliver(start));
    let next = hand.until(starts_pieces);
    assert_ne!(start(&next).txn, first);
    hand.net.deliver(next);
    hand.net.settle_where(|(.., message)| !is_read(message));
    assert_eq!(requests(&mut hand), [], "the last transaction has found it");
    assert_eq!(results(&mut hand, call), [9]);
}

/// The client does not hear of the start of the head, so a server closes the call and finishes it. When the client repeats
/// that start, it is told so, but it does not know that nothing else is started any more.
#[test]
fn a_start_that_is_lost_is_repeated_although_a_server_has_finished_the_transaction() {
    let settings = Settings { recovery_after_ms: 300, ..Settings::default() };
    let mut hand = registered(1, 1, settings);
    let (call, started) = chase(&mut hand, [0, 1, 2, 3]);
    let client = testing::client_id(0);
    hand.net.cut.extend([(client, r(0)), (r(0), client)]);
    hand.net.deliver(started.clone());
    hand.run(1000);
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 0, "the server has finished it");
    hand.net.cut.clear();
    hand.net.deliver(started.clone());
    let lost = hand.until(starts_pieces);
    assert_eq!(start(&lost).txn, start(&started).txn);
    assert_eq!(start(&lost).pieces.len(), 2, "what comes after the head");
    lose_patience(&mut hand);
    let repeated = starts(&mut hand);
    assert_eq!(repeated.len(), 1, "the client does not wait for ever");
    assert_eq!(start(&repeated[0]).txn, start(&lost).txn);
    repeated.into_iter().for_each(|start| hand.net.deliver(start));
    assert_eq!(results(&mut hand, call), [9]);
}

/// The head names rows at two partitions by turns. A transaction with the partitions of what is known would always lack the
/// other one.
#[test]
fn a_transaction_has_the_partitions_of_the_transactions_before_it() {
    let mut hand = registered(3, 1, Settings::default());
    let [head, end] = [0, 1].map(|number| hand.at(0, number));
    let [one, other] = [1, 2].map(|partition| hand.at(partition, 0));
    let (call, started) = chase(&mut hand, [head, one, other, end]);
    let first = start(&started).txn;
    assert_eq!(start(&started).call.reads, [0, 1]);
    hand.net.deliver(started);
    let next = hand.until(starts_pieces);
    let second = start(&next).txn;
    assert_ne!(second, first, "the first transaction has no row of the third partition");
    assert_eq!(start(&next).call.reads, [0, 1, 2]);
    call_meanwhile(&mut hand, "aim", &[head, one, end]);
    hand.net.deliver(next);
    let is_of_third =
        |envelope: &Envelope| starts_pieces(&envelope.2) && start(envelope).txn != second;
    hand.net.settle_where(|envelope| !is_of_third(envelope));
    hand.take();
    assert!(hand.outcome(call).is_some(), "the second transaction has lacked a partition, too");
    assert_eq!(results(&mut hand, call), [9]);
}

/// The leader of the second partition, its second replica, is down. What is sent to it is lost.
#[test]
fn a_leader_that_has_not_answered_is_not_asked_again_for_a_prediction() {
    let mut hand = registered(2, 3, Settings::default());
    let leader = NodeId::replica(1, 1);
    assert_eq!(hand.net.gauge(leader, "leads"), 1);
    let [head, from, end] = [0, 1, 2].map(|number| hand.at(0, number));
    let to = hand.at(1, 0);
    hand.call(0, "get", &[to, to]);
    let (call, started) = chase(&mut hand, [head, from, to, end]);
    hand.net.crash(leader);
    hand.net.deliver(started);
    let again = hand.until(is_read);
    assert!(again.1.partition() == 1 && again.1 != leader, "{}", again.1);
    hand.net.deliver(again);
    hand.run(5000);
    assert_eq!(results(&mut hand, call), [9]);
}

/// The row that the head names is written by a call that comes before, and has not committed. What it will write is known.
#[test]
fn a_prediction_knows_what_calls_under_way_will_write() {
    let mut hand = registered(1, 1, Settings::default());
    let [head, from, to, end] = [0, 1, 2, 3];
    let (call, started) = chase(&mut hand, [head, from, to, 0]);
    let first = start(&started).txn;
    hand.begin(1, "put", &[to, end]);
    let commit = hand.until(is_commit);
    hand.net.deliver(started);
    let rest = hand.until(starts_pieces);
    assert_eq!((start(&rest).txn, start(&rest).pieces.len()), (first, 2));
    assert_eq!(start(&rest).pieces[1].arguments[..], [Datum::Int(end)]);
    hand.net.deliver(rest);
    hand.net.deliver(commit);
    hand.net.settle_where(|(.., message)| !starts_pieces(message));
    assert_eq!(starts(&mut hand), [], "another transaction follows");
    assert_eq!(results(&mut hand, call), [0]);
}

/// Five thousand calls are under way that write the row. The leader does not try them all.
#[test]
fn a_prediction_tries_the_oldest_of_very_many_pieces() {
    let mut hand = registered(1, 1, Settings::default());
    let [head, from, to] = [0, 1, 2];
    let (call, started) = chase(&mut hand, [head, from, to, 0]);
    for n in 1..=5000 {
        hand.begin(1, "put", &[to, n]);
    }
    hand.net.settle_where(|(.., message)| !is_commit(message));
    let take_commit = || hand.net.take_first(|(.., message)| is_commit(message));
    let commits: Vec<Envelope> = core::iter::from_fn(take_commit).collect();
    hand.net.deliver(started);
    let rest = hand.until(starts_pieces);
    assert_eq!(start(&rest).pieces[1].arguments[..], [Datum::Int(4096)]);
    hand.net.deliver(rest);
    commits.into_iter().for_each(|commit| hand.net.deliver(commit));
    hand.run(10);
    assert_eq!(results(&mut hand, call), [0], "the next transaction comes after all of them");
}

/// The clock of the client lags behind, so that servers refuse the transaction.
#[test]
fn a_call_whose_transaction_begins_too_early_keeps_what_it_has_read() {
    let mut hand = registered(1, 1, Settings::default());
    hand.call(0, "get", &[0, 0]);
    hand.run(5000);
    hand.net.ahead_us.insert(testing::client_id(0), -20_000_000);
    let (call, early) = chase(&mut hand, [0, 1, 2, 3]);
    let first = start(&early).txn;
    hand.net.deliver(early);
    hand.net.settle_where(|(sender, ..)| *sender != testing::client_id(0));
    assert_eq!(requests(&mut hand), [], "it is read again");
    let again = starts(&mut hand);
    assert_eq!(again.len(), 1);
    assert!(start(&again[0]).txn.timestamp_us > first.timestamp_us + 1_000_000);
    again.into_iter().for_each(|start| hand.net.deliver(start));
    assert_eq!(results(&mut hand, call), [9]);
}

/// `gather` reads rows behind a head, as often as they are named, and a row and the one that this names.
const GATHER: &str = r#"
[procedures.gather]
inputs = { a = "int", numbers = { list = "int", max = 3 }, b = "int" }
returns = { n = "size(each.n)", last = "last.n" }
[procedures.gather.pieces.head]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.gather.pieces.each]
for_each = { at = "numbers" }
rows = { row = { table = "t", key = ["head.n + at"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.gather.pieces.other]
rows = { row = { table = "t", key = ["b"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.gather.pieces.last]
rows = { row = { table = "t", key = ["other.n"] } }
reads = ["row.n"]
outputs.n = "row.n"
"#;

/// When a transaction is prepared, `last` is known before the equal pieces are, which need the head. When it is checked, they
/// come in their order. If they were two pieces, other ones would be checked than were started, again and again.
#[test]
fn equal_pieces_of_an_ordered_call_are_one() {
    let mut hand = Hand::new(1, 1, Settings::default());
    hand.register(with_order(&[OF_HAND, CHASE, GATHER].concat()));
    hand.run(1000);
    for inputs in [[3, 4], [4, 9]] {
        hand.call(1, "put", &inputs);
    }
    hand.call(0, "get", &[3, 4]);
    let inputs = vec![Datum::Int(0), Datum::list([7, 7].map(Datum::Int)), Datum::Int(3)];
    let call = hand.operate(0, Operation::Call { procedure: "gather".into(), inputs, age: None });
    for pieces in [2, 3] {
        let first = requests(&mut hand);
        assert_eq!(read(&first[0]).pieces.len(), pieces);
        answer_all(&mut hand, first);
    }
    let second = requests(&mut hand);
    let commit = begin_to_add(&mut hand, [7, 7]);
    answer_all(&mut hand, second);
    hand.net.deliver(commit);
    hand.run(10);
    assert!(hand.outcome(call).is_some(), "it is ordered again and again");
    assert_eq!(results(&mut hand, call), [2, 9]);
}
