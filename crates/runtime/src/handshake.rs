//! The first frames of a connection: who is there, and what the cluster is.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serried_actor::{NodeSet, Settings};
use serried_model::{Geography, Limits, NodeId};
use tokio::net::TcpStream;

use crate::connection::{Connection, Ended};
use crate::core::{decode, encode};
use crate::durable::Provenance;
use crate::frame::{BadFrame, Kind};
use crate::generations::Known;
use crate::shards::Shards;
use crate::sparing::legible;

/// One-way delays below this are not emulated: a loopback connection takes about as long by itself,
/// and timers are no finer.
const LEAST_DELAY: Duration = Duration::from_micros(250);
/// How many round trips are measured beside the handshake's own; the shortest counts.
const PINGS: usize = 4;

/// The longest [`Welcome`]: a node has so many keyspaces at most, and knows so many that were dropped or lost.
pub(crate) const WELCOME_BYTES: usize = 768 << 10;

/// What the side that opens a connection says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Who it is: a client, or another replica.
    pub(crate) node: NodeId,
    /// What tells the processes apart that pass for one node, one after the other or by mistake; 0 for a
    /// client.
    pub(crate) incarnation: u64,
    /// Which of the node's cores it wants, round and round if there are fewer.
    pub(crate) core: u16,
    /// The cluster that it means, if it cares.
    pub(crate) cluster: Option<String>,
    /// Where it is, if that has a name.
    pub(crate) site: Option<String>,
    /// The longest payload that it accepts, in bytes.
    pub(crate) frame_bytes: usize,
    /// Which data it has, if it is a node that keeps any.
    pub(crate) provenance: Option<Provenance>,
    /// It only asks, and nothing follows the answer. The number of its data may be 0: then it has none yet that it says.
    pub(crate) inquires: bool,
}

/// Numbers of nodes' data, by node.
pub(crate) type KnownData = Vec<(u16, u64)>;

/// What a node answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Its number.
    pub(crate) node: NodeId,
    /// The cluster's name.
    pub(crate) cluster: String,
    /// The addresses of all nodes, by number.
    pub(crate) peers: Vec<String>,
    /// How many cores it has; the one that serves a shard is the remainder of its division by that.
    pub(crate) cores: u16,
    /// Where the node is, if that has a name.
    pub(crate) site: Option<String>,
    /// The geography whose delays are emulated, if any.
    pub(crate) geography: Option<String>,
    /// A random number that distinguishes its process from others that run as the same node.
    pub(crate) incarnation: u64,
    /// Its keyspaces, in the order of its configuration.
    pub(crate) keyspaces: Vec<KeyspaceInfo>,
    /// The names of the keyspaces that it has dropped, with their last generations.
    pub(crate) dropped: Vec<(String, u32)>,
    /// If its data replaces lost data: the last generation of each name that the lost data may have included.
    pub(crate) lost: Vec<(String, u32)>,
    /// It knows all that the lost data may have included, or has lost none. If not, it is not one of those that tell
    /// another node what there is.
    pub(crate) knows_lost: bool,
    /// Which data it has, if it keeps any.
    pub(crate) provenance: Option<Provenance>,
    /// The numbers of the data that the other nodes had when they were last met here, by node.
    pub(crate) known: KnownData,
    /// How large things may be.
    pub(crate) limits: Limits,
    /// The longest payload that it accepts, in bytes.
    pub(crate) frame_bytes: usize,
}

impl Welcome {
    /// Whether a cluster can be like that; who answers may be damaged, or no node.
    pub(crate) fn check(&self) -> Result<(), String> {
        let nodes = self.peers.len();
        if nodes.is_multiple_of(2) || nodes > NodeSet::CAPACITY {
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
        self.keyspaces.iter().try_for_each(KeyspaceInfo::check)
    }

    /// The last generation of each name that it knows, whether it serves it or not.
    pub(crate) fn generations(&self) -> impl Iterator<Item = (&str, u32)> {
        let present = self.keyspaces.iter().map(|keyspace| (&keyspace.name, &keyspace.generation));
        let others = self.dropped.iter().chain(&self.lost).map(|(name, last)| (name, last));
        present.chain(others).map(|(name, generation)| (name.as_str(), *generation))
    }

    /// The number of the data that a node had when it was last met there.
    pub(crate) fn met(&self, member: usize) -> Option<u64> {
        let met = self.known.iter().find(|(other, _)| usize::from(*other) == member);
        met.map(|(_, number)| *number)
    }

    /// What the node knows of a keyspace's name.
    pub(crate) fn known(&self, name: &str) -> Option<Known> {
        let present = self.keyspaces.iter().find(|keyspace| keyspace.name == name);
        let dropped = || self.dropped.iter().find(|(dropped, _)| dropped == name);
        match present {
            Some(keyspace) => Some(Known { generation: keyspace.generation, dropped: false }),
            None => {
                dropped().map(|(_, generation)| Known { generation: *generation, dropped: true })
            }
        }
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
    pub(crate) first_shard: u16,
    /// The protocol that it runs.
    pub protocol: String,
    /// What it promises, by the guarantee's name.
    pub guarantee: String,
    /// How many partitions it has.
    pub partitions: u16,
    /// What its protocol is set to.
    pub settings: Settings,
}

impl KeyspaceInfo {
    /// Whether there can be such a keyspace.
    fn check(&self) -> Result<(), String> {
        let (name, partitions) = (&self.name, usize::from(self.partitions));
        let fit = usize::from(self.first_shard) + partitions <= Shards::MOST;
        if !(1..=NodeId::PARTITIONS).contains(&partitions) || !fit {
            let first = self.first_shard;
            return Err(format!("keyspace `{name}` with {partitions} partitions, from {first} on"));
        }
        self.settings.check().map_err(|reason| format!("keyspace `{name}`: {reason}"))
    }

    /// How the settings of the same keyspace on another node differ, with both values.
    pub(crate) fn other_settings(&self, other: &KeyspaceInfo) -> Vec<String> {
        let table = |settings| toml::Table::try_from(settings).unwrap_or_default();
        let (own, others) = (table(self.settings), table(other.settings));
        let differs = |(setting, value): (&String, &toml::Value)| {
            let has = others.get(setting).filter(|has| *has != value)?;
            let name = &self.name;
            Some(format!("`{name}`: it has {setting} = {has}, and this node {setting} = {value}"))
        };
        own.iter().filter_map(differs).collect()
    }

    /// Its id: its name and generation.
    pub fn id(&self) -> String {
        format!("{}@{}", self.name, self.generation)
    }

    /// Its id, protocol and number of partitions.
    pub(crate) fn description(&self) -> String {
        let s = if self.partitions == 1 { "" } else { "s" };
        format!("{} ({}, {} partition{s})", self.id(), self.protocol, self.partitions)
    }
}

impl Welcome {
    /// One that is sound.
    pub(crate) fn example() -> Welcome {
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
                protocol: serried_protocols::DEFAULT.to_string(),
                guarantee: "serializable".to_string(),
                partitions: 2,
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
pub(crate) struct Met {
    pub(crate) connection: Connection,
    pub(crate) welcome: Welcome,
    pub(crate) round_trip: Duration,
}

/// Opens a connection to `address` and introduces this side, then measures the round trip if asked.
pub(crate) async fn dial(address: &str, hello: &Hello, measure: bool) -> Result<Met, Ended> {
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
pub(crate) struct Place {
    pub(crate) geography: Geography,
    pub(crate) site: usize,
}

impl Place {
    /// The place called `site`, or the `i`-th if it has no name.
    pub(crate) fn find(geography: Geography, site: Option<&str>, i: usize) -> Result<Self, String> {
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
    pub(crate) fn delay_to(&self, other: Place) -> Duration {
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
    fn nobody_goes_by_what_no_node_can_say() {
        assert_eq!(welcome(|_| {}), Ok(()));
        let refused: [fn(&mut Welcome); 10] = [
            |w| w.peers.clear(),
            |w| w.peers.truncate(2),
            |w| w.peers = vec![String::new(); NodeSet::CAPACITY + 1],
            |w| w.node = NodeId(3),
            |w| w.cores = 0,
            |w| w.known.push((3, 7)),
            |w| w.keyspaces[0].partitions = 0,
            |w| w.keyspaces[0].partitions = u16::MAX,
            |w| w.keyspaces[0].first_shard = u16::MAX,
            |w| w.keyspaces[0].settings.clock_bound_ms = u64::MAX,
        ];
        for (i, change) in refused.into_iter().enumerate() {
            assert!(welcome(change).is_err(), "change {i}");
        }
    }

    #[test]
    fn settings_that_differ_are_named_with_both_values() {
        let own = Welcome::example().keyspaces.remove(0);
        assert!(own.other_settings(&own).is_empty());
        let mut other = own.clone();
        other.settings.clock_bound_ms = 7;
        let differences = own.other_settings(&other);
        let text = "`accounts`: it has clock_bound_ms = 7, and this node clock_bound_ms = 2000";
        assert_eq!(differences, [text]);
    }

    #[test]
    fn a_node_tells_of_keyspaces_that_it_has_had_or_may_have_had() {
        let told = Welcome::example();
        let known: Vec<_> = told.generations().collect();
        assert_eq!(known, [("accounts", 0), ("audit", 2), ("carts", 1)]);
    }
}
