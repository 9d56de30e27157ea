//! A part of a node that panics takes the node with it, and says why.

use std::sync::Arc;

use serried_local::{LocalCluster, LocalOptions};
use serried_node::{
    Disks, Durability, KeyspaceConfiguration, Node, NodeConfiguration, NodeFailed, NodeHandle,
};

use crate::disk::{Disk, Panics};
use crate::toy::{FORGED, POISON, STORED};
use crate::{connect, connect_to, keyspaces, protocols};

/// A cluster of one node with two cores, which share the partitions.
fn start(durability: Durability) -> (LocalCluster, Arc<Disk>) {
    let disk: Arc<Disk> = Arc::default();
    let options = LocalOptions {
        cores: Some(2),
        durability,
        disks: vec![disk.clone() as Arc<dyn Disks>],
        ..LocalOptions::default()
    };
    let keyspaces = keyspaces().map(|keyspace| keyspace.with_partitions(3));
    (LocalCluster::start_with(1, &keyspaces, options, protocols()).unwrap(), disk)
}

/// Waits until the node of a cluster says what has ended it.
async fn cause_of_end(cluster: &LocalCluster) -> String {
    loop {
        match cluster.health(0) {
            Ok(()) => tokio::task::yield_now().await,
            Err(reason) => return reason,
        }
    }
}

async fn started(cores: usize) -> NodeHandle {
    let configuration = NodeConfiguration {
        keyspaces: vec![KeyspaceConfiguration::new("first", "toy").with_partitions(4)],
        cores: Some(cores),
        ..NodeConfiguration::new(0, vec!["127.0.0.1:0".to_string()])
    };
    Node::start_with(configuration, &protocols().replicas).await.unwrap()
}

#[tokio::test]
async fn a_replica_that_panics_ends_all_cores_of_its_node_with_its_cause() {
    for cores in [1, 3] {
        let node = started(cores).await;
        let client = connect_to(vec![node.local_addr().to_string()]).await.unwrap();
        let keyspace = client.keyspace("first").unwrap();
        let read = tokio::spawn(async move { keyspace.get(POISON).await });
        let failed = node.stopped().await.unwrap_err();
        let NodeFailed::Panicked { node: who, cause } = &failed else { panic!("{failed}") };
        assert_eq!(who.to_string(), "n0");
        assert!(cause.contains("asked for the poisoned key"), "{cause}");
        let reason = node.observer().health().unwrap_err();
        assert_eq!(reason, failed.to_string());
        let observer = node.observer();
        node.shutdown().await;
        assert!(observer.metrics().contains("serried_build_info"), "it can still be looked at");
        read.abort();
    }
}

#[tokio::test]
async fn a_log_that_panics_when_it_is_written_ends_its_node() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let (cluster, disk) = start(durability);
        let keyspace = connect(&cluster).await.keyspace("first").unwrap();
        keyspace.put("key", "before").await.unwrap();
        disk.set_panics(Panics::Writing);
        let put = tokio::spawn(async move { keyspace.put("key", "after").await });
        let cause = cause_of_end(&cluster).await;
        assert!(
            cause.starts_with("n0 stopped") && cause.contains("panicked in writing"),
            "{cause}"
        );
        put.abort();
    }
}

#[tokio::test]
async fn a_store_that_panics_ends_its_node() {
    let (cluster, disk) = start(Durability::Buffered);
    let keyspace = connect(&cluster).await.keyspace("first").unwrap();
    assert_eq!(keyspace.get(STORED).await.unwrap(), None);
    disk.set_panics(Panics::Storing);
    let get = tokio::spawn(async move { keyspace.get(STORED).await });
    let cause = cause_of_end(&cluster).await;
    assert!(cause.starts_with("n0 stopped") && cause.contains("panicked in the store"), "{cause}");
    get.abort();
}

#[tokio::test]
async fn only_a_node_that_is_stopped_in_good_order_is_noted_as_such() {
    let (mut cluster, disk) = start(Durability::Buffered);
    let keyspace = connect(&cluster).await.keyspace("first").unwrap();
    keyspace.put("key", "value").await.unwrap();
    cluster.kill_node(0);
    assert_eq!(disk.closed(), 0);
    cluster.start_node(0).unwrap();
    cluster.stop_node(0);
    assert_eq!(disk.closed(), 1);
    cluster.start_node(0).unwrap();
    disk.set_panics(Panics::Writing);
    let put = tokio::spawn(async move { keyspace.put("key", "other").await });
    cause_of_end(&cluster).await;
    cluster.stop_node(0);
    assert_eq!(disk.closed(), 1, "it has panicked");
    put.abort();
}

#[tokio::test]
async fn a_message_that_a_replica_rejects_is_counted_and_ends_nothing() {
    let node = started(1).await;
    let client = connect_to(vec![node.local_addr().to_string()]).await.unwrap();
    let keyspace = client.keyspace("first").unwrap();
    let forged = keyspace.clone();
    let read = tokio::spawn(async move { forged.get(FORGED).await });
    let rejected = || {
        let metrics = node.observer().metrics();
        let lines = metrics.lines().filter(|line| line.starts_with("serried_partition_rejected"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    while rejected() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(keyspace.get("another").await.unwrap(), None);
    read.abort();
}

#[test]
fn a_node_that_panics_while_it_starts_does_not_start_and_says_why() {
    let (mut cluster, disk) = start(Durability::Buffered);
    cluster.stop_node(0);
    disk.set_panics(Panics::Replaying);
    let error = cluster.start_node(0).unwrap_err().to_string();
    assert!(error.contains("panicked in reading"), "{error}");
}
