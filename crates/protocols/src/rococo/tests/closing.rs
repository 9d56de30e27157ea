//! Ordered read-only calls that are closed, finished by a server, or under way when a partition fails over.

use super::super::message::{CallOf, Inputs, Message, Occurrence, Reply, Request, Start};
use super::*;
use hand::{Hand, OF_HAND, other, r, start_to, with_order};
use ordering::{ordered, two_partitions};
use reading::results;
use serried_procedures::PieceId;

/// A call commits at the first partition. The second one has started it, restarts, and hears of no commit. When one writer has
/// ended at the first partition, another one begins at the second one.
#[test]
fn a_writer_waits_for_an_ordered_call_that_a_former_leader_has_started() {
    let settings = Settings { recovery_after_ms: 10_000, ..Settings::default() };
    let (mut hand, inputs) = two_partitions(settings);
    let (call, starts, commit) = ordered(&mut hand, inputs);
    hand.net.deliver(commit);
    hand.net.settle();
    hand.net.cut.insert((testing::client_id(0), r(1)));
    starts.into_iter().for_each(|start| hand.net.deliver(start));
    hand.net.settle();
    hand.net.crash(r(1));
    let fresh = Replica::new(r(1), hand.group.clone(), &hand.settings, Mutated::NONE);
    hand.net.restart(r(1), fresh);
    hand.run(500);
    let live = [0, 1].map(|at| hand.net.gauge(r(at), "live_transactions"));
    assert_eq!(live, [0, 1]);
    hand.call(1, "add", &inputs[..1]);
    let later = hand.begin(1, "add", &inputs[1..]);
    hand.run(100);
    assert_eq!(hand.outcome(later), None, "the call comes before it");
    hand.net.cut.clear();
    assert_eq!(results(&mut hand, call), [6, 0], "it sees neither writer");
    assert!(hand.outcome(later).is_some());
}

fn leads(hand: &Hand, replica: NodeId) -> bool {
    hand.net.gauge(replica, "leads") == 1
}

/// A leader that is cut off from its followers closes a call. The next leader knows nothing of that, and starts a piece of it.
#[test]
fn a_partition_says_that_a_call_is_closed_when_that_is_chosen() {
    let set = with_order(OF_HAND);
    let get = set.procedures.iter().position(|procedure| procedure.name == "get");
    let procedure = get.expect("there is one") as u16;
    let mut hand = Hand::new(2, 3, Settings::default());
    hand.register(set);
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)].map(Datum::Int);
    let piece = Occurrence { piece: PieceId(1), number: 0, arguments: [inputs[1].clone()].into() };
    let inputs = Inputs::new(&inputs);
    let call = Arc::new(CallOf { set: 1, procedure, inputs, reads: vec![0, 1] });
    // The test plays the client, and another node that finishes the call.
    let [client, finisher] = [8, 9].map(testing::client_id);
    let txn = Version { timestamp_us: hand.net.clock_us(), coordinator: client };
    let start = |pieces| {
        Message::Request(Request::Start(Start { txn, call: call.clone(), insist: true, pieces }))
    };
    let replicas = [0, 1, 2].map(|member| NodeId::replica(1, member));
    let (leaders, others): (Vec<NodeId>, Vec<NodeId>) =
        replicas.into_iter().partition(|replica| leads(&hand, *replica));
    hand.net.cut.extend(others.iter().map(|other| (leaders[0], *other)));
    hand.net.deliver((finisher, leaders[0], start(Vec::new())));
    hand.run(50);
    assert_eq!(hand.net.delivered, [], "it is not chosen");
    hand.net.crash(leaders[0]);
    hand.net.cut.clear();
    hand.run(3000);
    let next = others.into_iter().find(|replica| leads(&hand, *replica));
    hand.net.deliver((client, next.expect("another one leads"), start(vec![piece])));
    hand.run(50);
    match &hand.net.delivered[..] {
        [(.., Message::Reply(Reply::Started(started)))] => {
            assert_eq!((started.pieces.len(), started.is_closed), (1, false));
        }
        delivered => panic!("{delivered:?}"),
    }
}

/// At the first partition the writer comes before the call, and at the second one after it. The first one executes both. The
/// second one hears of no commit of the call. So it finishes the call, and asks the first one what comes before it.
#[test]
fn a_partition_that_has_executed_an_ordered_call_says_what_came_before_it() {
    let settings = Settings { recovery_after_ms: 300, ..Settings::default() };
    let (mut hand, inputs) = two_partitions(settings);
    hand.call(2, "get", &inputs);
    hand.begin(2, "two", &inputs);
    let writer = hand.net.take(|(.., message)| start_to(message));
    let (call, starts, commit) = ordered(&mut hand, inputs);
    hand.net.deliver(commit);
    hand.net.settle();
    hand.net.cut.insert((testing::client_id(0), r(1)));
    for envelope in [&writer[0], &starts[0], &starts[1], &writer[1]] {
        hand.net.deliver(envelope.clone());
    }
    hand.net.settle();
    let live = |hand: &Hand| [0, 1].map(|at| hand.net.gauge(r(at), "live_transactions"));
    assert_eq!(live(&hand), [0, 2]);
    hand.run(1000);
    assert_eq!(live(&hand), [0, 0]);
    hand.net.cut.clear();
    assert_eq!(results(&mut hand, call), [7, 1], "the writer comes first, as it began first");
}

/// A call that the first partition has started and the second one has not. Its client has left.
fn abandoned(settings: Settings) -> Hand {
    let (mut hand, inputs) = two_partitions(settings);
    let (_, starts, commit) = ordered(&mut hand, inputs);
    hand.net.deliver(commit);
    hand.net.deliver(starts[0].clone());
    hand.net.leave(testing::client_id(0));
    hand
}

#[test]
fn a_call_is_closed_by_a_server_where_it_would_be_too_late_to_begin() {
    let mut hand = abandoned(Settings { truncation_lag_ms: 500, ..Settings::default() });
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 1);
    hand.run(3000);
    assert_eq!(hand.net.gauge(r(0), "live_transactions"), 0, "it has not ended");
}

#[test]
fn a_call_is_closed_by_a_server_at_partitions_that_drain() {
    let mut hand = abandoned(Settings { recovery_after_ms: 300, ..Settings::default() });
    let register = hand.operate(3, Operation::Register { set: other("more"), replaces: None });
    hand.run(3000);
    assert_eq!(hand.registered(register), Some(Registration::InUse { version: 2 }));
}
