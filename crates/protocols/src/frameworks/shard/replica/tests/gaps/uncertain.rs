//! A leader fails before an end is chosen that it has decided by itself, or that follows from a part that was made again.

use super::*;
use crate::frameworks::shard::Executed;

fn trusting() -> Mutated<Mutation> {
    Mutated::by(Mutation::TrustsUncertainEnds)
}

/// The first replica decides by `end` what becomes of others, and fails before anything of that leaves it. Returns the
/// answers to last shots that have left it nevertheless.
fn told_with_nothing_chosen(trio: &mut Trio<Queues<false>>, end: Request) -> Vec<Version> {
    trio.deliver((CLIENT, NodeId(0), Message::Request(end)));
    trio.settle();
    let told = trio.told();
    trio.network.clear();
    trio.away.insert(NodeId(0));
    trio.pass(Duration::from_secs(4));
    trio.told();
    executed(told)
}

/// The transactions whose last shots were answered.
fn executed(told: Vec<Reply>) -> Vec<Version> {
    let executed = |reply| match reply {
        Reply::Executed(executed) => Some(executed.txn),
        _ => None,
    };
    told.into_iter().filter_map(executed).collect()
}

/// A transaction has read what is then aborted. It reads again, and ends alone with its new part. Another one has read what
/// the first has written. It was in the log before that new part. Whether it is answered before that is chosen.
fn answers_what_rests_on_a_part_that_was_made_again(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Queues<false>>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    let first = last(us + 1, 0, &["x"], &["y"]);
    assert_eq!(trio.ask(0, first.clone()), []);
    assert_eq!(trio.ask(0, last(us + 2, 0, &["y"], &[])), []);
    let told = told_with_nothing_chosen(&mut trio, abort(us));
    // At the next leader a write comes between, so the first one can't read again, and is aborted.
    let second = trio.leader();
    let now_us = trio.after_us();
    trio.ask(second, last(now_us, 1, &[], &["x"]));
    trio.ask(second, abort(us));
    let end = trio.ask(second, first);
    let aborted = [Reply::Decided { txn: txn(us + 1), decision: Decision::Abort }];
    assert_eq!(end, aborted);
    told == [txn(us + 2)]
}

#[test]
fn nothing_is_answered_that_rests_on_a_part_which_was_made_again_and_is_not_chosen() {
    assert!(!answers_what_rests_on_a_part_that_was_made_again(Mutated::NONE));
    assert!(answers_what_rests_on_a_part_that_was_made_again(trusting()));
}

/// A transaction has read what is then aborted, and can't read again, so it is refused. Another one has overwritten what the
/// first had written. Whether it is answered before the refusal is chosen.
fn answers_what_rests_on_a_refusal(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Queues<false>>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    assert_eq!(trio.ask(0, last(us + 1, 1, &["x"], &["y"])), []);
    assert_eq!(trio.ask(0, last(us + 2, 0, &[], &["y"])), []);
    trio.first_is_deaf();
    trio.deliver((CLIENT, NodeId(0), Message::Request(last(us + 3, 0, &[], &["x"]))));
    trio.settle();
    assert_eq!(trio.told(), []);
    trio.network.clear();
    let told = told_with_nothing_chosen(&mut trio, abort(us));
    // The next leader knows nothing of the refusal.
    let second = trio.leader();
    trio.ask(second, abort(us));
    let part = trio.ask(second, Request::Inspect { txn: txn(us + 1) });
    assert!(matches!(part[..], [Reply::Prepared { .. }]), "{part:?}");
    told == [txn(us + 2)]
}

#[test]
fn nothing_is_answered_that_rests_on_a_refusal_which_is_not_chosen() {
    assert!(!answers_what_rests_on_a_refusal(Mutated::NONE));
    assert!(answers_what_rests_on_a_refusal(trusting()));
}

#[test]
fn who_rests_on_an_end_that_is_not_certain_is_answered_once_it_is_chosen() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    for (after, reads) in [(1, "x"), (2, "y")] {
        assert_eq!(trio.ask(0, last(us + after, 0, &[reads], &["y"])), []);
    }
    let told = trio.ask(0, abort(us));
    let answered = |after| {
        told.iter().any(|reply| matches!(reply, Reply::Executed(it) if it.txn == txn(us + after)))
    };
    assert!(answered(1) && answered(2), "{told:?}");
    trio.pass(Duration::from_secs(1));
    assert_eq!(trio.nodes[NodeId(0)].gauge("uncertain"), 0);
}

#[test]
fn one_that_was_inherited_and_reads_again_is_answered_with_what_it_has_read() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    let reader = last(us + 1, 0, &["x"], &[]);
    assert_eq!(trio.ask(0, reader.clone()), []);
    trio.away.insert(NodeId(0));
    trio.pass(Duration::from_secs(4));
    trio.told();
    let second = trio.leader();
    trio.deliver((CLIENT, NodeId(second), Message::Request(abort(us))));
    trio.deliver((CLIENT, NodeId(second), Message::Request(reader)));
    trio.pass(Duration::from_millis(10));
    let told = trio.told();
    let found = told.iter().find_map(|reply| match reply {
        Reply::Executed(Executed { found, .. }) => Some(found.len()),
        _ => None,
    });
    assert_eq!(found, Some(1), "{told:?}");
}

#[test]
fn an_answer_that_was_lost_is_repeated_until_its_client_confirms_the_end() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    let shot = last(us, 0, &["x"], &["x"]);
    let first = trio.ask(0, shot.clone());
    assert!(matches!(&first[..], [Reply::Executed(executed)] if executed.found.len() == 1));
    trio.pass(Duration::from_millis(100));
    assert_eq!(trio.ask(0, shot.clone()), first);
    trio.commit(0, us);
    let end = trio.ask(0, shot);
    assert!(matches!(end[..], [Reply::Decided { decision: Decision::Commit(_), .. }]), "{end:?}");
}

/// As before, but no part is chosen yet when the first one ends. Then the followers' acceptances of the former parts arrive.
fn answers_what_was_on_its_way(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Queues<false>>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    trio.propose(last(us + 1, 0, &["x"], &["y"]));
    trio.propose(last(us + 2, 0, &["y"], &[]));
    trio.settle_where(|(_, to, _)| *to != NodeId(0));
    trio.deliver((CLIENT, NodeId(0), Message::Request(abort(us))));
    trio.settle_where(|(from, to, _)| *from != NodeId(0) || *to == CLIENT);
    executed(trio.told()) == [txn(us + 2)]
}

#[test]
fn nothing_on_its_way_is_answered_before_the_end_on_which_it_rests() {
    assert!(!answers_what_was_on_its_way(Mutated::NONE));
    assert!(answers_what_was_on_its_way(trusting()));
}

/// The same under a second leader, which has inherited what rests on its own refusal.
fn answers_what_it_has_inherited(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Queues<false>>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    assert_eq!(trio.ask(0, last(us + 1, 1, &["x"], &["y"])), []);
    let third = last(us + 2, 0, &[], &["y"]);
    assert_eq!(trio.ask(0, third.clone()), []);
    let second = trio.fail_after([]);
    // A write comes between, so the second one can't read again.
    let now_us = trio.after_us();
    trio.ask(second, last(now_us, 1, &[], &["x"]));
    assert_eq!(trio.ask(second, third), []);
    trio.deliver((CLIENT, NodeId(second), Message::Request(abort(us))));
    trio.settle();
    executed(trio.told()).contains(&txn(us + 2))
}

#[test]
fn a_new_leader_answers_nothing_that_rests_on_its_refusal_before_that_is_chosen() {
    assert!(!answers_what_it_has_inherited(Mutated::NONE));
    assert!(answers_what_it_has_inherited(trusting()));
}

/// A transaction can't be moved, because another one has overwritten what it wrote. Whether that one is answered before the
/// abort is chosen.
fn answers_what_rests_on_a_move_that_failed(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Queues<false>>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    assert_eq!(trio.ask(0, last(us + 1, 0, &[], &["x"])), []);
    let to = stamp(us + 10 * Stamp::LANES, us);
    told_with_nothing_chosen(&mut trio, Request::Move { txn: txn(us), to }) == [txn(us + 1)]
}

#[test]
fn nothing_is_answered_that_rests_on_a_failed_move_which_is_not_chosen() {
    assert!(!answers_what_rests_on_a_move_that_failed(Mutated::NONE));
    assert!(answers_what_rests_on_a_move_that_failed(trusting()));
}

#[test]
fn the_answer_of_one_that_another_shard_has_aborted_is_not_repeated() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    let shot = last(us, 1, &[], &["x"]);
    assert!(matches!(trio.ask(0, shot.clone())[..], [Reply::Executed(_)]));
    trio.deliver((NodeId::replica(1, 0), NodeId(0), Message::Request(abort(us))));
    trio.pass(Duration::from_millis(100));
    trio.told();
    let end = trio.ask(0, shot);
    assert!(matches!(end[..], [Reply::Decided { decision: Decision::Abort, .. }]), "{end:?}");
}

#[test]
fn no_answer_is_kept_for_a_client_that_has_asked_for_the_end_before() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    trio.first_is_deaf();
    assert_eq!(trio.ask(0, last(us + 1, 0, &[], &["y"])), []);
    assert_eq!(trio.ask(0, abort(us + 1)), []);
    trio.cut.clear();
    trio.pass(Duration::from_millis(400));
    assert_eq!(trio.nodes[NodeId(0)].gauge("answered"), 0);
}

/// What two modifications follow from is aborted. The first ends alone, so the second is put into the log once more, behind
/// that end. The log has room for some of that, and then the leader fails.
#[test]
fn a_modification_does_not_outlive_the_new_part_that_it_was_made_of() {
    for mib in [1, 2, 3] {
        let mut trio = Trio::<Queues<false>>::new();
        let us = trio.after_us();
        trio.ask(0, last(us, 1, &[], &["x"]));
        let append = |after: u64, fill: u8| {
            let suffix = vec![fill; mib << 19];
            let append = Modification::Append(Value::from(suffix.as_slice())).within(16 << 20);
            let modifies = vec![Modify { key: Key::from("x"), modifications: vec![append] }];
            Request::Shot(Shot { modifies, ..shot(txn(us + after), &[], &[], &[0]) })
        };
        for (after, fill) in [(1, b'a'), (2, b'b')] {
            assert_eq!(trio.ask(0, append(after, fill)), []);
            trio.pass(Duration::from_millis(50)); // Its part is chosen.
        }
        let second = trio.fail_after([abort(us)]);
        trio.ask(second, append(2, b'b'));
        trio.pass(Duration::from_secs(9));
        trio.told();
        let told = trio.ask(second, last(trio.after_us(), 0, &["x"], &[]));
        let Some(Reply::Executed(executed)) = told.first() else { panic!("{told:?}") };
        let value = executed.found[0].value.as_ref().map_or(&[][..], Value::as_bytes);
        assert!(!value.starts_with(us.to_string().as_bytes()), "{mib}: what was aborted is there");
    }
}
