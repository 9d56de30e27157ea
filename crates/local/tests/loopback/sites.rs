//! Keyspaces with several sites.

use serried::{Client, ConnectError, ConnectOptions, Database};
use serried_local::{LocalCluster, LocalOptions};
use serried_model::{Key, Value};
use serried_node::KeyspaceConfiguration;

use crate::soon;

/// So many sites with so many nodes each.
fn start(sites: u16, nodes: usize, geography: Option<&str>) -> LocalCluster {
    let keyspace = KeyspaceConfiguration::new("posts", "eiger-port").with_sites(sites);
    let options = LocalOptions {
        geography: geography.map(str::to_string),
        cores: Some(2),
        ..LocalOptions::default()
    };
    let nodes = usize::from(sites) * nodes;
    LocalCluster::start(nodes, &[keyspace.with_partitions(3)], options).unwrap()
}

async fn connect(cluster: &LocalCluster, home: Option<u16>, site: Option<&str>) -> Database {
    let options = ConnectOptions {
        home,
        site: site.map(str::to_string),
        ..ConnectOptions::new(cluster.addresses())
    };
    Database::from_client(Client::connect(options).await.unwrap())
}

fn key(site: u16, i: u64) -> Key {
    Key::from(format!("{site}-key-{i}"))
}

/// Writes keys of all partitions at a site, and reads them there.
async fn write_and_read(database: &Database, site: u16) {
    let session = database.snapshots("posts").await.unwrap();
    assert_eq!(database.client().home("posts").unwrap(), site);
    for i in 0..12 {
        session.write(key(site, i), i.to_string()).await.unwrap();
    }
    let found = session.read_only((0..12).map(|i| key(site, i))).await.unwrap();
    let expected: Vec<_> = (0..12).map(|i| Some(Value::from(i.to_string()))).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_client_writes_and_reads_at_its_own_site() {
    for (sites, nodes) in [(3, 1), (2, 3)] {
        let cluster = start(sites, nodes, None);
        for site in 0..sites {
            let database = connect(&cluster, Some(site), None).await;
            soon(write_and_read(&database, site)).await;
        }
        for node in 0..usize::from(sites) * nodes {
            cluster.health(node).unwrap();
            let at = &cluster.status(node).sites[0];
            assert_eq!(usize::from(at.site), node / nodes);
            assert_eq!((at.sites, usize::from(at.nodes)), (sites, nodes));
        }
    }
}

#[tokio::test]
async fn a_site_serves_while_the_others_are_down() {
    let mut cluster = start(3, 1, None);
    cluster.stop_node(0);
    cluster.stop_node(1);
    // The nearest node that answers is at this site.
    let database = connect(&cluster, None, None).await;
    soon(write_and_read(&database, 2)).await;
    soon(async {
        while cluster.status(2).reached > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cluster.health(2).unwrap();
}

#[tokio::test]
async fn a_client_belongs_to_the_site_that_is_nearest() {
    let cluster = start(3, 1, Some("reg"));
    for (site, name) in ["zone-1", "zone-2", "zone-3"].into_iter().enumerate() {
        let database = connect(&cluster, None, Some(name)).await;
        assert_eq!(database.client().home("posts").unwrap(), site as u16);
    }
    let six = start(2, 3, Some("reg"));
    for (site, name) in ["zone-1", "zone-2"].into_iter().enumerate() {
        let database = connect(&six, None, Some(name)).await;
        assert_eq!(database.client().home("posts").unwrap(), site as u16);
        assert_eq!(database.client().nearest_first()[0] / 3, site);
    }
}

#[tokio::test]
async fn a_site_that_there_is_not_is_named() {
    let cluster = start(3, 1, None);
    let database = connect(&cluster, Some(3), None).await;
    let refused = database.snapshots("posts").await.err().unwrap();
    assert!(matches!(refused, ConnectError::NoSuchSite { home: 3, last: 2, .. }), "{refused}");
}

#[test]
fn nodes_that_can_not_be_divided_are_not_started() {
    let keyspace = |sites| KeyspaceConfiguration::new("posts", "eiger-port").with_sites(sites);
    let start = |n, keyspaces: &[KeyspaceConfiguration]| {
        LocalCluster::start(n, keyspaces, LocalOptions::default()).err().map(|e| e.to_string())
    };
    for (n, keyspaces) in [(6, vec![keyspace(1)]), (6, vec![keyspace(3)]), (5, vec![keyspace(2)])] {
        assert!(start(n, &keyspaces).is_some(), "{n} nodes, {keyspaces:?}");
    }
}
