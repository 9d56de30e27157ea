//! How planned transactions are begun, and that it makes no difference to histories.

use core::future::Future;
use core::task::{Context, Waker};
use std::collections::BTreeMap;
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serried_history::Event;
use serried_model::NodeId;

use super::*;
use crate::serial::{self, OneShots, Serial};
use crate::tpcc::Scale;
use crate::{Parameters, Window, named};

fn transactor(workload: &str, one_shots: OneShots) -> (Transactor, Arc<Serial>) {
    let parameters = Parameters {
        keys: (workload != "tpcc").then_some(2000),
        writes: (workload != "tpcc").then_some(0.3),
        warehouses: Some(1),
        scale: Scale::SMALL,
        ..Parameters::default()
    };
    let workload = named(workload, &parameters).unwrap();
    let (serial, keyspace) = serial::database(one_shots);
    let second = Duration::from_secs(1);
    let window = Window::new(Timestamp(0), Duration::ZERO, second, Duration::ZERO);
    let measurement = Arc::new(Measurement::new(window));
    let recorder = Some(Arc::new(Recorder::new()));
    (Transactor { keyspace, workload, measurement, recorder }, serial)
}

impl Transactor {
    fn history(self) -> Vec<Event> {
        let recorder = self.recorder.expect("a history was recorded");
        Arc::into_inner(recorder).expect("nothing is open").into_history().events
    }
}

/// What was asked for with the plans of each kind, and the history of them all.
fn asked(
    workload: &str,
    one_shots: OneShots,
) -> (BTreeMap<&'static str, Vec<&'static str>>, Vec<Event>) {
    let (transactor, serial) = transactor(workload, one_shots);
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut asked = BTreeMap::new();
    for _ in 0..300 {
        let plan = transactor.workload.plan(0, &mut random);
        let kind = transactor.workload.kind(&plan);
        serial::run(transactor.transact(0, &plan, Timestamp(0)));
        asked.insert(kind, serial.asked());
    }
    (asked, transactor.history())
}

#[test]
fn plans_that_only_read_are_announced_as_such_and_no_others() {
    const READS: &[&str] = &["begin to read"];
    const MAY_WRITE: &[&str] = &["begin"];
    let of_tpcc = [
        ("delivery", MAY_WRITE),
        ("new-order", MAY_WRITE),
        ("order-status", READS),
        ("payment", MAY_WRITE),
        ("stock-level", READS),
    ];
    let of_retwis = [
        ("add-user", MAY_WRITE),
        ("follow", MAY_WRITE),
        ("load-timeline", READS),
        ("post-tweet", MAY_WRITE),
    ];
    for (workload, expected) in [("tpcc", &of_tpcc[..]), ("retwis", &of_retwis[..])] {
        let (asked, _) = asked(workload, OneShots::Done);
        let asked: Vec<_> = asked.iter().map(|(kind, asked)| (*kind, &asked[..])).collect();
        assert_eq!(asked, expected, "{workload}");
    }
}

#[test]
fn one_shot_plans_are_asked_for_at_once_and_leave_the_same_history_where_that_is_not_offered() {
    for (workload, writing) in [("f1", "read-write"), ("tao", "write")] {
        let (at_once, mut history) = asked(workload, OneShots::Done);
        assert_eq!(at_once["read-only"], ["begin to read", "one shot"]);
        assert_eq!(at_once[writing], ["begin", "one shot"]);
        let (in_steps, mut other) = asked(workload, OneShots::NotOffered);
        assert_eq!(in_steps["read-only"], ["begin to read"]);
        assert_eq!(in_steps[writing], ["begin"]);
        assert!(history.iter().all(|event| event.kind != EventKind::Fail));
        // The question whether it is offered takes a version of its own.
        for (i, event) in history.iter_mut().chain(&mut other).enumerate() {
            assert_eq!(event.version.is_some(), event.kind == EventKind::Ok, "{i}");
            let reads = event.operations.iter().filter(|operation| operation.is_read()).count();
            let versions = if event.kind == EventKind::Ok { reads } else { 0 };
            assert_eq!(event.read_versions.len(), versions, "{i}");
            event.version = None;
            event.read_versions.clear();
        }
        assert_eq!(history, other, "{workload}");
        let finds = |operation: &MicroOperation| {
            matches!(operation, MicroOperation::Read { result: ReadResult::Register(Some(_)), .. })
        };
        assert!(history.iter().any(|event| event.operations.iter().any(finds)), "{workload}");
    }
}

#[test]
fn a_client_that_dies_leaves_the_version_of_what_it_had_asked_for_at_once() {
    let (transactor, serial) = transactor("f1", OneShots::Unanswered);
    let plan = transactor.workload.plan(0, &mut Pcg64Mcg::seed_from_u64(1));
    let mut dying = Box::pin(transactor.transact(0, &plan, Timestamp(0)));
    assert!(dying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(dying);
    assert_eq!(serial.asked().last(), Some(&"one shot"));
    let history = transactor.history();
    assert_eq!((history.len(), history[1].kind), (2, EventKind::Info));
    assert_eq!(history[1].version.map(|version| version.coordinator), Some(NodeId(1)));
}
