//! Deletes that one replica has forgotten and another has not, or not seen settled.

use std::sync::Arc;

use super::by_hand::{contents, decide, prepare, version};
use super::world::{SECOND, World, digest, n, votes};
use super::*;
use crate::morty::message::Contents;

/// k was deleted. n1 has forgotten that, n2 remembers it, and n0 has not seen it settled: it was cut off from
/// the others, but not from a client, which finds the delete there. With this comes the delete.
fn known_by_its_version_at_n0() -> (World, Version) {
    let mut world = World::new(1);
    let delete = version(9 * SECOND, 0);
    world.now = 9 * SECOND + 1;
    world.commit(&[0, 1, 2], delete, &contents(&[], &[("k", "")]));
    world.now = 52 * SECOND;
    for (member, upto) in [(2, 38), (1, 40)] {
        world.settle_below(n(member), upto * SECOND, digest(&[delete]));
    }
    let held = [0, 1, 2].map(|member| world.nodes[&n(member)].store.get(b"k").is_some());
    assert_eq!(held, [false, false, true]);
    (world, delete)
}

/// What each replica votes on an execution.
fn cast(world: &mut World, reader: Version, eid: u32, what: &Arc<Contents>) -> Vec<Vote> {
    let asked = |member| world.tell(reader.coordinator, n(member), prepare(reader, eid, what));
    (0..3).map(asked).flat_map(|said| votes(&said)).collect()
}

#[test]
fn whether_a_forgotten_delete_had_committed_is_not_judged_for_good() {
    let (mut world, delete) = known_by_its_version_at_n0();
    let reader = version(world.now, 5);
    let get = Message::Request(Request::Get { version: reader, key: Key::from("k") });
    let said = world.tell(reader.coordinator, n(0), get);
    let [(_, _, Message::Reply(Reply::GetReply { found, value: None, .. }))] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(found.write.version, delete);
    let what = contents(&[("k", delete)], &[("counter", "1")]);
    let expected = [Vote::Commit, Vote::AbandonTentative, Vote::Commit];
    assert_eq!(cast(&mut world, reader, 0, &what), expected);
    // Its coordinator is lost, and n1 is away: the others may finish it.
    world.network = world
        .tell(coordinator_id(8), n(2), Message::Request(Request::Inquire { version: reader }))
        .into();
    world.settle(|e| e.0 != n(1) && e.1 != n(1) && !e.1.is_coordinator());
    world.network.clear();
    assert_eq!(world.read(n(2), "counter"), Some(Value::from("1")));
}

#[test]
fn a_reader_of_a_forgotten_delete_finds_nothing_and_commits() {
    let (mut world, delete) = known_by_its_version_at_n0();
    let reader = version(world.now, 5);
    let what = contents(&[("k", delete)], &[("counter", "1")]);
    let said = world.tell(reader.coordinator, n(1), prepare(reader, 0, &what));
    let found = said.iter().find_map(|(_, _, message)| match message {
        Message::Reply(Reply::GetReply { found, value, instead_of: Some(other), .. }) => {
            Some((found.write.version, value.clone(), other.version))
        }
        _ => None,
    });
    assert_eq!(found, Some((Version::INITIAL, None, delete)));
    let again = contents(&[("k", Version::INITIAL)], &[("counter", "1")]);
    assert_eq!(cast(&mut world, reader, 1, &again), [Vote::Commit; 3]);
}

#[test]
fn no_replica_that_had_the_delete_votes_for_a_read_of_what_it_overwrote() {
    let (mut world, _) = known_by_its_version_at_n0();
    let what = contents(&[("k", version(8 * SECOND, 0))], &[("counter", "1")]);
    let reader = version(world.now, 5);
    let expected = [Vote::AbandonFinal, Vote::AbandonTentative, Vote::AbandonFinal];
    assert_eq!(cast(&mut world, reader, 0, &what), expected);
}

#[test]
fn who_copies_hands_on_nothing_of_what_it_had() {
    let mut world = World::new(1);
    let (delete, other) = (version(20 * SECOND, 0), version(21 * SECOND, 0));
    world.now = 22 * SECOND;
    world.commit(&[0, 1, 2], delete, &contents(&[], &[("k", "")]));
    world.commit(&[1, 2], other, &contents(&[], &[("l", "a")]));
    world.now = 100 * SECOND;
    let (upto, merged) = (80 * SECOND, digest(&[delete, other]));
    for member in [1, 2] {
        world.settle_below(n(member), upto, merged);
    }
    let handed_on = |world: &mut World| {
        let said = world.tell(
            n(2),
            n(0),
            Message::CatchingUp(CatchingUp::Fetch { versions: vec![delete] }),
        );
        let executions = said.iter().map(|(_, _, message)| match message {
            Message::CatchingUp(CatchingUp::Fetched { executions, .. }) => executions.len(),
            other => panic!("{other:?}"),
        });
        executions.sum::<usize>()
    };
    assert_eq!(handed_on(&mut world), 1);
    world.network = world
        .tell(n(1), n(0), Message::Truncating(Truncating::TruncationFinished { upto, merged }))
        .into();
    world.settle(|e| {
        !matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })) && !e.1.is_coordinator()
    });
    assert!(
        world
            .network
            .iter()
            .any(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })))
    );
    assert_eq!(handed_on(&mut world), 0);
    world.settle(|e| !e.1.is_coordinator());
    assert_eq!(handed_on(&mut world), 0, "it is below the horizon now");
}

/// T has read what a delete left of k, and what W wrote to j. All vote provisionally. Before W is decided, all forget the
/// delete.
fn waits_while_a_delete_that_it_has_read_is_forgotten() -> (World, Version, Arc<Contents>) {
    let mut world = World::new(1);
    let (delete, writer) = (version(9 * SECOND, 0), version(45 * SECOND, 1));
    world.now = 9 * SECOND + 1;
    world.commit(&[0, 1, 2], delete, &contents(&[], &[("k", "")]));
    world.now = 52 * SECOND;
    let written = contents(&[], &[("j", "1")]);
    assert_eq!(cast(&mut world, writer, 0, &written), [Vote::Commit; 3]);
    let reader = version(world.now, 5);
    let what = contents(&[("k", delete), ("j", writer)], &[("counter", "1")]);
    assert_eq!(cast(&mut world, reader, 0, &what), [Vote::Provisional; 3]);
    for member in 0..3 {
        world.settle_below(n(member), 40 * SECOND, digest(&[delete]));
        assert!(world.nodes[&n(member)].store.get(b"k").is_none());
    }
    (world, writer, written)
}

#[test]
fn what_was_committed_as_it_was_read_remains_so_when_it_is_forgotten() {
    let (mut world, writer, written) = waits_while_a_delete_that_it_has_read_is_forgotten();
    // n1 has restarted in the meantime.
    world.restart(n(1));
    for member in 0..3 {
        let decided = decide(writer, 0, Decision::Commit, &written);
        let said = world.tell(writer.coordinator, n(member), decided);
        assert_eq!(votes(&said), [Vote::Commit], "n{member}");
    }
}

#[test]
fn a_provisional_vote_ends_when_a_writer_aborts_whatever_else_is_forgotten() {
    let (mut world, writer, written) = waits_while_a_delete_that_it_has_read_is_forgotten();
    // It lacks something now, perhaps.
    world.restart(n(1));
    for member in 0..3 {
        let decided = decide(writer, 0, Decision::Abort, &written);
        let said = world.tell(writer.coordinator, n(member), decided);
        assert_eq!(votes(&said), [Vote::AbandonFinal], "n{member}");
    }
}
