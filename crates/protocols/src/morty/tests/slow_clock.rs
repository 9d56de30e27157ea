//! A client whose clock is behind those of others, and wants the same key.

use serried_model::{Modification, Modify};

use super::by_hand::{contents, decide, prepare, version};
use super::world::{World, n};
use super::*;
use crate::morty::Crowds;
use crate::morty::message::Conflict;

/// By how much the other's clock is ahead, in microseconds.
const AHEAD_US: i64 = 500;

/// Two clients, of which the second one's clock is ahead by so much. `x` has a value.
fn two(mut net: Net, ahead_us: i64) -> Net {
    net.tick = 0;
    net.ahead_us.insert(coordinator_id(1), ahead_us);
    net.commit(1, &[], &[("x", "0")]);
    net.settle();
    net.now += 5_000_000;
    net.told(1);
    net
}

/// The second client reads `x`, and then the first one begins, and writes it. What the first one is told of the outcome.
fn compete(net: &mut Net) -> String {
    net.now += 50;
    net.get(1, "x");
    net.settle();
    net.now += 50;
    net.get(0, "y");
    net.settle();
    net.commit(1, &["x"], &[]);
    net.settle();
    assert!(net.told(1).contains(&"committed".to_string()));
    net.commit(0, &["y"], &[("x", "1")]);
    net.settle();
    net.told(0).pop().expect("it has ended")
}

#[test]
fn it_aborts_once_and_then_takes_versions_after_those_that_were_in_its_way() {
    for net in [morty(2), mvtso(2)] {
        let mut net = two(net, AHEAD_US);
        assert_eq!(compete(&mut net), "aborted over [\"x\"]");
        for _ in 0..8 {
            assert_eq!(compete(&mut net), "committed");
        }
    }
}

#[test]
fn a_vote_against_a_transaction_that_commits_is_not_followed() {
    let mut net = two(morty(2), AHEAD_US);
    net.get(1, "x");
    net.settle();
    net.get(0, "y");
    net.settle();
    net.commit(1, &["x"], &[]);
    // One replica alone has prepared the reader when the writer comes.
    let (first, others): (Vec<_>, Vec<_>) =
        core::mem::take(&mut net.network).into_iter().partition(|(_, to, _)| *to == NodeId(0));
    net.network.extend(first);
    net.held = [NodeId(1), NodeId(2)].into_iter().collect();
    net.settle();
    net.held = NodeSet::EMPTY;
    net.commit(0, &["y"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0).pop().unwrap(), "committed");
    net.network.extend(others);
    net.settle();
    assert!(net.told(1).contains(&"rewind x = 1".to_string()));
    net.commit(1, &["x"], &[]);
    net.settle();
    assert!(net.told(1).contains(&"committed".to_string()));
    net.now += 1000;
    assert_eq!(compete(&mut net), "aborted over [\"x\"]", "it has no lead yet");
}

#[test]
fn a_version_that_is_refused_because_of_a_lead_does_not_blame_the_clock() {
    let bound_us = Settings::default().clock_bound_ms * 1000;
    let mut net = two(morty(2), 400_000);
    compete(&mut net);
    // The clock is corrected, a little too far. With the lead it is beyond what replicas admit.
    net.ahead_us.insert(coordinator_id(0), (bound_us - 100_000).cast_signed());
    net.get(0, "y");
    net.settle();
    assert_eq!(net.told(0), ["aborted over []"]);
    net.now += 200_000;
    net.get(0, "y");
    net.settle();
    assert_eq!(net.told(0), ["aborted over []"], "versions rise");
    net.now += 200_000;
    net.get(0, "y");
    net.settle();
    net.commit(0, &["y"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["value y = absent", "committed"]);
    // A clock that is wrong itself is blamed.
    net.ahead_us.insert(coordinator_id(0), (bound_us + 500_000).cast_signed());
    net.get(0, "y");
    net.settle();
    assert!(net.told(0)[0].contains("ClockSkew"));
}

#[test]
fn votes_name_the_latest_reader_that_misses_a_write() {
    let [before, writer, first, second] = [5, 10, 20, 30].map(|at| version(at, at));
    let reads = contents(&[("x", before)], &[("y", "1")]);
    for (commits, expected) in [(false, Vote::AbandonTentative), (true, Vote::AbandonFinal)] {
        let mut world = World::new(1);
        world.now = 40;
        world.commit(&[0], before, &contents(&[], &[("x", "0")]));
        for reader in [second, first] {
            world.tell(reader.coordinator, n(0), prepare(reader, 0, &reads));
            if commits {
                world.tell(reader.coordinator, n(0), decide(reader, 0, Decision::Commit, &reads));
            }
        }
        let late = prepare(writer, 0, &contents(&[], &[("x", "1")]));
        let said = world.tell(writer.coordinator, n(0), late);
        let voted = said.iter().find_map(|(.., message)| match message {
            Message::Reply(Reply::PrepareReply { vote, conflict, .. }) => Some((*vote, conflict)),
            _ => None,
        });
        let over = Conflict { readers: Some(second), ..Conflict::over(Key::from("x")) };
        assert_eq!(voted, Some((expected, &Some(over))));
    }
}

/// The version of a client's next transaction, in microseconds.
fn begins(net: &mut Net, client: u64) -> u64 {
    net.told(client);
    net.get(client, "y");
    net.hear();
    let began = net.outputs.iter().rev().find_map(|(other, output)| match output {
        Output::Began(version) if *other == client => Some(version.timestamp_us),
        _ => None,
    });
    began.expect("it has begun")
}

#[test]
fn a_lead_is_no_more_than_a_part_of_what_clocks_may_differ_by() {
    let bound_us = Settings::default().clock_bound_ms * 1000;
    let mut net = two(morty(2), (bound_us - 100_000).cast_signed());
    assert_eq!(compete(&mut net), "aborted over [\"x\"]");
    let now_us = net.clock_us();
    assert_eq!(begins(&mut net, 0), now_us + bound_us / 4 + 1);
}

#[test]
fn of_the_readers_that_votes_name_the_earliest_is_followed() {
    for ahead_us in [[100_000, 400_000], [400_000, 100_000]] {
        let mut net = two(mvtso(2), 0);
        net.get(0, "y");
        net.settle();
        net.commit(0, &["y"], &[("x", "1")]);
        let is_prepare =
            |message: &Message| matches!(message, Message::Request(Request::Prepare { .. }));
        let prepares = net.take(|(.., message)| is_prepare(message));
        let now_us = net.clock_us();
        for ((client, replica, message), ahead_us) in prepares.into_iter().zip(ahead_us) {
            let Message::Request(Request::Prepare { version, eid, .. }) = message else {
                unreachable!("these are Prepares");
            };
            let readers = Some(Version::at(now_us + ahead_us));
            let conflict = Some(Conflict { readers, ..Conflict::over(Key::from("x")) });
            let vote = Vote::AbandonTentative;
            let reply = Reply::PrepareReply { version, eid, vote, conflict };
            net.deliver((replica, client, Message::Reply(reply)));
        }
        net.settle();
        assert_eq!(net.told(0).pop().unwrap(), "aborted over [\"x\"]");
        assert_eq!(begins(&mut net, 0), now_us + 100_000 + 1);
    }
}

#[test]
fn a_client_that_only_writes_learns_from_votes_how_long_answers_take() {
    for net in [morty(2), mvtso(2)] {
        let mut net = two(net, AHEAD_US);
        let told = [(); 3].map(|()| {
            net.now += 50;
            net.get(1, "x");
            net.settle();
            net.now += 50;
            net.commit(1, &["x"], &[]);
            net.settle();
            net.told(1);
            net.commit(0, &[], &[("x", "1")]);
            net.settle();
            net.told(0).pop().unwrap()
        });
        // The first vote may have taken any time.
        assert_eq!(told, ["aborted over [\"x\"]", "aborted over [\"x\"]", "committed"]);
    }
}

#[test]
fn a_lead_counts_from_when_the_vote_left() {
    // How long the read takes, and the vote.
    for (read_us, vote_us) in [(100, 150), (200, 100)] {
        let mut net = two(morty(2), AHEAD_US);
        net.get(0, "y");
        net.now += read_us;
        net.settle();
        if vote_us < read_us {
            net.commit(0, &["y"], &[("z", "1")]);
            net.now += vote_us;
            net.settle();
            assert_eq!(net.told(0).pop().unwrap(), "committed");
            net.get(0, "y");
            net.now += read_us;
            net.settle();
        }
        net.get(1, "x");
        let reader_us = net.clock_us().saturating_add_signed(AHEAD_US);
        net.settle();
        net.commit(1, &["x"], &[]);
        net.settle();
        net.commit(0, &["y"], &[("x", "1")]);
        net.now += vote_us;
        net.settle();
        assert_eq!(net.told(0).pop().unwrap(), "aborted over [\"x\"]");
        // No answer has taken less than 100 us, so the vote may have left as long ago.
        assert_eq!(begins(&mut net, 0), reader_us + 100 + 1);
    }
}

#[test]
fn a_clock_that_was_set_back_is_blamed_though_there_is_a_lead() {
    let mut net = two(morty(2), 400_000);
    compete(&mut net);
    let bound_us = Settings::default().clock_bound_ms * 1000;
    net.ahead_us.insert(coordinator_id(0), (5 * bound_us).cast_signed());
    begins(&mut net, 0);
    net.settle();
    net.told(0);
    net.ahead_us.insert(coordinator_id(0), 0);
    net.get(0, "y");
    net.settle();
    assert!(net.told(0)[0].contains("ClockSkew"));
}

#[test]
fn a_seal_waits_as_long_though_versions_have_a_lead() {
    let crowds = Crowds { many: 2, most: 100 };
    let net = Net::new(Options { crowds, ..Options::default() }, 2);
    let mut net = two(net, 80_000);
    assert_eq!(compete(&mut net), "aborted over [\"x\"]");
    let add = || {
        let modifications = vec![Modification::add(1)];
        let modifies = vec![Modify { key: Key::from("k"), modifications }];
        Operation::Commit { reads: Vec::new(), writes: Vec::new(), modifies }
    };
    net.operate(0, add());
    net.settle();
    net.told(0);
    net.operate(0, add());
    net.wait(Duration::from_millis(100));
    net.settle();
    let timers = &net.clients[coordinator_id(0)].timers;
    let seal = timers.iter().find(|(timer, _)| matches!(timer, Timer::Seal(_)));
    let wait = seal.expect("it seals").1.since(net.timestamp());
    assert!(wait >= Duration::from_millis(98), "{wait:?}");
}
