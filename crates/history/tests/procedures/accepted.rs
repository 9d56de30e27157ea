//! Histories that a correct database may produce.

use serried_history::{CallSummary, CallVerdict, TransactionGuarantee};

use crate::support::{Called, call, serializably, strictly};

fn holds(calls: impl IntoIterator<Item = Called>) -> CallSummary {
    match strictly(calls) {
        CallVerdict::Holds(summary) => summary,
        other => panic!("{other}"),
    }
}

#[test]
fn calls_one_after_the_other_are_strictly_serializable() {
    let summary = holds([
        call([0, 1], &[(1, &[]), (2, &[])], &[(1, 10), (2, 10)]),
        call([2, 3], &[(1, &[10])], &[(1, 11)]),
        call([4, 5], &[(1, &[10, 11]), (2, &[10])], &[]),
        call([6, 7], &[], &[]),
        call([6, 8], &[], &[(1, 12)]).refused(),
    ]);
    let wanted = CallSummary {
        guarantee: TransactionGuarantee::StrictlySerializable,
        done: 4,
        refused: 1,
        failed: 0,
        unknown: 0,
        keys: 2,
        edges: summary.edges,
    };
    assert_eq!(summary, wanted);
}

#[test]
fn concurrent_calls_may_take_effect_in_any_order() {
    for (first, second) in [(&[][..], &[10][..]), (&[11], &[])] {
        holds([call([0, 9], &[(1, first)], &[(1, 10)]), call([1, 8], &[(1, second)], &[(1, 11)])]);
    }
}

#[test]
fn a_call_of_unknown_outcome_may_have_taken_effect_or_not_or_late() {
    let unknown = || call([0, 1], &[], &[(1, 10), (2, 10)]).unknown();
    let open = || call([0, 1], &[], &[(1, 10), (2, 10)]).open();
    for call_of_unknown_outcome in [unknown, open] {
        let never = call([2, 3], &[(1, &[]), (2, &[])], &[]);
        let then = call([4, 5], &[(1, &[10]), (2, &[10])], &[]);
        holds([call_of_unknown_outcome(), never.clone()]);
        holds([call_of_unknown_outcome(), then.clone()]);
        let summary = holds([call_of_unknown_outcome(), never, then]);
        assert_eq!((summary.done, summary.unknown), (2, 1));
    }
}

#[test]
fn a_stale_read_is_serializable() {
    let calls = [call([0, 1], &[], &[(1, 10)]), call([2, 3], &[(1, &[])], &[])];
    assert!(serializably(calls.clone()).holds());
    assert!(!strictly(calls).holds());
}

#[test]
fn an_append_that_a_later_read_need_not_find_is_not_lost() {
    holds([
        call([0, 5], &[], &[(1, 10)]),
        call([1, 2], &[(1, &[])], &[]),
        call([4, 8], &[(1, &[])], &[]),
    ]);
    holds([call([0, 5], &[], &[(1, 10)]).unknown(), call([6, 7], &[(1, &[])], &[])]);
}
