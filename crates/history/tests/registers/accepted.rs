//! Histories that a linearizable database can have.

use serried_history::RegisterVerdict;

use crate::support::{add, assert_accepted, cas, linearizable, read, regular, write};

#[test]
fn operations_one_after_the_other_are_accepted() {
    assert_accepted(linearizable([
        read(0, 1, None),
        write(2, 3, 1),
        read(4, 5, 1),
        add(6, 7, 2, 1),
        cas(8, 9, 3, 4, 3),
        cas(10, 11, 3, 5, 4),
        read(12, 13, 4),
        write(14, 15, None),
        add(16, 17, 7, None),
        read(18, 19, 7),
    ]));
}

#[test]
fn a_write_of_unknown_outcome_may_take_effect_late() {
    let script = [write(0, 1, 1), write(2, 3, 2).unknown(), read(4, 5, 1), read(90, 91, 2)];
    assert_accepted(linearizable(script));
    assert_accepted(regular(script));
}

#[test]
fn a_write_of_unknown_outcome_may_never_take_effect() {
    assert_accepted(linearizable([write(0, 1, 1), write(2, 3, 2).unknown(), read(4, 5, 1)]));
}

#[test]
fn a_swap_of_unknown_outcome_may_wait_for_its_value() {
    assert_accepted(linearizable([
        cas(0, 1, 5, 6, None).unknown(),
        write(2, 3, 5),
        read(4, 5, 5),
        read(6, 7, 6),
    ]));
}

#[test]
fn a_gap_in_a_counter_is_an_addition_of_unknown_outcome() {
    assert_accepted(linearizable([
        add(0, 1, 1, None),
        add(2, 3, 1, 1).unknown(),
        add(2, 3, 1, 1).unknown().by(7),
        read(4, 5, 1),
        add(6, 7, 1, 3),
        read(8, 9, 4),
    ]));
}

#[test]
fn additions_of_unknown_outcome_and_different_amounts_are_searched() {
    assert_accepted(linearizable([
        add(0, 1, 3, None).unknown(),
        add(0, 1, 4, None).unknown().by(2),
        add(0, 1, 9, None).unknown().by(3),
        read(4, 5, 4),
        read(6, 7, 13),
        read(8, 9, 16),
    ]));
}

#[test]
fn concurrent_operations_take_effect_in_any_order() {
    let script = [
        write(0, 99, 1),
        write(1, 98, 2),
        add(2, 97, 10, 1),
        cas(3, 96, 11, 12, 11),
        read(4, 95, 12),
        read(5, 94, 2),
        read(6, 93, None),
        write(7, 92, None),
        read(8, 91, 11),
    ];
    assert_accepted(linearizable(script));
    assert_accepted(regular(script));
}

#[test]
fn one_process_may_have_operations_on_many_keys_open() {
    assert_accepted(linearizable([
        write(0, 9, 1).on(1).by(5),
        write(1, 8, 1).on(2).by(5),
        read(2, 7, None).on(3).by(5),
        read(10, 11, 1).on(1).by(5),
    ]));
}

#[test]
fn a_sum_wraps_around_at_the_bounds() {
    assert_accepted(linearizable([
        write(0, 1, i64::MAX),
        add(2, 3, 1, i64::MAX),
        read(4, 5, i64::MIN),
    ]));
}

#[test]
fn a_thousand_unseen_writes_of_unknown_outcome_cost_nothing() {
    let unknown = (0..1000).map(|at| write(at, at, (at % 7) as i64 + 100).unknown());
    let known = (0..1000).map(|at| write(3000 + 2 * at, 3001 + 2 * at, (at % 5) as i64).by(at));
    let reads = (0..1000)
        .map(|at| read(3000 + 2 * at + 1, 3000 + 2 * at + 1, (at % 5) as i64).by(at + 5000));
    let verdict = linearizable(unknown.chain(known).chain(reads));
    assert_accepted(verdict);
}

#[test]
fn a_wrong_claim_about_versions_proves_nothing() {
    // The values repeat, so that versions are used. The versions of the writes are in the wrong order.
    assert_accepted(linearizable([
        write(0, 1, 1).at(2, 1, 0),
        write(2, 3, 2).at(1, 1, 0),
        write(4, 5, 1).at(3, 1, 0),
        read(6, 7, 1).at(1, 1, 0),
    ]));
}

#[test]
fn a_right_claim_about_versions_needs_no_search() {
    let script = (0..1000).flat_map(|at| {
        let wrote = write(at, at + 40, (at % 3) as i64).at(at + 1, 1, 0).by(at);
        let found = read(at, at + 41, (at % 3) as i64).at(at + 1, 1, 0).by(at + 5000);
        [wrote, found]
    });
    let RegisterVerdict::Holds(summary) = linearizable(script) else { panic!("not accepted") };
    assert_eq!(summary.states, 0);
}

#[test]
fn a_version_that_only_a_reader_has_is_of_unknown_outcome() {
    let script = [
        write(0, 1, 1).at(1, 1, 0),
        write(2, 3, 1).at(2, 1, 0),
        write(4, 5, 1).unknown(),
        read(6, 7, 1).at(3, 1, 0),
        cas(8, 9, 1, 2, 1).at(3, 1, 1),
    ];
    let RegisterVerdict::Holds(summary) = linearizable(script) else { panic!("not accepted") };
    assert_eq!(summary.states, 0);
}
