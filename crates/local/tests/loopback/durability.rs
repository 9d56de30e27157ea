//! Logs: what waits for them, and what outlives a node.

use std::sync::Arc;

use serried::{Client, ConnectOptions};
use serried_actor::Settings;
use serried_local::{LocalCluster, LocalOptions};
use serried_model::Value;
use serried_node::{Disks, Durability, KeyspaceConfiguration, NodeStatus, StartError};
use serried_session::{Ending, TransactionError};

use crate::disk::Disk;
use crate::toy::BEHIND;
use crate::{connect, keyspaces, protocols, soon};

fn start(n: usize, durability: Durability) -> (LocalCluster, Vec<Arc<Disk>>) {
    let disks: Vec<Arc<Disk>> = (0..n).map(|_| Arc::default()).collect();
    (start_on(&disks, durability).unwrap(), disks)
}

fn start_on(disks: &[Arc<Disk>], durability: Durability) -> Result<LocalCluster, StartError> {
    let options = LocalOptions {
        durability,
        disks: disks.iter().map(|disk| disk.clone() as Arc<dyn Disks>).collect(),
        ..LocalOptions::default()
    };
    LocalCluster::start_with(disks.len(), &keyspaces(), options, protocols())
}

/// Disks that take nothing in until this is dropped, which a failed test does too.
struct Held<'a>(&'a [Arc<Disk>]);

impl<'a> Held<'a> {
    fn new(disks: &'a [Arc<Disk>]) -> Held<'a> {
        disks.iter().for_each(|disk| disk.hold());
        Held(disks)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|disk| disk.release());
    }
}

#[test]
fn if_one_node_does_not_start_the_others_are_stopped_and_its_error_is_returned() {
    let disks: Vec<Arc<Disk>> = (0..3).map(|_| Arc::default()).collect();
    disks[1].damage();
    let error = start_on(&disks, Durability::Sync).err().unwrap().to_string();
    assert!(error.contains("log.0 is damaged"), "{error}");
    assert_eq!([0, 1, 2].map(|node| disks[node].closed()), [1, 0, 1]);
}

#[tokio::test]
async fn a_reply_waits_until_its_record_is_durable_and_nothing_else_waits() {
    let (cluster, disks) = start(3, Durability::Sync);
    let client = connect(&cluster).await;
    let keyspace = client.keyspace("first").unwrap();
    let held = Held::new(&disks);
    let writer = keyspace.clone();
    let put = tokio::spawn(async move { writer.put("key", "value").await });
    while !disks.iter().all(|disk| disk.waiting() > 0) {
        tokio::task::yield_now().await;
    }
    assert!(cluster.status(0).flush_under_way.is_some());
    // A reply that had not waited would have come before these.
    for _ in 0..3 {
        while !client.node_statistics().await.iter().all(Option::is_some) {}
    }
    let other = client.keyspace("second").unwrap();
    assert_eq!(other.get("key").await.unwrap(), None, "a partition without records is not held up");
    assert!(!put.is_finished());
    drop(held);
    put.await.unwrap().unwrap();
    // A majority was enough for the reply.
    while !cluster.statistics().iter().all(|node| node.counters.log_flushes > 0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_was_acknowledged_outlives_the_nodes() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let (mut cluster, _disks) = start(3, durability);
        let keyspace = connect(&cluster).await.keyspace("first").unwrap();
        for round in 0..5u32 {
            for key in 0..20u32 {
                keyspace.put(key.to_string(), round.to_string()).await.unwrap();
            }
            (0..3).for_each(|node| cluster.kill_node(node));
            (0..3).for_each(|node| cluster.start_node(node).unwrap());
            // The toy asks one replica: the first that acknowledged a write need not be it.
            let mut seen = 0;
            for key in 0..20u32 {
                let value = keyspace.get(key.to_string()).await.unwrap();
                seen += u32::from(value == Some(Value::from(round.to_string())));
            }
            assert!(seen > 0, "round {round}");
        }
    }
}

#[tokio::test]
async fn a_node_serves_when_it_is_durable_that_it_takes_part() {
    let (cluster, disks) = start(1, Durability::Sync);
    let client = connect(&cluster).await;
    let keyspace = client.keyspace("first").unwrap();
    keyspace.put(BEHIND, "1").await.unwrap();
    assert_eq!(cluster.status(0).behind.unwrap().catching_up, 1);
    let held = Held::new(&disks);
    let writer = keyspace.clone();
    let caught_up = tokio::spawn(async move { writer.delete(BEHIND).await });
    while disks[0].waiting() == 0 {
        tokio::task::yield_now().await;
    }
    // It has everything now, in memory. After a crash it would not.
    for _ in 0..3 {
        while !client.node_statistics().await.iter().all(Option::is_some) {}
        assert_eq!(cluster.status(0).behind.unwrap().catching_up, 1);
    }
    let said = cluster.health(0).unwrap_err();
    assert!(said.starts_with("catching up in 1 of"), "{said}");
    drop(held);
    caught_up.await.unwrap().unwrap();
    while cluster.status(0).behind.is_some() {
        tokio::task::yield_now().await;
    }
    cluster.health(0).unwrap();
    cluster.stop();
}

#[tokio::test]
async fn a_node_that_is_shut_down_flushes_what_was_appended() {
    let (mut cluster, disks) = start(1, Durability::Sync);
    let keyspace = connect(&cluster).await.keyspace("first").unwrap();
    disks[0].hold();
    let writer = keyspace.clone();
    let put = tokio::spawn(async move { writer.put("key", "value").await });
    while disks[0].waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let disk = disks[0].clone();
    let stopping = tokio::task::spawn_blocking(move || {
        disk.release();
        cluster.stop_node(0);
        cluster
    });
    let mut cluster = stopping.await.unwrap();
    cluster.start_node(0).unwrap();
    put.await.unwrap().unwrap();
    assert_eq!(keyspace.get("key").await.unwrap(), Some(Value::from("value")));
}

#[tokio::test]
async fn a_node_whose_disk_is_full_says_so_and_goes_on_when_there_is_room() {
    let (mut cluster, disks) = start(1, Durability::Sync);
    let client = connect(&cluster).await;
    let keyspace = client.keyspace("first").unwrap();
    keyspace.put("key", "before").await.unwrap();
    disks[0].set_full(true);
    let writer = keyspace.clone();
    let put = tokio::spawn(async move { writer.put("key", "after").await });
    while disks[0].refused() == 0 || cluster.health(0).is_ok() {
        tokio::task::yield_now().await;
    }
    let status = client.node_statuses().await.remove(0).unwrap();
    assert!(status.obstacle.unwrap().starts_with("the disk is full"));
    assert!(cluster.health(0).unwrap_err().starts_with("the disk is full"));
    assert!(!put.is_finished());
    let error = soon(async {
        loop {
            let statuses = client.node_statuses();
            tokio::select! {
                result = keyspace.put("key", "later") => break result.unwrap_err(),
                // It was begun before the client had learned of it.
                _ = statuses => {}
            }
        }
    })
    .await;
    let error = error.to_string();
    assert!(
        error.starts_with("the keyspace is read-only: n0 can't write: the disk is full"),
        "{error}"
    );
    let stranger = connect(&cluster).await;
    let status = stranger.node_statuses().await.remove(0).unwrap();
    assert!(status.obstacle.unwrap().starts_with("the disk is full"));
    let error = stranger.keyspace("first").unwrap().put("key", "stranger").await.unwrap_err();
    assert!(
        matches!(error, TransactionError::ReadOnly { .. }),
        "a client that has just come: {error}"
    );
    disks[0].set_full(false);
    put.await.unwrap().unwrap();
    assert_eq!(cluster.health(0), Ok(()), "it takes no restart");
    assert_eq!(keyspace.get("key").await.unwrap(), Some(Value::from("after")));
    // What was refused at first is in the log all the same.
    cluster.kill_node(0);
    cluster.start_node(0).unwrap();
    assert_eq!(keyspace.get("key").await.unwrap(), Some(Value::from("after")));
}

#[tokio::test]
async fn a_node_that_stops_while_its_disk_is_full_acknowledges_nothing_that_is_not_written() {
    let (mut cluster, disks) = start(1, Durability::Sync);
    let keyspace = connect(&cluster).await.keyspace("first").unwrap();
    keyspace.put("key", "before").await.unwrap();
    disks[0].set_full(true);
    let writer = keyspace.clone();
    let put = tokio::spawn(async move { writer.put("key", "after").await });
    while disks[0].refused() == 0 {
        tokio::task::yield_now().await;
    }
    let stopping = tokio::task::spawn_blocking(move || {
        cluster.stop_node(0);
        cluster
    });
    let mut cluster = stopping.await.unwrap();
    disks[0].set_full(false);
    cluster.start_node(0).unwrap();
    // The client asks for it once more, unless it has learned that it is done.
    put.await.unwrap().unwrap();
    assert_eq!(keyspace.get("key").await.unwrap(), Some(Value::from("after")));
}

#[tokio::test]
async fn without_a_majority_that_can_write_the_past_and_outcomes_can_still_be_read() {
    let settings = Settings {
        truncation_every_ms: 20,
        truncation_lag_ms: 100,
        history_ms: 3_600_000,
        ..Settings::default()
    };
    let keyspace = KeyspaceConfiguration::new("first", "morty");
    let disks: Vec<Arc<Disk>> = (0..3).map(|_| Arc::default()).collect();
    let options = LocalOptions {
        durability: Durability::Sync,
        disks: disks.iter().map(|disk| disk.clone() as Arc<dyn Disks>).collect(),
        ..LocalOptions::default()
    };
    let keyspaces = [KeyspaceConfiguration { settings, ..keyspace }];
    let cluster = LocalCluster::start(3, &keyspaces, options).unwrap();
    let client = Client::connect(ConnectOptions::new(cluster.addresses())).await.unwrap();
    let keyspace = client.keyspace("first").unwrap();
    let before = keyspace.put("key", "before").await.unwrap().version;
    let after = keyspace.put("key", "after").await.unwrap().version;
    let value = Some(Value::from("before"));
    assert_eq!(
        keyspace.get_at("key", after).await.unwrap(),
        value,
        "it waits until that is settled"
    );
    disks.iter().for_each(|disk| disk.set_full(true));
    let writer = keyspace.clone();
    let put = tokio::spawn(async move { writer.put("key", "more").await });
    let obstructed = |node: &&NodeStatus| node.obstacle.is_some();
    while client.node_statuses().await.iter().flatten().filter(obstructed).count() < 3 {}
    assert_eq!(keyspace.get_at("key", after).await.unwrap(), value);
    assert_eq!(keyspace.outcome(before).await.unwrap(), Ending::Committed);
    assert!(matches!(keyspace.get("key").await, Err(TransactionError::ReadOnly { .. })));
    disks.iter().for_each(|disk| disk.set_full(false));
    put.await.unwrap().unwrap();
    assert_eq!(keyspace.get("key").await.unwrap(), Some(Value::from("more")));
}

#[test]
fn a_damaged_log_is_named_and_the_node_does_not_start() {
    let (mut cluster, disks) = start(1, Durability::Buffered);
    cluster.stop_node(0);
    assert_eq!(disks[0].opened(), 1);
    disks[0].damage();
    let error = cluster.start_node(0).unwrap_err().to_string();
    assert_eq!(disks[0].opened(), 1, "not all partitions were opened");
    assert!(error.starts_with("can't open partition 0 of keyspace `"), "{error}");
    assert!(error.ends_with("log.0 is damaged at byte 7: restore it"), "{error}");
}

#[tokio::test]
async fn where_all_partitions_are_to_be_opened_first_all_serve_once_they_are() {
    let disks: Vec<Arc<Disk>> = vec![Arc::default()];
    disks[0].wait_for_all();
    let options = LocalOptions {
        durability: Durability::Sync,
        cores: Some(2),
        disks: disks.iter().map(|disk| disk.clone() as Arc<dyn Disks>).collect(),
        ..LocalOptions::default()
    };
    let keyspace = KeyspaceConfiguration::new("first", "multipaxos").with_partitions(2);
    let cluster = LocalCluster::start(1, &[keyspace], options).unwrap();
    let client = Client::connect(ConnectOptions::new(cluster.addresses())).await.unwrap();
    soon(client.registers("first").unwrap().write("key", "value")).await.unwrap();
    let (early, written) = disks[0].written();
    assert!(early == 0 && written > 0, "{early} of {written}");
}
