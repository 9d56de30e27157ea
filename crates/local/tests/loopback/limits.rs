//! Keys and values that can't be taken, under every protocol.

use std::sync::Arc;

use serried::{Client, ConnectOptions};
use serried_model::{FamilyName, Limits, Modification, Value};
use serried_node::{
    Durability, KeyspaceConfiguration, Node, NodeConfiguration, NodeDisks, NodeHandle, Start,
};
use serried_session::{RegisterError, TransactionError};

use crate::directories::Folder;
use crate::free_address;

/// A node with a keyspace of each protocol of a family, called as that, in a directory.
async fn node(family: FamilyName, folder: &Folder, limits: Limits) -> (NodeHandle, Arc<Client>) {
    let address = free_address();
    let keyspaces = serried_protocols::of(family).map(|protocol| {
        KeyspaceConfiguration::new(protocol.name, protocol.name).with_partitions(2)
    });
    let configuration = NodeConfiguration {
        keyspaces: keyspaces.collect(),
        durability: Durability::Buffered,
        cores: Some(2),
        pin: Some(false),
        limits,
        ..NodeConfiguration::new(0, vec![address.clone()])
    };
    let disks = NodeDisks::open(folder.0.clone(), &configuration, Start::Usual).unwrap();
    let node = Node::start_on(configuration, Arc::new(disks)).await.unwrap();
    (node, Client::connect(ConnectOptions::new([address])).await.unwrap())
}

#[tokio::test]
async fn what_can_not_be_done_is_named_under_every_protocol_and_all_partitions_go_on() {
    let folder = Folder::new();
    let (node, client) = node(FamilyName::Transactions, &folder, Limits::default()).await;
    for protocol in serried_protocols::of(FamilyName::Transactions) {
        let keyspace = client.keyspace(protocol.name).unwrap();
        let error = keyspace.put("", "value").await.unwrap_err();
        assert!(matches!(error, TransactionError::EmptyKey), "{}: {error}", protocol.name);
        assert!(matches!(keyspace.get("").await.unwrap_err(), TransactionError::EmptyKey));
        // Who does not read the past says so.
        let now = keyspace.put("key", "value").await.unwrap().version;
        let reads_past = ["morty", "mvtso", "tapir", "spanner"].contains(&protocol.name);
        let past = keyspace.get_at("key", now).await.err();
        assert_eq!(
            !reads_past,
            matches!(past, Some(TransactionError::NoPast { .. })),
            "{}",
            protocol.name
        );
        for i in 0..8u64 {
            keyspace.put(i.to_be_bytes(), "value").await.unwrap();
        }
    }
    node.observer().health().unwrap();
    node.shutdown().await;
}

#[tokio::test]
async fn an_empty_register_is_refused_by_name_under_every_protocol() {
    let folder = Folder::new();
    let (node, client) = node(FamilyName::Registers, &folder, Limits::default()).await;
    for protocol in serried_protocols::of(FamilyName::Registers) {
        let registers = client.registers(protocol.name).unwrap();
        let error = registers.write("", "value").await.unwrap_err();
        assert!(matches!(error, RegisterError::EmptyKey), "{}: {error}", protocol.name);
        assert!(matches!(registers.read("").await.unwrap_err(), RegisterError::EmptyKey));
        registers.write("key", "value").await.unwrap();
    }
    node.observer().health().unwrap();
    node.shutdown().await;
}

#[tokio::test]
async fn what_is_appended_to_stays_as_long_as_values_may_be() {
    let folder = Folder::new();
    let limits = Limits { value_bytes: 8, ..Limits::default() };
    let (node, client) = node(FamilyName::Registers, &folder, limits).await;
    for protocol in serried_protocols::of(FamilyName::Registers).filter(|p| p.name != "abd") {
        let registers = client.registers(protocol.name).unwrap();
        let append = || Modification::Append(Value::from("five5"));
        registers.rmw("key", append()).await.unwrap();
        let error = registers.rmw("key", append()).await.unwrap_err();
        assert_eq!(error.to_string(), "value too large at key `key`: 10 bytes, the limit is 8");
        assert_eq!(registers.read("key").await.unwrap(), Some(Value::from("five5")));
        registers.write("number", "99999999").await.unwrap();
        assert_eq!(registers.increment("number", 1).await.unwrap(), None, "{}", protocol.name);
        assert_eq!(registers.increment("number", -1).await.unwrap(), Some(99_999_998));
    }
    node.shutdown().await;
}
