//! Values that were loaded before there were transactions.

use std::sync::Arc;

use serried_parts::{Committed, WriteId, encode_versions};

use super::by_hand::{contents, prepare, version};
use super::world::{World, votes};
use super::*;
use crate::morty::Digest;
use crate::morty::message::{CatchingUp, Contents, Read, Reply, Request};

const SECOND: u64 = 1_000_000;

fn n(member: usize) -> NodeId {
    NodeId::replica(0, member)
}

/// The digest of its first execution.
fn digest(of: Version) -> Digest {
    let mut digest = Digest::default();
    digest.add(of, 0);
    digest
}

/// Three replicas whose stores hold a value that was loaded.
fn loaded() -> World {
    let mut world = World::new(1);
    let loaded = Committed::put(WriteId::LOADED, Some(Value::from("loaded")));
    for node in world.nodes.values_mut() {
        node.store.put(b"k", Some(&encode_versions(core::slice::from_ref(&loaded))));
    }
    world
}

/// Reads the value at `n0`, and returns what an execution holds that has found what was loaded.
fn read(world: &mut World, reader: Version) -> Arc<Contents> {
    let get = Message::Request(Request::Get { version: reader, key: Key::from("k") });
    let said = world.tell(reader.coordinator, n(0), get);
    let [(_, _, Message::Reply(Reply::GetReply { found, value: Some(_), .. }))] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(*found, WriteId::LOADED.into());
    let reads = vec![Read { key: Key::from("k"), found: WriteId::LOADED.into() }];
    Arc::new(Contents { reads, ..Contents::clone(&contents(&[], &[])) })
}

#[test]
fn who_has_found_what_was_loaded_commits_if_it_is_there() {
    let mut world = loaded();
    let reader = version(world.now, 5);
    let reads = read(&mut world, reader);
    for member in 0..3 {
        let cast = votes(&world.tell(reader.coordinator, n(member), prepare(reader, 0, &reads)));
        assert_eq!(cast, [Vote::Commit], "of n{member}");
    }
}

#[test]
fn a_reader_of_a_loaded_value_does_not_commit_after_a_forgotten_delete() {
    // Somebody later has written the key again, or not.
    for again in [false, true] {
        let mut world = loaded();
        let deleted = version(9 * SECOND, 0);
        world.now = 9 * SECOND + 1;
        world.commit(&[1, 2], deleted, &contents(&[], &[("k", "")]));
        world.now = 52 * SECOND;
        for member in [1, 2] {
            world.settle_below(n(member), 40 * SECOND, digest(deleted));
        }
        let held = [0, 1, 2].map(|member| world.nodes[&n(member)].store.get(b"k").is_some());
        assert_eq!(held, [true, false, false]);
        let reader = version(world.now, 5);
        let reads = read(&mut world, reader);
        if again {
            let later = version(world.now + 10, 6);
            world.commit(&[1, 2], later, &contents(&[], &[("k", "later")]));
        }
        for member in [1, 2] {
            let said = world.tell(reader.coordinator, n(member), prepare(reader, 0, &reads));
            assert_eq!(votes(&said), [Vote::AbandonFinal], "of n{member}, again: {again}");
        }
    }
}

/// n0 copies n1's store. Between the two pages n1 settles more, and forgets a delete of `k`. The first page is complete
/// below 100 s, and the delete is of 135 s. A reader of 120 s, which the others have committed, has found in `k` what was
/// loaded.
#[test]
fn a_reader_of_a_loaded_value_is_not_abandoned_over_a_page_copied_late() {
    let mut world = World::of(5);
    for node in world.nodes.values_mut() {
        let loaded = Committed::put(WriteId::LOADED, Some(Value::from("loaded")));
        node.store.put(b"k", Some(&encode_versions(&[loaded])));
    }
    let digest = |of: &[Version]| {
        let mut digest = Digest::default();
        of.iter().for_each(|version| digest.add(*version, 0));
        digest
    };
    let long = "x".repeat(300 << 10);
    let [zero, first] = [1, 2].map(|at| version(SECOND + at, 0));
    world.commit(&[0, 1, 2, 3, 4], zero, &contents(&[], &[("z", "1")]));
    world.commit(&[1, 2, 3, 4], first, &contents(&[], &[("a", &long)]));
    world.now = 110 * SECOND;
    (1..5).for_each(|i| world.settle_below(n(i), 100 * SECOND, digest(&[zero, first])));
    let reader = version(120 * SECOND, 5);
    let reads = vec![Read { key: Key::from("k"), found: WriteId::LOADED.into() }];
    let what = Arc::new(Contents { reads, ..Contents::clone(&contents(&[], &[("y", "1")])) });
    world.now = 120 * SECOND + 1;
    world.commit(&[1, 3, 4], reader, &what);
    let delete = version(135 * SECOND, 6);
    world.now = 135 * SECOND + 1;
    world.commit(&[1, 3, 4], delete, &contents(&[], &[("k", "")]));
    // n0 comes back and gets the first page, which it asks for twice.
    world.now = 185 * SECOND;
    world.network.clear();
    world.restart(n(0));
    let mut pages = 0;
    while world.gauge(n(0), "truncated_below_us") < 100 * SECOND {
        let next = world.take(|e| [(n(0), n(1)), (n(1), n(0))].contains(&(e.0, e.1)));
        assert!(!next.is_empty(), "after {pages} pages");
        for envelope in next {
            pages +=
                usize::from(matches!(envelope.2, Message::CatchingUp(CatchingUp::Scanned { .. })));
            world.deliver(envelope);
        }
        if pages == 2 && world.nodes[&n(1)].store.get(b"k").is_some() {
            // n1 forgets the delete.
            let asked = world.take(|_| true);
            world.settle_below(n(1), 170 * SECOND, digest(&[zero, first, reader, delete]));
            assert_eq!(world.nodes[&n(1)].store.get(b"k"), None);
            world.network = asked.into();
        }
    }
    // n1 is cut off from n0, which goes on with n2.
    world.network.clear();
    for _ in 0..4 {
        world.timer(n(0), ReplicaTimer::CatchUp);
        world.settle(|e| [(n(0), n(2)), (n(2), n(0))].contains(&(e.0, e.1)));
    }
    assert_eq!(world.gauge(n(0), "catching_up"), 0);
    let answers = world.tell(reader.coordinator, n(0), prepare(reader, 0, &what));
    assert_eq!(votes(&answers), [Vote::AbandonTentative]);
}
