//! A whole cluster in one process, for demonstrations, benchmarks and tests.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use serried::{Client, ConnectError, ConnectOptions, Database, Limits};
use serried_node::{
    ConfigurationError, Disks, Durability, KeyspaceConfiguration, Node, NodeConfiguration,
    NodeHandle, NodeStatistics, NodeStatus, StartError, TransportOptions,
};

use crate::protocols::Protocols;

/// What a local cluster is like, besides its keyspaces.
#[derive(Clone, Default)]
pub struct LocalOptions {
    /// The geography whose delays are emulated. Default: none.
    pub geography: Option<String>,
    /// How many cores each node has. Default: as for any node.
    pub cores: Option<usize>,
    /// When records count as durable. Default: in memory.
    pub durability: Durability,
    /// Where each node keeps its partitions, unless that is memory.
    pub disks: Vec<Arc<dyn Disks>>,
    /// Bounds and times of the nodes' transport.
    pub transport: TransportOptions,
    /// How large keys, values and transactions may be.
    pub limits: Limits,
}

/// Nodes on loopback, each on threads of its own, so that they share nothing but the
/// machine. Dropped, it stops.
pub struct LocalCluster {
    protocols: Protocols,
    configurations: Vec<NodeConfiguration>,
    nodes: Vec<Option<NodeHandle>>,
    disks: Vec<Arc<dyn Disks>>,
}

impl LocalCluster {
    /// Starts `n` nodes on ports that are free, with these keyspaces. They serve when this returns. If keyspaces have
    /// sites, the nodes are divided among these, in order and evenly.
    ///
    /// # Errors
    /// If `n` is even, or no site of a keyspace would have an odd number of nodes, a protocol or the geography is not
    /// known, or the machine lacks resources.
    pub fn start(
        n: usize,
        keyspaces: &[KeyspaceConfiguration],
        options: LocalOptions,
    ) -> Result<LocalCluster, StartError> {
        LocalCluster::start_with(n, keyspaces, options, Protocols::default())
    }

    /// The same with these protocols.
    ///
    /// # Errors
    /// As [`LocalCluster::start`].
    pub fn start_with(
        n: usize,
        keyspaces: &[KeyspaceConfiguration],
        options: LocalOptions,
        protocols: Protocols,
    ) -> Result<LocalCluster, StartError> {
        let one_site = keyspaces.iter().all(|keyspace| keyspace.sites == 1);
        if n == 0 || n.is_multiple_of(2) && one_site {
            let message = format!("a cluster of {n} nodes: choose an odd number");
            return Err(ConfigurationError { file: None, line: None, message }.into());
        }
        let bind = |_| {
            let listener = Node::bind("127.0.0.1:0")?;
            let address = listener.local_addr().map_err(StartError::System)?.to_string();
            Ok((listener, address))
        };
        let bound: Result<Vec<_>, StartError> = (0..n).map(bind).collect();
        let (listeners, peers): (Vec<_>, Vec<_>) = bound?.into_iter().unzip();
        let configuration = |node| NodeConfiguration {
            keyspaces: keyspaces.to_vec(),
            geography: options.geography.clone(),
            cores: options.cores,
            durability: options.durability,
            transport: options.transport,
            limits: options.limits,
            pin: Some(false),
            ..NodeConfiguration::new(node, peers.clone())
        };
        let configurations = (0..n).map(configuration).collect();
        let nodes = (0..n).map(|_| None).collect();
        let mut cluster = LocalCluster { protocols, configurations, nodes, disks: options.disks };
        cluster.serve_all(listeners)?;
        Ok(cluster)
    }

    /// The nodes' addresses, by their numbers.
    pub fn addresses(&self) -> Vec<String> {
        self.configurations.iter().map(|node| node.listen.clone()).collect()
    }

    /// The address by which clients connect.
    pub fn url(&self) -> String {
        format!("serried://{}", self.addresses().join(","))
    }

    /// Connects to it, with the same protocols.
    ///
    /// # Errors
    /// As [`Database::connect`].
    pub async fn connect(&self) -> Result<Database, ConnectError> {
        let options = ConnectOptions::new(self.addresses());
        let coordinators = self.protocols.coordinators.clone();
        Ok(Database::from_client(Client::connect_with(options, coordinators).await?))
    }

    /// What the nodes that run have counted so far. CPU time is the process's, the same for all.
    pub fn statistics(&self) -> Vec<NodeStatistics> {
        self.nodes.iter().flatten().map(NodeHandle::statistics).collect()
    }

    /// Whether a node serves.
    ///
    /// # Errors
    /// Why it does not.
    pub fn health(&self, node: usize) -> Result<(), String> {
        let stopped = || format!("node {node} does not run");
        self.nodes[node].as_ref().ok_or_else(stopped)?.observer().health()
    }

    /// How a node is doing.
    ///
    /// # Panics
    /// If there is no such node, or it does not run.
    pub fn status(&self, node: usize) -> NodeStatus {
        self.nodes[node].as_ref().expect("a node that runs").status()
    }

    /// Stops one node; nothing if it does not run. What it held in memory alone is gone.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn stop_node(&mut self, node: usize) {
        if let Some(running) = self.nodes[node].take() {
            running.stop();
        }
    }

    /// Ends one node at once, as if its process was killed: nothing is flushed; nothing if it does not run.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn kill_node(&mut self, node: usize) {
        drop(self.nodes[node].take());
    }

    /// Sets how many cores a node has when it is started again.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn set_cores(&mut self, node: usize, cores: usize) {
        self.configurations[node].cores = Some(cores);
    }

    /// Starts a node again on its address, with what its disk holds; nothing if it runs.
    ///
    /// # Errors
    /// If its address has been taken in the meantime.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn start_node(&mut self, node: usize) -> Result<(), StartError> {
        if self.nodes[node].is_some() {
            return Ok(());
        }
        let listener = Node::bind(&self.configurations[node].listen)?;
        self.nodes[node] = Some(self.serve(node, listener)?);
        Ok(())
    }

    /// Stops all nodes.
    pub fn stop(mut self) {
        self.stop_all();
    }

    fn stop_all(&mut self) {
        // No node is left to take over. All close before the first has ended, so that none takes another for lost.
        self.nodes.iter().flatten().for_each(NodeHandle::close);
        self.nodes.iter_mut().filter_map(Option::take).for_each(NodeHandle::stop_at_once);
    }

    /// Starts all nodes at the same time, because a node on a disk waits for the others to answer. Returns the error of
    /// the first node that did not start.
    fn serve_all(&mut self, listeners: Vec<TcpListener>) -> Result<(), StartError> {
        let this = &*self;
        let started: Vec<_> = thread::scope(|scope| {
            let start = |(node, listener)| {
                let body = move || this.serve(node, listener);
                thread::Builder::new().spawn_scoped(scope, body)
            };
            let threads: Vec<_> = listeners.into_iter().enumerate().map(start).collect();
            let wait = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
                let ended = thread.map_err(StartError::System)?.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(wait).collect()
        });
        let mut all_started = Ok(());
        for (node, started) in started.into_iter().enumerate() {
            match started {
                Ok(handle) => self.nodes[node] = Some(handle),
                Err(error) => all_started = all_started.and(Err(error)),
            }
        }
        all_started
    }

    /// Starts a node.
    fn serve(&self, node: usize, listener: TcpListener) -> Result<NodeHandle, StartError> {
        let configuration = self.configurations[node].clone();
        let disks = match configuration.durability {
            Durability::Memory => None,
            _ => self.disks.get(node).cloned(),
        };
        Node::serve(listener, configuration, &self.protocols.replicas, disks)
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        self.stop_all();
    }
}
