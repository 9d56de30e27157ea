//! The keyspaces that an endpoint knows, and their partitions.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;
use serried_model::NodeId;

use crate::out_buffer::Route;

/// The partitions of the keyspaces that an endpoint serves or uses, in its own order. A node's order is that of its
/// configuration, and a client's is the order in which it began to use them. A partition's place in this order is its
/// *shard*. Shards are local: messages carry the keyspace's number and the partition instead.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shards {
    /// By shard: keyspace and partition.
    all: Vec<(u16, u16)>,
    /// By keyspace: its first shard.
    firsts: Vec<u16>,
    /// By a keyspace's number: the keyspace.
    keyspaces: HashMap<u64, u16, FixedState>,
}

/// The receiver of a message, in its endpoint's terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) keyspace: u16,
    pub(crate) shard: u16,
}

impl Shards {
    /// The most that there may be.
    pub const MOST: usize = u16::MAX as usize;

    /// The shards of keyspaces with these numbers and numbers of partitions.
    pub fn new(keyspaces: impl IntoIterator<Item = (u64, u16)>) -> Shards {
        let mut shards = Shards::default();
        for (number, partitions) in keyspaces {
            shards.add(number, partitions);
        }
        shards
    }

    /// Adds a keyspace that is not there yet, after the others.
    pub fn add(&mut self, number: u64, partitions: u16) -> u16 {
        let keyspace = self.firsts.len() as u16;
        self.firsts.push(self.all.len() as u16);
        self.all.extend((0..partitions).map(|partition| (keyspace, partition)));
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
        self.firsts[usize::from(keyspace)]
    }

    /// The shards of the keyspace with a number.
    pub fn of_keyspace(&self, number: u64) -> Option<Range<usize>> {
        let keyspace = *self.keyspaces.get(&number)?;
        let from = usize::from(self.first(keyspace));
        let until = self.firsts.get(usize::from(keyspace) + 1).map(|next| usize::from(*next));
        Some(from..until.unwrap_or(self.all.len()))
    }

    /// The receiver of a message. `None` if its keyspace is unknown here or has no such partitions.
    pub(crate) fn locate(&self, route: Route) -> Option<Found> {
        let shards = self.of_keyspace(route.keyspace)?;
        if usize::from(route.to.max(route.from)) >= shards.len() {
            return None;
        }
        let shard = shards.start as u16 + route.to;
        self.find(shard).map(|(keyspace, _)| Found { keyspace, shard })
    }

    /// A shard's keyspace and partition.
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
    fn a_message_is_for_the_keyspace_that_it_names_wherever_that_is() {
        let route = |keyspace, to, from| Route { keyspace, to, from };
        let one = Shards::new([(70, 1), (80, 3)]);
        let other = Shards::new([(90, 2), (80, 3), (70, 1)]);
        assert_eq!(one.locate(route(80, 2, 1)), Some(Found { keyspace: 1, shard: 3 }));
        assert_eq!(other.locate(route(80, 2, 1)), Some(Found { keyspace: 1, shard: 4 }));
        assert_eq!(other.locate(route(70, 0, 0)), Some(Found { keyspace: 2, shard: 5 }));
        assert_eq!(one.locate(route(90, 0, 0)), None, "it has no such keyspace");
        assert_eq!(one.locate(route(80, 3, 0)), None);
        assert_eq!(one.locate(route(80, 0, 3)), None);
    }
}
