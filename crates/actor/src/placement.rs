//! On which nodes the replicas of a keyspace are.

use serried_model::NodeId;

use crate::Group;

/// On which nodes the replicas of a keyspace are. The nodes of the cluster are divided among the keyspace's sites, in
/// order and evenly. Each site has all partitions, and each of its nodes has a replica of every one of them. Messages
/// carry the number that a partition has among those of all sites. On a node, partitions are counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    sites: u16,
    /// How many partitions a site has.
    partitions: u16,
    /// How many nodes a site has.
    nodes: usize,
}

/// One site, with so many partitions.
impl From<u16> for Placement {
    fn from(partitions: u16) -> Placement {
        Placement::new(1, partitions, NodeId::MEMBERS)
    }
}

/// That of the keyspace of a group.
impl From<&Group> for Placement {
    fn from(group: &Group) -> Placement {
        Placement::new(group.sites(), group.partitions(), group.size())
    }
}

impl Placement {
    /// That of a keyspace with so many sites, of which each has so many partitions and nodes.
    ///
    /// # Panics
    /// If one of the numbers is 0.
    pub fn new(sites: u16, partitions: u16, nodes: usize) -> Placement {
        assert!(sites > 0 && partitions > 0 && nodes > 0, "{sites}, {partitions}, {nodes}");
        Placement { sites, partitions, nodes }
    }

    /// How many partitions a node has.
    pub fn partitions(self) -> u16 {
        self.partitions
    }

    /// The number of the node that a replica is on.
    pub fn host(self, replica: NodeId) -> usize {
        match self.sites {
            1 => replica.member(),
            _ => usize::from(replica.partition() / self.partitions) * self.nodes + replica.member(),
        }
    }

    /// The site of a node.
    pub fn site_of(self, node: usize) -> u16 {
        if self.sites == 1 { 0 } else { (node / self.nodes) as u16 }
    }

    /// The replica of a node's partition, which is counted from 0.
    ///
    /// # Panics
    /// If there is no such node or partition.
    pub fn replica(self, node: usize, partition: u16) -> NodeId {
        let first = self.site_of(node) * self.partitions;
        NodeId::replica(first + partition, self.member(node))
    }

    /// The replica of the partition with this number among those of all sites, if it is on this node.
    pub fn replica_on(self, node: usize, partition: u16) -> Option<NodeId> {
        let here = self.has(partition) && self.is_on(partition, node);
        (here && self.member(node) < NodeId::MEMBERS)
            .then(|| NodeId::replica(partition, self.member(node)))
    }

    /// Which member of its groups a node is.
    fn member(self, node: usize) -> usize {
        if self.sites == 1 { node } else { node % self.nodes }
    }

    /// Whether there is a partition with this number at one of the sites.
    pub fn has(self, partition: u16) -> bool {
        let all = u32::from(self.sites) * u32::from(self.partitions);
        u32::from(partition) < all.min(NodeId::PARTITIONS as u32)
    }

    /// Whether a partition is at the site of a node.
    pub fn is_on(self, partition: u16, node: usize) -> bool {
        self.sites == 1 || partition / self.partitions == self.site_of(node)
    }

    /// The number of a partition among those of a node.
    pub fn local(self, partition: u16) -> u16 {
        if self.sites == 1 { partition } else { partition % self.partitions }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn replicas_are_where_their_group_says() {
        for (sites, partitions, nodes) in [(1, 4, 3), (3, 1, 1), (2, 4, 3), (5, 2, 3)] {
            for site in 0..sites {
                let group = Group::new(nodes, Duration::ZERO).with_partitions(partitions);
                let group = group.at_site(site, sites);
                let placement = Placement::from(&group);
                for (partition, member) in
                    (0..partitions).flat_map(|p| (0..nodes).map(move |m| (p, m)))
                {
                    let node = usize::from(site) * nodes + member;
                    let replica = placement.replica(node, partition);
                    assert!(group.contains(replica));
                    assert_eq!((group.host(replica), placement.host(replica)), (node, node));
                    assert_eq!(placement.local(replica.partition()), partition);
                    assert_eq!(placement.replica_on(node, replica.partition()), Some(replica));
                    assert_eq!(placement.site_of(node), site);
                }
            }
        }
    }

    #[test]
    fn a_node_has_no_replica_of_another_site() {
        let placement = Placement::new(2, 4, 3);
        assert_eq!(placement.replica_on(2, 4), None);
        assert_eq!(placement.replica_on(3, 3), None);
        assert_eq!(placement.replica_on(3, 8), None, "there is no third site");
        assert_eq!(placement.replica_on(4, 5), Some(NodeId::replica(5, 1)));
    }
}
