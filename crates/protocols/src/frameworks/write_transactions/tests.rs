//! Replicas and clients whose messages are moved by hand.

use core::time::Duration;

use serried_actor::{Group, Settings};
use serried_model::snapshots::{Operation, Outcome, Output, Own, Read, Written};
use serried_model::{Key, NodeId, Value, Versionstamp, Write, WriteToken};

use super::{
    Answer, Clock, Coordinator, Found, Message, Mutation, Peer, Reads, Replica, Request,
    TransactionId,
};
use crate::Mutated;
use crate::testing::{self, Envelope};

mod clients;
mod copies;
mod entries;
mod eras;

type Net = testing::Net<Replica, Coordinator>;

/// A client that the test plays.
const STRANGER: NodeId = NodeId(NodeId::FIRST_COORDINATOR + 1000);
/// A session of it.
const SESSION: u64 = 77;
/// By how many ticks a version clock advances in a second.
const TICKS_A_SECOND: u64 = 1_000_000_000 >> 8;
/// Four election time-outs: after that, a transaction is overdue.
const OVERDUE: Duration = Duration::from_millis(1500);

fn group(members: usize) -> Group {
    Group::new(members, Duration::from_millis(1)).with_partitions(2)
}

fn replica(id: NodeId, members: usize, mutation: Mutated<Mutation>) -> Replica {
    Replica::new(id, group(members), &Settings::default(), mutation)
}

/// Two partitions, and a client that reads like this.
fn net_of(members: usize, reads: Reads, mutation: Mutated<Mutation>) -> Net {
    let mut net: Net = testing::Net::new(2, members, |id| replica(id, members, mutation))
        .with_clients(1, |_| {
            Coordinator::new(group(members), &Settings::default(), reads, mutation)
        });
    net.now = 1000;
    net.start();
    net.pass(Duration::from_millis(20));
    net
}

fn net(members: usize) -> Net {
    net_of(members, Reads::AtSafeTime, Mutated::NONE)
}

/// A key of a partition.
fn key(partition: u16, number: usize) -> Key {
    let keys = (0u32..).map(|number| Key::from(number.to_be_bytes()));
    let mut keys = keys.filter(|key| group(1).partition_of(key) == partition);
    keys.nth(number).expect("each partition has keys")
}

fn write(key: Key, value: &str) -> Write {
    Write { key, value: Some(Value::from(value)) }
}

fn id(requested: u64) -> TransactionId {
    TransactionId { requested: Versionstamp(requested << 10), session: SESSION }
}

/// The part of a transaction that a partition is sent, if both take part, and the first one coordinates.
fn part(id: TransactionId, partition: u16, value: &str) -> Request {
    Request::Write {
        id,
        participants: vec![0, 1],
        writes: vec![write(key(partition, 0), value)],
        era: None,
    }
}

fn alone(id: TransactionId, partition: u16, value: &str) -> Request {
    let writes = vec![write(key(partition, 0), value)];
    Request::Write { id, participants: vec![partition], writes, era: None }
}

fn read(at: Versionstamp, written: Versionstamp, partition: u16) -> Request {
    Request::Read { at, session: SESSION, written, keys: vec![key(partition, 0)] }
}

/// The replica that leads a partition.
fn leader(net: &Net, partition: u16) -> NodeId {
    let leads = |id: &NodeId| id.partition() == partition && net.gauge(id, "leads") == 1;
    // One that has crashed has applied less than its successor.
    let ids = net.ids().into_iter().filter(leads);
    ids.max_by_key(|id| net.gauge(id, "applied_slots")).expect("one leads")
}

/// Sends a request to the leader of a partition, as a client that the test plays.
fn send(net: &mut Net, partition: u16, number: u64, request: Request) {
    let to = leader(net, partition);
    let clock = Versionstamp::ZERO;
    net.deliver((STRANGER, to, Message::Request { number, clock, request }));
}

/// The answers that have arrived since the last call.
fn answers(net: &mut Net) -> Vec<(u64, Answer)> {
    let delivered = core::mem::take(&mut net.delivered);
    let answer = |message| match message {
        Message::Reply { number, answer } => Some((number, answer)),
        _ => None,
    };
    delivered.into_iter().filter_map(|(_, _, message)| answer(message)).collect()
}

/// The answer to a request, once all messages have arrived.
fn ask(net: &mut Net, partition: u16, request: Request) -> Answer {
    answers(net);
    send(net, partition, 7, request);
    net.pass(Duration::ZERO);
    let answers = answers(net);
    let [(7, answer)] = &answers[..] else { panic!("one answer: {answers:?}") };
    answer.clone()
}

fn clock(net: &mut Net, partition: u16) -> Clock {
    match ask(net, partition, Request::ReadClock) {
        Answer::Clock(clock) => clock,
        other => panic!("{other:?}"),
    }
}

fn committed(answer: &Answer) -> Versionstamp {
    match answer {
        Answer::Committed { commit, .. } => *commit,
        other => panic!("{other:?}"),
    }
}

fn value(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Values { found, .. } => found[0].value.as_ref().map(Value::to_string),
        other => panic!("{other:?}"),
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_string())
}

/// Carries out a transaction of both partitions. Returns its commit time.
fn transact(net: &mut Net, id: TransactionId, text: &str) -> Versionstamp {
    answers(net);
    send(net, 0, 1, part(id, 0, text));
    send(net, 1, 2, part(id, 1, text));
    net.pass(Duration::ZERO);
    let answers = answers(net);
    let [(_, one), (_, other)] = &answers[..] else { panic!("two answers: {answers:?}") };
    assert_eq!(committed(one), committed(other));
    committed(one)
}

fn is_peer(envelope: &Envelope<Message>, wanted: fn(&Peer) -> bool) -> bool {
    matches!(&envelope.2, Message::Peer { peer, .. } if wanted(peer))
}

#[test]
fn a_transaction_commits_at_both_partitions_at_one_time_and_is_found_there() {
    for members in [1, 3] {
        let mut net = net(members);
        let commit = transact(&mut net, id(1), "a");
        for partition in [0, 1] {
            let Clock { safe, shown, .. } = clock(&mut net, partition);
            assert!(safe >= commit && shown >= safe, "nothing is pending");
            let found = ask(&mut net, partition, read(commit, Versionstamp::ZERO, partition));
            assert_eq!(value(&found), some("a"));
            let before = Versionstamp(commit.0 - 1);
            let found = ask(&mut net, partition, read(before, Versionstamp::ZERO, partition));
            assert_eq!(value(&found), None);
            let found = ask(&mut net, partition, read(before, commit, partition));
            assert_eq!(value(&found), some("a"), "it is the session's own");
        }
        net.pass(OVERDUE);
        for partition in [0, 1] {
            assert_eq!(net.gauge(leader(&net, partition), "open_transactions"), 0);
        }
    }
}

/// Whether a safe time that was shown while a transaction is pending is before its commit time.
fn safe_times_hold(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(1, Reads::AtSafeTime, mutation);
    // The clock of the cohort is ahead.
    ask(&mut net, 1, alone(id(1 << 22), 1, "a"));
    send(&mut net, 1, 1, part(id(9), 1, "b"));
    net.pass(Duration::from_millis(50));
    let Clock { safe, .. } = clock(&mut net, 1);
    send(&mut net, 0, 2, part(id(9), 0, "b"));
    net.pass(Duration::ZERO);
    let commits: Vec<_> = answers(&mut net).iter().map(|(_, answer)| committed(answer)).collect();
    assert_eq!(commits.len(), 2);
    commits[0] > safe
}

#[test]
fn what_is_pending_holds_the_safe_time_back() {
    assert!(safe_times_hold(Mutated::NONE));
    assert!(!safe_times_hold(Mutated::by(Mutation::PendingNotCounted)));
}

/// Whether the commit time is after what both partitions have shown before they have prepared the transaction.
fn commits_after_votes(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(1, Reads::AtSafeTime, mutation);
    // The clock of the cohort is ahead.
    transact(&mut net, id(1), "a");
    ask(&mut net, 1, alone(id(1 << 22), 1, "b"));
    let Clock { safe, .. } = clock(&mut net, 1);
    transact(&mut net, id(5), "c") > safe
}

#[test]
fn a_transaction_commits_after_the_pending_times_of_all_participants() {
    assert!(commits_after_votes(Mutated::NONE));
    assert!(!commits_after_votes(Mutated::by(Mutation::VotesIgnored)));
}

/// Whether what a new leader commits is after what the former one has shown as safe.
fn begins_at_the_bound(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(3, Reads::AtSafeTime, mutation);
    transact(&mut net, id(1), "a");
    net.pass(Duration::from_secs(3));
    let Clock { safe, .. } = clock(&mut net, 0);
    net.crash(leader(&net, 0));
    // No client tells the new leader what the former one has shown.
    net.pass(Duration::from_secs(2));
    committed(&ask(&mut net, 0, alone(id(9), 0, "b"))) > safe
}

#[test]
fn a_new_leader_begins_after_all_that_former_ones_have_shown() {
    assert!(begins_at_the_bound(Mutated::NONE));
    assert!(!begins_at_the_bound(Mutated::by(Mutation::BoundForgotten)));
}

/// A client sends its writes to one partition only.
fn half_way(participant: u16) -> Net {
    let mut net = net(3);
    send(&mut net, participant, 1, part(id(9), participant, "a"));
    net.pass(Duration::from_millis(100));
    assert_eq!(answers(&mut net), []);
    let before = clock(&mut net, participant);
    assert!(before.safe < before.shown, "it is pending");
    net
}

#[test]
fn a_transaction_whose_client_stops_half_way_is_undone_everywhere() {
    for participant in [0, 1] {
        let mut net = half_way(participant);
        net.pass(OVERDUE);
        let answers = answers(&mut net);
        assert!(matches!(answers[..], [(1, Answer::Undone { .. })]), "{answers:?}");
        let Clock { safe, shown, .. } = clock(&mut net, participant);
        assert_eq!(safe, shown);
        // What the client has sent to the other one comes late.
        let other = 1 - participant;
        let late = ask(&mut net, other, part(id(9), other, "a"));
        assert!(matches!(late, Answer::Undone { .. }), "{late:?}");
        net.pass(OVERDUE);
        let latest = clock(&mut net, other).safe;
        assert_eq!(value(&ask(&mut net, other, read(latest, latest, other))), None);
        assert_eq!(net.gauge(leader(&net, other), "open_transactions"), 0);
    }
}

#[test]
fn a_transaction_whose_second_half_is_late_commits() {
    for participant in [0, 1] {
        let mut net = half_way(participant);
        send(&mut net, 1 - participant, 2, part(id(9), 1 - participant, "a"));
        net.pass(Duration::ZERO);
        let answers = answers(&mut net);
        assert!(answers.iter().all(|(_, answer)| matches!(answer, Answer::Committed { .. })));
        assert_eq!(answers.len(), 2);
    }
}

#[test]
fn new_leaders_finish_what_former_ones_have_begun() {
    for (crashed, lost) in [(0, false), (0, true), (1, false), (1, true)] {
        let mut net = net(3);
        let lost: fn(&Peer) -> bool = match lost {
            true => |peer| matches!(peer, Peer::Vote { .. }),
            false => |peer| matches!(peer, Peer::Commit(..)),
        };
        send(&mut net, 0, 1, part(id(9), 0, "a"));
        send(&mut net, 1, 2, part(id(9), 1, "a"));
        for _ in 0..5 {
            while let Some(envelope) = net.network.pop_front() {
                if !is_peer(&envelope, lost) {
                    net.deliver(envelope);
                }
            }
            net.ids().into_iter().for_each(|id| net.fire_due(id));
        }
        let former = leader(&net, crashed);
        net.crash(former);
        net.pass(Duration::from_secs(3));
        // The clients ask again.
        let commits = [0, 1]
            .map(|partition| committed(&ask(&mut net, partition, part(id(9), partition, "a"))));
        assert_eq!(commits[0], commits[1]);
        for partition in [0, 1] {
            let found = ask(&mut net, partition, read(commits[0], commits[0], partition));
            assert_eq!(value(&found), some("a"));
            assert_eq!(net.gauge(leader(&net, partition), "open_transactions"), 0);
        }
        net.restart(former, replica(former, 3, Mutated::NONE));
        net.pass(Duration::from_secs(1));
    }
}

#[test]
fn replicas_that_restart_remember_what_is_prepared_and_what_was_decided() {
    let mut net = net(1);
    let commit = transact(&mut net, id(1), "a");
    send(&mut net, 0, 1, part(id(9), 0, "b"));
    // Everything gets into the store, and the log is trimmed.
    for _ in 0..20 {
        net.pass(Duration::from_millis(100));
        // Otherwise it would be undone.
        net.network.retain(|envelope| !is_peer(envelope, |peer| matches!(peer, Peer::Ask(_))));
        if net.gauge(leader(&net, 0), "pending_transactions") == 0 {
            break;
        }
    }
    let ids = net.ids();
    for id in &ids {
        net.crash(id);
    }
    for id in &ids {
        net.restart(id, replica(*id, 1, Mutated::NONE));
    }
    net.pass(Duration::from_millis(300));
    answers(&mut net);
    assert_eq!(committed(&ask(&mut net, 0, part(id(1), 0, "a"))), commit);
    assert_eq!(committed(&ask(&mut net, 1, part(id(1), 1, "a"))), commit);
    let found = ask(&mut net, 1, read(commit, Versionstamp::ZERO, 1));
    assert_eq!(value(&found), some("a"));
}

#[test]
fn a_decision_is_replayed_whatever_was_stored_before_a_crash() {
    // Cells get into the store about a second after they have changed, and that of the transaction before that of the
    // key if it was prepared for long.
    for (cut_ms, crash_ms) in
        (400..1400).step_by(20).flat_map(|cut| [0, 20, 60].map(|it| (cut, it)))
    {
        let mut net = net(1);
        let cohort = leader(&net, 1);
        net.cut.insert((leader(&net, 0), cohort));
        send(&mut net, 0, 1, part(id(9), 0, "a"));
        send(&mut net, 1, 2, part(id(9), 1, "a"));
        net.pass(Duration::from_millis(cut_ms));
        net.cut.clear();
        for _ in 0..100 {
            net.pass(Duration::from_millis(5));
            if net.gauge(cohort, "pending_transactions") == 0 {
                break;
            }
        }
        net.pass(Duration::from_millis(crash_ms));
        net.crash(cohort);
        net.restart(cohort, replica(cohort, 1, Mutated::NONE));
        net.pass(Duration::from_millis(500));
        let commit = committed(&ask(&mut net, 1, part(id(9), 1, "a")));
        let found = ask(&mut net, 1, read(Versionstamp::ZERO, commit, 1));
        assert_eq!(value(&found), some("a"), "cut for {cut_ms} ms, crash after {crash_ms} ms");
    }
}

#[test]
fn a_decision_is_not_forgotten_before_all_cohorts_know_it() {
    let mut net = net(1);
    // The cohort's votes arrive, and it is not told what was decided.
    let (coordinator, cohort) = (leader(&net, 0), leader(&net, 1));
    net.cut.insert((coordinator, cohort));
    send(&mut net, 0, 1, part(id(9), 0, "a"));
    send(&mut net, 1, 2, part(id(9), 1, "a"));
    net.pass(Duration::from_millis(20));
    let commit = match &answers(&mut net)[..] {
        [(1, answer)] => committed(answer),
        answers => panic!("{answers:?}"),
    };
    // Longer than outcomes are kept.
    net.pass(Duration::from_secs(70));
    assert_eq!(net.gauge(cohort, "pending_transactions"), 1);
    net.cut.clear();
    net.pass(Duration::from_secs(2));
    let found = ask(&mut net, 1, read(commit, commit, 1));
    assert_eq!(value(&found), some("a"));
    net.pass(Duration::from_secs(40));
    assert_eq!(net.gauge(coordinator, "remembered_transactions"), 0, "all know it");
}

#[test]
fn a_transaction_takes_effect_once_and_is_refused_when_it_is_forgotten() {
    let mut net = net(1);
    let first = committed(&ask(&mut net, 0, alone(id(9), 0, "a")));
    assert_eq!(committed(&ask(&mut net, 0, alone(id(9), 0, "a"))), first);
    let second = committed(&ask(&mut net, 0, alone(id(10), 0, "b")));
    net.pass(Duration::from_secs(14));
    assert_eq!(committed(&ask(&mut net, 0, alone(id(9), 0, "a"))), first);
    assert_eq!(value(&ask(&mut net, 0, read(second, second, 0))), some("b"));
    net.pass(Duration::from_secs(40));
    assert_eq!(net.gauge(0, "remembered_transactions"), 0);
    let late = ask(&mut net, 0, alone(id(9), 0, "a"));
    assert!(matches!(late, Answer::Outdated { .. }), "{late:?}");
}

/// Whether a read of a session waits for what is pending of the session, but is acknowledged.
fn own_reads_wait(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(1, Reads::AtSafeTime, mutation);
    send(&mut net, 0, 1, part(id(9), 0, "a"));
    send(&mut net, 1, 2, part(id(9), 1, "a"));
    // The cohort does not know yet that it has committed.
    let commit = loop {
        let envelope = net.network.pop_front().expect("it is decided");
        if is_peer(&envelope, |peer| matches!(peer, Peer::Commit(..))) {
            net.network.push_front(envelope);
            break committed(&answers(&mut net)[0].1);
        }
        net.deliver(envelope);
    };
    let is_commit = |e: &Envelope<Message>| is_peer(e, |peer| matches!(peer, Peer::Commit(..)));
    let late = net.take_first(is_commit).expect("it is under way");
    let to = leader(&net, 1);
    let request = read(Versionstamp::ZERO, commit, 1);
    let message = Message::Request { number: 5, clock: Versionstamp::ZERO, request };
    net.deliver((STRANGER, to, message));
    net.settle();
    let early = answers(&mut net);
    net.deliver(late);
    net.pass(Duration::ZERO);
    let read = early.into_iter().chain(answers(&mut net)).find(|(number, _)| *number == 5);
    value(&read.expect("it is answered").1) == some("a")
}

#[test]
fn a_session_finds_what_was_acknowledged_to_it_even_if_a_cohort_does_not_know_that_yet() {
    assert!(own_reads_wait(Mutated::NONE));
    assert!(!own_reads_wait(Mutated::by(Mutation::OwnPendingIgnored)));
}

/// What Eiger's second round finds at the cohort of a transaction that is pending there, and its commit time. It has
/// committed at the coordinator if `is_decided`.
fn second_round(
    is_decided: bool,
    mutation: Mutated<Mutation>,
) -> (Versionstamp, Found, Versionstamp) {
    let mut net = net_of(1, Reads::Optimistically, mutation);
    ask(&mut net, 1, alone(id(1), 1, "old"));
    // The cohort's clock is ahead of the coordinator's.
    ask(&mut net, 1, alone(id(1 << 22), 1, "older"));
    let mut held = Vec::new();
    send(&mut net, 0, 1, part(id(9), 0, "new"));
    send(&mut net, 1, 2, part(id(9), 1, "new"));
    let stops: fn(&Peer) -> bool = match is_decided {
        true => |peer| matches!(peer, Peer::Commit(..)),
        false => |peer| matches!(peer, Peer::Vote { .. }),
    };
    while let Some(envelope) = net.network.pop_front() {
        match is_peer(&envelope, stops) {
            true => held.push(envelope),
            false => net.deliver(envelope),
        }
    }
    net.wait(Duration::from_millis(1));
    answers(&mut net);
    let to = leader(&net, 1);
    let at = clock_of(&mut net, to).after(Duration::from_millis(1));
    let request = Request::ReadAt { at, keys: vec![key(1, 0)] };
    let message = Message::Request { number: 5, clock: Versionstamp::ZERO, request };
    net.deliver((STRANGER, to, message));
    while let Some(envelope) = net.network.pop_front() {
        match is_peer(&envelope, stops) {
            true => held.push(envelope),
            false => net.deliver(envelope),
        }
    }
    let early = answers(&mut net);
    let Some((5, Answer::Values { found, checked, .. })) = early.first() else {
        panic!("{early:?}")
    };
    assert_eq!(*checked, u32::from(!mutation.is(Mutation::PendingNotChecked)));
    held.into_iter().for_each(|envelope| net.deliver(envelope));
    net.pass(Duration::ZERO);
    let commit = committed(&ask(&mut net, 1, part(id(9), 1, "new")));
    (at, found[0].clone(), commit)
}

/// What a replica's clock shows, without anything else being delivered.
fn clock_of(net: &mut Net, to: NodeId) -> Versionstamp {
    let (number, clock, request) = (4, Versionstamp::ZERO, Request::ReadClock);
    net.deliver((STRANGER, to, Message::Request { number, clock, request }));
    let is_reply = |envelope: &Envelope<Message>| matches!(envelope.2, Message::Reply { .. });
    let (_, _, message) = net.take_first(is_reply).expect("it answers");
    match message {
        Message::Reply { answer: Answer::Clock(clock), .. } => clock.shown,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_second_round_of_eiger_finds_what_has_committed_and_nothing_else_commits_before() {
    let new = Some(Value::from("new"));
    let (at, found, commit) = second_round(true, Mutated::NONE);
    assert_eq!((found.value, found.commit), (new.clone(), commit));
    assert!(commit <= at);
    let (at, found, commit) = second_round(false, Mutated::NONE);
    assert_ne!(found.value, new);
    assert!(commit > at);
    let (at, found, commit) = second_round(true, Mutated::by(Mutation::PendingNotChecked));
    assert!(commit <= at && found.value != new);
    let (at, found, commit) = second_round(false, Mutated::by(Mutation::CheckedWithoutClock));
    assert!(commit <= at && found.value != new);
}

#[test]
fn the_second_round_of_eiger_waits_for_a_commit_time_that_its_own_partition_has_chosen() {
    let mut net = net_of(3, Reads::Optimistically, Mutated::NONE);
    send(&mut net, 0, 1, part(id(9), 0, "new"));
    send(&mut net, 1, 2, part(id(9), 1, "new"));
    let is_vote: fn(&Envelope<Message>) -> bool =
        |envelope| is_peer(envelope, |peer| matches!(peer, Peer::Vote { .. }));
    for _ in 0..5 {
        net.settle_where(|envelope| !is_vote(envelope));
        net.ids().into_iter().for_each(|id| net.fire_due(id));
    }
    // The decision is in the coordinator's log, and its followers do not get it.
    let coordinator = leader(&net, 0);
    let is_follower =
        |id: &NodeId| id.partition() == 0 && !id.is_coordinator() && *id != coordinator;
    let passes = |(from, to, _): &Envelope<Message>| !is_follower(from) && !is_follower(to);
    net.settle_where(passes);
    answers(&mut net);
    let at = clock_of(&mut net, coordinator);
    send(&mut net, 0, 5, Request::ReadAt { at, keys: vec![key(0, 0)] });
    net.settle_where(passes);
    assert_eq!(answers(&mut net), [], "it commits before that");
    net.pass(Duration::from_millis(100));
    let answers = answers(&mut net);
    let read = answers.iter().find(|(number, _)| *number == 5).expect("it is answered");
    assert_eq!(value(&read.1), some("new"));
    let commit = answers.iter().find(|(number, _)| *number == 1).expect("it has committed");
    assert!(committed(&commit.1) <= at);
}

#[test]
fn versions_of_transactions_that_commit_out_of_order_are_in_the_order_of_commit_times() {
    let mut net = net(1);
    // The first one is pending at partition 1 while the second one commits there.
    send(&mut net, 1, 1, part(id(9), 1, "first"));
    net.pass(Duration::ZERO);
    let second = committed(&ask(&mut net, 1, alone(id(10), 1, "second")));
    answers(&mut net);
    send(&mut net, 0, 2, part(id(9), 0, "first"));
    net.pass(Duration::ZERO);
    let first = committed(&answers(&mut net)[0].1);
    let latest = if first < second { "second" } else { "first" };
    let top = first.max(second);
    assert_eq!(value(&ask(&mut net, 1, read(top, Versionstamp::ZERO, 1))), some(latest));
    let low = first.min(second);
    let other = if first < second { "first" } else { "second" };
    assert_eq!(value(&ask(&mut net, 1, read(low, Versionstamp::ZERO, 1))), some(other));
}

#[test]
fn a_replica_that_was_away_for_long_takes_over_what_the_others_know() {
    let mut net = net(3);
    let absent = net.ids().into_iter().find(|id| id.partition() == 1 && *id != leader(&net, 1));
    let absent = absent.expect("two do not lead");
    send(&mut net, 1, 1, part(id(3), 1, "undone"));
    net.pass(Duration::from_millis(400));
    assert_eq!(net.gauge(absent, "remembered_transactions"), 1, "it is prepared there");
    net.crash(absent);
    net.pass(OVERDUE);
    // The others forget the log and the outcome.
    for number in 0..70 {
        for low in 0..600 {
            let to = leader(&net, 1);
            // The clocks show about as much, so it is not refused.
            let request = alone(id(1_000_000 + number * TICKS_A_SECOND + low), 1, "x");
            let message = Message::Request { number: low, clock: Versionstamp::ZERO, request };
            net.deliver((STRANGER, to, message));
        }
        net.pass(Duration::from_secs(1));
        net.delivered.clear();
    }
    assert!(net.gauge(leader(&net, 1), "applied_slots") > 40_000);
    let commit = clock(&mut net, 1).safe;
    net.restart(absent, replica(absent, 3, Mutated::NONE));
    net.pass(Duration::from_secs(5));
    assert_eq!(net.gauge(absent, "catching_up"), 0);
    let former = leader(&net, 1);
    let others: Vec<NodeId> =
        net.ids().into_iter().filter(|id| id.partition() == 1 && *id != former).collect();
    let remembered: Vec<u64> =
        others.iter().map(|id| net.gauge(id, "remembered_transactions")).collect();
    assert_eq!(remembered[0], remembered[1]);
    let latest = ask(&mut net, 1, read(commit, Versionstamp::ZERO, 1));
    assert_eq!(value(&latest), some("x"));
}

#[test]
fn what_no_client_and_no_leader_can_have_sent_is_rejected() {
    let mut net = net(1);
    net.forged = true;
    let of = |participants: Vec<u16>, keys: Vec<Key>| Request::Write {
        id: id(9),
        participants,
        writes: keys.into_iter().map(|key| write(key, "a")).collect(),
        era: None,
    };
    let wrong = [
        of(vec![], vec![key(0, 0)]),
        of(vec![1], vec![key(0, 0)]),
        of(vec![0, 0], vec![key(0, 0)]),
        of(vec![0, 2], vec![key(0, 0)]),
        of(vec![0], vec![]),
        of(vec![0], vec![key(1, 0)]),
        of(vec![0], vec![key(0, 0), key(0, 0)]),
        of(vec![0], vec![Key::from("")]),
        read(Versionstamp(u64::MAX), Versionstamp::ZERO, 0),
        read(Versionstamp::ZERO, Versionstamp(u64::MAX), 0),
        Request::ReadAt { at: Versionstamp(u64::MAX), keys: vec![key(0, 0)] },
    ];
    for request in wrong {
        send(&mut net, 0, 1, request.clone());
        net.pass(Duration::ZERO);
        assert_eq!(answers(&mut net), [], "{request:?}");
    }
    let peer = Peer::Commit(id(9), Versionstamp(5));
    let passed_on = Message::PassedOn { origin: NodeId::replica(1, 0), era: 0, peer };
    for message in [Message::Peer { era: 0, peer }, passed_on] {
        net.deliver((STRANGER, NodeId(0), message));
    }
    // A cohort can't decide.
    send(&mut net, 0, 1, part(id(9), 0, "a"));
    net.pass(Duration::ZERO);
    let peer = Peer::Commit(id(9), Versionstamp(5));
    let from_cohort = Message::Peer { era: 0, peer };
    net.deliver((NodeId::replica(1, 0), NodeId(0), from_cohort));
    net.pass(Duration::ZERO);
    assert_eq!(net.gauge(0, "pending_transactions"), 1);
}

#[test]
fn a_client_that_tells_participants_different_things_holds_nobody_up() {
    let of = |participants: &[u16], partition| Request::Write {
        id: id(9),
        participants: participants.to_vec(),
        writes: vec![write(key(partition, 0), "a")],
        era: None,
    };
    for (to_first, to_second) in [(vec![0, 1], vec![1]), (vec![1, 0], vec![0, 1])] {
        let mut net = net(1);
        send(&mut net, 0, 1, of(&to_first, 0));
        send(&mut net, 1, 2, of(&to_second, 1));
        net.pass(4 * OVERDUE);
        for partition in [0, 1] {
            assert_eq!(net.gauge(leader(&net, partition), "pending_transactions"), 0);
            let Clock { safe, shown, .. } = clock(&mut net, partition);
            assert_eq!(safe, shown);
        }
    }
}

#[test]
fn a_transaction_is_undone_if_a_participant_cannot_be_reached_for_long() {
    let mut net = net(1);
    let absent = leader(&net, 1);
    net.crash(absent);
    send(&mut net, 0, 1, part(id(9), 0, "a"));
    net.pass(4 * OVERDUE);
    let answers = answers(&mut net);
    assert!(matches!(answers[..], [(1, Answer::Undone { .. })]), "{answers:?}");
    let Clock { safe, shown, .. } = clock(&mut net, 0);
    assert_eq!(safe, shown);
    net.restart(absent, replica(absent, 1, Mutated::NONE));
    net.pass(OVERDUE);
    let late = ask(&mut net, 1, part(id(9), 1, "a"));
    assert!(matches!(late, Answer::Undone { .. }), "{late:?}");
    assert_eq!(net.gauge(leader(&net, 0), "open_transactions"), 0);
}

#[test]
fn what_another_replica_keeps_for_other_sites_is_kept_by_whoever_copies_it() {
    use crate::frameworks::replicated_log::StateMachine;
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
    let mut machine = super::machine::Machine::new(group, &Settings::default(), Mutated::NONE);
    let kept = super::sites::Kept { needs: Vec::new(), writes: vec![write(Key::from("x"), "a")] };
    let state = serried_parts::encode_cell(&super::cell::Cell::Outgoing(kept));
    let name = super::cell::name_of_outgoing(Versionstamp(7));
    let mut store = serried_actor::MemoryStore::default();
    assert!(machine.take_over(&name, &state, &mut store));
    assert!(machine.outbox.bytes() > 0);
    assert_eq!(machine.outbox.remove_up_to(Versionstamp(9)), [Versionstamp(7)]);
}

/// Up to when other sites are told that a write depends on site 1, if an admission is prepared up to `cut`.
fn needed_behind_an_admission(cut: Versionstamp, mutation: Mutated<Mutation>) -> Versionstamp {
    use super::cell::{Cell, name_of_outgoing};
    use super::machine::Machine;
    use super::message::Entry;
    use crate::frameworks::replicated_log::{Ballot, Chosen, Led, StateMachine};
    let group = Group::new(1, Duration::from_millis(1)).at_site(0, 2);
    let mut machine = Machine::new(group, &Settings::default(), mutation);
    let (pending, commit) = (cut.next_of(0), cut.next_of(0).next_of(0));
    let (participants, writes) = (vec![0], vec![write(Key::from("x"), "a")]);
    let cut = vec![Versionstamp::ZERO, cut];
    let entries = [
        Entry::Prepare { id: id(1), participants, pending, writes: Vec::new(), cut },
        Entry::Write { id: id(2), commit, writes },
    ];
    let mut net = net(1);
    net.act(NodeId::replica(0, 0), |_, cx| {
        for (slot, entry) in (0..).zip(entries) {
            let led = Led { by: Ballot::NONE.next(0), number: slot, entry };
            let position = slot;
            machine.apply(Chosen { slot, position, entry: Some(&led), led_in: None }, cx);
        }
        match machine.cells_mut().get(&name_of_outgoing(commit), cx.store()) {
            Cell::Outgoing(kept) => kept.needs[1],
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn a_write_needs_what_admissions_admit_that_are_only_prepared_at_its_partition() {
    // Another partition may show it already, and the write's session may have read it there.
    let cut = Versionstamp::ZERO.next_of(1);
    assert_eq!(needed_behind_an_admission(cut, Mutated::NONE), cut);
    let broken = Mutated::by(Mutation::PreparedNotNeeded);
    assert_eq!(needed_behind_an_admission(cut, broken), Versionstamp::ZERO);
}
