//! Keyspaces of registers, beside those with transactions.

use std::sync::Arc;

use serried::{Client, ConnectError, ConnectOptions};
use serried_actor::Settings;
use serried_local::{LocalCluster, LocalOptions};
use serried_model::{FamilyName, Modification, Value};
use serried_node::{Disks, Durability, KeyspaceConfiguration};
use serried_session::RegisterError;

use super::disk::Disk;

fn start(protocol: &str) -> LocalCluster {
    let disks: Vec<Arc<Disk>> = (0..3).map(|_| Arc::default()).collect();
    let options = LocalOptions {
        durability: Durability::Sync,
        disks: disks.iter().map(|disk| disk.clone() as Arc<dyn Disks>).collect(),
        ..LocalOptions::default()
    };
    let settings = Settings { thrifty: true, ..Settings::default() };
    let registers = KeyspaceConfiguration::new("registers", protocol).with_partitions(2);
    let registers = KeyspaceConfiguration { settings, ..registers };
    let keyspaces = [KeyspaceConfiguration::new("transactions", "morty"), registers];
    LocalCluster::start(3, &keyspaces, options).unwrap()
}

async fn connect(cluster: &LocalCluster) -> Arc<Client> {
    Client::connect(ConnectOptions::new(cluster.addresses())).await.unwrap()
}

#[tokio::test]
async fn registers_and_transactions_live_in_one_cluster_and_survive_their_nodes() {
    for protocol in serried_protocols::of(FamilyName::Registers) {
        survive(protocol.name).await;
    }
}

async fn survive(protocol: &str) {
    let modifies = protocol != "abd";
    let mut cluster = start(protocol);
    let client = connect(&cluster).await;
    let registers = client.registers("registers").unwrap();
    let accounts = client.keyspace("transactions").unwrap();
    accounts.put("key", "of an account").await.unwrap();
    assert_eq!(registers.read("key").await.unwrap(), None);
    let writes = (0..50u64).map(|number| {
        let registers = registers.clone();
        tokio::spawn(async move { registers.write(number.to_be_bytes(), number.to_string()).await })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap().unwrap();
    }
    registers.delete(7u64.to_be_bytes()).await.unwrap();
    if modifies {
        assert_eq!(registers.increment(8u64.to_be_bytes(), 100).await.unwrap(), Some(108));
    }
    for node in 0..3 {
        cluster.kill_node(node);
    }
    for node in 0..3 {
        cluster.start_node(node).unwrap();
    }
    let client = connect(&cluster).await;
    let registers = client.registers("registers").unwrap();
    // A node may be away; requests that went to no more than a quorum go to the others then.
    cluster.kill_node(1);
    for number in 0..50u64 {
        let number = if number == 8 && modifies { 108 } else { number };
        let expected = (number != 7).then(|| Value::from(number.to_string()));
        let key = if number == 108 { 8 } else { number };
        assert_eq!(registers.read(key.to_be_bytes()).await.unwrap(), expected, "{protocol}");
    }
    if modifies {
        registers.write("text", "seven").await.unwrap();
        let error = registers.increment("text", 1).await.unwrap_err();
        assert!(matches!(error, RegisterError::WrongType { .. }), "{error}");
        assert_eq!(registers.read("text").await.unwrap(), Some(Value::from("seven")));
    }
    let account = client.keyspace("transactions").unwrap().get("key").await.unwrap();
    assert_eq!(account, Some(Value::from("of an account")));
}

#[tokio::test]
async fn a_keyspace_is_opened_as_what_it_is_and_asked_for_what_it_offers() {
    let cluster = start("abd");
    let client = connect(&cluster).await;
    let error = client.keyspace("registers").err().unwrap();
    assert!(matches!(error, ConnectError::WrongFamily { .. }));
    assert_eq!(
        error.to_string(),
        "keyspace `registers` has registers (linearizable), and was opened for transactions: open it for registers"
    );
    let error = client.registers("transactions").err().unwrap().to_string();
    assert_eq!(
        error,
        "keyspace `transactions` has transactions (serializable), and was opened for registers: open it for transactions"
    );
    let registers = client.registers("registers").unwrap();
    let error = registers.rmw("key", Modification::add(1)).await.unwrap_err();
    assert!(matches!(error, RegisterError::NoReadModifyWrites { .. }), "{error}");
    let error = registers.write("key", vec![0; 2 << 20]).await.unwrap_err();
    assert!(matches!(error, RegisterError::TooLarge(_)), "{error}");
}
