//! Programs that find a row by another one, under each concurrency control.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use serried_model::{Key, Value};

use super::super::bench::{Bench, last, ready, shot, txn};
use super::super::{Control, Event, Ran, Refusal, Validity};
use super::{Program, Rows, Use};
use crate::frameworks::validation::Validation;
use crate::ncc::Queues;
use crate::occ::Locks;
use crate::two_phase_locking::Locking;

type WoundWait = Locking<true>;
type NoWait = Locking<false>;
type Occ = Validation<Locks>;
type Ncc = Queues<false>;

/// Writes 7 to the row whose key row `a` holds.
#[derive(Debug)]
struct Follow {
    known: [Use; 1],
    runs: AtomicUsize,
}

impl Follow {
    fn new() -> Arc<Follow> {
        let known = [Use { key: Key::from("a"), writes: false }];
        Arc::new(Follow { known, runs: AtomicUsize::new(0) })
    }

    /// How often it was run.
    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

impl Program for Follow {
    fn known(&self) -> &[Use] {
        &self.known
    }

    fn run(&self, rows: &mut Rows<'_>) -> Ran {
        self.runs.fetch_add(1, Ordering::Relaxed);
        if let Some(found) = rows.read(&Key::from("a"), false) {
            rows.write(Key::from(found.as_bytes()), Some(Value::from("7")));
        }
        Ran::default()
    }
}

impl<C: Control> Bench<C> {
    /// Row `a` holds `10`.
    fn with_row() -> Bench<C> {
        let mut bench = Bench::running_calls();
        bench.execute(&shot(10, 1, &[], &["a"]));
        bench.finish(10);
        bench
    }

    /// Runs the first shot of the transaction that begins at `us`.
    fn follow(&mut self, us: u64, program: &Arc<Follow>) -> Vec<Event> {
        self.run(&shot(us, 1, &[], &[]), program.clone())
    }

    /// Commits a transaction of which only the last shot is left. Returns the events after its end.
    fn finish(&mut self, us: u64) -> Vec<Event> {
        assert_eq!(self.execute(&last(us, &[], &[])), ready(us));
        let Validity { from, .. } = self.prepare(us);
        self.end(us, Some(from))
    }

    /// What row `10` holds at the end.
    fn row(&mut self) -> u64 {
        self.execute(&shot(90, 1, &["10"], &[]));
        self.found(90, &["10"]).expect("it was read")[0]
    }
}

fn released(us: u64) -> Vec<Event> {
    vec![Event::Released(txn(us), 1)]
}

fn refused(us: u64) -> Vec<Event> {
    let keys = vec![Key::from("10")];
    vec![Event::Refused(txn(us), Refusal::Conflict { keys, after_us: 0 })]
}

#[test]
fn a_program_is_run_once_if_nothing_is_in_its_way() {
    fn check<C: Control>() {
        let (mut bench, program) = (Bench::<C>::with_row(), Follow::new());
        assert_eq!(bench.follow(20, &program), released(20), "{}", C::NAME);
        assert_eq!(bench.finish(20), []);
        assert_eq!((program.runs(), bench.row()), (1, 7), "{}", C::NAME);
    }
    check::<WoundWait>();
    check::<NoWait>();
    check::<Occ>();
    check::<Ncc>();
}

#[test]
fn a_program_waits_for_the_lock_of_a_row_that_it_finds_and_is_run_again() {
    let (mut bench, program) = (Bench::<WoundWait>::with_row(), Follow::new());
    assert_eq!(bench.execute(&shot(15, 1, &[], &["10"])), released(15));
    assert_eq!(bench.follow(20, &program), []);
    assert_eq!(program.runs(), 1);
    assert_eq!(bench.finish(15), released(20));
    assert_eq!(program.runs(), 2);
    bench.finish(20);
    assert_eq!(bench.row(), 7);
}

#[test]
fn a_program_is_refused_without_waiting_over_the_lock_of_a_row_that_it_finds() {
    let (mut bench, program) = (Bench::<NoWait>::with_row(), Follow::new());
    assert_eq!(bench.execute(&shot(15, 1, &[], &["10"])), released(15));
    assert_eq!(bench.follow(20, &program), refused(20));
    assert_eq!(program.runs(), 1);
}

#[test]
fn the_rows_that_a_program_finds_are_locked() {
    let (mut bench, program) = (Bench::<WoundWait>::with_row(), Follow::new());
    bench.follow(20, &program);
    assert_eq!(bench.execute(&shot(30, 1, &[], &["10"])), []);
    assert_eq!(bench.execute(&shot(31, 1, &[], &["a"])), []);
    let (mut bench, program) = (Bench::<NoWait>::with_row(), Follow::new());
    bench.follow(20, &program);
    assert_eq!(bench.execute(&shot(30, 1, &["10"], &[])), refused(30));
}

#[test]
fn what_a_program_finds_is_validated() {
    let (mut bench, program) = (Bench::<Occ>::with_row(), Follow::new());
    assert_eq!(bench.follow(20, &program), released(20));
    bench.execute(&last(30, &[], &["10"]));
    bench.prepare(30);
    assert_eq!(bench.execute(&last(20, &[], &[])), refused(20));
}

/// The program has found what another transaction wrote that is aborted.
#[test]
fn a_program_that_has_found_what_is_aborted_is_run_again() {
    let (mut bench, program) = (Bench::<Ncc>::with_row(), Follow::new());
    bench.execute(&last(15, &[], &["a"]));
    assert_eq!(bench.follow(20, &program), [], "it waits for what it has found");
    bench.prepare(15);
    assert_eq!(bench.end(15, None), released(20));
    assert_eq!(program.runs(), 2);
    bench.finish(20);
    assert_eq!(bench.row(), 7);
}

/// Reads a row, and then writes it.
#[derive(Debug)]
struct Upgrade;

impl Program for Upgrade {
    fn known(&self) -> &[Use] {
        &[]
    }

    fn run(&self, rows: &mut Rows<'_>) -> Ran {
        rows.read(&Key::from("10"), false);
        rows.write(Key::from("10"), Some(Value::from("7")));
        Ran::default()
    }
}

#[test]
fn a_row_that_was_only_read_is_locked_anew_to_be_written() {
    let mut bench = Bench::<NoWait>::with_row();
    assert_eq!(bench.run(&shot(20, 1, &[], &[]), Arc::new(Upgrade)), released(20));
    assert_eq!(bench.execute(&shot(30, 1, &["10"], &[])), refused(30));
}
