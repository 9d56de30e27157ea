//! Which process counts as each of the other nodes, while it has connections here.
//!
//! Two processes of one node must not both take part, so the second one is turned away for as long as the first one
//! answers. A process whose machine has died leaves connections that are never closed. Therefore a newcomer is not
//! turned away before the present process was sent a ping over all of its connections. If no byte comes on any of these
//! within one heartbeat, and it opens no other, the connections are cut and the newcomer takes its place. Whether a
//! newcomer has the data that counts is judged separately, and earlier (`server/replaced.rs`), so that a replaced
//! process learns of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serried_model::NodeId;
use serried_wire::{Cut, Endpoint, Kind, LinkId};

use crate::side::NodeSide;

/// How often the answer to a ping is looked for.
const LOOKS: u32 = 20;

/// The processes that pass for the other nodes.
#[derive(Default)]
pub(crate) struct Neighbours(Mutex<BTreeMap<NodeId, Neighbour>>);

struct Neighbour {
    incarnation: u64,
    connections: Vec<Connected>,
}

/// A connection of a node, and the core that has it.
#[derive(Clone)]
struct Connected(Arc<Endpoint<NodeSide>>, LinkId);

impl Connected {
    fn is(&self, other: &Connected) -> bool {
        Arc::ptr_eq(&self.0, &other.0) && self.1 == other.1
    }

    /// The signs of its other end; `None` if it has ended.
    fn signs(&self) -> Option<u64> {
        self.0.look()?.links.signs(self.1)
    }

    fn ping(&self) {
        if let Some(mut core) = self.0.look() {
            core.links.push_frame(self.1, Kind::Ping, &[]);
        }
    }

    fn cut(&self) {
        if let Some(mut core) = self.0.look() {
            core.links.cut(self.1, Cut::Replaced);
        }
    }
}

impl Neighbours {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Neighbour>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another process than this one passes for `node` and answers within `patience`. One that does not answer
    /// is removed.
    pub(crate) async fn is_taken(
        &self,
        node: NodeId,
        incarnation: u64,
        patience: Duration,
    ) -> bool {
        let present = match self.lock().get(&node) {
            Some(present) if present.incarnation != incarnation => present.connections.clone(),
            _ => return false,
        };
        let before: Vec<_> = present.iter().map(Connected::signs).collect();
        present.iter().for_each(Connected::ping);
        for _ in 0..LOOKS {
            tokio::time::sleep(patience / LOOKS).await;
            let now: Vec<_> = present.iter().map(Connected::signs).collect();
            if now.iter().zip(&before).any(|(now, before)| now > before) {
                return true;
            }
            if now.iter().all(Option::is_none) {
                break;
            }
        }
        !self.remove(node, incarnation, &present)
    }

    /// Removes the process that had these connections and did not answer. Returns whether no other process than this
    /// one is there now.
    fn remove(&self, node: NodeId, incarnation: u64, silent: &[Connected]) -> bool {
        let mut neighbours = self.lock();
        let Some(present) = neighbours.get(&node) else { return true };
        if present.incarnation == incarnation {
            return true;
        }
        let known = |one: &Connected| silent.iter().any(|other| one.is(other));
        if !present.connections.iter().all(known) {
            return false;
        }
        present.connections.iter().for_each(Connected::cut);
        neighbours.remove(&node);
        true
    }

    /// Notes a connection of a process that passes for `node`. Returns whether no other one does.
    fn enter(&self, node: NodeId, incarnation: u64, connected: Connected) -> bool {
        let mut neighbours = self.lock();
        let present = neighbours.entry(node);
        let present = present.or_insert(Neighbour { incarnation, connections: Vec::new() });
        let same = present.incarnation == incarnation;
        if same {
            present.connections.push(connected);
        }
        same
    }

    fn leave(&self, node: NodeId, connected: &Connected) {
        let mut neighbours = self.lock();
        if let Some(present) = neighbours.get_mut(&node) {
            present.connections.retain(|other| !other.is(connected));
            if present.connections.is_empty() {
                neighbours.remove(&node);
            }
        }
    }
}

/// Notes which process passes for a node, for as long as a connection lasts.
pub(crate) struct Present {
    neighbours: Arc<Neighbours>,
    node: NodeId,
    connected: Connected,
}

impl Present {
    /// `None` if another process passes for the node.
    pub(crate) fn new(
        neighbours: &Arc<Neighbours>,
        node: NodeId,
        incarnation: u64,
        (endpoint, link): (&Arc<Endpoint<NodeSide>>, LinkId),
    ) -> Option<Present> {
        let connected = Connected(endpoint.clone(), link);
        let entered = neighbours.enter(node, incarnation, connected.clone());
        entered.then(|| Present { neighbours: neighbours.clone(), node, connected })
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.neighbours.leave(self.node, &self.connected);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use serried_actor::Random;
    use serried_wire::{End, LinkOptions, TransportOptions};

    use super::*;

    const NODE: NodeId = NodeId(1);
    const OLD: u64 = 7;
    const NEW: u64 = 8;

    struct Here {
        endpoint: Arc<Endpoint<NodeSide>>,
        neighbours: Arc<Neighbours>,
    }

    impl Here {
        fn new() -> Here {
            let (transport, random) = (TransportOptions::default(), Random::seed_from_u64(1));
            let endpoint = Arc::new(Endpoint::new(NodeId(0), transport, random, NodeSide::new(0)));
            Here { endpoint, neighbours: Arc::default() }
        }

        fn open(&self) -> LinkId {
            self.endpoint.lock().links.open(LinkOptions {
                end: End::Core { member: NODE.member(), core: 0 },
                route: false,
                internal: false,
                delay: Duration::ZERO,
                frame_bytes: 1000,
                most_waiting_bytes: 1000,
            })
        }

        fn enter(&self, incarnation: u64, link: LinkId) -> Option<Present> {
            Present::new(&self.neighbours, NODE, incarnation, (&self.endpoint, link))
        }

        /// Whether the node is taken, if `meanwhile` happens while the present process has time to answer.
        async fn is_taken(&self, incarnation: u64, meanwhile: impl FnOnce()) -> bool {
            let asked = self.neighbours.is_taken(NODE, incarnation, Duration::ZERO);
            tokio::join!(asked, async { meanwhile() }).0
        }
    }

    #[tokio::test]
    async fn two_processes_never_pass_for_one_node() {
        let here = Here::new();
        let first = here.enter(OLD, here.open()).unwrap();
        let second = here.enter(OLD, here.open()).unwrap();
        assert!(here.enter(NEW, here.open()).is_none());
        drop(first);
        assert!(here.enter(NEW, here.open()).is_none(), "it has another connection");
        drop(second);
        assert!(here.enter(NEW, here.open()).is_some());
    }

    #[tokio::test]
    async fn a_process_that_does_not_answer_gives_way_and_is_cut() {
        let here = Here::new();
        let links = [here.open(), here.open()];
        let _present = links.map(|link| here.enter(OLD, link).unwrap());
        assert!(!here.is_taken(OLD, || {}).await, "that is itself");
        assert!(here.is_taken(NEW, || here.endpoint.lock().links.heard(links[1], 0)).await);
        assert!(!here.is_taken(NEW, || {}).await);
        let given_up = links.map(|link| here.endpoint.lock().links.given_up(link));
        assert_eq!(given_up, [Some(Cut::Replaced); 2]);
        assert!(here.enter(NEW, here.open()).is_some());
    }

    #[tokio::test]
    async fn a_process_that_opens_another_connection_meanwhile_stays() {
        let here = Here::new();
        let link = here.open();
        let _present = here.enter(OLD, link).unwrap();
        let mut another = None;
        assert!(here.is_taken(NEW, || another = here.enter(OLD, here.open())).await);
        assert!(another.is_some() && here.enter(NEW, here.open()).is_none());
        assert_eq!(here.endpoint.lock().links.given_up(link), None);
    }
}
