//! What is in doubt below a truncation for which replicas have stopped, and the ballots of truncations.

use core::cell::Cell;

use super::in_doubt::{COMMITTED, doubtful_elsewhere, recover, settled};
use super::*;
use crate::morty::Digest;
use crate::morty::message::{Merged, Snapshot};

/// A truncation above all transactions here.
pub(super) const UPTO: u64 = 4 * SECOND;
/// When it is due.
pub(super) const IS_DUE: u64 = 20 * SECOND;

pub(super) fn ballot(round: u32, member: usize) -> Ballot {
    Ballot { upto: UPTO, view: View { round, recoverer: n(member) } }
}

pub(super) fn enter(ballot: Ballot) -> Message {
    Message::Truncating(Truncating::TruncationPaxosPrepare { ballot })
}

/// What a member knows when it enters one of the fourth replica's ballots.
pub(super) fn snapshot_for(world: &mut World, member: usize, ballot: Ballot) -> Snapshot {
    match &world.tell(n(3), n(member), enter(ballot))[..] {
        [(.., Message::Truncating(Truncating::Truncate { snapshot, .. }))] => snapshot.clone(),
        other => panic!("{other:?}"),
    }
}

/// To merge exactly these transactions.
pub(super) fn propose(ballot: Ballot, of: &[Version]) -> Message {
    let merged = Merged { upto: UPTO, digest: digest(of) };
    Message::Truncating(Truncating::ProposeMerge { ballot, merged })
}

pub(super) fn clear(ballot: Ballot, watermark: u64) -> Message {
    Message::Truncating(Truncating::Clear { ballot, watermark })
}

fn finished(of: &[Version]) -> Message {
    Message::Truncating(Truncating::TruncationFinished { upto: UPTO, merged: digest(of) })
}

/// What a coordinator tells these members, which answer.
pub(super) fn tell_all(world: &mut World, from: usize, members: &[usize], message: &Message) {
    for member in members {
        assert_eq!(world.tell(n(from), n(*member), message.clone()).len(), 1, "n{member}");
    }
}

/// Time passes for the replicas that are `up`. The others receive nothing.
fn pass(world: &mut World, up: &[NodeId]) {
    for _ in 0..300 {
        step(world, up, |_| false);
    }
}

fn step(world: &mut World, up: &[NodeId], is_lost: impl Fn(&Message) -> bool) {
    world.settle(|(_, to, message)| up.contains(to) && !is_lost(message));
    world.network.clear();
    world.now += 100_000;
    up.iter().for_each(|id| world.fire_due(*id));
}

/// Two of five replicas have voted for a transaction. One has stopped before it has heard of it. The others are away.
pub(super) fn with_one_stopped(mutation: Mutated<Mutation>) -> World {
    let (mut world, [t, _]) = (five(mutation), conflicting());
    assert_eq!(ask(&mut world, &[0, 1], &t), [Vote::Commit; 2]);
    world.now = IS_DUE;
    world.tell(n(2), n(2), enter(ballot(1, 2)));
    world.start();
    world.network.clear();
    world
}

#[test]
fn what_is_in_doubt_is_decided_although_one_has_stopped_before_it_heard_of_it() {
    let mut world = with_one_stopped(Mutated::NONE);
    let up = [0, 1, 2].map(n);
    pass(&mut world, &up);
    for id in up {
        assert!(world.gauge(id, "truncated_below_us") >= UPTO);
        assert_eq!(world.read(id, "x"), Some(Value::from("t")), "{id}");
    }
}

/// It is in doubt in another partition than its home, and replicas there have stopped.
#[test]
fn what_is_in_doubt_in_another_partition_is_decided_although_one_has_stopped_there() {
    let (mut world, _, key) = doubtful_elsewhere();
    world.now = IS_DUE;
    let stopped = NodeId::replica(1, 2);
    let view = View { round: 1, recoverer: stopped };
    world.tell(stopped, stopped, enter(Ballot { upto: UPTO, view }));
    world.start();
    world.network.clear();
    let up: Vec<NodeId> =
        (0..2).flat_map(|p| (0..3).map(move |member| NodeId::replica(p, member))).collect();
    pass(&mut world, &up);
    for id in up {
        assert!(world.gauge(id, "truncated_below_us") >= UPTO, "{id}");
        assert_eq!(world.gauge(id, "undecided_transactions"), 0, "{id}");
    }
    for member in 0..3 {
        let found = world.read(NodeId::replica(1, member), &key);
        assert_eq!(found, Some(Value::from("1")), "{member}");
    }
}

/// A merge without the transaction was accepted by one replica, before the others decide the transaction with the vote of one
/// that has stopped. Then that replica and another one come back, and two that had voted go away.
/// Returns what is merged then.
fn merged_before(mutation: Mutated<Mutation>) -> Option<Digest> {
    let mut world = with_one_stopped(mutation);
    for member in [2, 3, 4] {
        let snapshot = snapshot_for(&mut world, member, ballot(2, 3));
        assert_eq!((&snapshot.undecided[..], snapshot.accepted), (&[][..], None));
    }
    world.tell(n(3), n(3), propose(ballot(2, 3), &[]));
    world.network.clear();
    // The merge is accepted at the coordinator, and the third replica has not heard of it yet.
    let is_merge =
        |message: &Message| matches!(message, Message::Truncating(Truncating::ProposeMerge { .. }));
    while world.read(n(2), "x").is_none() {
        step(&mut world, &[0, 1, 2].map(n), is_merge);
    }
    assert_eq!(world.read(n(2), "x"), Some(Value::from("t")));
    let merged = Cell::new(None);
    while merged.get().is_none() {
        step(&mut world, &[2, 3, 4].map(n), |message| {
            if let Message::Truncating(Truncating::TruncationFinished { upto, merged: digest }) =
                message
                && *upto >= UPTO
            {
                merged.set(merged.get().or(Some(*digest)));
            }
            false
        });
    }
    merged.get()
}

#[test]
fn a_merge_from_before_a_late_vote_does_not_come_back() {
    let [(txn, _), _] = conflicting();
    assert_eq!(merged_before(Mutated::NONE), Some(digest(&[txn])));
    let broken = merged_before(Mutated::by(Mutation::LateVotesWithoutClearing));
    assert_eq!(broken, Some(digest(&[])), "what has committed is lost");
}

/// A truncation is finished at two replicas, and the transaction has aborted with it. A third one has accepted the merge and does
/// not know that it is finished. If it agreed that merges from before do not count, it could commit the transaction with the two
/// that have voted.
#[test]
fn what_is_finished_at_some_is_not_forgotten_when_a_ballot_is_cleared() {
    let (mut world, [t, _]) = (five(Mutated::NONE), conflicting());
    assert_eq!(ask(&mut world, &[3, 4], &t), [Vote::Commit; 2]);
    world.now = IS_DUE;
    tell_all(&mut world, 0, &[0, 1, 2], &enter(ballot(1, 0)));
    tell_all(&mut world, 0, &[0, 1, 2], &propose(ballot(1, 0), &[]));
    for member in [0, 1] {
        world.tell(n(0), n(member), finished(&[]));
    }
    let later = Ballot { upto: UPTO + 2 * SECOND, view: View::OWN.next(n(1)) };
    tell_all(&mut world, 1, &[0, 1, 2], &enter(later));
    tell_all(&mut world, 1, &[0, 1], &clear(later, UPTO));
    assert_eq!(world.tell(n(1), n(2), clear(later, UPTO)), []);
    world.start();
    world.network.clear();
    let up = [2, 3, 4].map(n);
    pass(&mut world, &up);
    for id in up {
        assert!(world.gauge(id, "truncated_below_us") >= UPTO, "{id}");
        assert_eq!(world.read(id, "x"), None, "{id}");
    }
}

/// Otherwise one that has accepted an older merge would have that proposed again, by a coordinator which has finished neither.
#[test]
fn what_a_replica_has_accepted_is_known_after_it_is_finished() {
    let mut world = five(Mutated::NONE);
    world.now = IS_DUE;
    tell_all(&mut world, 1, &[0], &propose(ballot(3, 1), &[]));
    world.tell(n(1), n(0), finished(&[]));
    assert_eq!(world.gauge(n(0), "truncated_below_us"), UPTO);
    let merged = Merged { upto: UPTO, digest: digest(&[]) };
    for restarts in [false, true] {
        if restarts {
            world.restart(n(0));
            world.network.clear();
        }
        let later = Ballot { upto: UPTO + 2 * SECOND, view: View::OWN.next(n(3)) };
        let snapshot = snapshot_for(&mut world, 0, later);
        let expected = (merged, Some((ballot(3, 1), Some(merged))));
        assert_eq!((snapshot.finished, snapshot.accepted), expected, "{restarts}");
    }
}

/// Only replicas whose clocks are ahead send such snapshots.
#[test]
fn a_truncation_that_is_not_due_is_not_merged() {
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
    world.now = IS_DUE;
    for (upto, proposes) in [(3600 * SECOND, false), (6 * SECOND, true)] {
        let ballot = Ballot::first(upto);
        let proposed = [1, 2].map(|member| {
            let snapshot = Snapshot::default();
            let truncate = Message::Truncating(Truncating::Truncate { ballot, snapshot });
            !world.tell(n(member), n(0), truncate).is_empty()
        });
        assert_eq!(proposed, [false, proposes], "{upto}");
    }
}

#[test]
fn a_replica_whose_clock_was_ahead_does_not_stop_truncations() {
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
    world.now = IS_DUE;
    world.ahead_us.insert(n(2), 3600 * SECOND as i64);
    world.start();
    world.timer(n(2), ReplicaTimer::Truncation);
    world.network.clear();
    world.ahead_us.clear();
    assert!(world.gauge(n(2), "stopped_below_us") > 3000 * SECOND);
    let up = [0, 1, 2].map(n);
    for _ in 0..300 {
        // What it sends and receives is faster than what the others do.
        while world.step_where(|(from, to, _)| [from, to].contains(&&n(2)) && up.contains(to)) {}
        step(&mut world, &up, |_| false);
    }
    for id in up {
        assert!(world.gauge(id, "truncated_below_us") >= IS_DUE, "{id}");
    }
}

#[test]
fn a_replica_that_has_stopped_votes_late_only_in_the_ballot_that_is_cleared() {
    let asks = |world: &mut World, cleared, round| {
        let ([t, _], view) = (conflicting(), View { round, recoverer: n(0) });
        let (eid, contents) = (0, t.1);
        let late = LateVote { eid, contents, missed_nothing_below: 0, cleared: Some(cleared) };
        let asks = Recovering::PaxosPrepare { version: t.0, view, vote_on: Some(late) };
        let answers = world.tell(n(0), n(2), Message::Recovering(asks));
        match &answers[..] {
            [(.., Message::Recovering(Recovering::PaxosPrepareReply { known: Some(it), .. }))] => {
                it.execution.is_some()
            }
            other => panic!("{other:?}"),
        }
    };
    let mut world = five(Mutated::NONE);
    world.now = IS_DUE;
    world.tell(n(3), n(2), enter(ballot(2, 3)));
    assert!(!asks(&mut world, ballot(1, 2), 1), "it is in a later ballot");
    assert!(!asks(&mut world, ballot(3, 4), 2), "it is in an earlier ballot");
    world.tell(n(3), n(2), propose(ballot(2, 3), &[]));
    assert!(!asks(&mut world, ballot(2, 3), 3), "it has accepted a merge there");
    world.tell(n(4), n(2), enter(ballot(3, 4)));
    world.tell(n(4), n(2), clear(ballot(3, 4), 0));
    world.restart(n(2));
    world.network.clear();
    assert!(asks(&mut world, ballot(3, 4), 4));
}

#[test]
fn a_replica_accepts_no_merge_of_an_earlier_truncation_than_it_has_stopped_for() {
    let mut world = five(Mutated::NONE);
    world.now = IS_DUE + 2 * SECOND;
    let later = Ballot { upto: UPTO + 2 * SECOND, view: View::OWN.next(n(1)) };
    world.tell(n(1), n(0), enter(later));
    let refuses = |answers: Vec<Envelope>| {
        let [(_, to, Message::Truncating(Truncating::BallotIsOver { ballot }))] = answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!((to, ballot), (n(3), later));
    };
    for restarts in [false, true] {
        if restarts {
            world.restart(n(0));
            world.network.clear();
        }
        refuses(world.tell(n(3), n(0), enter(ballot(9, 3))));
        refuses(world.tell(n(3), n(0), propose(ballot(9, 3), &[])));
        refuses(world.tell(n(3), n(0), clear(ballot(9, 3), 0)));
    }
}

/// One replica has accepted a merge, and the others begin a later truncation. The merge is proposed in a ballot of that one.
#[test]
fn a_merge_of_an_earlier_truncation_is_finished_in_a_ballot_of_a_later_one() {
    let txn = version(2_000_000, 0);
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
    world.now = 2_000_200;
    world.commit(&[0, 1], txn, &contents(&[], &[("x", "1")]));
    world.now = IS_DUE;
    world.tell(n(2), n(1), propose(ballot(1, 2), &[txn]));
    world.network.clear();
    // Another one is due by now, of which the first replica begins with.
    world.now += 2 * SECOND;
    let later = Ballot { upto: UPTO + 2 * SECOND, view: View::OWN.next(n(0)) };
    world.deliver((n(0), n(0), enter(later)));
    world.start();
    let up = [0, 1].map(n);
    let mut told = Vec::new();
    for _ in 0..250 {
        world.settle(|(_, to, message)| {
            up.contains(to)
                && !matches!(message, Message::Truncating(Truncating::TruncationFinished { .. }))
        });
        for envelope in std::mem::take(&mut world.network) {
            if let (_, to, Message::Truncating(Truncating::TruncationFinished { upto, .. })) =
                &envelope
                && up.contains(to)
            {
                told.push(*upto);
                world.deliver(envelope);
            }
        }
        world.now += 100_000;
        up.iter().for_each(|id| world.fire_due(*id));
    }
    assert!(told[0] == UPTO && told.last() > Some(&UPTO), "{told:?}");
}

#[test]
fn a_coordinator_does_not_use_its_ballot_again_after_a_restart() {
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
    world.now = IS_DUE;
    world.start();
    world.network.clear();
    let mut used = Vec::new();
    for _ in 0..3 {
        for _ in 0..800 {
            // It hears nothing of the others.
            world.settle(|(from, to, _)| (*from, *to) == (n(0), n(0)));
            for (from, _, message) in world.network.drain(..) {
                if let Message::Truncating(Truncating::TruncationPaxosPrepare { ballot }) = message
                    && from == n(0)
                {
                    used.push(ballot);
                }
            }
            world.now += 100_000;
            world.fire_due(n(0));
        }
        world.restart(n(0));
        used.push(Ballot::default());
    }
    used.dedup(); // It is sent to each of the others.
    let ballots: Vec<_> = used.iter().filter(|ballot| **ballot != Ballot::default()).collect();
    assert!(ballots.len() >= 6, "{ballots:?}");
    assert!(ballots.is_sorted_by(|a, b| a < b), "{ballots:?}");
}

/// The readers have found nothing as of 10 s. The third replica has forgotten deletes from before 50 s, the two that have voted
/// have not, since they have the reader prepared.
fn forgotten_by_one(deleted: bool, settled_below: u64) -> Option<Settlement> {
    let mut world = five(Mutated::NONE);
    world.now = 100 * SECOND;
    let reader = (version(world.now, 5), reads_nothing_as_of(10));
    assert_eq!(ask(&mut world, &[0, 1], &reader), [Vote::Commit; 2]);
    let delete = version(14 * SECOND, 0);
    let known = if deleted { &[delete][..] } else { &[] };
    if deleted {
        let writes = contents(&[], &[("k", "")]);
        world.commit(&[2], delete, &writes);
        for member in [0, 1] {
            world.tell(delete.coordinator, n(member), decide(delete, 0, Decision::Commit, &writes));
        }
    }
    for (member, upto) in [(0, settled_below), (1, settled_below), (2, 80)] {
        world.settle_below(n(member), upto * SECOND, digest(known));
    }
    assert_eq!(ask(&mut world, &[2], &reader), [Vote::AbandonTentative]);
    recover(&mut world, reader.0, &[0, 1, 2]);
    settled(&mut world, 0, reader.0)
}

#[test]
fn a_replica_that_has_forgotten_deletes_votes_if_another_has_found_that_none_was_missed() {
    assert_eq!(forgotten_by_one(false, 80), COMMITTED);
}

#[test]
fn a_replica_that_has_voted_says_if_it_knows_of_a_missed_delete_since() {
    assert_eq!(forgotten_by_one(true, 80), Some(Settlement::Aborted));
}

/// What has committed between the two may be known to nobody that is up but the one that has forgotten it.
#[test]
fn a_replica_that_has_forgotten_deletes_does_not_vote_if_another_has_settled_less_than_it_has_forgotten()
 {
    assert_eq!(forgotten_by_one(false, 49), None);
}

/// Late messages of a ballot that is over come while a later one is cleared. Their answers are no acceptances.
#[test]
fn what_is_refused_in_an_earlier_ballot_is_not_accepted_in_a_later_one() {
    let (mut world, [t, _]) = (five(Mutated::NONE), conflicting());
    assert_eq!(ask(&mut world, &[0, 1], &t), [Vote::Commit; 2]);
    world.now = IS_DUE;
    tell_all(&mut world, 0, &[1, 2], &enter(ballot(8, 0)));
    for (asked, expected) in [
        (enter(ballot(3, 0)), None),
        (clear(ballot(3, 0), 0), None),
        (propose(ballot(3, 0), &[]), None),
        (clear(ballot(8, 0), 0), Some(None)),
    ] {
        let accepted = match &world.tell(n(0), n(2), asked)[..] {
            [(.., Message::Truncating(Truncating::ProposeMergeReply { ballot: it, merged }))] => {
                assert_eq!(*it, ballot(8, 0));
                Some(*merged)
            }
            [(.., Message::Truncating(Truncating::BallotIsOver { ballot: it }))] => {
                assert_eq!(*it, ballot(8, 0));
                None
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(accepted, expected);
    }
}

/// One replica has finished a truncation, and all have entered ballots of a later one. The others learn of it from its snapshot.
#[test]
fn a_coordinator_finishes_what_another_one_has_finished() {
    let mut world = five(Mutated::NONE);
    world.now = IS_DUE;
    tell_all(&mut world, 1, &[1], &propose(ballot(3, 1), &[]));
    world.tell(n(1), n(1), finished(&[]));
    let snapshot =
        Snapshot { finished: Merged { upto: UPTO, digest: digest(&[]) }, ..Snapshot::default() };
    let ballot = Ballot { upto: UPTO + 2 * SECOND, view: View::OWN.next(n(0)) };
    world.tell(n(1), n(0), Message::Truncating(Truncating::Truncate { ballot, snapshot }));
    assert_eq!(world.gauge(n(0), "truncated_below_us"), UPTO);
}

/// The snapshots of the first ballot come unasked, and again after a restart.
#[test]
fn a_coordinator_proposes_no_other_merge_in_a_first_ballot_after_a_restart() {
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), OPTIONS);
    world.now = IS_DUE;
    let (ballot, txn) = (Ballot::first(6 * SECOND), version(2_000_000, 0));
    let proposed = |world: &mut World, committed| {
        let mut proposed = Vec::new();
        for member in [1, 2] {
            let snapshot = Snapshot { committed, ..Snapshot::default() };
            let truncate = Message::Truncating(Truncating::Truncate { ballot, snapshot });
            for (.., message) in world.tell(n(member), n(0), truncate) {
                if let Message::Truncating(Truncating::ProposeMerge { merged, .. }) = message {
                    proposed.push(merged.digest);
                }
            }
        }
        proposed.dedup();
        proposed
    };
    let nothing = digest(&[]);
    for _ in 0..2 {
        assert_eq!(proposed(&mut world, nothing), [nothing]);
        world.restart(n(0));
        world.network.clear();
    }
    let writes = contents(&[], &[("x", "1")]);
    world.tell(txn.coordinator, n(0), decide(txn, 0, Decision::Commit, &writes));
    assert_eq!(proposed(&mut world, digest(&[txn])), []);
}

/// A coordinator recovers what its merge waits for. Meanwhile it has promised another recoverer's later view.
#[test]
fn a_recoverer_begins_anew_when_it_may_ask_those_that_have_stopped() {
    let (mut world, [(txn, _), _]) = (with_one_stopped(Mutated::NONE), conflicting());
    let up = [0, 1, 2].map(n);
    let is_truncating = |message: &Message| matches!(message, Message::Truncating(_));
    let is_clear =
        |message: &Message| matches!(message, Message::Truncating(Truncating::Clear { .. }));
    let is_cleared_by_first = |(from, _, message): &Envelope| *from == n(0) && is_clear(message);
    for _ in 0..200 {
        world.settle(|(_, to, message)| {
            up.contains(to) && is_truncating(message) && !is_clear(message)
        });
        if world.network.iter().any(is_cleared_by_first) {
            break;
        }
        world.network.clear();
        world.now += 100_000;
        up.iter().for_each(|id| world.fire_due(*id));
    }
    world.network.retain(is_cleared_by_first);
    let later = View { round: 50, recoverer: n(1) };
    let asks = Recovering::PaxosPrepare { version: txn, view: later, vote_on: None };
    world.deliver((n(1), n(0), Message::Recovering(asks)));
    world.settle(|(_, to, message)| up.contains(to) && is_truncating(message));
    let begins = |(from, _, message): &Envelope| {
        *from == n(0)
            && matches!(message, Message::Recovering(Recovering::PaxosPrepare { view, .. }) if *view > later)
    };
    assert!(world.network.iter().any(begins), "{:?}", world.network);
}
