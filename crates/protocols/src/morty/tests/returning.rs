//! Replicas that come back: what they have missed, what they must not undo, and what they hand on.

use super::by_hand::{contents, decide, finalize, prepare, version};
use super::world::{World, votes};
use super::*;
use crate::morty::Digest;
use crate::morty::message::{Holds, Settlement};

fn n(member: usize) -> NodeId {
    NodeId::replica(0, member)
}

/// The digest of first executions.
fn digest(of: &[Version]) -> Digest {
    let mut digest = Digest::default();
    of.iter().for_each(|version| digest.add(*version, 0));
    digest
}

const SECOND: u64 = 1_000_000;

#[test]
fn who_replaces_a_lost_disk_votes_on_nothing_before_it_knows_what_may_have_committed_without_it() {
    let mut net = morty(2);
    net.now = SECOND;
    // n2 is not reached by the first: n0 and n1 commit it.
    net.held.insert(n(2));
    net.get(0, "x");
    net.settle();
    net.commit(0, &["x"], &[("x", "first")]);
    net.settle();
    net.fire(0, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(0), ["value x = absent", "committed"]);
    // What is under way to n2 is lost, and so is the first client.
    net.network.clear();
    net.held = NodeSet::EMPTY;
    // n1's disk is lost, and n0 is slow from now on: n1 gets nothing but what n2 has.
    net.held.insert(n(0));
    net.replace(1);
    net.settle();
    net.now += 5 * SECOND;
    net.get(1, "x");
    net.settle();
    // n0 does not answer, nor does n1.
    for _ in 0..2 {
        net.fire(1, |timer| matches!(timer, Timer::Repeat(_)));
        net.settle();
    }
    assert_eq!(net.told(1), ["value x = absent"]);
    net.commit(1, &["x"], &[("x", "second")]);
    net.settle();
    for _ in 0..2 {
        net.fire(1, |timer| matches!(timer, Timer::FastPath(_) | Timer::Repeat(_)));
        net.settle();
    }
    assert_eq!(net.told(1), [] as [&str; 0], "both have found x absent");
    assert_eq!(net.gauge(1, "catching_up"), 1);
    // Once n0 can be asked, n1 has all that is settled above what its predecessor may have voted on.
    net.held = NodeSet::EMPTY;
    net.start();
    net.pass(Duration::from_secs(40));
    assert_eq!(net.gauge(1, "catching_up"), 0);
    net.network.clear();
    let get = Message::Get { version: version(net.now, 5), key: Key::from("x") };
    let answers = net.tell(coordinator_id(5), 1, get);
    let [(_, answer)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(name(answer), "GetReply x = first");
}

#[test]
fn the_log_does_not_bring_back_what_was_deleted_settled_and_forgotten() {
    let mut world = World::new(1);
    world.act(n(0), Replica::on_start);
    // The older takes longer, and something younger keeps its records in the log.
    let (older, younger, other) =
        (version(SECOND, 0), version(1_500_000, 1), version(3_000_000, 2));
    world.now = 1_600_000;
    world.commit(&[0], younger, &contents(&[], &[("k", "")]));
    world.now = 2 * SECOND;
    world.timer(n(0), ReplicaTimer::Truncation);
    world.now = 3 * SECOND;
    world.commit(&[0], older, &contents(&[], &[("k", "a")]));
    world.commit(&[0], other, &contents(&[], &[("other", "a")]));
    for at in [4, 6, 8] {
        world.now = at * SECOND;
        world.timer(n(0), ReplicaTimer::Truncation);
    }
    assert_eq!(world.read(n(0), "k"), None);
    // Everything below 32 s is settled, and outcomes below 2 s are forgotten.
    world.now = 55 * SECOND;
    world.settle_below(n(0), 32 * SECOND, digest(&[older, younger, other]));
    let logged = |world: &World, version: Version| {
        let of = |record: &Record| matches!(record, Record::Committed { version: v, .. } if *v == version);
        world.nodes[&n(0)].log.iter().any(of)
    };
    assert_eq!([older, younger].map(|version| logged(&world, version)), [true, false]);
    assert_eq!(world.read(n(0), "k"), None);
    world.restart(n(0));
    world.settle(|e| !e.1.is_coordinator());
    assert_eq!(world.read(n(0), "k"), None, "it was deleted long ago");
}

#[test]
fn a_key_that_was_deleted_while_a_replica_was_away_stays_deleted_when_it_is_back() {
    // n0 has put what it had into its store before, or has it in its log alone.
    for stored in [false, true] {
        let mut world = World::new(1);
        let client = coordinator_id(0);
        let (first, second) = (version(SECOND, 0), version(14 * SECOND, 0));
        world.commit(&[0, 1, 2], first, &contents(&[], &[("k", "a")]));
        if stored {
            world.now = 13 * SECOND;
            world.settle_below(n(0), 12 * SECOND, digest(&[first]));
            assert!(world.nodes[&n(0)].store.get(b"k").is_some());
        }
        // n0 is away.
        world.now = 15 * SECOND;
        world.commit(&[1, 2], second, &contents(&[], &[("k", "")]));
        world.now = 100 * SECOND;
        for member in [1, 2] {
            world.settle_below(n(member), 80 * SECOND, digest(&[first, second]));
            assert_eq!(world.nodes[&n(member)].store.get(b"k"), None, "forgotten");
        }
        world.restart(n(0));
        // Before it knows that it was away for long it does not stand in the way of who finds nothing.
        let reads = contents(&[("k", Version::INITIAL)], &[("before", "1")]);
        let cast = votes(&world.tell(client, n(0), prepare(version(world.now, 4), 0, &reads)));
        assert!(!cast.contains(&Vote::AbandonFinal), "{cast:?}");
        world.settle(|e| !e.1.is_coordinator());
        for _ in 0..50 {
            world.timer(n(0), ReplicaTimer::Settle);
        }
        for restarts in [false, true] {
            if restarts {
                world.restart(n(0));
                world.settle(|e| !e.1.is_coordinator());
            }
            for member in 0..3 {
                assert_eq!(world.read(n(member), "k"), None, "n{member}");
            }
            assert_eq!(world.nodes[&n(0)].store.get(b"k"), None);
            let reads = contents(&[("k", Version::INITIAL)], &[("after", "1")]);
            let reader = version(world.now, 5 + u64::from(restarts));
            let cast: Vec<_> = (0..3)
                .flat_map(|member| {
                    votes(&world.tell(client, n(member), prepare(reader, 0, &reads)))
                })
                .collect();
            assert!(!cast.contains(&Vote::AbandonFinal), "{cast:?}");
        }
    }
}

#[test]
fn a_transaction_whose_vote_is_trimmed_and_whose_acceptance_is_not_has_not_aborted() {
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
        let said = world.tell(client, id, Message::Inquire { version: txn });
        let forgotten = Message::Settled { version: txn, settlement: Settlement::Forgotten };
        assert_eq!(said, [(id, client, forgotten)], "it has committed");
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
        let said = world.tell(n(to), n(from), Message::Fetch { versions: vec![first, second] });
        let [(_, _, fetched)] = &said[..] else { panic!("{said:?}") };
        let Message::Fetched { readable_from: told, .. } = fetched else { panic!("{fetched:?}") };
        readable_from.push(*told);
        world.tell(n(from), n(to), fetched.clone());
        world.restart(n(1));
        world.network.clear();
    }
    assert_eq!(readable_from, [16 * SECOND; 3]);
}

#[test]
fn who_finds_a_key_deleted_commits_though_some_have_forgotten_the_delete_and_some_have_not() {
    let mut world = World::new(1);
    let txn = version(9 * SECOND, 0);
    world.now = 9 * SECOND + 1;
    world.commit(&[0, 1, 2], txn, &contents(&[], &[("k", "")]));
    world.now = 52 * SECOND;
    // n0 is a truncation behind: outcomes are kept from 8 s on there, and from 10 s on elsewhere.
    for (member, upto) in [(0, 38), (1, 40), (2, 40)] {
        world.settle_below(n(member), upto * SECOND, digest(&[txn]));
    }
    let held = [0, 1, 2].map(|member| world.nodes[&n(member)].store.get(b"k").is_some());
    assert_eq!(held, [true, false, false]);
    for from in 0..3 {
        let client = coordinator_id(5);
        let reader = version(world.now, 5);
        let get = Message::Get { version: reader, key: Key::from("k") };
        let said = world.tell(client, n(from), get);
        let [(_, _, Message::GetReply { write, value: None, .. })] = &said[..] else {
            panic!("{said:?}")
        };
        let reads = contents(&[("k", write.version)], &[]);
        for member in 0..3 {
            let cast = votes(&world.tell(client, n(member), prepare(reader, 0, &reads)));
            assert_eq!(cast, [Vote::Commit], "of n{member} on what n{from} has told");
            world.tell(client, n(member), decide(reader, 0, Decision::Commit, &reads));
        }
        // It was read by somebody who is younger, whatever it was that was found.
        let writer = version(world.now - 10, 6 + from as u64);
        let blind = contents(&[], &[("k", "late")]);
        for member in 0..3 {
            let cast = votes(&world.tell(client, n(member), prepare(writer, 0, &blind)));
            assert_eq!(cast, [Vote::AbandonFinal], "of n{member}");
            world.tell(client, n(member), decide(writer, 0, Decision::Abort, &blind));
        }
    }
}

#[test]
fn who_finds_a_key_absent_that_somebody_has_written_since_does_not_commit() {
    let mut world = World::new(1);
    let client = coordinator_id(0);
    let (deleted, written) = (version(9 * SECOND, 0), version(9 * SECOND + 10, 1));
    world.now = 9 * SECOND + 20;
    world.commit(&[0], deleted, &contents(&[], &[("k", "")]));
    let reads = contents(&[("k", Version::INITIAL)], &[]);
    let writes = contents(&[], &[("k", "b")]);
    world.tell(client, n(0), prepare(written, 0, &writes));
    let reader = version(world.now, 5);
    let cast = votes(&world.tell(client, n(0), prepare(reader, 0, &reads)));
    assert_eq!(cast, [Vote::AbandonTentative]);
    world.tell(client, n(0), decide(written, 0, Decision::Commit, &writes));
    let reader = version(world.now, 6);
    let cast = votes(&world.tell(client, n(0), prepare(reader, 0, &reads)));
    assert_eq!(cast, [Vote::AbandonFinal]);
}

/// What `n0` tells of a list or a copy that it asks for, and what it is called.
fn run_asked_for(asked: &[Envelope]) -> u64 {
    let run = asked.iter().rev().find_map(|(from, _, message)| match message {
        Message::GetCommitted { run, .. } | Message::Scan { run, .. } if *from == n(0) => {
            Some(*run)
        }
        _ => None,
    });
    run.unwrap_or_else(|| panic!("{asked:?}"))
}

#[test]
fn a_delete_is_kept_for_as_long_as_others_may_be_told_of_it() {
    let mut world = World::new(1);
    let (zeroth, first) = (version(900_000, 0), version(SECOND, 0));
    let second = version(25 * SECOND, 0);
    world.commit(&[0, 1, 2], zeroth, &contents(&[], &[("k", "")]));
    world.commit(&[0, 1, 2], first, &contents(&[], &[("k", "a")]));
    world.now = 24 * SECOND;
    world.settle_below(n(0), 22 * SECOND, digest(&[zeroth, first]));
    // n0 is away, for less than outcomes are kept: from 20 s on they are.
    world.now = 26 * SECOND;
    world.commit(&[1, 2], second, &contents(&[], &[("k", "")]));
    world.now = 60 * SECOND;
    for member in [1, 2] {
        world.settle_below(n(member), 50 * SECOND, digest(&[zeroth, first, second]));
    }
    world.restart(n(0));
    world.settle(|e| !e.1.is_coordinator());
    assert_eq!(world.read(n(0), "k"), None);
}

#[test]
fn what_commits_while_a_store_is_copied_is_not_overwritten_by_the_copy() {
    let mut world = World::new(1);
    let (old, new) = (version(SECOND, 0), version(90 * SECOND, 1));
    world.commit(&[0, 1, 2], old, &contents(&[], &[("k", "old"), ("l", "old")]));
    world.now = 100 * SECOND;
    for member in [1, 2] {
        world.settle_below(n(member), 80 * SECOND, digest(&[old]));
    }
    world.restart(n(0));
    // n0 asks for the copy, and it is under way when the other commits, of which the peer has not heard.
    world.settle(|e| !matches!(e.2, Message::Scanned { .. }) && !e.1.is_coordinator());
    let late = world.take(|e| matches!(e.2, Message::Scanned { .. }));
    assert_eq!(late.len(), 1);
    world.commit(&[0], new, &contents(&[], &[("k", "new")]));
    late.into_iter().for_each(|envelope| world.deliver(envelope));
    world.settle(|e| !e.1.is_coordinator());
    for restarts in [false, true] {
        if restarts {
            world.restart(n(0));
            world.settle(|e| !e.1.is_coordinator());
        }
        let found = ["k", "l"].map(|key| world.read(n(0), key));
        assert_eq!(found, ["new", "old"].map(|value| Some(Value::from(value))));
    }
}

#[test]
fn a_copy_begins_anew_when_its_peer_is_not_what_it_was() {
    let mut world = World::new(1);
    let old = version(SECOND, 0);
    world.commit(&[0, 1, 2], old, &contents(&[], &[("k", "old"), ("l", "old")]));
    world.now = 100 * SECOND;
    for member in [0, 1, 2] {
        world.settle_below(n(member), 10 * SECOND, digest(&[old]));
    }
    for member in [1, 2] {
        world.settle_below(n(member), 80 * SECOND, digest(&[old]));
    }
    world.restart(n(0));
    world.settle(|e| !matches!(e.2, Message::Scanned { .. }) && !e.1.is_coordinator());
    let scanned = world.take(|e| matches!(e.2, Message::Scanned { .. }));
    let [(peer, _, Message::Scanned { after: None, since, run, entries, holds, .. })] =
        &scanned[..]
    else {
        panic!("{scanned:?}")
    };
    // Its first page ends before `l`. Then it is replaced by one that has nothing.
    let page = |after: Option<Key>, entries: &[_], next, watermark, run| Message::Scanned {
        after,
        since: *since,
        run,
        entries: entries.to_vec(),
        next,
        holds: Holds { watermark, ..*holds },
    };
    let end = Some(Key::from("k"));
    let first = page(None, &entries[..1], end.clone(), holds.watermark, *run);
    let asked = world.tell(*peer, n(0), first);
    assert_eq!(run_asked_for(&asked), *run);
    let empty = page(end.clone(), &[], None, 0, *run);
    let asked = world.tell(*peer, n(0), empty);
    assert_ne!(run_asked_for(&asked), *run);
    assert!(asked.iter().all(|(_, to, _)| to != peer), "{asked:?}");
    // Nor is it taken from what comes late of the first copy.
    let late = page(end, &[], None, holds.watermark, *run);
    assert_eq!(world.tell(*peer, n(0), late), []);
    world.network = asked;
    world.settle(|e| !e.1.is_coordinator());
    assert_eq!(world.read(n(0), "l"), Some(Value::from("old")));
}

#[test]
fn who_copies_answers_no_reads_until_the_copy_is_complete() {
    let mut world = World::new(1);
    let txn = version(20 * SECOND, 0);
    world.now = 21 * SECOND;
    world.commit(&[1, 2], txn, &contents(&[], &[("k", "a")]));
    world.now = 100 * SECOND;
    let upto = 80 * SECOND;
    for member in [1, 2] {
        world.settle_below(n(member), upto, digest(&[txn]));
    }
    // n0 has been there all the time, and has heard of nothing.
    let answers = |world: &mut World| {
        let get = Message::Get { version: version(world.now, 9), key: Key::from("k") };
        world.tell(coordinator_id(9), n(0), get).len()
    };
    assert_eq!(answers(&mut world), 1);
    let asked =
        world.tell(n(1), n(0), Message::TruncationFinished { upto, merged: digest(&[txn]) });
    world.network = asked;
    world.settle(|e| !matches!(e.2, Message::Scanned { .. }) && !e.1.is_coordinator());
    assert!(world.network.iter().any(|e| matches!(e.2, Message::Scanned { .. })));
    assert_eq!(answers(&mut world), 0);
    world.settle(|e| !e.1.is_coordinator());
    assert_eq!(world.read(n(0), "k"), Some(Value::from("a")));
}

#[test]
fn an_answer_to_an_earlier_list_is_not_taken_for_one_to_this() {
    let mut world = World::new(1);
    world.commit(&[0], version(SECOND, 0), &contents(&[], &[("k", "a")]));
    world.network.clear();
    world.restart(n(0));
    let run = run_asked_for(&world.network);
    world.network.clear();
    let list = |run| Message::Committed {
        since: Version::INITIAL,
        run,
        versions: Vec::new(),
        more: false,
        reaches: true,
    };
    let reads = |world: &mut World| {
        let get = Message::Get { version: version(world.now, 9), key: Key::from("k") };
        world.tell(coordinator_id(9), n(0), get).len()
    };
    world.tell(n(1), n(0), list(run ^ 1));
    assert_eq!(reads(&mut world), 0, "it is still behind");
    world.tell(n(1), n(0), list(run));
    assert_eq!(reads(&mut world), 1);
}

#[test]
fn who_has_listed_what_it_forgets_before_it_is_fetched_is_not_asked_for_it_for_ever() {
    let mut world = World::new(1);
    let txn = version(14 * SECOND, 0);
    world.now = 15 * SECOND;
    world.commit(&[0], version(SECOND, 1), &contents(&[], &[("l", "a")]));
    world.commit(&[1, 2], txn, &contents(&[], &[("k", "a")]));
    world.restart(n(0));
    world.settle(|e| !matches!(e.2, Message::Fetch { .. }) && !e.1.is_coordinator());
    let fetch = world.take(|e| matches!(e.2, Message::Fetch { .. }));
    assert_eq!(fetch.len(), 1);
    world.now = 100 * SECOND;
    for member in [1, 2] {
        world.settle_below(n(member), 80 * SECOND, digest(&[txn]));
    }
    world.network = fetch;
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
    world.settle(|e| !matches!(e.2, Message::Fetch { .. }) && !e.1.is_coordinator());
    let fetch = world.take(|e| matches!(e.2, Message::Fetch { .. }));
    world.now = 100 * SECOND;
    let merged = digest(&(0..=202).map(at).collect::<Vec<_>>());
    for id in [n(1), n(2)] {
        world.tell(n(0), id, Message::TruncationFinished { upto: 80 * SECOND, merged });
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
    world.network = fetch;
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
        let reader = at(10, 0);
        let reads = contents(&[("x", Version::INITIAL)], &[("y", "1")]);
        assert_eq!(votes(&world.tell(client, n(0), prepare(reader, 0, &reads))), [vote]);
        // It hears of the decision from a peer, which leaves the reads out.
        let fetched = Message::Fetched {
            executions: vec![(reader, 0, contents(&[], &[("y", "1")]))],
            readable_from: 0,
        };
        world.tell(n(1), n(0), fetched);
        for restarts in [false, true] {
            if restarts {
                world.restart(n(0));
                let run = run_asked_for(&world.network);
                let (since, versions) = (Version::INITIAL, Vec::new());
                let list = Message::Committed { since, run, versions, more: false, reaches: true };
                world.tell(n(1), n(0), list);
            }
            let late = contents(&[], &[("x", "late")]);
            let writer = at(1, 1 + u64::from(restarts));
            let cast = votes(&world.tell(client, n(0), prepare(writer, 0, &late)));
            assert_eq!(cast, [Vote::AbandonFinal], "{vote:?}, restarted: {restarts}");
        }
    }
}

#[test]
fn who_does_not_take_part_is_nobodys_source() {
    let mut world = World::new(1);
    world.act(n(0), Replica::rejoin);
    world.act(n(0), Replica::on_start);
    let run = 1;
    for asked in [
        Message::GetCommitted { since: Version::INITIAL, run },
        Message::Scan { after: None, since: 0, run },
        Message::Replaced { question: 1 },
    ] {
        assert_eq!(world.tell(n(1), n(0), asked), []);
    }
}

#[test]
fn the_floor_is_above_whatever_a_majority_of_the_others_has_seen() {
    let mut world = World::new(1);
    let client = coordinator_id(0);
    // n2 has voted on what is ahead of its clock, and n0's own clock is far behind.
    world.now = 50 * SECOND;
    let ahead = version(51 * SECOND, 0);
    world.tell(client, n(2), prepare(ahead, 0, &contents(&[], &[("k", "a")])));
    world.now = SECOND;
    world.act(n(0), Replica::rejoin);
    world.act(n(0), Replica::on_start);
    // A restart before it has heard of anybody, and between the two, changes nothing.
    world.restart(n(0));
    world.settle(|e| e.1 != n(2) && !e.1.is_coordinator());
    world.restart(n(0));
    let merged = Digest::default();
    let takes_part = |world: &mut World, upto| {
        world.now = upto + SECOND;
        world.tell(n(1), n(0), Message::TruncationFinished { upto, merged });
        let what = contents(&[], &[("other", "a")]);
        let later = version(world.now, 7);
        votes(&world.tell(client, n(0), prepare(later, 0, &what))).len() == 1
    };
    assert!(!takes_part(&mut world, 30 * SECOND), "it has asked one of two");
    world.settle(|e| !e.1.is_coordinator());
    assert!(!takes_part(&mut world, 54 * SECOND));
    world.restart(n(0));
    world.settle(|e| !e.1.is_coordinator());
    assert!(!takes_part(&mut world, 54 * SECOND + 500_000));
    assert!(takes_part(&mut world, 56 * SECOND));
}

#[test]
fn who_has_stopped_for_a_truncation_votes_on_nothing_below_after_a_restart() {
    let mut world = World::new(1);
    let client = coordinator_id(0);
    world.now = 20 * SECOND;
    world.timer(n(0), ReplicaTimer::Truncation);
    let stopped = |e: &Envelope| match e.2 {
        Message::Truncate { upto, .. } => Some(upto),
        _ => None,
    };
    let upto = world.network.iter().find_map(stopped).expect("it has told what it has");
    for restarts in [false, true] {
        if restarts {
            world.restart(n(0));
        }
        let what = contents(&[], &[("k", "a")]);
        let said = world.tell(client, n(0), prepare(version(upto - 1, 0), 0, &what));
        assert!(matches!(&said[..], [(.., Message::Refused { .. })]), "{restarts}: {said:?}");
    }
}

#[test]
fn what_was_copied_is_not_overwritten_by_what_is_being_settled() {
    let mut world = World::new(1);
    let base = 100 * SECOND;
    world.now = base;
    let mut committed = Vec::new();
    for i in 0..5 {
        let names: Vec<String> = (0..70).map(|j| format!("f{i} {j}")).collect();
        let writes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        let txn = version(base + 1000 * i, 0);
        committed.push(txn);
        world.commit(&[0, 1, 2], txn, &contents(&[], &writes));
    }
    let (old, new) = (version(base + 100_000, 0), version(base + 10 * SECOND, 0));
    committed.push(old);
    world.commit(&[0, 1, 2], old, &contents(&[], &[("k", "old")]));
    world.now = base + 15 * SECOND;
    for member in 0..3 {
        let (upto, merged) = (base + 4 * SECOND, digest(&committed));
        world.tell(n(2), n(member), Message::TruncationFinished { upto, merged });
    }
    // n0 is away.
    committed.push(new);
    world.commit(&[1, 2], new, &contents(&[], &[("k", "new")]));
    world.now = base + 70 * SECOND;
    for member in [1, 2] {
        world.settle_below(n(member), base + 50 * SECOND, digest(&committed));
    }
    // It begins to settle what it has, and copies meanwhile.
    world.restart(n(0));
    world.timer(n(0), ReplicaTimer::Settle);
    world.settle(|e| !e.1.is_coordinator());
    for restarts in [false, true] {
        if restarts {
            world.restart(n(0));
            world.settle(|e| !e.1.is_coordinator());
        }
        for _ in 0..50 {
            world.timer(n(0), ReplicaTimer::Settle);
        }
        assert_eq!(world.read(n(0), "k"), Some(Value::from("new")), "restarted: {restarts}");
        // These have not changed since, so they were not in the copy.
        let others = ["f0 0", "f4 69"].map(|key| world.read(n(0), key));
        assert_eq!(others, [(); 2].map(|()| Some(Value::from("1"))), "restarted: {restarts}");
    }
}
