//! Histories that no correct database produces: each anomaly once.

use serried_history::{
    CallVerdict, CallViolation, TransactionGuarantee, ViolationKind, check_calls,
};

use crate::support::{Called, call, history, serializably, strictly};

fn violation(calls: &[Called]) -> CallViolation {
    match strictly(calls.iter().cloned()) {
        CallVerdict::Violation(violation) => *violation,
        other => panic!("{other}"),
    }
}

/// Checks that these calls violate serializability in this way, whatever the real time.
#[track_caller]
fn is(kind: ViolationKind, calls: &[Called]) -> CallViolation {
    let CallVerdict::Violation(found) = serializably(calls.iter().cloned()) else {
        panic!("not serializable");
    };
    assert_eq!(found.violation.kind, kind, "{found}");
    violation(calls)
}

/// Checks that these calls are serializable, but not in real time.
#[track_caller]
fn is_inverted(calls: &[Called]) -> CallViolation {
    assert!(serializably(calls.iter().cloned()).holds());
    let violation = violation(calls);
    assert_eq!(violation.violation.kind, ViolationKind::Inversion);
    assert_eq!(violation.guarantee(), TransactionGuarantee::StrictlySerializable);
    violation
}

#[test]
fn pieces_in_different_orders_at_two_servers_are_a_write_cycle() {
    let violation = is(
        ViolationKind::WriteCycle,
        &[
            call([0, 9], &[], &[(1, 10), (2, 10)]),
            call([0, 9], &[], &[(1, 11), (2, 11)]),
            call([10, 11], &[(1, &[10, 11])], &[]),
            call([10, 11], &[(2, &[11, 10])], &[]),
        ],
    );
    let text = violation.to_string();
    assert!(text.contains("-ww-> T2") && text.contains("the transactions are calls: T1 of `p"));
    assert_eq!(violation.lost, None);
}

#[test]
fn a_half_seen_call_is_a_cycle() {
    is(
        ViolationKind::SingleAntiDependency,
        &[
            call([0, 9], &[], &[(1, 10), (2, 10)]),
            call([0, 9], &[(1, &[10]), (2, &[])], &[]),
            call([10, 11], &[(2, &[10])], &[]),
        ],
    );
}

#[test]
fn a_lost_update_is_a_cycle() {
    is(
        ViolationKind::SingleAntiDependency,
        &[
            call([0, 9], &[(1, &[])], &[(1, 10)]),
            call([0, 9], &[(1, &[])], &[(1, 11)]),
            call([10, 11], &[(1, &[10, 11])], &[]),
        ],
    );
}

#[test]
fn write_skew_is_a_cycle() {
    is(
        ViolationKind::AntiDependencyCycle,
        &[
            call([0, 9], &[(1, &[]), (2, &[])], &[(1, 10)]),
            call([0, 9], &[(1, &[]), (2, &[])], &[(2, 11)]),
            call([10, 11], &[(1, &[10]), (2, &[11])], &[]),
        ],
    );
}

#[test]
fn calls_that_read_from_each_other_are_a_cycle() {
    is(
        ViolationKind::CircularInformationFlow,
        &[call([0, 9], &[(2, &[11])], &[(1, 10)]), call([0, 9], &[(1, &[10])], &[(2, 11)])],
    );
}

#[test]
fn reads_that_are_no_prefixes_of_each_other_are_incompatible() {
    let violation = is(
        ViolationKind::IncompatibleOrder,
        &[
            call([0, 9], &[], &[(1, 10)]),
            call([0, 9], &[], &[(1, 11)]),
            call([0, 9], &[(1, &[10, 11])], &[]),
            call([0, 9], &[(1, &[11])], &[]),
        ],
    );
    assert_eq!(violation.procedures, ["p2", "p3"]);
}

#[test]
fn an_append_that_took_effect_twice_is_found() {
    is(
        ViolationKind::DuplicateElement,
        &[call([0, 1], &[], &[(1, 10)]), call([2, 3], &[(1, &[10, 10])], &[])],
    );
}

#[test]
fn an_element_that_nobody_appended_is_garbage() {
    is(ViolationKind::GarbageRead, &[call([2, 3], &[(1, &[10])], &[])]);
    // A call of unknown outcome that appends nothing explains nothing.
    let unknown = call([0, 1], &[], &[]).unknown();
    is(ViolationKind::GarbageRead, &[unknown, call([2, 3], &[(1, &[10])], &[])]);
}

#[test]
fn an_element_of_a_refused_call_is_an_aborted_read() {
    let refused = call([0, 1], &[], &[(1, 10)]).refused();
    is(ViolationKind::AbortedRead, &[refused, call([2, 3], &[(1, &[10])], &[])]);
}

#[test]
fn half_of_a_call_of_unknown_outcome_is_no_outcome() {
    is_inverted(&[
        call([0, 1], &[], &[(1, 10), (2, 10)]).unknown(),
        call([2, 3], &[(1, &[10])], &[]),
        call([4, 5], &[(2, &[])], &[]),
    ]);
    is(
        ViolationKind::SingleAntiDependency,
        &[
            call([0, 1], &[], &[(1, 10), (2, 10)]).unknown(),
            call([2, 3], &[(1, &[10]), (2, &[])], &[]),
        ],
    );
}

#[test]
fn an_acknowledged_append_that_a_last_read_does_not_find_is_lost() {
    let violation = is_inverted(&[
        call([0, 1], &[], &[(1, 10)]),
        call([2, 3], &[], &[(1, 11)]),
        call([4, 5], &[(1, &[11])], &[]),
        call([6, 7], &[(1, &[11])], &[]),
    ]);
    let lost = violation.lost.as_ref().unwrap();
    assert_eq!((lost.key, lost.element, lost.procedure.as_str()), (1, 10, "p0"));
    assert_eq!((lost.appended_by, lost.missed_by), ((0, 1), (3, 7)));
    let text = violation.to_string();
    assert!(text.starts_with("element 10 of key 1 is lost: `p0` (process 0, op 1)"), "{text}");
}

#[test]
fn a_stale_read_is_an_inversion_and_no_loss() {
    let violation = is_inverted(&[
        call([0, 1], &[], &[(1, 10)]),
        call([2, 3], &[(1, &[])], &[]),
        call([4, 5], &[(1, &[10])], &[]),
    ]);
    assert_eq!(violation.lost, None);
}

/// 003 §4: two calls that share no list are ordered against real time by a third one.
#[test]
fn an_inversion_through_a_concurrent_call_is_found() {
    is_inverted(&[
        call([0, 1], &[], &[(1, 10)]),
        call([2, 3], &[], &[(2, 11)]),
        call([0, 9], &[(1, &[]), (2, &[11])], &[]),
        call([10, 11], &[(1, &[10])], &[]),
    ]);
}

#[test]
fn a_call_that_finds_its_own_element_before_it_appends_is_inconsistent() {
    is(ViolationKind::InternalInconsistency, &[call([0, 1], &[(1, &[10])], &[(1, 10)])]);
}

#[test]
fn a_process_that_does_not_find_its_own_append_contradicts_its_order() {
    let calls = || {
        let mut history = history([call([0, 1], &[], &[(1, 10)]), call([2, 3], &[(1, &[])], &[])]);
        history.events.iter_mut().for_each(|event| event.process = 0);
        history
    };
    assert!(check_calls(&calls(), TransactionGuarantee::Serializable).holds());
    let guarantee = TransactionGuarantee::ProcessOrderedSerializable;
    let CallVerdict::Violation(violation) = check_calls(&calls(), guarantee) else {
        panic!("not rejected");
    };
    assert_eq!(violation.violation.kind, ViolationKind::ProcessOrder, "{violation}");
    assert_eq!((violation.guarantee(), violation.lost), (guarantee, None));
    let mut of_two_processes = calls();
    of_two_processes.events[2..].iter_mut().for_each(|event| event.process = 1);
    assert!(check_calls(&of_two_processes, guarantee).holds());
}

#[test]
fn it_is_not_known_whether_lists_are_causal() {
    let calls = [call([0, 1], &[], &[(1, 10)]), call([2, 3], &[(1, &[10])], &[])];
    for guarantee in [TransactionGuarantee::Causal, TransactionGuarantee::CausallyConvergent] {
        let verdict = check_calls(&history(calls.clone()), guarantee);
        assert!(matches!(verdict, CallVerdict::Unknown { .. }), "{verdict}");
    }
}
