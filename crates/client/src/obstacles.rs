//! What a client knows of nodes that can't write their logs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serried_model::NodeId;
use serried_wire::LinkId;

/// The obstacles that nodes have reported to a client, each core its own.
#[derive(Default)]
pub(crate) struct Obstacles {
    known: Vec<(LinkId, NodeId, String)>,
    /// Whether there are any. It can be read without a lock.
    any: Arc<AtomicBool>,
}

impl Obstacles {
    /// Follows whether there are any.
    pub(crate) fn watch(&self) -> Arc<AtomicBool> {
        self.any.clone()
    }

    /// A node says over a link why it can't write, or that it can.
    pub(crate) fn set(&mut self, link: LinkId, node: NodeId, obstacle: Option<String>) {
        self.known.retain(|(other, ..)| *other != link);
        self.known.extend(obstacle.map(|obstacle| (link, node, obstacle)));
        self.any.store(!self.known.is_empty(), Ordering::Relaxed);
    }

    /// A link has ended.
    pub(crate) fn lost(&mut self, link: LinkId) {
        if !self.known.is_empty() {
            self.set(link, NodeId(0), None);
        }
    }

    /// If those of `nodes` that can write are no majority of them: who can't, and why.
    pub(crate) fn of_majority(&self, nodes: &Range<usize>) -> Option<String> {
        let known = || self.known.iter().filter(|(_, node, _)| nodes.contains(&node.member()));
        let mut who: Vec<NodeId> = known().map(|(_, node, _)| *node).collect();
        who.sort_unstable();
        who.dedup();
        let (_, _, why) = known().next()?;
        if nodes.len() - who.len() > nodes.len() / 2 {
            return None;
        }
        let who: Vec<String> = who.iter().map(NodeId::to_string).collect();
        Some(format!("{} can't write: {why}", who.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use serried_wire::{End, LinkOptions, Links};

    use super::*;

    #[test]
    fn writing_goes_on_while_a_majority_can_and_again_once_one_can() {
        let mut links = Links::new();
        let mut link = |member| {
            links.open(LinkOptions {
                end: End::Core { member, core: 0 },
                route: true,
                internal: false,
                delay: Default::default(),
                frame_bytes: 1 << 20,
                most_waiting_bytes: 1 << 20,
            })
        };
        let node = |member| NodeId::replica(0, member);
        let mut obstacles = Obstacles::default();
        let any = obstacles.watch();
        let (first, other, second) = (link(0), link(0), link(1));
        obstacles.set(first, node(0), Some("the disk is full".to_string()));
        obstacles.set(other, node(0), Some("the disk is full".to_string()));
        assert_eq!(obstacles.of_majority(&(0..3)), None, "two cores of one node");
        obstacles.set(second, node(1), Some("the disk is full".to_string()));
        let said = obstacles.of_majority(&(0..3)).unwrap();
        assert_eq!(said, format!("{}, {} can't write: the disk is full", node(0), node(1)));
        let third = link(2);
        obstacles.set(third, node(2), Some("the disk is full".to_string()));
        assert!(obstacles.of_majority(&(0..3)).is_some(), "nobody can");
        assert!(obstacles.of_majority(&(1..4)).is_some(), "one of this site can");
        assert_eq!(obstacles.of_majority(&(2..5)), None);
        obstacles.lost(third);
        obstacles.set(second, node(1), None);
        assert_eq!(obstacles.of_majority(&(0..3)), None);
        obstacles.lost(first);
        assert!(any.load(Ordering::Relaxed));
        obstacles.lost(other);
        assert!(!any.load(Ordering::Relaxed));
    }
}
