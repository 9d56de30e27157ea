//! Histories that no linearizable database can have.

use serried_history::{Budget, PrecedenceReason, RegisterVerdict, check_linearizable};

use crate::support::{
    add, all_needed, cas, history, linearizable, read, regular, violation, write,
};

#[test]
fn a_read_of_what_a_completed_write_replaced_is_stale() {
    let violation = all_needed([write(0, 1, 1), write(2, 3, 2), read(4, 5, 1)]);
    assert_eq!(violation.cycle.len(), 2, "{violation}");
    let text = violation.to_string();
    assert!(text.contains("O3 found a value that O2 replaced"), "{text}");
    assert!(text.contains("from 0.002000 ms to 0.003000 ms"), "{text}");
}

#[test]
fn a_read_of_nothing_after_a_completed_write_is_stale() {
    all_needed([write(0, 1, 1), read(2, 3, None)]);
}

#[test]
fn two_reads_can_not_find_a_new_value_and_then_the_old_one() {
    all_needed([write(0, 1, 1), write(2, 9, 2), read(3, 4, 2), read(5, 6, 1)]);
}

#[test]
fn two_additions_can_not_find_the_same() {
    let violation = all_needed([add(0, 9, 1, None), add(1, 8, 1, None)]);
    let replaced = |found: &serried_history::Precedence| found.reason == PrecedenceReason::Replaced;
    assert!(violation.cycle.iter().all(replaced), "{violation}");
    // The write before them is needed too, unless they found the initial value.
    all_needed([write(0, 1, 7), add(2, 9, 1, 7), add(3, 8, 1, 7)]);
}

#[test]
fn a_swap_can_not_succeed_on_a_value_replaced_before_it_began() {
    all_needed([write(0, 1, 1), write(2, 3, 2), cas(4, 5, 1, 3, 1)]);
}

#[test]
fn a_swap_can_not_fail_on_a_value_replaced_before_it_began() {
    all_needed([write(0, 1, 1), write(2, 3, 2), cas(4, 5, 9, 3, 1)]);
}

#[test]
fn a_value_that_nobody_wrote_can_not_be_found() {
    let violation = all_needed([read(0, 1, 5)]);
    assert!(
        violation.to_string().contains("no operation had begun to write 5 to key 1"),
        "{violation}"
    );
    assert!(!regular([read(0, 1, 5)]).holds());
}

#[test]
fn a_value_can_not_be_found_before_its_write_begins() {
    all_needed([read(0, 1, 5), write(2, 3, 5)]);
    violation(regular([read(0, 1, 5), write(2, 3, 5)]));
}

#[test]
fn a_write_that_failed_can_not_be_found() {
    violation(linearizable([write(0, 1, 5).failed(), read(2, 3, 5)]));
}

#[test]
fn a_swap_that_found_another_value_wrote_nothing() {
    let script = [write(0, 1, 1), cas(2, 3, 8, 9, 1), read(4, 5, 9)];
    assert_eq!(violation(linearizable(script)).operations.len(), 1);
}

/// 001 Fig. 4.3: the read-modify-write was computed from the first write, but is ordered after the
/// second by an unstable timestamp.
#[test]
fn the_execution_of_active_quorum_systems_is_caught() {
    let script = [
        write(0, 1, 1).at(1, 1, 0),
        write(2, 7, 2).at(2, 2, 0),
        add(4, 9, 100, 1).at(2, 4, 0),
        read(10, 11, 101).at(2, 4, 0),
    ];
    let violation = all_needed(script);
    assert!(!violation.cycle.is_empty(), "{violation}");
    assert!(!regular(script).holds());
}

#[test]
fn one_addition_can_not_take_effect_twice() {
    let twice = [add(0, 1, 1, None), read(2, 3, 2)];
    assert_eq!(violation(linearizable(twice)).operations.len(), 1);
    violation(linearizable([write(0, 1, 3), add(2, 3, 1, 3), read(4, 5, 5)]));
    // If the second effect looks like another operation's, it is a lost update.
    all_needed([add(0, 1, 1, None), add(2, 9, 1, 1), add(3, 8, 1, 1)]);
}

#[test]
fn an_addition_of_unknown_outcome_takes_effect_once_at_most() {
    let script = [add(0, 1, 1, None).unknown(), read(2, 3, 2)];
    violation(linearizable(script));
    let script = [add(0, 1, 1, None).unknown(), add(2, 3, 1, 2)];
    violation(linearizable(script));
}

#[test]
fn read_modify_writes_can_not_find_each_other() {
    all_needed([cas(0, 9, 2, 1, 2), cas(0, 8, 1, 2, 1)]);
}

#[test]
fn no_write_comes_between_a_write_and_an_rmw_that_found_it() {
    let script = [write(0, 1, 1), add(2, 20, 1, 1), write(3, 4, 5), read(6, 7, 5), read(8, 9, 2)];
    violation(linearizable(script));
    // But the update may come before the other write.
    assert!(
        linearizable([write(0, 1, 1), add(2, 20, 1, 1), write(3, 4, 5), read(6, 7, 5)]).holds()
    );
}

#[test]
fn a_stale_read_of_a_long_counter_is_explained_by_three_operations() {
    let mut script: Vec<_> =
        (0..1000).map(|at| add(10 * at, 10 * at + 5, 1, (at > 0).then_some(at as i64))).collect();
    script.push(read(10_000, 10_001, 500));
    let violation = violation(linearizable(script));
    assert_eq!(violation.operations.len(), 3, "{violation}");
    assert!(violation.to_string().contains("does not matter here"), "{violation}");
}

#[test]
fn repeated_values_need_a_search() {
    let script = [write(0, 1, 1), write(2, 3, 2), write(4, 5, 1), read(6, 7, 2)];
    violation(linearizable(script));
    let script = [
        write(0, 1, 1),
        write(2, 9, 2),
        write(2, 8, 1),
        read(3, 4, 2),
        read(5, 6, 1),
        read(7, 8, 2),
    ];
    violation(linearizable(script));
}

#[test]
fn of_many_keys_the_broken_one_is_named() {
    let good = (2..50).map(|key| write(key, key + 1, 1).on(key));
    let bad = [write(0, 1, 1).on(77), read(2, 3, None).on(77)];
    let violation = violation(linearizable(good.chain(bad)));
    assert!(violation.operations.iter().all(|operation| operation.key == 77), "{violation}");
}

#[test]
fn a_search_without_budget_has_an_unknown_verdict() {
    let mut script = Vec::new();
    for at in 0..20 {
        // The same values again and again, so that no order is forced.
        script.push(write(at, 100 + at, (at % 3) as i64));
        script.push(read(at, 100 + at, (at % 3) as i64).by(1000 + at));
    }
    let verdict = check_linearizable(&history(script), &Budget::states(3));
    let RegisterVerdict::Unknown { reason } = verdict else { panic!("{verdict}") };
    assert!(reason.contains("3 states") && reason.contains("key 1"), "{reason}");
}

#[test]
fn events_that_are_no_history_are_not_judged() {
    let mut history = history([write(0, 1, 1)]);
    history.events.remove(0);
    let verdict = check_linearizable(&history, &Budget::default());
    assert!(matches!(verdict, RegisterVerdict::Unknown { .. }), "{verdict}");
}
