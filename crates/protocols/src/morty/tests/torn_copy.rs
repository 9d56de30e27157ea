//! A replica whose copy of another's store breaks off, and those that ask it for what they have missed.

use super::by_hand::{contents, prepare, version};
use super::world::{SECOND, World, digest, n, votes};
use super::*;

const UPTO: u64 = 100 * SECOND;

/// Five replicas of each of two partitions. n0 and n1 do not hear how far the other partition is.
fn five() -> World {
    World::with(Group::new(5, Duration::from_millis(1)).with_partitions(2))
}

/// All have a value, of which n0 missed that it was deleted, and n1 went away after that. The others have
/// gone on for so long that they have forgotten the delete.
fn deleted_while_n0_was_away(world: &mut World) -> [Version; 3] {
    let [first, delete, pages] = [1, 2, 3].map(|at| version(SECOND + at, 0));
    let long = "x".repeat(300 << 10);
    world.commit(&[0, 1, 2, 3, 4], first, &contents(&[], &[("k", "v")]));
    world.commit(&[1, 2, 3, 4], delete, &contents(&[], &[("k", "")]));
    world.commit(&[0, 1, 2, 3, 4], pages, &contents(&[], &[("l", &long), ("m", &long)]));
    // Of this truncation n1 hears before it goes away.
    world.now = 14 * SECOND;
    (1..5).for_each(|member| {
        world.settle_below(n(member), 4 * SECOND, digest(&[first, delete, pages]));
    });
    for member in 2..5 {
        let elsewhere = NodeId::replica(1, member);
        world.tell(elsewhere, n(member), Message::Watermark { upto: UPTO });
        // n3 has not heard of the last one.
        let last = UPTO - if member == 3 { 2 * SECOND } else { 0 };
        for upto in (UPTO - 20 * SECOND..=last).step_by(2 * SECOND as usize) {
            world.now = upto + 10 * SECOND;
            world.settle_below(n(member), upto, digest(&[first, delete, pages]));
        }
    }
    [first, delete, pages]
}

/// n1 comes back and copies n2's store. n2 dies when n1 has the first of two pages.
fn copy_breaks_off(world: &mut World) {
    world.restart(n(1));
    let mut pages = 0;
    // The first is asked for twice.
    while pages < 2 {
        let next = world.take(|e| [(n(1), n(2)), (n(2), n(1))].contains(&(e.0, e.1)));
        assert!(!next.is_empty(), "n1 copies what n2 has");
        for envelope in next {
            if let Message::CatchingUp(CatchingUp::Scanned { next, .. }) = &envelope.2 {
                assert!(next.is_some(), "one of two pages");
                pages += 1;
            }
            world.deliver(envelope);
        }
    }
    world.network.clear();
    for _ in 0..3 {
        world.timer(n(1), ReplicaTimer::CatchUp);
    }
    // It asks the next, who is slow.
    world.network.clear();
}

/// Everything is there, and does what it does by the clock, for so many seconds.
fn pass(world: &mut World, seconds: u64) {
    for second in 0..seconds {
        world.now += SECOND;
        for id in world.nodes.keys().copied().collect::<Vec<_>>() {
            for timer in [
                ReplicaTimer::Watch,
                ReplicaTimer::CatchUp,
                ReplicaTimer::Floor,
                ReplicaTimer::Settle,
            ] {
                world.timer(id, timer);
            }
            if second % 2 == 0 {
                world.timer(id, ReplicaTimer::Truncation);
            }
            world.settle_all();
            world.network.clear();
        }
    }
}

/// n0 was away for long, and copies n1's store. n1's disk is lost before the copy is complete. n2 has not heard that the
/// last truncation is over, and has stopped for the next.
#[test]
fn a_replica_whose_copy_broke_off_says_how_far_its_peer_was() {
    let mut world = World::new(1);
    world.now = 2 * SECOND + 1;
    let long = "x".repeat(300 << 10);
    let [first, second, third] = [0, 1, 2].map(|at| version(2 * SECOND + at, 0));
    world.commit(&[1, 2], first, &contents(&[], &[("a", "1")]));
    world.commit(&[1, 2], second, &contents(&[], &[("l", &long), ("m", &long)]));
    world.commit(&[0, 1, 2], third, &contents(&[], &[("b", "1")]));
    world.network.clear();
    world.now = 60 * SECOND + SECOND / 2;
    for member in [1, 2] {
        world.timer(n(member), ReplicaTimer::Truncation);
    }
    world.settle(|e| {
        let to_n2 = e.1 == n(2)
            && matches!(e.2, Message::Truncating(Truncating::TruncationFinished { .. }));
        !to_n2 && e.0 != n(0) && e.1 != n(0)
    });
    world.network.clear();
    let watermarks = |world: &World| [0, 1, 2].map(|i| world.gauge(n(i), "truncated_below_us"));
    assert_eq!(watermarks(&world)[1..], [50 * SECOND, 0]);
    world.now += SECOND;
    world.restart(n(0));
    let mut pages = 0;
    while pages < 2 {
        let next = world.take(|e| [(n(0), n(1)), (n(1), n(0))].contains(&(e.0, e.1)));
        assert!(!next.is_empty());
        for envelope in next {
            pages += usize::from(matches!(
                envelope.2,
                Message::CatchingUp(CatchingUp::Scanned { next: Some(_), .. })
            ));
            world.deliver(envelope);
        }
    }
    world.network.clear();
    // The last that n2 hears of n1.
    for _ in 0..3 {
        world.now += 2 * SECOND;
        world.timer(n(1), ReplicaTimer::Truncation);
        let asked = world.take(|e| {
            (e.0, e.1) == (n(1), n(2))
                && matches!(e.2, Message::Truncating(Truncating::TruncationPaxosPrepare { .. }))
        });
        asked.into_iter().for_each(|envelope| world.deliver(envelope));
        world.network.clear();
    }
    world.lose_disk(n(1));
    pass(&mut world, 60);
    assert_eq!([0, 1, 2].map(|i| world.gauge(n(i), "catching_up")), [0; 3]);
    let [a, b, c] = watermarks(&world);
    assert!(a > 50 * SECOND && (a, b) == (b, c), "{a} {b} {c}");
}

#[test]
fn a_replica_whose_copy_broke_off_hands_on_nothing_it_may_lack() {
    for restarts in [false, true] {
        let mut world = five();
        let all @ [_, delete, _] = deleted_while_n0_was_away(&mut world);
        copy_breaks_off(&mut world);
        if restarts {
            world.restart(n(1));
            world.network.clear();
        }
        let list = Message::CatchingUp(CatchingUp::GetCommitted { since: version(0, 0), run: 1 });
        let scan = Message::CatchingUp(CatchingUp::Scan { after: None, since: 0, run: 1 });
        for question in
            [list, scan, Message::CatchingUp(CatchingUp::Fetch { versions: vec![delete] })]
        {
            assert_eq!(world.tell(n(0), n(1), question), [], "its store is complete below nothing");
        }
        // It has missed nothing that has committed, so it settles what the others do, and need not copy any more.
        world.settle_below(n(1), UPTO + 2 * SECOND, digest(&all));
        for _ in 0..3 {
            world.timer(n(1), ReplicaTimer::CatchUp);
        }
        world.settle(|e| [e.0, e.1].iter().all(|node| [n(1), n(3), n(4)].contains(node)));
        world.network.clear();
        assert_eq!(world.read(n(1), "k"), None);
        let answers = world.tell(
            n(0),
            n(1),
            Message::CatchingUp(CatchingUp::Fetch { versions: vec![delete] }),
        );
        let [(_, _, Message::CatchingUp(CatchingUp::Fetched { executions, .. }))] = &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!(executions.len(), 0, "its keys lack the delete");
        let list = Message::CatchingUp(CatchingUp::GetCommitted { since: delete, run: 1 });
        let answers = world.tell(n(0), n(1), list);
        let [(_, _, Message::CatchingUp(CatchingUp::Committed { reaches, .. }))] = answers[..]
        else {
            panic!("{answers:?}")
        };
        assert!(!reaches);
        // Where the delete was read it finds nothing, and that may be the delete. A log brings the delete back.
        let vote = if restarts { Vote::Commit } else { Vote::AbandonTentative };
        let reader = version(world.now, 9);
        let what = contents(&[("k", delete)], &[("y", "1")]);
        let answers = world.tell(reader.coordinator, n(1), prepare(reader, 0, &what));
        assert_eq!(votes(&answers), [vote]);
    }
}

#[test]
fn whose_copy_broke_off_copies_from_nobody_who_is_less_far() {
    let mut world = five();
    deleted_while_n0_was_away(&mut world);
    copy_breaks_off(&mut world);
    for (peer, upto) in [(3, 4 * SECOND), (4, UPTO)] {
        world.timer(n(1), ReplicaTimer::CatchUp);
        world.settle(|e| [(n(1), n(peer)), (n(peer), n(1))].contains(&(e.0, e.1)));
        world.network.clear();
        assert_eq!(world.gauge(n(1), "truncated_below_us"), upto, "n{peer}");
    }
    assert_eq!(world.read(n(1), "k"), None);
}

#[test]
fn a_peer_whose_copy_broke_off_brings_no_deleted_key_back() {
    let mut world = five();
    let all = deleted_while_n0_was_away(&mut world);
    copy_breaks_off(&mut world);
    // n0 comes back and asks n1. Meanwhile it hears how far the others are.
    world.restart(n(0));
    let (upto, merged) = (UPTO, digest(&all));
    let asked = world.take(|e| e.0 == n(0));
    world.tell(n(3), n(0), Message::Truncating(Truncating::TruncationFinished { upto, merged }));
    world.network.extend(asked);
    // n2 is dead, and n1's questions are under way for long. What n0 asks is answered, at last by n3.
    for _ in 0..12 {
        world.settle(|e| [e.0, e.1].iter().all(|node| *node != n(2) && !node.is_coordinator()));
        world.network.clear();
        world.timer(n(0), ReplicaTimer::CatchUp);
    }
    assert_eq!(world.gauge(n(0), "catching_up"), 0);
    assert_eq!(world.read(n(3), "k"), None);
    assert_eq!(world.read(n(0), "k"), None, "it was deleted, and that was acknowledged");
}
