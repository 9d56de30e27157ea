//! What a node asks the others before it serves: whether they accept it, and which keyspaces there are.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use serried_storage::{KeyspaceIdentity, KeyspaceRecord};
use tokio::task::JoinSet;

use crate::connection::Ended;
use crate::durable::Disks;
use crate::generations::{Known, choose, number};
use crate::handshake::{Hello, Place, Welcome, dial};
use crate::{KeyspaceConfiguration, NodeConfiguration, StartError};

/// How long a node that starts waits for the others to answer, beside the heartbeat for which they may wait themselves for
/// its former process.
const WELCOME_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a node that replaces a lost one waits for a majority to tell it which keyspaces there are, and how often it
/// asks.
const REJOIN_PATIENCE: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A node that is about to serve.
pub(crate) struct Joining<'a> {
    pub(crate) configuration: &'a NodeConfiguration,
    pub(crate) place: Option<Place>,
    pub(crate) disks: Option<&'a dyn Disks>,
    /// A number that distinguishes its process from others that run as the same node.
    pub(crate) incarnation: u64,
}

impl Joining<'_> {
    /// How one of its cores introduces itself to another node.
    pub(crate) fn hello(&self, core: usize) -> Hello {
        let Joining { configuration, place, disks, incarnation } = *self;
        let site = place.map(|Place { geography, site }| geography.sites[site].to_string());
        Hello {
            node: configuration.id(),
            incarnation,
            core: core as u16,
            cluster: Some(configuration.cluster.clone()),
            site,
            frame_bytes: configuration.transport.frame_bytes,
            provenance: disks.and_then(Disks::provenance),
        }
    }

    /// The generations of its keyspaces, in the order of its configuration. They are written to its disk.
    ///
    /// # Errors
    /// [`StartError::Unwelcome`] if the node starts for the first time and another node has met it with other data;
    /// [`StartError::Keyspace`] if a name means something else on other nodes; [`StartError::Storage`] if the disk can't be
    /// written.
    pub(crate) fn settle(&self) -> Result<Vec<u32>, StartError> {
        let keyspaces = &self.configuration.keyspaces;
        let asked = keyspaces.iter().map(KeyspaceConfiguration::generation);
        let Some(disks) = self.disks else {
            // Neither this node nor the others remember anything, so there is one generation of each name.
            return Ok(asked.map(Option::unwrap_or_default).collect());
        };
        let others = self.ask_others(disks)?;
        let known = disks.keyspaces();
        let generation = |keyspace: &KeyspaceConfiguration| {
            let chosen = self.choose(keyspace, &known, &others);
            let name = &keyspace.name;
            chosen.map_err(|reason| StartError::Keyspace { keyspace: name.clone(), reason })
        };
        let generations: Vec<u32> = keyspaces.iter().map(generation).collect::<Result<_, _>>()?;
        let mut numbers = HashSet::new();
        for (keyspace, generation) in keyspaces.iter().zip(&generations) {
            if !numbers.insert(self.number(keyspace, *generation)) {
                let reason = "its number is that of another keyspace: rename it".to_string();
                return Err(StartError::Keyspace { keyspace: keyspace.name.clone(), reason });
            }
        }
        let settled: Vec<_> = keyspaces.iter().map(identity).zip(generations.clone()).collect();
        disks.settle(&settled).map_err(|reason| {
            let keyspace = keyspaces[0].name.clone();
            StartError::Storage { keyspace, partition: 0, reason }
        })?;
        Ok(generations)
    }

    fn number(&self, keyspace: &KeyspaceConfiguration, generation: u32) -> u64 {
        let KeyspaceConfiguration { name, protocol, partitions, .. } = keyspace;
        number(&self.configuration.cluster, name, generation, protocol, *partitions)
    }

    fn choose(
        &self,
        keyspace: &KeyspaceConfiguration,
        known: &[KeyspaceRecord],
        others: &[Welcome],
    ) -> Result<u32, String> {
        let name = &keyspace.name;
        let record = known.iter().find(|record| record.identity.name == *name);
        let own =
            record.map(|record| Known { generation: record.generation, dropped: record.dropped });
        let said: Vec<Known> = others.iter().filter_map(|other| other.known(name)).collect();
        let nodes = self.configuration.peers.len();
        let chosen = choose(name, own, &said, nodes, keyspace.generation())?;
        if let Some(own) = own.filter(|own| !own.dropped && own.generation != chosen) {
            let (old, new) = (format!("{name}@{}", own.generation), format!("{name}@{chosen}"));
            tracing::warn!(
                old,
                new,
                "a keyspace was dropped and created again while this node was away: it takes part in the new one, and what it has of the old one stays where it is until you remove it"
            );
        }
        let continued = record.filter(|record| record.generation == chosen);
        if continued.is_some_and(|record| record.identity != identity(keyspace)) {
            return Err(format!(
                "`{name}@{chosen}` has another protocol or number of partitions than the configuration \
                 says: correct the configuration, or leave the keyspace's `id` out to begin a new one"
            ));
        }
        if continued.is_some() {
            return Ok(chosen);
        }
        let number = self.number(keyspace, chosen);
        for other in others {
            let found = other.keyspaces.iter().find(|k| k.name == *name && k.generation == chosen);
            if let Some(found) = found.filter(|found| found.number != number) {
                return Err(format!(
                    "{} has {}, which the configuration contradicts: all nodes must say the same",
                    other.node,
                    found.description()
                ));
            }
        }
        Ok(chosen)
    }

    /// The answers of the other nodes, as far as they answer.
    fn ask_others(&self, disks: &dyn Disks) -> Result<Vec<Welcome>, StartError> {
        // On a thread of its own, because this thread may belong to a runtime.
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(StartError::System)?.block_on(self.ask_until_known(disks))
        };
        let asked = thread::scope(|scope| scope.spawn(ask).join());
        asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Asks the other nodes. A node that replaces a lost one asks until every majority contains a node that has answered,
    /// because the lost one may have known generations that only others remember.
    async fn ask_until_known(&self, disks: &dyn Disks) -> Result<Vec<Welcome>, StartError> {
        let nodes = self.configuration.peers.len();
        let forgot = disks.provenance().is_some_and(|has| has.rejoined);
        let wanted = match forgot && disks.keyspaces().is_empty() {
            true => (nodes / 2 + 1).min(nodes - 1),
            false => 0,
        };
        let until = Instant::now() + REJOIN_PATIENCE;
        loop {
            let answers = self.ask_once(disks.is_new()).await?;
            if answers.len() >= wanted {
                return Ok(answers);
            }
            if Instant::now() > until {
                let answered = answers.len();
                tracing::warn!(
                    answered,
                    wanted,
                    "too few nodes say which keyspaces there are: if some were dropped and created again, start this node again once the others run"
                );
                return Ok(answers);
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    async fn ask_once(&self, is_new: bool) -> Result<Vec<Welcome>, StartError> {
        let hello = self.hello(0);
        let timeout = WELCOME_TIMEOUT + self.configuration.transport.heartbeat();
        let mut asked = JoinSet::new();
        for (member, address) in self.configuration.peers.iter().enumerate() {
            if member != self.configuration.node {
                let (address, hello) = (address.clone(), hello.clone());
                let answer = async move { dial(&address, &hello, false).await };
                asked.spawn(tokio::time::timeout(timeout, answer));
            }
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(Ok(met))) => answers.push(met.welcome),
                // A node that was here before may be rejected only because its former process still counts as connected.
                Ok(Ok(Err(Ended::Rejected(reason)))) if is_new => {
                    return Err(StartError::Unwelcome { reason });
                }
                _ => {}
            }
        }
        Ok(answers)
    }
}

/// The properties of a keyspace that its data depends on.
pub(crate) fn identity(keyspace: &KeyspaceConfiguration) -> KeyspaceIdentity {
    KeyspaceIdentity {
        name: keyspace.name.clone(),
        protocol: keyspace.protocol.clone(),
        partitions: keyspace.partitions,
    }
}
