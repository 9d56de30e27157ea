//! A node's configuration.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serried_actor::{NodeSet, Settings};
use serried_model::{Durability, Geography, Limits, NodeId};
use serried_protocols::Entry;
use serried_protocols::frameworks::replicated_log::SHOWN_BYTES;
use serried_storage::DataDirectory;
use serried_wire::{KeyspaceInfo, Place, Placement, Shards, TransportOptions};
use toml::Spanned;

use crate::generations::number;
use crate::joining::identity;
use crate::replica::{MakeReplica, Replicas};

/// How long a keyspace's name may be, in bytes.
const MOST_NAME_BYTES: usize = 128;
/// How many keyspaces there may be. A node describes all of them in one frame of the handshake.
const MOST_KEYSPACES: usize = 512;
/// How many times `clock_bound_ms` the `outcomes_ms` must be at least, if the protocol forgets results by the clocks of
/// clients: the clocks of two clients may differ by twice the bound, and an update may be tried again.
const OUTCOMES_TO_CLOCK_BOUND: u64 = 4;
/// `clock_uncertainty_us` is less than this: a minute.
const MOST_CLOCK_UNCERTAINTY_US: u64 = 60_000_000;
/// The least `frame_bytes` between nodes. A replica's promise to a candidate must fit into one frame. If it were
/// dropped for its length, no replica could lead.
const LEAST_FRAME_BYTES_OF_NODES: usize = 64 << 20;

const _: () = assert!(
    LEAST_FRAME_BYTES_OF_NODES >= 2 * SHOWN_BYTES,
    "a promise fits into a frame, even if the sizes of its entries are estimated too low"
);

/// The configuration of a node.
///
/// As a file:
///
/// ```toml
/// cluster = "bank"
/// node = 0
/// listen = "127.0.0.1:7400"
/// peers = ["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]
///
/// [[keyspace]]
/// name = "accounts"
/// protocol = "morty"
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct NodeConfiguration {
    /// The cluster's name; nodes and clients of other clusters are turned away. Default `serried`.
    pub cluster: String,
    /// This node's number, from 0.
    pub node: usize,
    /// The address to listen on; port 0 for any that is free.
    pub listen: String,
    /// The addresses of all nodes by number, as clients and nodes reach them. Their number is odd, or that of the nodes
    /// of a site is for each keyspace.
    pub peers: Vec<String>,
    /// Where the node is. Default: the node's place in the geography, if there is one.
    pub site: Option<String>,
    /// The geography whose delays are emulated. Default: none.
    pub geography: Option<String>,
    /// The keyspaces, in any order. One is served when a majority of the nodes lists it. Default: one called
    /// `default`, under `morty`.
    pub keyspaces: Vec<KeyspaceConfiguration>,
    /// How many cores serve the partitions, each with a thread of its own. Default: as many as there
    /// are partitions, and no more than the machine has.
    pub cores: Option<usize>,
    /// Whether each of these threads stays on a processor of its own. Default: if there are several of
    /// them, and as many processors.
    pub pin: Option<bool>,
    /// When records count as durable. Default: in memory; of a configuration file: synced to disk.
    pub durability: Durability,
    /// How large keys, values and transactions may be.
    pub limits: Limits,
    /// Bounds and times of the transport.
    pub transport: TransportOptions,
}

/// A keyspace of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyspaceConfiguration {
    /// Its name.
    pub name: String,
    /// Its name and generation, as `name@generation`. The nodes find it out by themselves. It is only needed to use a
    /// keyspace again that was dropped last, or if the nodes do not agree.
    #[serde(default)]
    pub id: Option<String>,
    /// The protocol that it runs.
    #[serde(default = "default_protocol")]
    pub protocol: String,
    /// How many partitions its keys are spread over. Default 1, at most 1024 at all sites together.
    #[serde(default = "one")]
    pub partitions: u16,
    /// How many sites it has, each of which holds all keys. The nodes are divided among them, in order and evenly. Each
    /// site has an odd number of nodes. Default 1.
    #[serde(default = "one")]
    pub sites: u16,
    /// What its protocol is set to.
    #[serde(default)]
    pub settings: Settings,
}

fn one() -> u16 {
    1
}

impl KeyspaceConfiguration {
    /// A keyspace with one partition, at one site.
    pub fn new(name: impl Into<String>, protocol: impl Into<String>) -> Self {
        KeyspaceConfiguration {
            name: name.into(),
            id: None,
            protocol: protocol.into(),
            partitions: 1,
            sites: 1,
            settings: Settings::default(),
        }
    }

    /// The generation that its id asks for.
    pub(crate) fn generation(&self) -> Option<u32> {
        let id = self.id.as_ref()?;
        id.strip_prefix(&self.name)?.strip_prefix('@')?.parse().ok()
    }

    /// Describes it to clients and other nodes. The caller sets `first_shard`.
    pub(crate) fn describe(
        &self,
        cluster: &str,
        generation: u32,
        entry: &Entry<MakeReplica>,
    ) -> KeyspaceInfo {
        KeyspaceInfo {
            name: self.name.clone(),
            generation,
            number: number(cluster, &identity(self), generation),
            first_shard: 0,
            protocol: entry.name.to_string(),
            guarantee: entry.guarantee.name().to_string(),
            partitions: self.partitions,
            sites: self.sites,
            settings: self.settings,
        }
    }

    /// On which of so many nodes its replicas are.
    pub(crate) fn placement(&self, nodes: usize) -> Placement {
        Placement::new(self.sites, self.partitions, nodes / usize::from(self.sites))
    }

    /// Checks that so many nodes can be divided among its sites, and that its protocol can have them.
    ///
    /// # Errors
    /// Why not, and what to choose instead.
    fn judge_sites(&self, nodes: usize, replicas: &Replicas) -> Result<(), String> {
        let KeyspaceConfiguration { name, protocol, sites, .. } = self;
        let sites = usize::from(*sites);
        if sites == 0 {
            return Err(format!("keyspace `{name}` has 0 sites: choose 1 or more"));
        }
        if sites > 1 && !replicas.find(protocol)?.offers_sites {
            let having: Vec<_> = replicas.with_sites().collect();
            return Err(format!(
                "keyspace `{name}` has {sites} sites, and protocol `{protocol}` has only one: leave `sites` out, or \
                 choose one of the protocols {}",
                having.join(", ")
            ));
        }
        if !nodes.is_multiple_of(sites) {
            return Err(format!(
                "keyspace `{name}` has {sites} sites, and `peers` lists {nodes} nodes, which can't be divided evenly: \
                 list as many nodes for each site"
            ));
        }
        let each = nodes / sites;
        match each.is_multiple_of(2) {
            true if sites == 1 => Err(format!(
                "keyspace `{name}` has one site, with all {nodes} nodes: list an odd number of nodes, or give it so many \
                 `sites` that each has an odd number"
            )),
            true => Err(format!(
                "keyspace `{name}` has {sites} sites with {each} of the {nodes} nodes each: give each site an odd number"
            )),
            false => Ok(()),
        }
    }

    /// Checks that its name can be that of a keyspace and of a folder with its data.
    ///
    /// # Errors
    /// Why not, and what to choose instead.
    fn judge_name(&self) -> Result<(), String> {
        let name = &self.name;
        if name.is_empty() {
            return Err("a keyspace has an empty name: give it one".to_string());
        }
        let strange = |c: char| c.is_control() || "/\\@".contains(c);
        let taken = DataDirectory::is_reserved(name);
        if name.len() > MOST_NAME_BYTES || name.starts_with('.') || name.contains(strange) || taken
        {
            return Err(format!(
                "`{}` can't be the name of a keyspace: choose one of {MOST_NAME_BYTES} bytes at most, \
                 without `/`, `\\`, `@` and control characters, that does not begin with a dot and is not \
                 the name of a file in a data directory",
                name.escape_debug()
            ));
        }
        if let (Some(id), None) = (&self.id, self.generation()) {
            return Err(format!(
                "keyspace `{name}` can't have the id `{id}`: write `{name}@0`, say"
            ));
        }
        Ok(())
    }

    /// The same with so many partitions.
    #[must_use]
    pub fn with_partitions(self, partitions: u16) -> Self {
        KeyspaceConfiguration { partitions, ..self }
    }

    /// The same with so many sites.
    #[must_use]
    pub fn with_sites(self, sites: u16) -> Self {
        KeyspaceConfiguration { sites, ..self }
    }
}

fn default_protocol() -> String {
    serried_protocols::DEFAULT.to_string()
}

fn sync() -> Durability {
    Durability::Sync
}

fn default_cluster() -> String {
    "serried".to_string()
}

/// Why a configuration can't be used: the place, and what to do, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationError {
    /// The file, if it came from one.
    pub file: Option<String>,
    /// The line, from 1, if it came from a file and one line is to blame.
    pub line: Option<usize>,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: {}", self.message),
            (Some(file), None) => write!(f, "{file}: {}", self.message),
            (None, _) => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigurationError {}

/// The file's form, which remembers where things were.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_cluster")]
    cluster: String,
    node: Spanned<usize>,
    listen: Spanned<String>,
    peers: Spanned<Vec<String>>,
    site: Option<Spanned<String>>,
    geography: Option<Spanned<String>>,
    #[serde(default, rename = "keyspace")]
    keyspaces: Vec<Spanned<KeyspaceConfiguration>>,
    cores: Option<Spanned<usize>>,
    pin: Option<bool>,
    #[serde(default = "sync")]
    durability: Durability,
    limits: Option<Spanned<Limits>>,
    transport: Option<Spanned<TransportOptions>>,
}

/// Which part of a configuration is to blame.
#[derive(Clone, Copy)]
enum Part {
    Cluster,
    Node,
    Peers,
    Site,
    Geography,
    Keyspace(usize),
    Cores,
    Limits,
    Transport,
}

/// What is wrong with the text of a file, in words that do not need the program's types. `line` is the line to blame.
fn explained(message: &str, line: &str) -> String {
    let key = line.split_once('=').map(|(key, _)| key.trim()).filter(|key| !key.is_empty());
    let key = key.map_or(String::new(), |key| format!("`{key}`: "));
    if let Some(field) = message.strip_prefix("missing field ") {
        let example = match field.trim_matches('`') {
            "node" => "write this node's number, as node = 0",
            "listen" => "write the address to listen on, as listen = \"127.0.0.1:7400\"",
            "peers" => "write the addresses of all nodes, as peers = [\"127.0.0.1:7400\"]",
            "name" => "give the keyspace a name, as name = \"accounts\"",
            _ => "add it",
        };
        return format!("{field} is missing: {example}");
    }
    if let Some(unknown) = message.strip_prefix("unknown field ") {
        return format!("there is no {}", unknown.replacen(", expected", "; choose", 1));
    }
    let wrong = ["invalid type: ", "invalid value: "];
    let wrong = wrong.iter().find_map(|start| message.strip_prefix(start));
    let Some((found, expected)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) else {
        return message.to_string();
    };
    let expected = match expected {
        "usize" | "u64" | "u32" | "u16" => "a whole number from 0 on",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list in square brackets",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let found = found.replacen("string ", "the text ", 1).replacen("integer ", "the number ", 1);
    format!("{key}write {expected} instead of {found}")
}

impl NodeConfiguration {
    /// Node `node` of the cluster at `peers`, listening where the others look for it.
    ///
    /// # Panics
    /// If `peers` has no such node.
    pub fn new(node: usize, peers: Vec<String>) -> NodeConfiguration {
        NodeConfiguration {
            cluster: default_cluster(),
            node,
            listen: peers[node].clone(),
            peers,
            site: None,
            geography: None,
            keyspaces: vec![KeyspaceConfiguration::new("default", default_protocol())],
            cores: None,
            pin: None,
            durability: Durability::default(),
            limits: Limits::default(),
            transport: TransportOptions::default(),
        }
    }

    /// Reads a configuration from a file.
    ///
    /// # Errors
    /// If the file can't be read, or something in it is wrong.
    pub fn read(path: impl AsRef<Path>) -> Result<NodeConfiguration, ConfigurationError> {
        let file = path.as_ref().display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => NodeConfiguration::parse(&text, &file, &Replicas::default()),
            Err(error) => Err(ConfigurationError {
                message: format!("can't read the configuration ({error}): check the path"),
                file: Some(file),
                line: None,
            }),
        }
    }

    /// Reads a configuration from the text of `file`, whose protocols are those of `replicas`.
    ///
    /// # Errors
    /// If something in it is wrong.
    pub fn parse(
        text: &str,
        file: &str,
        replicas: &Replicas,
    ) -> Result<NodeConfiguration, ConfigurationError> {
        let fail = |span: Option<Range<usize>>, message: String| ConfigurationError {
            file: Some(file.to_string()),
            line: span.map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
            message: message.lines().collect::<Vec<_>>().join("; "),
        };
        let parsed: File = toml::from_str(text).map_err(|error| {
            let blamed = error.span().map_or("", |span| {
                let begin = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
                text[begin..].lines().next().unwrap_or_default()
            });
            fail(error.span(), explained(error.message(), blamed))
        })?;
        // Nodes in one process may have any port that is free. Other processes can't know which.
        if let Some(peer) = parsed.peers.as_ref().iter().find(|peer| peer.ends_with(":0")) {
            let wrong = format!("`peers` has `{peer}`: write the port at which the node listens");
            return Err(fail(Some(parsed.peers.span()), wrong));
        }
        let spans: Vec<_> = parsed.keyspaces.iter().map(Spanned::span).collect();
        let optional = |spanned: &Option<Spanned<String>>| spanned.as_ref().map(Spanned::span);
        let (site, geography) = (optional(&parsed.site), optional(&parsed.geography));
        let (node, peers) = (parsed.node.span(), parsed.peers.span());
        let transport = parsed.transport.as_ref().map(Spanned::span);
        let cores = parsed.cores.as_ref().map(Spanned::span);
        let limits = parsed.limits.as_ref().map(Spanned::span);
        let mut configuration = NodeConfiguration {
            cluster: parsed.cluster,
            node: parsed.node.into_inner(),
            listen: parsed.listen.into_inner(),
            peers: parsed.peers.into_inner(),
            site: parsed.site.map(Spanned::into_inner),
            geography: parsed.geography.map(Spanned::into_inner),
            keyspaces: parsed.keyspaces.into_iter().map(Spanned::into_inner).collect(),
            cores: parsed.cores.map(Spanned::into_inner),
            pin: parsed.pin,
            durability: parsed.durability,
            limits: parsed.limits.map(Spanned::into_inner).unwrap_or_default(),
            transport: parsed.transport.map(Spanned::into_inner).unwrap_or_default(),
        };
        if configuration.keyspaces.is_empty() {
            configuration.keyspaces.push(KeyspaceConfiguration::new("default", default_protocol()));
        }
        let span = |part| match part {
            Part::Cluster => None,
            Part::Node => Some(node.clone()),
            Part::Peers => Some(peers.clone()),
            Part::Site => site.clone(),
            Part::Geography => geography.clone(),
            Part::Keyspace(i) => spans.get(i).cloned(),
            Part::Cores => cores.clone(),
            Part::Limits => limits.clone(),
            Part::Transport => transport.clone(),
        };
        match configuration.judge(replicas) {
            Ok(_) => Ok(configuration),
            Err((part, message)) => Err(fail(span(part), message)),
        }
    }

    /// The node's id.
    pub(crate) fn id(&self) -> NodeId {
        NodeId::replica(0, self.node)
    }

    /// The site that the node belongs to, if all keyspaces have the same sites and more than one.
    pub fn home(&self) -> Option<u16> {
        let sites = self.keyspaces.first()?.sites;
        if sites <= 1 || self.keyspaces.iter().any(|keyspace| keyspace.sites != sites) {
            return None;
        }
        let nodes = self.peers.len() / usize::from(sites);
        Some(self.node.checked_div(nodes)? as u16)
    }

    /// How many partitions there are in all.
    pub(crate) fn shard_count(&self) -> usize {
        self.keyspaces.iter().map(|keyspace| usize::from(keyspace.partitions)).sum()
    }

    /// The site of the geography at which node `node` is unless it names another one. The nodes of a site of a keyspace
    /// are at one place.
    pub(crate) fn usual_place(&self, geography: Geography, node: usize) -> usize {
        let sites = self.keyspaces.iter().map(|keyspace| usize::from(keyspace.sites)).max();
        match sites.filter(|sites| *sites > 1) {
            Some(sites) => geography.site_of(node / (self.peers.len() / sites).max(1)),
            None => geography.site_of(node),
        }
    }

    /// How many cores serve the partitions: no more than there are partitions.
    pub(crate) fn core_count(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        self.cores.unwrap_or_else(available).min(self.shard_count()).max(1)
    }

    /// Checks what the types can't; the node's place, if a geography is emulated.
    pub(crate) fn check(&self, replicas: &Replicas) -> Result<Option<Place>, ConfigurationError> {
        let error = |(_, message)| ConfigurationError { file: None, line: None, message };
        self.judge(replicas).map_err(error)
    }

    /// Checks that the nodes can be reached at the addresses, each at its own.
    ///
    /// # Errors
    /// Which can't be, and what to do.
    fn judge_peers(&self) -> Result<(), String> {
        for (i, peer) in self.peers.iter().enumerate() {
            let port = peer.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            let Some(port) = port.and_then(|(_, port)| port.parse::<u16>().ok()) else {
                return Err(format!(
                    "`peers` has `{}`: write host:port, with a port up to 65535",
                    peer.escape_debug()
                ));
            };
            let earlier = self.peers[..i].iter().position(|earlier| earlier == peer);
            // Port 0 is any that is free.
            if let Some(earlier) = earlier.filter(|_| port != 0) {
                return Err(format!(
                    "`peers` has `{peer}` for nodes {earlier} and {i}: give each node an address of its own"
                ));
            }
        }
        Ok(())
    }

    /// The least `truncation_lag_ms`: two clocks may differ by twice the uncertainty of one.
    fn least_truncation_lag_ms(&self) -> u64 {
        match self.transport.clock_uncertainty_us {
            // That is refused.
            MOST_CLOCK_UNCERTAINTY_US.. => 0,
            clock_us => (2 * clock_us).div_ceil(1000),
        }
    }

    fn judge(&self, replicas: &Replicas) -> Result<Option<Place>, (Part, String)> {
        let nodes = self.peers.len();
        let one_site = self.keyspaces.iter().all(|keyspace| keyspace.sites == 1);
        if nodes.is_multiple_of(2) && one_site || !(1..=NodeSet::CAPACITY).contains(&nodes) {
            let most = NodeSet::CAPACITY - 1;
            let message = format!("`peers` lists {nodes} nodes: list an odd number up to {most}");
            return Err((Part::Peers, message));
        }
        self.judge_peers().map_err(|message| (Part::Peers, message))?;
        if self.cluster.contains(char::is_control) {
            let message = format!(
                "`cluster` is `{}`: choose a name without control characters",
                self.cluster.escape_debug()
            );
            return Err((Part::Cluster, message));
        }
        if self.node >= nodes {
            let (node, last) = (self.node, nodes - 1);
            let message = format!(
                "`node` is {node}, but `peers` lists nodes 0 to {last}: choose one of them"
            );
            return Err((Part::Node, message));
        }
        if self.keyspaces.is_empty() || self.keyspaces.len() > MOST_KEYSPACES {
            let message = format!("there must be a keyspace, and at most {MOST_KEYSPACES}");
            return Err((Part::Keyspace(0), message));
        }
        for (i, keyspace) in self.keyspaces.iter().enumerate() {
            let name = &keyspace.name;
            keyspace.judge_name().map_err(|message| (Part::Keyspace(i), message))?;
            if self.keyspaces[..i].iter().any(|earlier| earlier.name == *name) {
                let message = format!("there are two keyspaces `{name}`: rename one of them");
                return Err((Part::Keyspace(i), message));
            }
            let wrong = |message| (Part::Keyspace(i), message);
            let entry = replicas.find(&keyspace.protocol).map_err(wrong)?;
            keyspace.judge_sites(nodes, replicas).map_err(wrong)?;
            let checked = entry.family.check_replicas(nodes / usize::from(keyspace.sites));
            checked.map_err(|reason| wrong(format!("keyspace `{name}`: {reason}")))?;
            let checked = keyspace.settings.check();
            checked.map_err(|reason| wrong(format!("keyspace `{name}`: {reason}")))?;
            let (lag, least) =
                (keyspace.settings.truncation_lag_ms, self.least_truncation_lag_ms());
            if lag < least {
                let advice = format!(
                    "`truncation_lag_ms` is {lag}: choose {least} at least, twice `clock_uncertainty_us`; else \
                     transactions of clients whose clocks are right are refused"
                );
                return Err(wrong(format!("keyspace `{name}`: {advice}")));
            }
            let Settings { election_timeout_ms, recovery_after_ms, clock_bound_ms, .. } =
                keyspace.settings;
            for (setting, ms, usual) in [
                ("election_timeout_ms", election_timeout_ms, 200),
                ("recovery_after_ms", recovery_after_ms, 1000),
                ("clock_bound_ms", clock_bound_ms, 2000),
            ] {
                if ms == 0 {
                    let advice = format!("`{setting}` is 0: choose 1 or more, {usual} say");
                    return Err(wrong(format!("keyspace `{name}`: {advice}")));
                }
            }
            let outcomes_ms = keyspace.settings.outcomes_ms;
            let least = OUTCOMES_TO_CLOCK_BOUND.saturating_mul(clock_bound_ms);
            if entry.forgets_by_client_clocks && outcomes_ms < least {
                return Err(wrong(format!(
                    "keyspace `{name}`: `outcomes_ms` is {outcomes_ms}: choose {least} at least, \
                     {OUTCOMES_TO_CLOCK_BOUND} times `clock_bound_ms`; else a client whose clock is behind within \
                     the bound can't learn what its updates have done"
                )));
            }
            let (partitions, sites) = (keyspace.partitions, keyspace.sites);
            let most = NodeId::PARTITIONS / usize::from(sites);
            if !(1..=most).contains(&usize::from(partitions)) {
                let at_each = match sites {
                    1 => String::new(),
                    _ => format!(" at each of its {sites} sites"),
                };
                return Err(wrong(format!(
                    "keyspace `{name}` has {partitions} partitions{at_each}: choose 1 to {most} of them"
                )));
            }
        }
        let (shards, most) = (self.shard_count(), Shards::MOST);
        if shards > most {
            let message = format!("there are {shards} partitions in all: choose {most} at most");
            return Err((Part::Keyspace(0), message));
        }
        if self.cores == Some(0) {
            return Err((Part::Cores, "`cores` is 0: choose 1 or more".to_string()));
        }
        let Limits { key_bytes, value_bytes, transaction_bytes } = self.limits;
        for (name, value) in [
            ("key_bytes", key_bytes),
            ("value_bytes", value_bytes),
            ("transaction_bytes", transaction_bytes),
        ] {
            if value == 0 {
                let message = format!("`{name}` is 0, and nothing could be written: choose more");
                return Err((Part::Limits, message));
            }
        }
        let clock_us = self.transport.clock_uncertainty_us;
        if clock_us >= MOST_CLOCK_UNCERTAINTY_US {
            let message = format!(
                "`clock_uncertainty_us` is {clock_us}: choose less than {MOST_CLOCK_UNCERTAINTY_US} (a minute)"
            );
            return Err((Part::Transport, message));
        }
        let least = match self.peers.len() {
            1 => TransportOptions::LEAST_FRAME_BYTES,
            _ => LEAST_FRAME_BYTES_OF_NODES,
        };
        if !(least..=u32::MAX as usize).contains(&self.transport.frame_bytes) {
            let message = format!("`frame_bytes` must be between {least} and {}", u32::MAX);
            return Err((Part::Transport, message));
        }
        for (name, value) in [
            ("connections", self.transport.connections),
            ("client_bytes", self.transport.client_bytes),
            ("most_waiting_bytes", self.transport.most_waiting_bytes),
        ] {
            if value == 0 {
                let message = format!("`{name}` is 0, and nobody could be served: choose more");
                return Err((Part::Transport, message));
            }
        }
        let poll_us = self.transport.poll_us;
        let most = TransportOptions::MOST_POLL_US;
        if poll_us > most {
            let message = format!(
                "`poll_us` is {poll_us}: choose at most {most}, or 0 to have threads sleep at once"
            );
            return Err((Part::Transport, message));
        }
        let TransportOptions { heartbeat_ms, silence_ms, .. } = self.transport;
        if heartbeat_ms == 0 || silence_ms / 2 < heartbeat_ms {
            let message = "`heartbeat_ms` must be at least 1, and `silence_ms` at least twice that";
            return Err((Part::Transport, message.to_string()));
        }
        let Some(geography) = &self.geography else { return Ok(None) };
        let geography =
            Geography::named(geography).map_err(|error| (Part::Geography, error.to_string()))?;
        let usual = self.usual_place(geography, self.node);
        let place = Place::find(geography, self.site.as_deref(), usual);
        place.map(Some).map_err(|message| (Part::Site, message))
    }
}

#[cfg(test)]
mod tests;
