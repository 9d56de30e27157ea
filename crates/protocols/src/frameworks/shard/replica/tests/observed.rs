//! Which ends of transactions replicas observe.

use serried_actor::Observation;

use super::trio::Trio;
use super::*;

/// How often each replica has observed that the transaction of a client was aborted.
fn aborted<C: Control>(trio: &Trio<C>, after_us: u64) -> [usize; 3] {
    let aborted = Observation::Aborted { version: txn(after_us) };
    [0, 1, 2].map(|member: usize| {
        let observed = trio.nodes[member].observed.iter().flatten();
        observed.filter(|observation| **observation == aborted).count()
    })
}

fn watched<C: Control>() -> Trio<C> {
    Trio::started(Mutated::NONE, |net| {
        net.ids().into_iter().for_each(|id| net.nodes[id].observed = Some(Vec::new()));
    })
}

fn abort(after_us: u64) -> Request {
    Request::End { txn: txn(after_us), decision: Decision::Abort }
}

#[test]
fn only_the_leader_observes_that_a_transaction_is_aborted_and_once() {
    let mut trio = watched::<Queues<false>>();
    let us = trio.after_us();
    let last = |after_us, participants: &[u16], reads: &[&str], writes: &[&str]| {
        Request::Shot(shot(txn(after_us), reads, writes, participants))
    };
    trio.ask(0, last(us, &[1, 0], &[], &["x"]));
    assert_eq!(trio.ask(0, last(us + 1, &[0], &["x"], &["y"])), [], "it waits for the first");
    assert_eq!(trio.ask(0, last(us + 2, &[1, 0], &[], &["x"])), []);
    // The second has a part. What it has read is aborted, and it can't read again.
    for _ in 0..2 {
        trio.ask(0, abort(us));
    }
    trio.pass(Duration::from_millis(100));
    assert_eq!(aborted(&trio, us), [1, 0, 0], "its client has aborted it");
    assert_eq!(aborted(&trio, us + 1), [1, 0, 0], "it is refused");
    // One without a part.
    trio.ask(0, Request::Shot(shot(txn(us + 3), &["z"], &[], &[])));
    for _ in 0..2 {
        trio.ask(0, abort(us + 3));
    }
    assert_eq!(aborted(&trio, us + 3), [1, 0, 0]);
}

#[test]
fn a_transaction_that_was_never_known_is_not_observed_as_aborted() {
    let mut trio = watched::<Queues<false>>();
    let us = trio.after_us();
    let ahead_us = us + Settings::default().clock_bound_ms * 1000 + 1_000_000;
    for request in [
        abort(us),
        Request::Inspect { txn: txn(us + 1) },
        Request::Inspect { txn: txn(ahead_us) },
        Request::Shot(shot(txn(ahead_us + 1), &[], &["x"], &[0])),
    ] {
        trio.ask(0, request);
    }
    trio.pass(Duration::from_millis(100));
    for after_us in [us, us + 1, ahead_us, ahead_us + 1] {
        assert_eq!(aborted(&trio, after_us), [0, 0, 0]);
    }
}

#[test]
fn every_replica_observes_a_commit_and_says_whether_it_leads() {
    let mut trio = watched::<Queues<false>>();
    let us = trio.after_us();
    trio.ask(0, Request::Shot(shot(txn(us), &[], &["x"], &[0, 1])));
    trio.commit(0, us);
    trio.pass(Duration::from_millis(100));
    let leads = [0, 1, 2].map(|member: usize| {
        let observed = trio.nodes[member].observed.iter().flatten();
        let leads = observed.filter_map(|observation| match observation {
            Observation::Committed { leads, .. } => Some(*leads),
            _ => None,
        });
        leads.collect::<Vec<_>>()
    });
    assert_eq!(leads, [[true], [false], [false]]);
}
