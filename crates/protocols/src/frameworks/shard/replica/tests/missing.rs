//! Decisions of single components that no other test depends on.

use super::super::super::stamp::Validity;
use super::super::resolution::{Resolution, Step};
use super::*;
use crate::frameworks::replicated_log::{self as log, Ballot};

#[test]
fn a_resolution_that_moves_all_parts_commits_when_the_others_have_moved() {
    let first = txn(0);
    let at = |us| Validity::at(Stamp { us: NOW_US + us, txn: first });
    let mut resolution = Resolution::new(first, 0, Arc::new([0, 1]));
    resolution.on_ready(1, at(Stamp::LANES));
    let Step::Move(to) = resolution.step(at(0)) else { panic!("the parts do not hold together") };
    assert!(matches!(resolution.step(at(0)), Step::Wait));
    resolution.on_moved(1);
    assert!(matches!(resolution.step(Validity::at(to)), Step::Commit(when) if when == to));
}

/// Two shards that resolve a transaction could come to different ends.
#[test]
fn only_the_first_participant_resolves_a_transaction() {
    for (participants, resolves) in [([0_u16, 1], true), ([1, 0], false)] {
        let mut bench = Bench::<Queues<false>>::new();
        let shot = shot(txn(0), &[], &["x"], &participants);
        assert!(matches!(bench.ask(Request::Shot(shot))[..], [Reply::Executed(_)]));
        let resolve = Message::Request(Request::Resolve { txn: txn(0) });
        bench.0.act(0, |replica, cx| replica.on_message(CLIENT, resolve, cx));
        let asks = |(.., message): &Envelope<Message>| {
            matches!(message, Message::Request(Request::Inspect { .. }))
        };
        assert_eq!(bench.network.iter().any(asks), resolves);
    }
}

/// Its client may ask for it, or try again.
#[test]
fn an_outcome_is_known_for_a_while_though_the_transaction_is_over_everywhere() {
    let mut bench = Bench::<Queues<false>>::new();
    assert!(matches!(bench.write(0)[..], [Reply::Executed(_)]));
    bench.commit(txn(0), Stamp::assigned(txn(0)));
    let Settings { truncation_every_ms, truncation_lag_ms, outcomes_ms, .. } = Settings::default();
    let times = truncation_lag_ms / truncation_every_ms + 8;
    assert!(times * truncation_every_ms < outcomes_ms);
    for _ in 0..times {
        bench.wait(Duration::from_millis(truncation_every_ms));
        let over = Message::Request(Request::Over { below_us: bench.clock_us() });
        bench.act(|replica, cx| replica.on_message(NodeId::replica(1, 0), over, cx));
    }
    let replies = bench.ask(Request::Resolve { txn: txn(0) });
    assert!(matches!(replies[..], [Reply::Decided { .. }]), "{replies:?}");
}

/// The slot for which a reader waits is chosen, but with the entry of another leader.
#[test]
fn a_reader_is_not_answered_when_another_leads_in_the_slot_that_confirms_it() {
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
    let settings = Settings::default();
    let replica = |id| Replica::<Versions>::new(id, group.clone(), &settings, Mutated::NONE);
    let mut net = testing::Net::<Replica<Versions>>::new(1, 3, replica);
    (net.now, net.durable_at_once) = (1, true);
    net.set_clock_us(NOW_US + 1);
    net.start();
    net.pass(Duration::from_secs(3));
    let first = NodeId(0);
    assert_eq!(net.nodes[first].gauge("leads"), 1);
    let us = net.now;
    let read = |number| {
        let keys = vec![Key::from("x")];
        let request = Request::Snapshot { number, as_of: AsOf::Time(txn(us)), keys };
        (CLIENT, first, Message::Request(request))
    };
    let answers = |(.., message): &Envelope<Message>| {
        matches!(message, Message::Reply(Reply::Snapshot { .. }))
    };
    net.deliver(read(7));
    net.pass(Duration::from_millis(10));
    assert!(net.delivered.iter().any(answers), "while it leads");
    net.network.clear();
    net.delivered.clear();
    net.deliver(read(8));
    let slot = net.nodes[first].gauge("applied_slots");
    let ballot = Ballot { round: 99, member: 1 };
    let accept =
        log::Message::Accept { ballot, first: slot, chosen: slot + 1, entries: [None].into() };
    net.deliver((NodeId(1), first, Message::Log(accept)));
    assert_eq!(net.nodes[first].gauge("applied_slots"), slot + 1);
    assert!(!net.network.iter().any(answers) && !net.delivered.iter().any(answers));
}

#[test]
fn who_wants_to_move_a_part_is_told_that_its_transaction_has_ended() {
    let mut bench = Bench::<Queues<false>>::new();
    assert!(matches!(bench.write(1)[..], [Reply::Executed(_)]));
    assert_eq!(bench.write(2), [], "it waits for the first");
    let (to, mover) = (stamp(2 + Stamp::LANES, 2), NodeId::replica(1, 0));
    let request = Message::Request(Request::Move { txn: txn(2), to });
    assert_eq!(bench.act(|replica, cx| replica.on_message(mover, request, cx)), []);
    let end = Message::Request(Request::End { txn: txn(2), decision: Decision::Abort });
    bench.0.act(0, |replica, cx| replica.on_message(CLIENT, end, cx));
    let is_told = |(_, to, message): &Envelope<Message>| {
        *to == mover && matches!(message, Message::Reply(Reply::Decided { .. }))
    };
    assert!(bench.network.iter().any(is_told), "{:?}", bench.network);
}
