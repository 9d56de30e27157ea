use serried_history::ViolationKind;

use crate::support::{Script, absent, append, list};

#[test]
fn a_serial_history_of_lists_is_accepted() {
    Script::default()
        .ok([list(1, &[]), append(1, 1)])
        .ok([append(1, 2), append(1, 3), list(1, &[1, 2, 3])])
        .ok([list(1, &[1, 2, 3]), list(2, &[])])
        .ok([absent(1)])
        .assert_serializable();
}

#[test]
fn an_empty_history_is_accepted() {
    Script::default().assert_serializable();
}

#[test]
fn g0_a_write_cycle_is_rejected() {
    Script::default()
        .ok([append(1, 1), append(2, 1)])
        .ok([append(1, 2), append(2, 2)])
        .ok([list(1, &[1, 2])])
        .ok([list(2, &[2, 1])])
        .assert_rejected(ViolationKind::WriteCycle, 2);
}

#[test]
fn g1a_a_read_of_a_failed_append_is_rejected() {
    Script::default()
        .fail([append(1, 1)])
        .ok([list(1, &[1])])
        .assert_rejected(ViolationKind::AbortedRead, 2);
}

#[test]
fn g1a_a_failed_append_in_the_middle_of_a_list_is_rejected() {
    Script::default()
        .ok([append(1, 1)])
        .fail([append(1, 2)])
        .ok([append(1, 3)])
        .ok([list(1, &[1, 2, 3])])
        .assert_rejected(ViolationKind::AbortedRead, 2);
}

#[test]
fn g1b_a_read_between_the_appends_of_a_transaction_is_rejected() {
    Script::default()
        .ok([append(1, 1), append(1, 2)])
        .ok([list(1, &[1])])
        .ok([list(1, &[1, 2])])
        .assert_rejected(ViolationKind::IntermediateRead, 2);
}

#[test]
fn g1b_a_read_between_appends_is_rejected_if_the_last_is_unread() {
    Script::default()
        .ok([append(1, 1), append(1, 2)])
        .ok([list(1, &[1])])
        .assert_rejected(ViolationKind::IntermediateRead, 2);
}

#[test]
fn a_transaction_may_read_between_its_own_appends() {
    Script::default()
        .ok([append(1, 1), list(1, &[1]), append(1, 2)])
        .ok([list(1, &[1, 2])])
        .assert_serializable();
}

#[test]
fn g1c_circular_information_flow_is_rejected() {
    Script::default()
        .ok([append(1, 1), list(2, &[1])])
        .ok([append(2, 1), list(1, &[1])])
        .assert_rejected(ViolationKind::CircularInformationFlow, 2);
}

#[test]
fn a_lost_update_is_rejected() {
    let violation = Script::default()
        .ok([list(1, &[]), append(1, 1)])
        .ok([list(1, &[]), append(1, 2)])
        .ok([list(1, &[1, 2])])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
    assert!(violation.ruled_out.contains(&"snapshot isolation"));
    assert!(!violation.ruled_out.contains(&"read committed"));
}

#[test]
fn a_lost_update_that_was_never_read_is_rejected() {
    Script::default()
        .ok([list(1, &[]), append(1, 1)])
        .ok([list(1, &[]), append(1, 2)])
        .assert_rejected(ViolationKind::AntiDependencyCycle, 2);
}

#[test]
fn a_committed_append_that_vanished_is_rejected() {
    Script::default()
        .ok([list(1, &[]), append(1, 1)])
        .ok([append(1, 2)])
        .ok([list(1, &[2])])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn write_skew_is_rejected_but_leaves_snapshot_isolation() {
    let violation = Script::default()
        .ok([list(1, &[]), append(2, 1)])
        .ok([list(2, &[]), append(1, 1)])
        .ok([list(1, &[1]), list(2, &[1])])
        .assert_rejected(ViolationKind::AntiDependencyCycle, 2);
    assert!(!violation.ruled_out.contains(&"snapshot isolation"));
    assert!(violation.ruled_out.contains(&"serializable"));
}

#[test]
fn read_skew_is_rejected() {
    Script::default()
        .ok([append(1, 1), append(2, 1)])
        .ok([list(1, &[]), list(2, &[1])])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn a_long_fork_is_rejected_and_rules_out_snapshot_isolation() {
    let violation = Script::default()
        .ok([append(1, 1)])
        .ok([append(2, 1)])
        .ok([list(1, &[1]), list(2, &[])])
        .ok([list(1, &[]), list(2, &[1])])
        .assert_rejected(ViolationKind::AntiDependencyCycle, 4);
    assert!(violation.ruled_out.contains(&"snapshot isolation"));
}

#[test]
fn reads_that_disagree_on_the_order_are_rejected() {
    Script::default()
        .ok([append(1, 1)])
        .ok([append(1, 2)])
        .ok([list(1, &[1, 2])])
        .ok([list(1, &[2])])
        .assert_rejected(ViolationKind::IncompatibleOrder, 2);
}

#[test]
fn appends_of_one_transaction_out_of_its_order_are_rejected() {
    Script::default()
        .ok([append(1, 1), append(1, 2)])
        .ok([list(1, &[2, 1])])
        .assert_rejected(ViolationKind::IncompatibleOrder, 2);
}

#[test]
fn an_append_between_those_of_another_transaction_is_rejected() {
    Script::default()
        .ok([append(1, 1), append(1, 2)])
        .ok([append(1, 9)])
        .ok([list(1, &[1, 9, 2])])
        .assert_rejected(ViolationKind::WriteCycle, 2);
}

#[test]
fn an_element_twice_in_a_list_is_rejected() {
    Script::default()
        .ok([append(1, 1)])
        .ok([append(1, 2)])
        .ok([list(1, &[1, 2, 1])])
        .assert_rejected(ViolationKind::DuplicateElement, 2);
}

#[test]
fn an_element_that_nobody_appended_is_rejected() {
    Script::default()
        .ok([append(1, 1)])
        .ok([list(1, &[1, 7])])
        .assert_rejected(ViolationKind::GarbageRead, 1);
}

#[test]
fn an_element_appended_to_another_key_is_rejected() {
    Script::default()
        .ok([append(2, 7)])
        .ok([list(1, &[7])])
        .assert_rejected(ViolationKind::GarbageRead, 1);
}

#[test]
fn a_transaction_that_misses_its_own_append_is_rejected() {
    Script::default()
        .ok([append(1, 1), list(1, &[])])
        .assert_rejected(ViolationKind::InternalInconsistency, 1);
}

#[test]
fn a_transaction_that_reads_twice_differently_is_rejected() {
    Script::default()
        .ok([append(1, 1)])
        .ok([list(1, &[]), list(1, &[1])])
        .assert_rejected(ViolationKind::InternalInconsistency, 1);
}

#[test]
fn a_transaction_that_reads_what_it_appends_later_is_rejected() {
    Script::default()
        .ok([list(1, &[1]), append(1, 1)])
        .ok([list(1, &[1])])
        .assert_rejected(ViolationKind::InternalInconsistency, 1);
}

#[test]
fn a_stale_read_of_an_absent_list_is_rejected() {
    Script::default()
        .ok([append(1, 1), append(2, 1)])
        .ok([list(2, &[1]), absent(1)])
        .ok([list(1, &[1])])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn a_transaction_of_unknown_outcome_counts_if_its_element_was_read() {
    let script = || Script::default().info([append(1, 1), append(2, 1)]);
    script().ok([list(1, &[]), list(2, &[])]).assert_serializable();
    script().ok([list(1, &[1]), list(2, &[1])]).assert_serializable();
    script()
        .ok([list(1, &[1]), list(2, &[])])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn a_transaction_that_never_ended_counts_if_its_element_was_read() {
    Script::default()
        .open([append(1, 1), append(2, 1)])
        .ok([list(1, &[1]), list(2, &[])])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn a_retry_may_append_the_element_of_its_failed_attempt() {
    Script::default()
        .fail([append(1, 1)])
        .ok([append(1, 1)])
        .ok([list(1, &[1])])
        .assert_serializable();
}

#[test]
fn unread_appends_may_stand_in_any_order_among_themselves() {
    Script::default()
        .ok([append(1, 1), append(2, 1)])
        .ok([append(1, 2), append(2, 2)])
        .ok([list(1, &[])])
        .assert_serializable();
}

#[test]
fn many_last_readers_before_many_unread_appends_still_show_their_cycle() {
    let mut script = Script::default();
    for element in 1..=20 {
        script = script.ok([append(1, element)]).ok([list(1, &[])]);
    }
    script
        .ok([append(1, 100), append(2, 100)])
        .ok([list(1, &[]), list(2, &[100])])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn many_last_readers_before_many_unread_appends_are_accepted() {
    let mut script = Script::default().ok([list(1, &[]), append(1, 1_000)]);
    for element in 1..=20 {
        script = script.ok([append(1, element)]).ok([list(1, &[])]);
    }
    script.assert_serializable();
}
