//! A site whose nodes have all lost their disks.

use std::sync::Arc;

use serried::{Client, ConnectOptions, Database};
use serried_model::{Key, Value};
use serried_node::{
    Durability, KeyspaceConfiguration, Node, NodeConfiguration, NodeDisks, NodeHandle, Start,
    StartError,
};

use crate::directories::Folder;
use crate::{free_address, soon};

async fn start(
    folder: &Folder,
    (sites, name): (usize, &str),
    node: usize,
    peers: &[String],
    how: Start,
) -> NodeHandle {
    let posts = KeyspaceConfiguration::new("posts", "eiger-port");
    let configuration = NodeConfiguration {
        listen: peers[node].clone(),
        keyspaces: vec![posts.with_sites(sites as u16).with_partitions(2)],
        durability: Durability::Buffered,
        cores: Some(1),
        pin: Some(false),
        ..NodeConfiguration::new(node, peers.to_vec())
    };
    let disks = NodeDisks::open(folder.0.join(name), &configuration, how).unwrap();
    let disks = Arc::new(disks);
    loop {
        match Node::start_on(configuration.clone(), disks.clone()).await {
            // The others have not noticed yet that the old process is gone.
            Err(StartError::TooFew { .. } | StartError::Unwelcome { .. }) => {}
            started => return started.unwrap(),
        }
    }
}

async fn connect(peers: &[String], home: u16) -> Database {
    let options = ConnectOptions { home: Some(home), ..ConnectOptions::new(peers.to_vec()) };
    Database::from_client(Client::connect(options).await.unwrap())
}

/// Reads keys at a site until it finds that all of them have this value.
async fn find(database: &Database, keys: &[Key], value: &str) {
    let session = database.snapshots("posts").await.unwrap();
    while session
        .read_only(keys.to_vec())
        .await
        .unwrap()
        .iter()
        .any(|found| found.as_ref().map(Value::as_bytes) != Some(value.as_bytes()))
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_site_that_has_lost_all_its_disks_gets_back_what_others_have_and_goes_on() {
    for nodes in [1, 3] {
        let folder = Folder::new();
        let peers: Vec<String> = (0..2 * nodes).map(|_| free_address()).collect();
        let mut running = Vec::new();
        for node in 0..2 * nodes {
            let name = format!("node-{node}");
            running.push(start(&folder, (2, &name), node, &peers, Start::Usual).await);
        }
        let keys: Vec<Key> = (0..10).map(|i| Key::from(format!("key-{i}"))).collect();
        let (at_0, at_1) = (connect(&peers, 0).await, connect(&peers, 1).await);
        let session = at_1.snapshots("posts").await.unwrap();
        for key in &keys {
            soon(session.write(key.clone(), "of site 1")).await.unwrap();
        }
        soon(find(&at_0, &keys, "of site 1")).await;
        drop((session, at_1));
        for node in running.split_off(nodes) {
            node.shutdown().await;
        }
        // What is written meanwhile is there later, too.
        let session = at_0.snapshots("posts").await.unwrap();
        soon(session.write("meanwhile", "of site 0")).await.unwrap();
        // All are new, and none of them waits for another one before it starts.
        let mut starting = Vec::new();
        for node in nodes..2 * nodes {
            let name = format!("new-{node}");
            starting.push(soon(start(&folder, (2, &name), node, &peers, Start::RebuildSite)).await);
        }
        let at_1 = connect(&peers, 1).await;
        soon(find(&at_1, &keys, "of site 1")).await;
        soon(find(&at_1, &[Key::from("meanwhile")], "of site 0")).await;
        let session = at_1.snapshots("posts").await.unwrap();
        soon(session.write("afterwards", "of site 1")).await.unwrap();
        soon(find(&at_0, &[Key::from("afterwards")], "of site 1")).await;
    }
}

#[tokio::test]
async fn two_sites_that_are_lost_at_the_same_time_get_back_what_the_third_one_has() {
    let folder = Folder::new();
    let peers: Vec<String> = (0..3).map(|_| free_address()).collect();
    let mut running = Vec::new();
    for node in 0..3 {
        let name = format!("node-{node}");
        running.push(start(&folder, (3, &name), node, &peers, Start::Usual).await);
    }
    let key = |site: u16| Key::from(format!("key-{site}"));
    let at_0 = connect(&peers, 0).await;
    for site in 0..3 {
        let at = connect(&peers, site).await;
        let session = at.snapshots("posts").await.unwrap();
        soon(session.write(key(site), "there")).await.unwrap();
        soon(find(&at_0, &[key(site)], "there")).await;
    }
    for node in running.split_off(1) {
        node.shutdown().await;
    }
    let replace = |node: usize| {
        let (folder, peers) = (&folder, &peers);
        async move { start(folder, (3, &format!("new-{node}")), node, peers, Start::RebuildSite).await }
    };
    let _new = soon(async { tokio::join!(replace(1), replace(2)) }).await;
    for site in 1..3 {
        let at = connect(&peers, site).await;
        soon(find(&at, &[key(0), key(1), key(2)], "there")).await;
    }
}
