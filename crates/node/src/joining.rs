//! What a node asks the others before it serves: whether they accept it, and which keyspaces there are.
//!
//! A node whose data replaces lost data asks more. First it asks which data the others have known it by, so that its new
//! data has a greater number. Then it asks until so many have said which keyspaces there are that one of them knows each
//! keyspace of which data may have been lost. Before that it is not settled in any generation, and does not start.
//! `storage/directory.rs` explains why.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use serried_model::Provenance;
use serried_storage::{KeyspaceIdentity, KeyspaceRecord};
use serried_wire::{Ended, Hello, Place, Welcome, dial};
use tokio::task::JoinSet;

use crate::configuration::{KeyspaceConfiguration, NodeConfiguration};
use crate::durable::Disks;
use crate::generations::{Known, choose, number};
use crate::node::StartError;

/// How long a node that starts waits for the others to answer, beside the heartbeat for which they may wait themselves for
/// its former process.
const WELCOME_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a node that replaces a lost one waits for a majority to say which keyspaces there are, and how often it
/// asks.
const REJOIN_PATIENCE: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// By how much the number of new data may exceed the known one where the clock does not make it greater. Data of two
/// directories that are made at the same time has different numbers, since each adds a random number below that.
const INCARNATIONS: u64 = 1 << 32;

/// What the other nodes have said.
struct Heard {
    answers: Vec<Welcome>,
    /// There are so many answers that one of them names each generation of which data may have been lost.
    enough: bool,
}

impl Heard {
    /// The last generation of each name that is known.
    fn generations(&self) -> BTreeMap<String, u32> {
        let mut last = BTreeMap::<String, u32>::new();
        for (name, generation) in self.answers.iter().flat_map(generations) {
            let last = last.entry(name.to_string()).or_default();
            *last = generation.max(*last);
        }
        last
    }
}

/// How many of some other nodes have to say which keyspaces there are, so that one of them is in each majority of these
/// nodes that the lost one was in.
struct Wanted {
    nodes: Range<usize>,
    count: usize,
    /// Whether they are those of the node's site in a keyspace, not all nodes.
    of_site: bool,
}

impl Wanted {
    fn new(nodes: Range<usize>, of_site: bool) -> Wanted {
        let count = (nodes.len() / 2 + 1).min(nodes.len() - 1);
        Wanted { nodes, count, of_site }
    }

    /// A majority of the nodes of another site.
    fn majority(nodes: Range<usize>) -> Wanted {
        Wanted { count: nodes.len() / 2 + 1, nodes, of_site: false }
    }

    /// How many of these answers are of its nodes.
    fn answered<'a>(&self, answers: impl IntoIterator<Item = &'a Welcome>) -> usize {
        let members = answers.into_iter().map(|answer| answer.node.member());
        members.filter(|member| self.nodes.contains(member)).count()
    }
}

/// A node that is about to serve.
pub(crate) struct Joining<'a> {
    pub(crate) configuration: &'a NodeConfiguration,
    pub(crate) place: Option<Place>,
    pub(crate) disks: Option<&'a dyn Disks>,
    /// A number that distinguishes its process from others that run as the same node.
    pub(crate) incarnation: u64,
}

/// The last generation of each name that a node knows, whether it serves it or not.
fn generations(answer: &Welcome) -> impl Iterator<Item = (&str, u32)> {
    let present = answer.keyspaces.iter().map(|keyspace| (&keyspace.name, &keyspace.generation));
    let others = answer.dropped.iter().chain(&answer.lost).map(|(name, last)| (name, last));
    present.chain(others).map(|(name, generation)| (name.as_str(), *generation))
}

/// What a node knows of a keyspace's name.
fn known(answer: &Welcome, name: &str) -> Option<Known> {
    let present = answer.keyspaces.iter().find(|keyspace| keyspace.name == name);
    let dropped = || answer.dropped.iter().find(|(dropped, _)| dropped == name);
    match present {
        Some(keyspace) => Some(Known { generation: keyspace.generation, dropped: false }),
        None => dropped().map(|(_, generation)| Known { generation: *generation, dropped: true }),
    }
}

/// The number of the data that node `member` had when the node that answers last met it.
fn met(answer: &Welcome, member: usize) -> Option<u64> {
    let met = answer.known.iter().find(|(other, _)| usize::from(*other) == member);
    met.map(|(_, number)| *number)
}

/// Whether a node's data replaces lost data.
pub(crate) fn rejoined(disks: &dyn Disks) -> bool {
    disks.provenance().is_some_and(|has| has.rejoined)
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
            inquires: false,
        }
    }

    /// The generations of its keyspaces, in the order of its configuration. They are written to its disk.
    ///
    /// # Errors
    /// [`StartError::Unwelcome`] if the node starts for the first time and another node has met it with other data;
    /// [`StartError::TooFew`] if its data replaces lost data, and too few nodes say what that was;
    /// [`StartError::Keyspace`] if a name means something else on other nodes; [`StartError::Directory`] if the disk can't be
    /// written.
    pub(crate) fn settle(&self) -> Result<Vec<u32>, StartError> {
        let keyspaces = &self.configuration.keyspaces;
        let asked = keyspaces.iter().map(KeyspaceConfiguration::generation);
        let Some(disks) = self.disks else {
            // Neither this node nor the others remember anything, so there is one generation of each name.
            return Ok(asked.map(Option::unwrap_or_default).collect());
        };
        let heard = self.ask_others(disks)?;
        let others = heard.generations();
        let (records, lost) = (disks.keyspaces(), self.lost(disks, &others));
        let generation = |keyspace: &KeyspaceConfiguration| {
            let lost = lost.get(&keyspace.name).copied();
            let chosen = self.choose(keyspace, &records, &heard.answers, lost);
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
        disks
            .settle(&settled, heard.enough.then_some(&others))
            .map_err(|reason| StartError::Directory { reason })?;
        Ok(generations)
    }

    /// The last generation of each name of which this node may have lost data. It serves no earlier one.
    fn lost(&self, disks: &dyn Disks, others: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
        match disks.provenance() {
            Some(Provenance { rejoined: true, .. }) => {
                disks.lost().unwrap_or_else(|| others.clone())
            }
            _ => BTreeMap::new(),
        }
    }

    fn number(&self, keyspace: &KeyspaceConfiguration, generation: u32) -> u64 {
        number(&self.configuration.cluster, &identity(keyspace), generation)
    }

    fn choose(
        &self,
        keyspace: &KeyspaceConfiguration,
        records: &[KeyspaceRecord],
        others: &[Welcome],
        lost: Option<u32>,
    ) -> Result<u32, String> {
        let name = &keyspace.name;
        let record = records.iter().find(|record| record.identity.name == *name);
        let own =
            record.map(|record| Known { generation: record.generation, dropped: record.dropped });
        let said: Vec<Known> = others.iter().filter_map(|other| known(other, name)).collect();
        let nodes = self.configuration.peers.len();
        let chosen = choose(name, own, &said, nodes, keyspace.generation())?;
        let lost = lost.filter(|_| own.is_none_or(|own| own.dropped));
        let chosen = match (lost, keyspace.generation()) {
            (Some(lost), Some(asked)) if asked < lost => {
                return Err(format!(
                    "the configuration says `{name}@{asked}`, and this node may have had `{name}@{lost}` \
                     before its disk was lost: write that as the keyspace's `id`"
                ));
            }
            (Some(lost), None) => chosen.max(lost),
            _ => chosen,
        };
        if let Some(own) = own.filter(|own| !own.dropped && own.generation != chosen) {
            let (old, new) = (format!("{name}@{}", own.generation), format!("{name}@{chosen}"));
            tracing::warn!(
                old,
                new,
                "a keyspace was dropped and created again while this node was away: it takes part in the new one, and what it has of the old one stays where it is until you remove it"
            );
        }
        // If the configuration contradicts what it has, `Disks::settle` refuses it.
        if record.is_some_and(|record| record.generation == chosen) {
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
    fn ask_others(&self, disks: &dyn Disks) -> Result<Heard, StartError> {
        // On a thread of its own, because this thread may belong to a runtime.
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(StartError::System)?.block_on(self.ask_until_known(disks))
        };
        let asked = thread::scope(|scope| scope.spawn(ask).join());
        asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Asks the other nodes. A node that replaces a lost one asks until so many of the others have answered that one of
    /// them is in each majority that the lost one was in, because the lost one may have known generations that only
    /// others remember. It gives up after a while. Only a directory that was settled before goes on without an answer,
    /// and one that meets others like it: an earlier release settled directories although too few nodes had answered.
    async fn ask_until_known(&self, disks: &dyn Disks) -> Result<Heard, StartError> {
        let wanted = self.wanted(disks.rebuilds_site());
        let rejoined = rejoined(disks);
        let must_know = rejoined && disks.lost().is_none();
        let until = Instant::now() + REJOIN_PATIENCE;
        loop {
            if rejoined && disks.keyspaces().is_empty() {
                self.renumber(disks).await?;
            }
            let hello = Hello { inquires: true, ..self.hello(0) };
            let answers = self.ask_once(hello, disks.is_new()).await?;
            // A node that itself had too few answers may lack what is asked for.
            let knowing = || answers.iter().filter(|answer| answer.knows_lost);
            let lacking = wanted.iter().find(|wanted| wanted.answered(knowing()) < wanted.count);
            let over = Instant::now() > until;
            // Other sites may be lost, too. If one is not, this one gets back what that has, and counts as lost in every
            // keyspace that it gets.
            let other_site = |wanted: &&Wanted| wanted.nodes.len() < self.configuration.peers.len();
            let has_one = disks.rebuilds_site()
                && wanted.iter().filter(other_site).any(|it| it.answered(&answers) >= it.count);
            if let Some(lacking) = lacking.filter(|_| must_know && over) {
                let silent = wanted.iter().find(|wanted| wanted.answered(&answers) < wanted.count);
                if let Some(silent) = silent.filter(|_| disks.keyspaces().is_empty() && !has_one) {
                    let (answered, wanted) = (silent.answered(&answers), silent.count);
                    return Err(StartError::TooFew { answered, wanted, of_site: silent.of_site });
                }
                tracing::warn!(
                    answered = lacking.answered(knowing()),
                    wanted = lacking.count,
                    of_site = lacking.of_site,
                    "too few nodes say which keyspaces there are: until this node has been started while enough others run, it counts as one that has lost its disk in each keyspace that it gets; if it has an earlier generation of a keyspace than the one that is meant, replace it once more, on an empty directory with --rejoin, while the others run"
                );
            }
            let enough = lacking.is_none();
            if enough || !must_know || over {
                return Ok(Heard { answers, enough });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Of which nodes so many have to say which keyspaces there are. A keyspace with several sites is available at one
    /// of them as soon as a majority of the site's nodes has it. If all disks of this site are lost, what was available
    /// only here does not matter any more.
    fn wanted(&self, rebuilds_site: bool) -> Vec<Wanted> {
        let (node, nodes) = (self.configuration.node, self.configuration.peers.len());
        let (several, one): (Vec<_>, Vec<_>) =
            self.configuration.keyspaces.iter().partition(|keyspace| keyspace.sites > 1);
        let mut wanted = Vec::new();
        if !rebuilds_site || several.is_empty() || !one.is_empty() {
            wanted.push(Wanted::new(0..nodes, false));
        }
        for keyspace in several {
            let each = nodes / usize::from(keyspace.sites);
            let own = node / each;
            for site in 0..usize::from(keyspace.sites) {
                let nodes = site * each..(site + 1) * each;
                match (site == own, rebuilds_site) {
                    (true, false) => wanted.push(Wanted::new(nodes, true)),
                    (false, true) => wanted.push(Wanted::majority(nodes)),
                    _ => {}
                }
            }
        }
        wanted
    }

    /// Asks which data the others have known this node by, and gives the new data a greater number.
    async fn renumber(&self, disks: &dyn Disks) -> Result<(), StartError> {
        let unnumbered = |has| Provenance { incarnation: 0, ..has };
        let hello = self.hello(0);
        let provenance = hello.provenance.map(unnumbered);
        let inquiry = Hello { inquires: true, provenance, ..hello };
        let answers = self.ask_once(inquiry, false).await?;
        let Some(known) =
            answers.iter().filter_map(|answer| met(answer, self.configuration.node)).max()
        else {
            return Ok(());
        };
        // If it is the same, this node has reported it before it was killed.
        if disks.provenance().is_some_and(|has| known > has.incarnation) {
            let incarnation = known.saturating_add(1 + self.incarnation % INCARNATIONS);
            disks.raise(incarnation).map_err(|reason| StartError::Directory { reason })?;
        }
        Ok(())
    }

    /// Whether an answer is that of the data which counts as its node's. It came from the node's address, so it is noted.
    fn counts(&self, answer: &Welcome) -> bool {
        let (Some(disks), Some(has)) = (self.disks, answer.provenance) else { return true };
        let noted = disks.meet(answer.node.member(), has);
        if let Err(reason) = &noted {
            tracing::warn!(node = %answer.node, reason, "another node's answer does not count");
        }
        noted.is_ok()
    }

    async fn ask_once(&self, hello: Hello, is_new: bool) -> Result<Vec<Welcome>, StartError> {
        let timeout = WELCOME_TIMEOUT + self.configuration.transport.heartbeat();
        let mut asked = JoinSet::new();
        for (member, address) in self.configuration.peers.iter().enumerate() {
            if member != self.configuration.node {
                let (address, hello) = (address.clone(), hello.clone());
                let answer = async move {
                    let met = dial(&address, &hello, false).await?;
                    // Each node counts once.
                    let expected = met.welcome.node.member() == member;
                    if expected { Ok(met) } else { Err(Ended::Closed) }
                };
                asked.spawn(tokio::time::timeout(timeout, answer));
            }
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(Ok(met))) if self.counts(&met.welcome) => answers.push(met.welcome),
                // Its promises count no more, so it takes no part, however often it asks.
                Ok(Ok(Err(Ended::Disowned(reason)))) => {
                    return Err(StartError::Unwelcome { reason });
                }
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
        sites: keyspace.sites,
    }
}

#[cfg(test)]
pub(crate) mod tests;
