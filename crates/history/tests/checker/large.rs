//! A hundred thousand transactions, one after the other: long lists and deep graphs.

use serried_history::{
    History, Verdict, ViolationKind, check_process_ordered, check_serializable,
    check_strict_serializable,
};

use crate::serial::{Generator, Shape};
use crate::support::{Script, absent, append, delete, found, list, violation, write};

const TRANSACTIONS: u64 = 100_000;

fn large(shape: Shape, keys: u64) -> History {
    let mut generator = Generator::new(7, shape);
    (generator.transactions, generator.keys) = (TRANSACTIONS, keys);
    generator.history()
}

fn assert_accepted(history: &History) {
    let checks = [check_serializable, check_process_ordered, check_strict_serializable];
    for verdict in checks.map(|check| check(history)) {
        let Verdict::Holds(summary) = verdict else { panic!("{verdict}") };
        assert_eq!(summary.committed + summary.unknown + summary.failed, TRANSACTIONS);
    }
}

#[test]
fn a_hundred_thousand_transactions_on_lists_are_accepted() {
    assert_accepted(&large(Shape::Lists, 2_000));
}

#[test]
fn a_hundred_thousand_transactions_on_registers_are_accepted() {
    assert_accepted(&large(Shape::Registers, 100));
}

#[test]
fn a_hundred_thousand_transactions_with_moved_ones_are_accepted() {
    let mut script = Script::default();
    for at in (1..TRANSACTIONS).step_by(2) {
        let (began, key) = (10 * at, at % 50);
        script = if at % 100 == 1 {
            let script = script.info_at(began, [delete(key), delete(key + 50)]);
            script.ok_at(began + 10, [found(key, at), write(key, at)], &[began + 5])
        } else {
            let script = script.ok_at(began, [write(key, at)], &[]);
            script.ok_at(began + 10, [found(key, at), write(key, at)], &[began])
        };
    }
    assert_accepted(&script.history());
}

#[test]
fn a_cycle_through_a_hundred_thousand_transactions_is_found() {
    let mut script =
        Script::default().ok_at(1, [found(0, TRANSACTIONS), write(1, 1)], &[TRANSACTIONS]);
    for time in 2..TRANSACTIONS {
        script = script.ok_at(time, [found(time - 1, time - 1), write(time, time)], &[time - 1]);
    }
    let last = [found(TRANSACTIONS - 1, TRANSACTIONS - 1), write(0, TRANSACTIONS)];
    let script = script.ok_at(TRANSACTIONS, last, &[TRANSACTIONS - 1]);
    let violation = violation(check_serializable(&script.history()));
    assert_eq!(violation.conflicts.len() as u64, TRANSACTIONS);
}

#[test]
fn many_readers_and_many_unread_appends_make_a_small_graph() {
    let mut script = Script::default();
    for element in 0..20_000 {
        script = script.ok([list(1, &[])]).ok([append(1, element)]);
    }
    let Verdict::Holds(summary) = check_serializable(&script.history()) else {
        panic!("not accepted");
    };
    assert_eq!(summary.edges, 40_000);
}

#[test]
fn an_inversion_through_a_hundred_thousand_transactions_is_found() {
    let mut script = Script::default().ok_at(1, [write(1, 1)], &[]);
    for time in 2..TRANSACTIONS {
        script = script.ok_at(time, [found(time - 1, time - 1), write(time, time)], &[time - 1]);
    }
    let last = [found(TRANSACTIONS - 1, TRANSACTIONS - 1)];
    let script = script.ok_at(TRANSACTIONS, last, &[TRANSACTIONS - 1]);
    // The last one ends before the first one begins. The others are open during that time.
    let end = 2 * TRANSACTIONS;
    let mut spans: Vec<(u64, u64)> = (0..TRANSACTIONS).map(|at| (at, end + at)).collect();
    (spans[TRANSACTIONS as usize - 1].1, spans[0].0) = (end - 2, end - 1);
    let history = script.history_at(&spans);
    assert!(check_serializable(&history).holds());
    let violation = violation(check_strict_serializable(&history));
    assert_eq!(violation.transactions.len() as u64, TRANSACTIONS);
}

#[test]
fn a_process_that_misses_its_own_write_is_found_a_hundred_thousand_transactions_later() {
    let mut script = Script::default().ok_at(1, [write(1, 1)], &[]);
    for time in 2..TRANSACTIONS {
        script = script.ok_at(time, [write(time, time)], &[]);
    }
    let history =
        script.ok_at(TRANSACTIONS, [absent(1)], &[0]).history_of(&[0; TRANSACTIONS as usize]);
    assert!(check_serializable(&history).holds());
    let violation = violation(check_process_ordered(&history));
    assert_eq!((violation.kind, violation.transactions.len()), (ViolationKind::ProcessOrder, 2));
}

#[test]
fn one_of_a_hundred_thousand_stale_reads_is_shown() {
    let mut script = Script::default().ok_at(1, [write(0, 1)], &[]);
    for time in 2..=TRANSACTIONS {
        script = script.ok_at(time, [absent(0), write(time, 1), absent(time - 1)], &[0, 0]);
    }
    let spans: Vec<(u64, u64)> = (0..TRANSACTIONS).map(|at| (2 * at, 2 * at + 1)).collect();
    let history = script.history_at(&spans);
    assert!(check_serializable(&history).holds());
    let violation = violation(check_strict_serializable(&history));
    assert_eq!((violation.kind, violation.transactions.len()), (ViolationKind::Inversion, 2));
}
