use super::*;

/// An error that says whether the outcome is unknown.
#[derive(Debug, thiserror::Error)]
#[error("failed")]
struct Failed {
    is_unknown: bool,
}

impl Failure for Failed {
    fn is_unknown(&self) -> bool {
        self.is_unknown
    }
}

fn window() -> Window {
    Window::new(Timestamp(0), Duration::ZERO, Duration::from_secs(2), Duration::ZERO)
}

fn version(timestamp_us: u64) -> Version {
    Version { timestamp_us, ..Version::INITIAL }
}

#[test]
fn planned_rollbacks_are_counted_by_kind_and_are_no_failures() {
    let measurement = Measurement::new(window());
    let end = Timestamp(1_000_000);
    let committed = Committed { value: (), version: version(7), attempts: 1, re_executions: 0 };
    let commit = Ok((committed, Footprint::default()));
    measurement.enter("order", Timestamp(0), end, &commit);
    measurement.enter("payment", Timestamp(0), end, &commit);
    let planned = Err(TransactionError::Application(Box::new(RolledBack("no such item"))));
    measurement.enter::<()>("order", Timestamp(0), end, &planned);
    let failed = Err(TransactionError::Application("unplanned".into()));
    measurement.enter::<()>("payment", Timestamp(0), end, &failed);
    let report = measurement.report();
    assert_eq!((report.committed, report.rolled_back, report.failed), (2, 1, 1));
    assert!(report.last_error.is_some_and(|error| error.contains("unplanned")));
    let of_kind =
        |kind: &KindReport| (kind.kind.clone(), kind.committed, kind.rolled_back, kind.failed);
    let kinds: Vec<_> = report.kinds.iter().map(of_kind).collect();
    assert_eq!(kinds, [("order".into(), 1, 1, 0), ("payment".into(), 1, 0, 1)]);
    assert_eq!(report.kinds[0].goodput_per_s, 0.5);
}

#[test]
fn a_request_ends_with_its_last_operation_and_fails_with_any() {
    let measurement = Measurement::new(window());
    let at = |ms: u64| Timestamp(ms * 1_000_000);
    let part = |kind, ended, result| Part { kind, ended: at(ended), result };
    let request = [part("read", 14, Ok(())), part("write", 19, Ok(())), part("read", 12, Ok(()))];
    measurement.enter_request(at(10), &request);
    let failed = Failed { is_unknown: false };
    let request = [part("read", 30, Err(failed)), part("read", 21, Ok(()))];
    measurement.enter_request(at(20), &request);
    let report = measurement.report();
    assert_eq!((report.committed, report.failed, report.unknown), (1, 1, 0));
    // Latencies are kept to three digits.
    assert!((9000..9010).contains(&report.latency_us_p50) && report.commit_rate == 0.5);
    let of_kind = |kind: &KindReport| (kind.kind.clone(), kind.committed, kind.failed);
    let kinds: Vec<_> = report.kinds.iter().map(of_kind).collect();
    assert_eq!(kinds, [("read".into(), 3, 1), ("write".into(), 1, 0)]);
    let reads = measurement.quantiles_us("read", &[0.0, 1.0]).unwrap();
    assert!((1000..1002).contains(&reads[0]) && (4000..4005).contains(&reads[1]));
    assert_eq!(measurement.quantiles_us("rmw", &[0.5]), None);
    assert_eq!(measurement.committed_so_far(), 1);
}

#[test]
fn a_request_has_an_unknown_outcome_if_one_of_its_operations_has() {
    let measurement = Measurement::new(window());
    let part = |is_unknown| {
        let result = Err(Failed { is_unknown });
        Part { kind: "write", ended: Timestamp(1_000_000), result }
    };
    measurement.enter_request(Timestamp(0), &[part(false), part(true), part(true)]);
    measurement.enter_request(Timestamp(0), &[part(false)]);
    let report = measurement.report();
    assert_eq!((report.failed, report.unknown), (2, 1));
}

#[test]
fn arrivals_in_the_window_are_done_failed_or_dropped() {
    let measurement = Measurement::new(window());
    assert_eq!(measurement.report().arrivals, None);
    let late = Duration::from_micros(300);
    for how in [Arrival::Done, Arrival::Done, Arrival::Failed, Arrival::Dropped] {
        measurement.enter_arrival(Timestamp(0), late, how);
        measurement.enter_arrival(Timestamp(2_000_000_000), late, how);
    }
    let arrivals = measurement.report().arrivals.unwrap();
    let ArrivalReport { offered, done, failed, dropped, .. } = arrivals;
    assert_eq!((offered, done, failed, dropped), (4, 2, 1, 1));
    assert_eq!((arrivals.offered_per_s, arrivals.late_us_mean), (2.0, 300.0));
}

#[test]
fn the_results_of_two_processes_are_those_of_one_that_did_both() {
    let failed = Failed { is_unknown: true };
    let at = |ms: u64| Timestamp(ms * 1_000_000);
    let part = |kind, ms, result| Part { kind, ended: at(ms), result };
    let requests = [
        vec![part("read", 3, Ok(())), part("write", 5, Ok(()))],
        vec![part("read", 7, Err(failed))],
        vec![part("rmw", 700, Ok(()))],
    ];
    let [both, one, other] = [window(); 3].map(Measurement::new);
    for (i, request) in requests.iter().enumerate() {
        both.enter_request(at(1), request);
        [&one, &other][i % 2].enter_request(at(1), request);
    }
    let committed = Committed { value: (), version: version(9), attempts: 2, re_executions: 3 };
    let footprint = Footprint { reads_sent_by_re_executions: 4, ..Footprint::default() };
    for measurement in [&both, &other] {
        for how in [Arrival::Done, Arrival::Failed, Arrival::Dropped] {
            measurement.enter_arrival(at(1), Duration::from_micros(300), how);
        }
        let done = Ok((committed.clone(), footprint.clone()));
        measurement.enter("transaction", at(1), at(4), &done);
        let planned = TransactionError::Application(RolledBack("as planned").into());
        measurement.enter::<()>("transaction", at(1), at(4), &Err(planned));
    }
    one.add(other.results());
    assert_eq!(one.report(), both.report());
    assert_eq!((one.committed_so_far(), one.latest()), (3, version(9)));
    assert_eq!(one.report().rolled_back, 1);
}

#[test]
fn a_transaction_of_unknown_outcome_counts_among_the_latest() {
    let measurement = Measurement::new(window());
    assert_eq!(measurement.latest(), Version::INITIAL);
    let unknown = TransactionError::Unknown { txn: version(9), deadline: Duration::ZERO };
    measurement.enter::<()>("any", Timestamp(0), Timestamp(5_000_000_000), &Err(unknown));
    assert_eq!(measurement.latest(), version(9));
}

#[test]
fn who_has_waited_for_most_of_the_time_when_it_ends_is_counted_and_has_no_latency() {
    let measurement = Measurement::new(window());
    let at = |ms: u64| Timestamp(ms * 1_000_000);
    let enter = |begun, ended| {
        let planned = TransactionError::Application(RolledBack("as planned").into());
        measurement.enter::<()>("transaction", at(begun), at(ended), &Err(planned));
        let part = Part::<Failed> { kind: "read", ended: at(ended), result: Ok(()) };
        measurement.enter_request(at(begun), &[part]);
    };
    // It lasts for two seconds. These ended before, or began after, or were begun shortly before its end.
    for (begun, ended) in [(1990, 1999), (2000, 9000), (1001, 2500)] {
        enter(begun, ended);
    }
    assert_eq!(measurement.report().waiting, 0);
    enter(999, 2000);
    enter(0, 9000);
    let report = measurement.report();
    assert_eq!((report.waiting, report.committed), (4, 1));
    let other = Measurement::new(window());
    other.add(measurement.results());
    assert_eq!(other.report().waiting, 4);
    // Where all are slow, nobody waits for others.
    let slow = Measurement::new(window());
    for (begun, ended) in [(0, 300), (400, 2400)] {
        let part = Part::<Failed> { kind: "read", ended: at(ended), result: Ok(()) };
        slow.enter_request(at(begun), &[part]);
    }
    assert_eq!((slow.report().waiting, slow.report().committed), (0, 1));
}
