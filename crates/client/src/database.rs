//! A connected database.

use std::sync::Arc;

use serried_model::{FamilyName, Registers, Snapshots, Transactions};
use serried_procedures::Procedures;
use serried_session::{
    ProcedureKeyspace, RegisterKeyspace, Session, SnapshotKeyspace, TransactionKeyspace,
};
use serried_wire::{KeyspaceInfo, NodeStatistics, Statistics};

use crate::client::{Client, ConnectOptions};
use crate::error::ConnectError;
use crate::url;

/// A connection to all nodes of a cluster. Tasks on the runtime on which it was made keep it up in the background.
/// Cheap to clone.
///
/// When it, its clones and its keyspaces are dropped, its connections are closed.
#[derive(Clone)]
pub struct Database {
    client: Arc<Client>,
}

/// What a database and the nodes behind it have counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseStatistics {
    /// This client's own counters.
    pub client: Statistics,
    /// The counters of the nodes, by their numbers. `None` if a node did not answer within a second.
    pub nodes: Vec<Option<NodeStatistics>>,
}

impl Database {
    /// Connects to the cluster at `serried://host:port,host:port`. The scheme may be left out. The order of the
    /// addresses does not matter, and one that answers is enough if the nodes know each other's addresses. `?site=name`
    /// says where this client is, `?home=number` to which site of the keyspaces it belongs, `?cluster=name` which
    /// cluster it expects, and `?poll_us=number` for how long it looks for messages before it sleeps
    /// ([`TransportOptions::poll_us`](serried_wire::TransportOptions::poll_us)).
    ///
    /// # Errors
    /// If the text is no such address, if no node answers within 5 s, or if the nodes that answer are of different
    /// clusters.
    pub async fn connect(address: &str) -> Result<Database, ConnectError> {
        Database::connect_with(url::parse(address)?).await
    }

    /// The same with all options.
    ///
    /// # Errors
    /// As [`Database::connect`].
    pub async fn connect_with(options: ConnectOptions) -> Result<Database, ConnectError> {
        Ok(Database { client: Client::connect(options).await? })
    }

    /// The database behind a client, which may have protocols of its own.
    pub fn from_client(client: Arc<Client>) -> Database {
        Database { client }
    }

    /// The client behind it.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The keyspace called `name`, one that runs transactions: it is `serializable` or `strict-serializable`.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub async fn keyspace(&self, name: &str) -> Result<TransactionKeyspace, ConnectError> {
        self.open::<Transactions>(name).await
    }

    /// The keyspace called `name`, one whose keys are registers: it is `linearizable` or `regular-sequential`.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub async fn registers(&self, name: &str) -> Result<RegisterKeyspace, ConnectError> {
        self.open::<Registers>(name).await
    }

    /// The keyspace called `name`, one of stored procedures.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub async fn procedures(&self, name: &str) -> Result<ProcedureKeyspace, ConnectError> {
        self.open::<Procedures>(name).await
    }

    /// A session in the keyspace called `name`, one with read-only transactions and simple writes, mostly
    /// `process-ordered`. Each call begins another session.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub async fn snapshots(&self, name: &str) -> Result<SnapshotKeyspace, ConnectError> {
        self.open::<Snapshots>(name).await
    }

    /// The keyspace called `name`, one of the family `F`.
    ///
    /// # Errors
    /// If the cluster has no keyspace of that name (the error lists those that it has), if the keyspace is of another
    /// family, or if this client does not have its protocol.
    pub async fn open<F: Session>(&self, name: &str) -> Result<F::Keyspace, ConnectError> {
        self.client.open::<F>(name)
    }

    /// The family of the keyspace called `name`, for programs that work with keyspaces of any.
    ///
    /// # Errors
    /// If the cluster has no keyspace of that name, or this client does not have its protocol.
    pub fn family(&self, name: &str) -> Result<FamilyName, ConnectError> {
        self.client.family(name)
    }

    /// The keyspaces of the cluster that can be used. A keyspace that a majority of the nodes lacks is left out.
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        self.client.keyspaces()
    }

    /// What this client and the nodes have counted so far.
    pub async fn statistics(&self) -> DatabaseStatistics {
        let nodes = self.client.node_statistics().await;
        DatabaseStatistics { client: self.client.statistics(), nodes }
    }

    /// Writes what waits, and closes every connection. Transactions that are still open end with
    /// their deadlines.
    pub async fn close(self) {
        self.client.close().await;
    }
}
