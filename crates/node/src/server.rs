//! What the cores of a node share.
//!
//! Threads that take connections from one queue would need locks around everything that a connection touches. Here a
//! partition, its log and its connections belong to one core. Core 0 accepts a connection, reads which core is wanted, and
//! hands it over.
//!
//! The server has components, each in a file of its own: the [cores], the [keyspaces] of the nodes, [which of a node's
//! data counts](replaced), and the [life] of the node. They do not know the server, and get the other components that
//! they need as parameters. The [handshake] and the [status] concern nearly all components, so they are the server's
//! own. A [thread] of each core keeps its [connections].

mod connections;
mod cores;
mod handshake;
mod keyspaces;
mod life;
mod replaced;
mod status;
mod thread;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use serried_actor::{Group, Random};
use serried_model::NodeId;
use serried_wire::{Hello, Place, Shards, Sparing, Welcome};

use crate::admission::Admission;
use crate::configuration::{KeyspaceConfiguration, NodeConfiguration};
use crate::durable::Disks;
use crate::joining::{Joining, rejoined};
use crate::neighbours::Neighbours;
use crate::node::StartError;
use crate::replica::Replicas;
use cores::Cores;
use keyspaces::Keyspaces;
use life::Life;
use replaced::Provenances;
pub(crate) use thread::Thread;

/// The round trip that replicas assume where nothing is known: that of loopback or a local network.
const NEAR: Duration = Duration::from_millis(1);

/// What the threads of a node share.
pub(crate) struct Server {
    pub(crate) configuration: NodeConfiguration,
    pub(crate) place: Option<Place>,
    shards: Shards,
    /// The answer to a connection, but for the data that the other nodes have.
    welcome: Welcome,
    pub(crate) cores: Cores,
    pub(crate) keyspaces: Keyspaces,
    pub(crate) provenances: Provenances,
    pub(crate) life: Arc<Life>,
    admission: Arc<Admission>,
    neighbours: Arc<Neighbours>,
    sparing: Sparing,
    disks: Option<Arc<dyn Disks>>,
    started: Instant,
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
        let placed = keyspaces.iter().map(|info| (info.number, info.placement(nodes)));
        let shards = Shards::new(placed).of_node(configuration.node);
        for (i, keyspace) in keyspaces.iter_mut().enumerate() {
            keyspace.first_shard = shards.first(i as u16);
        }
        let records = disks.as_ref().map(|disks| disks.keyspaces()).unwrap_or_default();
        let dropped = records.into_iter().filter(|record| record.dropped);
        let dropped = dropped.map(|record| (record.identity.name, record.generation)).collect();
        let (cores, received) = Cores::new(id, &configuration, &shards, &mut random);
        let lost = disks.as_ref().and_then(|disks| disks.lost());
        let welcome = Welcome {
            node: id,
            cluster: configuration.cluster.clone(),
            peers: configuration.peers.clone(),
            cores: cores.count() as u16,
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
            place,
            shards,
            keyspaces: Keyspaces::new(configuration.node, nodes, welcome.keyspaces.clone()),
            provenances: Provenances::new(disks.clone(), nodes),
            life: Arc::new(Life::new(id, cores.count())),
            welcome,
            cores,
            admission,
            neighbours: Arc::default(),
            sparing: Sparing::default(),
            disks,
            started: Instant::now(),
            configuration,
        });
        for endpoint in server.cores.endpoints() {
            let server = Arc::downgrade(&server);
            let census = move || server.upgrade().map(|server| server.status());
            endpoint.outside.set(Box::new(census));
        }
        let thread = |(core, received)| Thread { server: server.clone(), core, received };
        let threads = received.into_iter().enumerate().map(thread).collect();
        Ok((server, threads))
    }

    /// The node's id.
    pub(crate) fn id(&self) -> NodeId {
        self.welcome.node
    }

    /// The replicas of a keyspace, as those on this node see them.
    fn group(&self, keyspace: &KeyspaceConfiguration) -> Group {
        let (node, nodes) = (self.configuration.node, self.configuration.peers.len());
        let sites = usize::from(keyspace.sites);
        let group = match self.place {
            None if sites == 1 => Group::new(nodes, NEAR),
            Some(Place { geography, site }) if sites == 1 => {
                let replicas = geography.nearest_first(site, nodes);
                Group::nearest_first(replicas, geography.longest_round_trip(site))
            }
            place => self.group_of_site(place, nodes / sites),
        };
        let site = keyspace.placement(nodes).site_of(node);
        group.with_partitions(keyspace.partitions).at_site(site, keyspace.sites)
    }

    /// The `n` nodes of this node's site of a keyspace, this one first.
    fn group_of_site(&self, place: Option<Place>, n: usize) -> Group {
        let node = self.configuration.node;
        let (first, own) = (node / n * n, node % n);
        let Some(Place { geography, site: here }) = place else {
            return Group::nearest_first((0..n).map(|i| (own + i) % n).collect(), NEAR);
        };
        let usual = |node| self.configuration.usual_place(geography, node);
        let mut places: Vec<usize> = (first..first + n).map(usual).collect();
        places[own] = here;
        let farthest = places.iter().map(|place| geography.round_trip(here, *place)).max();
        let members = geography.nearest_first_of(&places, here, own);
        Group::nearest_first(members, farthest.unwrap_or_default().max(NEAR))
    }

    /// The present answer to a connection.
    fn welcome(&self) -> Welcome {
        Welcome { known: self.provenances.known(), ..self.welcome.clone() }
    }

    /// How a core of this node introduces itself to another node.
    pub(crate) fn hello(&self, core: usize) -> Hello {
        let Server { configuration, place, .. } = self;
        let (disks, incarnation) = (self.disks.as_deref(), self.welcome.incarnation);
        Joining { configuration, place: *place, disks, incarnation }.hello(core)
    }

    /// Whether no core may serve before all have opened their partitions.
    pub(crate) fn waits_for_all(&self) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.waits_for_all())
    }

    /// All cores have opened their partitions.
    pub(crate) fn opened(&self) -> Result<(), StartError> {
        let noted = self.disks.as_ref().map_or(Ok(()), |disks| disks.opened());
        noted.map_err(|reason| StartError::Directory { reason })
    }

    /// Syncs everything to the disk, once all threads have ended. Does nothing if the node was not stopped.
    pub(crate) fn close_disks(&self) {
        if self.life.failure().is_some() {
            return;
        }
        if let Some(Err(error)) = self.disks.as_ref().map(|disks| disks.close()) {
            tracing::warn!(node = %self.id(), error, "it counts as killed");
        }
    }
}

#[cfg(test)]
mod tests;
