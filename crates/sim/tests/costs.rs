//! The cost of computing, and the times at which timers fire.

mod toys;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::{Actor, ClockInterval, Protocol, Timestamp};
use serried_sim::{Clocks, Cluster, Configuration, CostModel, Fault, OneMachine, SystemCallCosts};
use toys::{BURST, Clockwork, Flood};

/// The outputs of a replica, with their times.
type Outputs<P> = Vec<(Timestamp, <<P as Protocol>::Replica as Actor>::Output)>;

fn outputs<P: Protocol>(configuration: Configuration) -> (Outputs<P>, Cluster<P>) {
    let mut cluster = Cluster::<P>::new(configuration);
    let outputs = Arc::new(Mutex::new(Vec::new()));
    let seen = outputs.clone();
    cluster.set_observer(Box::new(move |at, _, output| seen.lock().unwrap().push((at, output))));
    cluster.run_until(Timestamp(1_000_000_000));
    let outputs = std::mem::take(&mut *outputs.lock().unwrap());
    (outputs, cluster)
}

fn flood(costs: CostModel, replica_cores: usize) -> Configuration {
    Configuration { costs, replica_cores, ..Configuration::default() }
}

#[test]
fn throughput_is_bounded_by_the_cost_of_events_and_the_cores() {
    let costs = CostModel { event_ns: 1000, ..CostModel::FREE };
    for cores in [1, 2, 4] {
        let (outputs, cluster) = outputs::<Flood>(flood(costs, cores));
        assert_eq!(outputs.len() as u64, BURST);
        let (first, last) = (outputs[0].0, outputs[outputs.len() - 1].0);
        // The client takes 1 us to start, a message 50 us, and the replica 1 us for each.
        assert_eq!(first, Timestamp(52_000));
        assert_eq!((last - first).as_nanos() as u64, (BURST / cores as u64 - 1) * 1000);
        let statistics = cluster.statistics();
        assert_eq!(statistics.replica_busy[0], Duration::from_micros(BURST + 1));
        assert_eq!(statistics.longest_queue, BURST as usize - cores);
    }
}

#[test]
fn a_cost_is_the_sum_of_its_parts() {
    let sending = CostModel { sent_message_ns: 10, ..CostModel::FREE };
    let (sent, _) = outputs::<Flood>(flood(sending, 1));
    assert!(sent.iter().all(|(at, _)| *at == Timestamp(BURST * 10 + 50_000)));
    // A number below 128 is one byte long, one below 2^14 two.
    let by_the_byte = CostModel { byte_ps: 7000, ..CostModel::FREE };
    let (sent, cluster) = outputs::<Flood>(flood(by_the_byte, 1));
    let bytes = 2 * BURST - 128;
    assert_eq!(sent.last().map(|(at, _)| *at), Some(Timestamp(50_000 + 7 * bytes)));
    assert_eq!(cluster.statistics().bytes, bytes);
}

#[test]
fn computing_may_be_free() {
    let (outputs, cluster) = outputs::<Flood>(flood(CostModel::FREE, 1));
    assert!(outputs.iter().all(|(at, _)| *at == Timestamp(50_000)));
    assert_eq!(cluster.events(), BURST + 4);
}

fn fired(configuration: Configuration) -> Vec<(char, Timestamp, Duration, ClockInterval)> {
    let outputs = outputs::<Clockwork>(configuration).0;
    outputs.into_iter().map(|(at, (timer, local, clock))| (timer, at, local, clock)).collect()
}

#[test]
fn setting_a_timer_again_moves_it_and_cancelling_stops_it() {
    let fired = fired(flood(CostModel::FREE, 1));
    let fired: Vec<_> = fired.into_iter().map(|(timer, at, ..)| (timer, at.0 / 1000)).collect();
    assert_eq!(fired, [('a', 200), ('c', 300), ('d', 700)]);
}

#[test]
fn a_timer_moved_while_its_event_waits_for_a_core_fires_once() {
    // Serving `c`, which moves `d`, ends long after `d` was due.
    let costs = CostModel { event_ns: 250_000, ..CostModel::FREE };
    let fired: Vec<_> = fired(flood(costs, 1)).into_iter().map(|(timer, ..)| timer).collect();
    assert_eq!(fired, ['a', 'c', 'd']);
}

#[test]
fn a_drifting_node_sets_its_timers_by_its_own_clock() {
    let clocks = Clocks { skew: Duration::from_millis(5), drift_ppm: 100_000 };
    let mut shortest = u64::MAX;
    for seed in 0..50 {
        for (timer, at, local, clock) in
            fired(Configuration { seed, clocks, ..flood(CostModel::FREE, 1) })
        {
            let due_us = match timer {
                'a' => 200,
                'c' => 300,
                _ => 700,
            };
            let due = Duration::from_micros(due_us);
            assert!(local >= due && local < due + Duration::from_micros(1));
            assert!(at.0.abs_diff(due_us * 1000) <= due_us * 112);
            let truth_us = 1_700_000_000_000_000 + at.0 / 1000;
            assert!(clock.earliest_us <= truth_us && truth_us <= clock.latest_us);
            shortest = shortest.min(at.0 / due_us);
        }
    }
    assert!(shortest < 950, "some clock runs fast");
}

#[test]
fn a_clock_that_jumps_is_wrong_until_it_jumps_back() {
    let mut cluster = Cluster::<Clockwork>::new(flood(CostModel::FREE, 1));
    let shown = Arc::new(Mutex::new(Vec::new()));
    let seen = shown.clone();
    cluster.set_observer(Box::new(move |_, _, (_, _, clock)| {
        seen.lock().unwrap().push(clock.midpoint_us() - 1_700_000_000_000_000);
    }));
    let jump = cluster.begin(Fault::ClockJump(serried_model::NodeId(0), 5_000));
    cluster.run_until(Timestamp(250_000));
    cluster.end(jump);
    cluster.run_until(Timestamp(1_000_000));
    assert_eq!(*shown.lock().unwrap(), [5_200, 300, 700]);
}

#[test]
fn a_client_may_have_costs_of_its_own() {
    let replica = CostModel { event_ns: 1000, ..CostModel::FREE };
    let (sent, cluster) = outputs::<Flood>(Configuration {
        client_costs: Some(CostModel::FREE),
        ..flood(replica, 1)
    });
    assert_eq!(sent[0].0, Timestamp(51_000));
    let statistics = cluster.statistics();
    assert_eq!(statistics.client_busy, Duration::ZERO);
    assert_eq!(statistics.replica_busy[0], Duration::from_micros(BURST + 1));
}

#[test]
fn on_one_machine_reading_and_writing_a_connection_costs_a_system_call() {
    let costs = SystemCallCosts::only;
    let one_machine = Some(OneMachine { cores: 4, replica: costs(1000), client: costs(10) });
    let (outputs, cluster) =
        outputs::<Flood>(Configuration { one_machine, ..flood(CostModel::FREE, 1) });
    assert_eq!(outputs.len() as u64, BURST);
    let statistics = cluster.statistics();
    assert_eq!(statistics.client_busy, Duration::from_nanos(10), "it writes once for all messages");
    // The first message gets the replica a core, and all others wait until it takes its next turn.
    assert_eq!(statistics.replica_busy[0], Duration::from_nanos(2000));
    assert_eq!(statistics.replica_busy[1], Duration::ZERO);
}
