//! Transactions of ordered read-only calls that end before the call does, so that another one follows.

use super::super::message::{Message, Request};
use super::*;
use hand::{Hand, OF_HAND, r, start_to, with_order};
use ordering::{start, starts};
use reading::{Envelope, call_meanwhile, is_read, requests, results};

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

fn registered(partitions: u16, members: usize, settings: Settings) -> Hand {
    let mut hand = Hand::new(partitions, members, settings);
    hand.register(with_order(&[OF_HAND, CHASE].concat()));
    hand.run(1000);
    hand
}

/// Calls `chase`, and something conflicts. The head names the row `from`, but before the transaction starts, it is moved to
/// the row `to`, which the call has not read. Both rows name the row `end`, which is 9. Returns the number
/// of the call, and the start of the head.
fn chase(hand: &mut Hand, [head, from, to, end]: [i64; 4]) -> (u64, Envelope) {
    hand.call(1, "aim", &[head, from, 0]);
    for inputs in [[from, end], [to, end], [end, 9]] {
        hand.call(1, "put", &inputs);
    }
    assert_eq!(hand.call(0, "chase", &[head]), [9]);
    let call = hand.begin(0, "chase", &[head]);
    let mut second = vec![hand.until(is_of_further_round)];
    second.extend(requests(hand));
    hand.begin(1, "add", &[from]);
    let commit = hand.until(|message| matches!(message, Message::Request(Request::Commit(_))));
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

/// Whether pieces are started with this. Servers that finish a call start none.
fn starts_pieces(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Start(start)) if !start.pieces.is_empty())
}

/// Lets so much time pass that clients repeat what was not answered.
fn lose_patience(hand: &mut Hand) {
    hand.net.wait(Duration::from_millis(100));
    hand.net.fire_due_clients();
}

/// Has the head started, and begins to `aim` behind it, which can't end before the transaction does. Returns its number.
fn aim_behind(hand: &mut Hand, start_of_head: Envelope, inputs: &[i64]) -> u64 {
    hand.net.deliver(start_of_head);
    let writer = hand.begin(1, "aim", inputs);
    hand.net.settle_where(|(_, to, _)| *to != testing::client_id(0));
    writer
}

/// What a piece will find can't be read while the transaction is under way, because a writer of the row comes after it. If
/// the next transaction did not know it either, it could always be so.
#[test]
fn what_could_not_be_predicted_is_started_so_that_the_next_transaction_knows_it() {
    let mut hand = registered(1, 1, Settings::default());
    let [head, from, to, end] = [0, 1, 2, 3];
    let (call, started) = chase(&mut hand, [head, from, to, end]);
    let first = start(&started).txn;
    let writer = aim_behind(&mut hand, started, &[head, to, end]);
    hand.net.settle();
    hand.take();
    assert_eq!(hand.net.gauge(r(0), "waiting_reads"), 1, "the prediction waits for the writer");
    assert_eq!(hand.outcome(writer), None, "the writer waits for the transaction");
    lose_patience(&mut hand);
    let rest = starts(&mut hand);
    assert_eq!(rest.len(), 1);
    assert_eq!((start(&rest[0]).txn, start(&rest[0]).pieces.len()), (first, 1));
    rest.into_iter().for_each(|start| hand.net.deliver(start));
    let next = hand.until(starts_pieces);
    hand.take();
    assert!(hand.outcome(writer).is_some(), "the transaction has not ended");
    assert_ne!(start(&next).txn, first);
    let later = aim_behind(&mut hand, next, &[head, to, 0]);
    hand.net.settle();
    hand.take();
    assert!(hand.outcome(call).is_some(), "the second transaction had to wait, too");
    assert!(hand.outcome(later).is_some());
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
