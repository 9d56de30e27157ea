//! Long histories of replicas that pass writes on in causal order.

use serried_history::{
    Verdict, Violation, ViolationKind, check_causal, check_causal_convergent, check_causal_with,
    check_process_ordered,
};

use crate::causal_oracle::assert_proven;
use crate::replicas::{Planned, Wins, history, run};
use crate::support::{REMEMBERING, Random, Script, violation, write};

const TRANSACTIONS: u64 = 20_000;

fn large(wins: Wins, processes: u64, keys: u64) -> Vec<Planned> {
    run(&mut Random::new(7), [TRANSACTIONS, processes, keys], wins)
}

#[track_caller]
fn assert_holds(verdict: Verdict) {
    let Verdict::Holds(summary) = verdict else { panic!("{verdict}") };
    assert_eq!(summary.committed + summary.unknown, TRANSACTIONS);
}

/// The violation, which takes few steps to explain.
#[track_caller]
fn explained(verdict: Verdict) -> Violation {
    let violation = violation(verdict);
    assert_proven(&violation);
    let steps = violation.because.len() + violation.conflicts.len();
    assert!(steps <= 12, "{violation}");
    violation
}

#[test]
fn replicas_at_which_the_last_arrival_wins_are_causal() {
    let history = history(&large(Wins::LastArrival, 10, 3), true);
    assert_holds(check_causal(&history));
    let violation = explained(check_causal_convergent(&history));
    assert_eq!(violation.kind, ViolationKind::Convergence);
}

#[test]
fn replicas_at_which_the_last_time_wins_are_causally_convergent() {
    let history = history(&large(Wins::LastTime, 10, 100), true);
    assert_holds(check_causal_convergent(&history));
    let violation = explained(check_causal_with(&history, &REMEMBERING));
    assert_eq!(violation.kind, ViolationKind::View);
}

#[test]
fn one_replica_is_both() {
    let mut transactions = large(Wins::LastTime, 1, 3);
    for (at, transaction) in transactions.iter_mut().enumerate() {
        transaction.process = at as u64 % 10;
    }
    let history = history(&transactions, true);
    assert_holds(check_process_ordered(&history));
    assert_holds(check_causal(&history));
    assert_holds(check_causal_convergent(&history));
}

#[test]
fn one_stale_read_of_twenty_thousand_transactions_is_found() {
    let mut transactions = large(Wins::LastArrival, 10, 3);
    let reads = transactions.iter_mut().rev().find(|it| it.committed && !it.reads.is_empty());
    reads.expect("a reader").reads[0].1 = None;
    let history = history(&transactions, true);
    for check in [check_causal, check_causal_convergent] {
        let violation = explained(check(&history));
        assert_eq!(violation.kind, ViolationKind::CausalOrder, "{violation}");
        assert!(violation.conflicts.len() <= 3 && violation.because.is_empty(), "{violation}");
    }
}

#[test]
fn stale_reads_everywhere_are_explained_by_one() {
    let mut transactions = large(Wins::LastArrival, 10, 3);
    let mut random = Random::new(3);
    let mut latest: [Vec<usize>; 3] = Default::default();
    for (at, transaction) in transactions.iter_mut().enumerate() {
        for (key, writer) in &mut transaction.reads {
            let writers = &latest[*key as usize];
            if !writers.is_empty() {
                *writer = Some(writers[random.below(writers.len() as u64) as usize]);
            }
        }
        if transaction.committed {
            transaction.writes.iter().for_each(|&key| latest[key as usize].push(at));
        }
    }
    let violation = explained(check_causal(&history(&transactions, true)));
    assert_eq!(violation.kind, ViolationKind::CausalOrder);
}

#[test]
fn too_many_writing_processes_leave_the_verdict_open() {
    let count = 12_000;
    let mut script = Script::default();
    for key in 0..count {
        script = script.ok_at(key + 1, [write(key, 1)], &[]);
    }
    let verdict = check_causal(&script.history());
    let Verdict::Unknown { reason } = verdict else { panic!("{verdict}") };
    assert_eq!(
        reason,
        "12000 transactions of 12000 processes that write are more than can be judged: use fewer \
         processes"
    );
}
