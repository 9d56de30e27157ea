//! The links that a fault affects.

use serried_model::NodeId;

/// Some of the nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// All nodes at these sites.
    Sites(Vec<usize>),
    /// These nodes.
    Nodes(Vec<NodeId>),
    /// The replicas of all partitions on these machines.
    Members(Vec<usize>),
    /// All nodes that are not on that side.
    Except(Box<Side>),
}

impl Side {
    /// One node.
    pub fn node(node: NodeId) -> Side {
        Side::Nodes(vec![node])
    }

    /// One site.
    pub fn site(site: usize) -> Side {
        Side::Sites(vec![site])
    }

    /// The replicas of all partitions on some machines.
    pub fn replicas(members: impl IntoIterator<Item = usize>) -> Side {
        Side::Members(members.into_iter().collect())
    }

    /// All nodes that are not on this side.
    pub fn rest(self) -> Side {
        Side::Except(Box::new(self))
    }

    /// Whether `node`, which is at `site`, is on this side.
    pub fn contains(&self, node: NodeId, site: usize) -> bool {
        match self {
            Side::Sites(sites) => sites.contains(&site),
            Side::Nodes(nodes) => nodes.contains(&node),
            Side::Members(members) => !node.is_coordinator() && members.contains(&node.member()),
            Side::Except(side) => !side.contains(node, site),
        }
    }
}

/// The links from one side to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reach {
    /// The senders.
    pub from: Side,
    /// The receivers.
    pub to: Side,
    /// Whether the links back are included.
    pub both_ways: bool,
}

impl Reach {
    /// The links between two sides, in both directions.
    pub fn between(one: Side, other: Side) -> Reach {
        Reach { from: one, to: other, both_ways: true }
    }

    /// The links from one side to another, but not back.
    pub fn one_way(from: Side, to: Side) -> Reach {
        Reach { from, to, both_ways: false }
    }

    /// The links between one side and all other nodes, in both directions.
    pub fn around(side: Side) -> Reach {
        Reach::between(side.clone(), side.rest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_everyone_who_is_not_on_the_side() {
        let side = Side::replicas([1]);
        assert!(side.contains(NodeId(1), 0) && !side.contains(NodeId(0), 1));
        assert!(side.contains(NodeId::replica(3, 1), 0));
        assert!(!side.contains(NodeId(NodeId::FIRST_COORDINATOR + 1), 0));
        let rest = side.rest();
        assert!(!rest.contains(NodeId(1), 0) && rest.contains(NodeId(0), 1));
        assert!(Side::site(2).contains(NodeId(0), 2) && !Side::site(2).contains(NodeId(2), 0));
    }
}
