//! Keys that are deleted, and stay deleted: after a restart, after an absence, and when deletes are forgotten.

use super::by_hand::{contents, decide, prepare, version};
use super::world::{SECOND, World, digest, n, votes};
use super::*;

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
        world.nodes[&n(0)].records.iter().any(of)
    };
    assert_eq!([older, younger].map(|version| logged(&world, version)), [true, false]);
    assert_eq!(world.read(n(0), "k"), None);
    world.restart(n(0));
    world.settle_all();
    assert_eq!(world.read(n(0), "k"), None, "it was deleted long ago");
}

#[test]
fn a_key_deleted_while_a_replica_was_away_stays_deleted() {
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
        world.settle_all();
        for _ in 0..50 {
            world.timer(n(0), ReplicaTimer::Settle);
        }
        for restarts in [false, true] {
            if restarts {
                world.restart(n(0));
                world.settle_all();
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
    world.settle_all();
    assert_eq!(world.read(n(0), "k"), None);
}

#[test]
fn a_reader_of_a_delete_commits_though_only_some_have_forgotten_it() {
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
        let get = Message::Request(Request::Get { version: reader, key: Key::from("k") });
        let said = world.tell(client, n(from), get);
        let [(_, _, Message::Reply(Reply::GetReply { found, value: None, .. }))] = &said[..] else {
            panic!("{said:?}")
        };
        let reads = contents(&[("k", found.write.version)], &[]);
        for member in 0..3 {
            let cast = votes(&world.tell(client, n(member), prepare(reader, 0, &reads)));
            assert_eq!(cast, [Vote::Commit], "of n{member} on what n{from} has told");
            world.tell(client, n(member), decide(reader, 0, Decision::Commit, &reads));
        }
        // It was read by somebody who is younger. Perhaps it was written before it was deleted.
        let writer = version(world.now - 10, 6 + from as u64);
        let blind = contents(&[], &[("k", "late")]);
        for member in 0..3 {
            let cast = votes(&world.tell(client, n(member), prepare(writer, 0, &blind)));
            assert_eq!(cast, [Vote::AbandonTentative], "of n{member}");
            world.tell(client, n(member), decide(writer, 0, Decision::Abort, &blind));
        }
    }
}

#[test]
fn a_reader_that_missed_the_first_write_of_a_key_does_not_commit() {
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
    assert_eq!(cast, [Vote::AbandonTentative], "it may have been deleted again");
}
