//! Replicas that replace lost disks.

use super::by_hand::{contents, decide, prepare, version};
use super::world::{SECOND, World, digest, n, votes};
use super::*;
use crate::morty::Digest;
use crate::morty::message::Ballot;

#[test]
fn a_replacement_votes_on_nothing_before_it_knows_what_may_have_committed() {
    let mut net = morty(2);
    net.now = SECOND;
    // n2 is not reached by the first: n0 and n1 commit it.
    net.held.insert(n(2));
    net.get(0, "x");
    net.settle();
    net.commit(0, &["x"], &[("x", "first")]);
    net.settle();
    net.fire(0, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(0), ["value x = absent", "committed"]);
    // What is under way to n2 is lost, and so is the first client.
    net.network.clear();
    net.held = NodeSet::EMPTY;
    // n1's disk is lost, and n0 is slow from now on: n1 gets nothing but what n2 has.
    net.held.insert(n(0));
    net.replace(1);
    net.settle();
    net.now += 5 * SECOND;
    net.get(1, "x");
    net.settle();
    // n0 does not answer, nor does n1.
    for _ in 0..2 {
        net.fire(1, |timer| matches!(timer, Timer::Repeat(_)));
        net.settle();
    }
    assert_eq!(net.told(1), ["value x = absent"]);
    net.commit(1, &["x"], &[("x", "second")]);
    net.settle();
    for _ in 0..2 {
        net.fire(1, |timer| matches!(timer, Timer::FastPath(_) | Timer::Repeat(_)));
        net.settle();
    }
    assert_eq!(net.told(1), [] as [&str; 0], "both have found x absent");
    assert_eq!(net.gauge(1, "catching_up"), 1);
    // Once n0 can be asked, n1 has all that is settled above what its predecessor may have voted on.
    net.held = NodeSet::EMPTY;
    net.start();
    net.pass(Duration::from_secs(40));
    assert_eq!(net.gauge(1, "catching_up"), 0);
    net.network.clear();
    let get = Message::Request(Request::Get { version: version(net.now, 5), key: Key::from("x") });
    let answers = net.tell(coordinator_id(5), 1, get);
    let [(_, answer)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(name(answer), "GetReply x = first");
}

#[test]
fn a_replacement_takes_part_once_a_truncation_above_its_floor_is_due() {
    let Settings { clock_bound_ms, truncation_every_ms, truncation_lag_ms, .. } =
        Settings::default();
    let latest_ms = 2 * clock_bound_ms + truncation_every_ms + truncation_lag_ms;
    // The replicas take turns at coordinating truncations, and were not started at the same time.
    for tenths in 0..60 {
        let mut net = morty(1);
        for member in 0..3 {
            net.act(member, Replica::on_start);
            net.pass(Duration::from_millis(700));
        }
        net.get(0, "x");
        net.settle();
        net.commit(0, &["x"], &[("x", "1")]);
        net.pass(Duration::from_secs(30) + Duration::from_millis(100 * tenths));
        net.replace(1);
        net.pass(Duration::from_millis(latest_ms + 10));
        assert_eq!(net.gauge(1, "catching_up"), 0, "replaced {tenths} tenths of a second later");
    }
}

#[test]
fn a_truncation_announced_during_catch_up_is_asked_for_next() {
    let mut world = World::new(1);
    let client = coordinator_id(0);
    let txn = version(SECOND, 0);
    for member in 0..3 {
        let what = contents(&[], &[("k", "a")]);
        world.tell(client, n(member), decide(txn, 0, Decision::Commit, &what));
    }
    // n0 has restarted and asks n1, whose answer takes long.
    world.restart(n(0));
    let lists = world.take(|e| e.1 == n(1));
    let lists: Vec<_> = lists.into_iter().flat_map(|(f, t, m)| world.tell(f, t, m)).collect();
    // Meanwhile another transaction commits, of which n2 tells, and a truncation ends.
    let other = version(2 * SECOND, 0);
    world.tell(client, n(2), decide(other, 0, Decision::Commit, &contents(&[], &[("l", "a")])));
    let (upto, merged) = (4 * SECOND, digest(&[txn, other]));
    world.network.clear();
    world.tell(n(2), n(0), Message::Truncating(Truncating::TruncationFinished { upto, merged }));
    lists.into_iter().for_each(|envelope| world.deliver(envelope));
    world.settle(|e| !e.1.is_coordinator());
    let view = View::OWN.next(n(1));
    let said = world.tell(
        n(1),
        n(0),
        Message::Truncating(Truncating::TruncationPaxosPrepare { ballot: Ballot { upto, view } }),
    );
    assert_eq!(
        said,
        [(n(0), n(1), Message::Truncating(Truncating::TruncationFinished { upto, merged }))]
    );
}

#[test]
fn who_does_not_take_part_is_nobodys_source() {
    let mut world = World::new(1);
    world.act(n(0), Replica::rejoin);
    world.act(n(0), Replica::on_start);
    let run = 1;
    for asked in [
        Message::CatchingUp(CatchingUp::GetCommitted { since: Version::INITIAL, run }),
        Message::CatchingUp(CatchingUp::Scan { after: None, since: 0, run }),
        Message::Rejoining(Rejoining::Replaced { question: 1 }),
    ] {
        assert_eq!(world.tell(n(1), n(0), asked), []);
    }
}

#[test]
fn the_floor_is_above_whatever_a_majority_of_the_others_has_seen() {
    let mut world = World::new(1);
    let client = coordinator_id(0);
    // n2 has voted on what is ahead of its clock, and n0's own clock is far behind.
    world.now = 50 * SECOND;
    let ahead = version(51 * SECOND, 0);
    world.tell(client, n(2), prepare(ahead, 0, &contents(&[], &[("k", "a")])));
    world.now = SECOND;
    world.act(n(0), Replica::rejoin);
    world.act(n(0), Replica::on_start);
    // A restart before it has heard of anybody, and between the two, changes nothing.
    world.restart(n(0));
    world.settle(|e| e.1 != n(2) && !e.1.is_coordinator());
    world.restart(n(0));
    let merged = Digest::default();
    let takes_part = |world: &mut World, upto| {
        world.now = upto + SECOND;
        world.tell(
            n(1),
            n(0),
            Message::Truncating(Truncating::TruncationFinished { upto, merged }),
        );
        let what = contents(&[], &[("other", "a")]);
        let later = version(world.now, 7);
        votes(&world.tell(client, n(0), prepare(later, 0, &what))).len() == 1
    };
    assert!(!takes_part(&mut world, 30 * SECOND), "it has asked one of two");
    world.settle_all();
    assert!(!takes_part(&mut world, 54 * SECOND));
    world.restart(n(0));
    world.settle_all();
    assert!(!takes_part(&mut world, 54 * SECOND + 500_000));
    assert!(takes_part(&mut world, 56 * SECOND));
}

/// What it would find out counts what it does not know of.
#[test]
fn a_replacement_finishes_nobodys_transaction_before_it_takes_part() {
    let mut world = World::new(1);
    world.now = 100 * SECOND;
    let unknown = version(99 * SECOND, 1);
    let inquire = || Message::Request(Request::Inquire { version: unknown });
    let answers = world.tell(coordinator_id(5), n(1), inquire());
    assert!(!answers.is_empty(), "others find it out");
    world.lose_disk(n(0));
    world.network.clear();
    assert_eq!(world.tell(coordinator_id(5), n(0), inquire()), []);
}

/// Else no outcome is ever forgotten.
#[test]
fn the_replicas_on_a_machine_tell_each_other_their_watermarks() {
    let mut world = World::new(3);
    world.now = 100 * SECOND;
    let upto = 60 * SECOND;
    let merged = digest(&[]);
    let finished = Message::Truncating(Truncating::TruncationFinished { upto, merged });
    let answers = world.tell(n(2), n(1), finished);
    let told =
        answers.iter().filter(|(.., m)| matches!(m, Message::Watermark { upto: 60_000_000 }));
    let told: Vec<NodeId> = told.map(|(_, to, _)| *to).collect();
    assert_eq!(told, [NodeId::replica(1, 1), NodeId::replica(2, 1)]);
}

/// Else one clock that is ahead could end all voting.
#[test]
fn a_truncation_that_lies_ahead_of_the_clock_is_not_prepared_for() {
    let mut world = World::new(1);
    world.now = 100 * SECOND;
    let view = View { round: 1, recoverer: n(1) };
    for (upto, stops) in [(1000 * SECOND, false), (60 * SECOND, true)] {
        let prepare = Truncating::TruncationPaxosPrepare { ballot: Ballot { upto, view } };
        let answers = world.tell(n(1), n(0), Message::Truncating(prepare));
        assert_eq!(
            (!answers.is_empty(), world.gauge(n(0), "stopped_below_us") > 0),
            (stops, stops)
        );
    }
}
