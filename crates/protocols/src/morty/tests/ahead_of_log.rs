//! Crashes that keep what was put into the store and lose records that were appended before.

use super::by_hand::{contents, version};
use super::world::{SECOND, World, digest, n, run_asked_for};
use super::*;

/// What a read of the past finds.
fn past(world: &mut World, member: usize, key: &str, at: u64) -> crate::morty::PastRead {
    let get =
        Message::Request(Request::GetAt { request: 1, key: Key::from(key), at: Version::at(at) });
    let answers = world.tell(coordinator_id(9), n(member), get);
    match &answers[..] {
        [(_, _, Message::Reply(Reply::GetAtReply { found, .. }))] => found.clone(),
        other => panic!("{other:?}"),
    }
}

/// k is overwritten between two truncations. n0 crashes after the second, which is not durable.
#[test]
fn what_was_overwritten_stays_readable_until_the_log_says_otherwise() {
    let mut world = World::new(1);
    let (old, new) = (version(2 * SECOND, 0), version(61 * SECOND, 1));
    world.now = 3 * SECOND;
    world.commit(&[0], old, &contents(&[], &[("k", "old")]));
    world.now = 62 * SECOND;
    world.commit(&[0], new, &contents(&[], &[("k", "new")]));
    world.now = 71 * SECOND;
    world.settle_below(n(0), 60 * SECOND, digest(&[old]));
    let before = past(&mut world, 0, "k", 60 * SECOND);
    assert!(format!("{before:?}").contains("old"), "{before:?}");
    for crashes in [true, false] {
        if crashes {
            world.nodes[n(0)].hold_log();
        }
        world.now += 12 * SECOND;
        world.settle_below(n(0), 72 * SECOND, digest(&[old, new]));
        // n2 has been away, and asks.
        let scan = Message::CatchingUp(CatchingUp::Scan { after: None, since: 0, run: 1 });
        assert_eq!(world.tell(n(2), n(0), scan).is_empty(), crashes);
        if crashes {
            world.restart(n(0));
            world.network.clear();
            assert_eq!(past(&mut world, 0, "k", 60 * SECOND), before);
        }
    }
}

/// n0 comes back and copies n1's store. It crashes when it has the first page.
#[test]
fn a_page_is_stored_only_when_what_it_may_lack_is_durable_in_the_log() {
    for (repeated, whole) in [(false, false), (true, false), (false, true)] {
        let mut world = World::new(1);
        let (old, new) = (version(2 * SECOND, 0), version(50 * SECOND, 1));
        world.now = 3 * SECOND;
        world.commit(&[0, 1, 2], old, &contents(&[], &[("k", "old")]));
        world.now = 45 * SECOND;
        for member in 0..3 {
            world.settle_below(n(member), 34 * SECOND, digest(&[old]));
        }
        world.commit(&[1, 2], new, &contents(&[], &[("k", "new")]));
        world.now = 100 * SECOND;
        world.settle_below(n(1), 80 * SECOND, digest(&[old, new]));
        world.restart(n(0));
        let before = past(&mut world, 0, "k", 34 * SECOND);
        assert!(format!("{before:?}").contains("old"), "{before:?}");
        let among = |e: &Envelope| [e.0, e.1].iter().all(|node| [n(0), n(1)].contains(node));
        world.settle(|e| {
            among(e) && !matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. }))
        });
        let mut page =
            world.take(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Scanned { .. })));
        let [(_, _, Message::CatchingUp(CatchingUp::Scanned { holds, .. }))] = &mut page[..] else {
            panic!("{page:?}")
        };
        if whole {
            holds.readable_from = 0;
        }
        world.network.clear();
        world.nodes[n(0)].hold_log();
        for _ in 0..=usize::from(repeated) {
            page.iter().for_each(|envelope| world.deliver(envelope.clone()));
        }
        let asked = world
            .take(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Scan { after: None, .. })));
        assert_eq!(asked.len(), 1, "the page is asked for again");
        world.restart(n(0));
        world.network.clear();
        assert_eq!(past(&mut world, 0, "k", 34 * SECOND), before);
        // The second time all is durable.
        for _ in 0..3 {
            world.timer(n(0), ReplicaTimer::CatchUp);
            world.settle(among);
        }
        assert_eq!(world.gauge(n(0), "truncated_below_us"), 80 * SECOND);
    }
}

/// n0 copies n1's store. Before that it settles what it has, of which the log must say how far that is.
#[test]
fn a_copy_begins_when_the_watermark_is_durable() {
    let mut world = World::new(1);
    let (old, new) = (version(2 * SECOND, 0), version(61 * SECOND, 1));
    world.now = 3 * SECOND;
    world.commit(&[0], old, &contents(&[], &[("k", "old")]));
    world.now = 62 * SECOND;
    world.commit(&[0], new, &contents(&[], &[("k", "new")]));
    world.now = 71 * SECOND;
    world.settle_below(n(0), 60 * SECOND, digest(&[old]));
    let before = past(&mut world, 0, "k", 60 * SECOND);
    world.nodes[n(0)].hold_log();
    world.now = 83 * SECOND;
    let merged = digest(&[old, new]);
    world.tell(
        n(2),
        n(0),
        Message::Truncating(Truncating::TruncationFinished { upto: 72 * SECOND, merged }),
    );
    let lists = |since, run, reaches| {
        let (versions, more, behind) = (Vec::new(), false, false);
        Message::CatchingUp(CatchingUp::Committed { since, run, versions, more, reaches, behind })
    };
    // It asks n1 for a list, and n1 has forgotten what n0 needs.
    let merged = digest(&[]);
    let asked = world.tell(
        n(1),
        n(0),
        Message::Truncating(Truncating::TruncationFinished { upto: 90 * SECOND, merged }),
    );
    let (since, run) = (Version::at(72 * SECOND), run_asked_for(&asked));
    assert_eq!(world.tell(n(1), n(0), lists(since, run, false)), []);
    world.restart(n(0));
    assert_eq!(past(&mut world, 0, "k", 60 * SECOND), before);
}

/// n0 has begun to copy n1's store, and n1 is lost. What n0 has appended meanwhile is not durable at first.
#[test]
fn a_copy_is_completed_though_the_next_peer_can_list_what_is_missing() {
    let mut world = World::new(1);
    let [first, old] = [1, 2].map(|at| version(at * SECOND, 0));
    let long = "x".repeat(300 << 10);
    world.now = 3 * SECOND;
    world.commit(&[0, 1, 2], first, &contents(&[], &[("a", "1")]));
    world.commit(&[1, 2], old, &contents(&[], &[("k", &long), ("l", &long)]));
    world.now = 100 * SECOND;
    world.settle_below(n(1), 80 * SECOND, digest(&[first, old]));
    world.restart(n(0));
    let mut pages = 0;
    while pages < 2 {
        for envelope in world.take(|e| [(n(0), n(1)), (n(1), n(0))].contains(&(e.0, e.1))) {
            pages += usize::from(matches!(
                envelope.2,
                Message::CatchingUp(CatchingUp::Scanned { next: Some(_), .. })
            ));
            world.deliver(envelope);
        }
    }
    world.network.clear();
    world.nodes[n(0)].hold_log();
    let (executions, readable_from) = (Vec::new(), 90 * SECOND);
    world.tell(n(1), n(0), Message::CatchingUp(CatchingUp::Fetched { executions, readable_from }));
    for _ in 0..3 {
        world.timer(n(0), ReplicaTimer::CatchUp);
    }
    let scans = |world: &World| {
        let to_n2 = world.network.iter().filter(|e| e.1 == n(2));
        to_n2.filter(|e| matches!(e.2, Message::CatchingUp(CatchingUp::Scan { .. }))).count()
    };
    assert_eq!(scans(&world), 0);
    world.flush(n(0));
    world.timer(n(0), ReplicaTimer::CatchUp);
    let asked = world.take(|_| true);
    let (run, since) = (run_asked_for(&asked), Version::INITIAL);
    let (versions, more, reaches, behind) = (vec![old], false, true, false);
    let list =
        Message::CatchingUp(CatchingUp::Committed { since, run, versions, more, reaches, behind });
    let asked = world.tell(n(2), n(0), list);
    assert!(
        matches!(asked[..], [(_, to, Message::CatchingUp(CatchingUp::Scan { after: None, .. }))] if to == n(2)),
        "{asked:?}"
    );
}
