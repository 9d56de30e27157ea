//! Histories with too little information to judge them.

use serried_history::ViolationKind;

use crate::support::{Script, absent, append, delete, found, list, write};

#[test]
fn writers_without_versions_leave_the_verdict_open() {
    let reason =
        Script::default().ok([write(1, 1)]).ok([write(1, 2)]).ok([found(1, 1)]).assert_unknown();
    assert!(reason.contains("record the version of every transaction"), "{reason}");
}

#[test]
fn equal_values_without_read_versions_leave_the_verdict_open() {
    Script::default()
        .ok_at(10, [write(1, 1)], &[])
        .ok_at(20, [write(1, 1)], &[])
        .ok_at(30, [found(1, 1)], &[])
        .assert_unknown();
}

#[test]
fn a_deleted_key_without_read_versions_leaves_the_verdict_open() {
    Script::default().ok_at(10, [delete(1)], &[]).ok_at(20, [absent(1)], &[]).assert_unknown();
}

#[test]
fn a_key_used_as_list_and_register_leaves_the_verdict_open() {
    Script::default().ok([append(1, 1)]).ok([write(1, 1)]).assert_unknown();
}

#[test]
fn an_element_appended_twice_leaves_the_verdict_open() {
    Script::default().ok([append(1, 1)]).info([append(1, 1)]).ok([list(1, &[1])]).assert_unknown();
}

#[test]
fn an_unowned_version_may_belong_to_a_transaction_without_a_version() {
    Script::default().info([write(1, 1)]).ok_at(20, [found(1, 1)], &[10]).assert_unknown();
    Script::default().open([]).ok_at(20, [found(1, 1)], &[10]).assert_unknown();
}

#[test]
fn an_unowned_element_may_belong_to_a_transaction_without_operations() {
    Script::default().info([]).ok([list(1, &[7])]).assert_unknown();
}

#[test]
fn the_place_of_an_unknown_transactions_other_writes_is_open() {
    Script::default()
        .info([append(1, 1), write(2, 1)])
        .ok_at(10, [list(1, &[1])], &[])
        .ok_at(20, [write(2, 2)], &[])
        .assert_unknown();
}

#[test]
fn a_violation_elsewhere_is_found_even_so() {
    Script::default()
        .ok([write(1, 1)])
        .ok([write(1, 2)])
        .fail([append(2, 1)])
        .ok([list(2, &[1])])
        .assert_rejected(ViolationKind::AbortedRead, 2);
    Script::default()
        .ok([write(1, 1), append(2, 1), append(3, 1)])
        .ok([write(1, 2)])
        .ok([list(2, &[1]), list(3, &[])])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}
