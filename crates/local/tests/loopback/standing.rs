//! What a node says of itself while it does not take part in everything.

use serried_actor::Settings;
use serried_node::{Durability, KeyspaceConfiguration, Start};

use crate::directories::Kept;
use crate::toy::AHEAD;
use crate::{connect, start};

/// A keyspace of each family.
fn keyspaces() -> Vec<KeyspaceConfiguration> {
    let settings = Settings {
        truncation_every_ms: 20,
        truncation_lag_ms: 200,
        recovery_after_ms: 100,
        clock_bound_ms: 50,
        ..Settings::default()
    };
    let keyspace = |protocol| KeyspaceConfiguration {
        settings,
        ..KeyspaceConfiguration::new(protocol, protocol)
    };
    ["morty", "abd", "gryff", "multipaxos", "ncc"].map(keyspace).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_rejoins_serves_when_it_has_everything_and_not_before() {
    let mut kept = Kept::start(Durability::Buffered, &keyspaces());
    while let Err(said) = kept.cluster.health(1) {
        assert!(said.starts_with("reaches no majority"), "a new one lacks nothing else: {said}");
        tokio::task::yield_now().await;
    }
    kept.kill(&[0, 1, 2]);
    kept.replace_alone(1);
    let said = kept.cluster.health(1).unwrap_err();
    assert!(said.starts_with("rejoining in 5 of 5 partitions, 0 keys so far, for"), "{said}");
    let behind = kept.cluster.status(1).behind.unwrap();
    assert_eq!((behind.rejoining, behind.catching_up), (5, 0));
    kept.kill(&[1]);
    kept.begin(1, Start::Usual);
    let said = kept.cluster.health(1).unwrap_err();
    assert!(said.starts_with("rejoining in 5 of 5 partitions"), "after a restart too: {said}");
    kept.restart(&[0, 2]);
    while kept.cluster.health(1).is_err() {
        tokio::task::yield_now().await;
    }
    kept.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_catches_up_before_it_serves() {
    let keyspaces = &keyspaces()[..1];
    let mut kept = Kept::start(Durability::Buffered, keyspaces);
    let client = crate::connect_to(kept.cluster.addresses()).await.unwrap();
    let keyspace = client.keyspace("morty").unwrap();
    keyspace.put("key", "value").await.unwrap();
    // All have it in their logs.
    while (0..3).any(|node| kept.cluster.status(node).statistics.counters.log_flushes == 0) {
        tokio::task::yield_now().await;
    }
    kept.kill(&[0, 1, 2]);
    kept.restart(&[1]);
    let said = kept.cluster.health(1).unwrap_err();
    assert!(said.starts_with("catching up in 1 of 1 partitions"), "{said}");
    kept.restart(&[0, 2]);
    while (0..3).any(|node| kept.cluster.health(node).is_err()) {
        tokio::task::yield_now().await;
    }
    kept.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_replicas_vote_on_nothing_says_so_and_does_not_serve() {
    let cluster = start(1, None);
    cluster.health(0).unwrap();
    assert_eq!(cluster.status(0).not_voting, None);
    let client = connect(&cluster).await;
    client.keyspace("first").unwrap().put(AHEAD, "1").await.unwrap();
    let said = cluster.health(0).unwrap_err();
    assert!(said.starts_with("does not vote in 1 of"), "{said}");
    assert_eq!(cluster.status(0).not_voting.unwrap().partitions, 1);
    cluster.stop();
}
