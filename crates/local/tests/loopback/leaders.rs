//! Partitions with leaders, over loopback.

use serried_actor::Settings;
use serried_local::{LocalCluster, LocalOptions};
use serried_node::KeyspaceConfiguration;

use crate::connect;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_stopped_hands_over_what_it_leads() {
    // Nobody gives a leader up before the test is over.
    let settings = Settings { election_timeout_ms: 600_000, ..Settings::default() };
    for protocol in ["ncc", "multipaxos"] {
        let keyspace = KeyspaceConfiguration::new("accounts", protocol).with_partitions(3);
        let keyspaces = [KeyspaceConfiguration { settings, ..keyspace }];
        let mut cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
        let client = connect(&cluster).await;
        for round in ["first", "second"] {
            for i in 0..12 {
                let key = format!("key-{i}");
                match protocol {
                    "ncc" => {
                        let accounts = client.keyspace("accounts").unwrap();
                        accounts.put(key, round).await.map(drop).unwrap();
                    }
                    _ => client.registers("accounts").unwrap().write(key, round).await.unwrap(),
                }
            }
            cluster.stop_node(1);
        }
        cluster.stop();
    }
}
