//! The partitions of all keyspaces, numbered through.

use std::ops::Range;

use serried_model::NodeId;

/// Which partitions a cluster has. Each has a number among those of all keyspaces, its *shard*: those of
/// the first keyspace come first. Messages carry shards, and a shard says which of a node's cores serves
/// it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shards {
    /// By shard: keyspace and partition.
    all: Vec<(u16, u16)>,
    /// By keyspace: its first shard.
    firsts: Vec<u16>,
}

impl Shards {
    /// The most that there may be.
    pub(crate) const MOST: usize = u16::MAX as usize;

    /// The shards of keyspaces with so many partitions each.
    pub(crate) fn new(partitions: impl IntoIterator<Item = u16>) -> Shards {
        let mut shards = Shards::default();
        for (keyspace, partitions) in partitions.into_iter().enumerate() {
            shards.firsts.push(shards.all.len() as u16);
            shards.all.extend((0..partitions).map(|partition| (keyspace as u16, partition)));
        }
        shards
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The first shard of a keyspace.
    ///
    /// # Panics
    /// If there is no such keyspace.
    pub(crate) fn first(&self, keyspace: u16) -> u16 {
        self.firsts[usize::from(keyspace)]
    }

    /// The shards of a keyspace.
    pub(crate) fn of_keyspace(&self, keyspace: u16) -> Option<Range<usize>> {
        let from = usize::from(*self.firsts.get(usize::from(keyspace))?);
        let until = self.firsts.get(usize::from(keyspace) + 1).map(|next| usize::from(*next));
        Some(from..until.unwrap_or(self.all.len()))
    }

    /// A shard's keyspace and partition.
    pub(crate) fn find(&self, shard: u16) -> Option<(u16, u16)> {
        self.all.get(usize::from(shard)).copied()
    }

    /// The replica of a shard at node `member`.
    pub(crate) fn replica(&self, shard: u16, member: usize) -> Option<NodeId> {
        self.find(shard).map(|(_, partition)| NodeId::replica(partition, member))
    }

    /// Those that the `core`-th of `cores` serves.
    pub(crate) fn of_core(&self, core: usize, cores: usize) -> impl Iterator<Item = u16> {
        (0..self.all.len() as u16).filter(move |shard| core_of(*shard, cores) == core)
    }
}

/// Which of a node's `cores` serves a shard.
pub(crate) fn core_of(shard: u16, cores: usize) -> usize {
    usize::from(shard) % cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_go_through_all_keyspaces_and_round_the_cores() {
        let shards = Shards::new([1, 3]);
        assert_eq!((shards.first(1), shards.find(3), shards.find(4)), (1, Some((1, 2)), None));
        assert_eq!(shards.replica(3, 2), Some(NodeId::replica(2, 2)));
        assert_eq!(shards.of_core(1, 2).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(shards.of_core(0, 1).count(), shards.len());
    }
}
