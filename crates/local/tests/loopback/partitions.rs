//! Several partitions on several cores.

use serried_model::{Key, Value};

use crate::{connect, start_partitioned};

fn key(i: u64) -> Key {
    Key::from(format!("key-{i}"))
}

#[tokio::test]
async fn a_transaction_spans_partitions_on_any_cores() {
    for (partitions, cores) in [(4, 1), (4, 2), (5, 4), (7, 3)] {
        let cluster = start_partitioned(partitions, cores);
        let client = connect(&cluster).await;
        let keyspace = client.keyspace("second").unwrap();
        assert_eq!(client.keyspaces()[1].partitions, partitions);
        for round in 0..8u64 {
            keyspace
                .transact(|tx| async move {
                    for i in 0..16 {
                        tx.put(key(16 * round + i), i.to_string());
                    }
                    Ok(())
                })
                .await
                .unwrap();
        }
        for i in 0..128 {
            let value = keyspace.get(key(i)).await.unwrap();
            assert_eq!(value, Some(Value::from((i % 16).to_string())));
        }
        let nodes = client.node_statistics().await;
        assert!(nodes.iter().all(|node| node.is_some_and(|node| node.connections > 0)));
    }
}

#[tokio::test]
async fn a_client_has_a_connection_to_every_core() {
    let cluster = start_partitioned(3, 4);
    let _client = connect(&cluster).await;
    // Nodes hand connections to their cores after they have answered.
    // Beside the client's there are two connections with each of the other nodes.
    while cluster.statistics().iter().any(|node| node.connections < 8) {
        tokio::task::yield_now().await;
    }
    assert!(cluster.statistics().iter().all(|node| node.connections == 8));
}

#[tokio::test]
async fn a_node_with_another_number_of_cores_is_understood() {
    let mut cluster = start_partitioned(5, 4);
    let client = connect(&cluster).await;
    let keyspace = client.keyspace("second").unwrap();
    keyspace.put(key(0), "before").await.unwrap();
    for cores in [2, 3] {
        cluster.stop_node(0);
        cluster.set_cores(0, cores);
        cluster.start_node(0).unwrap();
        // Without the other nodes' majority the client must find the way to the partitions' new cores.
        cluster.stop_node(1);
        let value = &cores.to_string();
        let write_all = |tx: serried_session::Transaction| async move {
            for i in 0..32 {
                tx.put(key(i), value.clone());
            }
            Ok(())
        };
        keyspace.transact(write_all).await.unwrap();
        for i in 0..6 {
            assert_eq!(keyspace.get(key(i)).await.unwrap(), Some(Value::from(value.as_str())));
        }
        cluster.start_node(1).unwrap();
    }
}
