//! Nodes and clients over loopback, with a protocol of the tests' own.

mod bad_frames;
mod cluster;
mod connecting;
mod damage;
mod directories;
mod disk;
mod durability;
mod heartbeats;
mod keyspaces;
mod leaders;
mod limits;
mod panics;
mod partitions;
mod rebuilt;
mod recording;
mod registers;
mod replaced;
mod room;
mod sites;
mod standing;
mod survival;
mod toy;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use serried::{Client, ConnectError, ConnectOptions};
use serried_local::{LocalCluster, LocalOptions, Protocols};
use serried_node::{KeyspaceConfiguration, TransportOptions};

fn protocols() -> Protocols {
    Protocols::default().with::<toy::Toy>()
}

fn keyspaces() -> [KeyspaceConfiguration; 2] {
    [KeyspaceConfiguration::new("first", "toy"), KeyspaceConfiguration::new("second", "toy")]
}

fn start(n: usize, geography: Option<&str>) -> LocalCluster {
    let geography = geography.map(str::to_string);
    let options = LocalOptions { geography, ..LocalOptions::default() };
    LocalCluster::start_with(n, &keyspaces(), options, protocols()).unwrap()
}

/// Nodes with one core each and this transport.
fn start_on(n: usize, transport: TransportOptions) -> LocalCluster {
    let options = LocalOptions { cores: Some(1), transport, ..LocalOptions::default() };
    LocalCluster::start_with(n, &keyspaces(), options, protocols()).unwrap()
}

/// Three nodes with so many cores each, and a keyspace of so many partitions after one of a single one.
fn start_partitioned(partitions: u16, cores: usize) -> LocalCluster {
    let [first, second] = keyspaces();
    let keyspaces = [first, second.with_partitions(partitions)];
    let options = LocalOptions { cores: Some(cores), ..LocalOptions::default() };
    LocalCluster::start_with(3, &keyspaces, options, protocols()).unwrap()
}

/// Waits for something that takes a second or so. Panics if it does not come.
async fn soon<T>(awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), awaited).await.expect("it comes within 30 s")
}

async fn connect_to(addresses: Vec<String>) -> Result<Arc<Client>, ConnectError> {
    Client::connect_with(ConnectOptions::new(addresses), protocols().coordinators).await
}

/// An address on which nothing listens now.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

async fn connect(cluster: &LocalCluster) -> Arc<Client> {
    connect_to(cluster.addresses()).await.unwrap()
}
