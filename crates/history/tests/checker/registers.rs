use serried_history::{Options, ViolationKind};

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
fn g1a_a_read_of_an_unowned_version_is_rejected() {
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
fn a_failed_attempt_may_share_the_version_of_a_committed_one() {
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
fn initial_versions_are_accepted_up_to_the_bound_in_the_options() {
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
fn a_transaction_of_unknown_outcome_counts_if_its_version_was_read() {
    let script = || Script::default().info_at(10, [write(1, 1), write(2, 1)]);
    script().ok_at(20, [absent(1), absent(2)], &[0, 0]).assert_serializable();
    script().ok_at(20, [found(1, 1), found(2, 1)], &[10, 10]).assert_serializable();
    script()
        .ok_at(20, [found(1, 1), absent(2)], &[10, 0])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn an_unrecorded_value_is_not_compared_with_reads() {
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
fn a_transaction_without_operations_may_have_written_anything() {
    let script = || Script::default().info_at(10, []);
    script().ok_at(20, [found(1, 7), found(2, 7)], &[10, 10]).assert_serializable();
    script()
        .ok_at(20, [found(1, 7), write(1, 8), write(2, 8)], &[10])
        .ok_at(5, [found(2, 8)], &[20])
        .ok_at(30, [found(2, 8), found(1, 7)], &[20, 10])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn unique_values_replace_missing_read_versions() {
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
