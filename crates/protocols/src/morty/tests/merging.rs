//! What a replica promises and accepts about truncations, and what it lists and is listed.

use super::by_hand::{contents, version};
use super::world::{SECOND, World, digest, n, run_asked_for};
use super::*;
use crate::morty::message::{Ballot, Merged};

const UPTO: u64 = 6 * SECOND;

/// How far a proposal of a merge gets with n0: the ballot that it answers.
fn answered_ballot(answers: &[Envelope]) -> Ballot {
    let ballot = answers.iter().find_map(|(.., message)| match message {
        Message::Truncating(Truncating::BallotIsOver { ballot }) => Some(*ballot),
        _ => None,
    });
    ballot.unwrap_or_else(|| panic!("no answer to a proposal in {answers:?}"))
}

#[test]
fn no_merge_is_accepted_below_the_promised_ballot_after_a_restart() {
    let after = |ballot: Ballot, member| Ballot { view: ballot.view.next(n(member)), ..ballot };
    let early = after(Ballot::first(UPTO), 2);
    let late = after(early, 1);
    let merges = |digest| Merged { upto: UPTO, digest };
    let (one, other) = (merges(digest(&[])), merges(digest(&[version(SECOND, 0)])));
    for restarts in [false, true] {
        let mut world = World::new(1);
        world.now = UPTO + 10 * SECOND;
        world.tell(
            n(1),
            n(0),
            Message::Truncating(Truncating::TruncationPaxosPrepare { ballot: late }),
        );
        if restarts {
            world.restart(n(0));
        }
        let propose =
            |ballot, merged| Message::Truncating(Truncating::ProposeMerge { ballot, merged });
        let answers = world.tell(n(2), n(0), propose(early, other));
        assert_eq!(answered_ballot(&answers), late, "it has promised that, restarts: {restarts}");
        // A later ballot hears of what was accepted in the late one, and of nothing else.
        let accepted_in = |world: &mut World, ballot| {
            let prepare = Message::Truncating(Truncating::TruncationPaxosPrepare { ballot });
            let answers = world.tell(n(2), n(0), prepare);
            let accepted = answers.iter().find_map(|(.., message)| match message {
                Message::Truncating(Truncating::Truncate { snapshot, .. }) => {
                    Some(snapshot.accepted)
                }
                _ => None,
            });
            accepted.expect("a snapshot")
        };
        let later = after(late, 2);
        let mut untouched = World::new(1);
        untouched.now = world.now;
        assert_eq!(accepted_in(&mut untouched, later), None);
        world.tell(n(1), n(0), propose(late, one));
        if restarts {
            world.restart(n(0));
        }
        assert_eq!(accepted_in(&mut world, later), Some((late, Some(one))), "restarts: {restarts}");
    }
}

#[test]
fn a_list_that_has_more_is_gone_on_with_after_its_last() {
    let mut world = World::new(1);
    world.now = SECOND;
    let txn = version(SECOND, 0);
    world.commit(&[0, 1], txn, &contents(&[], &[("x", "a")]));
    world.restart(n(0));
    let asked = world.take(|e| matches!(e.2, Message::CatchingUp(CatchingUp::GetCommitted { .. })));
    let run = run_asked_for(&asked);
    let [(_, peer, Message::CatchingUp(CatchingUp::GetCommitted { since, .. }))] = &asked[..]
    else {
        panic!("{asked:?}")
    };
    let (since, versions) = (*since, vec![txn]);
    let list = Message::CatchingUp(CatchingUp::Committed {
        since,
        run,
        versions,
        more: true,
        reaches: true,
        behind: false,
    });
    let answers = world.tell(*peer, n(0), list);
    let on = answers.iter().any(
        |(.., message)| matches!(message, Message::CatchingUp(CatchingUp::GetCommitted { since, .. }) if *since > txn),
    );
    assert!(on, "what the peer has committed later is lacking: {answers:?}");
}

#[test]
fn who_copies_lists_nothing() {
    let mut world = World::new(1);
    world.now = SECOND;
    world.commit(&[0], version(SECOND, 0), &contents(&[], &[("x", "a")]));
    world.restart(n(0));
    let asked = world.take(|e| matches!(e.2, Message::CatchingUp(CatchingUp::GetCommitted { .. })));
    let run = run_asked_for(&asked);
    let [(_, peer, Message::CatchingUp(CatchingUp::GetCommitted { since, .. }))] = &asked[..]
    else {
        panic!("{asked:?}")
    };
    let get = Message::CatchingUp(CatchingUp::GetCommitted { since: Version::INITIAL, run: 1 });
    assert_eq!(world.tell(n(2), n(0), get.clone()).len(), 1);
    let (since, versions) = (*since, Vec::new());
    let list = Message::CatchingUp(CatchingUp::Committed {
        since,
        run,
        versions,
        more: false,
        reaches: false,
        behind: false,
    });
    world.tell(*peer, n(0), list);
    assert_eq!(world.tell(n(2), n(0), get), [], "the list would have gaps");
}
