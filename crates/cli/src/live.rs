//! `serried windows` on a running cluster.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;
use serried::{Client, Database, Durability, WatchOptions, Watched};
use serried_actor::{Observation, Timestamp};
use serried_model::Key;
use serried_reproduce::Costs;
use serried_windows::{
    Collector, Diagnosis, KeyWindows, MANY_ATTEMPTS, Setting, Trips, analyse, diagnose,
};

use crate::Ended;
use crate::hot::{alike, setting};
use crate::progress::Progress;
use crate::windows::{CONSIDERED, LEAST_MARGIN, MARGIN_ROUND_TRIPS, MOST_EVENTS, Shown, Windows};

/// What a node has shown.
#[derive(Serialize)]
struct Seen<'a> {
    cluster: &'a str,
    keyspace: &'a str,
    protocol: &'a str,
    /// The node that was watched.
    observed_by: String,
    /// What is shown, in nanoseconds by the node's clock.
    from_ns: u64,
    until_ns: u64,
    /// How many events were dropped for lack of memory: if there are any, windows are missing.
    forgotten: u64,
    /// Committed transactions per second, attempts for each if they are known, and how many are in progress at a time.
    committed_per_s: f64,
    attempts_per_txn: Option<f64>,
    in_progress: f64,
    /// What would help the keys, in their order.
    advice: Vec<Diagnosis>,
    keys: Vec<KeyWindows>,
}

/// Watches the nearest node of the cluster at `address`, and shows what came of it.
pub(crate) fn run(windows: &Windows, address: &str) -> anyhow::Result<Ended> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let database = Database::connect(address).await?;
        let client = database.client();
        let margin = (client.longest_round_trip() * MARGIN_ROUND_TRIPS).max(LEAST_MARGIN);
        let named: Vec<Key> = windows.keys.iter().map(|key| Key::from(key.as_str())).collect();
        let options = WatchOptions {
            keys: named.clone(),
            hottest: u16::try_from(windows.hottest.max(CONSIDERED)).unwrap_or(u16::MAX),
            count: Duration::from_secs_f64(windows.sim.load.warm_up),
            record: windows.span + margin * 2,
        };
        let watching = client.watch(&windows.keyspace, options).await?;
        let progress = Progress::new(windows.sim.load.json);
        progress.say(format!("watching {}", watching.node()));
        let watched = watching.finish().await?;
        drop(progress);

        let recorded = Timestamp(watched.from_ns)..Timestamp(watched.until_ns);
        let from = recorded.start + margin;
        let shown = from..(from + windows.span).min(recorded.end).max(from);
        let (node, forgotten, nothing) =
            (watched.node, watched.forgotten, watched.observed.is_empty());
        let recorded_s = recorded.end.since(recorded.start).as_secs_f64();
        let (committed, attempts) = (watched.committed as f64, attempts(&watched));
        let committed_before = watched.committed_before as f64;
        let hottest = windows.hottest.max(CONSIDERED);
        let mut keys = analysed(watched, named.clone(), hottest, shown.clone());
        let keyspaces = database.keyspaces();
        let keyspace = keyspaces.iter().find(|found| found.name == windows.keyspace);
        let protocol = keyspace.map_or("", |found| &*found.protocol);
        if nothing && !windows.sim.load.json {
            println!(
                "{node} observed nothing in keyspace `{}` under `{protocol}`: no transaction wrote {}, \
                 or the protocol's replicas report nothing (see `serried windows --sim`)",
                windows.keyspace,
                if windows.keys.is_empty() { "anything" } else { "these keys" },
            );
        }
        let mut setting = Setting {
            committed_per_s: committed / recorded_s.max(1e-9),
            attempts,
            ..setting(protocol)
        };
        measure(&mut setting, (client, address), &keys).await;
        // On a busy machine less commits while it records. What was counted before is the truth.
        let unwatched = committed_before / windows.sim.load.warm_up.max(1e-9);
        let faster = match named.is_empty() && unwatched > 0.0 {
            true => (unwatched / setting.committed_per_s.max(1e-9)).max(1.0),
            false => 1.0,
        };
        setting.committed_per_s *= faster;
        let considered: Vec<KeyWindows> = keys.iter().map(|key| key.times(faster)).collect();
        let mut advice = diagnose(&considered, &setting);
        if named.is_empty() {
            keys.truncate(windows.hottest);
            advice.truncate(windows.hottest);
        }
        let seen = Seen {
            committed_per_s: setting.committed_per_s,
            attempts_per_txn: setting.attempts,
            in_progress: setting.clients,
            advice,
            cluster: client.cluster(),
            keyspace: &windows.keyspace,
            protocol,
            observed_by: node.to_string(),
            from_ns: shown.start.0,
            until_ns: shown.end.0,
            forgotten,
            keys,
        };
        let title = format!(
            "{protocol}, keyspace `{}` of cluster `{}`: {} ms as {node} sees them",
            windows.keyspace,
            seen.cluster,
            windows.span.as_secs_f64() * 1e3,
        );
        let shown = Shown { keys: &seen.keys, advice: &seen.advice, shown, forgotten, title };
        windows.show(&shown, &seen, windows.svg.as_deref())?;
        if seen.attempts_per_txn.is_none() && !nothing && !windows.sim.load.json {
            println!(
                "{node} leads too few of the partitions of these keys to know how many attempts abort: advice that \
                 depends on that is missing"
            );
        }
        database.close().await;
        Ok(Ended::Well)
    })
}

/// Attempts per commit at the partitions that the node leads. They say nothing of the keys if it leads hardly any of
/// theirs: unless at least half of the keys' commits are at partitions that it leads, they are unknown.
fn attempts(watched: &Watched) -> Option<f64> {
    let of_keys = watched.observed.iter().filter_map(|observed| match observed.what {
        Observation::Committed { leads, .. } => Some(leads),
        _ => None,
    });
    let (led, all) = of_keys.fold((0, 0), |(led, all), leads| (led + u64::from(leads), all + 1));
    let committed = watched.committed_where_it_leads as f64;
    (all > 0 && led * 2 >= all).then(|| (committed + watched.aborted as f64) / committed.max(1.0))
}

/// The windows of the named keys, or of those that were written most: each of the node's cores has chosen
/// some of its own.
fn analysed(
    watched: Watched,
    named: Vec<Key>,
    hottest: usize,
    shown: Range<Timestamp>,
) -> Vec<KeyWindows> {
    let mut collector = Collector::new(MOST_EVENTS);
    collector.set_clock(watched.clock_began_us);
    if named.is_empty() {
        watched.observed.iter().for_each(|observed| collector.observe(observed.clone()));
        collector.choose_hottest(hottest);
    } else {
        collector.choose(named);
    }
    watched.observed.into_iter().for_each(|observed| collector.observe(observed));
    analyse(&collector.finish(), shown)
}

/// How many clients there are taken to be at least, if attempts abort so often that many of them pause.
const HIDDEN_CLIENTS: f64 = 64.0;

/// How long a flush takes where commits wait for it, in milliseconds: a usual disk.
const FLUSH_MS: f64 = 0.2;

/// How much of a processor flushes take for each core of a node, if it is busy and commits wait for them: it then flushes
/// without a pause.
const FLUSHING: f64 = 0.29;

/// What flushes of so many cores of nodes leave of `cores`: at least half.
fn without_flushes(cores: f64, of_nodes: f64) -> f64 {
    (cores - FLUSHING * of_nodes).max(cores / 2.0)
}

/// Fills in the distances, the processors, and how many transactions are in progress at a time.
async fn measure(setting: &mut Setting, (client, address): (&Client, &str), keys: &[KeyWindows]) {
    let statuses: Vec<_> = client.node_statuses().await.into_iter().flatten().collect();
    let flushes = statuses.iter().any(|status| status.durability == Durability::Sync);
    setting.trips = Trips {
        flush_ms: if flushes { FLUSH_MS } else { 0.0 },
        event_ms: Costs::default().replica.event_ns as f64 / 1e6,
        ..alike(client.longest_round_trip().as_secs_f64() * 1e3)
    };
    let of_nodes: f64 = statuses.iter().map(|status| f64::from(status.cores)).sum();
    let cores = match ["//127.", "//localhost", "//[::1]"].iter().any(|host| address.contains(host))
    {
        // Nodes and clients share the cores of this machine.
        true => std::thread::available_parallelism().ok().map(|cores| cores.get() as f64),
        false => Some(of_nodes),
    };
    setting.cores = cores.map(|cores| match flushes {
        true => without_flushes(cores, of_nodes),
        false => cores,
    });
    // Little's law. Transactions whose keys are not watched are taken to last as long as the others.
    let timed = keys.iter().filter_map(|key| Some((key.achieved_per_s, key.latency_ms?)));
    let (per_s, weighed) =
        timed.fold((0.0, 0.0), |(sum, weighed), (per_s, ms)| (sum + per_s, weighed + per_s * ms));
    let latency_ms = if per_s > 0.0 { weighed / per_s } else { 1.0 };
    let clients = setting.committed_per_s * latency_ms / 1e3;
    // Where attempts abort, most clients pause before the next one, and nobody sees them.
    let aborts = setting.attempts.is_some_and(|attempts| attempts >= MANY_ATTEMPTS);
    let hidden = if aborts { HIDDEN_CLIENTS } else { 1.0 };
    setting.clients = clients.max(hidden);
}

#[cfg(test)]
mod tests {
    use serried_actor::Observed;
    use serried_model::{NodeId, Version};

    use super::*;

    /// A node that saw commits of the watched keys, each of them as a leader or not.
    fn watched(led: &[bool], committed_where_it_leads: u64, aborted: u64) -> Watched {
        let committed = |leads: &bool| Observed {
            at_ns: 1,
            node: NodeId(0),
            what: Observation::Committed {
                version: Version::INITIAL,
                reads: Vec::new(),
                writes: vec![Key::from("key")],
                leads: *leads,
            },
        };
        Watched {
            node: NodeId(0),
            from_ns: 0,
            until_ns: 1,
            observed: led.iter().map(committed).collect(),
            forgotten: 0,
            committed: 1000,
            committed_where_it_leads,
            aborted,
            committed_before: 0,
            clock_began_us: 0,
        }
    }

    #[test]
    fn flushes_take_processors_from_transactions_but_never_more_than_half() {
        let left = without_flushes(4.0, 3.0);
        assert!((2.5..4.0).contains(&left), "{left}");
        assert_eq!(without_flushes(2.0, 30.0), 1.0);
    }

    #[test]
    fn attempts_are_known_only_where_the_node_leads_the_partitions_of_the_keys() {
        assert_eq!(attempts(&watched(&[true, true], 10, 20)), Some(3.0));
        assert_eq!(attempts(&watched(&[true, false], 10, 0)), Some(1.0));
        assert_eq!(attempts(&watched(&[true, false, false], 10, 0)), None);
        assert_eq!(attempts(&watched(&[], 0, 20)), None);
    }
}
