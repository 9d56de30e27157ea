//! Tiny histories, judged also by trying every order of their calls.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serried_history::{CallVerdict, EventKind};

use crate::support::{Called, call, serializably, strictly};

/// What a call does: reads of lists, and then appends.
#[derive(Clone, Debug)]
struct Plan {
    reads: Vec<u64>,
    appends: Vec<u64>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let lists = || proptest::collection::btree_set(0..3_u64, 0..=2);
    (lists(), lists()).prop_map(|(reads, appends)| Plan {
        reads: reads.into_iter().collect(),
        appends: appends.into_iter().collect(),
    })
}

/// Calls whose pieces, a read or an append each, are executed in any order that is possible for each call: so not all
/// are serializable. Each then begins and ends at any time, and some end otherwise than they did.
fn calls() -> impl Strategy<Value = Vec<Called>> {
    let ends = proptest::collection::vec(0..10_u8, 4);
    let times = Just((0..8_u64).collect::<Vec<_>>()).prop_shuffle();
    let order = proptest::collection::vec(0..4_usize, 16);
    let plans = proptest::collection::vec(plan(), 1..=4);
    (plans, order, times, ends).prop_map(|(plans, order, times, ends)| {
        let count = plans.len();
        let (mut lists, mut called) = (BTreeMap::<u64, Vec<u64>>::new(), Vec::new());
        for (at, plan) in plans.iter().enumerate() {
            let (one, other) = (times[2 * at], times[2 * at + 1]);
            let appends: Vec<_> = plan.appends.iter().map(|key| (*key, at as u64 + 10)).collect();
            called.push(call([one.min(other), one.max(other)], &[], &appends));
        }
        // Each executes its next piece when it has a turn, and the rest at the end.
        let mut done = vec![0; count];
        let rest = (0..count).flat_map(|at| core::iter::repeat_n(at, 4));
        for at in order.into_iter().map(|at| at % count).chain(rest) {
            let (plan, next) = (&plans[at], done[at]);
            done[at] += 1;
            if let Some(key) = plan.reads.get(next) {
                let found = lists.get(key).cloned().unwrap_or_default();
                called[at].reads.push((*key, found));
            } else if let Some(key) = plan.appends.get(next - plan.reads.len()) {
                lists.entry(*key).or_default().push(at as u64 + 10);
            }
        }
        let ended = called.into_iter().zip(ends).map(|(call, end)| match end {
            0 => call.unknown(),
            1 => call.open(),
            2 => call.refused(),
            _ => call,
        });
        ended.collect()
    })
}

/// Whether the calls could have run one after the other; with `strictly`, each after all that had ended before.
fn has_order(calls: &[Called], strictly: bool) -> bool {
    let wanted = |call: &Called| call.kind == EventKind::Ok;
    let may = |call: &&Called| call.kind != EventKind::Fail;
    let candidates: Vec<&Called> = calls.iter().filter(may).collect();
    // Those of unknown outcome may be left out.
    fn place<'a>(
        left: &[&'a Called],
        lists: &BTreeMap<u64, Vec<u64>>,
        wanted: &dyn Fn(&Called) -> bool,
        strictly: bool,
    ) -> bool {
        if left.iter().all(|call| !wanted(call)) {
            return true;
        }
        (0..left.len()).any(|at| {
            let call = left[at];
            let before = |other: &&&Called| wanted(other) && other.end < call.begin;
            if strictly && left.iter().any(|other| before(&other)) {
                return false;
            }
            let nothing = Vec::new();
            let found = |key| lists.get(key).unwrap_or(&nothing);
            if !call.reads.iter().all(|(key, elements)| found(key) == elements) {
                return false;
            }
            let mut lists = lists.clone();
            for (key, element) in &call.appends {
                lists.entry(*key).or_default().push(*element);
            }
            let mut left = left.to_vec();
            left.remove(at);
            place(&left, &lists, wanted, strictly)
        })
    }
    place(&candidates, &BTreeMap::new(), &wanted, strictly)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_checker_agrees_with_a_search_of_all_orders(calls in calls()) {
        for (strict, verdict) in
            [(false, serializably(calls.clone())), (true, strictly(calls.clone()))]
        {
            prop_assert!(!matches!(verdict, CallVerdict::Unknown { .. }), "{verdict}");
            prop_assert_eq!(verdict.holds(), has_order(&calls, strict), "{}", verdict);
        }
    }
}

/// The histories of the property are of all kinds.
#[test]
fn the_histories_that_are_tried_are_good_and_bad() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut good, mut inverted, mut bad) = (0, 0, 0);
    for _ in 0..2_000 {
        let calls = calls().new_tree(&mut runner).unwrap().current();
        match (serializably(calls.clone()).holds(), strictly(calls).holds()) {
            (true, true) => good += 1,
            (true, false) => inverted += 1,
            _ => bad += 1,
        }
    }
    assert!(good > 200 && inverted > 100 && bad > 100, "{good}, {inverted}, {bad}");
}
