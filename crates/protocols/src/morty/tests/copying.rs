//! Replicas that copy another one's store.

use serried_parts::{Committed, WriteId, encode_versions};

use super::by_hand::{contents, prepare, version};
use super::world::{SECOND, World, digest, n, run_asked_for, votes};
use super::*;
use crate::morty::message::Holds;

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
    world.settle(|e| {
        !matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })) && !e.1.is_coordinator()
    });
    let late = world.take(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })));
    assert_eq!(late.len(), 1);
    world.commit(&[0], new, &contents(&[], &[("k", "new")]));
    late.into_iter().for_each(|envelope| world.deliver(envelope));
    world.settle_all();
    for restarts in [false, true] {
        if restarts {
            world.restart(n(0));
            world.settle_all();
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
    world.settle(|e| {
        !matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })) && !e.1.is_coordinator()
    });
    let scanned = world.take(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })));
    let [
        (
            peer,
            _,
            Message::CatchingUp(CatchingUp::Scanned {
                after: None,
                since,
                run,
                entries,
                holds,
                ..
            }),
        ),
    ] = &scanned[..]
    else {
        panic!("{scanned:?}")
    };
    // Its first page ends before `l`. Then it is replaced by one that has nothing.
    let page = |after: Option<Key>, entries: &[_], next, watermark, run| {
        Message::CatchingUp(CatchingUp::Scanned {
            after,
            since: *since,
            run,
            entries: entries.to_vec(),
            next,
            holds: Holds { watermark, ..*holds },
        })
    };
    let end = Some(Key::from("k"));
    let first = |run| page(None, &entries[..1], end.clone(), holds.watermark, run);
    // It asks for the first page again when it has logged that the copy has begun.
    let run = &run_asked_for(&world.tell(*peer, n(0), first(*run)));
    let asked = world.tell(*peer, n(0), first(*run));
    assert_eq!(run_asked_for(&asked), *run);
    let empty = page(end.clone(), &[], None, 0, *run);
    let mut asked = world.tell(*peer, n(0), empty);
    assert_ne!(run_asked_for(&asked), *run);
    asked.retain(|(_, _, message)| {
        !matches!(message, Message::Truncating(Truncating::TruncationFinished { .. }))
    });
    assert!(asked.iter().all(|(_, to, _)| to != peer), "{asked:?}");
    // Nor is it taken from what comes late of the first copy.
    let late = page(end, &[], None, holds.watermark, *run);
    assert_eq!(world.tell(*peer, n(0), late), []);
    world.network = asked.into();
    world.settle_all();
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
        let get =
            Message::Request(Request::Get { version: version(world.now, 9), key: Key::from("k") });
        world.tell(coordinator_id(9), n(0), get).len()
    };
    assert_eq!(answers(&mut world), 1);
    let asked = world.tell(
        n(1),
        n(0),
        Message::Truncating(Truncating::TruncationFinished { upto, merged: digest(&[txn]) }),
    );
    world.network = asked.into();
    world.settle(|e| {
        !matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })) && !e.1.is_coordinator()
    });
    assert!(
        world
            .network
            .iter()
            .any(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })))
    );
    assert_eq!(answers(&mut world), 0);
    world.settle_all();
    assert_eq!(world.read(n(0), "k"), Some(Value::from("a")));
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
        world.tell(
            n(2),
            n(member),
            Message::Truncating(Truncating::TruncationFinished { upto, merged }),
        );
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
    world.settle_all();
    for restarts in [false, true] {
        if restarts {
            world.restart(n(0));
            world.settle_all();
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

/// It has voted for a delete, and the copy says that it is settled, so the delete is forgotten. Under validation, someone who
/// has found what was deleted must not have its vote.
#[test]
fn who_copies_does_not_vote_for_who_has_found_what_a_delete_in_the_copy_has_deleted() {
    let group = Group::new(3, Duration::from_millis(1));
    let mut world = World::of_options(group, crate::tapir::OPTIONS);
    let [first, delete] = [20, 21].map(|at| version(at * SECOND, 0));
    world.now = 22 * SECOND;
    world.commit(&[1, 2], first, &contents(&[], &[("k", "a")]));
    world.commit(&[0, 1], delete, &contents(&[], &[("k", "")]));
    world.now = 100 * SECOND;
    world.settle_below(n(1), 80 * SECOND, digest(&[first, delete]));
    world.network.clear();
    let reader = version(100 * SECOND, 5);
    let vote = |world: &mut World, reader: Version| {
        let what = contents(&[("k", first)], &[("y", "1")]);
        votes(&world.tell(reader.coordinator, n(0), prepare(reader, 0, &what)))
    };
    // n1 says what is settled, and n0 copies it page by page.
    let merged = digest(&[first, delete]);
    let finished = Truncating::TruncationFinished { upto: 80 * SECOND, merged };
    let asked = world.tell(n(1), n(0), Message::Truncating(finished));
    world.network.extend(asked);
    let is_last = |message: &Message| {
        matches!(message, Message::CatchingUp(CatchingUp::Scanned { next: None, .. }))
    };
    let mut shortened = 0;
    for _ in 0..200 {
        let Some((from, to, mut message)) = world.network.pop_front() else { break };
        if to == n(0) && is_last(&message) {
            // Its peer still has the delete. Another page follows, which is late.
            let Message::CatchingUp(CatchingUp::Scanned { entries, next, .. }) = &mut message
            else {
                continue;
            };
            let deleted = Committed::put(WriteId { version: delete, tag: 1 }, None);
            *entries = vec![(Key::from("k"), Some(encode_versions(&[deleted])))];
            *next = Some(Key::from("k"));
            shortened += 1;
        }
        world.deliver((from, to, message));
        world.network.retain(|(_, to, _)| !to.is_coordinator());
        if shortened == 2 {
            break;
        }
    }
    assert_eq!(shortened, 2, "the first page is asked for twice");
    assert_eq!(vote(&mut world, reader), [Vote::AbandonTentative]);
}
