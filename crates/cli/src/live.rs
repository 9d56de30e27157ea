//! `serried windows` on a running cluster.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;
use serried::{Database, WatchOptions, Watched};
use serried_actor::Timestamp;
use serried_model::Key;
use serried_windows::{Collector, KeyWindows, analyse};

use crate::Ended;
use crate::progress::Progress;
use crate::windows::{LEAST_MARGIN, MARGIN_ROUND_TRIPS, MOST_EVENTS, Shown, Windows};

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
            hottest: u16::try_from(windows.hottest).unwrap_or(u16::MAX),
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
        let keys = analysed(watched, named, windows.hottest, shown.clone());
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
        let seen = Seen {
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
        let shown = Shown { keys: &seen.keys, shown, forgotten, title };
        windows.show(&shown, &seen, windows.svg.as_deref())?;
        database.close().await;
        Ok(Ended::Well)
    })
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
    if named.is_empty() {
        watched.observed.iter().for_each(|observed| collector.observe(observed.clone()));
        collector.choose_hottest(hottest);
    } else {
        collector.choose(named);
    }
    watched.observed.into_iter().for_each(|observed| collector.observe(observed));
    analyse(&collector.finish(), shown)
}
