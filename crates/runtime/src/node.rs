//! A node: it listens, and serves one replica of every keyspace.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use serried_actor::{Group, Random};
use serried_model::NodeId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::connection::{Connection, Ended};
use crate::core::{Endpoint, decode, encode};
use crate::frame::{BadFrame, Kind};
use crate::handshake::{Hello, KeyspaceInfo, Place, Welcome};
use crate::links::LinkOptions;
use crate::{
    Catalogue, ConfigurationError, NodeConfiguration, NodeStatistics, peer, process_cpu_time,
};

/// How long a node that is shut down waits for its connections to be flushed.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after the operating system refused a connection, for want of descriptors mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What replicas are told of the round trip where nothing is known; loopback or a local network.
const NEAR: Duration = Duration::from_millis(1);

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
    /// The operating system did not give what the node needs.
    #[error("can't start ({0}): free some of the machine's resources and try again")]
    System(io::Error),
}

/// A running node's replicas met a state that must not be. It has stopped rather than serve from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{node} stopped because an invariant of its protocol was broken; the panic's message names it"
)]
pub struct NodeFailed {
    /// The node.
    pub node: NodeId,
}

/// Nodes are started here.
#[derive(Debug)]
pub struct Node;

impl Node {
    /// Starts a node on the current tokio runtime. It serves when this returns.
    ///
    /// # Errors
    /// If the configuration is wrong, or its address can't be listened on.
    pub async fn start(configuration: NodeConfiguration) -> Result<NodeHandle, StartError> {
        Node::start_with(configuration, &Catalogue::default()).await
    }

    /// The same with the protocols of `catalogue`.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn start_with(
        configuration: NodeConfiguration,
        catalogue: &Catalogue,
    ) -> Result<NodeHandle, StartError> {
        let address = &configuration.listen;
        let listener = TcpListener::bind(address).await.map_err(|error| listen(address, error))?;
        Node::serve(listener, configuration, catalogue)
    }

    /// The same on a listener.
    pub(crate) fn serve(
        listener: TcpListener,
        configuration: NodeConfiguration,
        catalogue: &Catalogue,
    ) -> Result<NodeHandle, StartError> {
        let place = configuration.check(catalogue)?;
        let local_addr = listener.local_addr().map_err(StartError::System)?;
        let server = Arc::new(Server::new(configuration, place, catalogue)?);
        let (failed, stopped) = watch::channel(None);
        let endpoint = server.endpoint.clone();
        tracing::info!(node = %endpoint.id, address = %local_addr, "serving");
        let task = tokio::spawn(server.serve(listener, failed));
        Ok(NodeHandle { endpoint, local_addr, stopped, task })
    }
}

/// Says what can be done about an address that can't be listened on.
pub(crate) fn listen(address: &str, error: io::Error) -> StartError {
    let address = address.to_string();
    match error.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
        _ => StartError::Listen { address, error },
    }
}

/// A running node. Dropped, the node stops at once.
pub struct NodeHandle {
    pub(crate) endpoint: Arc<Endpoint>,
    local_addr: SocketAddr,
    stopped: watch::Receiver<Option<NodeFailed>>,
    task: JoinHandle<()>,
}

impl NodeHandle {
    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What it has counted so far.
    pub fn statistics(&self) -> NodeStatistics {
        statistics(&self.endpoint)
    }

    /// Waits until the node no longer serves.
    ///
    /// # Errors
    /// If it stopped because an invariant was broken.
    pub async fn stopped(&self) -> Result<(), NodeFailed> {
        let mut stopped = self.stopped.clone();
        // The sender goes with the node's task, whether or not it has said anything.
        let failed = stopped.wait_for(Option::is_some).await.ok().and_then(|failed| *failed);
        failed.map_or(Ok(()), Err)
    }

    /// Stops the node: it accepts nothing more, writes what waits, and closes its connections.
    pub async fn shutdown(mut self) {
        self.endpoint.close();
        if tokio::time::timeout(FLUSH_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
            // It ends at its next await, with its sockets closed.
            let _ = (&mut self.task).await;
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a node's endpoint has counted.
pub(crate) fn statistics(endpoint: &Endpoint) -> NodeStatistics {
    let process_cpu = process_cpu_time();
    let core = endpoint.lock();
    NodeStatistics {
        node: endpoint.id,
        counters: core.links.counters,
        connections: core.links.connections() as u64,
        process_cpu,
        process_id: std::process::id(),
    }
}

/// What the tasks of a node share.
pub(crate) struct Server {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) configuration: NodeConfiguration,
    pub(crate) place: Option<Place>,
    welcome: Welcome,
}

impl Server {
    fn new(
        configuration: NodeConfiguration,
        place: Option<Place>,
        catalogue: &Catalogue,
    ) -> Result<Server, StartError> {
        let id = NodeId(configuration.node as u64);
        let mut random = Random::try_from_rng(&mut rand::rngs::SysRng)
            .map_err(|error| StartError::System(io::Error::other(error)))?;
        let seed = Random::from_rng(&mut random);
        let endpoint = Endpoint::new(id, configuration.transport, 0, seed);
        let nodes = configuration.peers.len();
        let group = match place {
            None => Group::new(nodes, NEAR),
            Some(Place { geography, site }) => {
                let replicas = geography.nearest_first(site, nodes);
                Group::nearest_first(replicas, geography.longest_round_trip(site))
            }
        };
        let mut keyspaces = Vec::new();
        for (i, keyspace) in configuration.keyspaces.iter().enumerate() {
            let entry = catalogue.find(&keyspace.protocol).expect("a checked configuration");
            let machine = (entry.replica)(group.clone(), id, Random::from_rng(&mut random));
            endpoint.install(i as u16, machine);
            keyspaces.push(KeyspaceInfo {
                id: i as u16,
                name: keyspace.name.clone(),
                protocol: entry.name.to_string(),
                guarantee: entry.guarantee.name().to_string(),
            });
        }
        let welcome = Welcome {
            node: id,
            cluster: configuration.cluster.clone(),
            peers: configuration.peers.clone(),
            site: match place {
                Some(Place { geography, site }) => Some(geography.sites[site].to_string()),
                None => configuration.site.clone(),
            },
            geography: configuration.geography.clone(),
            keyspaces,
            limits: configuration.limits,
            frame_bytes: configuration.transport.frame_bytes,
        };
        Ok(Server { endpoint: Arc::new(endpoint), configuration, place, welcome })
    }

    /// Serves until the endpoint is closed or one of its machines panics.
    async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        failed: watch::Sender<Option<NodeFailed>>,
    ) {
        let mut tasks = JoinSet::new();
        let time = self.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = time.endpoint.keep_time() => {}
                () = time.endpoint.closed() => {}
            }
        });
        for number in 0..self.configuration.peers.len() {
            if number != self.configuration.node {
                tasks.spawn(peer::keep(self.clone(), number));
            }
        }
        while self.endpoint.is_sound() {
            tokio::select! {
                () = self.endpoint.closed() => break,
                // A task's panic shows at the top of the loop.
                Some(_) = tasks.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        tasks.spawn(self.clone().meet(stream, peer));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "can't accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        if self.endpoint.is_sound() {
            while tasks.join_next().await.is_some() {}
        }
        if !self.endpoint.is_sound() {
            let node = self.endpoint.id;
            tracing::error!(%node, "stopped: an invariant was broken");
            failed.send_replace(Some(NodeFailed { node }));
        }
    }

    /// One connection, from its first byte to its last.
    async fn meet(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        match self.converse(stream).await {
            Ended::Closed => tracing::debug!(%peer, "connection closed"),
            Ended::Lost(error) => tracing::debug!(%peer, %error, "connection lost"),
            ended => tracing::warn!(%peer, reason = %ended, "connection closed by this node"),
        }
    }

    async fn converse(&self, stream: TcpStream) -> Ended {
        let endpoint = &self.endpoint;
        let mut connection = match Connection::new(stream) {
            Ok(connection) => connection,
            Err(error) => return Ended::Lost(error),
        };
        let handshake = tokio::select! {
            () = endpoint.closed() => return Ended::Closed,
            handshake = tokio::time::timeout(
                endpoint.transport.handshake_timeout(),
                self.shake_hands(&mut connection),
            ) => handshake,
        };
        let (hello, delay) = match handshake {
            Ok(Ok(met)) => met,
            Ok(Err(ended)) => return ended,
            Err(_) => return Ended::TimedOut,
        };
        let link = endpoint.lock().links.open(LinkOptions {
            node: hello.node,
            route: false,
            delay,
            frame_bytes: hello.frame_bytes,
            most_waiting_bytes: endpoint.transport.most_waiting_bytes,
        });
        connection.run(endpoint, hello.node, link).await
    }

    /// Who is there, and how far away it is meant to be.
    async fn shake_hands(&self, connection: &mut Connection) -> Result<(Hello, Duration), Ended> {
        let hello: Hello = match connection.receive().await? {
            (kind @ Kind::Hello, payload) => decode(kind, &payload)?,
            (kind, _) => return Err(BadFrame::Unexpected(kind).into()),
        };
        match self.judge(&hello) {
            Ok(delay) => {
                connection.send(Kind::Welcome, &encode(&self.welcome)).await?;
                Ok((hello, delay))
            }
            Err(reason) => {
                connection.send(Kind::Reject, &encode(&reason)).await?;
                Err(Ended::Rejected(reason))
            }
        }
    }

    fn judge(&self, hello: &Hello) -> Result<Duration, String> {
        let Welcome { cluster, node, .. } = &self.welcome;
        if let Some(wanted) = hello.cluster.as_ref().filter(|wanted| *wanted != cluster) {
            return Err(format!("{node} is of cluster `{cluster}`, not `{wanted}`"));
        }
        let least = crate::TransportOptions::LEAST_FRAME_BYTES;
        if hello.frame_bytes < least {
            return Err(format!("frames of {least} bytes must be accepted"));
        }
        let nodes = self.configuration.peers.len() as u64;
        if !hello.node.is_coordinator() && (hello.node.0 >= nodes || hello.node == *node) {
            return Err(format!("{} is not another node of cluster `{cluster}`", hello.node));
        }
        let most = self.endpoint.transport.connections;
        if self.endpoint.lock().links.connections() >= most {
            return Err(format!("{node} has {most} connections, as many as it may"));
        }
        let Some(place) = self.place else { return Ok(Duration::ZERO) };
        let number = if hello.node.is_coordinator() { 0 } else { hello.node.0 as usize };
        let other = Place::find(place.geography, hello.site.as_deref(), number)?;
        Ok(place.delay_to(other))
    }

    /// How this node introduces itself to another.
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            node: self.endpoint.id,
            cluster: Some(self.configuration.cluster.clone()),
            site: self.welcome.site.clone().filter(|_| self.place.is_some()),
            frame_bytes: self.configuration.transport.frame_bytes,
        }
    }
}
