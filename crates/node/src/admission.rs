//! How many connections a node accepts at a time.
//!
//! Clients, each of the other nodes, and those that have not introduced themselves have bounds of their own. A node that has as
//! many clients as it may therefore still admits the other nodes. A connection beyond its bound is turned away with the advice to try again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serried_model::NodeId;

/// How many may not have introduced themselves yet.
const MOST_STRANGERS: usize = 1024;
/// How many connections another node may have: several for each of its cores.
const MOST_OF_A_NODE: usize = 4096;

/// Whose connections are counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Sort {
    /// Those that have not introduced themselves.
    Stranger,
    Client,
    Node(NodeId),
}

impl Sort {
    /// That of a node or a client.
    pub(crate) fn of(node: NodeId) -> Sort {
        if node.is_coordinator() { Sort::Client } else { Sort::Node(node) }
    }
}

/// The connections that others have opened.
#[derive(Default)]
pub(crate) struct Admission {
    clients: usize,
    counts: Mutex<BTreeMap<Sort, usize>>,
}

impl Admission {
    /// That of a node which may have so many connections to clients.
    pub(crate) fn new(clients: usize) -> Admission {
        Admission { clients, counts: Mutex::default() }
    }

    /// How many connections of a sort there may be.
    pub(crate) fn most(&self, sort: Sort) -> usize {
        match sort {
            Sort::Stranger => MOST_STRANGERS,
            Sort::Client => self.clients,
            Sort::Node(_) => MOST_OF_A_NODE,
        }
    }

    /// Counts one more connection for as long as it lasts; `None` if there are as many as there may be.
    pub(crate) fn admit(self: &Arc<Self>, sort: Sort) -> Option<Admitted> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(sort).or_default();
        if *count >= self.most(sort) {
            return None;
        }
        *count += 1;
        Some(Admitted(self.clone(), sort))
    }
}

/// A connection that is counted.
pub(crate) struct Admitted(Arc<Admission>, Sort);

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(self.1).or_default() -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_full_of_clients_or_strangers_admits_the_others() {
        let admission = Arc::new(Admission::new(2));
        let client = Sort::of(NodeId(NodeId::FIRST_COORDINATOR));
        let node = Sort::of(NodeId(1));
        let mut admitted: Vec<_> = (0..2).map(|_| admission.admit(client).unwrap()).collect();
        assert!(admission.admit(client).is_none());
        let strangers: Vec<_> =
            (0..MOST_STRANGERS).map(|_| admission.admit(Sort::Stranger)).collect();
        assert!(strangers.iter().all(Option::is_some) && admission.admit(Sort::Stranger).is_none());
        assert!(admission.admit(node).is_some());
        admitted.pop();
        assert!(admission.admit(client).is_some());
    }

    #[test]
    fn a_node_has_a_bound_of_its_own_whatever_the_others_do() {
        let admission = Arc::new(Admission::new(2));
        let [one, other] = [1, 2].map(|node| Sort::of(NodeId(node)));
        let mut admitted: Vec<_> =
            (0..MOST_OF_A_NODE).map(|_| admission.admit(one).unwrap()).collect();
        assert!(admission.admit(one).is_none());
        assert!(admission.admit(other).is_some());
        admitted.pop();
        assert!(admission.admit(one).is_some());
    }
}
