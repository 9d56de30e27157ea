//! A node: it listens, and serves one replica of every partition of every keyspace.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serried_model::NodeId;
use serried_storage::REJOIN;
use serried_wire::{NodeStatistics, NodeStatus};
use tokio::net::TcpListener as AsyncListener;
use tokio::runtime::Runtime;

use crate::configuration::{ConfigurationError, NodeConfiguration};
use crate::durable::Disks;
use crate::pin::pin_to;
use crate::replica::Replicas;
use crate::server::{Server, Thread};

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
    /// The node's data directory can't be used.
    #[error("can't use the data directory: {reason}")]
    Directory {
        /// What is wrong, where, and what to do.
        reason: String,
    },
    /// What the node has of a partition on its disk can't be used.
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
    /// Another node turns it away.
    #[error("another node turned this one away: {reason}")]
    Unwelcome {
        /// Why, and what to do.
        reason: String,
    },
    /// It replaces a node whose disk was lost, and can't know what was lost. It can be started again on the same
    /// directory.
    #[error(
        "only {answered} of the other nodes{} answer, and {wanted} must say which keyspaces the lost disk may have held: start the others, and this node again",
        if *of_site { " of its site" } else { "" }
    )]
    TooFew {
        /// How many have answered.
        answered: usize,
        /// How many have to.
        wanted: usize,
        /// Whether these are the other nodes of its site in a keyspace.
        of_site: bool,
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
    #[error("{node} stopped, as a part of it has panicked: {cause}{}", after_panic(cause))]
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

/// What to do after a panic, if it does not say that itself.
fn after_panic(cause: &str) -> &'static str {
    match cause.contains(REJOIN) {
        true => "",
        false => "; start it again, and report this if its disk is sound",
    }
}

/// Starts nodes.
#[derive(Debug)]
pub struct Node;

impl Node {
    /// Starts a node on threads of its own. It serves when this returns.
    ///
    /// # Errors
    /// If the configuration is wrong, or its address can't be listened on.
    pub async fn start(configuration: NodeConfiguration) -> Result<NodeHandle, StartError> {
        Node::start_with(configuration, &Replicas::default()).await
    }

    /// The same with its partitions on `disks`, from what they hold.
    ///
    /// # Errors
    /// As [`Node::start`], and if what is on disk is damaged.
    pub async fn start_on(
        configuration: NodeConfiguration,
        disks: Arc<dyn Disks>,
    ) -> Result<NodeHandle, StartError> {
        Node::start_somewhere(configuration, &Replicas::default(), Some(disks)).await
    }

    /// The same with the protocols of `replicas`.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn start_with(
        configuration: NodeConfiguration,
        replicas: &Replicas,
    ) -> Result<NodeHandle, StartError> {
        Node::start_somewhere(configuration, replicas, None).await
    }

    async fn start_somewhere(
        configuration: NodeConfiguration,
        replicas: &Replicas,
        disks: Option<Arc<dyn Disks>>,
    ) -> Result<NodeHandle, StartError> {
        let replicas = replicas.clone();
        let start = tokio::task::spawn_blocking(move || {
            let listener = Node::bind(&configuration.listen)?;
            Node::serve(listener, configuration, &replicas, disks)
        });
        start.await.map_err(|error| StartError::System(io::Error::other(error)))?
    }

    /// A listener on an address, for [`Node::serve`].
    ///
    /// # Errors
    /// If the address can't be listened on.
    pub fn bind(address: &str) -> Result<TcpListener, StartError> {
        TcpListener::bind(address).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::AddressInUse { address: address.to_string() },
            _ => StartError::Listen { address: address.to_string(), error },
        })
    }

    /// Starts a node on a listener, on threads of its own, with its partitions on `disks` if there are any. It serves when
    /// this returns. It must not be called on a thread that runs tasks, because it waits for the node's threads.
    ///
    /// # Errors
    /// As [`Node::start_on`].
    pub fn serve(
        listener: TcpListener,
        configuration: NodeConfiguration,
        replicas: &Replicas,
        disks: Option<Arc<dyn Disks>>,
    ) -> Result<NodeHandle, StartError> {
        let place = configuration.check(replicas)?;
        let local_addr = listener.local_addr().map_err(StartError::System)?;
        listener.set_nonblocking(true).map_err(StartError::System)?;
        let (server, cores) = Server::new(configuration, place, replicas, disks)?;
        let available = thread::available_parallelism().map_or(1, usize::from);
        let pins = cores.len() > 1 && available >= cores.len();
        let pins = server.configuration.pin.unwrap_or(pins);
        let mut handle = NodeHandle { server, local_addr, threads: Vec::new() };
        let (started, starts) = mpsc::channel();
        // They are dropped before the handle, which waits for the threads.
        let mut releases = Vec::new();
        let waits = handle.server.waits_for_all();
        let (count, mut listener) = (cores.len(), Some(listener));
        for core in cores {
            let name = format!("serried-node-{}.{}", handle.server.id().member(), core.core());
            let (replicas, started) = (replicas.clone(), started.clone());
            let (release, released) = mpsc::channel();
            if !waits {
                let _ = release.send(());
            }
            releases.push(release);
            let listener = if core.core() == 0 { listener.take() } else { None };
            let body = move || {
                if pins {
                    pin_to(core.core());
                }
                run(core, listener, &replicas, (started, released));
            };
            let thread = thread::Builder::new().name(name).spawn(body);
            handle.threads.push(thread.map_err(StartError::System)?);
        }
        drop(started);
        for _ in 0..count {
            // A thread that panics drops its end of the channel without sending anything.
            let panicked =
                || handle.server.life.failure().map_or_else(ended_early, StartError::Failed);
            starts.recv().unwrap_or_else(|_| Err(panicked()))?;
        }
        handle.server.opened()?;
        for release in releases.into_iter().filter(|_| waits) {
            // A thread that has panicked since ends the node.
            let _ = release.send(());
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

/// What a core's thread does. If it panics, the other threads of the node end too.
fn run(
    core: Thread,
    listener: Option<TcpListener>,
    replicas: &Replicas,
    (started, released): (mpsc::Sender<Result<(), StartError>>, mpsc::Receiver<()>),
) {
    let (server, running) = (core.server().clone(), core.running());
    let body = || {
        let prepared = prepare(listener).map_err(StartError::System);
        let prepared = prepared.and_then(|ready| core.install(replicas).map(|()| ready));
        // The thread that starts the node waits for all cores, or has given up and kills the node.
        match prepared {
            Ok((runtime, listener)) => {
                let _ = started.send(Ok(()));
                drop(started);
                // It may have to wait until all cores have opened their partitions.
                if released.recv().is_ok() {
                    runtime.block_on(core.run(listener));
                }
            }
            Err(error) => drop(started.send(Err(error))),
        }
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        server.life.fail(panic.as_ref());
    }
    drop(running);
}

/// A runtime for a core's thread, and the listener in it.
fn prepare(listener: Option<TcpListener>) -> io::Result<(Runtime, Option<AsyncListener>)> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // Those that flush. What they cost is the node's.
    let runtime = runtime.enable_all().thread_name("serried-node-flusher").build()?;
    let listener = {
        let _entered = runtime.enter();
        listener.map(AsyncListener::from_std).transpose()?
    };
    Ok((runtime, listener))
}

/// The health and the figures of a node, for a supervisor.
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

    /// Its health and figures, for others.
    pub fn observer(&self) -> NodeObserver {
        NodeObserver(self.server.clone())
    }

    /// Waits until the node no longer serves.
    ///
    /// # Errors
    /// If it was not stopped: what has ended it.
    pub async fn stopped(&self) -> Result<(), NodeFailed> {
        let mut state = self.server.life.watch();
        // The sender lives as long as the server.
        let ended = state.wait_for(|state| state.running == 0 || state.failed.is_some()).await;
        ended.ok().and_then(|state| state.failed.clone()).map_or(Ok(()), Err)
    }

    /// Stops the node. It hands over what it leads, which takes a second at most. Then it accepts nothing more, flushes its
    /// logs, writes what waits, and closes its connections.
    pub async fn shutdown(mut self) {
        self.server.cores.prepare_to_stop();
        let until = Instant::now() + HAND_OVER_AT_MOST;
        while !self.server.cores.may_stop() && Instant::now() < until {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.server.cores.close();
        let mut state = self.server.life.watch();
        let _ = state.wait_for(|state| state.running == 0 || state.failed.is_some()).await;
        self.join();
        self.server.close_disks();
    }

    /// As [`NodeHandle::shutdown`], but blocks the thread.
    pub fn stop(self) {
        self.server.cores.prepare_to_stop();
        let until = Instant::now() + HAND_OVER_AT_MOST;
        while !self.server.cores.may_stop() && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
        self.stop_at_once();
    }

    /// Flushes and closes every connection, and opens no new one. The caller then stops the node.
    pub fn close(&self) {
        self.server.cores.close();
    }

    /// As [`NodeHandle::stop`], without handing over what it leads.
    pub fn stop_at_once(mut self) {
        self.server.cores.close();
        self.join();
        self.server.close_disks();
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // If it has panicked, that was reported.
            let _ = thread.join();
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.server.life.kill();
        self.join();
    }
}
