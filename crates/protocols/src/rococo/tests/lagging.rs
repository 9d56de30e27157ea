//! Clients that die or take long, and clients whose clocks are wrong.

use super::*;
use hand::{Hand, OF_HAND, r, short, start_to, with_order};
use ordering::{ordered, starts, two_partitions};
use reading::{Envelope, answer_all, begin_to_add, requests, results};

/// `within` reads two limits, a third one that they name, and a row that this names. Nobody writes limits. Their pieces are
/// immediate because they can fail.
const WITHIN: &str = r#"
[tables.limit]
key = { id = "int" }
columns = { n = "int" }

[procedures.within]
inputs = { a = "int", b = "int", c = "int" }
returns = { n = "last.n" }
[procedures.within.pieces.one]
rows = { row = { table = "limit", key = ["a"] } }
reads = ["row.n"]
checks = [{ that = "row.n < 100", otherwise = "no" }]
outputs.n = "row.n"
[procedures.within.pieces.other]
rows = { row = { table = "limit", key = ["b"] } }
reads = ["row.n"]
checks = [{ that = "row.n < 100", otherwise = "no" }]
outputs.n = "row.n"
[procedures.within.pieces.third]
rows = { row = { table = "limit", key = ["b + one.n + other.n"] } }
reads = ["row.n"]
checks = [{ that = "row.n < 100", otherwise = "no" }]
outputs.n = "row.n"
[procedures.within.pieces.last]
rows = { row = { table = "t", key = ["c + third.n"] } }
reads = ["row.n"]
outputs.n = "row.n"
"#;

/// Calls `within`, and something conflicts and ends: the row is 1. The first limit is at the first of two partitions, and all
/// else is at the second one. Returns the number of the call, and the starts of its first pieces, one at each partition.
fn within(settings: Settings) -> (Hand, u64, Vec<Envelope>) {
    let mut hand = Hand::new(2, 1, settings);
    hand.register(with_order(&[OF_HAND, WITHIN].concat()));
    hand.run(1000);
    let row = hand.at(1, 1);
    let inputs = [hand.at(0, 0), hand.at(1, 0), row];
    assert_eq!(hand.call(0, "within", &inputs), [0]);
    let call = hand.begin(0, "within", &inputs);
    for _ in 0..3 {
        let first = requests(&mut hand);
        answer_all(&mut hand, first);
    }
    let second = requests(&mut hand);
    let commit = begin_to_add(&mut hand, [row, row]);
    answer_all(&mut hand, second);
    let first = starts(&mut hand);
    assert_eq!(first.iter().map(|(_, to, _)| *to).collect::<Vec<_>>(), [r(0), r(1)]);
    hand.net.deliver(commit);
    (hand, call, first)
}

/// The client does not know that a server has closed the call when it hears that the other piece is not started. Others need
/// what this one would have found.
#[test]
fn a_call_that_was_closed_before_an_immediate_piece_was_started_ends() {
    let settings = Settings { recovery_after_ms: 300, ..Settings::default() };
    let (mut hand, call, mut first) = within(settings);
    let late = first.pop().unwrap();
    hand.net.cut.extend([0, 1].map(|at| (testing::client_id(0), r(at))));
    first.into_iter().for_each(|start| hand.net.deliver(start));
    hand.run(1000);
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 0, "the first partition has finished it");
    hand.net.cut.clear();
    hand.net.deliver(late);
    assert_eq!(results(&mut hand, call), [1]);
}

/// Two starts in a row take 700 ms each, and go to the second partition. Servers finish calls whose clients are silent for a
/// second.
#[test]
fn a_call_that_takes_long_is_not_taken_for_that_of_a_dead_client() {
    let (mut hand, call, first) = within(Settings::default());
    first.into_iter().for_each(|start| hand.net.deliver(start));
    for _ in 0..2 {
        let slow = hand.until(start_to);
        assert_eq!(slow.1, r(1));
        hand.net.cut.insert((testing::client_id(0), r(1)));
        hand.run(700);
        hand.net.cut.clear();
        hand.net.deliver(slow);
    }
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 1, "the first partition has finished it");
    assert_eq!(results(&mut hand, call), [1]);
}

/// By its clock, its calls have begun so long ago that others as old are forgotten.
#[test]
fn a_call_of_a_client_whose_clock_lags_far_behind_is_ordered_without_a_pause() {
    let (mut hand, inputs) = two_partitions(short());
    hand.net.ahead_us.insert(testing::client_id(0), -60_000_000);
    let (call, early, commit) = ordered(&mut hand, inputs);
    early.into_iter().for_each(|start| hand.net.deliver(start));
    hand.net.settle();
    hand.net.deliver(commit);
    hand.net.settle();
    hand.take();
    assert!(hand.outcome(call).is_some(), "it is not started under a later version");
    assert_eq!(results(&mut hand, call), [6, 0]);
}

/// A leader coordinates 256 calls at a time, and looks for silent ones in the order of their versions. Here so many wait for
/// the one with the last version, whose client has a clock that is ahead.
#[test]
fn calls_that_a_leader_coordinates_make_room_for_what_they_wait_for() {
    let mut hand = Hand::new(1, 1, short());
    hand.register(with_order(OF_HAND));
    for client in [0, 1] {
        hand.call(client, "get", &[7, 7]);
    }
    let clients = [0, 1].map(testing::client_id);
    hand.net.ahead_us.insert(clients[1], 60_000_000);
    hand.begin(1, "add", &[7]);
    hand.net.settle_where(|(.., message)| start_to(message));
    for _ in 0..256 {
        hand.begin(0, "add", &[7]);
    }
    hand.net.settle_where(|(.., message)| start_to(message));
    clients.into_iter().for_each(|client| hand.net.leave(client));
    hand.run(1000);
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 257, "there is room for all");
    hand.run(2000);
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 0);
}

/// Calls as old as those of the client are forgotten. It has begun none when it learns from which time calls have to begin.
/// When its clock is set back, it learns that again.
#[test]
fn calls_of_a_client_whose_clock_lags_far_behind_take_effect() {
    let mut hand = Hand::new(2, 1, short());
    hand.register(with_order(OF_HAND));
    hand.run(60_000);
    let client = testing::client_id(1);
    hand.net.ahead_us.insert(client, -60_000_000);
    for n in 1..=3 {
        hand.call(1, "add", &[7]);
        assert_eq!(hand.call(0, "get", &[7, 7])[0], n);
        hand.run(20_000);
    }
    hand.net.ahead_us.insert(client, -3_600_000_000);
    let call = hand.begin(1, "add", &[7]);
    hand.run(100);
    assert_eq!(hand.outcome(call), Some(Outcome::Forgotten));
    hand.call(1, "add", &[7]);
    assert_eq!(hand.call(0, "get", &[7, 7])[0], 4);
}
