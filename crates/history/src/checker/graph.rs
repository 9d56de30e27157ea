//! The direct serialization graph (001 Definition A.1.4).

use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;

use super::ConflictKind;
use super::recovered::KeyHistory;

/// `from` comes before `to`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: ConflictKind,
    /// Index into the recovered keys.
    pub(super) key: u32,
    /// The slot that `to` wrote, or for a read dependency the slot that it read.
    pub(super) slot: u32,
}

/// Transactions as nodes, and their conflicts as edges, sorted by origin.
///
/// A key may have many last readers and many later appends whose order nobody knows; each of the
/// former comes before each of the latter. Such a key gets one *crossing*: a node of its own between
/// them, so that the graph stays as small as the history. An edge into a crossing and one out of it
/// are together one anti-dependency.
pub(super) struct Graph {
    transactions: usize,
    nodes: usize,
    edges: Vec<Edge>,
    /// Where each node's edges begin, and one more for the end.
    starts: Vec<u32>,
}

impl Graph {
    pub(super) fn new(transactions: usize, keys: &[KeyHistory]) -> Graph {
        let mut graph =
            Graph { transactions, nodes: transactions, edges: Vec::new(), starts: Vec::new() };
        for (at, key) in (0..).zip(keys) {
            graph.add_ordered(at, key);
            graph.add_unordered(at, key);
        }
        graph.edges.sort_unstable();
        graph.edges.dedup_by_key(|edge| (edge.from, edge.to, edge.kind));
        graph.starts = vec![0; graph.nodes + 1];
        for edge in &graph.edges {
            graph.starts[edge.from as usize + 1] += 1;
        }
        for node in 0..graph.nodes {
            graph.starts[node + 1] += graph.starts[node];
        }
        graph
    }

    pub(super) fn edge_count(&self) -> usize {
        self.edges.len()
    }

    pub(super) fn node_count(&self) -> usize {
        self.nodes
    }

    /// Whether a node stands for no transaction.
    pub(super) fn is_crossing(&self, node: u32) -> bool {
        node as usize >= self.transactions
    }

    pub(super) fn edges_from(&self, node: u32) -> &[Edge] {
        let [start, end] = [node, node + 1].map(|node| self.starts[node as usize] as usize);
        &self.edges[start..end]
    }

    /// The strongly connected components that hold a cycle: their transactions in order, and the
    /// components by their first transaction.
    pub(super) fn components(&self) -> Vec<Vec<u32>> {
        let mut graph = DiGraph::<(), (), u32>::with_capacity(self.nodes, self.edges.len());
        for _ in 0..self.nodes {
            graph.add_node(());
        }
        for edge in &self.edges {
            graph.add_edge(edge.from.into(), edge.to.into(), ());
        }
        // Kosaraju's algorithm rather than Tarjan's, because petgraph's Tarjan is recursive: a
        // history of a hundred thousand transactions in a row would overflow the stack.
        let mut components: Vec<Vec<u32>> = kosaraju_scc(&graph)
            .into_iter()
            .filter(|component| component.len() > 1)
            .map(|component| {
                let nodes = component.into_iter().map(|node| node.index() as u32);
                let mut members: Vec<u32> = nodes.filter(|&node| !self.is_crossing(node)).collect();
                members.sort_unstable();
                members
            })
            .collect();
        components.sort_unstable();
        components
    }

    fn add(&mut self, from: u32, to: u32, kind: ConflictKind, key: u32, slot: usize) {
        if from != to {
            self.edges.push(Edge { from, to, kind, key, slot: slot as u32 });
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
            let visible = reader.visible as usize;
            if let Some(read) = visible.checked_sub(1) {
                let writer = slots[read].transaction;
                self.add(writer, reader.transaction, ConflictKind::ReadDependency, at, read);
            }
            if let Some(next) = slots.get(visible) {
                let kind = ConflictKind::AntiDependency;
                self.add(reader.transaction, next.transaction, kind, at, visible);
            }
        }
    }

    /// The edges to the versions that come after all others in an order that nobody knows.
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
        let readers = key.readers.iter().filter(|reader| reader.visible as usize == key.ordered);
        let (updaters, readers): (Vec<u32>, Vec<u32>) =
            readers.map(|reader| reader.transaction).partition(is_later);
        // Two transactions that both read the last known version and both replaced it are a cycle
        // already; the edges of any further ones are not needed to see that.
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
