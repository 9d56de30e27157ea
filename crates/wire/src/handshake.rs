//! The first frames of a connection: the two ends introduce themselves, and the node describes the cluster.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serried_actor::{NodeSet, Placement, Settings};
use serried_model::{Geography, Limits, NodeId, Provenance};
use tokio::net::TcpStream;

use crate::codec::{decode, encode};
use crate::connection::{Connection, Ended};
use crate::frame::{BadFrame, Kind};
use crate::shards::Shards;
use crate::sparing::legible;

/// One-way delays below this are not emulated: a loopback connection takes about as long by itself,
/// and timers are no finer.
const LEAST_DELAY: Duration = Duration::from_micros(250);
/// How many round trips are measured besides that of the handshake. The shortest one counts.
const PINGS: usize = 4;

/// The longest [`Welcome`], in bytes. The number of keyspaces that a node has, and knows as dropped or lost, is
/// bounded.
pub(crate) const WELCOME_BYTES: usize = 768 << 10;

/// What the side that opens a connection says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Its id: that of a client, or of another node.
    pub node: NodeId,
    /// Distinguishes the processes that run as one node, one after the other or by mistake; 0 for a client.
    pub incarnation: u64,
    /// Which of the node's cores it wants, modulo the number of cores.
    pub core: u16,
    /// The cluster that it expects, if it expects a certain one.
    pub cluster: Option<String>,
    /// Where it is, if that has a name.
    pub site: Option<String>,
    /// The longest payload that it accepts, in bytes.
    pub frame_bytes: usize,
    /// Which data it has, if it is a node that keeps any.
    pub provenance: Option<Provenance>,
    /// It only asks, and closes the connection after the answer. The number of its data may be 0, if its data has none yet.
    pub inquires: bool,
}

/// Numbers of nodes' data, by node.
pub type KnownData = Vec<(u16, u64)>;

/// What a node answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Its number.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: String,
    /// The addresses of all nodes, by number.
    pub peers: Vec<String>,
    /// How many cores it has. A shard is served by the core whose number is the shard's, modulo the number of cores.
    pub cores: u16,
    /// Where the node is, if that has a name.
    pub site: Option<String>,
    /// The geography whose delays are emulated, if any.
    pub geography: Option<String>,
    /// A random number that distinguishes its process from others that run as the same node.
    pub incarnation: u64,
    /// Its keyspaces, in the order of its configuration.
    pub keyspaces: Vec<KeyspaceInfo>,
    /// The names of the keyspaces that it has dropped, with their last generations.
    pub dropped: Vec<(String, u32)>,
    /// If its data replaces lost data: the last generation of each name that the lost data may have included.
    pub lost: Vec<(String, u32)>,
    /// It knows all that the lost data may have included, or has lost none. If not, its answer does not count when another
    /// node asks which keyspaces there are.
    pub knows_lost: bool,
    /// Which data it has, if it keeps any.
    pub provenance: Option<Provenance>,
    /// The numbers of the data that the other nodes had when they were last met here, by node.
    pub known: KnownData,
    /// How large things may be.
    pub limits: Limits,
    /// The longest payload that it accepts, in bytes.
    pub frame_bytes: usize,
}

impl Welcome {
    /// Checks that there can be such a cluster. The answer may be damaged, or come from another program.
    ///
    /// # Errors
    /// What is impossible.
    pub fn check(&self) -> Result<(), String> {
        let nodes = self.peers.len();
        if !(1..=NodeSet::CAPACITY).contains(&nodes) {
            return Err(format!("a cluster of {nodes} nodes"));
        }
        if self.node.0 >= nodes as u64 {
            return Err(format!("{} of {nodes} nodes", self.node));
        }
        if self.cores == 0 {
            return Err("a node without cores".to_string());
        }
        if self.known.iter().any(|(member, _)| usize::from(*member) >= nodes) {
            return Err(format!("data of more than {nodes} nodes"));
        }
        self.keyspaces.iter().try_for_each(|keyspace| keyspace.check(nodes))
    }
}

/// A keyspace, as its cluster describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyspaceInfo {
    /// Its name.
    pub name: String,
    /// Its generation: 0 for the first keyspace of a name, and one more each time it is dropped and created again.
    pub generation: u32,
    /// The number that its messages carry.
    pub number: u64,
    /// The place of its first partition among those of the node that sends this.
    pub first_shard: u16,
    /// The protocol that it runs.
    pub protocol: String,
    /// What it promises, by the guarantee's name.
    pub guarantee: String,
    /// How many partitions it has, at each of its sites.
    pub partitions: u16,
    /// How many sites it has. The nodes of the cluster are divided among them, in order and evenly.
    pub sites: u16,
    /// What its protocol is set to.
    pub settings: Settings,
}

impl KeyspaceInfo {
    /// Whether a cluster of so many nodes can have such a keyspace.
    fn check(&self, nodes: usize) -> Result<(), String> {
        let (name, partitions) = (&self.name, usize::from(self.partitions));
        let sites = usize::from(self.sites);
        let divided = sites > 0 && nodes.is_multiple_of(sites);
        let fit = sites * partitions <= NodeId::PARTITIONS;
        if !divided || !fit || (nodes / sites).is_multiple_of(2) {
            return Err(format!(
                "keyspace `{name}` with {sites} sites and {partitions} partitions, on {nodes} nodes"
            ));
        }
        let fit = usize::from(self.first_shard) + partitions <= Shards::MOST;
        if !(1..=NodeId::PARTITIONS).contains(&partitions) || !fit {
            let first = self.first_shard;
            return Err(format!("keyspace `{name}` with {partitions} partitions, from {first} on"));
        }
        self.settings.check().map_err(|reason| format!("keyspace `{name}`: {reason}"))
    }

    /// Its id: its name and generation.
    pub fn id(&self) -> String {
        format!("{}@{}", self.name, self.generation)
    }

    /// On which of so many nodes of its cluster its replicas are.
    ///
    /// # Panics
    /// If the nodes can't be divided among its sites. [`Welcome::check`] refuses that.
    pub fn placement(&self, nodes: usize) -> Placement {
        Placement::new(self.sites, self.partitions, nodes / usize::from(self.sites))
    }

    /// Its id, protocol and numbers of partitions and sites.
    pub fn description(&self) -> String {
        let s = if self.partitions == 1 { "" } else { "s" };
        let sites = match self.sites {
            1 => String::new(),
            sites => format!(", {sites} sites"),
        };
        format!("{} ({}, {} partition{s}{sites})", self.id(), self.protocol, self.partitions)
    }
}

impl Welcome {
    /// A sound one, for tests.
    pub fn example() -> Welcome {
        Welcome {
            node: NodeId(1),
            cluster: "bank".to_string(),
            peers: ["a:1", "b:1", "c:1"].map(str::to_string).to_vec(),
            cores: 2,
            site: None,
            geography: None,
            incarnation: 3,
            keyspaces: vec![KeyspaceInfo {
                name: "accounts".to_string(),
                generation: 0,
                number: 7,
                first_shard: 0,
                protocol: "any".to_string(),
                guarantee: "serializable".to_string(),
                partitions: 2,
                sites: 1,
                settings: Settings::default(),
            }],
            dropped: vec![("audit".to_string(), 2)],
            lost: vec![("carts".to_string(), 1)],
            knows_lost: true,
            provenance: Some(Provenance { incarnation: 5, rejoined: false }),
            known: vec![(0, 4)],
            limits: Limits::default(),
            frame_bytes: 1 << 20,
        }
    }
}

/// A node that has been met.
pub struct Met {
    /// The connection with it.
    pub connection: Connection,
    /// Its answer.
    pub welcome: Welcome,
    /// The shortest round trip that was measured.
    pub round_trip: Duration,
}

/// Opens a connection to `address` and introduces this side, then measures the round trip if asked.
///
/// # Errors
/// If nothing answers, the answer can't be understood, or the node turns this side away.
pub async fn dial(address: &str, hello: &Hello, measure: bool) -> Result<Met, Ended> {
    let stream = TcpStream::connect(address).await?;
    let mut connection = Connection::of_dialer(stream)?;
    let sent = Instant::now();
    connection.send(Kind::Hello, &encode(hello)).await?;
    let welcome: Welcome = match connection.receive().await? {
        (kind @ Kind::Welcome, payload) => {
            let welcome: Welcome = decode(kind, &payload)?;
            let checked = welcome.check();
            checked.map_err(|reason| BadFrame::Payload(kind, legible(&reason)))?;
            welcome
        }
        (kind @ (Kind::Reject | Kind::Full | Kind::Disowned), payload) => {
            let reason = legible(&decode::<String>(kind, &payload)?);
            return Err(match kind {
                Kind::Full => Ended::Full(reason),
                Kind::Disowned => Ended::Disowned(reason),
                _ => Ended::Rejected(reason),
            });
        }
        (kind, _) => return Err(BadFrame::Unexpected(kind).into()),
    };
    let mut round_trip = sent.elapsed();
    if measure && welcome.geography.is_none() {
        for _ in 0..PINGS {
            let sent = Instant::now();
            connection.send(Kind::Ping, &[]).await?;
            connection.receive_only(Kind::Pong).await?;
            round_trip = round_trip.min(sent.elapsed());
        }
    }
    Ok(Met { connection, welcome, round_trip })
}

/// A participant's place in an emulated geography.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The geography.
    pub geography: Geography,
    /// The site, by its number there.
    pub site: usize,
}

impl Place {
    /// The place called `site`, or the `i`-th if it has no name.
    ///
    /// # Errors
    /// If the geography has no such site.
    pub fn find(geography: Geography, site: Option<&str>, i: usize) -> Result<Self, String> {
        let site = match site {
            None => geography.site_of(i),
            Some(name) => geography.site(name).ok_or_else(|| {
                let (name_of, sites) = (geography.name, geography.sites.join(", "));
                format!("geography `{name_of}` has no site `{name}`; choose one of {sites}")
            })?,
        };
        Ok(Place { geography, site })
    }

    /// How long a frame takes from here to `other`: half the round trip.
    pub fn delay_to(&self, other: Place) -> Duration {
        let delay = self.geography.round_trip(self.site, other.site) / 2;
        if delay < LEAST_DELAY { Duration::ZERO } else { delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node might say, after a change.
    fn welcome(change: impl FnOnce(&mut Welcome)) -> Result<(), String> {
        let mut welcome = Welcome::example();
        change(&mut welcome);
        welcome.check()
    }

    #[test]
    fn an_answer_that_no_node_can_give_is_refused() {
        assert_eq!(welcome(|_| {}), Ok(()));
        let refused: [fn(&mut Welcome); 15] = [
            |w| w.peers.clear(),
            |w| w.peers.truncate(2),
            |w| w.peers = vec![String::new(); NodeSet::CAPACITY + 1],
            |w| w.node = NodeId(3),
            |w| w.cores = 0,
            |w| w.known.push((3, 7)),
            |w| w.keyspaces[0].partitions = 0,
            |w| w.keyspaces[0].partitions = u16::MAX,
            |w| w.keyspaces[0].first_shard = u16::MAX,
            |w| w.keyspaces[0].sites = 0,
            |w| w.keyspaces[0].sites = 2,
            |w| w.keyspaces[0].sites = u16::MAX,
            |w| (w.keyspaces[0].sites, w.keyspaces[0].partitions) = (3, 342),
            |w| {
                w.peers = vec![String::new(); 4];
                w.keyspaces[0].sites = 2;
            },
            |w| w.keyspaces[0].settings.clock_bound_ms = u64::MAX,
        ];
        for (i, change) in refused.into_iter().enumerate() {
            assert!(welcome(change).is_err(), "change {i}");
        }
        let divided = |nodes, sites| {
            welcome(|w| {
                w.peers = vec![String::new(); nodes];
                w.keyspaces[0].sites = sites;
            })
        };
        for (nodes, sites) in [(3, 3), (6, 2), (9, 3), (4, 4)] {
            assert_eq!(divided(nodes, sites), Ok(()), "{nodes} nodes, {sites} sites");
        }
    }
}
