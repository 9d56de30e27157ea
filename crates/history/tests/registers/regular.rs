//! Regular sequential consistency, distinguished from stronger and weaker guarantees.

use serried_history::{Budget, RegisterVerdict, check_regular_sequential};

use crate::support::{
    add, assert_accepted, cas, history, linearizable, read, regular, violation, write,
};

/// 001 §4.6.1: of two reads that are not causally related, the later one may find the older value while the write is in
/// progress.
#[test]
fn reads_that_are_not_causally_related_may_be_inverted() {
    let script = [write(0, 1, 1), write(2, 9, 2), read(3, 4, 2), read(5, 6, 1)];
    assert!(!linearizable(script).holds());
    assert_accepted(regular(script));
}

#[test]
fn the_reads_of_one_process_may_not_be_inverted() {
    let script = [write(0, 1, 1), write(2, 9, 2), read(3, 4, 2).by(7), read(5, 6, 1).by(7)];
    let violation = violation(regular(script));
    assert!(violation.to_string().contains("one process did"), "{violation}");
}

#[test]
fn what_a_completed_write_replaced_may_not_be_read() {
    let violation = violation(regular([write(0, 1, 1), write(2, 3, 2), read(4, 5, 1)]));
    assert_eq!(violation.operations.len(), 3, "{violation}");
}

/// The second process has read the new value of one key and then writes another key. A process that finds this write
/// can't miss the new value afterwards.
#[test]
fn causality_holds_across_keys() {
    let script = [
        write(0, 1, 1).on(1),
        write(2, 99, 2).on(1),
        read(3, 4, 2).on(1).by(20),
        write(5, 6, 7).on(2).by(20),
        read(7, 8, 7).on(2).by(30),
        read(9, 10, 1).on(1).by(30),
    ];
    let violation = violation(regular(script));
    assert!(violation.operations.len() <= 6 && !violation.cycle.is_empty(), "{violation}");
}

#[test]
fn without_the_causal_path_the_same_reads_are_allowed() {
    let script = [
        write(0, 1, 1).on(1),
        write(2, 99, 2).on(1),
        read(3, 4, 2).on(1).by(20),
        write(5, 6, 7).on(2).by(20),
        read(7, 8, 7).on(2).by(30),
        read(9, 10, 1).on(1).by(31),
    ];
    assert_accepted(regular(script));
    assert!(!linearizable(script).holds());
}

#[test]
fn two_processes_may_not_see_two_writes_in_opposite_orders() {
    violation(regular([
        write(0, 99, 1),
        write(0, 98, 2),
        read(3, 4, 1).by(1),
        read(5, 6, 2).by(1),
        read(3, 4, 2).by(2),
        read(5, 6, 1).by(2),
    ]));
    // The same with two keys.
    violation(regular([
        write(0, 99, 1).on(1),
        write(0, 98, 1).on(2),
        read(3, 4, 1).on(1).by(1),
        read(5, 6, None).on(2).by(1),
        read(3, 4, 1).on(2).by(2),
        read(5, 6, None).on(1).by(2),
    ]));
}

#[test]
fn updates_are_lost_under_neither_guarantee() {
    violation(regular([add(0, 9, 1, None), add(1, 8, 1, None)]));
    violation(regular([write(0, 1, 1), write(2, 3, 2), cas(4, 5, 1, 3, 1)]));
}

#[test]
fn a_violation_among_values_that_repeat_is_found_by_search() {
    let script =
        [write(0, 1, 1), write(0, 1, 1).by(3), write(2, 3, 2), write(4, 5, 1).on(2), read(6, 7, 1)];
    violation(regular(script));
}

#[test]
fn versions_tell_the_order_of_values_that_repeat() {
    let mut script = Vec::new();
    for at in 0..200 {
        let writer = at + 1;
        script.push(write(10 * at, 10 * at + 30, 5).by(at % 8).on(at % 2).at(writer, 1, 0));
        // Every second read is late and finds the version before.
        let found = if at >= 2 { Some(5) } else { None };
        let version = if at >= 2 { writer - 2 } else { 0 };
        script.push(read(10 * at, 10 * at + 5, found).by(100 + at).on(at % 2).at(
            version,
            u64::from(at >= 2),
            0,
        ));
    }
    let script = script
        .into_iter()
        .map(|step| if step.process < 8 { step.by(step.begin + 1000) } else { step });
    assert_accepted(regular(script));
}

#[test]
fn a_search_without_budget_has_an_unknown_verdict() {
    let mut script = vec![write(0, 1, 1), write(2, 400, 2), read(3, 4, 2), read(5, 6, 1)];
    for at in 0..20 {
        script.push(write(10 + at, 300 + at, (at % 3) as i64).on(2));
        script.push(read(10 + at, 300 + at, (at % 3) as i64).by(1000 + at).on(2));
    }
    let verdict = check_regular_sequential(&history(script), &Budget::states(8));
    assert!(matches!(verdict, RegisterVerdict::Unknown { .. }), "{verdict}");
}
