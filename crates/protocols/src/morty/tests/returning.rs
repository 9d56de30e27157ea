//! Replicas that come back: what they remember, and what they get from others.

use super::by_hand::{contents, decide, finalize, prepare, version};
use super::world::{SECOND, World, digest, n, run_asked_for, votes};
use super::*;
use crate::morty::message::Settlement;

#[test]
fn an_acceptance_whose_vote_is_trimmed_is_no_abort() {
    let mut world = World::new(1);
    let (client, id) = (coordinator_id(0), n(0));
    world.act(id, Replica::on_start);
    let (txn, other) = (version(SECOND, 0), version(20 * SECOND, 1));
    let put = contents(&[], &[("k", "a")]);
    world.tell(client, id, prepare(txn, 0, &put));
    world.now = 2 * SECOND;
    world.timer(id, ReplicaTimer::Truncation);
    // It goes the slow way, and something that is younger keeps the rest of the log.
    world.tell(client, id, finalize(txn, 0, Proposal::Commit));
    world.tell(client, id, decide(txn, 0, Decision::Commit, &put));
    world.now = 20 * SECOND + 1;
    world.commit(&[0], other, &contents(&[], &[("l", "a")]));
    world.timer(id, ReplicaTimer::Truncation);
    world.now = 55 * SECOND;
    world.settle_below(id, 40 * SECOND, digest(&[txn, other]));
    for restarts in [false, true] {
        if restarts {
            world.restart(id);
            world.network.clear();
        }
        let said = world.tell(client, id, Message::Request(Request::Inquire { version: txn }));
        let forgotten =
            Message::Status(Status::Settled { version: txn, settlement: Settlement::Forgotten });
        assert_eq!(said, [(id, client, forgotten)], "it has committed");
    }
}

#[test]
fn a_stopped_replica_votes_on_nothing_below_after_a_restart() {
    let mut world = World::new(1);
    let client = coordinator_id(0);
    world.now = 20 * SECOND;
    world.timer(n(0), ReplicaTimer::Truncation);
    let stopped = |e: &Envelope| match e.2 {
        Message::Truncating(Truncating::Truncate { ballot, .. }) => Some(ballot.upto),
        _ => None,
    };
    let upto = world.network.iter().find_map(stopped).expect("it has told what it has");
    for restarts in [false, true] {
        if restarts {
            world.restart(n(0));
        }
        let what = contents(&[], &[("k", "a")]);
        let said = world.tell(client, n(0), prepare(version(upto - 1, 0), 0, &what));
        assert!(
            matches!(&said[..], [(.., Message::Reply(Reply::Refused { .. }))]),
            "{restarts}: {said:?}"
        );
    }
}

#[test]
fn what_is_known_in_part_is_handed_on_as_known_in_part() {
    let mut world = World::new(1);
    let client = coordinator_id(0);
    let (first, second) = (version(SECOND, 0), version(1_500_000, 0));
    let both = [contents(&[], &[("k", "a")]), contents(&[], &[("k", "b")])];
    // n0 has both, and forgets the first value of k.
    for (txn, what) in [first, second].into_iter().zip(&both) {
        world.tell(client, n(0), decide(txn, 0, Decision::Commit, what));
    }
    world.now = 30 * SECOND;
    world.settle_below(n(0), 16 * SECOND, digest(&[first, second]));
    // n1 fetches from n0, n2 from n1; and again once that has restarted.
    let mut readable_from = Vec::new();
    for (to, from) in [(1, 0), (2, 1), (2, 1)] {
        let said = world.tell(
            n(to),
            n(from),
            Message::CatchingUp(CatchingUp::Fetch { versions: vec![first, second] }),
        );
        let [(_, _, fetched)] = &said[..] else { panic!("{said:?}") };
        let Message::CatchingUp(CatchingUp::Fetched { readable_from: told, .. }) = fetched else {
            panic!("{fetched:?}")
        };
        readable_from.push(*told);
        world.tell(n(from), n(to), fetched.clone());
        world.restart(n(1));
        world.network.clear();
    }
    assert_eq!(readable_from, [16 * SECOND; 3]);
}

#[test]
fn an_answer_to_an_earlier_list_is_not_taken_for_one_to_this() {
    let mut world = World::new(1);
    world.commit(&[0], version(SECOND, 0), &contents(&[], &[("k", "a")]));
    world.network.clear();
    world.restart(n(0));
    let run = run_asked_for(&world.network);
    world.network.clear();
    let list = |run| {
        Message::CatchingUp(CatchingUp::Committed {
            since: Version::INITIAL,
            run,
            versions: Vec::new(),
            more: false,
            reaches: true,
            behind: false,
        })
    };
    let reads = |world: &mut World| {
        let get =
            Message::Request(Request::Get { version: version(world.now, 9), key: Key::from("k") });
        world.tell(coordinator_id(9), n(0), get).len()
    };
    world.tell(n(1), n(0), list(run ^ 1));
    assert_eq!(reads(&mut world), 0, "it is still behind");
    world.tell(n(1), n(0), list(run));
    assert_eq!(reads(&mut world), 1);
}

#[test]
fn what_a_peer_forgets_after_listing_it_is_not_fetched_for_ever() {
    let mut world = World::new(1);
    let txn = version(14 * SECOND, 0);
    world.now = 15 * SECOND;
    world.commit(&[0], version(SECOND, 1), &contents(&[], &[("l", "a")]));
    world.commit(&[1, 2], txn, &contents(&[], &[("k", "a")]));
    world.restart(n(0));
    world.settle(|e| {
        !matches!(e.2, Message::CatchingUp(CatchingUp::Fetch { .. })) && !e.1.is_coordinator()
    });
    let fetch = world.take(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Fetch { .. })));
    assert_eq!(fetch.len(), 1);
    world.now = 100 * SECOND;
    for member in [1, 2] {
        world.settle_below(n(member), 80 * SECOND, digest(&[txn]));
    }
    world.network = fetch.into();
    for _ in 0..50 {
        let these = world.take(|e| !e.1.is_coordinator());
        these.into_iter().for_each(|envelope| world.deliver(envelope));
    }
    assert!(world.network.is_empty(), "{:?}", world.network);
    assert_eq!(world.read(n(0), "k"), Some(Value::from("a")));
}

/// A key was deleted, written and deleted again, with many other transactions in between. What n0 has listed and
/// not fetched yet, the last delete, is behind the others' horizon, and they have begun to forget.
fn half_forgotten() -> (World, Vec<Envelope>) {
    let mut world = World::new(1);
    let at = |at: u64| version(10 * SECOND + at, 0);
    let [delete, other, put] =
        [("k", ""), ("l", "a"), ("k", "a")].map(|write| contents(&[], &[write]));
    world.now = 15 * SECOND;
    world.commit(&[0, 1, 2], at(0), &delete);
    for i in 1..=200 {
        world.commit(&[0, 1, 2], at(i), &other);
    }
    world.commit(&[0, 1, 2], at(201), &put);
    world.commit(&[1, 2], at(202), &delete);
    world.restart(n(0));
    world.settle(|e| {
        !matches!(e.2, Message::CatchingUp(CatchingUp::Fetch { .. })) && !e.1.is_coordinator()
    });
    let fetch = world.take(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Fetch { .. })));
    world.now = 100 * SECOND;
    let merged = digest(&(0..=202).map(at).collect::<Vec<_>>());
    for id in [n(1), n(2)] {
        world.tell(
            n(0),
            id,
            Message::Truncating(Truncating::TruncationFinished { upto: 80 * SECOND, merged }),
        );
        for is_there in [true, false] {
            let mut left = 50;
            while world.nodes[&id].store.get(b"k").is_some() != is_there {
                world.timer(id, ReplicaTimer::Settle);
                left -= 1;
                assert!(left > 0, "the delete is put into the store, and forgotten");
            }
        }
    }
    world.network.clear();
    (world, fetch)
}

#[test]
fn a_transaction_whose_delete_may_be_forgotten_is_not_handed_on() {
    let (mut world, fetch) = half_forgotten();
    assert_eq!(fetch.len(), 1);
    world.network = fetch.into();
    for _ in 0..50 {
        let these = world.take(|e| !e.1.is_coordinator());
        these.into_iter().for_each(|envelope| world.deliver(envelope));
    }
    assert_eq!(world.read(n(0), "k"), None);
}

#[test]
fn what_a_voter_has_read_is_kept_when_it_fetches_the_commit() {
    let at = |at: u64, client| version(900_000 + at, client);
    let client = coordinator_id(0);
    let in_the_way = contents(&[], &[("x", "in the way")]);
    // Somebody else's write is in the way of some voters.
    for (obstacle, vote) in [(None, Vote::Commit), (Some(at(5, 3)), Vote::AbandonTentative)] {
        let mut world = World::new(1);
        if let Some(obstacle) = obstacle {
            world.tell(client, n(0), prepare(obstacle, 0, &in_the_way));
        }
        let (first, reader) = (at(0, 9), at(10, 0));
        world.commit(&[0], first, &contents(&[], &[("x", "first")]));
        let reads = contents(&[("x", first)], &[("y", "1")]);
        assert_eq!(votes(&world.tell(client, n(0), prepare(reader, 0, &reads))), [vote]);
        // It hears of the decision from a peer, which leaves the reads out.
        let fetched = Message::CatchingUp(CatchingUp::Fetched {
            executions: vec![(reader, 0, contents(&[], &[("y", "1")]))],
            readable_from: 0,
        });
        world.tell(n(1), n(0), fetched);
        for restarts in [false, true] {
            if restarts {
                world.restart(n(0));
                let run = run_asked_for(&world.network);
                let (since, versions) = (Version::INITIAL, Vec::new());
                let list = Message::CatchingUp(CatchingUp::Committed {
                    since,
                    run,
                    versions,
                    more: false,
                    reaches: true,
                    behind: false,
                });
                world.tell(n(1), n(0), list);
            }
            let late = contents(&[], &[("x", "late")]);
            let writer = at(1, 1 + u64::from(restarts));
            let cast = votes(&world.tell(client, n(0), prepare(writer, 0, &late)));
            assert_eq!(cast, [Vote::AbandonFinal], "{vote:?}, restarted: {restarts}");
        }
    }
}
