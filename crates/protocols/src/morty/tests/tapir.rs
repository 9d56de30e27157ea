//! TAPIR: validation at every replica, versions chosen at the commit, and decisions of fast quorums that a recoverer sees
//! a part of.

mod cleared;
mod in_doubt;
mod stopped;

use std::sync::Arc;

use serried_model::transactions::Output;
use serried_parts::WriteId;

use super::by_hand::{contents, decide, finalize, prepare, version};
use super::world::{SECOND, World, digest, n, votes};
use super::*;
use crate::Mutated;
use crate::morty::message::{Ballot, Conflict, Contents, Known, LateVote, Read, Settlement};
use crate::morty::{Mutation, Options};
use crate::tapir::OPTIONS;

fn tapir(clients: usize) -> Net {
    Net::new(OPTIONS, clients)
}

/// What a client was told its versions are, in order.
fn versions(net: &mut Net, client: u64) -> Vec<Version> {
    net.hear();
    let began = net.outputs.iter().filter(|(other, _)| *other == client);
    let version = |(_, output): &(u64, Output)| match output {
        Output::Began(version) => Some(*version),
        _ => None,
    };
    began.filter_map(version).collect()
}

fn is_prepare(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Prepare { .. }))
}

#[test]
fn a_transaction_without_conflicts_commits_in_one_round_and_its_writes_are_sent_once() {
    let mut net = tapir(1);
    net.get(0, "x");
    net.settle();
    net.put(0, "x", "1");
    assert!(net.network.is_empty(), "nobody reads it before it is committed");
    net.commit(0, &["x"], &[("x", "1")]);
    let lines = net.trace();
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!((count(" Prepare 0"), count("PrepareReply 0 Commit"), count("Finalize")), (3, 3, 0));
    let versions = versions(&mut net, 0);
    assert!(versions.len() == 2 && versions[0] < versions[1], "{versions:?}");
    assert_eq!(net.told(0), ["value x = absent", "committed"]);
    assert!(net.nodes.values().all(|replica| replica.undecided() == 0));
}

#[test]
fn what_is_prepared_is_not_read_and_is_in_the_way_of_readers() {
    let mut net = tapir(2);
    net.commit(0, &[], &[("x", "1")]);
    while let Some((from, to, message)) = net.network.pop_front() {
        if is_prepare(&message) {
            net.deliver((from, to, message));
        }
    }
    let held: Vec<_> = net.network.drain(..).collect();
    net.get(1, "x");
    net.settle();
    net.commit(1, &["x"], &[("y", "1")]);
    net.settle();
    let told = net.told(1);
    assert_eq!(told, ["value x = absent", "aborted over [\"x\"]"]);
    assert!(held.is_empty(), "the votes were not delivered: {held:?}");
}

#[test]
fn what_a_replica_has_voted_down_is_in_nobodys_way() {
    let (reader, client) = (version(500, 1), coordinator_id(1));
    let mut net = tapir(0);
    net.tell(client, 0, prepare(version(400, 0), 0, &contents(&[], &[("x", "1")])));
    let missed = contents(&[("x", Version::INITIAL)], &[("y", "1")]);
    let vote = |answers: &[(NodeId, Message)]| match answers {
        [(_, Message::Reply(Reply::PrepareReply { vote, .. }))] => *vote,
        other => panic!("{other:?}"),
    };
    assert_eq!(vote(&net.tell(client, 0, prepare(reader, 0, &missed))), Vote::AbandonTentative);
    let reads_y = contents(&[("y", Version::INITIAL)], &[]);
    let other = version(600, 2);
    for restarts in [false, true] {
        if restarts {
            net.restart(0);
            net.network.clear();
        }
        let next = Version { timestamp_us: other.timestamp_us + u64::from(restarts), ..other };
        let answers = net.tell(other.coordinator, 0, prepare(next, 0, &reads_y));
        assert_eq!(vote(&answers), Vote::Commit, "after a restart: {restarts}");
    }
}

/// The Prepare of a write is late, and a reader with a later version is prepared, and not decided yet. Also returns what is
/// late, and what comes of the reader.
fn behind_a_reader() -> (Net, Vec<Envelope>, Vec<Envelope>) {
    let mut net = tapir(2);
    net.commit(0, &[], &[("x", "1")]);
    let late: Vec<_> = net.network.drain(..).collect();
    net.get(1, "x");
    net.settle();
    net.commit(1, &["x"], &[("y", "1")]);
    let mut held = Vec::new();
    while let Some(envelope) = net.network.pop_front() {
        match is_prepare(&envelope.2) {
            true => net.deliver(envelope),
            false => held.push(envelope),
        }
    }
    (net, late, held)
}

#[test]
fn a_write_that_a_later_reader_would_have_missed_is_prepared_again_after_that_reader() {
    let (mut net, late, held) = behind_a_reader();
    net.network.extend(late);
    net.settle();
    let [writer, reader] = [0, 1].map(|client| *versions(&mut net, client).last().unwrap());
    assert!(writer > reader, "{writer} after {reader}");
    assert_eq!(net.told(0), ["committed"]);
    net.network.extend(held);
    net.settle();
    assert_eq!(net.told(1), ["value x = absent", "committed"]);
    assert_eq!(
        net.nodes[0].record(&Key::from("x")).unwrap().committed.len(),
        1,
        "took effect once"
    );
    assert!(net.nodes.values().all(|replica| replica.undecided() == 0));
}

#[test]
fn a_write_goes_round_a_committed_reader_at_once() {
    let mut net = tapir(2);
    net.commit(0, &[], &[("x", "1")]);
    let late: Vec<_> = net.network.drain(..).collect();
    net.get(1, "x");
    net.settle();
    net.commit(1, &["x"], &[("y", "1")]);
    net.settle();
    assert_eq!(net.told(1), ["value x = absent", "committed"]);
    net.network.extend(late);
    let lines = net.trace();
    assert!(lines.iter().any(|line| line.ends_with("PrepareReply 0 AbandonFinal")));
    assert!(!lines.iter().any(|line| line.contains("Finalize")), "{lines:#?}");
    assert_eq!(net.told(0), ["committed"]);
}

#[test]
fn a_transaction_that_has_missed_a_write_is_not_prepared_again() {
    let mut net = tapir(2);
    net.get(0, "x");
    net.get(1, "x");
    net.settle();
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    net.commit(1, &["x"], &[("x", "2")]);
    net.settle();
    assert_eq!(versions(&mut net, 1).len(), 2, "the one that reads, and one to commit");
    assert_eq!(net.told(0), ["value x = absent", "committed"]);
    assert_eq!(net.told(1), ["value x = absent", "aborted over [\"x\"]"]);
}

#[test]
fn a_version_is_later_than_what_was_read_although_the_clock_is_behind() {
    let mut net = tapir(1);
    let ahead = version(200_000, 7);
    let wrote = contents(&[], &[("x", "1")]);
    for member in 0..3 {
        net.tell(ahead.coordinator, member, prepare(ahead, 0, &wrote));
        net.tell(ahead.coordinator, member, decide(ahead, 0, Decision::Commit, &wrote));
    }
    net.get(0, "x");
    net.settle();
    net.commit(0, &["x"], &[("x", "2")]);
    net.settle();
    assert!(*versions(&mut net, 0).last().unwrap() > ahead);
    assert_eq!(net.told(0), ["value x = 1", "committed"]);
}

/// Two transactions that conflict: the later one has not read what the earlier one writes.
fn conflicting() -> [(Version, Arc<Contents>); 2] {
    [
        (version(2_000_000, 0), contents(&[], &[("x", "t")])),
        (version(2_000_100, 1), contents(&[("x", Version::INITIAL)], &[("y", "u")])),
    ]
}

fn five(mutation: Mutated<Mutation>) -> World {
    let group = Group::new(5, Duration::from_millis(1));
    let mut world = World::of_options(group, Options { mutation, ..OPTIONS });
    world.now = 2_000_200;
    world
}

/// These members are asked to vote on a transaction. Returns their votes.
fn ask(world: &mut World, members: &[usize], (txn, what): &(Version, Arc<Contents>)) -> Vec<Vote> {
    let answers = members
        .iter()
        .map(|member| world.tell(txn.coordinator, n(*member), prepare(*txn, 0, what)));
    answers.flat_map(|answers| votes(&answers)).collect()
}

/// A transaction that has found nothing in `k`, as of a time in seconds, and writes `y`.
fn reads_nothing_as_of(at: u64) -> Arc<Contents> {
    let nothing = WriteId { version: Version::at(at * SECOND), tag: 0 };
    let reads = vec![Read { key: Key::from("k"), found: nothing.into() }];
    Arc::new(Contents { reads, ..Contents::clone(&contents(&[], &[("y", "1")])) })
}

#[test]
fn nobody_commits_a_reader_of_nothing_that_may_have_missed_a_delete_which_is_forgotten() {
    for members in [3, 5] {
        let group = Group::new(members, Duration::from_millis(1));
        let mut world = World::of_options(group, OPTIONS);
        let all: Vec<usize> = (0..members).collect();
        let delete = version(14 * SECOND, 0);
        world.now = 15 * SECOND;
        world.commit(&all, delete, &contents(&[], &[("k", "")]));
        world.now = 100 * SECOND;
        // All but the last have settled and forgotten it. The last is a little later.
        for member in 0..members - 1 {
            world.settle_below(n(member), 80 * SECOND, digest(&[delete]));
        }
        world.network.clear();
        let [first, second] = [version(world.now, 5), version(world.now + 1, 6)];
        let missed = ask(&mut world, &all, &(first, reads_nothing_as_of(10)));
        assert!(!missed.contains(&Vote::Commit), "{missed:?}");
        let after = ask(&mut world, &all, &(second, reads_nothing_as_of(80)));
        assert_eq!(after, vec![Vote::Commit; members], "it has found nothing after the delete");
    }
}

#[test]
fn a_write_that_is_missing_in_a_fetched_commit_is_not_said_to_be_gone() {
    let writer = version(900_000, 0);
    for (at, vote) in [(15, Vote::AbandonTentative), (17, Vote::AbandonFinal)] {
        let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
        world.now = 17 * SECOND;
        let fetched = Message::CatchingUp(CatchingUp::Fetched {
            executions: vec![(writer, 0, contents(&[], &[]))],
            readable_from: 16 * SECOND,
        });
        world.tell(n(1), n(0), fetched);
        let reader = version(at * SECOND, 5);
        let what = contents(&[("k", writer)], &[("y", "1")]);
        assert_eq!(ask(&mut world, &[0], &(reader, what)), [vote], "{at}");
    }
}

#[test]
fn a_replica_that_has_fetched_what_it_lacked_does_not_judge_who_found_nothing_before() {
    for (lacks_before, vote) in [(16, Vote::AbandonTentative), (0, Vote::Commit)] {
        let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
        world.now = 17 * SECOND;
        let readable_from = lacks_before * SECOND;
        let fetched =
            Message::CatchingUp(CatchingUp::Fetched { executions: vec![], readable_from });
        world.tell(n(1), n(0), fetched);
        let reader = (version(17 * SECOND, 5), reads_nothing_as_of(15));
        assert_eq!(ask(&mut world, &[0], &reader), [vote], "{lacks_before}");
    }
}

/// One conflict is certain, the other is not.
#[test]
fn a_conflict_that_is_certain_decides_in_whichever_order_they_are_found() {
    for certain in ["x", "y"] {
        let mut net = tapir(0);
        for (us, key) in [(500, "x"), (600, "y")] {
            let (txn, wrote) = (version(us, us), contents(&[], &[(key, "1")]));
            net.tell(txn.coordinator, 0, prepare(txn, 0, &wrote));
            if key == certain {
                net.tell(txn.coordinator, 0, decide(txn, 0, Decision::Commit, &wrote));
            }
        }
        let missed = contents(&[("x", Version::INITIAL), ("y", Version::INITIAL)], &[]);
        let reader = version(700, 7);
        match &net.tell(reader.coordinator, 0, prepare(reader, 0, &missed))[..] {
            [(_, Message::Reply(Reply::PrepareReply { vote, .. }))] => {
                assert_eq!(*vote, Vote::AbandonFinal, "{certain}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_transaction_that_somebody_was_told_has_aborted_is_not_tried_at_a_later_version() {
    let (mut net, late, _) = behind_a_reader();
    // Somebody asks how the writer ends before it is prepared anywhere.
    let writer = *versions(&mut net, 0).last().unwrap();
    for member in 0..3 {
        let inquire = Message::Request(Request::Inquire { version: writer });
        net.network.push_back((NodeId(99), NodeId(member), inquire));
    }
    net.settle();
    net.network.extend(late);
    net.settle();
    let told = net.told(0);
    assert!(told.len() == 1 && told[0].starts_with("aborted"), "{told:?}");
    assert_eq!(versions(&mut net, 0), []);
}

#[test]
fn a_client_does_not_follow_a_replica_into_the_far_future() {
    // Clocks may differ by two seconds, and the replica's is ahead of the writer's, which is ahead of this client's.
    for (us, expected) in [
        (u64::MAX, "ClockSkew { ahead_us: -"),
        (6 * SECOND, "ClockSkew { ahead_us: -5"),
        (3 * SECOND, "value x = 1"),
    ] {
        let mut net = tapir(1);
        net.get(0, "x");
        net.network.clear();
        answer_get(&mut net, 0, WriteId { version: Version::at(us), tag: 1 }, "1");
        let told = net.told(0);
        assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
        net.commit(0, &[], &[("x", "2")]);
        net.settle();
        let last = *versions(&mut net, 0).last().unwrap();
        assert_eq!(net.told(0), ["committed"]);
        assert!(last.timestamp_us < SECOND, "{last}");
    }
}

/// A replica answers the first client's read of `x`.
fn answer_get(net: &mut Net, member: usize, write: WriteId, value: &str) {
    let version = *versions(net, 0).last().expect("a version");
    let (key, value) = (Key::from("x"), Some(Value::from(value)));
    let reply = Reply::GetReply { version, key, found: write.into(), value, instead_of: None };
    net.deliver((n(member), coordinator_id(0), Message::Reply(reply)));
}

#[test]
fn a_transaction_is_not_prepared_again_in_the_far_future() {
    let mut net = tapir(1);
    net.commit(0, &[], &[("x", "1")]);
    let reader = Version::at(10_000 * SECOND);
    vote_on_first(&mut net, &[(0, Vote::AbandonFinal, Some(reader))]);
    assert_eq!(net.told(0), ["aborted over [\"x\"]"]);
    net.commit(0, &[], &[("x", "1")]);
    net.settle();
    let last = *versions(&mut net, 0).last().unwrap();
    assert!(last.timestamp_us < SECOND, "{last}");
    assert_eq!(net.told(0), ["committed"]);
}

#[test]
fn a_transaction_is_prepared_again_after_the_latest_reader_that_is_known() {
    let [earlier, later] = [2 * SECOND, 3 * SECOND].map(Version::at);
    for readers in [[earlier, later], [later, earlier]] {
        let mut net = tapir(1);
        net.commit(0, &[], &[("x", "1")]);
        let [first, second] = readers.map(Some);
        let votes = [(0, Vote::AbandonTentative, first), (1, Vote::AbandonFinal, second)];
        vote_on_first(&mut net, &votes);
        let last = *versions(&mut net, 0).last().unwrap();
        assert!(last > later, "{last}");
    }
}

#[test]
fn a_replica_names_the_latest_reader_that_is_in_the_way_of_all_writes() {
    let [first, second, third] = [500, 600, 700].map(|us| version(us, us));
    let reads = |key| contents(&[(key, Version::INITIAL)], &[]);
    let readers_of_both = [
        [(first, "x", false), (second, "y", false), (third, "y", true)],
        [(first, "x", false), (second, "x", true), (third, "x", false)],
        [(first, "y", false), (second, "y", false), (third, "x", false)],
        [(first, "y", false), (second, "x", false), (third, "x", true)],
    ];
    for readers in readers_of_both {
        let mut net = tapir(0);
        for (txn, key, commits) in readers {
            net.tell(txn.coordinator, 0, prepare(txn, 0, &reads(key)));
            if commits {
                net.tell(txn.coordinator, 0, decide(txn, 0, Decision::Commit, &reads(key)));
            }
        }
        let writer = version(400, 1);
        let both = contents(&[], &[("x", "1"), ("y", "1")]);
        let answers = net.tell(writer.coordinator, 0, prepare(writer, 0, &both));
        let expected = match readers.iter().any(|(.., commits)| *commits) {
            true => Vote::AbandonFinal,
            false => Vote::AbandonTentative,
        };
        match &answers[..] {
            [(_, Message::Reply(Reply::PrepareReply { vote, conflict: Some(conflict), .. }))] => {
                assert_eq!((*vote, conflict.readers), (expected, Some(third)), "{readers:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_answer_of_a_second_replica_to_a_read_changes_nothing() {
    let mut net = tapir(1);
    net.get(0, "x");
    net.network.clear();
    answer_get(&mut net, 0, WriteId { version: Version::at(10), tag: 1 }, "1");
    answer_get(&mut net, 1, WriteId { version: Version::at(20), tag: 1 }, "2");
    assert_eq!(net.told(0), ["value x = 1"]);
}

/// The votes of replicas on the transaction of the first client that is prepared; what they are asked is lost.
fn vote_on_first(net: &mut Net, votes: &[(usize, Vote, Option<Version>)]) {
    net.hear();
    net.network.clear();
    let version = *versions(net, 0).last().expect("a version");
    for (member, vote, readers) in votes {
        let conflict = Some(Conflict { readers: *readers, ..Conflict::over(Key::from("x")) });
        let reply = Reply::PrepareReply { version, eid: 0, vote: *vote, conflict };
        net.deliver((n(*member), coordinator_id(0), Message::Reply(reply)));
    }
}

#[test]
fn a_transaction_is_prepared_again_three_times_and_not_if_anything_but_readers_is_in_its_way() {
    let mut net = tapir(1);
    net.commit(0, &[], &[("x", "1")]);
    for tried in 0..4 {
        assert_eq!(
            versions(&mut net, 0).len(),
            2 + tried,
            "one to begin with, and one for each try"
        );
        let reader = *versions(&mut net, 0).last().unwrap();
        vote_on_first(&mut net, &[(0, Vote::AbandonFinal, Some(reader))]);
    }
    assert_eq!(net.told(0), ["aborted over [\"x\"]"]);
    net.commit(0, &[], &[("x", "1")]);
    let reader = *versions(&mut net, 0).last().unwrap();
    let votes = [(0, Vote::AbandonTentative, None), (1, Vote::AbandonFinal, Some(reader))];
    vote_on_first(&mut net, &votes);
    assert_eq!(net.told(0), ["aborted over [\"x\"]"]);
}

#[test]
fn a_client_leaves_a_replica_that_keeps_lacking_what_others_know() {
    let mut net = tapir(1);
    for number in 0..10 {
        assert_eq!(aborts_after_reading(&mut net, 1), n(usize::from(number == 9)), "{number}");
    }
}

/// A replica lacks a decision every now and then, because it is on its way.
#[test]
fn a_client_stays_with_a_replica_from_which_transactions_commit_in_between() {
    let mut net = tapir(1);
    for number in 0..30 {
        if number % 4 == 3 {
            net.commit(0, &[], &[("y", "1")]);
            net.settle();
            assert_eq!(net.told(0), ["committed"]);
        } else {
            assert_eq!(aborts_after_reading(&mut net, 1), n(0), "{number}");
        }
    }
}

/// A replica from which was read that nothing is there has settled so little that another one has forgotten more.
#[test]
fn a_client_leaves_a_replica_at_once_if_another_has_forgotten_what_that_one_has_not_settled() {
    for (forgotten, next) in [(false, 0), (true, 1)] {
        let mut net = tapir(1);
        assert_eq!(reads_from(&mut net), n(0));
        net.settle();
        net.commit(0, &["x"], &[("x", "1")]);
        net.hear();
        net.network.clear();
        let version = *versions(&mut net, 0).last().unwrap();
        let conflict = Conflict { forgotten, ..Conflict::over(Key::from("x")) };
        for (member, vote) in [(2, Vote::AbandonTentative), (1, Vote::AbandonFinal)] {
            let conflict = Some(conflict.clone());
            let reply = Reply::PrepareReply { version, eid: 0, vote, conflict };
            net.deliver((n(member), coordinator_id(0), Message::Reply(reply)));
        }
        assert_eq!(net.told(0).last().unwrap(), "aborted over [\"x\"]");
        assert_eq!(reads_from(&mut net), n(next));
    }
}

#[test]
fn a_client_stays_with_a_replica_that_knows_of_the_conflicts() {
    let mut net = tapir(1);
    for number in 0..30 {
        assert_eq!(aborts_after_reading(&mut net, 0), n(0), "{number}");
    }
}

#[test]
fn a_client_also_leaves_a_replica_whose_votes_come_when_the_transactions_have_aborted() {
    for (late, stays) in
        [(Vote::AbandonTentative, false), (Vote::Commit, false), (Vote::AbandonFinal, true)]
    {
        let mut net = tapir(1);
        for number in 0..10 {
            let asked = reads_from(&mut net);
            assert_eq!(asked, n(usize::from(number == 9 && !stays)), "{number} {late:?}");
            net.settle();
            net.commit(0, &["x"], &[("x", "1")]);
            net.hear();
            let version = *versions(&mut net, 0).last().unwrap();
            vote_on_first(&mut net, &[(1, Vote::AbandonFinal, None)]);
            assert_eq!(net.told(0).last().unwrap(), "aborted over [\"x\"]");
            let reply = Reply::PrepareReply { version, eid: 0, vote: late, conflict: None };
            net.deliver((n(0), coordinator_id(0), Message::Reply(reply)));
            net.network.clear();
        }
    }
}

/// The first client reads in a new transaction. Returns which replica it asks.
fn reads_from(net: &mut Net) -> NodeId {
    net.get(0, "x");
    let asked = net.network.iter().find_map(|(_, to, message)| {
        matches!(message, Message::Request(Request::Get { .. })).then_some(*to)
    });
    asked.expect("it reads")
}

/// A transaction of the first client reads, and is aborted because this replica knows of a conflict. Returns which replica
/// it has read from.
fn aborts_after_reading(net: &mut Net, knows: usize) -> NodeId {
    let asked = reads_from(net);
    net.settle();
    net.commit(0, &["x"], &[("x", "1")]);
    let votes = [(0, Vote::AbandonTentative, None), (knows, Vote::AbandonFinal, None)];
    vote_on_first(net, &votes[votes.len() - 1 - knows..]);
    assert_eq!(net.told(0).last().unwrap(), "aborted over [\"x\"]");
    net.network.clear();
    asked
}

#[test]
fn what_is_abandoned_is_in_nobodys_way() {
    let (mut world, [t, u]) = (five(Mutated::NONE), conflicting());
    assert_eq!(ask(&mut world, &[0], &t), [Vote::Commit]);
    world.tell(t.0.coordinator, n(0), finalize(t.0, 0, Proposal::Abandon));
    assert_eq!(ask(&mut world, &[0], &u), [Vote::Commit]);
}

#[test]
fn reads_of_nothing_do_not_add_up() {
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
    let mut readers: Vec<Version> = Vec::new();
    for i in 1..100 {
        world.now = (2 * i + 10) * SECOND;
        let settled: Vec<Version> =
            readers.iter().copied().filter(|reader| reader.timestamp_us < 2 * i * SECOND).collect();
        world.settle_below(n(0), 2 * i * SECOND, digest(&settled));
        let reader = version(world.now, 5);
        let nothing = WriteId { version: Version::at(2 * i * SECOND), tag: 0 };
        let reads = vec![Read { key: Key::from("k"), found: nothing.into() }];
        let what = Arc::new(Contents { reads, ..Contents::clone(&contents(&[], &[])) });
        world.commit(&[0], reader, &what);
        world.network.clear();
        readers.push(reader);
        let kept = world.nodes[n(0)].record(&Key::from("k")).unwrap().committed_reads.len();
        assert!(kept <= 8, "{kept} after {i}");
    }
}

#[test]
fn who_finds_nothing_is_told_from_when_on_nothing_was_there() {
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
    let delete = version(14 * SECOND, 0);
    world.now = 15 * SECOND;
    world.commit(&[0], delete, &contents(&[], &[("k", "")]));
    let found = |world: &mut World, key: &str| {
        let (version, key) = (version(world.now, 9), Key::from(key));
        let get = Message::Request(Request::Get { version, key });
        match &world.tell(coordinator_id(9), n(0), get)[..] {
            [(.., Message::Reply(Reply::GetReply { found, value: None, .. }))] => found.write,
            other => panic!("{other:?}"),
        }
    };
    let absent = |version| WriteId { version, tag: 0 };
    assert_eq!(found(&mut world, "k"), absent(delete));
    assert_eq!(found(&mut world, "other"), absent(Version::INITIAL));
    world.now = 30 * SECOND;
    world.settle_below(n(0), 20 * SECOND, digest(&[delete]));
    let settled = absent(Version::at(20 * SECOND));
    assert_eq!((found(&mut world, "k"), found(&mut world, "other")), (settled, settled));
}
