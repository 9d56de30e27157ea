//! A node: it listens, and serves one replica of every partition of every keyspace.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serried_model::NodeId;
use tokio::net::TcpListener as AsyncListener;
use tokio::runtime::Runtime;

use crate::durable::Disks;
use crate::pin::pin_to;
use crate::server::{Server, Thread};
use crate::{Catalogue, ConfigurationError, NodeConfiguration, NodeStatistics, NodeStatus};

/// How long a node that is shut down waits for others to take over its leaderships, and how often it checks.
const HAND_OVER_AT_MOST: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Something in the configuration is wrong.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The address is taken.
    #[error(
        "can't listen on {address}, it is in use: stop the program that has it, or choose another `listen`"
    )]
    AddressInUse {
        /// The address.
        address: String,
    },
    /// The address can't be listened on for another reason.
    #[error("can't listen on {address} ({error}): choose an address of this machine as `listen`")]
    Listen {
        /// The address.
        address: String,
        /// What the operating system said.
        error: io::Error,
    },
    /// What the node has on its disk can't be used.
    #[error("can't open partition {partition} of keyspace `{keyspace}`: {reason}")]
    Storage {
        /// The keyspace.
        keyspace: String,
        /// The partition.
        partition: u16,
        /// What is wrong, where, and what to do.
        reason: String,
    },
    /// A keyspace does not fit the configuration.
    #[error("can't serve keyspace `{keyspace}`: {reason}")]
    Keyspace {
        /// The keyspace.
        keyspace: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Another node refuses to have to do with it.
    #[error("another node turned this one away: {reason}")]
    Unwelcome {
        /// Why, and what to do.
        reason: String,
    },
    /// It replaces a node whose disk was lost, and can't know what was lost. It can be started again on the same
    /// directory.
    #[error(
        "only {answered} of the other nodes answer, and {wanted} must say which keyspaces the lost disk may have held: start the others, and this node again"
    )]
    TooFew {
        /// How many have answered.
        answered: usize,
        /// How many have to.
        wanted: usize,
    },
    /// Something has ended it.
    #[error(transparent)]
    Failed(NodeFailed),
    /// The operating system did not give what the node needs.
    #[error("can't start ({0}): free some of the machine's resources and try again")]
    System(io::Error),
}

/// What has ended a node that was not stopped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeFailed {
    /// A panic in one of its replicas, in its log or in its store. It does not continue with a part missing.
    #[error(
        "{node} stopped, as a part of it has panicked: {cause}; start it again, and report this if its disk is sound"
    )]
    Panicked {
        /// The node.
        node: NodeId,
        /// What the panic said.
        cause: String,
    },
    /// Another node says that its data does not count, or not any more.
    #[error("{node} stopped, as another node has turned it away for good: {reason}")]
    Disowned {
        /// The node.
        node: NodeId,
        /// Why, and what to do.
        reason: String,
    },
}

/// Nodes are started here.
#[derive(Debug)]
pub struct Node;

impl Node {
    /// Starts a node on threads of its own. It serves when this returns.
    ///
    /// # Errors
    /// If the configuration is wrong, or its address can't be listened on.
    pub async fn start(configuration: NodeConfiguration) -> Result<NodeHandle, StartError> {
        Node::start_with(configuration, &Catalogue::default()).await
    }

    /// The same with its partitions on `disks`, from what they hold.
    ///
    /// # Errors
    /// As [`Node::start`], and if what is on disk is damaged.
    pub async fn start_on(
        configuration: NodeConfiguration,
        disks: Arc<dyn Disks>,
    ) -> Result<NodeHandle, StartError> {
        Node::start_somewhere(configuration, &Catalogue::default(), Some(disks)).await
    }

    /// The same with the protocols of `catalogue`.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn start_with(
        configuration: NodeConfiguration,
        catalogue: &Catalogue,
    ) -> Result<NodeHandle, StartError> {
        Node::start_somewhere(configuration, catalogue, None).await
    }

    async fn start_somewhere(
        configuration: NodeConfiguration,
        catalogue: &Catalogue,
        disks: Option<Arc<dyn Disks>>,
    ) -> Result<NodeHandle, StartError> {
        let catalogue = catalogue.clone();
        let start = tokio::task::spawn_blocking(move || {
            let address = &configuration.listen;
            let listener = TcpListener::bind(address).map_err(|error| listen(address, error))?;
            Node::serve(listener, configuration, &catalogue, disks)
        });
        start.await.map_err(|error| StartError::System(io::Error::other(error)))?
    }

    /// The same on a listener. It waits for the node's threads, one for each core.
    pub(crate) fn serve(
        listener: TcpListener,
        configuration: NodeConfiguration,
        catalogue: &Catalogue,
        disks: Option<Arc<dyn Disks>>,
    ) -> Result<NodeHandle, StartError> {
        let place = configuration.check(catalogue)?;
        let local_addr = listener.local_addr().map_err(StartError::System)?;
        listener.set_nonblocking(true).map_err(StartError::System)?;
        let (server, cores) = Server::new(configuration, place, catalogue, disks)?;
        let available = thread::available_parallelism().map_or(1, usize::from);
        let pins = cores.len() > 1 && available >= cores.len();
        let pins = server.configuration.pin.unwrap_or(pins);
        let mut handle = NodeHandle { server, local_addr, threads: Vec::new() };
        let (started, starts) = mpsc::channel();
        let (count, mut listener) = (cores.len(), Some(listener));
        for core in cores {
            let name = format!("serried-node-{}.{}", handle.server.id().member(), core.core());
            let (catalogue, started) = (catalogue.clone(), started.clone());
            let listener = if core.core() == 0 { listener.take() } else { None };
            let body = move || {
                if pins {
                    pin_to(core.core());
                }
                run(core, listener, &catalogue, started);
            };
            let thread = thread::Builder::new().name(name).spawn(body);
            handle.threads.push(thread.map_err(StartError::System)?);
        }
        drop(started);
        for _ in 0..count {
            // A thread that panics drops its end of the channel without sending anything.
            let panicked = || handle.server.failure().map_or_else(ended_early, StartError::Failed);
            starts.recv().unwrap_or_else(|_| Err(panicked()))?;
        }
        let node = handle.server.id();
        tracing::info!(%node, address = %local_addr, cores = count, "serving");
        let status = handle.server.status();
        if let Some(not_voting) = status.not_voting {
            let state = not_voting.text(status.partitions);
            tracing::warn!(%node, state, "it counts as failed for a while");
        }
        Ok(handle)
    }
}

fn ended_early() -> StartError {
    StartError::System(io::Error::other("a node's thread has ended"))
}

/// What a core's thread does. However it ends, the others are told.
fn run(
    core: Thread,
    listener: Option<TcpListener>,
    catalogue: &Catalogue,
    started: mpsc::Sender<Result<(), StartError>>,
) {
    let (server, running) = (core.server().clone(), core.running());
    let body = || {
        let prepared = prepare(listener).map_err(StartError::System);
        let prepared = prepared.and_then(|ready| core.install(catalogue).map(|()| ready));
        // Whoever starts the node waits for all cores, or has given up and kills it.
        match prepared {
            Ok((runtime, listener)) => {
                let _ = started.send(Ok(()));
                drop(started);
                runtime.block_on(core.run(listener));
            }
            Err(error) => drop(started.send(Err(error))),
        }
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        server.fail(panic.as_ref());
    }
    drop(running);
}

/// A runtime for a core's thread, and the listener in it.
fn prepare(listener: Option<TcpListener>) -> io::Result<(Runtime, Option<AsyncListener>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _entered = runtime.enter();
        listener.map(AsyncListener::from_std).transpose()?
    };
    Ok((runtime, listener))
}

/// Says what can be done about an address that can't be listened on.
pub(crate) fn listen(address: &str, error: io::Error) -> StartError {
    let address = address.to_string();
    match error.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
        _ => StartError::Listen { address, error },
    }
}

/// Watches a node, for those who supervise it.
#[derive(Clone)]
pub struct NodeObserver(Arc<Server>);

impl NodeObserver {
    /// Whether the node serves.
    ///
    /// # Errors
    /// Why it does not.
    pub fn health(&self) -> Result<(), String> {
        self.0.health()
    }

    /// How the node is doing.
    pub fn status(&self) -> NodeStatus {
        self.0.status()
    }

    /// The node's figures, in Prometheus' text format.
    pub fn metrics(&self) -> String {
        self.0.metrics()
    }
}

/// A running node. Dropped, the node stops at once.
pub struct NodeHandle {
    server: Arc<Server>,
    local_addr: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl NodeHandle {
    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What it has counted so far.
    pub fn statistics(&self) -> NodeStatistics {
        self.server.status().statistics
    }

    /// How it is doing.
    pub fn status(&self) -> NodeStatus {
        self.server.status()
    }

    /// What others may ask of it while it runs.
    pub fn observer(&self) -> NodeObserver {
        NodeObserver(self.server.clone())
    }

    /// Waits until the node no longer serves.
    ///
    /// # Errors
    /// If it was not stopped: what has ended it.
    pub async fn stopped(&self) -> Result<(), NodeFailed> {
        let mut state = self.server.watch();
        // The sender lives as long as the server.
        let ended = state.wait_for(|state| state.running == 0 || state.failed.is_some()).await;
        ended.ok().and_then(|state| state.failed.clone()).map_or(Ok(()), Err)
    }

    /// Stops the node. It hands over what it leads, which takes a second at most. Then it accepts nothing more, flushes its
    /// logs, writes what waits, and closes its connections.
    pub async fn shutdown(mut self) {
        self.server.prepare_to_stop();
        let until = Instant::now() + HAND_OVER_AT_MOST;
        while !self.server.may_stop() && Instant::now() < until {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.server.close();
        let mut state = self.server.watch();
        let _ = state.wait_for(|state| state.running == 0 || state.failed.is_some()).await;
        self.join();
        self.server.close_disks();
    }

    /// The same, for those who have a thread to wait on.
    pub(crate) fn stop(self) {
        self.server.prepare_to_stop();
        let until = Instant::now() + HAND_OVER_AT_MOST;
        while !self.server.may_stop() && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
        self.stop_at_once();
    }

    /// Has every connection flushed and closed, and no new one opened. The node is to be stopped next.
    pub(crate) fn close(&self) {
        self.server.close();
    }

    /// Stops the node without handing over what it leads.
    pub(crate) fn stop_at_once(mut self) {
        self.server.close();
        self.join();
        self.server.close_disks();
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // What its machines panicked with has been told.
            let _ = thread.join();
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.server.kill();
        self.join();
    }
}
