//! Serializable histories whose order must respect the order of each process's transactions.

use serried_history::{
    ConflictKind, Deletes, History, Options, Verdict, Violation, ViolationKind,
    check_process_ordered, check_process_ordered_with, check_serializable,
    check_strict_serializable,
};

use crate::support::{
    Script, absent, append, delete, found, list, through_json, version, violation, write,
};

/// Judges the history in which these processes run the script's transactions, each after the one before has ended.
fn judge(script: Script, processes: &[u64]) -> Verdict {
    check_process_ordered(&through_json(script.history_of(processes)))
}

#[track_caller]
fn assert_accepted(script: Script, processes: &[u64]) {
    let verdict = judge(script, processes);
    assert!(verdict.holds(), "{verdict}");
}

/// Asserts that the history is serializable, but not in the order of its processes, and that the violation has this
/// many transactions.
#[track_caller]
fn assert_contradicted(script: Script, processes: &[u64], involved: usize) -> Violation {
    let history = through_json(script.history_of(processes));
    let verdict = check_serializable(&history);
    assert!(verdict.holds(), "{verdict}");
    contradiction(&history, involved)
}

#[track_caller]
fn contradiction(history: &History, involved: usize) -> Violation {
    let violation = violation(check_process_ordered(history));
    let is = (violation.kind, violation.transactions.len(), violation.conflicts.len());
    assert_eq!(is, (ViolationKind::ProcessOrder, involved, involved), "{violation}");
    for conflict in &violation.conflicts {
        let processes = [conflict.from, conflict.to].map(|at| violation.transactions[at].process);
        let is_of_process = conflict.kind == ConflictKind::ProcessOrder;
        assert!(!is_of_process || processes[0] == processes[1], "{violation}");
        assert_eq!(conflict.key.is_none(), is_of_process, "{violation}");
    }
    let is_of_process = |kind| kind == ConflictKind::ProcessOrder;
    assert!(violation.conflicts.iter().any(|it| is_of_process(it.kind)), "{violation}");
    violation
}

#[test]
fn a_process_sees_its_own_writes() {
    let script = || Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [absent(5)], &[0]);
    let violation = assert_contradicted(script(), &[0, 0], 2);
    assert_eq!(violation.ruled_out, ["process-ordered serializable", "strictly serializable"]);
    let lists = || Script::default().ok([append(5, 1)]).ok([list(5, &[])]);
    assert_contradicted(lists(), &[0, 0], 2);
    assert_accepted(script(), &[0, 1]);
    assert_accepted(lists(), &[0, 1]);
}

#[test]
fn a_read_of_another_process_may_be_stale_though_it_is_not_strictly_serializable() {
    let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [absent(5)], &[0]);
    let history = script.history_of(&[0, 1]);
    assert!(check_process_ordered(&history).holds());
    let violation = violation(check_strict_serializable(&history));
    assert_eq!(violation.kind, ViolationKind::Inversion);
}

#[test]
fn the_reads_of_a_process_do_not_go_back() {
    let script = || {
        let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [write(5, 2)], &[]);
        script.ok_at(30, [found(5, 2)], &[20]).ok_at(40, [found(5, 1)], &[10])
    };
    assert_contradicted(script(), &[0, 1, 2, 2], 3);
    assert_accepted(script(), &[0, 1, 2, 3]);
    let lists = || {
        let script = Script::default().ok([append(5, 1)]).ok([append(5, 2)]);
        script.ok([list(5, &[1, 2])]).ok([list(5, &[1])])
    };
    assert_contradicted(lists(), &[0, 1, 2, 2], 3);
    assert_accepted(lists(), &[0, 1, 2, 3]);
}

/// Two writes, and two pairs of reads that see the one without the other.
fn fork() -> Script {
    let script = Script::default().ok_at(10, [write(1, 1)], &[]).ok_at(20, [write(2, 1)], &[]);
    let script = script.ok_at(30, [found(1, 1)], &[10]).ok_at(40, [absent(2)], &[0]);
    script.ok_at(50, [found(2, 1)], &[20]).ok_at(60, [absent(1)], &[0])
}

#[test]
fn two_processes_see_two_writes_in_one_order() {
    let violation = assert_contradicted(fork(), &[0, 1, 2, 2, 3, 3], 6);
    let of_process = violation.conflicts.iter().filter(|it| it.kind == ConflictKind::ProcessOrder);
    assert_eq!(of_process.count(), 2);
    assert_accepted(fork(), &[0, 1, 2, 2, 3, 4]);
    assert_accepted(fork(), &[0, 1, 2, 4, 3, 3]);
}

#[test]
fn a_write_comes_after_the_earlier_transactions_of_its_process() {
    let script = || Script::default().ok_at(20, [write(5, 1)], &[]).ok_at(10, [write(5, 2)], &[]);
    let violation = assert_contradicted(script(), &[0, 0], 2);
    assert_eq!(violation.conflicts[0].kind, ConflictKind::ProcessOrder);
    assert_accepted(script(), &[0, 1]);
    // A read that finds what its own process writes only later.
    let early = || Script::default().ok_at(20, [found(5, 1)], &[10]).ok_at(10, [write(5, 1)], &[]);
    assert_contradicted(early(), &[0, 0], 2);
    assert_accepted(early(), &[0, 1]);
}

#[test]
fn the_order_of_a_process_reaches_over_all_that_it_ran_in_between() {
    let mut script = Script::default().ok_at(10, [write(5, 1)], &[]);
    for time in 11..20 {
        script = script.ok_at(time, [write(time, 1)], &[]);
    }
    let violation = assert_contradicted(script.ok_at(20, [absent(5)], &[0]), &[0; 11], 2);
    assert_eq!(violation.transactions.iter().map(|it| it.index).collect::<Vec<_>>(), [1, 21]);
}

#[test]
fn the_smallest_of_several_contradictions_is_shown() {
    let script = fork().ok([append(9, 1)]).ok([list(9, &[])]);
    let violation = assert_contradicted(script, &[0, 1, 2, 2, 3, 3, 4, 4], 2);
    assert_eq!(violation.conflicts[1].key, Some(9));
}

#[test]
fn a_transaction_of_unknown_outcome_may_take_effect_after_later_ones_of_its_process() {
    let late = |script: Script| script.ok([list(1, &[])]).ok([list(1, &[1])]);
    assert_accepted(late(Script::default().info([append(1, 1)])), &[0, 0, 0]);
    assert_accepted(late(Script::default().info([append(1, 1)])), &[0, 0, 1]);
    assert_contradicted(late(Script::default().ok([append(1, 1)])), &[0, 0, 0], 2);
    let script = Script::default().open([append(1, 1)]);
    let verdict = check_process_ordered(&late(script).history_of(&[0, 0, 0]));
    assert!(verdict.holds(), "{verdict}");
}

#[test]
fn a_transaction_of_unknown_outcome_takes_no_effect_before_earlier_ones_of_its_process() {
    let script = || Script::default().ok([list(1, &[1])]).info([append(1, 1)]);
    assert_contradicted(script(), &[0, 0], 2);
    assert_accepted(script(), &[0, 1]);
    let open = Script::default().ok([list(1, &[1])]).open([append(1, 1)]);
    assert_contradicted(open, &[0, 0], 2);
    assert_accepted(Script::default().info([append(1, 1)]).ok([list(1, &[1])]), &[0, 0]);
}

#[test]
fn a_committed_transaction_comes_after_those_before_one_of_unknown_outcome() {
    let script = || {
        let script = Script::default().ok([append(1, 1)]).info([append(1, 2)]);
        script.ok([list(1, &[])]).ok([list(1, &[1, 2])])
    };
    assert_contradicted(script(), &[0, 0, 0, 1], 2);
    assert_accepted(script(), &[0, 0, 1, 2]);
}

#[test]
fn a_transaction_of_unknown_outcome_that_a_process_saw_stays_seen() {
    let script = || {
        let script = Script::default().info_at(10, [write(1, 1)]);
        script.ok_at(20, [found(1, 1)], &[10]).ok_at(30, [absent(1)], &[0])
    };
    assert_contradicted(script(), &[0, 1, 1], 3);
    assert_accepted(script(), &[0, 1, 2]);
}

#[test]
fn failed_and_unseen_transactions_have_no_place_in_a_process() {
    let script = Script::default().fail([append(1, 1)]).info([append(1, 2)]).ok([list(1, &[])]);
    assert_accepted(script, &[0, 0, 0]);
}

#[test]
fn an_unowned_version_belongs_to_a_transaction_that_respects_the_order_of_processes() {
    // Version 15 may be that of either transaction of unknown outcome. The first choice is the one with fewer writes,
    // but it began after the read of its own process.
    let script = || {
        let script = Script::default().info_at(11, [write(1, 1), write(2, 1)]);
        script.ok_at(20, [found(1, 1)], &[15]).info_at(12, [write(1, 1)])
    };
    assert_accepted(script(), &[0, 1, 1]);
    let without = Script::default().ok_at(20, [found(1, 1)], &[15]).info_at(12, [write(1, 1)]);
    assert_contradicted(without, &[1, 1], 2);
}

#[test]
fn one_meaning_of_absent_keys_that_respects_the_order_of_processes_is_enough() {
    let script = || {
        let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [delete(5)], &[]);
        script.ok_at(30, [absent(5)], &[0])
    };
    assert_accepted(script(), &[0, 0, 0]);
    let options = Options { initial_before: None, deletes: Deletes::Remembered };
    let verdict = check_process_ordered_with(&script().history_of(&[0, 0, 0]), &options);
    assert_eq!(violation(verdict).kind, ViolationKind::ProcessOrder);
}

#[test]
fn data_from_before_the_history_was_written_before_all_of_it() {
    let options = Options { initial_before: Some(version(5)), ..Options::default() };
    let script = || {
        let script = Script::default().ok_at(10, [found(1, 7), write(1, 8)], &[3]);
        script.ok_at(20, [found(1, 7)], &[3])
    };
    let check = |processes| check_process_ordered_with(&script().history_of(processes), &options);
    assert!(check(&[0, 1]).holds());
    assert_eq!(violation(check(&[0, 0])).kind, ViolationKind::ProcessOrder);
}

#[test]
fn what_is_not_serializable_is_explained_without_the_order_of_processes() {
    let script = Script::default().ok([list(1, &[]), append(2, 1)]);
    let script = script.ok([list(2, &[]), append(1, 1)]).ok([append(3, 1)]).ok([list(3, &[])]);
    let history = script.history_of(&[0, 0, 0, 0]);
    let verdict = check_process_ordered(&history);
    assert_eq!(verdict, check_serializable(&history));
    assert!(verdict.to_string().starts_with("not serializable: G2"), "{verdict}");
}

#[test]
fn a_contradiction_shows_even_if_serializability_is_unknown() {
    let script = || {
        let script = Script::default().ok([write(1, 1)]).ok([write(1, 2)]);
        script.ok([append(2, 1)]).ok([list(2, &[])])
    };
    let history = script().history_of(&[0, 1, 2, 2]);
    assert!(matches!(check_serializable(&history), Verdict::Unknown { .. }));
    let violation = contradiction(&history, 2);
    assert!(violation.reason.contains("whether there is a serial order at all is not known: T1"));
    let history = script().history_of(&[0, 1, 2, 3]);
    assert!(matches!(check_process_ordered(&history), Verdict::Unknown { .. }));
}

#[test]
fn each_step_of_a_contradiction_is_explained() {
    let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [write(5, 2)], &[]);
    let script = script.ok_at(30, [found(5, 2)], &[20]).ok_at(40, [found(5, 1)], &[10]);
    assert_eq!(
        judge(script, &[0, 1, 2, 2]).to_string(),
        "not process-ordered serializable: process order, every serial order contradicts the order \
         of a process's transactions\n  \
         serializable, but only with a transaction before an earlier one of its process\n  \
         T1 (process 1, op 3) wrote 2 to key 5 at version 20.65536; T2 (process 2, op 5) read 2 of \
         key 5, which is that: T1 -wr-> T2\n  \
         same process: T2 (process 2, op 5) ended before T3 (process 2, op 7) began: T2 -po-> T3\n  \
         T1 (process 1, op 3) wrote 2 to key 5 at version 20.65536; T3 (process 2, op 7) read 1 of \
         key 5 at version 10.65536, which is earlier: T3 -rw-> T1\n  \
         T1 = process 1, op 3, ok, version 20.65536: [[\"w\", 5, 2]]\n  \
         T2 = process 2, op 5, ok, version 30.65536: [[\"r\", 5, 2]@20.65536]\n  \
         T3 = process 2, op 7, ok, version 40.65536: [[\"r\", 5, 1]@10.65536]\n  \
         rules out: process-ordered serializable, strictly serializable"
    );
}

#[test]
fn conflicts_are_counted_without_the_order_of_processes() {
    let verdict = judge(Script::default().ok([append(1, 1)]).ok([list(1, &[1])]), &[0, 0]);
    assert_eq!(
        verdict.to_string(),
        "process-ordered serializable: 2 transactions committed, 0 failed, 0 of unknown outcome; \
         1 keys, 1 conflicts"
    );
}
