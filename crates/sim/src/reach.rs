//! The links that a fault affects.

use serried_model::NodeId;

/// A node, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) node: NodeId,
    /// The machine that it is on, if it is a replica.
    pub(crate) machine: Option<usize>,
    /// Its site of the geography.
    pub(crate) site: usize,
}

/// Some of the nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// All nodes at these sites of the geography, clients included. If a keyspace has several sites, they have the same
    /// numbers.
    Sites(Vec<usize>),
    /// These nodes.
    Nodes(Vec<NodeId>),
    /// All replicas on these machines. They are numbered over all sites ([`crate::Configuration::machines`]).
    Machines(Vec<usize>),
    /// All nodes that are not on that side.
    Except(Box<Side>),
}

impl Side {
    /// One node.
    pub fn node(node: NodeId) -> Side {
        Side::Nodes(vec![node])
    }

    /// One site with its clients.
    pub fn site(site: usize) -> Side {
        Side::Sites(vec![site])
    }

    /// All replicas on some machines.
    pub fn replicas(machines: impl IntoIterator<Item = usize>) -> Side {
        Side::Machines(machines.into_iter().collect())
    }

    /// All nodes that are not on this side.
    pub fn rest(self) -> Side {
        Side::Except(Box::new(self))
    }

    /// Whether the node at `place` is on this side.
    pub(crate) fn contains(&self, place: &Place) -> bool {
        match self {
            Side::Sites(sites) => sites.contains(&place.site),
            Side::Nodes(nodes) => nodes.contains(&place.node),
            Side::Machines(machines) => {
                place.machine.is_some_and(|machine| machines.contains(&machine))
            }
            Side::Except(side) => !side.contains(place),
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
        let place = |node, machine, site| Place { node, machine, site };
        let (first, second) = (place(NodeId(0), Some(0), 1), place(NodeId(1), Some(1), 0));
        let client = place(NodeId(NodeId::FIRST_COORDINATOR + 1), None, 0);
        let side = Side::replicas([1]);
        assert!(side.contains(&second) && !side.contains(&first) && !side.contains(&client));
        assert!(side.contains(&place(NodeId::replica(3, 1), Some(1), 0)));
        assert!(!side.contains(&place(NodeId::replica(3, 1), Some(4), 1)), "it is at another site");
        let rest = side.rest();
        assert!(!rest.contains(&second) && rest.contains(&first) && rest.contains(&client));
        assert!(Side::site(1).contains(&first) && !Side::site(1).contains(&second));
        assert!(Side::site(0).contains(&client));
    }
}
