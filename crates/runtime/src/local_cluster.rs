//! A whole cluster in one process, for demonstrations, benchmarks and tests.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use crate::core::Endpoint;
use crate::node::{listen, statistics};
use crate::{
    Catalogue, ConfigurationError, KeyspaceConfiguration, Node, NodeConfiguration, NodeHandle,
    NodeStatistics, StartError,
};

/// Nodes on loopback, each on a thread and a runtime of its own, so that they share nothing but the
/// machine. Dropped, it stops.
pub struct LocalCluster {
    catalogue: Catalogue,
    configurations: Vec<NodeConfiguration>,
    nodes: Vec<Option<Running>>,
}

struct Running {
    endpoint: Arc<Endpoint>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl LocalCluster {
    /// Starts `n` nodes on ports that are free, with these keyspaces, as far apart as `geography`
    /// says. They serve when this returns.
    ///
    /// # Errors
    /// If `n` is even, a protocol or the geography is not known, or the machine lacks resources.
    pub fn start(
        n: usize,
        keyspaces: &[KeyspaceConfiguration],
        geography: Option<&str>,
    ) -> Result<LocalCluster, StartError> {
        LocalCluster::start_with(n, keyspaces, geography, Catalogue::default())
    }

    /// The same with the protocols of `catalogue`.
    ///
    /// # Errors
    /// As [`LocalCluster::start`].
    pub fn start_with(
        n: usize,
        keyspaces: &[KeyspaceConfiguration],
        geography: Option<&str>,
        catalogue: Catalogue,
    ) -> Result<LocalCluster, StartError> {
        if n.is_multiple_of(2) {
            let message = format!("a cluster of {n} nodes: choose an odd number");
            return Err(ConfigurationError { file: None, line: None, message }.into());
        }
        let bind = |_| {
            let any = "127.0.0.1:0";
            let listener = TcpListener::bind(any).map_err(|error| listen(any, error))?;
            let address = listener.local_addr().map_err(StartError::System)?.to_string();
            Ok((listener, address))
        };
        let bound: Result<Vec<_>, StartError> = (0..n).map(bind).collect();
        let (listeners, peers): (Vec<_>, Vec<_>) = bound?.into_iter().unzip();
        let configuration = |node| NodeConfiguration {
            keyspaces: keyspaces.to_vec(),
            geography: geography.map(str::to_string),
            ..NodeConfiguration::new(node, peers.clone())
        };
        let configurations = (0..n).map(configuration).collect();
        let nodes = (0..n).map(|_| None).collect();
        let mut cluster = LocalCluster { catalogue, configurations, nodes };
        for (node, listener) in listeners.into_iter().enumerate() {
            cluster.serve(node, listener)?;
        }
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

    /// What the nodes that run have counted so far. CPU time is the process's, the same for all.
    pub fn statistics(&self) -> Vec<NodeStatistics> {
        self.nodes.iter().flatten().map(|node| statistics(&node.endpoint)).collect()
    }

    /// Stops one node; nothing if it does not run. What it held in memory is gone.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn stop_node(&mut self, node: usize) {
        if let Some(running) = self.nodes[node].take() {
            running.stop();
        }
    }

    /// Starts a node again on its address, empty; nothing if it runs.
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
        let address = &self.configurations[node].listen;
        let listener = TcpListener::bind(address).map_err(|error| listen(address, error))?;
        self.serve(node, listener)
    }

    /// Stops all nodes.
    pub fn stop(mut self) {
        self.stop_all();
    }

    fn stop_all(&mut self) {
        self.nodes.iter_mut().filter_map(Option::take).for_each(Running::stop);
    }

    fn serve(&mut self, node: usize, listener: TcpListener) -> Result<(), StartError> {
        listener.set_nonblocking(true).map_err(StartError::System)?;
        let (configuration, catalogue) =
            (self.configurations[node].clone(), self.catalogue.clone());
        let (started, start) = mpsc::channel();
        let (stop, stopping) = oneshot::channel::<()>();
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(StartError::System(error)))),
            };
            runtime.block_on(async {
                let handle = match serve(listener, configuration, &catalogue) {
                    Ok(handle) => handle,
                    Err(error) => return drop(started.send(Err(error))),
                };
                // The cluster waits for it.
                let _ = started.send(Ok(handle.endpoint.clone()));
                tokio::select! {
                    // Told to stop, or forgotten.
                    _ = stopping => handle.shutdown().await,
                    _ = handle.stopped() => {}
                }
            });
        };
        let thread = thread::Builder::new().name(format!("serried-node-{node}")).spawn(body);
        let thread = thread.map_err(StartError::System)?;
        match start.recv() {
            Ok(Ok(endpoint)) => {
                self.nodes[node] = Some(Running { endpoint, stop, thread });
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StartError::System(io::Error::other("a node's thread panicked"))),
        }
    }
}

fn serve(
    listener: TcpListener,
    configuration: NodeConfiguration,
    catalogue: &Catalogue,
) -> Result<NodeHandle, StartError> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(StartError::System)?;
    Node::serve(listener, configuration, catalogue)
}

impl Running {
    fn stop(self) {
        // A node that has failed is gone already.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        self.stop_all();
    }
}
