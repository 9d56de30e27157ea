//! A run in which all clients die.

use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_sim::Cluster;
use serried_workload::{Measurement, Window};

use super::stretch::Stretch;
use crate::effort::Deaths;

/// The length of the slots in which throughput over time is counted.
pub(crate) const SLOT: Duration = Duration::from_millis(250);

/// Runs a cluster until its clients die, calls `replace`, which starts others in their place, and runs these until the
/// end. `over_time` then has the transactions committed per second, slot by slot.
pub(super) fn survive<P: Protocol>(
    cluster: &mut Cluster<P>,
    measurement: &Measurement,
    deaths: Deaths,
    over_time: &mut Vec<f64>,
    replace: impl FnOnce(&mut Cluster<P>),
) -> Stretch {
    let (from, seconds) = (cluster.now(), deaths.at_s + deaths.then_s);
    let die = from + Duration::from_secs_f64(deaths.at_s);
    let until = from + Duration::from_secs_f64(seconds);
    measurement.move_window(Window { from, until, stop: until });
    observe(cluster, measurement, die, over_time);
    replace(cluster);
    observe(cluster, measurement, until, over_time);
    let statistics = cluster.statistics();
    let committed = measurement.committed_so_far().max(1) as f64;
    Stretch {
        seconds,
        messages_each: statistics.messages.total() as f64 / committed,
        busy_s: statistics.replica_busy.iter().sum::<Duration>().as_secs_f64(),
    }
}

fn observe<P: Protocol>(
    cluster: &mut Cluster<P>,
    measurement: &Measurement,
    until: Timestamp,
    over_time: &mut Vec<f64>,
) {
    while cluster.now() < until {
        let (begun, before) = (cluster.now(), measurement.committed_so_far());
        cluster.run_until((begun + SLOT).min(until));
        let committed = measurement.committed_so_far() - before;
        over_time.push(committed as f64 / cluster.now().since(begun).as_secs_f64());
    }
}
