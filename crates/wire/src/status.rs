//! The status of a node.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_model::Durability;

use crate::statistics::NodeStatistics;

/// A flush that takes longer than this has stalled.
const STALLED: Duration = Duration::from_secs(5);

/// The status of a node, as it reports it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The version of its program.
    pub version: String,
    /// A random number that it has drawn when it started. It distinguishes processes that run as the same node.
    pub incarnation: u64,
    /// For how long it has been running.
    pub uptime: Duration,
    /// When its records count as durable.
    pub durability: Durability,
    /// How many cores serve its partitions.
    pub cores: u16,
    /// How many partitions it has, of all keyspaces together.
    pub partitions: u16,
    /// How many nodes the cluster has.
    pub nodes: u16,
    /// To how many of them it has a connection now, itself included.
    pub reached: u16,
    /// Why it can't write its logs and serves nothing, if that is so.
    pub obstacle: Option<String>,
    /// The keyspaces that are refused by name, as far as the node knows: too few nodes mean the same by these.
    pub not_served: Vec<NotServed>,
    /// Its keyspaces in which it takes no part: a majority of the nodes has others by the same names.
    pub outside: Vec<NotServed>,
    /// Whether it has a keyspace with one site only, which consists of all nodes.
    pub spans_all: bool,
    /// Its keyspaces with several sites.
    pub sites: Vec<AtSite>,
    /// The partitions that do not take part fully, if there are any.
    pub behind: Option<Behind>,
    /// The partitions that vote on nothing for a while, if there are any.
    pub not_voting: Option<NotVoting>,
    /// By how much its clock disagrees with those of a majority, if by more than is allowed in a keyspace whose protocol
    /// relies on clocks.
    pub clock_off: Option<Duration>,
    /// For how long the oldest flush of a log has been under way, if one is.
    pub flush_under_way: Option<Duration>,
    /// How many flushes of logs are under way or due.
    pub flush_lag: u64,
    /// Bytes of messages that wait for flushes.
    pub held_bytes: u64,
    /// Bytes of messages that wait for their connections.
    pub waiting_bytes: u64,
    /// What it has counted.
    pub statistics: NodeStatistics,
}

/// A keyspace that can't be used, or that a node takes no part in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotServed {
    /// The name.
    pub name: String,
    /// Why, and what to do.
    pub reason: String,
}

/// A node's part in a keyspace with several sites.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AtSite {
    /// The keyspace.
    pub keyspace: String,
    /// The node's site, from 0.
    pub site: u16,
    /// How many sites the keyspace has.
    pub sites: u16,
    /// How many nodes a site has.
    pub nodes: u16,
    /// To how many nodes of its site the node has a connection now, itself included.
    pub reached: u16,
    /// How old what this site lacks of the others can be: for how long nothing was admitted here of the one that is
    /// furthest away. `None` if the node leads no partition, the site is being rebuilt, or the protocol does not say.
    pub behind: Option<Duration>,
    /// Bytes that this node keeps because another site lacks them.
    pub backlog_bytes: u64,
    /// How many sites lack more than this node keeps. They have to copy all keys.
    pub without_backlog: u16,
}

impl AtSite {
    /// A description.
    pub fn text(&self) -> String {
        let AtSite { keyspace, site, without_backlog, .. } = self;
        let mut text = format!("at site {site} of `{keyspace}`");
        if let Some(behind) = self.behind {
            text += &format!(", {} ms behind the other sites", behind.as_millis());
        }
        if *without_backlog > 0 {
            text += &format!(", {without_backlog} of the other sites must copy what has changed");
        }
        text
    }

    /// A description, if too few nodes of the site are reached.
    fn alone(&self) -> Option<String> {
        let AtSite { site, nodes, reached, .. } = *self;
        (reached <= nodes / 2).then(|| {
            format!("reaches no majority of site {site}, only {reached} of {nodes} nodes, itself included: see to the others and to the network")
        })
    }
}

/// The partitions of a node that do not take part fully. While there are any, another node should not be stopped: the rest
/// may be no majority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Behind {
    /// How many are getting what they missed while they were away.
    pub catching_up: u16,
    /// How many replace those of a lost disk, and do not have everything yet.
    pub rejoining: u16,
    /// How many keys all of these have taken over so far.
    pub keys: u64,
    /// The longest time for which one of them has not taken part fully.
    pub lasting: Duration,
}

impl Behind {
    /// The partitions of both.
    #[must_use]
    pub fn plus(self, other: Behind) -> Behind {
        Behind {
            catching_up: self.catching_up + other.catching_up,
            rejoining: self.rejoining + other.rejoining,
            keys: self.keys + other.keys,
            lasting: self.lasting.max(other.lasting),
        }
    }

    /// A description, for a node with so many partitions.
    fn text(self, partitions: u16) -> String {
        let Behind { catching_up, rejoining, keys, lasting } = self;
        let what = match rejoining {
            0 => format!("catching up in {catching_up} of {partitions} partitions"),
            _ => format!("rejoining in {rejoining} of {partitions} partitions"),
        };
        let seconds = lasting.as_secs();
        format!("{what}, {keys} keys so far, for {seconds} s: keep the other nodes running")
    }
}

/// The partitions of a node that vote on nothing yet: clocks were ahead, they have truncated by them, and a
/// replica never votes below a truncation. Until their clock has come there, they count as failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotVoting {
    /// How many there are.
    pub partitions: u16,
    /// The time until all of them vote.
    pub remaining: Duration,
}

impl NotVoting {
    /// The partitions of both.
    #[must_use]
    pub fn plus(self, other: NotVoting) -> NotVoting {
        NotVoting {
            partitions: self.partitions + other.partitions,
            remaining: self.remaining.max(other.remaining),
        }
    }

    /// A description, for a node with so many partitions.
    pub fn text(self, partitions: u16) -> String {
        let NotVoting { partitions: some, remaining } = self;
        let seconds = remaining.as_secs();
        format!(
            "does not vote in {some} of {partitions} partitions for another {seconds} s, as clocks were ahead: keep the \
             other nodes running; if all of them vote, it votes sooner when it is started on an empty directory with --rejoin"
        )
    }
}

impl NodeStatus {
    /// Whether the node can write, reaches a majority that has the same keyspaces, and all of its partitions take part fully
    /// and vote. For a keyspace with several sites, a majority of the node's own site is enough.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn serves(&self) -> Result<(), String> {
        if let Some(obstacle) = &self.obstacle {
            return Err(obstacle.clone());
        }
        if let Some(lasting) = self.flush_under_way.filter(|lasting| *lasting >= STALLED) {
            let seconds = lasting.as_secs();
            return Err(format!(
                "a flush of a log has been under way for {seconds} s: see to the disk, or to the load if a core is always busy"
            ));
        }
        let partitions = self.partitions;
        let reasons = [
            self.behind.map(|behind| behind.text(partitions)),
            self.may_wait_for_former_data(),
            self.not_voting.map(|not_voting| not_voting.text(partitions)),
            self.alone(),
        ];
        let mut alone: Vec<String> = self.sites.iter().filter_map(AtSite::alone).collect();
        // Keyspaces may have the same sites.
        alone.dedup();
        let outside = self.outside.iter().map(|keyspace| keyspace.reason.clone());
        match reasons
            .into_iter()
            .flatten()
            .chain(alone)
            .chain(outside)
            .collect::<Vec<_>>()
            .join("; ")
        {
            none if none.is_empty() => Ok(()),
            reasons => Err(reasons),
        }
    }

    /// What is to be done about its clock, if that is off. It serves nevertheless: the partitions that it leads go by the
    /// clocks of a majority.
    pub fn clock_text(&self) -> Option<String> {
        self.clock_off.map(|off| {
            let ms = off.as_millis();
            format!("its clock disagrees by {ms} ms with those of a majority, which it goes by: set it right, or theirs")
        })
    }

    /// What stops the nodes of a site that was lost from taking up their work.
    fn may_wait_for_former_data(&self) -> Option<String> {
        let rejoins = self.behind.is_some_and(|behind| behind.rejoining > 0);
        let AtSite { site, .. } = self.sites.first().filter(|_| rejoins)?;
        Some(format!(
            "if site {site} has lost the disks of most nodes, start all of its nodes on empty directories, because one with its former data holds up the others"
        ))
    }

    /// A description, if it reaches no majority.
    fn alone(&self) -> Option<String> {
        let NodeStatus { nodes, reached, spans_all, .. } = *self;
        (spans_all && reached <= nodes / 2).then(|| {
            format!("reaches no majority, only {reached} of {nodes} nodes, itself included: see to the others and to the network")
        })
    }
}

#[cfg(test)]
mod tests {
    use serried_model::NodeId;

    use super::*;
    use crate::statistics::Statistics;

    fn status() -> NodeStatus {
        NodeStatus {
            version: "1.2.3".to_string(),
            incarnation: 9,
            uptime: Duration::from_secs(60),
            durability: Durability::Sync,
            cores: 2,
            partitions: 8,
            nodes: 3,
            reached: 2,
            obstacle: None,
            not_served: Vec::new(),
            outside: Vec::new(),
            spans_all: true,
            sites: Vec::new(),
            behind: None,
            not_voting: None,
            clock_off: None,
            flush_under_way: Some(Duration::from_secs(1)),
            flush_lag: 0,
            held_bytes: 0,
            waiting_bytes: 0,
            statistics: NodeStatistics {
                node: NodeId(1),
                counters: Statistics::default(),
                connections: 2,
                process_cpu: Duration::ZERO,
                process_id: 7,
            },
        }
    }

    #[test]
    fn a_node_serves_if_it_can_flush_and_all_its_partitions_take_part() {
        assert_eq!(status().serves(), Ok(()));
        let stalled = NodeStatus { flush_under_way: Some(Duration::from_secs(7)), ..status() };
        assert!(stalled.serves().unwrap_err().contains("under way for 7 s"));
        let full = NodeStatus { obstacle: Some("the disk is full".to_string()), ..status() };
        assert_eq!(full.serves().unwrap_err(), "the disk is full");
        let alone = NodeStatus { reached: 1, ..status() };
        let said = alone.serves().unwrap_err();
        assert!(said.starts_with("reaches no majority, only 1 of 3 nodes"), "{said}");
        let outside =
            vec![NotServed { name: "a".to_string(), reason: "takes no part in a".to_string() }];
        let outside = NodeStatus { reached: 1, outside, ..status() }.serves().unwrap_err();
        assert!(outside.starts_with("reaches no majority"), "{outside}");
        assert!(outside.ends_with("; takes no part in a"), "{outside}");
        let single = NodeStatus { nodes: 1, reached: 1, ..status() };
        assert_eq!(single.serves(), Ok(()));
        let lasting = Duration::from_secs(3);
        let away = Behind { catching_up: 1, rejoining: 0, keys: 7, lasting };
        let lost = Behind { catching_up: 0, rejoining: 1, keys: 5, lasting: lasting / 2 };
        for (behind, words) in [
            (away, "catching up in 1 of 8 partitions, 7 keys so far, for 3 s"),
            (away.plus(lost), "rejoining in 1 of 8 partitions, 12 keys so far, for 3 s"),
        ] {
            let said = NodeStatus { behind: Some(behind), ..status() }.serves().unwrap_err();
            assert!(said.starts_with(words), "{said}");
        }
    }

    #[test]
    fn a_node_whose_keyspaces_have_sites_serves_if_it_reaches_a_majority_of_its_own() {
        let at = |keyspace: &str, reached| AtSite {
            keyspace: keyspace.to_string(),
            site: 2,
            sites: 3,
            nodes: 3,
            reached,
            behind: Some(Duration::from_secs(60)),
            backlog_bytes: 7,
            without_backlog: 0,
        };
        let of = |sites| NodeStatus { nodes: 9, reached: 2, spans_all: false, sites, ..status() };
        assert_eq!(of(vec![at("a", 2)]).serves(), Ok(()));
        let said = of(vec![at("a", 1), at("b", 1)]).serves().unwrap_err();
        assert!(said.starts_with("reaches no majority of site 2, only 1 of 3 nodes"), "{said}");
        assert_eq!(said.matches("site 2").count(), 1, "{said}");
        let described = "at site 2 of `a`, 60000 ms behind the other sites";
        assert_eq!(at("a", 3).text(), described);
        let copying = AtSite { behind: None, without_backlog: 1, ..at("a", 3) };
        let lacks = "at site 2 of `a`, 1 of the other sites must copy what has changed";
        assert_eq!(copying.text(), lacks);
        let behind =
            Some(Behind { catching_up: 0, rejoining: 1, keys: 5, lasting: Duration::ZERO });
        let rejoins = NodeStatus { behind, ..of(vec![at("a", 3)]) }.serves().unwrap_err();
        assert!(rejoins.contains("start all of its nodes on empty directories"), "{rejoins}");
        let mixed = NodeStatus { spans_all: true, ..of(vec![at("a", 2)]) }.serves().unwrap_err();
        assert!(mixed.starts_with("reaches no majority, only 2 of 9 nodes"), "{mixed}");
    }

    #[test]
    fn a_node_whose_clock_is_off_serves_and_says_so() {
        let off = NodeStatus { clock_off: Some(Duration::from_millis(30_000)), ..status() };
        assert_eq!((off.serves(), status().clock_text()), (Ok(()), None));
        assert!(off.clock_text().expect("a text").contains("by 30000 ms"));
    }

    #[test]
    fn a_node_does_not_serve_while_its_partitions_vote_on_nothing() {
        let of = |seconds| NotVoting { partitions: 1, remaining: Duration::from_secs(seconds) };
        let both = of(3600).plus(of(9));
        let said = NodeStatus { not_voting: Some(both), ..status() }.serves().unwrap_err();
        let words = "does not vote in 2 of 8 partitions for another 3600 s, as clocks were ahead";
        assert!(said.starts_with(words) && said.contains("--rejoin"), "{said}");
    }
}
