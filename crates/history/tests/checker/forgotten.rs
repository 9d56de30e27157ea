//! Databases that forget the versions of deletes: hand-written histories.

use serried_history::{
    Deletes, Options, Verdict, ViolationKind, check_serializable, check_serializable_with,
    check_strict_serializable_with,
};

use crate::support::{REMEMBERING, Script, absent, delete, found, version, violation, write};

const FORGETTING: Options = Options { initial_before: None, deletes: Deletes::Forgotten };

/// Each transaction begins when the one before has ended.
fn in_turn(script: &Script, options: Options) -> Verdict {
    let count = script.len() as u64;
    let spans: Vec<(u64, u64)> = (0..count).map(|at| (2 * at, 2 * at + 1)).collect();
    check_strict_serializable_with(&script.clone().history_at(&spans), &options)
}

fn forgetting(script: Script) -> Verdict {
    script.verdict_with(FORGETTING)
}

fn deleted() -> Script {
    Script::default().ok_at(10, [write(1, 5)], &[]).ok_at(20, [found(1, 5), delete(1)], &[10])
}

#[test]
fn a_read_of_nothing_may_have_found_a_forgotten_delete() {
    let script = deleted()
        .ok_at(30, [absent(1), write(2, 6)], &[0])
        .ok_at(40, [absent(1), found(2, 6), write(1, 7)], &[0, 30])
        .ok_at(50, [found(1, 7)], &[40]);
    assert!(in_turn(&script, FORGETTING).holds(), "{}", in_turn(&script, FORGETTING));
    assert!(in_turn(&script, Options::default()).holds());
    assert!(!in_turn(&script, REMEMBERING).holds());
}

#[test]
fn reads_of_nothing_mean_the_same_in_the_whole_history() {
    // One of the two reads missed the delete, and the other the write.
    let stale = deleted().ok_at(30, [absent(1), write(2, 1)], &[0]);
    let script = stale
        .ok_at(40, [write(3, 1), absent(2)], &[0])
        .ok_at(50, [absent(3), found(2, 1)], &[0, 30])
        .ok_at(60, [found(3, 1)], &[40]);
    assert!(!script.clone().verdict_with(REMEMBERING).holds());
    assert!(!forgetting(script.clone()).holds());
    assert!(!script.verdict().holds());
}

#[test]
fn a_forgotten_delete_is_not_later_than_its_reader() {
    // The delete overwrites a value that was written after the read.
    let script = |deleted| {
        let script = Script::default().ok_at(10, [absent(1), found(2, 1)], &[0, 5]);
        script.ok_at(5, [write(1, 1), write(2, 1)], &[]).ok_at(deleted, [delete(1)], &[])
    };
    assert!(forgetting(script(7)).holds());
    assert_eq!(violation(forgetting(script(20))).kind, ViolationKind::SingleAntiDependency);
}

#[test]
fn a_read_has_found_the_latest_delete_below_its_version() {
    let script = |read, at| {
        let script =
            deleted().ok_at(30, [write(1, 6)], &[]).ok_at(40, [delete(1), write(2, 6)], &[]);
        script.ok_at(50, [absent(1), read], &[0, at])
    };
    assert!(forgetting(script(found(2, 6), 40)).holds());
    assert!(!forgetting(script(absent(2), 0)).holds());
}

#[test]
fn a_delete_of_unknown_outcome_may_have_been_found() {
    let before = |deletes: Script| in_turn(&deletes.ok_at(30, [absent(1)], &[0]), FORGETTING);
    let written = || Script::default().ok_at(10, [write(1, 5)], &[]);
    assert!(before(written().info_at(20, [delete(1)])).holds());
    assert!(before(written().info([delete(1)])).holds());
    assert!(before(written().info_at(20, [])).holds());
    assert!(before(written().info([])).holds());
    assert!(!before(written().info_at(20, [delete(2)])).holds());
    assert!(!before(written().info_at(20, [write(1, 6)])).holds());
    assert!(!before(written().fail_at(20, [delete(1)])).holds());
    assert!(!before(written().info_at(31, [delete(1)])).holds());
    // It may have committed later than at the version with which it began.
    assert!(
        before(Script::default().info_at(5, [delete(1)]).ok_at(10, [write(1, 5)], &[])).holds()
    );
}

#[test]
fn a_read_of_an_unknown_transaction_shows_whether_it_deleted() {
    let script = |read| {
        let script = Script::default().info_at(10, [delete(1)]).ok_at(20, [read], &[10]);
        in_turn(&script.ok_at(30, [absent(1)], &[0]), FORGETTING)
    };
    assert!(script(absent(1)).holds());
    assert!(!script(found(1, 7)).holds());
    let script = Script::default().info_at(10, [delete(1)]);
    let script = script.ok_at(20, [absent(1)], &[10]).ok_at(30, [found(1, 7)], &[10]);
    assert_eq!(violation(forgetting(script)).kind, ViolationKind::DisagreeingReads);
}

#[test]
fn initial_data_that_is_missing_was_deleted() {
    let was_there = || Script::default().ok_at(10, [found(1, 5)], &[4]);
    let check = |script: Script| {
        let options = Options { initial_before: Some(version(5)), ..FORGETTING };
        in_turn(&script.ok_at(30, [absent(1)], &[0]), options)
    };
    assert!(check(was_there().ok_at(20, [delete(1)], &[])).holds());
    assert!(check(was_there().info_at(20, [delete(1)])).holds());
    for script in [was_there(), was_there().fail_at(20, [delete(1)])] {
        assert_eq!(violation(check(script)).kind, ViolationKind::DisagreeingReads);
    }
}

#[test]
fn a_read_of_nothing_without_any_delete_has_missed_the_write() {
    let script = Script::default().ok_at(10, [write(1, 5), write(2, 5)], &[]).ok_at(
        20,
        [absent(1), found(2, 5)],
        &[0, 10],
    );
    let violation = violation(forgetting(script));
    assert_eq!(violation.kind, ViolationKind::SingleAntiDependency);
}

#[test]
fn a_read_of_a_forgotten_delete_has_missed_the_next_write() {
    let script = deleted().ok_at(30, [write(1, 6), write(2, 6)], &[]).ok_at(
        40,
        [absent(1), found(2, 6)],
        &[0, 30],
    );
    assert_eq!(violation(forgetting(script.clone())).kind, ViolationKind::SingleAntiDependency);
    assert!(!in_turn(&script, FORGETTING).holds());
}

#[test]
fn a_value_that_comes_back_after_its_delete_is_rejected() {
    let script = Script::default()
        .ok_at(10, [write(1, 5)], &[])
        .ok_at(20, [found(1, 5), delete(1), write(2, 6)], &[10])
        .ok_at(30, [found(1, 5), found(2, 6)], &[10, 20]);
    assert_eq!(violation(forgetting(script)).kind, ViolationKind::SingleAntiDependency);
}

#[test]
fn a_reader_without_a_version_may_have_found_any_delete() {
    let script = deleted().ok_at(30, [write(1, 6), write(2, 6)], &[]).ok_at(
        40,
        [absent(1), found(2, 6)],
        &[0, 30],
    );
    let mut history = script.history();
    assert!(!check_serializable(&history).holds());
    for event in history.events.iter_mut().filter(|event| event.version == Some(version(40))) {
        event.version = None;
    }
    assert!(check_serializable(&history).holds());
    assert!(!check_serializable_with(&history, &REMEMBERING).holds());
}

#[test]
fn a_delete_that_one_key_reveals_holds_for_other_keys_too() {
    let script = Script::default()
        .ok_at(10, [write(1, 5)], &[])
        .info_at(20, [delete(1), delete(2)])
        .ok_at(30, [absent(1), absent(2)], &[0, 0]);
    assert!(forgetting(script.clone()).holds(), "{}", forgetting(script));
}

#[test]
fn a_reader_without_a_version_finds_nothing_only_before_the_first_write_if_nothing_was_deleted() {
    let script = Script::default().ok_at(10, [write(1, 5), write(2, 5)], &[]).ok_at(
        20,
        [absent(1), found(2, 5)],
        &[0, 10],
    );
    let mut history = script.history();
    for event in history.events.iter_mut().filter(|event| event.version == Some(version(20))) {
        event.version = None;
    }
    let violation = violation(check_serializable_with(&history, &FORGETTING));
    assert_eq!(violation.kind, ViolationKind::SingleAntiDependency);
}
