//! Finding a cluster, and not taking another one for it.

use serried::{Client, ConnectError, ConnectOptions};
use serried_local::{LocalCluster, LocalOptions};
use serried_node::KeyspaceConfiguration;

use crate::{connect, connect_to, free_address, protocols, start};

#[tokio::test]
async fn one_address_leads_to_all_nodes() {
    let cluster = start(3, None);
    let client = connect_to(vec![cluster.addresses()[1].clone()]).await.unwrap();
    let nodes = client.node_statistics().await;
    let numbers: Vec<_> = nodes.iter().map(|node| node.unwrap().node.0).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(client.cluster(), "serried");
}

#[tokio::test]
async fn order_repetition_and_dead_addresses_do_not_matter() {
    let cluster = start(3, None);
    let mut addresses = cluster.addresses();
    addresses.reverse();
    addresses.push(addresses[0].clone());
    addresses.push(addresses[1].replace("127.0.0.1", "localhost"));
    addresses.push(free_address());
    let client = connect_to(addresses).await.unwrap();
    let keyspace = client.keyspace("first").unwrap();
    keyspace.put("key", "value").await.unwrap();
    assert!(client.node_statistics().await.iter().all(Option::is_some));
}

#[tokio::test]
async fn the_cluster_describes_its_keyspaces() {
    let cluster = start(1, None);
    let client = connect(&cluster).await;
    let keyspaces = client.keyspaces();
    assert_eq!((keyspaces[1].id(), keyspaces[1].name.as_str()), ("second@0".to_string(), "second"));
    assert_eq!((keyspaces[1].protocol.as_str(), keyspaces.len()), ("toy", 2));
    assert_eq!(keyspaces[1].guarantee, "serializable");
    let error = client.keyspace("third").err().unwrap().to_string();
    assert_eq!(error, "there is no keyspace `third`; the cluster has `first`, `second`");
}

#[tokio::test]
async fn where_nobody_listens_the_error_names_what_was_tried() {
    let address = free_address();
    let error = connect_to(vec![address.clone()]).await.err().unwrap();
    assert!(matches!(error, ConnectError::Unreachable { .. }));
    let message = error.to_string();
    assert!(message.contains(&address) && message.contains("check the addresses"), "{message}");
    assert!(!message.contains('\n'));
}

#[tokio::test]
async fn nodes_of_two_clusters_are_not_mixed() {
    let (one, another) = (start(1, None), {
        let keyspaces = [KeyspaceConfiguration::new("other", "toy")];
        LocalCluster::start_with(1, &keyspaces, LocalOptions::default(), protocols()).unwrap()
    });
    let addresses = [one.addresses(), another.addresses()].concat();
    let error = connect_to(addresses).await.err().unwrap();
    assert!(matches!(error, ConnectError::Disagreement { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("give the addresses of one cluster"), "{message}");
}

#[tokio::test]
async fn a_client_of_another_cluster_is_turned_away() {
    let cluster = start(1, None);
    let mut options = ConnectOptions::new(cluster.addresses());
    options.cluster = Some("bank".to_string());
    let error = Client::connect_with(options, protocols().coordinators).await.err().unwrap();
    assert!(error.to_string().ends_with("n0 is of cluster `serried`, not `bank`"), "{error}");
}

#[tokio::test]
async fn a_site_that_the_geography_does_not_have_is_turned_away() {
    let cluster = start(1, Some("reg"));
    let mut options = ConnectOptions::new(cluster.addresses());
    options.site = Some("moon".to_string());
    let error =
        Client::connect_with(options, protocols().coordinators).await.err().unwrap().to_string();
    assert!(error.contains("has no site `moon`; choose one of zone-1, zone-2, zone-3"), "{error}");
}

#[tokio::test]
async fn a_protocol_that_the_client_does_not_have_is_named() {
    let cluster = start(1, None);
    let client = Client::connect(ConnectOptions::new(cluster.addresses())).await.unwrap();
    let error = client.keyspace("first").err().unwrap().to_string();
    assert!(error.contains("there is no protocol `toy`"), "{error}");
}
