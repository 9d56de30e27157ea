//! The replicas of a keyspace, as a participant sees them.

use core::ops::Range;
use core::time::Duration;

use serried_model::{Key, NodeId};

use crate::{NodeSet, Placement};

/// The replica groups that hold a keyspace's partitions, as one participant sees them. The same nodes hold all
/// partitions: the `i`-th member of each group is on node `i`.
///
/// # Sites
/// A keyspace of some protocols has several sites, each of which holds all keys. Each site has groups of its own: the
/// partitions of site `s` have the numbers from `s * p` on, if each site has `p` of them. The site's nodes have the
/// numbers from `s * n` on, if each group has `n` members. A participant belongs to one site. All that it asks a group
/// about is about this site, if it does not name another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    nearest_first: Vec<usize>,
    partitions: u16,
    sites: u16,
    site: u16,
    round_trip: Duration,
}

impl Group {
    /// One partition with the replicas `0..n`. `round_trip` is an estimate of the round trip to the farthest replica.
    /// It determines when messages are sent again.
    ///
    /// # Panics
    /// If `n` is even, zero or above [`NodeSet::CAPACITY`].
    pub fn new(n: usize, round_trip: Duration) -> Group {
        Group::nearest_first((0..n).collect(), round_trip)
    }

    /// As [`Group::new`], with the members in the order of their distance from this participant.
    ///
    /// # Panics
    /// If the members are not `0..n` for an odd `n`.
    pub fn nearest_first(members: Vec<usize>, round_trip: Duration) -> Group {
        let n = members.len();
        assert!(n % 2 == 1, "a group has 2f + 1 replicas, not {n}");
        let set: NodeSet = members.iter().map(|member| NodeId::replica(0, *member)).collect();
        assert_eq!(set, NodeSet::first(n), "members are numbered from 0, each once");
        Group { nearest_first: members, partitions: 1, sites: 1, site: 0, round_trip }
    }

    /// The same group with this number of partitions.
    ///
    /// # Panics
    /// If there are none, or more than [`NodeId::PARTITIONS`] at all sites together.
    #[must_use]
    pub fn with_partitions(self, partitions: u16) -> Group {
        let most = NodeId::PARTITIONS / usize::from(self.sites);
        assert!((1..=most).contains(&usize::from(partitions)), "{partitions} partitions");
        Group { partitions, ..self }
    }

    /// The same for a participant at `site`, from 0, of so many.
    ///
    /// # Panics
    /// If there is no such site, or there are more than [`NodeId::PARTITIONS`] partitions at all sites together.
    #[must_use]
    pub fn at_site(self, site: u16, sites: u16) -> Group {
        assert!(site < sites, "site {site} of {sites}");
        Group { site, sites, ..self.clone() }.with_partitions(self.partitions)
    }

    /// How many replicas each partition has, `2f + 1`.
    pub fn size(&self) -> usize {
        self.nearest_first.len()
    }

    /// How many replicas of a partition may fail, `f`.
    pub fn faults(&self) -> usize {
        self.size() / 2
    }

    /// The size of a majority, `f + 1`: any two majorities share a replica.
    pub fn majority(&self) -> usize {
        self.faults() + 1
    }

    /// Whether `node` is a replica of one of its partitions.
    pub fn contains(&self, node: NodeId) -> bool {
        !node.is_coordinator() && node.member() < self.size() && self.has(node.partition())
    }

    /// Whether `node` is a replica of a partition at another site.
    pub fn is_elsewhere(&self, node: NodeId) -> bool {
        let site = self.site_of(node.partition());
        !node.is_coordinator()
            && node.member() < self.size()
            && site != self.site
            && site < self.sites
    }

    /// All members of a partition's group.
    pub fn all(&self) -> NodeSet {
        NodeSet::first(self.size())
    }

    /// The replica of `partition` to try as the `attempt`-th, from 0: the nearest first, and the nearest again after
    /// the farthest.
    pub fn choice(&self, partition: u16, attempt: usize) -> NodeId {
        NodeId::replica(partition, self.nearest_first[attempt % self.size()])
    }

    /// How many partitions there are at a site.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// The numbers of the partitions.
    pub fn all_partitions(&self) -> Range<u16> {
        let first = self.site * self.partitions;
        first..first + self.partitions
    }

    /// Whether there is a partition with this number.
    pub fn has(&self, partition: u16) -> bool {
        self.all_partitions().contains(&partition)
    }

    /// How many sites there are.
    pub fn sites(&self) -> u16 {
        self.sites
    }

    /// The participant's site.
    pub fn site(&self) -> u16 {
        self.site
    }

    /// The site of a partition.
    pub fn site_of(&self, partition: u16) -> u16 {
        partition / self.partitions
    }

    /// The partition at `site` that holds the same keys as `partition`.
    pub fn counterpart(&self, partition: u16, site: u16) -> u16 {
        site * self.partitions + partition % self.partitions
    }

    /// The number of the node that a replica of any site is on.
    pub fn host(&self, replica: NodeId) -> usize {
        Placement::from(self).host(replica)
    }

    /// The partition that holds `key`. It is computed from a hash of the key (FNV-1a, 64 bits, mixed). The hash must
    /// never change, because data on disk is placed by it.
    pub fn partition_of(&self, key: &Key) -> u16 {
        let first = self.site * self.partitions;
        if self.partitions == 1 {
            return first;
        }
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = key.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold);
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        first + ((mixed * u64::from(self.partitions)) >> 32) as u16
    }

    /// An estimate of the round trip to the farthest replica.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_evenly_and_never_change_their_partition() {
        let group = Group::new(3, Duration::ZERO).with_partitions(4);
        let mut counts = [0; 4];
        for i in 0..10_000u64 {
            counts[usize::from(group.partition_of(&Key::from(i.to_be_bytes())))] += 1;
        }
        assert!(counts.iter().all(|count| (2200..2800).contains(count)), "{counts:?}");
        // Data on disk is placed by these numbers.
        let of = |key: &str| group.partition_of(&Key::from(key));
        assert_eq!([of(""), of("alice"), of("bob"), of("carol")], [2, 1, 0, 3]);
        assert_eq!(Group::new(3, Duration::ZERO).partition_of(&Key::from("alice")), 0);
    }
    #[test]
    fn each_site_has_partitions_and_nodes_of_its_own() {
        let group = Group::new(3, Duration::ZERO).with_partitions(4);
        let second = group.clone().at_site(1, 2);
        assert_eq!((group.sites(), second.sites(), second.site()), (1, 2, 1));
        let key = Key::from("");
        assert_eq!((group.partition_of(&key), second.partition_of(&key)), (2, 6));
        assert_eq!((second.counterpart(6, 0), second.counterpart(2, 1)), (2, 6));
        assert_eq!(second.all_partitions(), 4..8);
        let (here, there) = (NodeId::replica(6, 2), NodeId::replica(2, 2));
        assert!(second.contains(here) && !second.contains(there));
        assert!(second.is_elsewhere(there) && !second.is_elsewhere(here));
        assert!(!second.is_elsewhere(NodeId::replica(8, 0)), "there is no third site");
        assert_eq!((second.host(here), second.host(there)), (5, 2));
    }
}
