//! The keyspaces that an endpoint knows, and their partitions.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;
use serried_actor::Placement;
use serried_model::NodeId;

use crate::out_buffer::Route;

/// The partitions of the keyspaces that an endpoint serves or uses, in its own order. A node's order is that of its
/// configuration, and a client's is the order in which it began to use them. A partition's place in this order is its
/// *shard*. Shards are local: messages carry the keyspace's number and the partition instead.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shards {
    /// By shard: keyspace and partition.
    all: Vec<(u16, u16)>,
    /// By keyspace: its first shard, and where its replicas are.
    placed: Vec<(u16, Placement)>,
    /// By a keyspace's number: the keyspace.
    keyspaces: HashMap<u64, u16, FixedState>,
    /// The node, if they are those of a node.
    node: Option<usize>,
}

/// The receiver of a message, in its endpoint's terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) keyspace: u16,
    pub(crate) shard: u16,
    pub(crate) placement: Placement,
}

impl Shards {
    /// The most that there may be.
    pub const MOST: usize = u16::MAX as usize;

    /// The shards of keyspaces with these numbers and placements.
    pub fn new<P: Into<Placement>>(keyspaces: impl IntoIterator<Item = (u64, P)>) -> Shards {
        let mut shards = Shards::default();
        for (number, placement) in keyspaces {
            shards.add(number, placement.into());
        }
        shards
    }

    /// The same on a node. What is for other nodes is not found there.
    #[must_use]
    pub fn of_node(self, node: usize) -> Shards {
        Shards { node: Some(node), ..self }
    }

    /// Adds a keyspace that is not there yet, after the others.
    pub fn add(&mut self, number: u64, placement: Placement) -> u16 {
        let keyspace = self.placed.len() as u16;
        self.placed.push((self.all.len() as u16, placement));
        self.all.extend((0..placement.partitions()).map(|partition| (keyspace, partition)));
        self.keyspaces.insert(number, keyspace);
        keyspace
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The first shard of each keyspace, by the keyspace's number.
    pub fn firsts(&self) -> impl Iterator<Item = (u64, u16)> {
        self.keyspaces.iter().map(|(number, keyspace)| (*number, self.first(*keyspace)))
    }

    /// The first shard of a keyspace.
    ///
    /// # Panics
    /// If there is no such keyspace.
    pub fn first(&self, keyspace: u16) -> u16 {
        self.placed[usize::from(keyspace)].0
    }

    /// Where the replicas of a keyspace are.
    ///
    /// # Panics
    /// If there is no such keyspace.
    pub fn placement(&self, keyspace: u16) -> Placement {
        self.placed[usize::from(keyspace)].1
    }

    /// The shards of the keyspace with a number.
    pub fn of_keyspace(&self, number: u64) -> Option<Range<usize>> {
        let keyspace = *self.keyspaces.get(&number)?;
        let from = usize::from(self.first(keyspace));
        let until = self.placed.get(usize::from(keyspace) + 1).map(|next| usize::from(next.0));
        Some(from..until.unwrap_or(self.all.len()))
    }

    /// The receiver of a message. `None` if its keyspace is unknown here or has no such partitions, or if the receiver
    /// is at another site than this node.
    pub(crate) fn locate(&self, route: Route) -> Option<Found> {
        let keyspace = *self.keyspaces.get(&route.keyspace)?;
        let (first, placement) = self.placed[usize::from(keyspace)];
        let elsewhere = self.node.is_some_and(|node| !placement.is_on(route.to, node));
        if !placement.has(route.to.max(route.from)) || elsewhere {
            return None;
        }
        Some(Found { keyspace, shard: first + placement.local(route.to), placement })
    }

    /// A shard's keyspace, and its partition as it is counted on the node.
    pub fn find(&self, shard: u16) -> Option<(u16, u16)> {
        self.all.get(usize::from(shard)).copied()
    }

    /// Those that the `core`-th of `cores` serves.
    pub fn of_core(&self, core: usize, cores: usize) -> impl Iterator<Item = u16> {
        (0..self.all.len() as u16).filter(move |shard| core_of(*shard, cores) == core)
    }
}

/// Which of a node's `cores` serves its shard `shard`.
pub(crate) fn core_of(shard: u16, cores: usize) -> usize {
    usize::from(shard) % cores
}

/// The replica of a partition at node `member`.
pub(crate) fn replica(partition: u16, member: usize) -> Option<NodeId> {
    let known = usize::from(partition) < NodeId::PARTITIONS && member < NodeId::MEMBERS;
    known.then(|| NodeId::replica(partition, member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_go_through_all_keyspaces_and_round_the_cores() {
        let shards = Shards::new([(70, 1), (80, 3)]);
        assert_eq!((shards.first(1), shards.find(3), shards.find(4)), (1, Some((1, 2)), None));
        assert_eq!(shards.of_core(1, 2).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(shards.of_core(0, 1).count(), shards.len());
        assert_eq!((shards.of_keyspace(70), shards.of_keyspace(80)), (Some(0..1), Some(1..4)));
    }

    #[test]
    fn a_node_takes_messages_of_all_sites_for_partitions_of_its_own() {
        // Two sites with four partitions and three nodes each.
        let shards = Shards::new([(60, 1.into()), (70, Placement::new(2, 4, 3))]).of_node(3);
        let locate = |to, from| shards.locate(Route { keyspace: 70, to, from });
        assert_eq!(locate(5, 1).map(|found| (found.keyspace, found.shard)), Some((1, 2)));
        assert_eq!(locate(5, 8), None, "there is no third site");
        assert_eq!(locate(1, 5), None, "that is for a node of the first site");
        let client = Shards::new([(70, Placement::new(2, 4, 3))]);
        assert!(client.locate(Route { keyspace: 70, to: 1, from: 1 }).is_some());
        assert!(client.locate(Route { keyspace: 70, to: 5, from: 5 }).is_some());
    }

    #[test]
    fn a_message_is_for_the_keyspace_that_it_names_wherever_that_is() {
        let route = |keyspace, to, from| Route { keyspace, to, from };
        let found = |shards: &Shards, route| {
            shards.locate(route).map(|Found { keyspace, shard, .. }| (keyspace, shard))
        };
        let one = Shards::new([(70, 1), (80, 3)]);
        let other = Shards::new([(90, 2), (80, 3), (70, 1)]);
        assert_eq!(found(&one, route(80, 2, 1)), Some((1, 3)));
        assert_eq!(found(&other, route(80, 2, 1)), Some((1, 4)));
        assert_eq!(found(&other, route(70, 0, 0)), Some((2, 5)));
        assert_eq!(one.locate(route(90, 0, 0)), None, "it has no such keyspace");
        assert_eq!(one.locate(route(80, 3, 0)), None);
        assert_eq!(one.locate(route(80, 0, 3)), None);
    }
}
