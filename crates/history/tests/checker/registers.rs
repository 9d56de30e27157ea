use serried_history::{
    Options, Verdict, ViolationKind, check_serializable, check_strict_serializable_with,
};

use crate::support::{Script, absent, delete, found, version, violation, write};

#[test]
fn a_serial_history_of_registers_is_accepted() {
    Script::default()
        .ok_at(10, [absent(1), write(1, 5)], &[0])
        .ok_at(20, [found(1, 5), write(1, 6), found(1, 6), write(1, 7)], &[10, 20])
        .ok_at(15, [found(1, 5)], &[10])
        .ok_at(30, [found(1, 7), delete(1)], &[20])
        .ok_at(40, [absent(1)], &[30])
        .assert_serializable();
}

/// One after the other.
fn in_turn(script: Script) -> Verdict {
    let count = script.len() as u64;
    let spans: Vec<(u64, u64)> = (0..count).map(|at| (2 * at, 2 * at + 1)).collect();
    check_serializable(&script.history_at(&spans))
}

fn forgetful(script: Script) -> Verdict {
    script.verdict_with(Options { deletes_forgotten_after_us: Some(5), ..Options::default() })
}

/// Versions are the order in which all take effect.
fn ordered(script: Script) -> Verdict {
    script.verdict_with(Options { deletes_forgotten_after_us: Some(0), ..Options::default() })
}

#[test]
fn a_read_that_finds_nothing_may_have_found_a_delete_that_the_database_has_forgotten() {
    let script = Script::default()
        .ok_at(10, [write(1, 5)], &[])
        .ok_at(20, [found(1, 5), delete(1)], &[10])
        .ok_at(30, [absent(1), write(2, 6)], &[0])
        .ok_at(40, [absent(1), found(2, 6), write(1, 7)], &[0, 30])
        .ok_at(50, [found(1, 7)], &[40]);
    assert!(in_turn(script.clone()).holds(), "{}", in_turn(script));
    assert!(forgetful(script.clone()).holds(), "{}", forgetful(script));
    // They all overlap, and it was not long ago.
    assert!(!script.verdict().holds());
}

#[test]
fn a_read_that_finds_nothing_may_have_found_a_delete_of_unknown_outcome() {
    let before = |deletes: Script| in_turn(deletes.ok_at(30, [absent(1)], &[0]));
    let written = Script::default().ok_at(10, [write(1, 5)], &[]).info_at(20, [delete(1)]);
    assert!(before(written).holds());
    // The key was there before the history, as somebody has seen.
    let was_there = Script::default().ok_at(10, [found(1, 5)], &[0]);
    assert!(before(was_there.clone().info_at(20, [delete(1)])).holds());
    assert!(!before(was_there.fail_at(20, [delete(1)])).holds());
    // Somebody has found it before it was forgotten.
    let found = Script::default().info_at(10, [delete(1)]).ok_at(20, [absent(1)], &[10]);
    assert!(before(found).holds());
}

#[test]
fn a_read_that_finds_nothing_where_nothing_was_deleted_has_missed_what_was_written() {
    let script = Script::default().ok_at(10, [write(1, 5), write(2, 5)], &[]).ok_at(
        20,
        [absent(1), found(2, 5)],
        &[0, 10],
    );
    let violation = violation(forgetful(script));
    assert_eq!(violation.kind, ViolationKind::SingleAntiDependency);
}

#[test]
fn a_read_that_finds_a_forgotten_delete_has_missed_what_was_written_after_it() {
    let script = Script::default()
        .ok_at(10, [write(1, 5)], &[])
        .ok_at(20, [delete(1)], &[])
        .ok_at(30, [write(1, 6), write(2, 6)], &[])
        .ok_at(40, [absent(1), found(2, 6)], &[0, 30]);
    assert_eq!(violation(in_turn(script.clone())).kind, ViolationKind::SingleAntiDependency);
    let ordered = violation(ordered(script));
    assert_eq!(ordered.kind, ViolationKind::SingleAntiDependency);
}

#[test]
fn a_read_that_began_before_all_writes_may_have_found_nothing_however_late_its_version_is() {
    let script = Script::default()
        .ok_at(100, [absent(1), absent(2)], &[0, 0])
        .ok_at(10, [write(1, 5), write(2, 5)], &[])
        .ok_at(20, [delete(2)], &[]);
    let history = script.history_at(&[(0, 5), (1, 2), (3, 4)]);
    let options = Options { deletes_forgotten_after_us: Some(5), ..Options::default() };
    let verdict = check_strict_serializable_with(&history, &options);
    assert!(verdict.holds(), "{verdict}");
}

#[test]
fn a_read_has_not_found_a_delete_that_began_after_its_end() {
    let script = Script::default().ok_at(100, [absent(1)], &[0]).ok_at(10, [delete(1)], &[]);
    let history = script.history_at(&[(0, 1), (2, 3)]);
    let options = Options { deletes_forgotten_after_us: Some(5), ..Options::default() };
    let verdict = check_strict_serializable_with(&history, &options);
    assert!(verdict.holds(), "{verdict}");
}

#[test]
fn what_one_key_shows_of_a_delete_of_unknown_outcome_holds_for_another_that_was_never_there() {
    let script = Script::default()
        .ok_at(10, [write(1, 5)], &[])
        .info_at(20, [delete(1), delete(2)])
        .ok_at(30, [absent(1), absent(2)], &[0, 0]);
    assert!(in_turn(script.clone()).holds(), "{}", in_turn(script.clone()));
    assert!(ordered(script.clone()).holds(), "{}", ordered(script));
}

#[test]
fn a_value_that_comes_back_after_its_delete_is_rejected() {
    let script = Script::default()
        .ok_at(10, [write(1, 5)], &[])
        .ok_at(20, [found(1, 5), delete(1), write(2, 6)], &[10])
        .ok_at(30, [found(1, 5), found(2, 6)], &[10, 20]);
    let violation = violation(forgetful(script));
    assert_eq!(violation.kind, ViolationKind::SingleAntiDependency);
}

#[test]
fn a_read_of_half_of_an_overwriting_transaction_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1), write(2, 1)], &[])
        .ok_at(20, [write(1, 2), write(2, 2)], &[])
        .ok_at(30, [found(1, 2), found(2, 1)], &[20, 10])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn g1a_a_read_of_a_failed_write_is_rejected() {
    Script::default()
        .fail_at(10, [write(1, 1)])
        .ok_at(20, [found(1, 1)], &[10])
        .assert_rejected(ViolationKind::AbortedRead, 2);
}

#[test]
fn g1a_a_read_of_the_version_of_nobody_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(20, [found(1, 1)], &[15])
        .assert_rejected(ViolationKind::AbortedRead, 1);
}

#[test]
fn g1b_a_read_of_a_value_that_its_writer_replaced_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1), write(1, 2)], &[])
        .ok_at(20, [found(1, 1)], &[10])
        .assert_rejected(ViolationKind::IntermediateRead, 2);
}

#[test]
fn g1c_circular_information_flow_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1), found(2, 2)], &[20])
        .ok_at(20, [write(2, 2), found(1, 1)], &[10])
        .assert_rejected(ViolationKind::CircularInformationFlow, 2);
}

#[test]
fn g1c_a_read_from_a_later_overwriter_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1), found(2, 2)], &[20])
        .ok_at(20, [write(1, 2), write(2, 2)], &[])
        .assert_rejected(ViolationKind::CircularInformationFlow, 2);
}

#[test]
fn a_lost_update_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 100)], &[])
        .ok_at(20, [found(1, 100), write(1, 101)], &[10])
        .ok_at(30, [found(1, 100), write(1, 101)], &[10])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn write_skew_is_rejected() {
    Script::default()
        .ok_at(10, [found(1, 0), write(2, 1)], &[0])
        .ok_at(20, [found(2, 0), write(1, 1)], &[0])
        .assert_rejected(ViolationKind::AntiDependencyCycle, 2);
}

#[test]
fn read_skew_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1), write(2, 1)], &[])
        .ok_at(20, [absent(1), found(2, 1)], &[0, 10])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn a_long_fork_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(20, [write(2, 1)], &[])
        .ok_at(30, [found(1, 1), absent(2)], &[10, 0])
        .ok_at(40, [absent(1), found(2, 1)], &[0, 20])
        .assert_rejected(ViolationKind::AntiDependencyCycle, 4);
}

#[test]
fn a_value_that_the_writer_of_its_version_never_wrote_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(20, [found(1, 9)], &[10])
        .assert_rejected(ViolationKind::GarbageRead, 2);
}

#[test]
fn a_version_whose_transaction_did_not_write_the_key_is_rejected() {
    Script::default()
        .ok_at(10, [write(2, 1)], &[])
        .ok_at(20, [found(1, 1)], &[10])
        .assert_rejected(ViolationKind::GarbageRead, 2);
}

#[test]
fn a_transaction_that_misses_its_own_write_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1), absent(1)], &[0])
        .assert_rejected(ViolationKind::InternalInconsistency, 1);
}

#[test]
fn a_transaction_that_reads_twice_differently_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(20, [absent(1), found(1, 1)], &[0, 10])
        .assert_rejected(ViolationKind::InternalInconsistency, 1);
}

#[test]
fn a_transaction_that_reads_two_versions_of_equal_value_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(20, [write(1, 1)], &[])
        .ok_at(30, [found(1, 1), found(1, 1)], &[10, 20])
        .assert_rejected(ViolationKind::InternalInconsistency, 1);
}

#[test]
fn a_transaction_that_reads_its_own_version_before_it_writes_is_rejected() {
    Script::default()
        .ok_at(10, [found(1, 1), write(1, 1)], &[10])
        .assert_rejected(ViolationKind::InternalInconsistency, 1);
}

#[test]
fn two_committed_transactions_with_one_version_are_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(10, [write(2, 1)], &[])
        .assert_rejected(ViolationKind::DuplicateVersion, 2);
}

#[test]
fn an_attempt_that_failed_may_share_the_version_of_one_that_committed() {
    Script::default()
        .fail_at(10, [write(1, 1)])
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(20, [found(1, 1)], &[10])
        .assert_serializable();
}

#[test]
fn a_stale_read_of_an_absent_key_is_rejected() {
    Script::default()
        .ok_at(10, [write(1, 1), write(2, 1)], &[])
        .ok_at(20, [found(2, 1), write(3, 1)], &[10])
        .ok_at(30, [found(3, 1), absent(1)], &[20, 0])
        .assert_rejected(ViolationKind::SingleAntiDependency, 3);
}

#[test]
fn preloaded_data_is_the_same_for_everybody() {
    Script::default()
        .ok_at(10, [found(1, 100)], &[0])
        .ok_at(20, [found(1, 100), write(1, 1)], &[0])
        .assert_serializable();
    Script::default()
        .ok_at(10, [found(1, 100)], &[0])
        .ok_at(20, [found(1, 99)], &[0])
        .assert_rejected(ViolationKind::DisagreeingReads, 2);
}

#[test]
fn preloaded_versions_are_accepted_only_up_to_the_bound_in_the_options() {
    let script = || Script::default().ok_at(10, [found(1, 100), write(1, 101)], &[5]);
    script().assert_rejected(ViolationKind::AbortedRead, 1);
    let options = |time| Options { initial_before: Some(version(time)), ..Options::default() };
    assert!(script().verdict_with(options(5)).holds());
    assert_eq!(violation(script().verdict_with(options(4))).kind, ViolationKind::AbortedRead);

    let stale = script().ok_at(20, [found(1, 100), write(1, 102)], &[5]).verdict_with(options(5));
    assert_eq!(violation(stale).kind, ViolationKind::SingleAntiDependency);
    let other = script().ok_at(20, [found(1, 99)], &[4]).verdict_with(options(5));
    assert_eq!(violation(other).kind, ViolationKind::DisagreeingReads);
}

#[test]
fn a_transaction_of_unknown_outcome_counts_once_its_version_was_read() {
    let script = || Script::default().info_at(10, [write(1, 1), write(2, 1)]);
    script().ok_at(20, [absent(1), absent(2)], &[0, 0]).assert_serializable();
    script().ok_at(20, [found(1, 1), found(2, 1)], &[10, 10]).assert_serializable();
    script()
        .ok_at(20, [found(1, 1), absent(2)], &[10, 0])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn the_value_of_a_transaction_of_unknown_outcome_is_compared_only_if_it_was_recorded() {
    Script::default()
        .info_at(10, [delete(1)])
        .ok_at(20, [found(1, 7)], &[10])
        .assert_serializable();
    Script::default()
        .info_at(10, [write(1, 6)])
        .ok_at(20, [found(1, 7)], &[10])
        .assert_rejected(ViolationKind::GarbageRead, 2);
}

#[test]
fn a_transaction_of_unknown_outcome_and_operations_may_have_written_anything() {
    let script = || Script::default().info_at(10, []);
    script().ok_at(20, [found(1, 7), found(2, 7)], &[10, 10]).assert_serializable();
    script()
        .ok_at(20, [found(1, 7), write(1, 8), write(2, 8)], &[10])
        .ok_at(5, [found(2, 8)], &[20])
        .ok_at(30, [found(2, 8), found(1, 7)], &[20, 10])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn unique_values_tell_who_was_read_where_read_versions_are_missing() {
    Script::default()
        .ok_at(10, [absent(1), write(1, 1)], &[])
        .ok_at(20, [found(1, 1), write(1, 2)], &[])
        .ok_at(30, [found(1, 2)], &[])
        .assert_serializable();
    Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(20, [found(1, 1), write(1, 2)], &[])
        .ok_at(30, [found(1, 1), write(1, 3)], &[])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
    Script::default()
        .fail_at(10, [write(1, 1)])
        .ok_at(20, [found(1, 1)], &[])
        .assert_rejected(ViolationKind::AbortedRead, 2);
    Script::default()
        .ok_at(10, [write(1, 1), write(1, 2)], &[])
        .ok_at(20, [found(1, 1)], &[])
        .assert_rejected(ViolationKind::IntermediateRead, 2);
}

#[test]
fn a_single_writer_needs_no_version() {
    Script::default().ok([write(1, 1)]).ok([found(1, 1)]).ok([absent(1)]).assert_serializable();
    Script::default()
        .ok([write(1, 1), write(2, 1)])
        .ok([found(1, 1), absent(2)])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}
