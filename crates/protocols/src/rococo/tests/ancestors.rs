//! What leaders ask and tell each other of the transactions before another one.

use super::super::message::{Edge, Kind, Message, Reply, Request};
use super::*;
use hand::{r, short};
use ordering::two_partitions;
use reading::begin_to_add;

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
