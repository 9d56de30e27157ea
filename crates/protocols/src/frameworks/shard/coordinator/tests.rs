//! Tests of the coordinator. The tests pass operations to it one by one.

use core::time::Duration;
use std::collections::BTreeSet;

use rand_pcg::Pcg64Mcg;
use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::transactions::{Ending, Operation, Outcome, Output, Past};
use serried_model::{Key, Modification, Modify, NodeId, TxnId, Version, Write};

use super::super::control::Control;
use super::super::forger::{Forger, NOW_US};
use super::super::message::{Decision, Executed, Found, Message, Part, Refusal, Reply, Request};
use super::super::replica::Replica;
use super::super::stamp::{Stamp, Validity};
use super::{Coordinator, Timer};
use crate::mvto::Versions;
use crate::ncc::Queues;
use crate::spanner::Timestamping;
use crate::testing::{self, client_id};
use crate::two_phase_locking::Locking;

type Net<C> = testing::Net<Replica<C>, Coordinator<C>>;

/// A network with one client of the group.
fn client<C: Control>(group: &Group) -> Net<C> {
    let client = |_| Coordinator::new(group.clone(), &Settings::default());
    let mut net = Net::new(0, 0, |_| unreachable!("there are no replicas")).with_clients(1, client);
    net.now = 1;
    net
}

/// Runs `act` at a client whose clock shows `after_us` microseconds after now. Returns the outputs
/// for its sessions.
fn act<C: Control>(
    client: &mut Net<C>,
    after_us: u64,
    act: impl FnOnce(&mut Coordinator<C>, &mut Context<'_, Coordinator<C>>),
) -> Vec<(TxnId, Output)> {
    client.set_clock_us(NOW_US + after_us);
    client.act_client(client_id(0), act);
    client.network.clear();
    client.outputs.drain(..).map(|(_, output)| output).collect()
}

/// The version of a transaction that begins when the client's clock shows `after_us` microseconds
/// after now.
fn version_of<C: Control>(
    coordinator: &mut Net<C>,
    (txn, after_us): (u64, u64),
    operations: Vec<Operation>,
) -> Version {
    let told = act(coordinator, after_us, |coordinator, cx| {
        for operation in operations {
            coordinator.on_operation(TxnId(txn), operation, cx);
        }
        coordinator.on_batch_end(cx);
    });
    let began = |(of, output): &(TxnId, Output)| match output {
        Output::Began(version) if *of == TxnId(txn) => Some(*version),
        _ => None,
    };
    told.iter().find_map(began).expect("the transaction has begun")
}

#[test]
fn a_snapshots_version_is_out_of_reach_of_open_transactions() {
    let group = Group::new(1, Duration::from_millis(1));
    let mut coordinator = client::<Queues<true>>(&group);
    let begin = |only_reads| Operation::Begin { only_reads, age: None };
    let get = Operation::Get { key: Key::from("x"), for_update: false };
    let open = version_of(&mut coordinator, (1, 0), vec![begin(false), get]);
    let commit =
        || Operation::Commit { reads: Vec::new(), writes: Vec::new(), modifies: Vec::new() };
    for (txn, rounds) in [(2, 1), (3, 2), (4, 7)] {
        let us = rounds * Stamp::LANES;
        let read = version_of(&mut coordinator, (txn, us), vec![begin(true), commit()]);
        assert!(read.timestamp_us >= NOW_US + us);
        assert_ne!((read.timestamp_us - open.timestamp_us) % Stamp::LANES, 0);
    }
}

fn add_to_x() -> Modify {
    Modify { key: Key::from("x"), modifications: vec![Modification::add(1)] }
}

#[test]
fn a_transaction_that_writes_too_much_is_over_for_good() {
    let group = Group::new(1, Duration::from_millis(1));
    let mut coordinator = client::<Queues<false>>(&group);
    let one_shot =
        Operation::OneShot { reads: Vec::new(), writes: Vec::new(), modifies: vec![add_to_x()] };
    let operations = vec![Operation::Begin { only_reads: false, age: None }, one_shot];
    let txn = version_of(&mut coordinator, (1, 0), operations);
    let reason = Refusal::TooLarge { key: Key::from("x"), bytes: 1 << 30 };
    let told = act(&mut coordinator, 0, |coordinator, cx| {
        let refused = Message::Reply(Reply::Refused { txn, reason });
        coordinator.on_message(NodeId::replica(0, 0), refused, cx);
    });
    let (key, bytes, limit) = (Key::from("x"), 1 << 30, Part::MOST_BYTES);
    let outcome = Output::Outcome(Outcome::TooLarge { key, bytes, limit });
    assert!(told.contains(&(TxnId(1), outcome)), "{told:?}");
}

/// Writes take a round to be locked, unless their keys were read for update and the reads were answered.
#[test]
fn writes_whose_locks_are_held_are_sent_with_the_last_shot() {
    let group = Group::new(1, Duration::from_millis(1));
    let cases = [(true, true, true), (true, false, false), (false, true, false)];
    for ((for_update, answered, at_once), modifies) in
        cases.into_iter().flat_map(|case| [(case, false), (case, true)])
    {
        let mut client = client::<Locking<true>>(&group);
        let get = Operation::Get { key: Key::from("x"), for_update };
        let operations = vec![Operation::Begin { only_reads: false, age: None }, get];
        let txn = version_of(&mut client, (1, 0), operations);
        if answered {
            let found = vec![Found { version: Version::INITIAL, value: None }];
            let (validity, known, clock_us) = (None, 0, NOW_US);
            let executed = Executed { txn, number: 1, found, validity, known, clock_us };
            let reply = Message::Reply(Reply::Executed(executed));
            client.deliver((NodeId(0), client_id(0), reply));
        }
        client.network.clear();
        let write = Write { key: Key::from("x"), value: None };
        let (writes, modifies) = match modifies {
            true => (Vec::new(), vec![add_to_x()]),
            false => (vec![write], Vec::new()),
        };
        client.operate(0, 1, Operation::Commit { reads: Vec::new(), writes, modifies });
        let shots = client.network.drain(..).filter_map(|(.., message)| match message {
            Message::Request(Request::Shot(shot)) => Some(shot.participants.is_some()),
            _ => None,
        });
        assert_eq!(shots.collect::<Vec<_>>(), [at_once], "{for_update}, {answered}");
    }
}

#[test]
fn each_shard_is_sent_its_reads_for_update_first_and_how_many_there_are() {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(2);
    let mut of_shards: [Vec<Key>; 2] = [Vec::new(), Vec::new()];
    for key in (0_u64..20).map(|key| Key::from(key.to_be_bytes())) {
        of_shards[usize::from(group.partition_of(&key))].push(key);
    }
    let [first, second] = of_shards;
    let mut coordinator = client::<Locking<true>>(&group);
    coordinator.set_clock_us(NOW_US);
    coordinator.act_client(client_id(0), |coordinator, cx| {
        coordinator.on_operation(TxnId(1), Operation::Begin { only_reads: false, age: None }, cx);
        let reads = [(&first[0], false), (&second[0], false), (&first[1], true), (&first[2], true)];
        for (key, for_update) in reads {
            let get = Operation::Get { key: key.clone(), for_update };
            coordinator.on_operation(TxnId(1), get, cx);
        }
        coordinator.on_batch_end(cx);
    });
    let shots = coordinator.network.drain(..).filter_map(|(_, to, message)| match message {
        Message::Request(Request::Shot(shot)) => {
            Some((to.partition(), shot.reads, shot.for_update))
        }
        _ => None,
    });
    let sent: Vec<_> = shots.collect();
    let of_first = vec![first[1].clone(), first[2].clone(), first[0].clone()];
    assert_eq!(sent, [(0, of_first, 2), (1, vec![second[0].clone()], 0)]);
}

#[test]
fn no_part_moves_to_the_beginning_of_a_refined_transaction() {
    let group = Group::new(1, Duration::from_millis(1));
    let mut coordinator = client::<Queues<false>>(&group);
    let one_shot = |reads, writes| {
        vec![
            Operation::Begin { only_reads: false, age: None },
            Operation::OneShot { reads, writes, modifies: Vec::new() },
        ]
    };
    // The client's clock is ahead for a while.
    let read =
        version_of(&mut coordinator, (1, 30_000_000), one_shot(vec![Key::from("x")], vec![]));
    let writer = Version { timestamp_us: NOW_US, coordinator: NodeId(80_000) };
    let executed = Executed {
        txn: read,
        number: 1,
        found: vec![Found { version: writer, value: None }],
        validity: Some(Validity { from: Stamp::assigned(writer), until: None }),
        known: 1,
        clock_us: NOW_US,
    };
    let told = act(&mut coordinator, 0, |coordinator, cx| {
        let executed = Message::Reply(Reply::Executed(executed));
        coordinator.on_message(NodeId::replica(0, 0), executed, cx);
    });
    assert!(told.contains(&(TxnId(1), Output::Outcome(Outcome::Committed))), "{told:?}");
    for txn in 2..Stamp::LANES {
        let write = Write { key: Key::from("y"), value: None };
        let open = version_of(&mut coordinator, (txn, 0), one_shot(vec![], vec![write]));
        assert!(open < read, "{open}");
        assert_ne!(open.timestamp_us % Stamp::LANES, read.timestamp_us % Stamp::LANES, "{open}");
    }
}

#[test]
fn a_late_window_of_one_shard_does_not_close_others() {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(2);
    let key = |shard| {
        let mut keys = (0_u64..).map(|key| Key::from(key.to_be_bytes()));
        keys.find(|key| group.partition_of(key) == shard).unwrap()
    };
    let mut coordinator = client::<Queues<false>>(&group);
    let put = |shard| {
        let write = Write { key: key(shard), value: None };
        let one_shot =
            Operation::OneShot { reads: Vec::new(), writes: vec![write], modifies: Vec::new() };
        vec![Operation::Begin { only_reads: false, age: None }, one_shot]
    };
    let from_us = NOW_US + 30_000_000;
    let txn = version_of(&mut coordinator, (1, 0), put(0));
    let refused = Reply::Refused { txn, reason: Refusal::Late { from_us } };
    act(&mut coordinator, 1, |coordinator, cx| {
        coordinator.on_message(NodeId::replica(0, 0), Message::Reply(refused), cx);
    });
    let there = version_of(&mut coordinator, (2, 2), put(0)).timestamp_us;
    assert!((from_us..from_us + 100).contains(&there), "{there}");
    let here = version_of(&mut coordinator, (3, 3), put(1)).timestamp_us;
    assert!((NOW_US + 3..NOW_US + 100).contains(&here), "{here}");
    let again = version_of(&mut coordinator, (4, 4), put(0)).timestamp_us;
    assert!(again > there);
}

const S: u64 = 1_000_000;

/// A leader reports that a time is certainly over, so long after now.
fn report(coordinator: &mut Net<Timestamping>, after_us: u64) {
    let told = act(coordinator, 0, |coordinator, cx| {
        let clock_us = NOW_US + after_us;
        let reply = Reply::Snapshot { number: 99, known: 0, clock_us, found: Ok(Vec::new()) };
        coordinator.on_message(NodeId::replica(0, 0), Message::Reply(reply), cx);
    });
    assert_eq!(told, []);
}

/// The time as of which a transaction reads, after now. Its client's clock shows `after_us`.
fn reads_as_of(coordinator: &mut Net<Timestamping>, txn: u64, after_us: u64) -> u64 {
    let get = Operation::Get { key: Key::from("x"), for_update: false };
    let operations = vec![Operation::Begin { only_reads: true, age: None }, get];
    version_of(coordinator, (txn, after_us), operations).timestamp_us - NOW_US
}

/// A later report may name an earlier time, from a leader whose clock is less certain.
#[test]
fn a_time_that_is_over_stays_so_although_a_later_report_names_an_earlier_one() {
    for (step, expected) in [(S * 4 / 10, 58), (S * 9 / 10, 68)] {
        let mut coordinator = client::<Timestamping>(&Group::new(1, Duration::from_millis(1)));
        report(&mut coordinator, 5 * S);
        coordinator.now += step;
        report(&mut coordinator, 5 * S + step / 2);
        coordinator.now += step;
        let latest_us = expected * S / 10 + 2 * Settings::default().uncertainty_us;
        let at = reads_as_of(&mut coordinator, 1, 0);
        assert!((latest_us..latest_us + 100).contains(&at), "{at}");
    }
}

#[test]
fn a_clock_that_was_ahead_is_forgotten_when_others_have_reported_for_a_while() {
    for idle in [false, true] {
        let mut coordinator = client::<Timestamping>(&Group::new(1, Duration::from_millis(1)));
        report(&mut coordinator, 2 * S);
        let reports = if idle { 1 } else { 30 };
        for number in 1..=reports {
            coordinator.now += 3 * S / reports;
            report(&mut coordinator, number * 3 * S / reports);
        }
        let at = reads_as_of(&mut coordinator, 1, 3 * S);
        assert!(at <= 3 * S + 2 * Settings::default().uncertainty_us + 100, "{at}");
    }
}

#[test]
fn a_clock_that_was_ahead_is_forgotten_when_a_read_is_refused_for_it() {
    let mut coordinator = client::<Timestamping>(&Group::new(1, Duration::from_millis(1)));
    report(&mut coordinator, 5 * S);
    assert!(reads_as_of(&mut coordinator, 1, 0) > 5 * S);
    let told = act(&mut coordinator, 0, |coordinator, cx| {
        let reason = Refusal::ClockSkew { ahead_us: 5_000_000 };
        for (shard, number) in [(0, 2), (0, 1)] {
            let unread = Message::Reply(Reply::Unread { number, reason: reason.clone() });
            coordinator.on_message(NodeId::replica(shard, 0), unread, cx);
        }
    });
    // It begins anew. This client's clock is not to blame.
    let aborted = Outcome::Aborted { conflicts: Vec::new() };
    assert_eq!(told, [(TxnId(1), Output::Outcome(aborted))]);
    assert!(reads_as_of(&mut coordinator, 2, 0) < S);
}

/// A read of the past is refused that names the version of a transaction of the same client.
#[test]
fn a_read_that_is_refused_says_nothing_of_the_transaction_with_its_version() {
    let mut coordinator = client::<Timestamping>(&Group::new(1, Duration::from_millis(1)));
    let key = Key::from("x");
    let get = Operation::Get { key: key.clone(), for_update: false };
    let operations = vec![Operation::Begin { only_reads: false, age: None }, get];
    let at = version_of(&mut coordinator, (1, 0), operations);
    act(&mut coordinator, 0, |coordinator, cx| {
        coordinator.on_operation(TxnId(2), Operation::GetAt { key, at }, cx);
        coordinator.on_operation(TxnId(3), Operation::Inquire { version: at }, cx);
    });
    let mut unread = |shard, number| {
        act(&mut coordinator, 0, |coordinator, cx| {
            let reason = Refusal::Late { from_us: NOW_US };
            let unread = Message::Reply(Reply::Unread { number, reason });
            coordinator.on_message(NodeId::replica(shard, 0), unread, cx);
        })
    };
    assert_eq!(unread(0, 2), [], "no such question");
    assert_eq!(unread(0, 1), [(TxnId(2), Output::Past(Past::Forgotten))]);
    assert_eq!(unread(0, 1), []);
}

fn forge_for<C: Control>() {
    for seed in 0..60 {
        let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
        let mut coordinator = client::<C>(&group);
        coordinator.forged = true;
        let mut forger = Forger(Pcg64Mcg::new(seed));
        let (mut open, mut asked) = (0, BTreeSet::new());
        for step in 0..600 {
            // Messages refer to its first versions.
            let told = act(&mut coordinator, step / 100, |coordinator, cx| {
                let keys = [Key::from("x"), Key::from("y")];
                match forger.below(6) {
                    0 => {
                        open += 1;
                        let (txn, only_reads) = (TxnId(open), forger.below(2) == 0);
                        coordinator.on_operation(
                            txn,
                            Operation::Begin { only_reads, age: None },
                            cx,
                        );
                        let key = keys[forger.below(2) as usize].clone();
                        coordinator.on_operation(
                            txn,
                            Operation::Get { key, for_update: false },
                            cx,
                        );
                        coordinator.on_batch_end(cx);
                    }
                    1 => {
                        let txn = TxnId(forger.below(open + 1));
                        let commit = Operation::Commit {
                            reads: Vec::new(),
                            writes: Vec::new(),
                            modifies: Vec::new(),
                        };
                        asked.insert(txn);
                        coordinator.on_operation(txn, commit, cx);
                    }
                    2 => coordinator.on_timer(Timer::Repeat(TxnId(forger.below(open + 1))), cx),
                    _ => {
                        let from = forger.sender();
                        let message = match forger.below(8) {
                            0 => forger.message(),
                            _ => Message::Reply(forger.reply()),
                        };
                        coordinator.on_message(from, message, cx);
                    }
                }
            });
            for (txn, output) in told {
                if let Output::Outcome(Outcome::Committed) = output {
                    assert!(asked.contains(&txn), "it was not asked to commit {txn:?}");
                }
            }
        }
    }
}

#[test]
fn no_message_ends_a_client() {
    forge_for::<Queues<true>>();
    forge_for::<Versions>();
    forge_for::<Locking<true>>();
    forge_for::<Timestamping>();
}

#[test]
fn an_inquiry_that_is_given_up_asks_no_more() {
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
    let mut net = client::<Queues<false>>(&group);
    let version = Version { timestamp_us: NOW_US, coordinator: client_id(7) };
    net.operate(0, 1, Operation::Inquire { version });
    net.pass(Duration::from_secs(5));
    // The session's deadline has passed.
    net.operate(0, 1, Operation::Rollback);
    net.delivered.clear();
    net.pass(Duration::from_secs(600));
    assert_eq!(net.delivered.len(), 0, "it still asks, and turns away from leaders that it knows");
}

/// It may have committed at the shard that has forgotten it, and left nothing at the others.
#[test]
fn an_outcome_that_one_shard_has_forgotten_is_not_said_to_be_an_abort() {
    for forgets in [0, 1] {
        let group = Group::new(1, Duration::from_millis(1)).with_partitions(2);
        let mut coordinator = client::<Queues<false>>(&group);
        let version = Version { timestamp_us: NOW_US, coordinator: client_id(9) };
        act(&mut coordinator, 0, |coordinator, cx| {
            coordinator.on_operation(TxnId(1), Operation::Inquire { version }, cx);
        });
        let from_us = NOW_US + 9;
        let told: Vec<_> = (0..2)
            .flat_map(|shard| {
                let reason = match shard == forgets {
                    true => Refusal::Forgotten { from_us },
                    false => Refusal::Late { from_us },
                };
                let refused = Message::Reply(Reply::Refused { txn: version, reason });
                act(&mut coordinator, 1, |coordinator, cx| {
                    coordinator.on_message(NodeId::replica(shard, 0), refused, cx);
                })
            })
            .collect();
        assert_eq!(told, [(TxnId(1), Output::Ending(Ending::Forgotten))], "shard {forgets}");
    }
}

/// Others have ended it, and nobody can say any more what it has read.
#[test]
fn a_commit_whose_reads_are_not_known_has_an_unknown_outcome() {
    let group = Group::new(1, Duration::from_millis(1));
    let mut coordinator = client::<Queues<false>>(&group);
    let key = Key::from("x");
    let writes = vec![Write { key: key.clone(), value: None }];
    let one_shot = Operation::OneShot { reads: vec![key], writes, modifies: Vec::new() };
    let operations = vec![Operation::Begin { only_reads: false, age: None }, one_shot];
    let txn = version_of(&mut coordinator, (1, 0), operations);
    let decision = Decision::Commit(Stamp::assigned(txn));
    let told = act(&mut coordinator, 1, |coordinator, cx| {
        let decided = Message::Reply(Reply::Decided { txn, decision });
        coordinator.on_message(NodeId::replica(0, 0), decided, cx);
    });
    assert!(told.contains(&(TxnId(1), Output::Outcome(Outcome::Unknown))), "{told:?}");
}

/// It may have been ready at the other shards, and they may have committed it.
#[test]
fn a_transaction_that_is_forgotten_while_it_is_committed_has_an_unknown_outcome() {
    for commits in [false, true] {
        let group = Group::new(1, Duration::from_millis(1));
        let mut coordinator = client::<Queues<false>>(&group);
        let key = Key::from("x");
        let operation = match commits {
            true => Operation::OneShot {
                reads: vec![],
                writes: vec![Write { key, value: None }],
                modifies: vec![],
            },
            false => Operation::Get { key, for_update: false },
        };
        let operations = vec![Operation::Begin { only_reads: false, age: None }, operation];
        let txn = version_of(&mut coordinator, (1, 0), operations);
        let told = act(&mut coordinator, 1, |coordinator, cx| {
            let reason = Refusal::Forgotten { from_us: NOW_US + 9 };
            let refused = Message::Reply(Reply::Refused { txn, reason });
            coordinator.on_message(NodeId::replica(0, 0), refused, cx);
        });
        let unknown = told.contains(&(TxnId(1), Output::Outcome(Outcome::Unknown)));
        assert_eq!(unknown, commits, "{told:?}");
    }
}
