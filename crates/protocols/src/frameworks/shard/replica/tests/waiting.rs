//! What waits for clocks: the ends of transactions, and reads at times that are still to come.

use super::*;
use crate::spanner::Timestamping;

/// How far the clock may be off, and how far a transaction may begin ahead of it, in microseconds.
fn bounds() -> (u64, u64) {
    let Settings { uncertainty_us, clock_bound_ms, .. } = Settings::default();
    (uncertainty_us, clock_bound_ms * 1000 + 3 * uncertainty_us)
}

/// The clock shows a later time, and the replica looks at it.
fn turn_to(bench: &mut Bench<Timestamping>, after_us: u64) -> Vec<Reply> {
    bench.set_clock_us(NOW_US + after_us);
    bench.act(|replica, cx| replica.on_timer(Timer::Clock, cx))
}

#[test]
fn nobody_learns_that_a_transaction_has_committed_before_its_moment_is_over() {
    let mut bench = Bench::<Timestamping>::new();
    let write = Write { key: Key::from("x"), value: Some(Value::from("new")) };
    let shot = |number, writes, participants| {
        Request::Shot(Shot { number, writes, participants, ..super::shot(txn(1), &[], &[], &[]) })
    };
    bench.ask(shot(1, vec![write], None));
    let last = || shot(2, Vec::new(), Some(Arc::new([0])));
    for _ in 0..2 {
        assert_eq!(bench.ask(last()), [], "its client");
        let other = NodeId(CLIENT.0 + 1);
        let resolve = Message::Request(Request::Resolve { txn: txn(1) });
        let told = bench.act(|replica, cx| replica.on_message(other, resolve, cx));
        assert_eq!(told, [], "another one");
    }
    let (uncertain_us, _) = bounds();
    assert_eq!(turn_to(&mut bench, 2 * uncertain_us), [], "its moment is as late");
    let told = turn_to(&mut bench, 2 * uncertain_us + 2 * Stamp::LANES);
    let is_commit = |reply: &Reply| matches!(reply, Reply::Decided { decision: Decision::Commit(_), txn: of } if *of == txn(1));
    assert!(told.len() >= 2 && told.iter().all(is_commit), "{told:?}");
}

#[test]
fn a_read_ahead_of_the_clock_waits_for_it_and_is_not_admitted_before() {
    let mut bench = Bench::<Timestamping>::new();
    let (uncertain_us, bound_us) = bounds();
    let furthest_us = uncertain_us + bound_us;
    let before = bench.window();
    assert_eq!(bench.glance(furthest_us), []);
    assert_eq!(bench.window(), before);
    let told = bench.glance(furthest_us + 1);
    let is_refused =
        matches!(told[..], [Reply::Unread { number: 7, reason: Refusal::ClockSkew { .. } }]);
    assert!(is_refused, "{told:?}");
    // It can be answered as soon as it may be that time, for it has no writers to wait for.
    let may_be_us = furthest_us - uncertain_us;
    assert_eq!(turn_to(&mut bench, may_be_us), []);
    let told = turn_to(&mut bench, may_be_us + 1);
    assert_eq!(found(&told), Some(Version::INITIAL), "{told:?}");
    assert!(bench.window().to_us < NOW_US + furthest_us + bound_us / 2);
}

/// Its own clock may be behind, and nobody else says what time it is.
#[test]
fn a_leader_that_knows_too_few_clocks_refuses_no_read_as_too_far_ahead() {
    let (uncertain_us, bound_us) = bounds();
    for (knows, refusals) in [(true, 1), (false, 0)] {
        let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
        let settings = Settings::default();
        let replica =
            |id| Replica::<Timestamping>::new(id, group.clone(), &settings, Mutated::NONE);
        let mut net = testing::Net::<Replica<Timestamping>>::new(1, 3, replica);
        net.set_clock_us(NOW_US);
        net.start();
        for _ in 0..200 {
            net.settle_where(|(.., message)| knows || !matches!(message, Message::Time(_)));
            net.network.clear();
            net.wait(Duration::from_millis(20));
            net.ids().into_iter().for_each(|id| net.fire_due(id));
        }
        let leader = net.ids().into_iter().find(|id| net.gauge(*id, "leads") > 0).unwrap();
        let at = Version::at(net.clock_us() + uncertain_us + bound_us + 100_000);
        let (number, keys) = (7, vec![Key::from("x")]);
        let read = Request::Snapshot { number, as_of: AsOf::Time(at), keys };
        let told = net.answers(CLIENT, leader, Message::Request(read));
        let is_refusal = |(.., message): &&(NodeId, NodeId, Message)| {
            matches!(
                message,
                Message::Reply(Reply::Unread { reason: Refusal::ClockSkew { .. }, .. })
            )
        };
        assert_eq!(told.iter().filter(is_refusal).count(), refusals, "{knows}: {told:?}");
    }
}
