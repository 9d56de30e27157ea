//! The direct serialization graph (001 Definition A.1.4).

use super::ConflictKind;
use super::recovered::KeyHistory;
use crate::digraph::{Digraph, Edge, Label};

/// Why one transaction comes before another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Dependency {
    pub(super) kind: ConflictKind,
    /// Index into the recovered keys. 0 for the order of a process.
    pub(super) key: u32,
    /// The slot that `to` wrote. For a read dependency, the slot that it read. 0 for the order of a process.
    pub(super) slot: u32,
}

impl Dependency {
    /// The order of a process.
    pub(super) const PROCESS_ORDER: Dependency =
        Dependency { kind: ConflictKind::ProcessOrder, key: 0, slot: 0 };
}

impl Label for Dependency {
    /// Cycles with few anti-dependencies rule out more guarantees. Among these, cycles with few read dependencies rule
    /// out more.
    fn weight(self) -> (u32, u32) {
        match self.kind {
            ConflictKind::WriteDependency | ConflictKind::ProcessOrder => (0, 0),
            ConflictKind::ReadDependency => (0, 1),
            ConflictKind::AntiDependency | ConflictKind::Arbitration => (1, 0),
        }
    }
}

/// Transactions as nodes, and their conflicts as edges.
///
/// A key may have many readers of its last known version, and many later appends in an unknown order. Each of these
/// readers comes before each of these appends. Such a key gets one crossing. An edge into it and an edge out of it
/// together are one anti-dependency.
pub(super) fn graph(transactions: usize, keys: &[KeyHistory]) -> Digraph<Dependency> {
    let mut builder = Builder { nodes: transactions, edges: Vec::new() };
    for (at, key) in (0..).zip(keys) {
        builder.add_ordered(at, key);
        builder.add_unordered(at, key);
    }
    let mut edges = builder.edges;
    edges.sort_unstable();
    edges.dedup_by_key(|edge| (edge.from, edge.to, edge.label.kind));
    Digraph::new(transactions, builder.nodes, edges)
}

struct Builder {
    nodes: usize,
    edges: Vec<Edge<Dependency>>,
}

impl Builder {
    fn add(&mut self, from: u32, to: u32, kind: ConflictKind, key: u32, slot: usize) {
        if from != to {
            let label = Dependency { kind, key, slot: slot as u32 };
            self.edges.push(Edge { from, to, label });
        }
    }

    /// The edges between versions whose order is known, and their readers.
    fn add_ordered(&mut self, at: u32, key: &KeyHistory) {
        let slots = &key.slots[..key.ordered];
        for (slot, pair) in (1..).zip(slots.windows(2)) {
            let (from, to) = (pair[0].transaction, pair[1].transaction);
            self.add(from, to, ConflictKind::WriteDependency, at, slot);
        }
        for reader in &key.readers {
            let latest = reader.latest as usize;
            if let Some(read) = (reader.earliest as usize).checked_sub(1) {
                let writer = slots[read].transaction;
                self.add(writer, reader.transaction, ConflictKind::ReadDependency, at, read);
            }
            if let Some(next) = slots.get(latest) {
                let kind = ConflictKind::AntiDependency;
                self.add(reader.transaction, next.transaction, kind, at, latest);
            }
        }
    }

    /// The edges to the last versions, whose order is not known.
    fn add_unordered(&mut self, at: u32, key: &KeyHistory) {
        let mut later: Vec<(u32, usize)> = (key.ordered..key.slots.len())
            .map(|slot| (key.slots[slot].transaction, slot))
            .collect();
        if later.is_empty() {
            return;
        }
        later.sort_unstable();
        later.dedup_by_key(|&mut (transaction, _)| transaction);
        if let Some(last) = key.ordered.checked_sub(1) {
            for &(writer, slot) in &later {
                let last = key.slots[last].transaction;
                self.add(last, writer, ConflictKind::WriteDependency, at, slot);
            }
        }

        let is_later = |reader: &u32| {
            later.binary_search_by_key(reader, |&(transaction, _)| transaction).is_ok()
        };
        let readers = key.readers.iter().filter(|reader| reader.latest as usize == key.ordered);
        let (updaters, readers): (Vec<u32>, Vec<u32>) =
            readers.map(|reader| reader.transaction).partition(is_later);
        // Two transactions that both read the last known version and replaced it already form a cycle. Edges of further
        // ones are not needed.
        let direct = readers.iter().take(usize::from(readers.len() == 1));
        for &reader in updaters.iter().take(2).chain(direct) {
            for &(writer, slot) in &later {
                self.add(reader, writer, ConflictKind::AntiDependency, at, slot);
            }
        }
        if readers.len() > 1 {
            let crossing = self.nodes as u32;
            self.nodes += 1;
            for &reader in &readers {
                self.add(reader, crossing, ConflictKind::AntiDependency, at, key.ordered);
            }
            for &(writer, slot) in &later {
                self.add(crossing, writer, ConflictKind::AntiDependency, at, slot);
            }
        }
    }
}
