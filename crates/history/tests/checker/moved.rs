//! Transactions of unknown outcome that took effect at a later version than the one with which they began.

use serried_history::{
    Options, Verdict, Violation, ViolationKind, check_serializable, check_strict_serializable,
};
use serried_model::NodeId;

use crate::support::{Script, absent, delete, found, through_json, version, violation, write};

/// Asserts that a version was read that belongs to no transaction.
#[track_caller]
fn assert_nobodys(script: Script, reason: &str) {
    assert_eq!(script.assert_rejected(ViolationKind::AbortedRead, 1).reason, reason);
}

const READ_AT_15: &str = "T1 (process 1, op 3) read 1 of key 1 at version 15.65536, which no \
                          transaction of the history has";

#[test]
fn an_unowned_version_belongs_to_an_unknown_transaction() {
    Script::default()
        .info_at(10, [write(1, 1), delete(2)])
        .ok_at(20, [found(1, 1), found(2, 7)], &[15, 15])
        .ok_at(30, [found(2, 7), write(2, 8)], &[15])
        .ok_at(40, [found(2, 8), found(1, 1)], &[30, 15])
        .assert_serializable();
    Script::default()
        .info_at(10, [])
        .ok_at(20, [found(1, 1), found(2, 7)], &[15, 15])
        .assert_serializable();
}

#[test]
fn a_moved_transaction_took_effect_as_a_whole() {
    let violation = Script::default()
        .info_at(10, [write(1, 1), write(2, 1)])
        .ok_at(20, [found(1, 1), absent(2)], &[15, 0])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
    let moved = violation.transactions.iter().find(|it| it.process == 0).unwrap();
    assert_eq!(moved.version, Some(version(15)));
}

#[test]
fn a_moved_transaction_has_its_later_version_at_all_its_keys() {
    let script = |moved| {
        Script::default()
            .info_at(10, [write(1, 1), write(2, 1)])
            .ok_at(20, [write(2, 5)], &[])
            .ok_at(30, [found(1, 1), found(2, 5)], &[moved, 20])
    };
    script(15).assert_serializable();
    script(25).assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn a_cycle_through_a_moved_transaction_is_found() {
    let script = |moved| {
        Script::default()
            .info_at(10, [write(1, 1), write(2, 1)])
            .ok_at(20, [write(2, 2), write(3, 2)], &[])
            .ok_at(40, [found(1, 1), write(4, 3)], &[moved])
            .ok_at(5, [found(4, 3), write(3, 1)], &[40])
    };
    script(15).assert_serializable();
    let violation = script(25).assert_rejected(ViolationKind::CircularInformationFlow, 4);
    assert!(violation.transactions.iter().any(|it| it.process == 0));
}

#[test]
fn a_moved_transaction_that_was_seen_stays_seen() {
    let strict = |spans| {
        let script = Script::default().info_at(10, [write(1, 1)]);
        let script = script.ok_at(20, [found(1, 1)], &[15]).ok_at(30, [absent(1)], &[0]);
        let history = through_json(script.history_at(spans));
        assert!(check_serializable(&history).holds());
        check_strict_serializable(&history)
    };
    assert!(strict(&[(0, 1), (2, 4), (3, 5)]).holds());
    let violation = violation(strict(&[(0, 1), (2, 3), (4, 5)]));
    assert_eq!(violation.kind, ViolationKind::Inversion);
    assert_eq!(violation.transactions.iter().map(|it| it.process).collect::<Vec<_>>(), [1, 2, 0]);
}

#[test]
fn a_version_of_another_coordinator_is_nobodys() {
    let script = Script::default().info_at(10, [write(1, 1)]).ok_at(20, [found(1, 1)], &[15]);
    let mut history = script.history();
    for event in &mut history.events {
        if let Some(version) = &mut event.version {
            version.coordinator = NodeId(2 << 16);
        }
    }
    let Violation { kind, reason, .. } = violation(check_serializable(&history));
    assert_eq!((kind, reason.as_str()), (ViolationKind::AbortedRead, READ_AT_15));
}

#[test]
fn a_transaction_does_not_move_to_an_earlier_version() {
    let script = Script::default().info_at(16, [write(1, 1)]).ok_at(20, [found(1, 1)], &[15]);
    assert_nobodys(script, READ_AT_15);
}

#[test]
fn a_transaction_has_no_version_of_keys_it_did_not_write() {
    let operations = [vec![write(2, 1)], vec![write(1, 2)], vec![write(1, 1), write(1, 2)]];
    for operations in operations {
        let script = Script::default().info_at(10, operations).ok_at(20, [found(1, 1)], &[15]);
        assert_nobodys(script, READ_AT_15);
    }
    let script = Script::default().info_at(10, [write(1, 1)]);
    assert_nobodys(script.ok_at(20, [found(1, 1), found(2, 1)], &[15, 15]), READ_AT_15);
}

#[test]
fn a_version_is_not_that_of_two_transactions() {
    let script = Script::default()
        .info_at(10, [write(1, 1)])
        .ok_at(20, [found(1, 1), found(2, 1)], &[15, 15])
        .info_at(11, [write(2, 1)]);
    script.assert_rejected(ViolationKind::AbortedRead, 1);
}

#[test]
fn a_failed_or_committed_transaction_has_not_moved() {
    let script = Script::default().fail_at(10, [write(1, 1)]).ok_at(20, [found(1, 1)], &[15]);
    assert_nobodys(script, READ_AT_15);
    let script = Script::default().ok_at(10, [write(1, 1)], &[]).ok_at(20, [found(1, 1)], &[15]);
    assert_nobodys(script, READ_AT_15);
}

#[test]
fn a_transaction_has_not_moved_twice() {
    let script = Script::default()
        .info_at(10, [write(1, 1), write(2, 1)])
        .ok_at(20, [found(1, 1)], &[15])
        .ok_at(30, [found(2, 1)], &[16]);
    assert_nobodys(
        script,
        "T1 (process 2, op 5) read 1 of key 2 at version 16.65536, which no transaction of the \
         history has",
    );
}

#[test]
fn a_transaction_read_at_its_first_version_has_not_moved() {
    let script = Script::default()
        .info_at(10, [write(1, 1), write(2, 1)])
        .ok_at(20, [found(1, 1)], &[15])
        .ok_at(30, [found(2, 1)], &[10]);
    script.assert_rejected(ViolationKind::AbortedRead, 1);
}

#[test]
fn two_transactions_are_distinguished_by_their_keys() {
    let script = |first| {
        let script = Script::default()
            .info_at(10, [delete(1), delete(2)])
            .info_at(11, [delete(1), delete(3)])
            .ok_at(20, [found(1, 5), found(3, 6)], &[15, 15]);
        let stale = script.clone().ok_at(30, [found(2, 7), found(1, 9)], &[first, 0]);
        (script.ok_at(30, [found(2, 7)], &[first]), stale)
    };
    // At key 1, too, the first transaction comes before or after the second.
    for (first, cycle) in [(14, 2), (16, 3)] {
        let (serial, stale) = script(first);
        serial.assert_serializable();
        stale.assert_rejected(ViolationKind::SingleAntiDependency, cycle);
    }
}

#[test]
fn a_version_leaves_its_transaction_to_one_that_has_no_other() {
    Script::default()
        .info_at(10, [delete(1), delete(2)])
        .info_at(11, [delete(1), delete(3), delete(4)])
        .info_at(12, [delete(1), delete(4), delete(5), delete(6)])
        .ok_at(20, [found(1, 5)], &[15])
        .ok_at(30, [found(1, 7)], &[16])
        .ok_at(40, [found(2, 7)], &[17])
        .assert_serializable();
}

#[test]
fn the_choice_among_several_transactions_is_no_violation() {
    let script = || {
        let script = Script::default().info_at(10, [delete(1), delete(2)]);
        script.info_at(11, [delete(1), delete(3)])
    };
    let contradicted =
        |script: Script, key| script.ok_at(20 + key, [found(1, 7), found(key, 9)], &[15, 0]);
    contradicted(script(), 2).assert_serializable();
    contradicted(script(), 3).assert_serializable();
    contradicted(contradicted(script(), 3), 2)
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);

    // One of the transactions that fit began only after the version was read.
    let script = Script::default().info_at(10, [delete(1), delete(2)]);
    let script = script.info_at(11, [delete(1)]).ok_at(20, [found(1, 7)], &[15]);
    assert!(check_strict_serializable(&script.history_at(&[(0, 1), (4, 5), (2, 3)])).holds());
}

#[test]
fn a_violation_elsewhere_is_none_of_the_choice() {
    Script::default()
        .info_at(10, [delete(1), delete(2)])
        .info_at(11, [delete(1), delete(3)])
        .ok_at(20, [found(1, 7)], &[15])
        .ok_at(30, [absent(4), write(4, 1)], &[0])
        .ok_at(40, [absent(4), write(4, 2)], &[0])
        .assert_rejected(ViolationKind::SingleAntiDependency, 2);
}

#[test]
fn a_transaction_without_a_version_may_own_an_unowned_one() {
    let script = || Script::default().info([write(2, 1)]).info_at(10, [write(1, 1), write(2, 1)]);
    // No other transaction fits the first version, so the second version belongs to the other one.
    script().ok_at(20, [found(1, 1)], &[16]).ok_at(30, [found(2, 1)], &[15]).assert_unknown();
    script().ok_at(20, [found(2, 1), absent(1)], &[15, 0]).assert_unknown();
    script().ok_at(20, [found(2, 1), found(1, 1)], &[15, 15]).assert_serializable();
}

/// Of two versions, one may also belong to a transaction without a version. After a violation elsewhere, another choice must
/// not take the only candidate away from it.
#[test]
fn another_choice_gives_each_version_an_owner_if_one_can() {
    Script::default()
        .info_at(10, [delete(1), delete(2)])
        .info_at(13, [delete(1), delete(3)])
        .info([delete(2), delete(8)])
        .ok_at(20, [found(1, 5)], &[16])
        .ok_at(21, [found(2, 6)], &[12])
        .info_at(30, [delete(5), delete(6)])
        .info_at(31, [delete(5), delete(7)])
        .ok_at(40, [found(5, 7), found(6, 9)], &[35, 0])
        .assert_serializable();
}

#[test]
fn too_many_choices_leave_the_verdict_open() {
    let verdict = |candidates| {
        let script = (0..candidates)
            .fold(Script::default(), |script, at| script.info_at(10 + at, [delete(1), delete(2)]));
        script.ok_at(2000, [found(1, 7), found(2, 9)], &[1000, 0]).verdict()
    };
    assert!(matches!(verdict(20), Verdict::Violation(_)));
    let Verdict::Unknown { reason } = verdict(200) else { panic!("judged") };
    assert!(reason.starts_with("version 1000.65536 and others"), "{reason}");
}

#[test]
fn what_was_there_before_the_history_is_nobodys() {
    let script = || {
        let script = Script::default().info_at(10, [write(1, 1), write(2, 1)]);
        script.ok_at(20, [found(1, 1), absent(2)], &[15, 0])
    };
    assert!(
        script()
            .verdict_with(Options { initial_before: Some(version(15)), ..Options::default() })
            .holds()
    );
    assert!(
        !script()
            .verdict_with(Options { initial_before: Some(version(14)), ..Options::default() })
            .holds()
    );
}
