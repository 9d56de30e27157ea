//! Whole clusters in one process, for demonstrations, benchmarks and tests.
//!
//! Programs that use a database depend on the crate `serried` alone, which has no server and no storage engine. This crate
//! has both sides, so it belongs in their `[dev-dependencies]`.
//!
//! ```no_run
//! use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let keyspaces = [KeyspaceConfiguration::new("accounts", "morty")];
//! let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default())?;
//! let accounts = cluster.connect().await?.keyspace("accounts").await?;
//! # Ok(())
//! # }
//! ```

mod local_cluster;
mod protocols;

pub use local_cluster::{LocalCluster, LocalOptions};
pub use protocols::Protocols;
pub use serried_actor::Settings;
pub use serried_node::{
    Disks, Durability, KeyspaceConfiguration, NodeDisks, NodeStatistics, NodeStatus, Start,
    StartError, TransportOptions,
};
