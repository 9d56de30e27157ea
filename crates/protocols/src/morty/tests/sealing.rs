//! Keys that many modify, and committed reads that seal what they have named.

use serried_model::{Modification, Modify};
use serried_parts::WriteId;

use super::by_hand::{contents, decide, prepare, version};
use super::modifying::{adds, found, id, source, vote};
use super::world::{SECOND, World, digest, n, votes};
use super::*;
use crate::morty::Crowds;
use crate::morty::message::Source;

/// Three replicas at which a read that names as many modifications has their result remembered.
fn remembers_results_from(named: usize) -> World {
    let crowds = Crowds { many: 8 * named, most: 100 };
    let options = Options { crowds, ..Options::default() };
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), options);
    world.now = 60 * SECOND;
    world
}

#[test]
fn a_committed_read_seals_what_it_has_named() {
    for executed_from in [2, 3] {
        let mut world = remembers_results_from(executed_from);
        let [put, first, late, second, reader] =
            [10, 20, 25, 30, 40].map(|at| version(at * SECOND, at));
        let all = &[0, 1, 2];
        world.commit(all, put, &contents(&[], &[("k", "5")]));
        world.commit(all, first, &adds(1));
        world.commit(all, second, &adds(2));
        world.commit(&[0, 1], reader, &found(id(put), &[first, second]));
        let named = Source { write: id(put), modified: [id(first), id(second)].into() };
        let sealed = Source::from(id(second));
        let expected = if executed_from == 2 { &sealed } else { &named };
        let eight = Some(Value::from("8"));
        assert_eq!(source(&mut world, 0), (expected.clone(), eight.clone()));
        assert_eq!(source(&mut world, 2), (named.clone(), eight), "it has no such read");
        // What is read at one replica is valid at the others.
        for (member, sealed) in [(0, false), (1, true), (2, true)] {
            let reads = match sealed {
                true => found(id(second), &[]),
                false => found(id(put), &[first, second]),
            };
            let reader = version(50 * SECOND + member, 50 + member);
            assert_eq!(vote(&mut world, member as usize, reader, &reads), Vote::Commit);
        }
        assert_eq!(vote(&mut world, 0, late, &adds(7)), Vote::AbandonFinal);
    }
}

#[test]
fn what_a_replica_lacks_when_a_read_commits_is_not_left_out_of_a_result() {
    let mut world = remembers_results_from(1);
    let [put, first, second, reader] = [10, 20, 30, 40].map(|at| version(at * SECOND, at));
    world.commit(&[0], put, &contents(&[], &[("k", "5")]));
    world.commit(&[0], second, &adds(2));
    let reads = found(id(put), &[first, second]);
    world.tell(reader.coordinator, n(0), decide(reader, 0, Decision::Commit, &reads));
    world.tell(first.coordinator, n(0), decide(first, 0, Decision::Commit, &adds(1)));
    let named = Source { write: id(put), modified: [id(first), id(second)].into() };
    assert_eq!(source(&mut world, 0), (named, Some(Value::from("8"))));
}

/// The end of a transaction that adds to `k`.
fn addition(delta: i64) -> Operation {
    let modifications = vec![Modification::add(delta)];
    let modifies = vec![Modify { key: Key::from("k"), modifications }];
    Operation::Commit { reads: Vec::new(), writes: Vec::new(), modifies }
}

/// A client adds to `k`, and hears how that ended.
fn add_to_k(net: &mut Net, client: u64, delta: i64) -> String {
    net.operate(client, addition(delta));
    net.settle();
    net.told(client).remove(0)
}

/// What a client reads in `k`, and how many modifications it is given the names of.
fn read_k(net: &mut Net, client: u64) -> (String, usize) {
    net.get(client, "k");
    let mut named = None;
    while let Some(envelope) = net.network.pop_front() {
        if let Message::Reply(Reply::GetReply { found, .. }) = &envelope.2 {
            named = Some(found.modified.len());
        }
        net.deliver(envelope);
    }
    let value = net.told(client).remove(0);
    net.commit(client, &["k"], &[]);
    net.settle();
    assert_eq!(net.told(client), ["committed"]);
    (value, named.expect("an answer"))
}

#[test]
fn a_client_that_hears_that_a_key_is_crowded_seals_it() {
    let crowds = Crowds { many: 8, most: 100 };
    let mut net = Net::new(Options { crowds, ..Options::default() }, 2);
    for i in 0..8 {
        assert_eq!(add_to_k(&mut net, 0, 1 << i), "committed");
    }
    assert_eq!(add_to_k(&mut net, 0, 1 << 8), "committed", "its program notices nothing");
    net.fire(0, |timer| matches!(timer, Timer::Seal(_)));
    assert_eq!(add_to_k(&mut net, 1, 1 << 9), "committed", "what comes later is not in its way");
    assert_eq!(read_k(&mut net, 1), ("value k = 1023".to_string(), 2));
}

#[test]
fn a_key_that_is_crowded_again_is_sealed_again() {
    let crowds = Crowds { many: 8, most: 100 };
    let mut net = Net::new(Options { crowds, ..Options::default() }, 1);
    for times in 1..4 {
        for _ in 0..8 {
            assert_eq!(add_to_k(&mut net, 0, 1), "committed");
        }
        net.fire(0, |timer| matches!(timer, Timer::Seal(_)));
        net.settle();
        assert_eq!(read_k(&mut net, 0), (format!("value k = {}", 8 * times), 0));
    }
}

#[test]
fn a_seal_that_has_missed_something_is_prepared_again_and_abandoned_first() {
    for puts in [false, true] {
        let crowds = Crowds { many: 8, most: 100 };
        let mut net = Net::new(Options { crowds, ..Options::default() }, 2);
        for _ in 0..7 {
            assert_eq!(add_to_k(&mut net, 0, 1), "committed");
        }
        net.operate(0, addition(1));
        // It begins before the seal.
        net.get(1, "other");
        net.settle();
        net.fire(0, |timer| matches!(timer, Timer::Seal(_)));
        net.settle_where(|(.., message)| {
            matches!(message, Message::Request(Request::Get { .. }) | Message::Reply(_))
        });
        let prepares = |net: &Net, eid| {
            let sent = net.network.iter().filter(|(from, ..)| *from == coordinator_id(0));
            sent.filter(|(.., message)| name(message) == format!("Prepare {eid}")).count()
        };
        assert_eq!((prepares(&net, 0), prepares(&net, 1)), (3, 0));
        match puts {
            true => net.commit(1, &[], &[("k", "50")]),
            false => net.operate(1, addition(1)),
        }
        net.settle_where(|(from, ..)| *from != coordinator_id(0));
        let told_at_once = if puts { 3 } else { 0 };
        assert_eq!(prepares(&net, 1), told_at_once, "{:?}", net.network);
        let lines = net.trace();
        assert_eq!(
            lines.iter().filter(|line| line.ends_with(" Prepare 1")).count(),
            3,
            "{lines:?}"
        );
        let told = [0, 1].map(|client| net.told(client).pop());
        assert_eq!(told, [Some("committed".to_string()), Some("committed".to_string())]);
        let expected = if puts { "value k = 50" } else { "value k = 9" };
        assert_eq!(read_k(&mut net, 0), (expected.to_string(), 0));
        assert_eq!(add_to_k(&mut net, 0, 1), "committed");
    }
}

#[test]
fn what_is_late_has_a_seal_prepared_again_once_a_round_trip() {
    let crowds = Crowds { many: 8, most: 100 };
    let mut net = Net::new(Options { crowds, ..Options::default() }, 5);
    for client in 1..5 {
        net.get(client, "other");
        net.settle();
    }
    for _ in 0..8 {
        assert_eq!(add_to_k(&mut net, 0, 1), "committed");
    }
    net.fire(0, |timer| matches!(timer, Timer::Seal(_)));
    let is_prepare = |(from, _, message): &Envelope| {
        let is_prepare = matches!(message, Message::Request(Request::Prepare { .. }));
        *from == coordinator_id(0) && is_prepare
    };
    net.settle_where(|envelope| !is_prepare(envelope));
    for client in 1..5 {
        net.commit(client, &[], &[("k", "50")]);
        net.settle_where(|envelope| !is_prepare(envelope));
    }
    assert_eq!(net.network.iter().filter(|envelope| is_prepare(envelope)).count(), 2 * 3);
}

#[test]
fn a_reader_that_has_named_many_hears_of_more_only_when_it_is_prepared() {
    for named in [2, 64] {
        let mut net = Net::new(Options::default(), 2);
        for _ in 0..named {
            assert_eq!(add_to_k(&mut net, 0, 1), "committed");
        }
        // It begins before the reader does.
        net.get(0, "other");
        net.get(1, "k");
        net.settle();
        assert_eq!(net.told(1), [format!("value k = {named}")]);
        net.told(0);
        net.operate(0, addition(1));
        net.settle();
        assert_eq!(net.told(0), ["committed"]);
        let rewind = format!("rewind k = {}", named + 1);
        let heard = if named < 64 { vec![rewind.clone()] } else { Vec::new() };
        assert_eq!(net.told(1), heard);
        net.commit(1, &["k"], &[]);
        net.settle();
        let expected = if named < 64 { "committed".to_string() } else { rewind };
        assert_eq!(net.told(1), [expected]);
        if named == 64 {
            net.commit(1, &["k"], &[]);
            net.settle();
            assert_eq!(net.told(1), ["committed"]);
        }
    }
}

#[test]
fn one_coordinator_is_asked_to_seal_a_key_for_so_many_modifications() {
    let options = Options { crowds: Crowds { many: 4, most: 100 }, ..Options::default() };
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), options);
    world.now = 60 * SECOND;
    let mut asked = Vec::new();
    for i in 1..=13 {
        let txn = version(i * SECOND, i);
        let said = world.tell(txn.coordinator, n(0), prepare(txn, 0, &adds(1)));
        let is_asked = |(_, to, message): &Envelope| {
            *to == txn.coordinator && matches!(message, Message::Reply(Reply::Crowded { .. }))
        };
        asked.extend(said.iter().any(is_asked).then_some(i));
        world.tell(txn.coordinator, n(0), decide(txn, 0, Decision::Commit, &adds(1)));
    }
    assert_eq!(asked, [4, 8, 12]);
}

#[test]
fn a_seal_waits_for_what_began_before_it() {
    let crowds = Crowds { many: 2, most: 100 };
    let mut net = Net::new(Options { crowds, ..Options::default() }, 1);
    assert_eq!([0, 0].map(|client| add_to_k(&mut net, client, 1)), ["committed"; 2]);
    let timers = &net.clients[coordinator_id(0)].timers;
    let seals = timers.iter().filter(|(timer, _)| matches!(timer, Timer::Seal(_)));
    let due: Vec<Timestamp> = seals.map(|(_, due)| *due).collect();
    let [due] = due[..] else { panic!("{due:?}") };
    let wait = due.since(net.timestamp());
    assert!(wait > Duration::from_micros(900) && wait < Duration::from_millis(2), "{wait:?}");
}

#[test]
fn where_there_is_one_modification_too_many_its_client_makes_room() {
    for many in [3, 100] {
        let crowds = Crowds { many, most: 2 };
        let mut net = Net::new(Options { crowds, ..Options::default() }, 2);
        assert_eq!([0, 0].map(|client| add_to_k(&mut net, client, 1)), ["committed"; 2]);
        assert!(add_to_k(&mut net, 1, 1).starts_with("aborted"));
        net.fire(1, |timer| matches!(timer, Timer::Seal(_)));
        net.settle();
        assert_eq!(add_to_k(&mut net, 0, 1), "committed", "there is room again for all");
        assert_eq!(read_k(&mut net, 1).0, "value k = 3");
    }
}

#[test]
fn a_replica_that_has_missed_a_seal_takes_part_in_the_next() {
    let mut world = remembers_results_from(1);
    let [put, first, second, seal, third, fourth, next] =
        [10, 20, 25, 30, 35, 40, 45].map(|at| version(at * SECOND, at));
    let both = &[0, 1];
    world.commit(both, put, &contents(&[], &[("k", "5")]));
    world.commit(&[0], first, &adds(1));
    world.tell(first.coordinator, n(1), prepare(first, 0, &adds(1)));
    world.commit(both, second, &adds(2));
    world.commit(both, seal, &found(id(put), &[first, second]));
    world.tell(first.coordinator, n(1), decide(first, 0, Decision::Commit, &adds(1)));
    world.commit(both, third, &adds(4));
    world.commit(both, fourth, &adds(8));
    world.commit(both, next, &found(id(second), &[third, fourth]));
    for member in [0, 1] {
        let expected = (Source::from(id(fourth)), Some(Value::from("20")));
        assert_eq!(source(&mut world, member), expected, "replica {member}");
    }
}

#[test]
fn a_long_value_is_not_kept_again_for_few_modifications() {
    let mut world = remembers_results_from(2);
    let [put, first, second, reader] = [10, 20, 30, 40].map(|at| version(at * SECOND, at));
    let long = "x".repeat(1000);
    world.commit(&[0], put, &contents(&[], &[("k", &long)]));
    world.commit(&[0], first, &adds(1));
    world.commit(&[0], second, &adds(2));
    world.commit(&[0], reader, &found(id(put), &[first, second]));
    assert_eq!(source(&mut world, 0).0.modified, [id(first), id(second)]);
}

#[test]
fn a_reader_that_has_named_many_hears_of_a_value_at_once() {
    let mut net = Net::new(Options::default(), 2);
    for _ in 0..64 {
        assert_eq!(add_to_k(&mut net, 0, 1), "committed");
    }
    net.get(0, "other");
    net.get(1, "k");
    net.settle();
    assert_eq!((net.told(0).len(), net.told(1)), (1, vec!["value k = 64".to_string()]));
    net.commit(0, &[], &[("k", "50")]);
    net.settle();
    assert_eq!(net.told(1), ["rewind k = 50"]);
}

#[test]
fn a_reader_that_has_named_many_hears_of_an_abort_only_when_it_is_prepared() {
    for (named, many) in [(2, 1024), (64, 1024), (2, 32)] {
        let crowds = Crowds { many, most: 1000 };
        let mut net = Net::new(Options { crowds, ..Options::default() }, 2);
        let added = version(500, 7);
        for member in 0..3 {
            net.tell(added.coordinator, member, prepare(added, 0, &adds(1)));
        }
        for _ in 1..named {
            assert_eq!(add_to_k(&mut net, 0, 1), "committed");
        }
        net.get(1, "k");
        net.settle();
        assert_eq!(net.told(1), [format!("value k = {named}")]);
        for member in 0..3 {
            let aborted = decide(added, 0, Decision::Abort, &adds(1));
            net.deliver((added.coordinator, n(member), aborted));
        }
        net.settle();
        let rewind = format!("rewind k = {}", named - 1);
        let hears = named < many / 16;
        let heard = if hears { vec![rewind.clone()] } else { Vec::new() };
        assert_eq!(net.told(1), heard);
        net.commit(1, &["k"], &[]);
        net.settle();
        let expected = if hears { "committed".to_string() } else { rewind };
        assert_eq!(net.told(1), [expected]);
    }
}

#[test]
fn a_seal_waits_as_long_as_the_last_modification_took_but_not_for_long() {
    for (took, waits) in [(100, 100), (1000, 500)] {
        let crowds = Crowds { many: 2, most: 100 };
        let mut net = Net::new(Options { crowds, ..Options::default() }, 1);
        assert_eq!(add_to_k(&mut net, 0, 1), "committed");
        net.operate(0, addition(1));
        net.wait(Duration::from_millis(took));
        net.settle();
        let timers = &net.clients[coordinator_id(0)].timers;
        let seal = timers.iter().find(|(timer, _)| matches!(timer, Timer::Seal(_)));
        let wait = seal.expect("it seals").1.since(net.timestamp());
        assert!(wait.abs_diff(Duration::from_millis(waits)) < Duration::from_millis(2), "{wait:?}");
    }
}

#[test]
fn what_has_a_value_already_is_not_sealed() {
    let crowds = Crowds { many: 8, most: 100 };
    let mut net = Net::new(Options { crowds, ..Options::default() }, 2);
    for _ in 0..7 {
        assert_eq!(add_to_k(&mut net, 0, 1), "committed");
    }
    net.operate(0, addition(1));
    // It begins before the seal.
    net.get(1, "other");
    net.settle();
    net.told(1);
    net.commit(1, &[], &[("k", "50")]);
    net.settle();
    assert_eq!(net.told(1), ["committed"]);
    net.fire(0, |timer| matches!(timer, Timer::Seal(_)));
    net.settle_where(|(.., message)| {
        matches!(message, Message::Request(Request::Get { .. }) | Message::Reply(_))
    });
    let sent: Vec<String> = net.network.iter().map(|(.., message)| name(message)).collect();
    assert_eq!(sent, ["Decide 0 Abort"], "only the replica that was asked knows of it");
}

#[test]
fn a_coordinator_seals_no_key_for_a_transaction_that_has_ended_or_does_not_modify_it() {
    let mut net = morty(1);
    let sealed = |net: &Net| {
        let timers = &net.clients[coordinator_id(0)].timers;
        timers.iter().any(|(timer, _)| matches!(timer, Timer::Seal(_)))
    };
    net.deliver(crowded(n(0), version(500, 0)));
    assert!(!sealed(&net));
    net.get(0, "k");
    let open = net.network.iter().find_map(|(.., message)| match message {
        Message::Request(Request::Get { version, .. }) => Some(*version),
        _ => None,
    });
    net.deliver(crowded(n(0), open.expect("a read")));
    assert!(!sealed(&net));
}

/// A replica says to the first coordinator that the key of this transaction is crowded.
fn crowded(from: NodeId, version: Version) -> Envelope {
    let crowded = Reply::Crowded { version, key: Key::from("k"), clock_us: 0 };
    (from, coordinator_id(0), Message::Reply(crowded))
}

#[test]
fn a_seal_reads_at_the_replica_that_has_asked_for_it() {
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
    let mut net = morty(1);
    net.net = actors(&group, Options::default(), 1);
    net.now = 1000;
    let partition = group.partition_of(&Key::from("k"));
    let (there, elsewhere) = (NodeId::replica(partition, 2), NodeId::replica(1 - partition, 2));
    net.operate(0, addition(1));
    let prepared = net.network.iter().find_map(|(.., message)| match message {
        Message::Request(Request::Prepare { version, .. }) => Some(*version),
        _ => None,
    });
    let version = prepared.expect("a Prepare");
    net.network.clear();
    let is_seal = |timer: &Timer| matches!(timer, Timer::Seal(_));
    net.deliver(crowded(elsewhere, version));
    let timers = &net.clients[coordinator_id(0)].timers;
    assert!(!timers.keys().any(is_seal), "the key is in another partition");
    net.deliver(crowded(there, version));
    net.fire(0, is_seal);
    let asked: Vec<NodeId> = net
        .network
        .iter()
        .filter(|(.., message)| matches!(message, Message::Request(Request::Get { .. })))
        .map(|(_, to, _)| *to)
        .collect();
    assert_eq!(asked, [there]);
}

#[test]
fn a_seal_waits_until_the_clock_of_the_replica_that_has_asked_has_passed_its_version() {
    let crowds = Crowds { many: 8, most: 100 };
    let mut net = Net::new(Options { crowds, ..Options::default() }, 2);
    net.ahead_us.insert(coordinator_id(1), 400_000);
    for _ in 0..8 {
        assert_eq!(add_to_k(&mut net, 1, 1), "committed");
    }
    let timers = &net.clients[coordinator_id(1)].timers;
    let seal = timers.iter().find(|(timer, _)| matches!(timer, Timer::Seal(_)));
    let wait = seal.expect("it seals").1.since(net.timestamp());
    assert!(wait >= Duration::from_millis(399) && wait < Duration::from_millis(410), "{wait:?}");
}

/// A replica that looks at one undecided writer at a time has voted provisionally on a reader of two, and has heard that the
/// second was aborted. Returns the two, and the reader.
fn hears_of_the_second_abort() -> (World, [Version; 3]) {
    let options = Options { crowds: Crowds { many: 64, most: 1000 }, ..Options::default() };
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), options);
    world.now = 100 * SECOND;
    let [first, second, reader] = [20, 21, 90].map(|at| version(at * SECOND, at));
    for txn in [first, second] {
        assert_eq!(vote(&mut world, 0, txn, &adds(1)), Vote::Commit);
    }
    let reads = found(WriteId::INITIAL, &[first, second]);
    assert_eq!(vote(&mut world, 0, reader, &reads), Vote::Provisional);
    let said = world.tell(second.coordinator, n(0), decide(second, 0, Decision::Abort, &adds(1)));
    assert_eq!(votes(&said), [], "it waits for the first");
    (world, [first, second, reader])
}

#[test]
fn a_recoverer_hears_of_an_abort_though_the_vote_waits_for_an_earlier_writer() {
    let (mut world, [_, _, reader]) = hears_of_the_second_abort();
    let view = View::OWN.next(n(1));
    let asks =
        Message::Recovering(Recovering::PaxosPrepare { version: reader, view, vote_on: None });
    let said = world.tell(n(1), n(0), asks);
    let known = said.iter().find_map(|(.., message)| match message {
        Message::Recovering(Recovering::PaxosPrepareReply { known: Some(known), .. }) => {
            known.execution.as_ref().and_then(|(_, vote, _)| *vote)
        }
        _ => None,
    });
    assert_eq!(known, Some(Vote::AbandonFinal));
}

#[test]
fn an_abort_is_voted_on_before_a_copy_makes_the_replica_forget_it() {
    let (mut world, [first, _, reader]) = hears_of_the_second_abort();
    let (upto, merged) = (80 * SECOND, digest(&[first]));
    for member in [1, 2] {
        world.commit(&[member], first, &adds(1));
        world.settle_below(n(member), upto, merged);
    }
    let finished = Truncating::TruncationFinished { upto, merged };
    world.network = world.tell(n(1), n(0), Message::Truncating(finished)).into();
    let mut cast = Vec::new();
    while let Some(envelope) = world.network.pop_front() {
        if envelope.1 == reader.coordinator {
            cast.extend(votes(&[envelope]));
        } else if !envelope.1.is_coordinator() {
            world.deliver(envelope);
        }
    }
    assert_eq!(cast, [Vote::AbandonFinal]);
}

#[test]
fn a_read_that_has_found_a_delete_is_no_sign_of_what_lies_below_a_modification() {
    let mut world = remembers_results_from(1);
    let [delete, late, first, second, reader, absent] =
        [5, 10, 20, 40, 42, 50].map(|at| version(at * SECOND, at));
    let mut commit = |txn: Version, what| {
        world.tell(txn.coordinator, n(0), decide(txn, 0, Decision::Commit, &what));
        source(&mut world, 0)
    };
    commit(delete, contents(&[], &[("k", "")]));
    commit(first, adds(1));
    commit(second, adds(2));
    // What it has found was deleted after all of these.
    commit(absent, found(WriteId::INITIAL, &[]));
    commit(reader, found(id(first), &[second]));
    let (source, value) = commit(late, contents(&[], &[("k", "5")]));
    assert_eq!(source, Source { write: id(late), modified: [id(first), id(second)].into() });
    assert_eq!(value, Some(Value::from("8")));
}

#[test]
fn a_coordinator_seals_no_more_than_so_many_keys_at_a_time() {
    const MANY: usize = 1100;
    let mut net = morty(1);
    let key = |i: usize| Key::from(format!("k{i}"));
    let modify = |i| Modify { key: key(i), modifications: vec![Modification::add(1)] };
    let modifies = (0..MANY).map(modify).collect();
    net.operate(0, Operation::Commit { reads: Vec::new(), writes: Vec::new(), modifies });
    let prepared = net.network.iter().find_map(|(.., message)| match message {
        Message::Request(Request::Prepare { version, .. }) => Some(*version),
        _ => None,
    });
    let version = prepared.expect("a Prepare");
    for i in 0..MANY {
        let crowded = Reply::Crowded { version, key: key(i), clock_us: 0 };
        let crowded = Message::Reply(crowded);
        net.deliver((n(0), coordinator_id(0), crowded));
    }
    let timers = &net.clients[coordinator_id(0)].timers;
    let seals = timers.keys().filter(|timer| matches!(timer, Timer::Seal(_))).count();
    assert_eq!(seals, 1024);
}
