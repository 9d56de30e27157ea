//! Values that were loaded before there were transactions.

use std::sync::Arc;

use serried_parts::{Committed, WriteId, encode_versions};

use super::by_hand::{contents, prepare, version};
use super::world::{World, votes};
use super::*;
use crate::morty::Digest;
use crate::morty::message::{Contents, Read};

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
    let loaded = Committed { id: WriteId::LOADED, value: Some(Value::from("loaded")) };
    for node in world.nodes.values_mut() {
        node.store.put(b"k", Some(&encode_versions(core::slice::from_ref(&loaded))));
    }
    world
}

/// Reads the value at `n0`, and returns what an execution holds that has found what was loaded.
fn read(world: &mut World, reader: Version) -> Arc<Contents> {
    let get = Message::Get { version: reader, key: Key::from("k") };
    let said = world.tell(reader.coordinator, n(0), get);
    let [(_, _, Message::GetReply { write, value: Some(_), .. })] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(*write, WriteId::LOADED);
    let reads = vec![Read { key: Key::from("k"), write: WriteId::LOADED }];
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
fn who_has_found_what_was_loaded_does_not_commit_if_that_was_deleted_and_the_delete_forgotten() {
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
