//! Workloads of procedures on one simulated replica.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Timestamp};
use serried_history::{
    CallHistory, CallRecorder, CallVerdict, EventKind, TransactionGuarantee, check_calls,
};
use serried_procedures::Procedures;
use serried_protocols::rehearsal::{Forgetting, Rehearsal};
use serried_sim::{Cluster, Configuration, CostModel, NetworkFaults};

use super::{
    BankCalls, CallClient, CounterCalls, ListCalls, ProcedureParameters, ProcedureWorkload,
    audit_calls,
};
use crate::{InspectionError, Measurement, Report, Window};

const CLIENTS: usize = 4;

/// What a run left behind: its report, its history, and the workload's inspection.
pub(crate) type Left = (Report, CallHistory, Result<Option<String>, InspectionError>);

/// Runs a workload for two seconds, with messages that are lost, repeated and reordered.
pub(crate) fn run<P: Protocol<Family = Procedures>>(workload: Arc<dyn ProcedureWorkload>) -> Left {
    let mut cluster = Cluster::<P>::new(Configuration {
        seed: 7,
        clients: CLIENTS,
        replicas: 1,
        network: NetworkFaults {
            jitter: 0.5,
            loss: 0.01,
            duplication: 0.01,
            reordering: 0.1,
            extra_delay: Duration::from_millis(5),
        },
        costs: CostModel::FREE,
        ..Configuration::default()
    });
    let measured = Duration::from_secs(2);
    let window = Window::new(Timestamp(0), Duration::ZERO, measured, Duration::ZERO);
    let measurement = Arc::new(Measurement::new(window));
    let recorder = Arc::new(CallRecorder::new());
    for client in 0..CLIENTS {
        let client_of_load = CallClient {
            procedures: cluster.keyspace(client),
            workload: workload.clone(),
            measurement: measurement.clone(),
            recorder: Some(recorder.clone()),
            inquiries: None,
            client: client as u64,
            clients: CLIENTS as u64,
            seed: 3,
        };
        cluster.spawn(client, client_of_load.run());
    }
    cluster.run_until_done(Timestamp(60_000_000_000)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let (keyspace, audited) = (cluster.keyspace(0), recorder.clone());
    cluster.spawn(0, async move {
        audit_calls(&keyspace, &*workload, &audited, CLIENTS as u64).await.unwrap();
        sender.send(workload.inspect(&keyspace).await).unwrap();
    });
    cluster.run_until_done(Timestamp(120_000_000_000)).unwrap();
    drop(cluster);
    let history = Arc::into_inner(recorder).expect("all clients are done").into_history();
    (measurement.report(), history, receiver.recv().unwrap())
}

fn lists(merged: bool) -> Arc<dyn ProcedureWorkload> {
    Arc::new(ListCalls::new(&ProcedureParameters { merged, ..ProcedureParameters::default() }))
}

fn counters() -> Arc<dyn ProcedureWorkload> {
    Arc::new(CounterCalls::new(&ProcedureParameters::default()).unwrap())
}

fn bank(merged: bool) -> Arc<dyn ProcedureWorkload> {
    let parameters = ProcedureParameters { merged, ..ProcedureParameters::default() };
    Arc::new(BankCalls::new(&parameters).unwrap())
}

fn verdict(history: &CallHistory) -> CallVerdict {
    check_calls(history, TransactionGuarantee::StrictlySerializable)
}

#[test]
fn lists_grow_and_their_history_is_strictly_serializable() {
    for merged in [false, true] {
        let (report, history, _) = run::<Rehearsal>(lists(merged));
        let mut kinds: Vec<&str> = report.kinds.iter().map(|kind| &*kind.kind).collect();
        kinds.retain(|kind| *kind != "link");
        assert_eq!(kinds, ["append", "chain", "follow", "guard", "read"]);
        assert_eq!(report.kinds.iter().any(|kind| kind.kind == "link"), merged);
        assert_eq!((report.failed, report.last_error), (0, None));
        let CallVerdict::Holds(summary) = verdict(&history) else {
            panic!("{}", verdict(&history));
        };
        assert!(summary.done > 500 && summary.refused > 10 && summary.keys > 20, "{summary}");
        assert_eq!(summary.unknown, 0);
    }
}

#[test]
fn writes_that_are_forgotten_show_in_the_history_of_lists() {
    let (_, history, _) = run::<Forgetting>(lists(false));
    let CallVerdict::Violation(violation) = verdict(&history) else {
        panic!("{}", verdict(&history));
    };
    assert!(violation.lost.is_some(), "{violation}");
}

#[test]
fn the_sum_of_counters_is_the_number_of_increments() {
    let (report, history, inspected) = run::<Rehearsal>(counters());
    assert!(report.committed > 500, "{}", report.committed);
    let text = inspected.unwrap().unwrap();
    let done = history.events.iter().filter(|event| event.kind == EventKind::Ok).count();
    assert_eq!(
        text,
        format!("the counters have risen by {0}, and {0} increments were acknowledged", 10 * done)
    );
    let (_, _, inspected) = run::<Forgetting>(counters());
    assert!(matches!(inspected, Err(InspectionError::Broken(_))));
}

#[test]
fn the_total_of_a_bank_stays_and_overdrafts_are_refused() {
    for merged in [false, true] {
        let (report, _, inspected) = run::<Rehearsal>(bank(merged));
        let wanted = "10 accounts hold 1000, as before, and no cash is overdrawn";
        assert_eq!(inspected.unwrap().unwrap(), wanted);
        let kinds: Vec<&str> = report.kinds.iter().map(|kind| &*kind.kind).collect();
        let wanted = ["audit", "draw", "pay", "transfer"];
        assert_eq!(kinds, wanted[..if merged { 4 } else { 3 }]);
        let pay = &report.kinds[2];
        assert!(pay.rolled_back > 20 && pay.committed > 100, "{pay:?}");
        assert_eq!(report.failed, 0);
    }
}

#[test]
fn plans_are_calls_of_the_workloads_own_procedures() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for workload in [lists(true), counters(), bank(true)] {
        assert_eq!(workload.set().validate(), Ok(()));
        for _ in 0..1000 {
            let planned = workload.plan(0, &mut random);
            let mut procedures = workload.set().procedures.iter();
            let procedure = procedures.find(|procedure| procedure.name == planned.procedure);
            serried_procedures::Call::new(procedure.unwrap(), planned.inputs).unwrap();
        }
    }
}

/// Else the workload would not show what a protocol does with pieces of different kinds.
#[test]
fn the_lists_have_deferred_and_immediate_pieces() {
    let kinds = |merged| -> Vec<String> {
        let workload = lists(merged);
        let procedures = workload.set().procedures.iter().flat_map(|procedure| {
            assert_eq!(!procedure.merged.is_empty(), procedure.name == "link");
            let immediate = procedure.pieces.iter().filter(|piece| piece.immediate);
            immediate.map(|piece| format!("{}.{}", procedure.name, piece.name))
        });
        procedures.collect()
    };
    assert_eq!(kinds(false), ["chain.first", "guard.look", "follow.begin"]);
    assert_eq!(
        kinds(true),
        ["chain.first", "guard.look", "follow.begin", "link.first", "link.second"]
    );
    assert!(!bank(false).merges() && bank(true).merges());
    let counters = counters();
    assert!(counters.set().procedures.iter().all(|procedure| !procedure.pieces[0].immediate));
}
