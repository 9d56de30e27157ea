//! The explanations of violations.

use serried_history::{ConflictKind, Installed, Verdict, ViolationKind};

use crate::support::{Script, append, delete, found, list, version, write};

#[test]
fn a_cycle_of_lists_is_explained_edge_by_edge() {
    let verdict = Script::default()
        .ok([list(5, &[1, 2]), append(5, 7)])
        .ok([append(5, 1), append(5, 2)])
        .ok([list(5, &[1, 2]), append(5, 8)])
        .ok([list(5, &[1, 2, 7, 8])])
        .verdict();
    assert_eq!(
        verdict.to_string(),
        "not serializable: G-single, a cycle with one anti-dependency: a lost update, or read skew\n  \
         T1 (process 0, op 4) appended 7 to key 5; T2 (process 2, op 6) appended 8 after it: \
         T1 -ww-> T2\n  \
         T1 (process 0, op 4) appended 7 to key 5; T2 (process 2, op 6) read [1, 2] of key 5, which \
         does not contain it: T2 -rw-> T1\n  \
         T1 = process 0, op 4, ok: [[\"r\", 5, [1, 2]], [\"append\", 5, 7]]\n  \
         T2 = process 2, op 6, ok: [[\"r\", 5, [1, 2]], [\"append\", 5, 8]]\n  \
         rules out: consistent view, snapshot isolation, repeatable read, serializable, \
         process-ordered serializable, strictly serializable"
    );
}

#[test]
fn a_cycle_of_registers_is_explained_with_its_versions() {
    let violation = Script::default()
        .ok_at(10, [write(5, 1), write(6, 1)], &[])
        .ok_at(20, [delete(5), found(6, 1)], &[10])
        .ok_at(5, [found(5, 1), write(6, 0)], &[10])
        .assert_rejected(ViolationKind::CircularInformationFlow, 2);
    assert_eq!(
        violation.to_string(),
        "G1c, transactions read from each other in a cycle\n  \
         T1 (process 0, op 3) wrote 1 to key 5 at version 10.65536; T2 (process 2, op 5) read 1 \
         of key 5, which is that: T1 -wr-> T2\n  \
         T2 (process 2, op 5) wrote 0 to key 6 at version 5.65536; T1 (process 0, op 3) then \
         wrote 1 to key 6 at the later version 10.65536: T2 -ww-> T1\n  \
         T1 = process 0, op 3, ok, version 10.65536: [[\"w\", 5, 1], [\"w\", 6, 1]]\n  \
         T2 = process 2, op 5, ok, version 5.65536: [[\"r\", 5, 1]@10.65536, [\"w\", 6, 0]]\n  \
         rules out: read committed, consistent view, snapshot isolation, repeatable read, \
         serializable, process-ordered serializable, strictly serializable"
    );
    assert_eq!(violation.conflicts[1].kind, ConflictKind::WriteDependency);
    assert_eq!(violation.conflicts[1].before, Some(Installed::Version(version(5))));
    assert_eq!(violation.conflicts[1].after, Some(Installed::Version(version(10))));
}

#[test]
fn an_aborted_read_names_reader_writer_and_what_was_read() {
    let violation = Script::default()
        .fail_at(10, [write(1, 3)])
        .ok_at(20, [found(1, 3)], &[10])
        .assert_rejected(ViolationKind::AbortedRead, 2);
    assert_eq!(
        violation.reason,
        "T1 (process 1, op 3) read 3 of key 1 at version 10.65536, that of T2 (process 0, op 2), \
         which failed"
    );
    assert_eq!(violation.key, Some(1));
}

#[test]
fn the_smallest_of_several_cycles_is_shown() {
    let mut script = Script::default();
    for key in 0..5 {
        script = script.ok([append(key, 1), list((key + 1) % 5, &[1])]);
    }
    script
        .ok([append(10, 1), list(11, &[1])])
        .ok([append(11, 1), list(12, &[1])])
        .ok([append(12, 1), list(10, &[1])])
        .assert_rejected(ViolationKind::CircularInformationFlow, 3);
}

#[test]
fn of_equal_cycles_the_one_with_fewest_anti_dependencies_is_shown() {
    Script::default()
        .ok([list(1, &[]), append(2, 1)])
        .ok([list(2, &[]), append(1, 1)])
        .ok([append(3, 1), append(4, 1)])
        .ok([append(3, 2), append(4, 2)])
        .ok([list(3, &[1, 2]), list(4, &[2, 1])])
        .assert_rejected(ViolationKind::WriteCycle, 2);
}

#[test]
fn the_middle_of_a_long_list_is_left_out() {
    let elements: Vec<u64> = (0..1000).collect();
    let violation =
        Script::default().ok([list(1, &elements)]).assert_rejected(ViolationKind::GarbageRead, 1);
    assert!(violation.reason.contains("[0, 1, 2, 3, 4, 5, 6, 7, (984 more), 992, "));
}

#[test]
fn the_summary_counts_transactions_keys_and_conflicts() {
    let verdict = Script::default()
        .ok([append(1, 1)])
        .ok([list(1, &[1])])
        .fail([append(1, 2)])
        .info([append(2, 1)])
        .open([append(2, 2)])
        .verdict();
    let Verdict::Holds(summary) = verdict else { panic!("{verdict}") };
    assert_eq!(
        summary.to_string(),
        "2 transactions committed, 1 failed, 2 of unknown outcome; 2 keys, 1 conflicts"
    );
}
