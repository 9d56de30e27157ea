//! Clients in an open loop, in simulated time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_history::{EventKind, History, MicroOperation, Recorder};
use serried_model::{FamilyName, Transactions};
use serried_protocols::{Visitor, of, visit};
use serried_sim::{Cluster, Configuration, CostModel, Initial};
use serried_workload::{Measurement, OpenLoop, Parameters, Report, Window, named};

const CLIENTS: usize = 2;
/// How many a client may have open: so few that some are dropped, and more than ever are.
const FEW: usize = 3;
const MANY: usize = 1000;

/// Half a second of an open loop on replicas whose events take so long each.
struct Run {
    rate_per_s: f64,
    event_ns: u64,
    most_open: usize,
}

/// What a run left behind: its report, its history and its events.
type Left = (Report, History, u64);

impl Visitor<Transactions> for Run {
    type Output = Left;

    fn visit<P: Protocol<Family = Transactions>>(self) -> Left {
        let parameters =
            Parameters { keys: Some(10_000), writes: Some(0.2), ..Parameters::default() };
        let workload = named("f1", &parameters).unwrap();
        let initial = workload.clone();
        let mut cluster = Cluster::<P>::new(Configuration {
            clients: CLIENTS,
            costs: CostModel { event_ns: self.event_ns, ..CostModel::FREE },
            client_costs: Some(CostModel::FREE),
            initial: Some(Initial::new(move |key| initial.initial_value(key))),
            ..Configuration::default()
        });
        let measured = Duration::from_millis(500);
        let window = Window::new(Timestamp(0), Duration::ZERO, measured, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        let recorder = Arc::new(Recorder::new());
        for client in 0..CLIENTS {
            let open_loop = OpenLoop {
                keyspace: cluster.keyspace(client),
                workload: workload.clone(),
                measurement: measurement.clone(),
                recorder: Some(recorder.clone()),
                client: client as u64,
                seed: 5,
                rate_per_s: self.rate_per_s / CLIENTS as f64,
                most_open: self.most_open,
            };
            cluster.spawn(client, open_loop.run());
        }
        cluster.run_until_done(Timestamp(100_000_000_000)).unwrap();
        let events = cluster.event_hash();
        drop(cluster);
        let history = Arc::into_inner(recorder).expect("all clients are done").into_history();
        (measurement.report(), history, events)
    }
}

fn every_protocol(run: impl Fn() -> Run, check: impl Fn(&str, Left)) {
    for protocol in of(FamilyName::Transactions) {
        check(protocol.name, visit(protocol.name, run()).unwrap());
    }
}

/// The most transactions that were open at once, and the number of processes.
fn most_open(history: &History) -> (usize, usize) {
    let (mut open, mut most) = (0, 0);
    let mut processes: Vec<u64> = history.events.iter().map(|event| event.process).collect();
    for event in &history.events {
        match event.kind {
            EventKind::Invoke => open += 1,
            _ => open -= 1,
        }
        most = most.max(open);
    }
    processes.sort_unstable();
    processes.dedup();
    (most, processes.len())
}

#[test]
fn what_a_system_can_take_is_all_done_at_the_rate_at_which_it_arrives() {
    every_protocol(
        || Run { rate_per_s: 400.0, event_ns: 1000, most_open: MANY },
        |protocol, (report, _, _)| {
            let arrivals = report.arrivals.expect("transactions arrived");
            assert_eq!((arrivals.failed, arrivals.dropped), (0, 0), "{protocol}");
            assert_eq!(arrivals.offered, arrivals.done);
            assert!((150..250).contains(&arrivals.offered), "{}", arrivals.offered);
            assert_eq!(arrivals.late_us_mean, 0.0, "simulated clients take no time");
        },
    );
}

#[test]
fn an_overloaded_system_is_offered_as_much_and_what_is_open_stays_bounded_as_the_rest_is_dropped() {
    every_protocol(
        || Run { rate_per_s: 40_000.0, event_ns: 100_000, most_open: FEW },
        |protocol, (report, history, _)| {
            let arrivals = report.arrivals.expect("transactions arrived");
            assert!((19_000..21_000).contains(&arrivals.offered), "{protocol}: {arrivals:?}");
            assert!(arrivals.dropped > arrivals.done && arrivals.done > 50, "{arrivals:?}");
            assert_eq!(arrivals.offered, arrivals.done + arrivals.failed + arrivals.dropped);
            let begun = history.events.iter().filter(|event| event.kind == EventKind::Invoke);
            assert_eq!(begun.count() as u64, arrivals.done + arrivals.failed);
            let bound = CLIENTS * FEW;
            assert_eq!(most_open(&history), (bound, bound), "{protocol}");
        },
    );
}

#[test]
fn a_seed_decides_everything_that_happens() {
    every_protocol(
        || Run { rate_per_s: 4000.0, event_ns: 20_000, most_open: FEW },
        |protocol, (report, history, events)| {
            let again =
                visit(protocol, Run { rate_per_s: 4000.0, event_ns: 20_000, most_open: FEW })
                    .unwrap();
            assert_eq!((report, history, events), again, "{protocol}");
        },
    );
}

#[test]
fn the_same_transactions_arrive_at_the_same_times_whatever_becomes_of_those_before_them() {
    let begun = |event_ns, most_open| {
        let run = Run { rate_per_s: 4000.0, event_ns, most_open };
        let protocol = of(FamilyName::Transactions).next().expect("there is one");
        let (report, history, _) = visit(protocol.name, run).unwrap();
        let begun = history.events.into_iter().filter(|event| event.kind == EventKind::Invoke);
        let begun: BTreeMap<u64, Vec<MicroOperation>> =
            begun.map(|event| (event.time_ns, event.operations)).collect();
        (begun, report.arrivals.expect("transactions arrived"))
    };
    let ((all, at_ease), (some, overloaded)) = (begun(100, MANY), begun(100_000, FEW));
    assert_eq!((at_ease.dropped, at_ease.offered), (0, overloaded.offered));
    assert!(overloaded.dropped > 100 && some.len() > 50);
    assert!(some.iter().all(|(at, operations)| all.get(at) == Some(operations)));
}
