//! A client: connections to every replica of a cluster, and the coordinators of its transactions.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use serried_actor::Random;
use serried_model::{FamilyName, NodeId, Registers, Transactions};
use serried_protocols::Entry;
use serried_session::{RegisterKeyspace, Session, TransactionKeyspace};
use serried_wire::{
    Endpoint, Hello, KeyspaceInfo, Kind, NodeStatistics, NodeStatus, NotServed, Role, Statistics,
    Tables, TransportOptions, encode,
};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::coordinator::{AnyDesk, Coordinators, MakeCoordinator};
use crate::desk::Desk;
use crate::dialer::{Dialers, Report, View};
use crate::distance::{self, Distances};
use crate::error::ConnectError;
use crate::port::{KeyspacePort, keyspace_id};
use crate::side::ClientSide;

/// How long a client waits for the other nodes once a majority has answered.
const GRACE: Duration = Duration::from_millis(300);
/// How long a client that is closed waits for its connections to be flushed.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long nodes may take to say how they are doing.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// How to connect to a cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct ConnectOptions {
    /// Addresses of nodes, `host:port`, in any order. One that answers is enough if the nodes know
    /// each other's addresses.
    pub addresses: Vec<String>,
    /// The cluster's name. Nodes of other clusters are refused. Default: any cluster.
    pub cluster: Option<String>,
    /// Where this client is: a site of the geography that the cluster emulates, if it does. Default: the first site.
    pub site: Option<String>,
    /// The site to which this client belongs in keyspaces with several sites, from 0. It reads and writes there.
    /// Default: the site of the nearest node.
    pub home: Option<u16>,
    /// The most attempts of transactions, or operations on registers, that each keyspace may have open at a time; more
    /// have to wait. Default 16384.
    pub open_attempts: usize,
    /// How long connecting may take. Default 5 s.
    pub timeout: Duration,
    /// Bounds and times of the transport. Default: those of nodes, but with `poll_us` 0.
    pub transport: TransportOptions,
}

impl ConnectOptions {
    /// Connects to the cluster to which these addresses belong.
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> ConnectOptions {
        ConnectOptions {
            addresses: addresses.into_iter().map(Into::into).collect(),
            cluster: None,
            site: None,
            home: None,
            open_attempts: 16384,
            timeout: Duration::from_secs(5),
            transport: TransportOptions { poll_us: 0, ..TransportOptions::default() },
        }
    }
}

/// A node's status, and how long the request for it took.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeReply {
    /// The status.
    pub status: NodeStatus,
    /// The time from the request to its answer.
    pub round_trip: Duration,
}

/// A keyspace that has a coordinator.
#[derive(Clone)]
struct Opened {
    /// Its place among those of the client.
    place: u16,
    desk: AnyDesk,
    /// The client's site.
    home: u16,
}

/// A connected client. Its tasks run on the runtime on which it was connected.
pub struct Client {
    pub(crate) endpoint: Arc<Endpoint<ClientSide>>,
    view: View,
    distances: Distances,
    /// [`ConnectOptions::home`].
    home: Option<u16>,
    coordinators: Coordinators,
    /// The keyspaces that have a coordinator, by their numbers.
    opened: Mutex<BTreeMap<u64, Opened>>,
    /// How many attempts and operations each keyspace may have open.
    capacity: usize,
    dialers: Dialing,
    /// They fire timers and send heartbeats, and end with this.
    _tasks: JoinSet<()>,
}

impl Client {
    /// Connects, on the current tokio runtime.
    ///
    /// # Errors
    /// If no node answers in time, or if the nodes that answer are of different clusters.
    pub async fn connect(options: ConnectOptions) -> Result<Arc<Client>, ConnectError> {
        Client::connect_with(options, Coordinators::default()).await
    }

    /// The same with the protocols of `coordinators`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_with(
        options: ConnectOptions,
        coordinators: Coordinators,
    ) -> Result<Arc<Client>, ConnectError> {
        let mut random = Random::try_from_rng(&mut rand::rngs::SysRng)
            .map_err(|error| ConnectError::System(io::Error::other(error)))?;
        let id = NodeId(random.next_u64().max(NodeId::FIRST_COORDINATOR));
        let endpoint = Endpoint::new(id, options.transport, random, ClientSide::default());
        let endpoint = Arc::new(endpoint);
        let beating = endpoint.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { beating.keep_beating().await });
        let Meeting { dialers, view, round_trips, sites } =
            meet(endpoint.clone(), &options).await?;
        let distances = match view.place {
            Some(place) => {
                let of = |node| sites.get(&node).copied();
                let of = |node| of(node).unwrap_or_else(|| place.geography.site_of(node as usize));
                let sites: Vec<usize> = (0..view.peers.len() as u64).map(of).collect();
                Distances::emulated(place, &sites)
            }
            None => {
                let spread = distance::spread(options.site.as_deref());
                Distances::measured(&round_trips, view.peers.len(), spread)
            }
        };
        let time = endpoint.clone();
        tasks.spawn(async move { time.keep_time().await });
        // A runtime with several threads has another one wait for the sockets.
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            let polls = endpoint.clone();
            tasks.spawn(async move { polls.keep_polling().await });
        }
        Ok(Arc::new(Client {
            endpoint,
            view,
            distances,
            home: options.home,
            coordinators,
            opened: Mutex::default(),
            capacity: options.open_attempts,
            dialers,
            _tasks: tasks,
        }))
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.view.cluster
    }

    /// This client's identity, which its transactions' versions carry.
    pub fn id(&self) -> NodeId {
        self.endpoint.id
    }

    /// The nodes' numbers in the order of their distance from this client.
    pub fn nearest_first(&self) -> &[usize] {
        self.distances.nearest_first()
    }

    /// An estimate of the round trip to the farthest node.
    pub fn longest_round_trip(&self) -> Duration {
        self.distances.farthest()
    }

    /// The site at which this client uses the keyspace called `name`, from 0.
    ///
    /// # Errors
    /// If there is no such keyspace, it has no such site as the client was told to belong to, or it is not served
    /// there.
    pub fn home(&self, name: &str) -> Result<u16, ConnectError> {
        self.home_of(&self.find(name)?)
    }

    /// The same for a keyspace that was found. The site stays the same once the keyspace is open. If the client was not
    /// told its site, it is the nearest one of which a majority may have the keyspace.
    pub(crate) fn home_of(&self, keyspace: &KeyspaceInfo) -> Result<u16, ConnectError> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match opened.get(&keyspace.number) {
            Some(opened) => Ok(opened.home),
            None => self.choose_home(keyspace),
        }
    }

    fn choose_home(&self, keyspace: &KeyspaceInfo) -> Result<u16, ConnectError> {
        let (sites, placement) = (keyspace.sites, keyspace.placement(self.view.peers.len()));
        if sites == 1 {
            return Ok(0);
        }
        let tables = self.tables();
        let serves = |site: &u16| tables.may_serve(keyspace.number, self.nodes_of(*site, keyspace));
        let nearest = || self.nearest_first().iter().map(|node| placement.site_of(*node));
        let chosen = match self.home {
            Some(home) if home >= sites => {
                let (name, last) = (keyspace.name.clone(), sites - 1);
                return Err(ConnectError::NoSuchSite { name, home, last });
            }
            Some(home) => Some(home).filter(serves),
            None => nearest().find(serves),
        };
        chosen.ok_or_else(|| {
            let name = keyspace.name.clone();
            let where_it_is = self.home.map_or("any site".to_string(), |home| format!("site {home}"));
            let reason = format!(
                "keyspace `{name}` is not served at {where_it_is}: no majority of the nodes there has {}; give all nodes \
                 the same keyspace, and start them again",
                keyspace.description()
            );
            ConnectError::NotServed(NotServed { name, reason })
        })
    }

    /// The nodes of a keyspace's site.
    pub(crate) fn nodes_of(&self, site: u16, keyspace: &KeyspaceInfo) -> Range<usize> {
        let each = self.view.peers.len() / usize::from(keyspace.sites);
        let first = usize::from(site) * each;
        first..first + each
    }

    /// The cluster's keyspaces that can be used. One that a majority of the nodes lacks is left out.
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        self.tables().all()
    }

    /// Those that can't be used, and why.
    pub fn keyspaces_not_served(&self) -> Vec<NotServed> {
        self.tables().not_served()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.dialers.0.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The family of the keyspace called `name`, which is that of its protocol.
    ///
    /// # Errors
    /// If there is no such keyspace, or this client does not have its protocol.
    pub fn family(&self, name: &str) -> Result<FamilyName, ConnectError> {
        Ok(self.protocol_of(&self.find(name)?)?.family)
    }

    /// The keyspace called `name`, one that runs transactions.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn keyspace(self: &Arc<Self>, name: &str) -> Result<TransactionKeyspace, ConnectError> {
        self.open::<Transactions>(name)
    }

    /// The keyspace called `name`, one whose keys are registers.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn registers(self: &Arc<Self>, name: &str) -> Result<RegisterKeyspace, ConnectError> {
        self.open::<Registers>(name)
    }

    /// The keyspace called `name`, of the family `F`. It keeps the client alive.
    ///
    /// # Errors
    /// If there is none, it is of another family, this client does not have its protocol, or it is not served at the
    /// site to which this client belongs.
    pub fn open<F: Session>(self: &Arc<Self>, name: &str) -> Result<F::Keyspace, ConnectError> {
        let found = self.find(name)?;
        let entry = *self.protocol_of(&found)?;
        if entry.family != F::NAME {
            let (name, guarantee) = (name.to_string(), found.guarantee);
            let (found, wanted) = (entry.family, F::NAME);
            return Err(ConnectError::WrongFamily { name, guarantee, found, wanted });
        }
        let Opened { place, desk, home } = self.opened(&found, &entry)?;
        let nodes = self.nodes_of(home, &found);
        let desk: Arc<Desk<F>> = desk.downcast().expect("a desk of the protocol's family");
        let offers = desk.offers;
        let id = keyspace_id(self.cluster(), name, found.generation);
        let numbers = (found.number, id, home);
        let port = Arc::new(KeyspacePort::new(self.clone(), (place, nodes), desk, numbers));
        Ok(F::keyspace(port, self.view.limits, offers))
    }

    /// The coordinator of a keyspace, which is made when the keyspace is opened first.
    fn opened(
        &self,
        keyspace: &KeyspaceInfo,
        entry: &Entry<MakeCoordinator>,
    ) -> Result<Opened, ConnectError> {
        let KeyspaceInfo { name, number, settings, .. } = keyspace;
        let placement = keyspace.placement(self.view.peers.len());
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = opened.get(number) {
            return Ok(opened.clone());
        }
        let home = self.choose_home(keyspace)?;
        let group = self.distances.group(self.nodes_of(home, keyspace));
        let checked = entry.family.check_replicas(group.size());
        checked.map_err(|reason| ConnectError::UnknownProtocol { name: name.clone(), reason })?;
        let group = group.with_partitions(keyspace.partitions).at_site(home, keyspace.sites);
        let (place, random) = {
            let mut core = self.endpoint.lock();
            let random = Random::from_rng(&mut core.random);
            (core.shards.add(*number, placement), random)
        };
        let role = Role { id: self.endpoint.id, keyspace: *number, placement, random };
        let (coordinator, desk) = (entry.make.0)(group, settings, role, self.capacity);
        self.endpoint.install(place, coordinator);
        let new = Opened { place, desk, home };
        opened.insert(*number, new.clone());
        Ok(new)
    }

    /// What the cluster says of a keyspace.
    pub(crate) fn find(&self, name: &str) -> Result<KeyspaceInfo, ConnectError> {
        let tables = self.tables();
        let resolved = tables.resolve(name).cloned();
        resolved.map_err(|unresolved| ConnectError::unresolved(name, unresolved))
    }

    /// This client's part of the protocol that a keyspace runs.
    fn protocol_of(
        &self,
        keyspace: &KeyspaceInfo,
    ) -> Result<&Entry<MakeCoordinator>, ConnectError> {
        self.coordinators
            .find(&keyspace.protocol)
            .map_err(|reason| ConnectError::UnknownProtocol { name: keyspace.name.clone(), reason })
    }

    /// What this client has counted so far.
    pub fn statistics(&self) -> Statistics {
        self.endpoint.lock().links.counters
    }

    /// What the nodes have counted so far, by their numbers. `None` if a node does not answer within a second.
    pub async fn node_statistics(&self) -> Vec<Option<NodeStatistics>> {
        let statuses = self.node_statuses().await.into_iter();
        statuses.map(|status| status.map(|status| status.statistics)).collect()
    }

    /// How the nodes are doing, by their numbers. `None` if a node does not answer within a second.
    pub async fn node_statuses(&self) -> Vec<Option<NodeStatus>> {
        let replies = self.node_replies().await.into_iter();
        replies.map(|reply| reply.map(|reply| reply.status)).collect()
    }

    /// The same with the time that each answer took.
    pub async fn node_replies(&self) -> Vec<Option<NodeReply>> {
        let mut replies: Vec<_> = (0..self.view.peers.len()).map(|_| None).collect();
        let mut asked = JoinSet::new();
        for member in 0..replies.len() {
            let endpoint = self.endpoint.clone();
            asked.spawn(async move { (member, ask(&endpoint, member).await) });
        }
        while let Some(answered) = asked.join_next().await {
            if let Ok((member, reply)) = answered {
                replies[member] = reply;
            }
        }
        replies
    }

    /// Writes what waits, and closes every connection. Transactions that are still open end with
    /// their deadlines.
    pub async fn close(&self) {
        self.endpoint.close();
        let mut dialers = self.dialers.0.take();
        let joined = async { while dialers.join_next().await.is_some() {} };
        // Those that do not end in time are ended with the set.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, joined).await;
    }
}

/// Asks a node how it is doing.
async fn ask(endpoint: &Endpoint<ClientSide>, member: usize) -> Option<NodeReply> {
    let (sender, reply) = oneshot::channel();
    let asked = Instant::now();
    let request = {
        let mut core = endpoint.lock();
        let request = core.side.next_request();
        if !core.links.push_frame_to(member, 0, Kind::StatusRequest, &encode(&request)) {
            return None;
        }
        core.side.requests.insert(request, sender);
        request
    };
    let reply = tokio::time::timeout(STATUS_TIMEOUT, reply).await;
    endpoint.lock().side.requests.remove(&request);
    let status = reply.ok()?.ok()?;
    Some(NodeReply { status, round_trip: asked.elapsed() })
}

/// Dialers that end when the client does.
struct Dialing(Arc<Dialers>);

impl Drop for Dialing {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// What came of meeting the nodes.
struct Meeting {
    dialers: Dialing,
    view: View,
    /// By node, those that have answered: the round trip, and the site of the emulated geography if there is one.
    round_trips: BTreeMap<u64, Duration>,
    sites: BTreeMap<u64, usize>,
}

/// Dials all addresses, and the addresses that the nodes name, until every core of each node has answered or the time
/// for it is over. An address of a node that is known already is dialled too, because it may belong to another cluster.
async fn meet(
    endpoint: Arc<Endpoint<ClientSide>>,
    options: &ConnectOptions,
) -> Result<Meeting, ConnectError> {
    if options.addresses.is_empty() {
        let reason = "it names no node".to_string();
        return Err(ConnectError::Address { given: String::new(), reason });
    }
    let hello = Hello {
        node: endpoint.id,
        incarnation: 0,
        core: 0,
        cluster: options.cluster.clone(),
        site: options.site.clone(),
        frame_bytes: options.transport.frame_bytes,
        provenance: None,
        inquires: false,
    };
    let (reports, mut inbox) = mpsc::unbounded_channel();
    let dialing = Dialing(Dialers::new(endpoint, hello, reports));
    let dialers = &dialing.0;
    for address in &options.addresses {
        dialers.dial(address, 0);
    }
    let mut until = Instant::now() + options.timeout;
    let (mut round_trips, mut sites) = (BTreeMap::new(), BTreeMap::new());
    let mut tried = Vec::new();
    let mut reported = 0;
    while reported < dialers.dialed() {
        let Ok(Some(report)) = tokio::time::timeout_at(until, inbox.recv()).await else {
            break;
        };
        reported += 1;
        match report {
            Report::Met { replica, round_trip, site } => {
                round_trips.entry(replica).or_insert(round_trip);
                sites.extend(site.map(|site| (replica, site)));
                let peers = dialers.view.get().map_or(&[][..], |view| &view.peers);
                if round_trips.len() == peers.len() / 2 + 1 {
                    until = until.min(Instant::now() + GRACE.max(4 * round_trip));
                }
                for (i, peer) in peers.iter().enumerate() {
                    if !round_trips.contains_key(&(i as u64)) {
                        dialers.dial(peer, 0);
                    }
                }
            }
            Report::Duplicate => {}
            Report::Failed { address, reason, disagrees: true } => {
                return Err(ConnectError::Disagreement { address, reason });
            }
            Report::Failed { address, reason, .. } => tried.push(format!("{address}: {reason}")),
        }
    }
    match dialers.view.get().cloned() {
        Some(view) if !round_trips.is_empty() => {
            Ok(Meeting { dialers: dialing, view, round_trips, sites })
        }
        _ => {
            if reported < dialers.dialed() {
                tried.push(format!("the rest not within {:?}", options.timeout));
            }
            Err(ConnectError::Unreachable { tried: tried.join("; ") })
        }
    }
}
