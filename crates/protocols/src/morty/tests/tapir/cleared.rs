//! A coordinator that clears its ballots, and those that accept this. What they send is delivered message by message.

use super::in_doubt::{COMMITTED, recover, settled};
use super::stopped::{
    IS_DUE, UPTO, ballot, clear, enter, propose, snapshot_for, tell_all, with_one_stopped,
};
use super::*;
use crate::morty::message::{Merged, Snapshot};

const UP: [usize; 3] = [0, 1, 2];

fn is_truncating(message: &Message) -> bool {
    matches!(message, Message::Truncating(_))
}

fn is_clear(message: &Message) -> bool {
    matches!(message, Message::Truncating(Truncating::Clear { .. }))
}

fn is_reply(message: &Message) -> bool {
    matches!(message, Message::Truncating(Truncating::ProposeMergeReply { .. }))
}

fn is_merge(message: &Message) -> bool {
    matches!(message, Message::Truncating(Truncating::ProposeMerge { .. }))
}

/// It is about a transaction in doubt, and asks for no votes in a cleared ballot.
fn is_early_recovery(message: &Message) -> bool {
    match message {
        Message::Recovering(Recovering::PaxosPrepare { vote_on: Some(late), .. }) => {
            late.cleared.is_none()
        }
        Message::Recovering(_) => true,
        _ => false,
    }
}

/// Waits until the first replica begins a ballot of its own. About truncations it hears only itself.
fn begin_ballot(world: &mut World) -> Ballot {
    for _ in 0..300 {
        world.settle(|(from, to, message)| {
            let is_own = (*from, *to) == (n(0), n(0)) && is_truncating(message);
            is_own || UP.map(n).contains(to) && is_early_recovery(message)
        });
        let begun = world.network.drain(..).find_map(|(_, _, message)| match message {
            Message::Truncating(Truncating::TruncationPaxosPrepare { ballot }) => Some(ballot),
            _ => None,
        });
        if let Some(begun) = begun {
            return begun;
        }
        world.now += 100_000;
        world.fire_due(n(0));
    }
    panic!("it begins no ballot");
}

/// The first replica begins a ballot, and the others that are up enter it. It hears what they know of the transaction in
/// doubt, and what it sends about the truncation is under way.
fn enter_ballot(world: &mut World) -> Ballot {
    let ballot = begin_ballot(world);
    for member in [1, 2] {
        let answers = world.tell(n(0), n(member), enter(ballot));
        answers.into_iter().for_each(|answer| world.deliver(answer));
    }
    world.settle(|(_, to, message)| UP.map(n).contains(to) && is_early_recovery(message));
    ballot
}

/// The first replica clears a ballot. The other two have accepted that, and their answers are under way.
fn ask_to_clear(world: &mut World) -> Ballot {
    let ballot = enter_ballot(world);
    world.settle(|(_, to, message)| UP.map(n).contains(to) && is_clear(message));
    ballot
}

fn hears_answers(world: &mut World) {
    world.settle(|(_, to, message)| *to == n(0) && is_reply(message));
}

/// The cleared ballots in which the first replica asks for late votes.
fn asks_in(world: &mut World) -> Vec<Ballot> {
    let sent = world.network.drain(..);
    let ballots = sent.filter_map(|(_, _, message)| match message {
        Message::Recovering(Recovering::PaxosPrepare { vote_on: Some(late), .. }) => late.cleared,
        _ => None,
    });
    let mut ballots: Vec<Ballot> = ballots.collect();
    ballots.dedup();
    ballots
}

#[test]
fn a_coordinator_says_how_much_it_has_settled_when_it_clears_its_ballot() {
    let mut world = with_one_stopped(Mutated::NONE);
    for member in UP {
        world.settle_below(n(member), SECOND, digest(&[]));
    }
    enter_ballot(&mut world);
    let watermarks: Vec<u64> = world
        .network
        .iter()
        .filter_map(|(_, _, message)| match message {
            Message::Truncating(Truncating::Clear { watermark, .. }) => Some(*watermark),
            _ => None,
        })
        .collect();
    assert_eq!(watermarks, [SECOND; 5]);
}

/// A replica that has settled more may be the only one up that knows of a finished merge.
#[test]
fn a_coordinator_that_has_settled_less_than_another_does_not_clear_its_ballot() {
    let mut world = with_one_stopped(Mutated::NONE);
    let (txn, writes) = (version(500_000, 3), contents(&[], &[("z", "1")]));
    world.commit(&[2], txn, &writes);
    world.settle_below(n(2), SECOND, digest(&[txn]));
    enter_ballot(&mut world);
    let clears = |world: &World| world.network.iter().any(|(.., message)| is_clear(message));
    assert!(!clears(&world));
    // It fetches what it lacks.
    world.settle(|(_, to, message)| UP.map(n).contains(to) && !is_truncating(message));
    assert_eq!(world.gauge(n(0), "truncated_below_us"), SECOND);
    assert!(clears(&world));
}

/// Its coordinator may use it again after a restart.
#[test]
fn a_first_ballot_is_not_cleared() {
    let mut world = with_one_stopped(Mutated::NONE);
    world.timer(n(0), ReplicaTimer::Truncation);
    let first = Ballot::first(world.gauge(n(0), "stopped_below_us"));
    world.settle(|(from, to, _)| (*from, *to) == (n(0), n(0)));
    for member in [1, 2] {
        let snapshot = snapshot_for(&mut world, member, first);
        let truncate = Message::Truncating(Truncating::Truncate { ballot: first, snapshot });
        world.deliver((n(member), n(0), truncate));
    }
    let asks = |(_, _, message): &Envelope| matches!(message, Message::Recovering(_));
    assert!(world.network.iter().any(asks), "it recovers what the merge waits for");
    assert!(!world.network.iter().any(|(.., message)| is_clear(message)));
}

#[test]
fn only_acceptances_of_its_own_ballot_clear_it() {
    let mut world = with_one_stopped(Mutated::NONE);
    let earlier = ask_to_clear(&mut world);
    let late = world.take(|(from, _, message)| *from != n(0) && is_reply(message));
    assert_eq!(late.len(), 2);
    world.network.clear();
    let ballot = ask_to_clear(&mut world);
    assert!(ballot > earlier);
    let answers = world.take(|(from, _, message)| *from != n(0) && is_reply(message));
    world.settle(|(_, to, message)| *to == n(0) && is_reply(message));
    world.network.extend(late);
    hears_answers(&mut world);
    assert_eq!(asks_in(&mut world), []);
    world.network.extend(answers);
    hears_answers(&mut world);
    assert_eq!(asks_in(&mut world), [ballot]);
}

#[test]
fn late_votes_are_asked_for_in_the_ballot_that_was_cleared_last() {
    let mut world = with_one_stopped(Mutated::NONE);
    for _ in 0..2 {
        let ballot = ask_to_clear(&mut world);
        hears_answers(&mut world);
        // Nobody hears it.
        assert_eq!(asks_in(&mut world), [ballot]);
    }
}

#[test]
fn a_snapshot_that_comes_after_a_ballot_is_cleared_does_not_count() {
    let mut world = with_one_stopped(Mutated::NONE);
    let cleared = ask_to_clear(&mut world);
    hears_answers(&mut world);
    world.network.clear();
    let merged = Merged { upto: UPTO, digest: digest(&[]) };
    let accepted = Some((ballot(1, 3), Some(merged)));
    let snapshot = Snapshot { accepted, ..Snapshot::default() };
    let truncate = Message::Truncating(Truncating::Truncate { ballot: cleared, snapshot });
    assert_eq!(world.tell(n(3), n(0), truncate), []);
}

/// It is from before the replica has entered the later ballot, and lacks what it may have voted on since.
#[test]
fn a_snapshot_for_a_first_ballot_does_not_count_in_a_later_one() {
    let mut world = with_one_stopped(Mutated::NONE);
    let Ballot { upto, .. } = begin_ballot(&mut world);
    for member in [3, 4] {
        let first = Ballot::first(upto);
        let snapshot = Snapshot::default();
        let truncate = Message::Truncating(Truncating::Truncate { ballot: first, snapshot });
        assert_eq!(world.tell(n(member), n(0), truncate), []);
    }
}

/// The transaction in doubt ends while the ballot is being cleared.
#[test]
fn acceptances_of_a_clearing_are_none_of_a_merge() {
    let (mut world, [t, _]) = (with_one_stopped(Mutated::NONE), conflicting());
    let ballot = enter_ballot(&mut world);
    world.settle(|(_, to, message)| [0, 1].map(n).contains(to) && is_clear(message));
    hears_answers(&mut world);
    world.network.clear();
    world.deliver((t.0.coordinator, n(0), decide(t.0, 0, Decision::Abort, &t.1)));
    world.settle(|(_, to, message)| [0, 2].map(n).contains(to) && is_merge(message));
    hears_answers(&mut world);
    let is_finished = |(_, _, message): &Envelope| matches!(message, Message::Truncating(Truncating::TruncationFinished { upto, .. }) if *upto == ballot.upto);
    assert!(!world.network.iter().any(is_finished), "two have accepted it");
    world.settle(|(_, to, message)| *to == n(1) && is_merge(message));
    hears_answers(&mut world);
    assert!(world.network.iter().any(is_finished));
}

#[test]
fn what_is_accepted_is_durable_before_the_answer_and_remains_after_a_restart() {
    let mut world = five(Mutated::NONE);
    world.now = IS_DUE;
    let later = Ballot { upto: UPTO + 2 * SECOND, view: View::OWN.next(n(1)) };
    tell_all(&mut world, 3, &[2], &propose(ballot(2, 3), &[]));
    tell_all(&mut world, 4, &[2], &clear(ballot(3, 4), 0));
    assert_eq!(world.early, [], "before it is durable");
    world.restart(n(2));
    world.network.clear();
    assert_eq!(snapshot_for(&mut world, 2, later).accepted, Some((ballot(3, 4), None)));
}

#[test]
fn a_clearing_that_comes_after_the_merge_of_its_ballot_changes_nothing() {
    let mut world = five(Mutated::NONE);
    world.now = IS_DUE;
    let later = Ballot { upto: UPTO + 2 * SECOND, view: View::OWN.next(n(1)) };
    for message in [clear(ballot(2, 3), 0), propose(ballot(2, 3), &[]), clear(ballot(2, 3), 0)] {
        tell_all(&mut world, 3, &[2], &message);
    }
    let merged = Merged { upto: UPTO, digest: digest(&[]) };
    assert_eq!(snapshot_for(&mut world, 2, later).accepted, Some((ballot(2, 3), Some(merged))));
}

/// A recoverer has proposed to abandon a transaction, in a view that the others have left before they heard of that. One of
/// them may have had it committed since.
#[test]
fn a_recoverer_that_begins_anew_forgets_what_it_has_proposed() {
    let (mut world, [t, u]) = (five(Mutated::NONE), conflicting());
    assert_eq!(ask(&mut world, &[1, 2], &u), [Vote::Commit; 2]);
    let told = ask(&mut world, &[0, 1, 2], &t);
    assert_eq!(told, [Vote::Commit, Vote::AbandonTentative, Vote::AbandonTentative]);
    world.now = IS_DUE;
    world.start();
    world.network.clear();
    let inquire = Message::Request(Request::Inquire { version: t.0 });
    world.deliver((NodeId(99), n(0), inquire));
    world.settle(|(_, to, message)| UP.map(n).contains(to) && is_early_recovery(message));
    let proposed = |world: &mut World| {
        let mut sent = world.network.drain(..).filter_map(|(from, _, message)| match message {
            Message::Request(Request::Finalize { version, view, decision, .. })
                if (from, version) == (n(0), t.0) =>
            {
                Some((view, decision))
            }
            _ => None,
        });
        sent.next_back()
    };
    assert!(matches!(proposed(&mut world), Some((_, Proposal::Abandon))));
    ask_to_clear(&mut world);
    let later = View { round: 50, recoverer: n(1) };
    let asks = Recovering::PaxosPrepare { version: t.0, view: later, vote_on: None };
    world.tell(n(1), n(0), Message::Recovering(asks));
    hears_answers(&mut world);
    for _ in 0..200 {
        let view = proposed(&mut world).map(|(view, _)| view);
        assert!(view < Some(later), "{view:?}");
        world.now += 100_000;
        world.fire_due(n(0));
    }
}

#[test]
fn no_recovery_outlives_the_truncation_that_settles_its_transaction() {
    let (mut world, [t, _]) = (five(Mutated::NONE), conflicting());
    assert_eq!(ask(&mut world, &[0, 1], &t), [Vote::Commit; 2]);
    world.deliver((NodeId(99), n(0), Message::Request(Request::Inquire { version: t.0 })));
    assert_eq!(world.gauge(n(0), "recoveries_in_progress"), 1);
    world.settle_below(n(0), UPTO, digest(&[]));
    assert_eq!(world.gauge(n(0), "recoveries_in_progress"), 0);
}

/// A reader has found nothing as of 10 s in one key, and as of 19 s in another. A third replica has forgotten deletes.
#[test]
fn deletes_are_kept_from_the_first_on_that_a_prepared_reader_may_have_missed() {
    let mut world = five(Mutated::NONE);
    world.now = 100 * SECOND;
    let [first, second] = [("k", 10), ("j", 19)].map(|(key, at)| {
        let write = WriteId { version: Version::at(at * SECOND), tag: 0 };
        Read { key: Key::from(key), found: write.into() }
    });
    let what = Contents { reads: vec![first, second], ..Contents::clone(&contents(&[], &[])) };
    let reader = (version(world.now, 5), Arc::new(what));
    assert_eq!(ask(&mut world, &[0, 1], &reader), [Vote::Commit; 2]);
    for member in UP {
        world.settle_below(n(member), 80 * SECOND, digest(&[]));
    }
    assert_eq!(ask(&mut world, &[2], &reader), [Vote::AbandonTentative]);
    recover(&mut world, reader.0, &UP);
    assert_eq!(settled(&mut world, 0, reader.0), COMMITTED);
}
