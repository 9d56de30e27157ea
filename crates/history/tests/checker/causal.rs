//! Histories written by hand that are causal, or causally convergent, and others that are not.

use serried_history::{
    ConflictKind, Deletes, EventKind, Options, TransactionGuarantee, Verdict, Violation,
    ViolationKind, check_causal, check_causal_convergent, check_causal_with, check_process_ordered,
    check_serializable,
};

use crate::causal_oracle::assert_proven;
use crate::support::{
    REMEMBERING, Script, absent, append, delete, found, list, through_json, version, violation,
    write,
};

/// Both verdicts on the history in which these processes run the script's transactions, one after the other.
fn judge(script: Script, processes: &[u64]) -> [Verdict; 2] {
    let history = through_json(script.history_of(processes));
    [check_causal(&history), check_causal_convergent(&history)]
}

#[track_caller]
fn assert_accepted(script: Script, processes: &[u64]) {
    for verdict in judge(script, processes) {
        assert!(verdict.holds(), "{verdict}");
    }
}

/// Asserts that the causal order alone is contradicted, in a cycle of this many transactions.
#[track_caller]
fn assert_rejected(script: Script, processes: &[u64], cycle: usize) -> Violation {
    let [causal, convergent] = judge(script, processes);
    assert_eq!(causal, convergent);
    let violation = violation(causal);
    assert_proven(&violation);
    let found = (violation.kind, violation.conflicts.len());
    assert_eq!(found, (ViolationKind::CausalOrder, cycle), "{violation}");
    violation
}

#[track_caller]
fn assert_unknown(script: Script, processes: &[u64]) -> String {
    let [causal, convergent] = judge(script, processes);
    assert_eq!(causal, convergent);
    match causal {
        Verdict::Unknown { reason } => reason,
        other => panic!("{other}"),
    }
}

/// A write, and a read that does not find it.
fn missed_write() -> Script {
    Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [absent(5)], &[0])
}

#[test]
fn a_process_sees_its_own_writes() {
    let violation = assert_rejected(missed_write(), &[0, 0], 2);
    assert_eq!(
        violation.ruled_out,
        ["causal", "causally convergent", "process-ordered serializable", "strictly serializable"]
    );
    assert_eq!(violation.guarantee(), TransactionGuarantee::Causal);
}

#[test]
fn a_process_may_see_the_writes_of_others_late() {
    assert_accepted(missed_write(), &[0, 1]);
}

#[test]
fn a_process_that_has_overwritten_its_write_does_not_see_it_again() {
    let script = || {
        let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [write(5, 2)], &[]);
        script.ok_at(30, [found(5, 1)], &[10])
    };
    assert_rejected(script(), &[0, 0, 0], 2);
    assert_accepted(script(), &[0, 0, 1]);
}

#[test]
fn the_reads_of_a_process_do_not_go_back() {
    let script = || {
        let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [write(5, 2)], &[]);
        script.ok_at(30, [found(5, 2)], &[20]).ok_at(40, [found(5, 1)], &[10])
    };
    assert_rejected(script(), &[0, 0, 1, 1], 2);
    assert_accepted(script(), &[0, 0, 1, 2]);
    let to_nothing = || {
        let script = Script::default().ok_at(10, [write(5, 1)], &[]);
        script.ok_at(30, [found(5, 1)], &[10]).ok_at(40, [absent(5)], &[0])
    };
    assert_rejected(to_nothing(), &[0, 1, 1], 3);
    assert_accepted(to_nothing(), &[0, 1, 2]);
}

#[test]
fn a_process_may_see_the_second_of_two_concurrent_writes_first() {
    let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [write(5, 2)], &[]);
    let script = script.ok_at(30, [found(5, 2)], &[20]).ok_at(40, [found(5, 1)], &[10]);
    assert_accepted(script, &[0, 1, 2, 2]);
}

#[test]
fn a_write_is_seen_with_what_it_depends_on() {
    let script = || {
        let script = Script::default().ok_at(10, [write(1, 1)], &[]);
        let script = script.ok_at(20, [found(1, 1), write(2, 1)], &[10]);
        script.ok_at(30, [found(2, 1)], &[20]).ok_at(40, [absent(1)], &[0])
    };
    assert_rejected(script(), &[0, 1, 2, 2], 4);
    assert_accepted(script(), &[0, 1, 2, 3]);
    let of_one_process = || {
        let script = Script::default().ok_at(10, [write(1, 1)], &[]).ok_at(20, [write(2, 1)], &[]);
        script.ok_at(30, [found(2, 1), absent(1)], &[20, 0])
    };
    assert_rejected(of_one_process(), &[0, 0, 1], 3);
    assert_accepted(of_one_process(), &[0, 1, 2]);
}

#[test]
fn a_transaction_is_seen_whole_or_not_at_all() {
    let both = || Script::default().ok_at(10, [write(1, 1), write(2, 1)], &[]);
    assert_rejected(both().ok_at(20, [found(1, 1), absent(2)], &[10, 0]), &[0, 1], 2);
    let in_turn = || both().ok_at(20, [found(1, 1)], &[10]).ok_at(30, [absent(2)], &[0]);
    assert_rejected(in_turn(), &[0, 1, 1], 3);
    assert_accepted(in_turn(), &[0, 1, 2]);
    let other_way = both().ok_at(20, [absent(2)], &[0]).ok_at(30, [found(1, 1)], &[10]);
    assert_accepted(other_way, &[0, 1, 1]);
    // The other half was overwritten.
    let overwritten = both().ok_at(20, [found(2, 1), write(2, 2)], &[10]);
    assert_accepted(overwritten.ok_at(30, [found(1, 1), found(2, 2)], &[10, 20]), &[0, 1, 2]);
}

#[test]
fn a_read_finds_nothing_that_its_own_process_writes_later() {
    let early = || Script::default().ok_at(20, [found(5, 1)], &[10]).ok_at(10, [write(5, 1)], &[]);
    assert_rejected(early(), &[0, 0], 2);
    assert_accepted(early(), &[0, 1]);
    let in_between = Script::default().ok_at(20, [found(5, 1), write(6, 1)], &[10]);
    let in_between = in_between.ok_at(30, [found(6, 1)], &[20]).ok_at(10, [write(5, 1)], &[]);
    assert_rejected(in_between, &[0, 1, 1], 3);
}

#[test]
fn transactions_that_read_from_each_other_are_a_circular_information_flow() {
    let script = Script::default().ok_at(10, [found(2, 1), write(1, 1)], &[20]);
    let [causal, convergent] = judge(script.ok_at(20, [found(1, 1), write(2, 1)], &[10]), &[0, 1]);
    assert_eq!(causal, convergent);
    let violation = violation(causal);
    assert_eq!(violation.kind, ViolationKind::CircularInformationFlow);
    assert_eq!(violation.guarantee(), TransactionGuarantee::Causal);
    assert!(violation.ruled_out.contains(&"read committed"), "{violation}");
    assert!(violation.ruled_out.contains(&"causal"), "{violation}");
}

#[test]
fn updates_may_be_lost_and_writes_skewed() {
    let lost = Script::default().ok_at(10, [absent(1), write(1, 1)], &[0]);
    assert_accepted(lost.ok_at(20, [absent(1), write(1, 2)], &[0]), &[0, 1]);
    let skewed = Script::default().ok_at(10, [absent(1), write(2, 1)], &[0]);
    assert_accepted(skewed.ok_at(20, [absent(2), write(1, 1)], &[0]), &[0, 1]);
}

#[test]
fn the_order_of_versions_does_not_count() {
    let script = || Script::default().ok_at(20, [write(5, 1)], &[]).ok_at(10, [write(5, 2)], &[]);
    assert_accepted(script(), &[0, 0]);
    let violation = violation(check_process_ordered(&script().history_of(&[0, 0])));
    assert_eq!(violation.kind, ViolationKind::ProcessOrder);
    assert_accepted(script().ok_at(30, [found(5, 2)], &[10]), &[0, 0, 0]);
    assert_rejected(script().ok_at(30, [found(5, 1)], &[20]), &[0, 0, 0], 2);
}

/// Two writes of a key, and two processes that see them in different orders.
fn divided() -> Script {
    let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [write(5, 2)], &[]);
    let script = script.ok_at(30, [found(5, 1)], &[10]).ok_at(40, [found(5, 2)], &[20]);
    script.ok_at(50, [found(5, 2)], &[20]).ok_at(60, [found(5, 1)], &[10])
}

#[test]
fn one_read_is_shown_that_contradicts_the_causal_order_though_two_make_a_smaller_cycle() {
    // Key 1 is written with key 11, and key 2 with key 12. One transaction misses the write of key 1, and one that of
    // key 2. Each has seen what the other one missed, which is no contradiction. But each has also seen what it
    // missed, in three more steps.
    let script = Script::default().ok_at(10, [write(1, 1), write(11, 1)], &[]);
    let script = script.ok_at(20, [write(2, 1), write(12, 1)], &[]);
    let script = script.ok_at(31, [found(11, 1), write(21, 1)], &[10]);
    let script = script.ok_at(32, [found(21, 1), write(22, 1)], &[31]);
    let script = script.ok_at(33, [found(22, 1), write(23, 1)], &[32]);
    let script = script.ok_at(41, [found(12, 1), write(31, 1)], &[20]);
    let script = script.ok_at(42, [found(31, 1), write(32, 1)], &[41]);
    let script = script.ok_at(43, [found(32, 1), write(33, 1)], &[42]);
    let script = script.ok_at(50, [absent(1), found(12, 1), found(23, 1)], &[0, 20, 33]);
    let script = script.ok_at(60, [absent(2), found(11, 1), found(33, 1)], &[0, 10, 43]);
    assert_rejected(script, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 5);
}

#[test]
fn processes_that_see_two_writes_in_different_orders_are_causal_but_not_convergent() {
    let [causal, convergent] = judge(divided(), &[0, 1, 2, 2, 3, 3]);
    assert!(causal.holds(), "{causal}");
    let violation = violation(convergent);
    assert_proven(&violation);
    assert_eq!((violation.kind, violation.conflicts.len()), (ViolationKind::Convergence, 2));
    assert_eq!(violation.guarantee(), TransactionGuarantee::CausallyConvergent);
    assert!(!violation.ruled_out.contains(&"causal"), "{violation}");
    assert_accepted(divided(), &[0, 1, 2, 2, 3, 4]);
}

/// One process writes a key, and learns only afterwards of the writes before another write of it, which it never sees.
fn late_news() -> Script {
    let script = Script::default().ok_at(40, [write(1, 1)], &[]).ok_at(10, [write(3, 2)], &[]);
    let script = script.ok_at(20, [write(1, 2)], &[]).ok_at(30, [write(2, 2)], &[]);
    let script = script.ok_at(50, [absent(3)], &[0]);
    script.ok_at(60, [found(2, 2)], &[30]).ok_at(70, [found(1, 1)], &[40])
}

#[test]
fn a_process_without_an_order_of_its_own_may_still_be_convergent() {
    let [causal, convergent] = judge(late_news(), &[0, 1, 1, 1, 0, 0, 0]);
    assert!(convergent.holds(), "{convergent}");
    let violation = violation(causal);
    assert_proven(&violation);
    assert_eq!(violation.kind, ViolationKind::View);
    assert_eq!(
        violation.ruled_out,
        ["causal", "process-ordered serializable", "strictly serializable"]
    );
    assert_accepted(late_news(), &[0, 1, 1, 1, 2, 0, 0]);
}

#[test]
fn serializable_histories_need_not_be_causal() {
    let history = missed_write().history_of(&[0, 0]);
    assert!(check_serializable(&history).holds());
    assert!(!check_causal(&history).holds());
}

#[test]
fn a_transaction_of_unknown_outcome_may_take_effect_after_later_ones_of_its_process() {
    let late = |script: Script| script.ok_at(20, [absent(1)], &[0]).ok_at(30, [found(1, 1)], &[10]);
    assert_accepted(late(Script::default().info_at(10, [write(1, 1)])), &[0, 0, 0]);
    assert_accepted(late(Script::default().info_at(10, [write(1, 1)])), &[0, 0, 1]);
    assert_rejected(late(Script::default().ok_at(10, [write(1, 1)], &[])), &[0, 0, 0], 2);
    let depends = |script: Script| {
        let script = script.ok_at(20, [write(2, 1)], &[]).ok_at(30, [found(1, 1)], &[10]);
        script.ok_at(40, [found(2, 1)], &[20]).ok_at(50, [absent(1)], &[0])
    };
    let processes = [0, 0, 1, 2, 2];
    assert_accepted(depends(Script::default().info_at(10, [write(1, 1)])), &processes);
    assert_rejected(depends(Script::default().ok_at(10, [write(1, 1)], &[])), &processes, 4);
}

#[test]
fn a_transaction_of_unknown_outcome_takes_no_effect_before_earlier_ones_of_its_process() {
    let script = || Script::default().ok_at(20, [found(1, 1)], &[10]).info_at(10, [write(1, 1)]);
    assert_rejected(script(), &[0, 0], 2);
    assert_accepted(script(), &[0, 1]);
}

#[test]
fn a_transaction_of_unknown_outcome_that_a_process_saw_stays_seen() {
    let script = || {
        let script = Script::default().info_at(10, [write(1, 1), write(2, 1)]);
        script.ok_at(20, [found(1, 1)], &[10]).ok_at(30, [absent(2)], &[0])
    };
    assert_rejected(script(), &[0, 1, 1], 3);
    assert_accepted(script(), &[0, 1, 2]);
}

#[test]
fn failed_and_unseen_transactions_have_no_effect() {
    let script = Script::default().fail_at(10, [write(1, 1)]).info_at(20, [write(1, 2)]);
    assert_accepted(script.ok_at(30, [absent(1)], &[0]), &[0, 0, 0]);
}

#[test]
fn what_no_transaction_left_is_not_read() {
    let rejected = |script: Script, kind| {
        for verdict in judge(script, &[0, 1]) {
            let violation = violation(verdict);
            assert_eq!(violation.kind, kind, "{violation}");
            assert_eq!(violation.guarantee(), TransactionGuarantee::Causal);
            assert!(violation.ruled_out.contains(&"causal"), "{violation}");
        }
    };
    let script = Script::default().fail_at(10, [write(1, 1)]);
    rejected(script.ok_at(20, [found(1, 1)], &[10]), ViolationKind::AbortedRead);
    let script = Script::default().ok_at(10, [write(1, 1), write(1, 2)], &[]);
    rejected(script.ok_at(20, [found(1, 1)], &[10]), ViolationKind::IntermediateRead);
    let script = Script::default().ok_at(10, [write(1, 1)], &[]);
    rejected(script.ok_at(20, [found(1, 7)], &[10]), ViolationKind::GarbageRead);
    let script = Script::default().ok_at(10, [write(1, 1)], &[]);
    let inconsistent = script.ok_at(20, [found(1, 1), absent(1)], &[10, 0]);
    rejected(inconsistent, ViolationKind::InternalInconsistency);
}

#[test]
fn unique_values_identify_writers_without_versions() {
    let script = || Script::default().ok([write(1, 1)]).ok([write(1, 2)]);
    assert_accepted(script().ok([found(1, 2)]).ok([found(1, 1)]), &[0, 1, 2, 2]);
    assert_rejected(script().ok([found(1, 2)]).ok([found(1, 1)]), &[0, 0, 1, 1], 2);
    let twice = Script::default().ok([write(1, 1)]).ok([write(1, 1)]).ok([found(1, 1)]);
    let reason = assert_unknown(twice, &[0, 1, 2]);
    assert!(reason.contains("more than one transaction can have left there"), "{reason}");
}

#[test]
fn a_violation_in_one_key_is_found_though_others_are_unknown() {
    let script = || Script::default().ok([append(7, 1)]).ok([write(8, 1)]).ok([write(8, 1)]);
    let script = || script().ok([list(7, &[1]), found(8, 1)]);
    let reason = assert_unknown(script(), &[0, 1, 2, 3]);
    assert!(reason.contains("key 7 is a list"), "{reason}");
    let script = script().ok_at(10, [write(5, 1)], &[]).ok_at(20, [absent(5)], &[0]);
    assert_rejected(script, &[0, 1, 2, 3, 4, 4], 2);
}

#[test]
fn a_read_of_a_key_that_was_perhaps_deleted_leaves_the_verdict_open() {
    let script = || {
        let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [delete(5)], &[]);
        script.ok_at(30, [absent(5)], &[0])
    };
    let reason = assert_unknown(script(), &[0, 0, 0]);
    assert!(reason.contains("T1 (process 0, op 5) found nothing in key 5"), "{reason}");
    let verdict = check_causal_with(&script().history_of(&[0, 0, 0]), &REMEMBERING);
    assert_eq!(violation(verdict).kind, ViolationKind::CausalOrder);
    // A process that need not have seen the write.
    assert_accepted(script(), &[0, 0, 1]);
    // The version of the delete is known.
    let known = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [delete(5)], &[]);
    let known = || known.clone().ok_at(30, [absent(5)], &[20]);
    assert_accepted(known(), &[0, 0, 0]);
    assert_rejected(known().ok_at(40, [found(5, 1)], &[10]), &[0, 0, 1, 1], 2);
    // No one deletes: the key was never written.
    let forgotten = Options { initial_before: None, deletes: Deletes::Forgotten };
    let verdict = check_causal_with(&missed_write().history_of(&[0, 0]), &forgotten);
    assert_eq!(violation(verdict).kind, ViolationKind::CausalOrder);
}

#[test]
fn data_from_before_the_history_was_written_before_all_of_it() {
    let options = Options { initial_before: Some(version(5)), ..Options::default() };
    let script = || {
        let script = Script::default().ok_at(10, [found(1, 7), write(1, 8)], &[3]);
        script.ok_at(20, [found(1, 7)], &[3])
    };
    let check = |processes| check_causal_with(&script().history_of(processes), &options);
    assert!(check(&[0, 1]).holds());
    assert_eq!(violation(check(&[0, 0])).kind, ViolationKind::CausalOrder);
}

#[test]
fn a_transaction_without_operations_wrote_what_was_read_from_it() {
    let script = || {
        let script = Script::default().info_at(10, []).ok_at(20, [found(1, 1)], &[10]);
        script.ok_at(30, [absent(1)], &[0])
    };
    let check = |processes| check_causal_with(&script().history_of(processes), &REMEMBERING);
    assert!(check(&[0, 1, 2]).holds());
    assert_eq!(violation(check(&[0, 1, 1])).kind, ViolationKind::CausalOrder);
}

#[test]
fn an_unowned_version_belongs_to_a_transaction_that_respects_the_causal_order() {
    // Version 15 may be that of either transaction of unknown outcome. The first choice is the one with fewer writes,
    // but it began after the read of its own process.
    let script = || {
        let script = Script::default().info_at(11, [write(1, 1), write(2, 1)]);
        script.ok_at(20, [found(1, 1)], &[15]).info_at(12, [write(1, 1)])
    };
    assert_accepted(script(), &[0, 1, 1]);
    let without = Script::default().ok_at(20, [found(1, 1)], &[15]).info_at(12, [write(1, 1)]);
    assert_rejected(without, &[1, 1], 2);
}

#[test]
fn an_owner_that_shows_only_in_the_argument_of_a_violation_is_replaced() {
    // If version 15 belonged to the first transaction of unknown outcome, then the last read would come after both
    // writes of key 2, but it found the first one. This transaction is no part of the cycle of the two writes.
    let script = |second: &[_]| {
        let script = Script::default().ok_at(5, [write(2, 1)], &[]).ok_at(6, [write(2, 2)], &[]);
        let script = script.ok_at(7, [found(2, 2)], &[6]).info_at(12, [write(1, 1)]);
        let script = script.info_at(11, second).ok_at(20, [found(1, 1)], &[15]);
        script.ok_at(30, [found(2, 1)], &[5])
    };
    let processes = [0, 0, 1, 1, 2, 3, 3];
    let violation = assert_rejected(script(&[write(4, 1)]), &processes, 2);
    let involved = violation.transactions.iter().position(|it| it.kind == EventKind::Info);
    assert!(involved.is_some_and(|at| at >= 2), "{violation}");
    assert_accepted(script(&[write(1, 1), write(4, 1)]), &processes);
}

#[test]
fn a_contradiction_of_the_causal_order_is_explained() {
    let script = Script::default().ok_at(10, [write(5, 1)], &[]).ok_at(20, [write(5, 2)], &[]);
    let script = script.ok_at(30, [found(5, 2)], &[20]).ok_at(40, [found(5, 1)], &[10]);
    let [causal, _] = judge(script, &[0, 0, 1, 1]);
    assert_eq!(
        causal.to_string(),
        "not causal: causal order, reads contradict the order of causes and effects\n  \
         each of 2 transactions must come before the next, and the last before the first\n  \
         the cycle follows from:\n  \
         T2 (process 0, op 3) wrote 2 to key 5 at version 20.65536; T3 (process 1, op 5) read 2 \
         of key 5, which is that: T2 -wr-> T3\n  \
         same process: T3 (process 1, op 5) ended before T4 (process 1, op 7) began: T3 -po-> \
         T4\n  \
         the cycle:\n  \
         same process: T1 (process 0, op 1) ended before T2 (process 0, op 3) began: T1 -po-> \
         T2\n  \
         T2 (process 0, op 3) wrote 2 to key 5 at version 20.65536; T4 (process 1, op 7) comes \
         after it, but read 1 of key 5, which T1 (process 0, op 1) wrote: T2 -ar-> T1\n  \
         T1 = process 0, op 1, ok, version 10.65536: [[\"w\", 5, 1]]\n  \
         T2 = process 0, op 3, ok, version 20.65536: [[\"w\", 5, 2]]\n  \
         T3 = process 1, op 5, ok, version 30.65536: [[\"r\", 5, 2]@20.65536]\n  \
         T4 = process 1, op 7, ok, version 40.65536: [[\"r\", 5, 1]@10.65536]\n  \
         rules out: causal, causally convergent, process-ordered serializable, strictly \
         serializable"
    );
}

#[test]
fn a_process_without_an_order_is_explained() {
    let [causal, _] = judge(late_news(), &[0, 1, 1, 1, 0, 0, 0]);
    assert_eq!(
        causal.to_string(),
        "not causal: view, no order of the writes explains what one process read\n  \
         in every order that explains what process 0 read, each of 4 transactions must come \
         before the next, and the last before the first\n  \
         the cycle follows from:\n  \
         same process: T4 (process 1, op 5) ended before T5 (process 1, op 7) began: T4 -po-> \
         T5\n  \
         T5 (process 1, op 7) wrote 2 to key 2 at version 30.65536; T6 (process 0, op 11) read \
         2 of key 2, which is that: T5 -wr-> T6\n  \
         same process: T6 (process 0, op 11) ended before T7 (process 0, op 13) began: T6 -po-> \
         T7\n  \
         the cycle:\n  \
         same process: T1 (process 0, op 1) ended before T2 (process 0, op 9) began: T1 -po-> \
         T2\n  \
         T3 (process 1, op 3) wrote 2 to key 3 at version 10.65536; T2 (process 0, op 9) read \
         nothing of key 3, which was there before: T2 -rw-> T3\n  \
         same process: T3 (process 1, op 3) ended before T4 (process 1, op 5) began: T3 -po-> \
         T4\n  \
         T4 (process 1, op 5) wrote 2 to key 1 at version 20.65536; T7 (process 0, op 13) comes \
         after it, but read 1 of key 1, which T1 (process 0, op 1) wrote: T4 -ar-> T1\n  \
         T1 = process 0, op 1, ok, version 40.65536: [[\"w\", 1, 1]]\n  \
         T2 = process 0, op 9, ok, version 50.65536: [[\"r\", 3, null]@0.0]\n  \
         T3 = process 1, op 3, ok, version 10.65536: [[\"w\", 3, 2]]\n  \
         T4 = process 1, op 5, ok, version 20.65536: [[\"w\", 1, 2]]\n  \
         T5 = process 1, op 7, ok, version 30.65536: [[\"w\", 2, 2]]\n  \
         T6 = process 0, op 11, ok, version 60.65536: [[\"r\", 2, 2]@30.65536]\n  \
         T7 = process 0, op 13, ok, version 70.65536: [[\"r\", 1, 1]@40.65536]\n  \
         rules out: causal, process-ordered serializable, strictly serializable"
    );
}

#[test]
fn a_divergence_is_explained() {
    let [_, convergent] = judge(divided(), &[0, 1, 2, 2, 3, 3]);
    assert_eq!(
        convergent.to_string(),
        "not causally convergent: convergence, no one order of the writes explains all reads\n  \
         in every order that explains all reads, each of 2 transactions must come before the \
         next, and the last before the first\n  \
         the cycle follows from:\n  \
         T2 (process 1, op 3) wrote 2 to key 5 at version 20.65536; T3 (process 3, op 9) read 2 \
         of key 5, which is that: T2 -wr-> T3\n  \
         same process: T3 (process 3, op 9) ended before T4 (process 3, op 11) began: T3 -po-> \
         T4\n  \
         T1 (process 0, op 1) wrote 1 to key 5 at version 10.65536; T5 (process 2, op 5) read 1 \
         of key 5, which is that: T1 -wr-> T5\n  \
         same process: T5 (process 2, op 5) ended before T6 (process 2, op 7) began: T5 -po-> \
         T6\n  \
         the cycle:\n  \
         T1 (process 0, op 1) wrote 1 to key 5 at version 10.65536; T6 (process 2, op 7) comes \
         after it, but read 2 of key 5, which T2 (process 1, op 3) wrote: T1 -ar-> T2\n  \
         T2 (process 1, op 3) wrote 2 to key 5 at version 20.65536; T4 (process 3, op 11) comes \
         after it, but read 1 of key 5, which T1 (process 0, op 1) wrote: T2 -ar-> T1\n  \
         T1 = process 0, op 1, ok, version 10.65536: [[\"w\", 5, 1]]\n  \
         T2 = process 1, op 3, ok, version 20.65536: [[\"w\", 5, 2]]\n  \
         T3 = process 3, op 9, ok, version 50.65536: [[\"r\", 5, 2]@20.65536]\n  \
         T4 = process 3, op 11, ok, version 60.65536: [[\"r\", 5, 1]@10.65536]\n  \
         T5 = process 2, op 5, ok, version 30.65536: [[\"r\", 5, 1]@10.65536]\n  \
         T6 = process 2, op 7, ok, version 40.65536: [[\"r\", 5, 2]@20.65536]\n  \
         rules out: causally convergent, process-ordered serializable, strictly serializable"
    );
}

#[test]
fn arbitrations_name_their_reader() {
    let [_, convergent] = judge(divided(), &[0, 1, 2, 2, 3, 3]);
    let violation = violation(convergent);
    let arbitrations = violation.conflicts.iter();
    assert!(arbitrations.clone().all(|it| it.kind == ConflictKind::Arbitration), "{violation}");
    let readers = arbitrations.map(|it| violation.transactions[it.reader.unwrap()].process);
    assert_eq!(readers.collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn the_verdict_names_the_guarantee_and_counts_who_read_from_whom() {
    let script = || Script::default().ok_at(10, [write(1, 1)], &[]).ok_at(20, [found(1, 1)], &[10]);
    let counted = "2 transactions committed, 0 failed, 0 of unknown outcome; 1 keys, 1 conflicts";
    let [causal, convergent] = judge(script(), &[0, 1]);
    assert_eq!(causal.to_string(), format!("causal: {counted}"));
    assert_eq!(convergent.to_string(), format!("causally convergent: {counted}"));
}
