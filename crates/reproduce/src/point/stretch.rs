//! The part of a run that is measured.

use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_model::Geography;
use serried_sim::{Cluster, Statistics};
use serried_workload::{Measurement, Window};

/// The length of simulated time between two checks of progress.
const SLICE: Duration = Duration::from_millis(20);
/// The least length of warming up and of measuring, in longest round trips.
const LEAST_ROUND_TRIPS: u32 = 10;

/// The results of the measured part of a run.
pub(super) struct Stretch {
    /// Its length, in simulated seconds.
    pub(super) seconds: f64,
    /// Messages for each transaction or request.
    pub(super) messages_each: f64,
    /// The total time for which the replicas' cores were in use, in seconds.
    pub(super) busy_s: f64,
}

/// Lets the clients of a cluster warm up, and then measures. Each takes a set time, or ends after `most` transactions
/// or requests.
pub(super) fn observe<P: Protocol>(
    cluster: &mut Cluster<P>,
    measurement: &Measurement,
    geography: Geography,
    (warm_up, measured): (Duration, Duration),
    most: u64,
) -> Stretch {
    let sites = 0..geography.sites.len();
    let farthest = sites.map(|site| geography.longest_round_trip(site)).max();
    let least = farthest.unwrap_or_default() * LEAST_ROUND_TRIPS;

    let from = advance(cluster, measurement, least, warm_up, most);
    let window = Window::new(from, Duration::ZERO, measured, Duration::ZERO);
    measurement.move_window(window);
    let (before, committed) = (cluster.statistics(), measurement.committed_so_far());
    let until = advance(cluster, measurement, least, measured, most);
    measurement.move_window(Window { from, until, stop: until });
    let after = cluster.statistics();

    let committed = (measurement.committed_so_far() - committed).max(1) as f64;
    let busy =
        |statistics: &Statistics| statistics.replica_busy.iter().sum::<Duration>().as_secs_f64();
    let messages = after.messages.total() - before.messages.total();
    Stretch {
        seconds: until.since(from).as_secs_f64(),
        messages_each: messages as f64 / committed,
        busy_s: busy(&after) - busy(&before),
    }
}

/// Runs for `most`, or until `transactions` more have been committed, but at least for `least`. Returns the time
/// afterwards.
fn advance<P: Protocol>(
    cluster: &mut Cluster<P>,
    measurement: &Measurement,
    least: Duration,
    most: Duration,
    transactions: u64,
) -> Timestamp {
    let (begun, before) = (cluster.now(), measurement.committed_so_far());
    loop {
        let passed = cluster.now().since(begun);
        let committed = measurement.committed_so_far() - before;
        if passed >= most || passed >= least && committed >= transactions {
            return cluster.now();
        }
        cluster.run_until((cluster.now() + SLICE).min(begun + most));
    }
}
