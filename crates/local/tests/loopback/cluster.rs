//! Transactions from end to end, restarts, failures and distances.

use std::time::Instant;

use serried::{Client, ConnectOptions, TransportOptions};
use serried_local::{LocalCluster, LocalOptions};
use serried_model::{Geography, Key, Value};
use serried_node::{KeyspaceConfiguration, Node, NodeConfiguration, StartError};

use crate::toy::{BATCH, POISON};
use crate::{connect, protocols, start};

#[tokio::test]
async fn operations_requested_together_end_in_one_batch() {
    let cluster = start(3, None);
    let keyspace = connect(&cluster).await.keyspace("first").unwrap();
    let together = keyspace.get_many((0..3).map(|i| format!("{BATCH}{i}"))).await.unwrap();
    assert_eq!(together, vec![Some(Value::from("3")); 3]);
    cluster.stop();
}

#[tokio::test]
async fn what_one_client_commits_another_one_reads() {
    let cluster = start(3, None);
    let writer = connect(&cluster).await.keyspace("first").unwrap();
    let committed = writer
        .transact(|tx| async move {
            let before = tx.get("counter").await?;
            tx.put("counter", "1");
            Ok(before)
        })
        .await
        .unwrap();
    assert_eq!((committed.value, committed.attempts), (None, 1));

    let client = connect(&cluster).await;
    let reader = client.keyspace("first").unwrap();
    assert_eq!(reader.get("counter").await.unwrap(), Some(Value::from("1")));
    let other = client.keyspace("second").unwrap();
    assert_eq!(other.get("counter").await.unwrap(), None, "keyspaces are apart");
    cluster.stop();
}

#[tokio::test]
async fn a_client_that_looks_for_messages_before_it_sleeps_gets_them() {
    let cluster = start(3, None);
    let mut options = ConnectOptions::new(cluster.addresses());
    options.transport.poll_us = TransportOptions::MOST_POLL_US;
    let client = Client::connect_with(options, protocols().coordinators).await.unwrap();
    let keyspace = client.keyspace("first").unwrap();
    for round in 0..100_u32 {
        let committed = keyspace
            .transact(|tx| async move {
                let before = tx.get("counter").await?;
                tx.put("counter", round.to_string());
                Ok(before)
            })
            .await
            .unwrap();
        assert_eq!(committed.value, round.checked_sub(1).map(|before| before.to_string().into()));
    }
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_several_threads_share_a_client() {
    let cluster = start(3, None);
    let keyspace = connect(&cluster).await.keyspace("first").unwrap();
    let tasks: Vec<_> = (0..64u32)
        .map(|task| {
            let keyspace = keyspace.clone();
            tokio::spawn(async move {
                for round in 0..30u32 {
                    let key = &Key::from(format!("key-{task}"));
                    let committed = keyspace
                        .transact(|tx| async move {
                            let before = tx.get(key).await?;
                            tx.put(key, round.to_string());
                            Ok(before)
                        })
                        .await
                        .unwrap();
                    let expected = round.checked_sub(1).map(|before| before.to_string().into());
                    assert_eq!(committed.value, expected);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let appends: u64 = cluster.statistics().iter().map(|node| node.counters.appends).sum();
    assert!(appends >= 2 * 64 * 30, "a majority stored each of the writes: {appends}");
}

#[tokio::test]
async fn a_value_larger_than_any_buffer_goes_there_and_back() {
    let cluster = start(1, None);
    let keyspace = connect(&cluster).await.keyspace("first").unwrap();
    let value = Value::from(vec![7u8; 1 << 20]);
    keyspace.put("large", value.clone()).await.unwrap();
    assert_eq!(keyspace.get("large").await.unwrap(), Some(value));
}

#[tokio::test]
async fn a_client_finds_a_restarted_node_again() {
    let mut cluster = start(1, None);
    let client = connect(&cluster).await;
    let keyspace = client.keyspace("first").unwrap();
    keyspace.put("key", "value").await.unwrap();
    cluster.stop_node(0);
    cluster.start_node(0).unwrap();
    assert_eq!(keyspace.get("key").await.unwrap(), None, "memory does not outlive a node");
    assert!(client.statistics().reconnects >= 1);
}

#[tokio::test]
async fn a_minority_of_nodes_can_be_missing_and_come_back() {
    let mut cluster = start(3, None);
    cluster.stop_node(1);
    let client = connect(&cluster).await;
    let keyspace = client.keyspace("first").unwrap();
    keyspace.put("key", "value").await.unwrap();
    cluster.start_node(1).unwrap();
    loop {
        let nodes = client.node_statistics().await;
        if nodes[1].is_some_and(|node| node.counters.messages_received > 0) {
            break;
        }
        keyspace.put("key", "value").await.unwrap();
    }
}

#[tokio::test]
async fn messages_take_at_least_half_the_round_trip_each_way() {
    let geography = Geography::named("con").unwrap();
    let cluster = start(1, Some("con"));
    let mut options = ConnectOptions::new(cluster.addresses());
    options.site = Some("us-west-1".to_string());
    let client = Client::connect_with(options, protocols().coordinators).await.unwrap();
    let keyspace = client.keyspace("first").unwrap();
    let started = Instant::now();
    keyspace.transact(|tx| async move { tx.get("key").await }).await.unwrap();
    // One round trip for the read and one for the commit.
    assert!(started.elapsed() >= 2 * geography.round_trip(0, 1));
    assert_eq!(client.longest_round_trip(), geography.longest_round_trip(1));
}

#[tokio::test]
async fn nodes_are_as_far_from_each_other_as_the_geography_says() {
    let geography = Geography::named("reg").unwrap();
    let cluster = start(3, Some("reg"));
    let mut options = ConnectOptions::new(cluster.addresses());
    options.site = Some("zone-2".to_string());
    let client = Client::connect_with(options, protocols().coordinators).await.unwrap();
    assert_eq!(client.nearest_first()[0], 1, "the node at the client's site is the nearest");
    let keyspace = client.keyspace("first").unwrap();
    let started = Instant::now();
    keyspace.put("key", "value").await.unwrap();
    assert!(started.elapsed() >= geography.round_trip(0, 1));
}

#[tokio::test]
async fn a_node_shuts_down_cleanly_and_leaves_its_address_free() {
    let configuration = NodeConfiguration {
        keyspaces: vec![KeyspaceConfiguration::new("first", "toy")],
        ..NodeConfiguration::new(0, vec!["127.0.0.1:0".to_string()])
    };
    let node = Node::start_with(configuration.clone(), &protocols().replicas).await.unwrap();
    let address = node.local_addr().to_string();
    let client = crate::connect_to(vec![address.clone()]).await.unwrap();
    client.keyspace("first").unwrap().put("key", "value").await.unwrap();
    assert_eq!(node.statistics().connections, 1);
    node.shutdown().await;

    let again = NodeConfiguration { listen: address, ..configuration };
    let node = Node::start_with(again.clone(), &protocols().replicas).await.unwrap();
    let taken = Node::start_with(again, &protocols().replicas).await.err().unwrap();
    assert!(matches!(taken, StartError::AddressInUse { .. }));
    let message = taken.to_string();
    assert!(message.contains(&node.local_addr().to_string()) && !message.contains('\n'));
    node.shutdown().await;
}

#[tokio::test]
async fn a_node_whose_invariant_is_broken_stops_and_says_so() {
    let configuration = NodeConfiguration {
        keyspaces: vec![KeyspaceConfiguration::new("first", "toy")],
        ..NodeConfiguration::new(0, vec!["127.0.0.1:0".to_string()])
    };
    let node = Node::start_with(configuration, &protocols().replicas).await.unwrap();
    let client = crate::connect_to(vec![node.local_addr().to_string()]).await.unwrap();
    let keyspace = client.keyspace("first").unwrap();
    let read = tokio::spawn(async move { keyspace.get(POISON).await });
    assert!(node.stopped().await.unwrap_err().to_string().starts_with("n0 stopped"));
    read.abort();
}

#[tokio::test]
async fn a_client_that_is_dropped_closes_its_connections() {
    let cluster = start(1, None);
    let client = connect(&cluster).await;
    let keyspace = client.keyspace("first").unwrap();
    drop(client);
    keyspace.put("key", "value").await.unwrap();
    drop(keyspace);
    while cluster.statistics()[0].connections > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_closed_client_flushes_what_waits() {
    let cluster = start(1, None);
    let client = connect(&cluster).await;
    client.close().await;
    while cluster.statistics()[0].connections > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_cluster_has_an_odd_number_of_nodes() {
    for n in [0, 2] {
        let error = LocalCluster::start(n, &[], LocalOptions::default()).err().unwrap().to_string();
        assert_eq!(error, format!("a cluster of {n} nodes: choose an odd number"));
    }
}
