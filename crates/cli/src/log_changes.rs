//! Log lines for changes of a node that are states, not events: which partitions it leads, and whether it serves.
//!
//! A replica reports such a state only as a gauge, and a node's health only to those who ask. So this asks regularly. A
//! change that is undone within the interval is not logged.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use serried_node::NodeObserver;
use tokio::time::Instant;

/// How often the node is asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);
/// How many partitions of a keyspace a line lists.
const MOST_LISTED: usize = 16;
/// The gauge of replicas that lead.
const LEADS: &str = "serried_partition_leads{";

/// Logs changes of `node` for as long as it is polled.
pub(crate) async fn log_changes(node: NodeObserver) -> Infallible {
    let mut led = Partitions::new();
    let mut health = Health::Unknown;
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let leads = led_partitions(&node.metrics());
        for (keyspace, partitions) in listed(&leads, &led) {
            tracing::info!(keyspace, partitions, "leads partitions");
        }
        for (keyspace, partitions) in listed(&led, &leads) {
            tracing::info!(keyspace, partitions, "no longer leads partitions");
        }
        led = leads;
        health = health.next(node.health(), Instant::now());
    }
}

/// Numbers of partitions, by keyspace.
type Partitions = BTreeMap<String, BTreeSet<u16>>;

/// The partitions that a node leads, from its metrics.
fn led_partitions(metrics: &str) -> Partitions {
    let mut led = Partitions::new();
    for line in metrics.lines() {
        let Some(labels) = line.strip_prefix(LEADS).and_then(|rest| rest.strip_suffix("} 1"))
        else {
            continue;
        };
        let found = labels.rsplit_once(",partition=").and_then(|(keyspace, number)| {
            let keyspace = keyspace.strip_prefix("keyspace=\"")?.strip_suffix('"')?;
            Some((keyspace, number.trim_matches('"').parse().ok()?))
        });
        if let Some((keyspace, number)) = found {
            led.entry(keyspace.to_string()).or_default().insert(number);
        }
    }
    led
}

/// What is in `some` and not in `others`, as text for each keyspace.
fn listed(some: &Partitions, others: &Partitions) -> Vec<(String, String)> {
    let mut lists = Vec::new();
    for (keyspace, numbers) in some {
        let is_other = |number: &&u16| others.get(keyspace).is_some_and(|set| set.contains(number));
        let numbers: Vec<&u16> = numbers.iter().filter(|number| !is_other(number)).collect();
        if numbers.is_empty() {
            continue;
        }
        let first: Vec<String> =
            numbers.iter().take(MOST_LISTED).map(ToString::to_string).collect();
        let mut list = first.join(", ");
        if numbers.len() > MOST_LISTED {
            list += &format!(" and {} more", numbers.len() - MOST_LISTED);
        }
        lists.push((keyspace.clone(), list));
    }
    lists
}

/// What was logged last of a node's health.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Health {
    Unknown,
    /// It has not served since it started.
    Starts,
    /// When the last warning was logged, if there was one.
    Serves {
        warned: Option<Instant>,
    },
    /// When this was logged.
    Fails {
        warned: Instant,
    },
}

impl Health {
    /// Logs what is new. Returns what was logged last.
    fn next(self, health: Result<(), String>, now: Instant) -> Health {
        match (self, health) {
            (Health::Unknown, Err(reason)) => {
                tracing::info!(reason, "does not serve yet");
                Health::Starts
            }
            (Health::Unknown | Health::Starts, Ok(())) => {
                tracing::info!("serves");
                Health::Serves { warned: None }
            }
            (Health::Fails { warned }, Ok(())) => {
                tracing::info!("serves again");
                Health::Serves { warned: Some(warned) }
            }
            (Health::Serves { warned }, Err(reason))
                if warned.is_none_or(|warned| now - warned >= WARNING_INTERVAL) =>
            {
                tracing::warn!(reason, "does not serve");
                Health::Fails { warned: now }
            }
            (unchanged, _) => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_that_are_led_are_found_in_metrics() {
        let metrics = "# TYPE serried_partition_leads gauge\n\
                       serried_partition_leads{keyspace=\"flags\",partition=\"0\"} 1\n\
                       serried_partition_leads{keyspace=\"flags\",partition=\"1\"} 0\n\
                       serried_partition_leads{keyspace=\"a \\\"b\\\",partition=\\\"\",partition=\"12\"} 1\n\
                       serried_partition_log_slots{keyspace=\"flags\",partition=\"1\"} 1\n";
        let expected = [("a \\\"b\\\",partition=\\\"", 12), ("flags", 0)]
            .map(|(keyspace, number)| (keyspace.to_string(), BTreeSet::from([number])));
        assert_eq!(led_partitions(metrics), BTreeMap::from(expected));
    }

    #[test]
    fn changes_are_listed_by_keyspace_and_long_lists_are_cut() {
        let partitions = |keyspace: &str, numbers: core::ops::Range<u16>| {
            Partitions::from([(keyspace.to_string(), numbers.collect())])
        };
        let list = |keyspace: &str, text: &str| vec![(keyspace.to_string(), text.to_string())];
        let (none, few) = (Partitions::new(), partitions("flags", 0..3));
        assert_eq!(listed(&few, &none), list("flags", "0, 1, 2"));
        assert_eq!(listed(&few, &partitions("flags", 1..9)), list("flags", "0"));
        assert_eq!(listed(&few, &partitions("other", 0..3)), list("flags", "0, 1, 2"));
        assert_eq!(listed(&few, &few), []);
        let many = listed(&partitions("flags", 0..100), &none);
        assert!(many[0].1.ends_with(", 15 and 84 more"), "{many:?}");
    }

    #[test]
    fn a_node_that_fails_again_and_again_is_warned_of_at_intervals() {
        let start = Instant::now();
        let fails = || Err("it reaches 1 of 3 nodes".to_string());
        let health = Health::Unknown.next(fails(), start);
        assert_eq!(health, Health::Starts);
        let health = health.next(fails(), start).next(Ok(()), start);
        assert_eq!(health, Health::Serves { warned: None });
        let health = health.next(fails(), start);
        assert_eq!(health, Health::Fails { warned: start });
        let health = health.next(Ok(()), start).next(fails(), start + INTERVAL);
        assert_eq!(health, Health::Serves { warned: Some(start) }, "not logged");
        let later = start + WARNING_INTERVAL;
        assert_eq!(health.next(fails(), later), Health::Fails { warned: later });
    }
}
