//! The links that a fault affects.

use serried_model::NodeId;

/// A node, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The node.
    pub id: NodeId,
    /// Its site in the geography.
    pub site: usize,
    /// The machine that a replica is on. A client is near it.
    pub machine: usize,
}

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

    /// Whether a node is on this side.
    pub fn contains(&self, node: &Placed) -> bool {
        match self {
            Side::Sites(sites) => sites.contains(&node.site),
            Side::Nodes(nodes) => nodes.contains(&node.id),
            Side::Members(members) => !node.id.is_coordinator() && members.contains(&node.machine),
            Side::Except(side) => !side.contains(node),
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
        let placed = |id, site, machine| Placed { id, site, machine };
        let (one, other) = (placed(NodeId(1), 0, 1), placed(NodeId(0), 1, 0));
        assert!(side.contains(&one) && !side.contains(&other));
        assert!(side.contains(&placed(NodeId::replica(3, 1), 0, 1)));
        assert!(!side.contains(&placed(NodeId::replica(3, 1), 0, 4)), "it is at another site");
        assert!(!side.contains(&placed(NodeId(NodeId::FIRST_COORDINATOR + 1), 0, 1)));
        let rest = side.rest();
        assert!(!rest.contains(&one) && rest.contains(&other));
        assert!(Side::site(1).contains(&other) && !Side::site(1).contains(&one));
    }
}
