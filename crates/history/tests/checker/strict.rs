//! Serializable histories whose order must respect real time.

use serried_history::{
    ConflictKind, History, Options, RealTime, Verdict, Violation, ViolationKind,
    check_serializable, check_strict_serializable, check_strict_serializable_with,
};

use crate::support::{
    Script, absent, append, found, list, through_json, version, violation, write,
};

fn strict(script: Script, spans: &[(u64, u64)]) -> Verdict {
    check_strict_serializable(&through_json(script.history_at(spans)))
}

#[track_caller]
fn assert_accepted(script: Script, spans: &[(u64, u64)]) {
    let verdict = strict(script, spans);
    assert!(verdict.holds(), "{verdict}");
}

/// Asserts that the history is serializable but not strictly serializable, and that the violation has this many
/// transactions.
#[track_caller]
fn assert_inverted(script: Script, spans: &[(u64, u64)], involved: usize) -> Violation {
    let history = through_json(script.history_at(spans));
    let verdict = check_serializable(&history);
    assert!(verdict.holds(), "{verdict}");
    inversion(&history, involved)
}

#[track_caller]
fn inversion(history: &History, involved: usize) -> Violation {
    let violation = violation(check_strict_serializable(history));
    let found = (violation.kind, violation.transactions.len());
    assert_eq!(found, (ViolationKind::Inversion, involved), "{violation}");
    let real_time = violation.real_time.expect("an inversion names its real-time edge");
    assert!(real_time.ended < real_time.began, "{violation}");
    assert_eq!(violation.conflicts.len() + 1, involved, "{violation}");
    violation
}

#[test]
fn a_read_that_begins_after_a_write_has_ended_does_not_miss_it() {
    let script = || Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [absent(5)], &[0]);
    let violation = assert_inverted(script(), &[(0, 1), (2, 3)], 2);
    assert_eq!(violation.conflicts[0].kind, ConflictKind::AntiDependency);
    assert_eq!(violation.ruled_out, ["strictly serializable"]);
    assert_accepted(script(), &[(0, 2), (1, 3)]);
    assert_accepted(script(), &[(2, 3), (0, 1)]);
}

#[test]
fn a_read_of_a_list_that_begins_after_an_append_has_ended_does_not_miss_it() {
    let script = || Script::default().ok([append(5, 1)]).ok([list(5, &[])]);
    assert_inverted(script(), &[(0, 1), (2, 3)], 2);
    assert_accepted(script(), &[(0, 2), (1, 3)]);
}

#[test]
fn a_read_does_not_find_what_began_after_it_had_ended() {
    let script = || Script::default().ok([list(5, &[1])]).ok([append(5, 1)]);
    let violation = assert_inverted(script(), &[(0, 1), (2, 3)], 2);
    assert_eq!(violation.conflicts[0].kind, ConflictKind::ReadDependency);
    assert_accepted(script(), &[(0, 2), (1, 3)]);
}

#[test]
fn a_write_does_not_overwrite_one_that_began_after_it_had_ended() {
    let script = || Script::default().ok_at(20, [write(5, 1)], &[]).ok_at(10, [write(5, 2)], &[]);
    let violation = assert_inverted(script(), &[(0, 1), (2, 3)], 2);
    assert_eq!(violation.conflicts[0].kind, ConflictKind::WriteDependency);
    assert_accepted(script(), &[(0, 2), (1, 3)]);
}

/// 003 Fig. 3: `tx1` at 10 and `tx2` at 5 are on different shards, and `tx3` at 7 is on both.
fn timestamp_inversion() -> Script {
    Script::default().ok_at(10, [write(1, 1)], &[]).ok_at(5, [write(2, 2)], &[]).ok_at(
        7,
        [found(2, 2), absent(1)],
        &[5, 0],
    )
}

#[test]
fn a_timestamp_inversion_is_seen_by_a_transaction_between() {
    let violation = assert_inverted(timestamp_inversion(), &[(1, 2), (3, 4), (0, 5)], 3);
    assert_eq!(
        Verdict::Violation(Box::new(violation)).to_string(),
        "not strictly serializable: inversion, every serial order contradicts real time\n  \
         serializable, but only with T2 before T1, which had ended before T2 began\n  \
         T1 (process 0, op 2) ended, at event 2, before T2 (process 1, op 4) began, at event 3: \
         T1 -rto-> T2\n  \
         T2 (process 1, op 4) wrote 2 to key 2 at version 5.65536; T3 (process 2, op 5) read 2 of \
         key 2, which is that: T2 -wr-> T3\n  \
         T1 (process 0, op 2) wrote 1 to key 1 at version 10.65536; T3 (process 2, op 5) read \
         nothing of key 1, which was there before: T3 -rw-> T1\n  \
         T1 = process 0, op 2, ok, version 10.65536: [[\"w\", 1, 1]]\n  \
         T2 = process 1, op 4, ok, version 5.65536: [[\"w\", 2, 2]]\n  \
         T3 = process 2, op 5, ok, version 7.65536: [[\"r\", 2, 2]@5.65536, [\"r\", 1, null]@0.0]\n  \
         rules out: strictly serializable"
    );
}

#[test]
fn timestamps_invert_nothing_as_long_as_the_two_overlap() {
    assert_accepted(timestamp_inversion(), &[(1, 3), (2, 4), (0, 5)]);
    assert_accepted(timestamp_inversion(), &[(3, 4), (1, 2), (0, 5)]);
    assert_accepted(timestamp_inversion(), &[(1, 5), (2, 3), (0, 4)]);
}

#[test]
fn writes_in_timestamp_order_are_inverted_without_any_read() {
    let script = Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(5, [write(2, 2)], &[])
        .ok_at(7, [write(2, 3), write(1, 3)], &[]);
    let violation = assert_inverted(script, &[(1, 2), (3, 4), (0, 5)], 3);
    assert!(violation.conflicts.iter().all(|it| it.kind == ConflictKind::WriteDependency));
}

#[test]
fn the_smallest_of_several_inversions_is_shown() {
    let script = timestamp_inversion().ok([append(9, 1)]).ok([list(9, &[])]);
    let violation = assert_inverted(script, &[(1, 2), (3, 4), (0, 5), (6, 7), (8, 9)], 2);
    assert_eq!(violation.conflicts[0].key, Some(9));
    assert_eq!(violation.real_time, Some(RealTime { ended: 7, began: 8 }));
}

#[test]
fn an_inversion_over_many_readers_and_appends_names_one_of_each() {
    let mut script = Script::default();
    for element in 0..3 {
        script = script.ok([list(1, &[])]).ok([append(1, element)]);
    }
    let mut spans: Vec<(u64, u64)> = (0..6).map(|at| (at, 20 + at)).collect();
    // The last append has ended when the last reader begins.
    (spans[5], spans[4]) = ((5, 6), (7, 8));
    let violation = assert_inverted(script, &spans, 2);
    assert_eq!(violation.transactions.iter().map(|it| it.process).collect::<Vec<_>>(), [5, 4]);
}

#[test]
fn unread_appends_may_stand_in_the_order_of_their_time() {
    let script = Script::default().ok([append(1, 2)]).ok([append(1, 1)]).ok([append(1, 3)]);
    assert_accepted(script, &[(0, 1), (2, 3), (4, 5)]);
}

#[test]
fn a_transaction_of_unknown_outcome_may_take_effect_late() {
    let late = |script: Script| script.ok([list(1, &[])]).ok([list(1, &[1])]);
    let spans = [(0, 1), (2, 3), (4, 5)];
    assert_accepted(late(Script::default().info([append(1, 1)])), &spans);
    assert_accepted(late(Script::default().open([append(1, 1)])), &spans);
    assert_inverted(late(Script::default().ok([append(1, 1)])), &spans, 2);
}

#[test]
fn a_transaction_of_unknown_outcome_takes_no_effect_before_it_began() {
    let early = |script: Script| script.ok([list(1, &[1]), append(2, 1)]);
    assert_inverted(early(Script::default().info([append(1, 1)])), &[(2, 3), (0, 1)], 2);
    assert_inverted(early(Script::default().open([append(1, 1)])), &[(2, 3), (0, 1)], 2);
    assert_accepted(early(Script::default().info([append(1, 1)])), &[(0, 1), (2, 3)]);
}

#[test]
fn a_transaction_of_unknown_outcome_that_was_seen_stays_seen() {
    let script = || {
        let script = Script::default().info_at(10, [write(1, 1)]);
        script.ok_at(20, [found(1, 1)], &[10]).ok_at(30, [absent(1)], &[0])
    };
    let violation = assert_inverted(script(), &[(0, 1), (2, 3), (4, 5)], 3);
    assert_eq!(violation.transactions.iter().map(|it| it.process).collect::<Vec<_>>(), [1, 2, 0]);
    assert_accepted(script(), &[(0, 1), (2, 4), (3, 5)]);
}

#[test]
fn failed_and_unseen_transactions_have_no_place_in_time() {
    let script = Script::default().fail([append(1, 1)]).info([append(1, 2)]).ok([list(1, &[])]);
    assert_accepted(script, &[(0, 1), (2, 3), (4, 5)]);
}

#[test]
fn a_transaction_without_an_invoke_may_have_begun_at_any_time() {
    let script = Script::default().ok([append(1, 1)]).ok([list(1, &[])]);
    let mut history = script.history_at(&[(0, 1), (2, 3)]);
    history.events.remove(2);
    assert!(check_strict_serializable(&history).holds());
    // But it had ended.
    let script = Script::default().ok([append(1, 1)]).ok([list(1, &[])]);
    let mut history = script.history_at(&[(0, 1), (2, 3)]);
    history.events.remove(0);
    inversion(&history, 2);
}

#[test]
fn what_is_not_serializable_is_explained_without_real_time() {
    let script = Script::default()
        .ok([list(1, &[]), append(2, 1)])
        .ok([list(2, &[]), append(1, 1)])
        .ok([append(3, 1)])
        .ok([list(3, &[])]);
    let history = script.history_at(&[(0, 1), (2, 3), (4, 5), (6, 7)]);
    let verdict = check_strict_serializable(&history);
    assert_eq!(verdict, check_serializable(&history));
    assert!(verdict.to_string().starts_with("not serializable: G2"), "{verdict}");
}

#[test]
fn an_inversion_shows_even_if_serializability_is_unknown() {
    let script = || {
        let script = Script::default().ok([write(1, 1)]).ok([write(1, 2)]);
        script.ok([append(2, 1)]).ok([list(2, &[])])
    };
    let history = script().history_at(&[(0, 1), (2, 3), (4, 5), (6, 7)]);
    assert!(matches!(check_serializable(&history), Verdict::Unknown { .. }));
    let violation = inversion(&history, 2);
    assert!(violation.reason.contains("whether there is a serial order at all is not known: T1"));
    let history = script().history_at(&[(0, 1), (2, 3), (4, 6), (5, 7)]);
    assert!(matches!(check_strict_serializable(&history), Verdict::Unknown { .. }));
}

#[test]
fn data_from_before_the_history_was_written_before_all_of_it() {
    let options = Options { initial_before: Some(version(5)), ..Options::default() };
    let script = || {
        let script = Script::default().ok_at(10, [found(1, 7), write(1, 8)], &[3]);
        script.ok_at(20, [found(1, 7)], &[3])
    };
    let check = |spans| check_strict_serializable_with(&script().history_at(spans), &options);
    assert!(check(&[(2, 3), (0, 1)]).holds());
    assert_eq!(violation(check(&[(0, 1), (2, 3)])).kind, ViolationKind::Inversion);
}

#[test]
fn the_verdict_names_the_guarantee_that_was_checked() {
    let history = || Script::default().ok([append(1, 1)]).history();
    let counted = "1 transactions committed, 0 failed, 0 of unknown outcome; 1 keys, 0 conflicts";
    let verdict = check_strict_serializable(&history());
    assert_eq!(verdict.to_string(), format!("strictly serializable: {counted}"));
    let verdict = check_serializable(&history());
    assert_eq!(verdict.to_string(), format!("serializable: {counted}"));
}
