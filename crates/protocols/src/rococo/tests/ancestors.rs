//! What leaders ask and tell each other of the transactions before another one, and what a leader takes over from the last
//! one.

use super::super::message::{Edge, Kind, Message, Reply, Request};
use super::*;
use hand::{r, short};
use ordering::two_partitions;
use reading::{Envelope, begin_to_add, is_commit};

/// A call at the first partition comes after two others, which began long ago and are forgotten. One of them had pieces
/// there, and the other one had pieces at the second partition.
#[test]
fn what_began_long_ago_is_reported_as_executed_only_where_it_has_pieces() {
    let (mut hand, inputs) = two_partitions(short());
    hand.run(3000);
    let long_ago_us = hand.net.clock_us() - 2_000_000;
    let edge = |at: u16| {
        let from = Version::at(long_ago_us + u64::from(at));
        Edge { from, kind: Kind::Deferred, at }
    };
    let mut envelope = begin_to_add(&mut hand, inputs);
    let txn = match &mut envelope.2 {
        Message::Request(Request::Commit(commit)) => {
            let vertex = &mut Arc::make_mut(commit).vertex;
            vertex.edges = [edge(0), edge(1)].into();
            vertex.txn
        }
        other => panic!("{other:?}"),
    };
    hand.net.deliver(envelope);
    let answers = hand.net.answers(r(1), r(0), Message::Request(Request::Ask { txn }));
    let told = answers.iter().find_map(|(.., message)| match message {
        Message::Reply(Reply::Status { ancestors, .. }) => Some(ancestors),
        _ => None,
    });
    let told = told.expect("the call commits");
    assert_eq!(told.commit.iter().map(|vertex| vertex.txn).collect::<Vec<_>>(), [txn]);
    assert_eq!(told.executed, [edge(0).from]);
}

fn is_question((.., message): &Envelope) -> bool {
    matches!(message, Message::Request(Request::Ask { .. }))
}

fn is_answer((.., message): &Envelope) -> bool {
    matches!(message, Message::Reply(Reply::Status { .. }))
}

/// A call at both partitions comes after one at the second partition, which commits later. The first partition asks the
/// second one what comes before that.
#[test]
fn a_question_is_repeated_if_it_is_lost_or_its_answer() {
    for is_lost in [is_question as fn(&Envelope) -> bool, is_answer] {
        let settings = Settings { recovery_after_ms: 10_000, ..Settings::default() };
        let (mut hand, inputs) = two_partitions(settings);
        hand.call(2, "get", &inputs);
        let commit = begin_to_add(&mut hand, [inputs[1], inputs[0]]);
        let call = hand.begin(2, "two", &inputs);
        hand.net.settle_where(|envelope| !is_lost(envelope));
        hand.net.deliver(commit);
        hand.net.settle_where(|envelope| !is_lost(envelope));
        assert_eq!(hand.net.take(is_lost).len(), 1);
        hand.take();
        assert_eq!(hand.outcome(call), None, "the first partition knows what comes before it");
        hand.run(1000);
        assert!(hand.outcome(call).is_some(), "it waits for ever");
    }
}

/// Two calls have added to a row and commit nowhere when the leader restarts. The one that was started first has the later
/// version, as the clock of its client is ahead. A third one adds to the row.
#[test]
fn what_comes_before_a_piece_depends_on_the_order_in_which_a_former_leader_has_started_others() {
    let settings = Settings { recovery_after_ms: 10_000, ..Settings::default() };
    let (mut hand, inputs) = two_partitions(settings);
    hand.call(2, "get", &inputs);
    hand.net.ahead_us.insert(testing::client_id(2), 1_000_000);
    let [first, second] = [2, 0].map(|client| {
        let call = hand.begin(client, "add", &inputs[..1]);
        hand.net.settle_where(|envelope| !is_commit(envelope));
        hand.net.leave(testing::client_id(client));
        hand.began(call)[0]
    });
    assert!(first > second);
    hand.net.crash(r(0));
    let fresh = Replica::new(r(0), hand.group.clone(), &hand.settings, Mutated::NONE);
    hand.net.restart(r(0), fresh);
    hand.run(500);
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 2);
    let edges = match begin_to_add(&mut hand, inputs).2 {
        Message::Request(Request::Commit(commit)) => commit.vertex.edges.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(edges.iter().map(|edge| edge.from).collect::<Vec<_>>(), [second]);
}
