//! Executions that an attack on the protocol found.

use super::*;
use crate::rococo::message::{Message, Reply, Request};
use hand::{Hand, OF_HAND, compiled, r, short, start_to};

const REFUSING: &str = r#"
[tables.limit]
key = { id = "int" }
columns = { n = "int" }

[tables.next]
key = { id = "int" }
columns = { n = "int" }

[tables.t]
key = { id = "int" }
columns = { n = "int" }

[procedures.refusing]
inputs = { a = "int", b = "int", d = "int", y = "int" }
returns = { n = "then.n" }
[procedures.refusing.pieces.check]
rows = { row = { table = "limit", key = ["a"] } }
reads = ["row.n"]
checks = [{ that = "row.n > 100", otherwise = "no" }]
[procedures.refusing.pieces.first]
rows = { row = { table = "next", key = ["b"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.refusing.pieces.then]
rows = { row = { table = "next", key = ["d + first.n"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.refusing.pieces.last]
rows = { row = { table = "t", key = ["y"] } }
writes.row.n = "1"
"#;

#[test]
fn a_start_that_is_not_chosen_is_not_insisted_on() {
    let settings = Settings { recovery_after_ms: 150, ..short() };
    let mut hand = Hand::new(2, 3, settings);
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.call(0, "get", &inputs);
    assert_eq!(hand.net.gauge(r(0), "leads"), 1);
    for member in 0..3 {
        hand.net.ahead_us.insert(NodeId::replica(1, member), 1_000_000);
    }
    hand.run(1000);
    for member in 1..3 {
        hand.net.cut.insert((r(0), NodeId::replica(0, member)));
        hand.net.cut.insert((NodeId::replica(0, member), r(0)));
    }
    for member in 0..3 {
        for of in 0..3 {
            let pair = (NodeId::replica(1, member), NodeId::replica(0, of));
            hand.net.cut.insert(pair);
        }
    }
    let call = hand.begin(0, "two", &inputs);
    hand.run(20); // Partition 1 has refused it.
    for member in 0..3 {
        hand.net.cut.insert((testing::client_id(0), NodeId::replica(1, member)));
    }
    for member in 0..3 {
        hand.net.cut.insert((testing::client_id(0), NodeId::replica(0, member)));
    }
    hand.run(2000);
    for member in 0..3 {
        hand.net.cut.remove(&(testing::client_id(0), NodeId::replica(0, member)));
    }
    for _ in 0..50 {
        hand.run(100);
        if hand.began(call).len() > 1 {
            break;
        }
    }
    hand.net.cut.clear();
    hand.run(10_000);
    assert!(hand.outcome(call).is_some(), "the call has not ended");
    assert_eq!(hand.call(1, "get", &inputs), [1, 1], "{:?}", hand.began(call));
}

#[test]
fn a_refused_call_ends_though_servers_have_started_less_of_it() {
    let mut hand = Hand::new(2, 1, Settings { recovery_after_ms: 300, ..Settings::default() });
    hand.register(compiled(REFUSING));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0), hand.at(1, 1), hand.at(0, 2)];
    let set = hand.begin(0, "refusing", &inputs);
    hand.run(3000);
    assert!(matches!(hand.outcome(set), Some(Outcome::Refused(_))));
    let call = hand.begin(0, "refusing", &inputs);
    for start in hand.net.take(|(.., message)| start_to(message)) {
        hand.net.deliver(start);
    }
    // The client hears only of the piece `first`, and its next start takes long.
    let started = |(from, _, message): &testing::Envelope<Message>| {
        *from == r(1) && matches!(message, Message::Reply(Reply::Started(_)))
    };
    let reply = hand.net.take_first(started).expect("started");
    hand.net.network.clear();
    hand.net.deliver(reply);
    let late = hand.net.take(|(.., message)| start_to(message));
    assert_eq!(late.len(), 1);
    for partition in 0..2 {
        hand.net.cut.insert((testing::client_id(0), r(partition)));
        hand.net.cut.insert((r(partition), testing::client_id(0)));
    }
    hand.run(3000);
    hand.net.cut.clear();
    for start in late {
        hand.net.deliver(start);
    }
    hand.run(20_000);
    assert!(hand.outcome(call).is_some(), "the call has not ended");
}

#[test]
fn a_row_that_comes_back_is_another_one() {
    let mut hand = Hand::new(2, 1, short());
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.call(1, "put", &[inputs[0], 5]);
    hand.call(0, "get", &inputs);
    let read = hand.begin(0, "get", &inputs);
    let is_read = |message: &Message| matches!(message, Message::Request(Request::Read(_)));
    for (from, to, message) in hand.net.take(|(.., message)| is_read(message)) {
        hand.net.deliver((from, to, message));
    }
    // The second round reads the second row now, and the first one later.
    while hand.net.network.iter().all(|(_, _, message)| !is_read(message)) {
        assert!(hand.net.step());
    }
    let late = hand.net.take(|(_, to, message)| *to == r(0) && is_read(message));
    assert_eq!(late.len(), 1);
    hand.net.cut.insert((testing::client_id(0), r(0)));
    hand.run(1);
    hand.call(1, "drop", &inputs[..1]);
    hand.run(2000);
    hand.call(1, "two", &inputs);
    hand.net.cut.clear();
    for envelope in late {
        hand.net.deliver(envelope);
    }
    hand.run(2000);
    let Some(Outcome::Done(results)) = hand.outcome(read) else { panic!("no results") };
    assert_ne!(results.data, [Datum::Int(1), Datum::Int(0)]);
}

#[test]
fn a_commit_that_comes_after_all_was_forgotten_is_answered() {
    let mut hand = Hand::new(2, 1, short());
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.call(0, "get", &inputs);
    let call = hand.begin(0, "two", &inputs);
    let is_commit = |message: &Message| matches!(message, Message::Request(Request::Commit(_)));
    while hand.net.network.iter().all(|(_, _, message)| !is_commit(message)) {
        assert!(hand.net.step());
    }
    hand.net.cut.insert((r(1), testing::client_id(0)));
    hand.run(5000);
    hand.net.cut.clear();
    assert_eq!(hand.net.gauge(r(1), "remembered_transactions"), 0);
    hand.run(20_000);
    assert!(hand.outcome(call).is_some(), "the call has not ended");
}

#[test]
fn two_inquiries_about_a_call_both_end() {
    let mut hand = Hand::new(2, 1, Settings::default());
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    let number = hand.begin(0, "two", &inputs);
    hand.run(1000);
    let call = hand.began(number)[0];
    let inquiries = [0, 1].map(|_| hand.operate(0, Operation::Inquire { call }));
    hand.run(20_000);
    let ended = inquiries.map(|number| hand.outcome(number).is_some());
    assert_eq!(ended, [true, true]);
}

#[test]
fn a_deleted_row_stays_deleted_at_a_replica_that_copies() {
    let settings = Settings { resident_keys: 8, ..short() };
    let mut hand = Hand::new(1, 3, settings);
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    assert_eq!(hand.net.gauge(r(0), "leads"), 1);
    hand.call(1, "put", &[1000, 7]);
    hand.run(3000);
    hand.net.crash(r(0));
    hand.run(2000);
    hand.call(1, "drop", &[1000]);
    hand.run(2000);
    for key in 0..60 {
        hand.call(1, "put", &[key, 1]);
    }
    hand.run(3000);
    let fresh = Replica::new(r(0), hand.group.clone(), &hand.settings, Mutated::NONE);
    hand.net.restart(r(0), fresh);
    assert_eq!(hand.call(1, "get", &[1000, 1000]), [0, 0]);
    for _ in 0..30 {
        hand.run(1000);
        if hand.net.gauge(r(0), "leads") == 1 {
            break;
        }
    }
    assert_eq!(hand.net.gauge(r(0), "leads"), 1);
    assert_eq!(hand.call(2, "get", &[1000, 1000]), [0, 0]);
}

#[test]
fn a_cycle_is_executed_alike_when_one_of_it_was_forgotten() {
    let settings = Settings { recovery_after_ms: 60_000, ..short() };
    let mut hand = Hand::new(3, 1, settings);
    hand.register(set(More::None));
    hand.run(1000);
    let (p, q, s) = (0, 1, 2);
    let [p1, s1] = [hand.at(p, 0), hand.at(s, 0)];
    let [q1, q2, q3] = [0, 1, 2].map(|number| hand.at(q, number));
    for client in 0..3 {
        let number = hand.begin(client, "read", &[]);
        hand.run(500);
        assert!(hand.outcome(number).is_some());
    }
    let m = hand.begin(1, "defer", &[q1, q2, q3, 1]);
    let of_m = hand.net.take(|(.., message)| start_to(message));
    let x = hand.begin(0, "defer", &[q1, p1, s1, 2]);
    let (at_q, of_x): (Vec<_>, Vec<_>) = hand
        .net
        .take(|(.., message)| start_to(message))
        .into_iter()
        .partition(|(_, to, _)| *to == r(q));
    let z = hand.begin(2, "defer", &[q2, p1, s1, 3]);
    let of_z = hand.net.take(|(.., message)| start_to(message));
    for envelope in at_q.into_iter().chain(of_m).chain(of_z).chain(of_x) {
        hand.net.deliver(envelope);
    }
    let versions = [m, x, z].map(|call| hand.began(call)[0]);
    assert!(versions.is_sorted());
    // Nobody tells partition p for some time that they commit.
    let is_commit = |message: &Message| matches!(message, Message::Request(Request::Commit(_)));
    for _ in 0..1000 {
        hand.net.network.retain(|(_, to, message)| *to != r(p) || !is_commit(message));
        if !hand.net.step() {
            break;
        }
    }
    for client in [0, 2] {
        hand.net.cut.insert((testing::client_id(client), r(p)));
    }
    hand.run(5000);
    assert!(hand.outcome(m).is_some(), "m has not ended");
    assert!(hand.outcome(x).is_none() && hand.outcome(z).is_none());
    hand.net.cut.clear();
    hand.run(5000);
    let texts = [x, z].map(|call| match hand.outcome(call) {
        Some(Outcome::Done(results)) => results.data,
        other => panic!("{other:?}"),
    });
    for found in &texts {
        // Both texts have the same order.
        assert_eq!(found[1], found[2], "{texts:?}");
    }
}

#[derive(Clone, Copy)]
pub(super) struct Hunt {
    pub(super) mutation: Mutated<Mutation>,
    pub(super) more: More,
    /// Whether sets of procedures are registered meanwhile.
    pub(super) registers: bool,
    pub(super) cuts: bool,
    /// Whether vertices that a leader keeps after all was forgotten are a mistake.
    pub(super) leaks: bool,
}

pub(super) const NONE: Hunt =
    Hunt { mutation: Mutated::NONE, more: More::None, registers: false, cuts: false, leaks: false };

/// Explores with short memories, cut connections and, with three members, lost disks.
pub(super) fn explore_more(
    seed: u64,
    members: usize,
    settings: Settings,
    hunt: Hunt,
) -> Result<(), String> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let group = Group::new(members, Duration::from_millis(1)).with_partitions(3);
    let mutation = hunt.mutation;
    let replica = |id| Replica::new(id, group.clone(), &settings, mutation);
    let mut net = Net::new(3, members, replica)
        .with_clients(4, |_| Coordinator::new(group.clone(), &settings, mutation));
    net.set_clock_us(1_000_000_000);
    net.tick = 1;
    net.start();
    net.pass(Duration::from_secs(1));
    let calls = BTreeMap::new();
    let mut world = World { net, group, settings, mutation, calls, next: 1, more: hunt.more };
    world.register();
    let mut down: Option<(NodeId, u32, bool)> = None;
    let mut cut_until = 0;
    for round in 0..3000 {
        if world.next < 100 && random.random_range(0..10) == 0 {
            world.random_call(&mut random);
        }
        if hunt.registers && round % 500 == 250 {
            let mut other = set(hunt.more).as_ref().clone();
            if round % 1000 == 250 {
                let mut spare = other.procedures.last().expect("there are some").clone();
                spare.name = "spare".to_owned();
                other.procedures.insert(0, spare);
            }
            let register = Operation::Register { set: Arc::new(other), replaces: None };
            world.net.operate(3, 1_000_000 + round as u64, register);
        }
        if !world.step(&mut random, true) || random.random_range(0..30) == 0 {
            world.net.now += random.random_range(100..30_000);
            let ids = world.net.ids();
            for _ in 0..3 {
                let id = ids[random.random_range(0..ids.len())];
                if down.is_none_or(|(other, ..)| other != id) {
                    world.net.fire_due(id);
                }
            }
            world.net.fire_due_clients();
            world.take_outputs();
        }
        if hunt.cuts && round >= cut_until {
            world.net.cut.clear();
            if random.random_range(0..200) == 0 {
                let mut all = world.net.ids();
                all.extend((0..4).map(testing::client_id));
                for _ in 0..random.random_range(1..8) {
                    let mut one = || all[random.random_range(0..all.len())];
                    let pair = (one(), one());
                    world.net.cut.insert(pair);
                }
                cut_until = round + random.random_range(50..600);
            }
        }
        match down {
            None if random.random_range(0..100) == 0 => {
                let ids = world.net.ids();
                let id = ids[random.random_range(0..ids.len())];
                world.net.crash(id);
                let lost = members > 1 && random.random_range(0..3) == 0;
                down = Some((id, round + random.random_range(10..200), lost));
            }
            Some((id, back, lost)) if round >= back => {
                let fresh = world.fresh(id);
                match lost {
                    true => world.net.replace(id, fresh),
                    false => world.net.restart(id, fresh),
                }
                down = None;
                if lost {
                    // It copies before another disk is lost.
                    world.net.cut.clear();
                    for _ in 0..20 {
                        world.net.pass(Duration::from_millis(100));
                        world.take_outputs();
                    }
                }
            }
            _ => {}
        }
    }
    world.net.cut.clear();
    if let Some((id, ..)) = down {
        let fresh = world.fresh(id);
        world.net.restart(id, fresh);
    }
    world.finish();
    world.check(false)?;
    world.net.pass(Duration::from_secs(10));
    for id in world.net.ids() {
        for name in ["open_transactions", "remembered_transactions"] {
            if world.net.gauge(id, name) > 0 {
                return Err(format!("{id}: {name} {}", world.net.gauge(id, name)));
            }
        }
        // Only leaders have it.
        if hunt.leaks
            && world.net.gauge(id, "leads") == 1
            && world.net.gauge(id, "known_vertices") > 0
        {
            return Err(format!("{id}: vertices {}", world.net.gauge(id, "known_vertices")));
        }
    }
    Ok(())
}

pub(super) fn explore_more_all(
    name: &str,
    seeds: u64,
    members: usize,
    settings: Settings,
    hunt: Hunt,
) {
    let mut failed = Vec::new();
    for seed in 0..seeds * factor() {
        let explored = std::panic::catch_unwind(|| explore_more(seed, members, settings, hunt));
        if !matches!(explored, Ok(Ok(()))) {
            failed.push((seed, explored.ok()));
        }
    }
    assert!(failed.is_empty(), "{name}: {failed:#?}");
}

#[test]
fn short_memories_do_no_harm() {
    explore_more_all("short", 30, 1, short(), NONE);
}

#[test]
fn lost_disks_do_no_harm() {
    explore_more_all(
        "disks",
        20,
        3,
        Settings { recovery_after_ms: 300, outcomes_ms: 2000, ..Settings::default() },
        NONE,
    );
}

#[test]
fn cut_connections_do_no_harm() {
    explore_more_all(
        "cuts",
        20,
        3,
        Settings { recovery_after_ms: 300, outcomes_ms: 5000, ..Settings::default() },
        Hunt { cuts: true, ..NONE },
    );
}

#[test]
fn leaders_forget_the_vertices_of_what_was_forgotten() {
    explore_more_all("leak", 5, 1, short(), Hunt { leaks: true, ..NONE });
}
