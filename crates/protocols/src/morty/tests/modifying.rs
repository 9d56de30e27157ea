//! Modifications that are merged: what readers of them find and name, and what becomes of them when they are settled, forgotten,
//! fetched and replayed.

use std::sync::Arc;

use serried_model::{Modification, Modify};
use serried_parts::{Committed, Effect, WriteId, encode_versions};

use super::by_hand::{contents, decide, prepare, version};
use super::world::{SECOND, World, digest, n, votes};
use super::*;
use crate::morty::message::{Contents, Overwritten, Read, Source, TaggedWrite};
use crate::morty::replica::COUNTED_WHEN_FULL;
use crate::morty::{Crowds, PastRead};

/// An execution that modifies a key which it has not read.
fn modifies(key: &str, modification: Modification) -> Arc<Contents> {
    let effect = Effect::Modify([modification].into());
    let writes = vec![TaggedWrite { key: Key::from(key), tag: 1, effect }];
    Arc::new(Contents { writes, ..Contents::clone(&contents(&[], &[])) })
}

pub(super) fn adds(delta: i64) -> Arc<Contents> {
    modifies("k", Modification::add(delta))
}

/// An execution that has read `k`: a value, and modifications of it.
pub(super) fn found(value: WriteId, modified: &[Version]) -> Arc<Contents> {
    let modified = modified.iter().map(|version| WriteId { version: *version, tag: 1 }).collect();
    let reads = vec![Read { key: Key::from("k"), found: Source { write: value, modified } }];
    Arc::new(Contents { reads, ..Contents::clone(&contents(&[], &[])) })
}

pub(super) fn id(version: Version) -> WriteId {
    WriteId { version, tag: 1 }
}

/// What a replica votes on an execution.
pub(super) fn vote(world: &mut World, member: usize, txn: Version, what: &Arc<Contents>) -> Vote {
    let said = world.tell(txn.coordinator, n(member), prepare(txn, 0, what));
    *votes(&said).last().expect("a vote")
}

/// What a read at a replica finds.
pub(super) fn source(world: &mut World, member: usize) -> (Source, Option<Value>) {
    let (reader, key) = (version(world.now, 9), Key::from("k"));
    let get = Message::Request(Request::Get { version: reader, key });
    match &world.tell(reader.coordinator, n(member), get)[..] {
        [(.., Message::Reply(Reply::GetReply { found, value, .. }))] => {
            (found.clone(), value.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_finds_the_sum_of_what_is_below_it_and_names_it() {
    let mut world = World::new(1);
    let [first, second, later] = [2, 3, 90].map(|at| version(at * SECOND, at));
    world.now = 5 * SECOND;
    // The second is not decided.
    world.commit(&[0], first, &adds(1));
    assert_eq!(vote(&mut world, 0, second, &adds(10)), Vote::Commit);
    world.tell(later.coordinator, n(0), prepare(later, 0, &adds(100)));
    let modified = vec![id(first), id(second)];
    let expected = Source { write: WriteId::INITIAL, modified };
    assert_eq!(source(&mut world, 0), (expected, Some(Value::from("11"))));
}

#[test]
fn who_modifies_what_a_reader_has_named_is_voted_down_unless_it_is_named() {
    let [first, second, reader] = [10, 20, 30].map(|at| version(at * SECOND, at));
    for commits in [false, true] {
        let mut world = World::new(1);
        world.now = 36 * SECOND;
        world.commit(&[0], first, &adds(1));
        world.commit(&[0], second, &adds(1));
        let reads = found(WriteId::INITIAL, &[first, second]);
        assert_eq!(vote(&mut world, 0, reader, &reads), Vote::Commit);
        if commits {
            world.tell(reader.coordinator, n(0), decide(reader, 0, Decision::Commit, &reads));
        }
        let mut late = |at| vote(&mut world, 0, version(at * SECOND, 5), &adds(1));
        let certain = if commits { Vote::AbandonFinal } else { Vote::AbandonTentative };
        // What lies below the first may have been deleted before.
        let expected = [Vote::AbandonTentative, certain, certain, Vote::Commit];
        assert_eq!([5, 15, 25, 35].map(&mut late), expected, "commits: {commits}");
    }
}

#[test]
fn a_modification_that_a_reader_names_may_be_prepared_after_it() {
    let mut world = World::new(1);
    let [first, second, reader] = [10, 20, 30].map(|at| version(at * SECOND, at));
    world.now = 31 * SECOND;
    world.commit(&[0], first, &adds(1));
    let reads = found(WriteId::INITIAL, &[first, second]);
    assert_eq!(vote(&mut world, 0, reader, &reads), Vote::Provisional);
    assert_eq!(vote(&mut world, 0, second, &adds(1)), Vote::Commit);
    let said = world.tell(second.coordinator, n(0), decide(second, 0, Decision::Commit, &adds(1)));
    assert_eq!(votes(&said), [Vote::Commit], "what was read is committed");
}

#[test]
fn a_reader_that_lacks_a_modification_is_voted_down() {
    let mut world = World::new(1);
    let [first, second, third, reader] = [10, 20, 25, 30].map(|at| version(at * SECOND, at));
    world.now = 31 * SECOND;
    for txn in [first, second, third] {
        world.commit(&[0], txn, &adds(1));
    }
    for (value, modified, expected) in [
        (WriteId::INITIAL, &[first, second, third][..], Vote::Commit),
        (WriteId::INITIAL, &[first, third], Vote::AbandonFinal),
        (WriteId::INITIAL, &[second, third], Vote::AbandonTentative),
        (WriteId::INITIAL, &[first, second], Vote::AbandonFinal),
        (id(first), &[second, third], Vote::Commit),
        (id(first), &[third], Vote::AbandonFinal),
        (id(third), &[], Vote::Commit),
    ] {
        let client = world.now;
        let reader = Version { coordinator: coordinator_id(client), ..reader };
        let cast = vote(&mut world, 0, reader, &found(value, modified));
        assert_eq!(cast, expected, "{value:?} {modified:?}");
        world.tell(
            reader.coordinator,
            n(0),
            decide(reader, 0, Decision::Abort, &found(value, modified)),
        );
    }
}

#[test]
fn what_a_modification_rests_on_stays_though_the_past_is_not_readable() {
    let mut world = World::new(1);
    let (put, add) = (version(2 * SECOND, 0), version(25 * SECOND, 0));
    world.now = 3 * SECOND;
    world.commit(&[0, 1, 2], put, &contents(&[], &[("k", "5")]));
    world.now = 26 * SECOND;
    world.commit(&[0, 1, 2], add, &adds(1));
    let fetched = CatchingUp::Fetched { executions: Vec::new(), readable_from: 40 * SECOND };
    world.tell(n(1), n(0), Message::CatchingUp(fetched));
    world.now = 52 * SECOND;
    world.settle_below(n(0), 20 * SECOND, digest(&[put]));
    assert_eq!(world.read(n(0), "k"), Some(Value::from("6")));
    world.settle_below(n(0), 40 * SECOND, digest(&[put, add]));
    assert_eq!(world.read(n(0), "k"), Some(Value::from("6")));
}

#[test]
fn what_was_loaded_is_not_what_is_modified_after_a_forgotten_delete() {
    let mut world = World::new(1);
    let loaded = Committed::put(WriteId::LOADED, Some(Value::from("7")));
    for node in world.nodes.values_mut() {
        node.store.put(b"k", Some(&encode_versions(core::slice::from_ref(&loaded))));
    }
    let (deleted, added) = (version(9 * SECOND, 0), version(51 * SECOND, 1));
    world.now = 9 * SECOND + 1;
    world.commit(&[1, 2], deleted, &contents(&[], &[("k", "")]));
    world.now = 52 * SECOND;
    for member in [1, 2] {
        world.settle_below(n(member), 40 * SECOND, digest(&[deleted]));
    }
    world.commit(&[0, 1, 2], added, &adds(1));
    let reader = version(world.now, 5);
    assert_eq!(source(&mut world, 0).1, Some(Value::from("8")));
    let reads = found(WriteId::LOADED, &[added]);
    let cast = [0, 1, 2].map(|member| vote(&mut world, member, reader, &reads));
    assert_eq!(cast, [Vote::Commit, Vote::AbandonFinal, Vote::AbandonFinal]);
}

/// `k` is deleted by a modification. What that rests on has left the log.
#[test]
fn a_key_that_a_modification_has_deleted_stays_deleted_after_a_crash() {
    let mut world = World::new(1);
    let [put, set, deleted] = [2, 35, 37].map(|at| version(at * SECOND, at));
    world.now = 3 * SECOND;
    world.commit(&[0], put, &contents(&[], &[("k", "x")]));
    world.timer(n(0), ReplicaTimer::Truncation);
    world.now = 45 * SECOND;
    world.settle_below(n(0), 34 * SECOND, digest(&[put]));
    let release = Modification::CompareAndSwap { expected: Some(Value::from("x")), new: None };
    world.commit(&[0], set, &modifies("k", Modification::SetIfAbsent(Value::from("y"))));
    world.commit(&[0], deleted, &modifies("k", release));
    assert_eq!(world.read(n(0), "k"), None);
    world.now = 95 * SECOND;
    let merged = digest(&[put, set, deleted]);
    let finished = Truncating::TruncationFinished { upto: 80 * SECOND, merged };
    world.tell(n(2), n(0), Message::Truncating(finished));
    world.nodes[n(0)].hold_log();
    for _ in 0..50 {
        world.timer(n(0), ReplicaTimer::Settle);
    }
    world.restart(n(0));
    world.network.clear();
    world.settle_below(n(0), 80 * SECOND, merged);
    let past = Message::Request(Request::GetAt {
        request: 1,
        key: Key::from("k"),
        at: Version::at(80 * SECOND),
    });
    let answers = world.tell(coordinator_id(9), n(0), past);
    assert!(
        matches!(
            &answers[..],
            [(.., Message::Reply(Reply::GetAtReply { found: PastRead::Value(_, None), .. }))]
        ),
        "{answers:?}"
    );
}

/// A replica lacks a modification, and asks one that has forgotten it, or has executed others without it.
#[test]
fn who_fetches_a_forgotten_modification_gets_the_result_of_a_later_one() {
    let mut world = World::of(5);
    let [put, lacking, third, fourth] = [20, 25, 27, 30].map(|at| version(at * SECOND, at));
    world.now = 31 * SECOND;
    world.commit(&[0, 1, 2, 3, 4], put, &contents(&[], &[("k", "5")]));
    world.commit(&[0, 3, 4], lacking, &adds(1));
    world.commit(&[0, 1, 2, 3, 4], third, &adds(1));
    world.commit(&[0, 1, 2, 3, 4], fourth, &adds(1));
    world.now = 52 * SECOND;
    let all = digest(&[put, lacking, third, fourth]);
    world.settle_below(n(0), 40 * SECOND, all);
    let fetch = || Message::CatchingUp(CatchingUp::Fetch { versions: vec![lacking] });
    // n1 fetches it from n0, which has forgotten it, and n2 from n1.
    for (asks, asked) in [(1, 0), (2, 1)] {
        let answers = world.tell(n(asks), n(asked), fetch());
        let [(_, _, Message::CatchingUp(CatchingUp::Fetched { executions, readable_from }))] =
            &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert!(*readable_from > fourth.timestamp_us, "n{asked}: {readable_from}");
        let overwritten = &executions[0].2.overwritten;
        assert_eq!(overwritten.len(), 1, "n{asked}: {executions:?}");
        let by = (overwritten[0].by, overwritten[0].value.clone());
        assert_eq!(by, (id(fourth), Some(Value::from("8"))), "n{asked}");
        answers.into_iter().for_each(|envelope| world.deliver(envelope));
        assert_eq!(world.read(n(asks), "k"), Some(Value::from("8")), "n{asks}");
        // It has executed the third without the second.
        world.settle_below(n(asks), 28 * SECOND, digest(&[put, lacking, third]));
        assert_eq!(world.read(n(asks), "k"), Some(Value::from("8")), "n{asks}");
        world.restart(n(asks));
        world.network.clear();
        world.settle_below(n(asks), 40 * SECOND, all);
    }
    let past = |world: &mut World, member| {
        let (key, at) = (Key::from("k"), Version::at(40 * SECOND));
        let past = Message::Request(Request::GetAt { request: 1, key, at });
        format!("{:?}", world.tell(coordinator_id(9), n(member), past)[0].2)
    };
    let found = [0, 1, 2].map(|member| past(&mut world, member));
    assert!(found[0].contains('8'), "{found:?}");
    assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
}

#[test]
fn a_named_modification_that_is_forgotten_is_confirmed_if_its_transaction_is_remembered() {
    let mut world = World::new(1);
    let [first, second, third, reader] = [10, 20, 45, 50].map(|at| version(at * SECOND, at));
    world.now = 51 * SECOND;
    world.commit(&[0], first, &adds(1));
    world.tell(second.coordinator, n(0), prepare(second, 0, &adds(1)));
    world.tell(third.coordinator, n(0), prepare(third, 0, &adds(1)));
    let reads = found(WriteId::INITIAL, &[first, second, third]);
    assert_eq!(vote(&mut world, 0, reader, &reads), Vote::Provisional);
    world.tell(second.coordinator, n(0), decide(second, 0, Decision::Commit, &adds(1)));
    world.settle_below(n(0), 40 * SECOND, digest(&[first, second]));
    let said = world.tell(third.coordinator, n(0), decide(third, 0, Decision::Commit, &adds(1)));
    assert_eq!(votes(&said), [Vote::Commit]);
    // Who comes later with the same is told what is left of it: others may lie between what it names.
    let again = Version { coordinator: coordinator_id(77), ..reader };
    let said = world.tell(again.coordinator, n(0), prepare(again, 0, &reads));
    assert_eq!(votes(&said), [Vote::AbandonTentative]);
    let told = said.iter().find_map(|(.., message)| match message {
        Message::Reply(Reply::GetReply { found, value, .. }) => Some((found, value)),
        _ => None,
    });
    let left = Source { write: id(second), modified: vec![id(third)] };
    assert_eq!(told, Some((&left, &Some(Value::from("3")))));
}

#[test]
fn contents_that_no_client_may_send_are_dropped() {
    let effects = [Effect::Modify(Box::default()), Effect::Result(None)];
    for effect in effects {
        let mut world = World::new(1);
        let writes = vec![TaggedWrite { key: Key::from("k"), tag: 1, effect }];
        let what = Arc::new(Contents { writes, ..Contents::clone(&contents(&[], &[])) });
        let txn = version(world.now, 5);
        world.forged = true;
        assert!(world.tell(txn.coordinator, n(0), prepare(txn, 0, &what)).is_empty());
        assert_eq!(world.nodes[n(0)].rejected, 1);
    }
}

#[test]
fn where_too_many_follow_on_a_value_no_more_are_accepted_or_seen() {
    let crowds = Crowds { many: 100, most: 2 };
    let options = Options { crowds, ..Options::default() };
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), options);
    world.now = 10 * SECOND;
    let cast = [2, 3, 4].map(|at| vote(&mut world, 0, version(at * SECOND, at), &adds(1)));
    assert_eq!(cast, [Vote::Commit, Vote::Commit, Vote::AbandonTentative]);
    assert_eq!(source(&mut world, 0).0.modified.len(), 2);
}

#[test]
fn what_the_next_execution_modifies_otherwise_has_another_tag() {
    let mut net = morty(1);
    let tags = [1, 2].map(|delta| {
        let modifications = vec![Modification::add(delta)];
        let modifies = vec![Modify { key: Key::from("k"), modifications }];
        net.operate(0, Operation::Commit { reads: Vec::new(), writes: Vec::new(), modifies });
        let tag = net.network.drain(..).find_map(|(.., message)| match message {
            Message::Request(Request::Prepare { contents, .. }) => Some(contents.writes[0].tag),
            _ => None,
        });
        tag.expect("a Prepare")
    });
    assert_ne!(tags[0], tags[1]);
}

#[test]
fn after_a_crash_a_vote_waits_for_all_that_it_names() {
    let mut world = World::new(1);
    let [put, added, reader] = [10, 20, 30].map(|at| version(at * SECOND, at));
    world.now = 31 * SECOND;
    let value = contents(&[], &[("k", "5")]);
    assert_eq!(vote(&mut world, 0, put, &value), Vote::Commit);
    assert_eq!(vote(&mut world, 0, added, &adds(1)), Vote::Commit);
    let reads = found(id(put), &[added]);
    assert_eq!(vote(&mut world, 0, reader, &reads), Vote::Provisional);
    world.restart(n(0));
    world.network.clear();
    let said = world.tell(put.coordinator, n(0), decide(put, 0, Decision::Commit, &value));
    assert_eq!(votes(&said), []);
    let said = world.tell(added.coordinator, n(0), decide(added, 0, Decision::Commit, &adds(1)));
    assert_eq!(votes(&said), [Vote::Commit]);
}

#[test]
fn a_vote_waits_for_all_that_it_names_in_whatever_order_they_are_decided() {
    const MANY: u64 = 40;
    for (backwards, aborts) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new(1);
        world.now = 100 * SECOND;
        let added: Vec<Version> = (1..=MANY).map(|at| version(at * SECOND, at)).collect();
        for txn in &added {
            assert_eq!(vote(&mut world, 0, *txn, &adds(1)), Vote::Commit);
        }
        let reads = found(WriteId::INITIAL, &added);
        let reader = version(90 * SECOND, 90);
        assert_eq!(vote(&mut world, 0, reader, &reads), Vote::Provisional);
        let mut order = added.clone();
        if backwards {
            order.reverse();
        }
        let mut cast = Vec::new();
        for txn in &order {
            let is_aborted = aborts && txn == added.last().unwrap();
            let decision = if is_aborted { Decision::Abort } else { Decision::Commit };
            let said = world.tell(txn.coordinator, n(0), decide(*txn, 0, decision, &adds(1)));
            assert!(cast.is_empty() || votes(&said).is_empty(), "it votes once");
            cast.extend(votes(&said));
            assert!(aborts || cast.is_empty() || Some(txn) == order.last(), "{txn} of {order:?}");
        }
        let expected = if aborts { Vote::AbandonFinal } else { Vote::Commit };
        assert_eq!(cast, [expected], "backwards: {backwards}");
    }
}

#[test]
fn a_modification_that_was_fetched_as_overwritten_is_confirmed_only_with_its_tag() {
    for (tag, expected) in [(1, Vote::Commit), (2, Vote::AbandonFinal)] {
        let mut world = World::new(1);
        let [first, second, reader] = [10, 20, 30].map(|at| version(at * SECOND, at));
        world.now = 31 * SECOND;
        assert_eq!(vote(&mut world, 0, first, &adds(1)), Vote::Commit);
        world.commit(&[0], second, &adds(1));
        let reads = found(WriteId::INITIAL, &[first, second]);
        assert_eq!(vote(&mut world, 0, reader, &reads), Vote::Provisional);
        let (key, value) = (Key::from("k"), Some(Value::from("2")));
        let overwritten = vec![Overwritten { key, tag: Some(tag), by: id(second), value }];
        let what = Contents { overwritten, ..Contents::clone(&contents(&[], &[])) };
        // Execution 1, so that its own contents of execution 0 are not taken.
        let executions = vec![(first, 1, Arc::new(what))];
        let fetched = CatchingUp::Fetched { executions, readable_from: 0 };
        let said = world.tell(n(1), n(0), Message::CatchingUp(fetched));
        assert_eq!(votes(&said), [expected], "tag {tag}");
    }
}

#[test]
fn who_found_nothing_but_a_modification_has_not_missed_a_settled_delete() {
    let mut world = World::new(1);
    let (deleted, added) = (version(9 * SECOND, 0), version(51 * SECOND, 1));
    world.now = 9 * SECOND + 1;
    world.commit(&[0], deleted, &contents(&[], &[("k", "")]));
    world.now = 52 * SECOND;
    let finished = Truncating::TruncationFinished { upto: 40 * SECOND, merged: digest(&[deleted]) };
    world.tell(n(2), n(0), Message::Truncating(finished)); // Nothing is settled: the delete is remembered.
    world.commit(&[0], added, &adds(1));
    let modified = vec![id(added)];
    assert_eq!(source(&mut world, 0).0, Source { write: WriteId::INITIAL, modified });
    let reader = version(world.now, 5);
    let cast = vote(&mut world, 0, reader, &found(WriteId::INITIAL, &[added]));
    assert_eq!(cast, Vote::Commit);
}

#[test]
fn below_the_watermark_the_latest_modification_is_a_value() {
    let mut world = World::new(1);
    let [first, second] = [10, 20].map(|at| version(at * SECOND, at));
    world.now = 52 * SECOND;
    world.commit(&[0], first, &adds(1));
    world.commit(&[0], second, &adds(1));
    let merged = digest(&[first, second]);
    let finished = Truncating::TruncationFinished { upto: 40 * SECOND, merged };
    world.tell(n(2), n(0), Message::Truncating(finished));
    assert_eq!(source(&mut world, 0), (id(second).into(), Some(Value::from("2"))));
}

#[test]
fn sources_and_results_that_no_client_may_send_are_dropped() {
    let [first, second, later] = [1, 2, 2 * SECOND].map(|at| version(at, 1));
    let by = WriteId { version: first, tag: 1 };
    let overwritten = vec![Overwritten { key: Key::from("k"), tag: Some(1), by, value: None }];
    let forged = Arc::new(Contents { overwritten, ..Contents::clone(&contents(&[], &[])) });
    let reads = [&[later][..], &[second, first], &[first, first]];
    let reads = reads.map(|modified| found(WriteId::INITIAL, modified));
    for what in reads.into_iter().chain([forged]) {
        let mut world = World::new(1);
        let txn = version(world.now, 5);
        world.forged = true;
        assert!(world.tell(txn.coordinator, n(0), prepare(txn, 0, &what)).is_empty());
        assert_eq!(world.nodes[n(0)].rejected, 1, "{what:?}");
    }
}

#[test]
fn replicas_that_lack_different_modifications_do_not_chase_a_reader() {
    let mut net = morty(1);
    net.get(0, "k");
    let get = net.network.iter().find_map(|(.., message)| match message {
        Message::Request(Request::Get { version, .. }) => Some(*version),
        _ => None,
    });
    let reader = get.expect("a Get");
    net.settle();
    net.told(0);
    let tell = |net: &mut Net, member, at| {
        net.commit(0, &["k"], &[("x", "1")]);
        let found = Source { write: WriteId::INITIAL, modified: vec![id(version(at, 7))] };
        let (key, value) = (Key::from("k"), Some(Value::from("1")));
        let reply = Reply::GetReply { version: reader, key, found, value, instead_of: None };
        net.deliver((n(member), reader.coordinator, Message::Reply(reply)));
        net.told(0)
    };
    assert_eq!(tell(&mut net, 0, 1), ["rewind k = 1"]);
    assert!(tell(&mut net, 1, 2).is_empty(), "within a round trip");
}

#[test]
fn a_reader_of_a_modification_that_is_aborted_runs_again() {
    let mut net = morty(1);
    let added = version(500, 7);
    for member in 0..3 {
        net.tell(added.coordinator, member, prepare(added, 0, &adds(1)));
    }
    net.get(0, "k");
    net.settle();
    assert_eq!(net.told(0), ["value k = 1"]);
    for member in 0..3 {
        let aborts = decide(added, 0, Decision::Abort, &adds(1));
        net.deliver((added.coordinator, n(member), aborts));
    }
    net.settle();
    assert_eq!(net.told(0), ["rewind k = absent"]);
}

#[test]
fn what_the_log_says_of_a_reader_that_waits_is_linear_in_what_it_names() {
    const MANY: u64 = 64;
    let mut world = World::new(1);
    world.now = 100 * SECOND;
    let txns: Vec<Version> = (1..=MANY).map(|at| version(90 * SECOND + at, at)).collect();
    for txn in &txns {
        assert_eq!(vote(&mut world, 0, *txn, &adds(1)), Vote::Commit);
    }
    let reader = version(99 * SECOND, 99);
    assert_eq!(vote(&mut world, 0, reader, &found(WriteId::INITIAL, &txns)), Vote::Provisional);
    for txn in &txns {
        world.tell(txn.coordinator, n(0), decide(*txn, 0, Decision::Commit, &adds(1)));
    }
    let logged = world.nodes[n(0)].records.iter().map(|record| match record {
        Record::Waits { sources, .. } => sources.len(),
        _ => 0,
    });
    let logged: usize = logged.sum();
    assert!(logged > 0 && logged <= 4 * MANY as usize, "{logged}");
}

#[test]
fn one_answer_to_who_fetches_is_not_long() {
    let mut world = World::new(1);
    world.now = 20 * SECOND;
    let long = "x".repeat(200 << 10);
    let txns = [1, 2, 3].map(|at| version(10 * SECOND + at, at));
    for txn in txns {
        world.commit(&[0], txn, &contents(&[], &[(&format!("k{}", txn.timestamp_us), &long)]));
    }
    let fetch = Message::CatchingUp(CatchingUp::Fetch { versions: txns.to_vec() });
    let answers = world.tell(n(1), n(0), fetch);
    let [(.., Message::CatchingUp(CatchingUp::Fetched { executions, .. }))] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(executions.len(), 2);
}

#[test]
fn one_answer_to_who_fetches_what_is_forgotten_is_not_long() {
    let mut world = World::new(1);
    world.now = 31 * SECOND;
    let long = Value::from("x".repeat(200 << 10));
    let (mut forgotten, mut all) = (Vec::new(), Vec::new());
    for (i, key) in (0..).zip(["k1", "k2", "k3"]) {
        let [first, second] = [25, 30].map(|at| version(at * SECOND + i, 0));
        let append = Modification::Append(Value::from("y"));
        world.commit(&[0], first, &modifies(key, Modification::Set(Some(long.clone()))));
        world.commit(&[0], second, &modifies(key, append));
        forgotten.push(first);
        all.extend([first, second]);
    }
    world.now = 52 * SECOND;
    world.settle_below(n(0), 40 * SECOND, digest(&all));
    let fetch = Message::CatchingUp(CatchingUp::Fetch { versions: forgotten });
    let answers = world.tell(n(1), n(0), fetch);
    let [(.., Message::CatchingUp(CatchingUp::Fetched { executions, .. }))] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert!(executions.iter().all(|(.., what)| what.overwritten.len() == 1));
    assert_eq!(executions.len(), 2);
}

#[test]
fn where_too_many_follow_on_a_value_there_is_room_again_when_it_is_overwritten_or_they_are_settled()
{
    let crowds = Crowds { many: 100, most: 2 };
    let options = Options { crowds, ..Options::default() };
    for overwritten in [false, true] {
        let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), options);
        world.now = 60 * SECOND;
        let [first, second, third, value, later] =
            [10, 20, 51, 52, 53].map(|at| version(at * SECOND, at));
        world.commit(&[0], first, &adds(1));
        world.commit(&[0], second, &adds(1));
        assert_eq!(vote(&mut world, 0, third, &adds(1)), Vote::AbandonTentative);
        if overwritten {
            world.commit(&[0], value, &contents(&[], &[("k", "5")]));
        } else {
            let merged = digest(&[first, second]);
            let finished = Truncating::TruncationFinished { upto: 40 * SECOND, merged };
            world.tell(n(2), n(0), Message::Truncating(finished));
        }
        // While they wait for the truncation, they are counted once in so many votes.
        let votes = if overwritten { 1 } else { COUNTED_WHEN_FULL as usize };
        let versions = (0..).map(|i| Version { timestamp_us: later.timestamp_us + i, ..later });
        let mut cast = versions.take(votes).map(|later| vote(&mut world, 0, later, &adds(1)));
        assert!(cast.any(|vote| vote == Vote::Commit), "overwritten: {overwritten}");
    }
}

#[test]
fn a_first_vote_looks_at_all_that_it_names() {
    let mut world = World::new(1);
    world.now = 100 * SECOND;
    let added: Vec<Version> = (1..=40).map(|at| version(at * SECOND, at)).collect();
    for txn in &added {
        assert_eq!(vote(&mut world, 0, *txn, &adds(1)), Vote::Commit);
    }
    let last = added[39];
    world.tell(last.coordinator, n(0), decide(last, 0, Decision::Abort, &adds(1)));
    let reader = version(90 * SECOND, 90);
    let cast = vote(&mut world, 0, reader, &found(WriteId::INITIAL, &added));
    assert_eq!(cast, Vote::AbandonFinal);
}

#[test]
fn modifications_that_are_aborted_do_not_crowd_a_key() {
    for (many, most) in [(4, 10), (1000, 100)] {
        let options = Options { crowds: Crowds { many, most }, ..Options::default() };
        let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), options);
        world.now = 60 * SECOND;
        for i in 1..=3 * most as u64 {
            let txn = version(50 * SECOND + i, i);
            assert_eq!(vote(&mut world, 0, txn, &adds(1)), Vote::Commit, "{i} of {most}");
            world.tell(txn.coordinator, n(0), decide(txn, 0, Decision::Abort, &adds(1)));
        }
    }
}

#[test]
fn a_vote_waits_for_the_earliest_writer_and_without_provisional_votes_for_the_latest_of_many() {
    let (commit, abort) = (Decision::Commit, Decision::Abort);
    for (provisional_votes, at_once, decided, expected) in [
        (false, 2, vec![(0, commit), (2, commit), (1, commit)], Vote::Commit),
        (false, 2, vec![(0, abort), (2, commit)], Vote::AbandonFinal),
        (false, 3, vec![(0, abort)], Vote::AbandonFinal),
        (true, 2, vec![(2, commit), (0, commit), (1, commit)], Vote::Commit),
        (true, 2, vec![(0, abort)], Vote::AbandonFinal),
        // One is looked at that is not decided, so the abort of another one is seen after that one's decision.
        (true, 1, vec![(2, abort), (0, commit), (1, commit)], Vote::AbandonFinal),
    ] {
        let crowds = Crowds { many: 64 * at_once, most: 1000 };
        let re_execution = provisional_votes;
        let options = Options { re_execution, provisional_votes, crowds, ..Options::default() };
        let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), options);
        world.now = 60 * SECOND;
        let added = [10, 20, 30].map(|at| version(at * SECOND, at));
        for txn in added {
            assert_eq!(vote(&mut world, 0, txn, &adds(1)), Vote::Commit);
        }
        let reader = version(40 * SECOND, 40);
        let reads = found(WriteId::INITIAL, &added);
        let mut cast = votes(&world.tell(reader.coordinator, n(0), prepare(reader, 0, &reads)));
        if provisional_votes {
            assert_eq!(cast, [Vote::Provisional]);
            cast.clear();
        }
        for (which, decision) in decided {
            assert_eq!(cast, [], "before {which} is decided");
            let (txn, what) = (added[which], adds(1));
            cast = votes(&world.tell(txn.coordinator, n(0), decide(txn, 0, decision, &what)));
        }
        assert_eq!(cast, [expected]);
    }
}
