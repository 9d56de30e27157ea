//! What the cores of a node share, and what each of their threads does.
//!
//! Threads that take connections from one queue would need locks around everything that a connection touches. Here a
//! partition, its log and its connections belong to one core. Core 0 accepts a connection, reads which core is wanted, and
//! hands it over.

mod differences;
mod replaced;

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use serried_actor::{Group, Random};
use serried_model::{Durability, NodeId, Provenance};
use serried_wire::{
    BadFrame, Behind, Clock, Connection, Detached, End, Ended, Endpoint, Hello, Kind, KnownData,
    LinkOptions, Moment, NodeStatistics, NodeStatus, NotVoting, OutBuffer, Place, Role, Shards,
    Sparing, Statistics, Tables, TransportOptions, Welcome, decode, encode, legible,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use crate::admission::{Admission, Admitted, Sort};
use crate::configuration::NodeConfiguration;
use crate::durable::Disks;
use crate::flusher::{self, Latency};
use crate::joining::{Joining, rejoined};
use crate::metrics::{Exposed, Partition};
use crate::neighbours::{Neighbours, Present};
use crate::node::{NodeFailed, StartError};
use crate::process::{process_cpu_time, resident_memory};
use crate::replica::Replicas;
use crate::side::NodeSide;
use crate::standing::{behind, not_voting};
use crate::{internal, peer};

/// How long a node that is shut down waits for its connections to be flushed.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after the operating system refused a connection, usually because there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The round trip that replicas assume where nothing is known: that of loopback or a local network.
const NEAR: Duration = Duration::from_millis(1);

/// What the threads of a node share.
pub(crate) struct Server {
    pub(crate) configuration: NodeConfiguration,
    pub(crate) place: Option<Place>,
    pub(crate) shards: Shards,
    welcome: Welcome,
    /// Which keyspaces the nodes have, as each said last.
    tables: Mutex<Tables>,
    group: Group,
    cores: Vec<Seat>,
    admission: Arc<Admission>,
    neighbours: Arc<Neighbours>,
    sparing: Sparing,
    disks: Option<Arc<dyn Disks>>,
    /// Held while another node is met.
    meeting: Mutex<()>,
    started: Instant,
    state: watch::Sender<State>,
}

/// How a node is.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// Threads that have not ended.
    pub(crate) running: usize,
    /// They are to end at once.
    pub(crate) killed: bool,
    pub(crate) failed: Option<NodeFailed>,
}

/// A core, as the others reach it.
struct Seat {
    endpoint: Arc<Endpoint<NodeSide>>,
    inbox: mpsc::Sender<OutBuffer>,
    arrivals: mpsc::UnboundedSender<Arrival>,
}

/// A connection that has been accepted for another core.
struct Arrival {
    connection: Detached,
    met: Met,
}

/// The other end of a connection.
struct Met {
    node: NodeId,
    incarnation: u64,
    provenance: Option<Provenance>,
    /// The data that the nodes have, as this node has reported it to the other end.
    reported: KnownData,
    delay: Duration,
    frame_bytes: usize,
    _admitted: Admitted,
}

/// Why a connection is turned away.
enum Refusal {
    /// It does not fit.
    Unfit(String),
    /// Its data does not count, or not any more.
    Disowned(String),
    /// There is no room for it now.
    Full(String),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Unfit(reason)
    }
}

/// What a core's thread starts with.
pub(crate) struct Thread {
    server: Arc<Server>,
    core: usize,
    inbox: mpsc::Receiver<OutBuffer>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
}

impl Server {
    /// A node that is yet to be started, and its threads.
    pub(crate) fn new(
        configuration: NodeConfiguration,
        place: Option<Place>,
        replicas: &Replicas,
        disks: Option<Arc<dyn Disks>>,
    ) -> Result<(Arc<Server>, Vec<Thread>), StartError> {
        let id = NodeId::replica(0, configuration.node);
        let mut random = Random::try_from_rng(&mut rand::rngs::SysRng)
            .map_err(|error| StartError::System(io::Error::other(error)))?;
        let nodes = configuration.peers.len();
        let group = match place {
            None => Group::new(nodes, NEAR),
            Some(Place { geography, site }) => {
                let replicas = geography.nearest_first(site, nodes);
                Group::nearest_first(replicas, geography.longest_round_trip(site))
            }
        };
        let incarnation = random.next_u64();
        let joining =
            Joining { configuration: &configuration, place, disks: disks.as_deref(), incarnation };
        let generations = joining.settle()?;
        let site = joining.hello(0).site;
        let mut keyspaces: Vec<_> = configuration
            .keyspaces
            .iter()
            .zip(generations)
            .map(|(keyspace, generation)| {
                let entry = replicas.find(&keyspace.protocol).expect("a checked configuration");
                keyspace.describe(&configuration.cluster, generation, entry)
            })
            .collect();
        let shards =
            Shards::new(keyspaces.iter().map(|keyspace| (keyspace.number, keyspace.partitions)));
        for (i, keyspace) in keyspaces.iter_mut().enumerate() {
            keyspace.first_shard = shards.first(i as u16);
        }
        let mut tables = Tables::default();
        tables.put(configuration.node, nodes, keyspaces.clone());
        let records = disks.as_ref().map(|disks| disks.keyspaces()).unwrap_or_default();
        let dropped = records.into_iter().filter(|record| record.dropped);
        let dropped = dropped.map(|record| (record.identity.name, record.generation)).collect();
        let count = configuration.core_count();
        // What cores observe is compared, so their times are from one clock.
        let clock = Clock::start(configuration.transport.clock_uncertainty());
        let (mut cores, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let seed = Random::from_rng(&mut random);
            let mut endpoint =
                Endpoint::new(id, configuration.transport, seed, NodeSide::new(id.member()));
            endpoint.clock = clock;
            {
                let mut core = endpoint.lock();
                core.shards = shards.clone();
                core.links.set_cores(configuration.node, count, shards.firsts());
                core.links
                    .set_most_for_clients(client_bytes_of_core(&configuration.transport, count));
            }
            let (inbox, inbox_receiver) = mpsc::channel(internal::INBOX_BUFFERS);
            let (arrivals, arrivals_receiver) = mpsc::unbounded_channel();
            cores.push(Seat { endpoint: Arc::new(endpoint), inbox, arrivals });
            receivers.push((inbox_receiver, arrivals_receiver));
        }
        let lost = disks.as_ref().and_then(|disks| disks.lost());
        let welcome = Welcome {
            node: id,
            cluster: configuration.cluster.clone(),
            peers: configuration.peers.clone(),
            cores: count as u16,
            site: site.or(configuration.site.clone()),
            incarnation,
            geography: configuration.geography.clone(),
            keyspaces,
            dropped,
            knows_lost: lost.is_some() || !disks.as_ref().is_some_and(|disks| rejoined(&**disks)),
            lost: lost.into_iter().flatten().collect(),
            provenance: disks.as_ref().and_then(|disks| disks.provenance()),
            known: Vec::new(),
            limits: configuration.limits,
            frame_bytes: configuration.transport.frame_bytes,
        };
        let admission = Arc::new(Admission::new(configuration.transport.connections));
        let server = Arc::new(Server {
            configuration,
            place,
            shards,
            welcome,
            tables: Mutex::new(tables),
            group,
            cores,
            admission,
            neighbours: Arc::default(),
            sparing: Sparing::default(),
            disks,
            meeting: Mutex::default(),
            started: Instant::now(),
            state: watch::Sender::new(State { running: count, ..State::default() }),
        });
        for seat in &server.cores {
            let server = Arc::downgrade(&server);
            let census = move || server.upgrade().map(|server| server.status());
            seat.endpoint.outside.set(Box::new(census));
        }
        let threads = receivers.into_iter().enumerate().map(|(core, (inbox, arrivals))| Thread {
            server: server.clone(),
            core,
            inbox,
            arrivals,
        });
        let threads = threads.collect();
        Ok((server, threads))
    }

    /// The node's id.
    pub(crate) fn id(&self) -> NodeId {
        self.welcome.node
    }

    /// What one of its cores has.
    pub(crate) fn endpoint(&self, core: usize) -> &Arc<Endpoint<NodeSide>> {
        &self.cores[core].endpoint
    }

    /// How it is, and how it will be.
    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Makes the partitions ready for the end of the node.
    pub(crate) fn prepare_to_stop(&self) {
        let sound = self.cores.iter().filter(|seat| seat.endpoint.is_sound());
        sound.for_each(|seat| prepare_to_stop(&seat.endpoint));
    }

    /// Whether all of its partitions may stop now.
    pub(crate) fn may_stop(&self) -> bool {
        self.cores.iter().all(|seat| !seat.endpoint.is_sound() || may_stop(&seat.endpoint))
    }

    /// Flushes and closes every connection, and ends its threads.
    pub(crate) fn close(&self) {
        self.cores.iter().for_each(|seat| seat.endpoint.close());
    }

    /// Ends its threads at once.
    pub(crate) fn kill(&self) {
        self.state.send_modify(|state| state.killed = true);
    }

    /// Which keyspaces the nodes have.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another node has said which keyspaces it has.
    pub(crate) fn learn(&self, other: &Welcome) {
        let nodes = self.configuration.peers.len();
        self.tables().put(other.node.member(), nodes, other.keyspaces.clone());
    }

    /// How it is doing.
    pub(crate) fn status(&self) -> NodeStatus {
        let (not_served, outside) = {
            let tables = self.tables();
            (tables.not_served(), tables.outside(self.configuration.node))
        };
        let mut status = NodeStatus {
            version: env!("CARGO_PKG_VERSION").to_string(),
            incarnation: self.welcome.incarnation,
            uptime: self.started.elapsed(),
            durability: self.configuration.durability,
            cores: self.welcome.cores,
            partitions: self.shards.len() as u16,
            nodes: self.configuration.peers.len() as u16,
            reached: self.reached(),
            obstacle: None,
            not_served,
            outside,
            behind: None,
            not_voting: None,
            flush_under_way: None,
            flush_lag: 0,
            held_bytes: 0,
            waiting_bytes: 0,
            statistics: NodeStatistics {
                node: self.id(),
                counters: Statistics::default(),
                connections: 0,
                process_cpu: process_cpu_time(),
                process_id: std::process::id(),
            },
        };
        let Moment { now, clock } = self.endpoint(0).clock.moment();
        for core in self.cores.iter().filter_map(|seat| seat.endpoint.look()) {
            let statistics = &mut status.statistics;
            statistics.counters = statistics.counters.plus(&core.links.counters);
            statistics.connections += core.links.connections() as u64;
            let (held, waiting) = core.links.waiting_bytes();
            status.held_bytes += held as u64;
            status.waiting_bytes += waiting as u64;
            status.flush_lag = status.flush_lag.max(core.side.flushing.lag(core.links.flushed()));
            status.obstacle = status.obstacle.or_else(|| core.side.flushing.obstacle.clone());
            status.flush_under_way = status.flush_under_way.max(core.side.flushing.under_way());
            let behind = [status.behind, behind(&core, now)];
            status.behind = behind.into_iter().flatten().reduce(Behind::plus);
            let not_voting = [status.not_voting, not_voting(&core, clock.latest_us)];
            status.not_voting = not_voting.into_iter().flatten().reduce(NotVoting::plus);
        }
        status
    }

    /// How many nodes it reaches, itself included.
    fn reached(&self) -> u16 {
        let others = (0..self.configuration.peers.len()).filter(|i| *i != self.configuration.node);
        let core = self.endpoint(0).look();
        let reached = others.filter(|i| core.as_ref().is_some_and(|core| core.links.reaches(*i)));
        1 + reached.count() as u16
    }

    /// Whether it serves; why not.
    pub(crate) fn health(&self) -> Result<(), String> {
        let state = self.state.borrow().clone();
        if let Some(failed) = state.failed {
            return Err(failed.to_string());
        }
        if state.running < self.cores.len() || self.endpoint(0).is_closed() {
            return Err(format!("{} is stopping", self.id()));
        }
        self.status().serves()
    }

    /// Its figures, in Prometheus' text format.
    pub(crate) fn metrics(&self) -> String {
        let status = self.status();
        let mut latency = Latency::default();
        let mut partitions = Vec::new();
        for (i, seat) in self.cores.iter().enumerate() {
            let Some(core) = seat.endpoint.look() else { continue };
            latency = latency.plus(&core.side.flushing.latency);
            for shard in self.shards.of_core(i, self.cores.len()) {
                let Some((keyspace, partition)) = self.shards.find(shard) else { continue };
                partitions.extend(core.actor(usize::from(shard)).map(|replica| Partition {
                    keyspace: &self.configuration.keyspaces[usize::from(keyspace)].name,
                    number: partition,
                    counts: replica.counts(),
                    gauges: replica.gauges(),
                }));
            }
        }
        partitions.sort_by_key(|partition| (partition.keyspace, partition.number));
        let resident_bytes = resident_memory();
        Exposed { status: &status, latency, partitions, resident_bytes }.text()
    }

    /// How a core of this node introduces itself to another node.
    pub(crate) fn hello(&self, core: usize) -> Hello {
        let Server { configuration, place, .. } = self;
        let (disks, incarnation) = (self.disks.as_deref(), self.welcome.incarnation);
        Joining { configuration, place: *place, disks, incarnation }.hello(core)
    }

    /// A panic has ended a part of the node. The rest ends too, at once.
    pub(crate) fn fail(&self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let cause = text.unwrap_or_else(|| "something has panicked".to_string());
        let node = self.id();
        self.state.send_modify(|state| {
            state.killed = true;
            // Later panics are consequences of the first.
            if state.failed.is_none() {
                tracing::error!(%node, cause, "stopped: a panic has ended a part of it");
                state.failed = Some(NodeFailed::Panicked { node, cause });
            }
        });
    }

    /// What has ended the node, if it was not stopped.
    pub(crate) fn failure(&self) -> Option<NodeFailed> {
        self.state.borrow().failed.clone()
    }

    /// Syncs everything to the disk, once all threads have ended. Does nothing if the node was not stopped.
    pub(crate) fn close_disks(&self) {
        if self.state.borrow().failed.is_some() {
            return;
        }
        if let Some(Err(error)) = self.disks.as_ref().map(|disks| disks.close()) {
            tracing::warn!(node = %self.id(), error, "it counts as killed");
        }
    }

    /// Learns what is at the other end, and how far away it is meant to be.
    async fn shake_hands(&self, connection: &mut Connection) -> Result<(u16, Met), Ended> {
        let hello: Hello = match connection.receive().await? {
            (kind @ Kind::Hello, payload) => decode(kind, &payload)?,
            (kind, _) => return Err(BadFrame::Unexpected(kind).into()),
        };
        match self.judge(&hello).await {
            Ok(_) if hello.inquires => {
                connection.send(Kind::Welcome, &encode(&self.welcome())).await?;
                Err(Ended::Closed)
            }
            Ok((delay, _admitted)) => {
                let welcome = self.welcome();
                connection.send(Kind::Welcome, &encode(&welcome)).await?;
                let (Hello { node, incarnation, frame_bytes, provenance, core, .. }, reported) =
                    (hello, welcome.known);
                let met =
                    Met { node, incarnation, provenance, reported, delay, frame_bytes, _admitted };
                Ok((core, met))
            }
            Err(Refusal::Disowned(reason)) => {
                connection.send(Kind::Disowned, &encode(&reason)).await?;
                Err(Ended::Disowned(reason))
            }
            Err(Refusal::Unfit(reason)) => {
                connection.send(Kind::Reject, &encode(&reason)).await?;
                Err(Ended::Rejected(reason))
            }
            Err(Refusal::Full(reason)) => {
                connection.send(Kind::Full, &encode(&reason)).await?;
                Err(Ended::Full(reason))
            }
        }
    }

    /// Whether a connection is let in. Its sender is judged first: what is noted of a node's data must come from the one
    /// process that passes for it.
    async fn judge(&self, hello: &Hello) -> Result<(Duration, Admitted), Refusal> {
        self.judge_sender(hello)?;
        // It must learn that its data does not count, although its successor is here, and passes for its node.
        let is_known = self.judge_data(hello)?;
        let (id, cluster) = (self.id(), &self.welcome.cluster);
        let sort = Sort::of(hello.node);
        let full = || {
            let most = self.admission.most(sort);
            Refusal::Full(format!("{id} has {most} connections, as many as it may"))
        };
        let admitted = self.admission.admit(sort).ok_or_else(full)?;
        let heartbeat = self.configuration.transport.heartbeat();
        if !hello.node.is_coordinator()
            && self.neighbours.is_taken(hello.node, hello.incarnation, heartbeat).await
        {
            let node = hello.node;
            return Err(Refusal::Unfit(format!(
                "another process passes for {node} of cluster `{cluster}`: stop one of the two"
            )));
        }
        if !is_known && !hello.inquires {
            self.confirm_data(hello).await?;
        }
        let Some(place) = self.place else { return Ok((Duration::ZERO, admitted)) };
        let number = if hello.node.is_coordinator() { 0 } else { hello.node.member() };
        let other = Place::find(place.geography, hello.site.as_deref(), number)?;
        Ok((place.delay_to(other), admitted))
    }

    fn judge_sender(&self, hello: &Hello) -> Result<(), String> {
        let Welcome { cluster, node, .. } = &self.welcome;
        if let Some(wanted) = hello.cluster.as_ref().filter(|wanted| *wanted != cluster) {
            return Err(format!("{node} is of cluster `{cluster}`, not `{wanted}`"));
        }
        let least = TransportOptions::LEAST_FRAME_BYTES;
        if hello.frame_bytes < least {
            return Err(format!("frames of {least} bytes must be accepted"));
        }
        let nodes = self.configuration.peers.len() as u64;
        if !hello.node.is_coordinator() && (hello.node.0 >= nodes || hello.node == *node) {
            return Err(format!("{} is not another node of cluster `{cluster}`", hello.node));
        }
        let own = self.disks.as_ref().and_then(|disks| disks.provenance());
        match (own, hello.provenance) {
            (_, None) if hello.node.is_coordinator() => Ok(()),
            (_, Some(_)) if hello.node.is_coordinator() => {
                Err("a client has no data: only nodes say which they have".to_string())
            }
            (Some(_), None) => Err(format!("{} {FORGETS}, and {node} does not", hello.node)),
            (None, Some(_)) => Err(format!("{node} {FORGETS}, and {} does not", hello.node)),
            (None, None) | (Some(_), Some(_)) => Ok(()),
        }
    }
}

/// What is wrong with a node that has no disk among others that have.
const FORGETS: &str =
    "forgets everything when it ends (durability memory): start all with the same durability";

/// Makes the replicas of a core ready for the end of the node.
fn prepare_to_stop(endpoint: &Endpoint<NodeSide>) {
    let moment = endpoint.clock.moment();
    let mut core = endpoint.lock();
    for place in 0..core.places() {
        core.run(place, |replica, out| replica.prepare_to_stop(moment, out));
    }
    core.settle(moment);
}

/// Whether all replicas of a core may stop now.
fn may_stop(endpoint: &Endpoint<NodeSide>) -> bool {
    endpoint.lock().actors().all(|replica| replica.may_stop())
}

/// How much each of `cores` cores keeps for clients, in bytes.
fn client_bytes_of_core(transport: &TransportOptions, cores: usize) -> usize {
    let one = transport.frame_bytes.saturating_mul(2).saturating_add(transport.most_waiting_bytes);
    (transport.client_bytes / cores).max(one)
}

/// Notes the end of a thread.
pub(crate) struct Running(Arc<Server>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.running -= 1);
    }
}

impl Thread {
    /// Which core this is for.
    pub(crate) fn core(&self) -> usize {
        self.core
    }

    /// What it shares with the others.
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// For as long as it runs.
    pub(crate) fn running(&self) -> Running {
        Running(self.server.clone())
    }

    /// Installs the replicas of the partitions that this core serves, as they were when the node last
    /// stopped if it has a disk.
    pub(crate) fn install(&self, replicas: &Replicas) -> Result<(), StartError> {
        let Server { configuration, shards, group, cores, welcome, .. } = &*self.server;
        let endpoint = self.server.endpoint(self.core);
        for shard in shards.of_core(self.core, cores.len()) {
            let (number, partition) = shards.find(shard).expect("it is one of them");
            let keyspace = &configuration.keyspaces[usize::from(number)];
            let entry = replicas.find(&keyspace.protocol).expect("a checked configuration");
            let role = Role {
                id: NodeId::replica(partition, configuration.node),
                keyspace: welcome.keyspaces[usize::from(number)].number,
                random: Random::from_rng(&mut endpoint.lock().random),
            };
            let group = group.clone().with_partitions(keyspace.partitions);
            let disks = self.server.disks.as_ref();
            let disk = disks.map(|disks| disks.open(&keyspace.name, partition)).transpose();
            let replica = disk.and_then(|disk| (entry.make.0)(group, keyspace, role, disk));
            let replica = replica.map_err(|reason| {
                let keyspace = keyspace.name.clone();
                StartError::Storage { keyspace, partition, reason }
            })?;
            endpoint.install(shard, replica);
        }
        Ok(())
    }

    /// Serves until the node is closed or killed, or one of its replicas panics; `listener` is for the
    /// core that accepts connections.
    pub(crate) async fn run(self, listener: Option<TcpListener>) {
        let mut state = self.server.watch();
        tokio::select! {
            _ = state.wait_for(|state| state.killed) => {}
            () = self.serve(listener) => {}
        }
    }

    async fn serve(self, mut listener: Option<TcpListener>) {
        let Thread { server, core, inbox, mut arrivals } = self;
        let endpoint = server.endpoint(core).clone();
        let mut tasks = JoinSet::new();
        let time = endpoint.clone();
        tasks.spawn(until_closed(endpoint.clone(), async move { time.keep_time().await }));
        let beats = endpoint.clone();
        tasks.spawn(until_closed(endpoint.clone(), async move { beats.keep_beating().await }));
        for member in 0..server.configuration.peers.len() {
            if member != server.configuration.node {
                tasks.spawn(peer::keep(server.clone(), core, member));
            }
        }
        if endpoint.lock().actors().any(|replica| replica.is_durable()) {
            let sync = server.configuration.durability == Durability::Sync;
            tasks.spawn(flusher::flush(endpoint.clone(), sync));
        }
        if server.shards.len() > 1 {
            for (other, seat) in server.cores.iter().enumerate() {
                tasks.spawn(internal::carry(endpoint.clone(), other, seat.inbox.clone()));
            }
            let take_in = internal::take_in(endpoint.clone(), inbox);
            tasks.spawn(until_closed(endpoint.clone(), take_in));
        }
        loop {
            tokio::select! {
                () = endpoint.closed() => break,
                Some(ended) = tasks.join_next() => note(&server, ended),
                Some(arrival) = arrivals.recv() => {
                    tasks.spawn(arrive(server.clone(), core, arrival));
                }
                accepted = accept(&listener) => match accepted {
                    Ok((stream, peer)) => {
                        tasks.spawn(meet(server.clone(), core, stream, peer));
                    }
                    Err(error) => {
                        if let Some(more) = server.sparing.may_say("accept", Instant::now().into()) {
                            tracing::warn!(%error, more, "can't accept a connection");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener.take());
        let ended = async {
            while let Some(ended) = tasks.join_next().await {
                note(&server, ended);
            }
        };
        // Those that do not end in time are ended with the set.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, ended).await;
    }
}

/// A task of a core has ended: with a panic, it takes the node with it.
fn note(server: &Server, ended: Result<(), JoinError>) {
    if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
        server.fail(panic.as_ref());
    }
}

/// A connection, on the core that has a listener.
async fn accept(listener: &Option<TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn until_closed(endpoint: Arc<Endpoint<NodeSide>>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = endpoint.closed() => {}
    }
}

/// One connection, from its first byte to its last, or until it is handed to another core.
async fn meet(server: Arc<Server>, core: usize, stream: TcpStream, peer: SocketAddr) {
    let ended = greet(server.clone(), core, stream).await;
    report(&server.sparing, &peer.to_string(), ended);
}

async fn arrive(server: Arc<Server>, core: usize, arrival: Arrival) {
    let Arrival { connection, met } = arrival;
    let node = met.node.to_string();
    let ended = match Connection::attach(connection) {
        Ok(connection) => converse(server.clone(), core, connection, met).await,
        Err(error) => Ended::Lost(error),
    };
    report(&server.sparing, &node, ended);
}

/// Logs why a connection has ended. The other end decides how often that happens, and what the reason names.
fn report(sparing: &Sparing, peer: &str, ended: Ended) {
    match &ended {
        Ended::Closed => tracing::debug!(peer, "connection closed"),
        Ended::Lost(error) => tracing::debug!(peer, %error, "connection lost"),
        Ended::HandedOver => {}
        _ => {
            let reason = legible(&ended.to_string());
            match sparing.may_say(ended.cause(), Instant::now().into()) {
                Some(more) => {
                    tracing::warn!(peer, reason, more, "connection closed by this node");
                }
                None => tracing::debug!(peer, reason, "connection closed by this node"),
            }
        }
    }
}

async fn greet(server: Arc<Server>, core: usize, stream: TcpStream) -> Ended {
    let endpoint = server.endpoint(core);
    let Some(stranger) = server.admission.admit(Sort::Stranger) else {
        let most = server.admission.most(Sort::Stranger);
        return Ended::Full(format!("{most} others have not said yet who they are"));
    };
    let mut connection = match Connection::new(stream) {
        Ok(connection) => connection,
        Err(error) => return Ended::Lost(error),
    };
    let handshake = tokio::select! {
        () = endpoint.closed() => return Ended::Closed,
        handshake = tokio::time::timeout(
            endpoint.transport.handshake_timeout(),
            server.shake_hands(&mut connection),
        ) => handshake,
    };
    drop(stranger);
    let (wanted, met) = match handshake {
        Ok(Ok(met)) => met,
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::TimedOut,
    };
    let wanted = usize::from(wanted) % server.cores.len();
    if wanted == core {
        return converse(server.clone(), core, connection, met).await;
    }
    match connection.detach() {
        Ok(connection) => {
            // A core that has ended takes nothing more.
            let _ = server.cores[wanted].arrivals.send(Arrival { connection, met });
            Ended::HandedOver
        }
        Err(error) => Ended::Lost(error),
    }
}

async fn converse(server: Arc<Server>, core: usize, connection: Connection, met: Met) -> Ended {
    let endpoint = server.endpoint(core);
    let Met { node, incarnation, provenance, reported, delay, frame_bytes, _admitted } = met;
    let end = match node.is_coordinator() {
        true => End::Client(node),
        false => End::Core { member: node.member(), core: 0 },
    };
    let link = endpoint.lock().links.open(LinkOptions {
        end,
        route: false,
        internal: false,
        delay,
        frame_bytes,
        most_waiting_bytes: endpoint.transport.most_waiting_bytes,
    });
    // What was learned since it was judged concerns it too. What is learned from now on finds its link.
    let known = server.known();
    if node.is_coordinator() && known != reported {
        endpoint.lock().links.push_frame(link, Kind::Known, &encode(&known));
    }
    let judged = server.disks.as_ref().zip(provenance);
    if let Some(Err(reason)) = judged.map(|(disks, has)| disks.judge(node.member(), has)) {
        endpoint.lock().lose(link);
        return Ended::Disowned(reason);
    }
    let present = match node.is_coordinator() {
        true => None,
        false => {
            let present = Present::new(&server.neighbours, node, incarnation, (endpoint, link));
            if present.is_none() {
                endpoint.lock().lose(link);
                return Ended::Rejected(format!("another process passes for {node}"));
            }
            present
        }
    };
    let ended = connection.run(endpoint, node, link).await;
    drop(present);
    ended
}

#[cfg(test)]
mod tests;
