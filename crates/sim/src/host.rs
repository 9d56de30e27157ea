//! The cores of one machine that all nodes run on.

use std::collections::{BTreeSet, VecDeque};

/// Nodes that have something to do take turns, one event each, in the order in which they asked.
pub(crate) struct SharedCores {
    cores: usize,
    busy: usize,
    waiting: VecDeque<u32>,
    /// The nodes in `waiting`.
    asked: BTreeSet<u32>,
}

impl SharedCores {
    pub(crate) fn new(cores: usize) -> SharedCores {
        assert!(cores > 0, "a machine without a core serves nothing");
        SharedCores { cores, busy: 0, waiting: VecDeque::new(), asked: BTreeSet::new() }
    }

    /// Whether a node may be served at once: a core is free, and no other node waits for it.
    pub(crate) fn is_free(&self) -> bool {
        self.busy < self.cores && self.waiting.is_empty()
    }

    /// A node asks for a turn.
    pub(crate) fn ask(&mut self, node: u32) {
        if self.asked.insert(node) {
            self.waiting.push_back(node);
        }
    }

    /// The node whose turn it is, if a core is free.
    pub(crate) fn next_turn(&mut self) -> Option<u32> {
        if self.busy == self.cores {
            return None;
        }
        let node = self.waiting.pop_front()?;
        self.asked.remove(&node);
        Some(node)
    }

    /// A core begins to serve an event.
    pub(crate) fn begin(&mut self) {
        self.busy += 1;
    }

    /// A core is free again.
    pub(crate) fn end(&mut self) {
        self.busy -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_take_turns_in_the_order_in_which_they_asked() {
        let mut cores = SharedCores::new(1);
        assert!(cores.is_free());
        cores.begin();
        cores.ask(3);
        cores.ask(1);
        cores.ask(3);
        assert_eq!(cores.next_turn(), None);
        cores.end();
        assert!(!cores.is_free(), "others wait");
        assert_eq!(cores.next_turn(), Some(3));
        cores.begin();
        cores.ask(3);
        assert_eq!(cores.next_turn(), None);
        cores.end();
        assert_eq!(
            (cores.next_turn(), cores.next_turn(), cores.next_turn()),
            (Some(1), Some(3), None)
        );
        assert!(cores.is_free());
    }
}
