//! What all examples share: they use the cluster at an address, or start one in this process.

use std::error::Error;

use serried::Database;
use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions, Settings};

/// Connects to the cluster at `address`. It needs the two keyspaces of docs/getting-started.md: `accounts`, which runs
/// transactions, and `flags`, whose keys are registers. The example of pages needs `pages`, which has snapshots.
///
/// Without an address it starts three nodes in this process. They keep their data in memory, and `settings` are those of
/// their keyspaces. They stop when the cluster that is returned is dropped.
pub(crate) async fn open(
    address: Option<String>,
    settings: Settings,
) -> Result<(Database, Option<LocalCluster>), Box<dyn Error>> {
    if let Some(address) = address {
        return Ok((Database::connect(&address).await?, None));
    }
    let keyspace = |name, protocol| KeyspaceConfiguration {
        settings,
        ..KeyspaceConfiguration::new(name, protocol)
    };
    let keyspaces =
        [keyspace("accounts", "morty"), keyspace("flags", "gryff"), keyspace("pages", "port")];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default())?;
    Ok((Database::connect(&cluster.url()).await?, Some(cluster)))
}
