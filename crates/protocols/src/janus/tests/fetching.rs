//! What replicas ask others for: questions and answers that are lost, and a replica that lacks much.

use super::broken::pass_without;
use super::replicated::{node, texts, world_with};
use super::*;
use crate::janus::replica::Timer;

fn is_question((.., message): &Envelope<Message>) -> bool {
    matches!(message, Message::Request(Request::Ask { .. }))
}

fn is_answer((.., message): &Envelope<Message>) -> bool {
    matches!(message, Message::Reply(Reply::Status { .. }))
}

fn is_commit(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Commit(_)))
}

/// A call at both partitions comes after one at the second partition, which commits later. The first partition asks the
/// second one what comes before that.
#[test]
fn a_question_is_repeated_if_it_is_lost_or_its_answer() {
    for is_lost in [is_question as fn(&Envelope<Message>) -> bool, is_answer] {
        let mut net = world();
        let commits =
            |(from, _, message): &Envelope<Message>| *from == client_id(1) && is_commit(message);
        call(&mut net, 1, 2, "both", &[at(1), at(1), 7]);
        net.settle_where(|envelope| !commits(envelope));
        call(&mut net, 2, 3, "both", &[at(0), at(1), 8]);
        net.settle_where(|envelope| !commits(envelope) && !is_lost(envelope));
        let commit = net.take_first(commits).expect("all have agreed");
        net.deliver(commit);
        net.settle_where(|envelope| !is_lost(envelope));
        assert_eq!(net.take(is_lost).len(), 1);
        assert_eq!(results(&net).len(), 1, "the first partition knows what comes before the other");
        net.pass(Duration::from_millis(500));
        assert_eq!(results(&net).len(), 2);
    }
}

/// A replica hears of a call when others have executed it. Then it does not reach them for a while.
#[test]
fn a_replica_fetches_again_what_it_has_not_got() {
    let mut net = world_with(Mutated::NONE);
    let own = node(0, 2);
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    pass_without(&mut net, Duration::from_millis(600), |(_, to, message)| {
        *to == own && !matches!(message, Message::Request(Request::Report(_)))
    });
    assert_eq!(results(&net).len(), 1, "the others have executed it");
    pass_without(&mut net, Duration::from_millis(500), |(.., message)| {
        matches!(message, Message::Request(Request::Fetch { .. }))
    });
    assert_eq!(texts(&mut net, at(0))[2], None);
    net.pass(Duration::from_millis(500));
    assert_eq!(texts(&mut net, at(0)), vec![Some("7 7 ".to_owned()); 3]);
}

/// A replica fetches 256 calls at a time, and has missed the commits of more.
#[test]
fn a_replica_fetches_all_that_it_lacks_before_it_looks_again() {
    let mut net = world_with(Mutated::NONE);
    let own = node(0, 2);
    let is_lost = |(_, to, message): &Envelope<Message>| *to == own && is_commit(message);
    for txn in 2..302 {
        call(&mut net, 1, txn, "both", &[at(0), at(0), 7]);
        net.settle_where(|envelope| !is_lost(envelope));
        net.take(is_lost);
    }
    assert_eq!(net.gauge(own, "live_transactions"), 300);
    // It compares.
    net.fire(node(0, 0), Timer::Watch);
    net.settle();
    assert_eq!(net.gauge(own, "live_transactions"), 0);
}
