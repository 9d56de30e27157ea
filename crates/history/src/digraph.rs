//! Precedence graphs. Their size is proportional to that of the history.

use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::DiGraph;

/// Why one node comes before another.
pub(crate) trait Label: Copy + Ord {
    /// Of two cycles with equally many edges, the one with the smaller sum of weights is shown.
    fn weight(self) -> (u32, u32);
}

/// `from` comes before `to`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge<L> {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) label: L,
}

/// Edges sorted by origin.
///
/// If each of `m` nodes comes before each of `n` others, drawing every edge takes `m * n` edges. Instead, a *crossing*
/// stands between them: an additional node, which is not shown. So the graph is no larger than the history. A path into
/// crossings, through them and out of them counts as one edge, with the label of its last one.
#[derive(Clone)]
pub(crate) struct Digraph<L> {
    shown: usize,
    nodes: usize,
    edges: Vec<Edge<L>>,
    /// The index of each node's first edge, and the number of edges at the end.
    starts: Vec<u32>,
}

impl<L: Label> Digraph<L> {
    /// Nodes from `shown` on are crossings.
    pub(crate) fn new(shown: usize, nodes: usize, mut edges: Vec<Edge<L>>) -> Self {
        edges.sort_unstable();
        let mut starts = vec![0; nodes + 1];
        for edge in &edges {
            starts[edge.from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        Digraph { shown, nodes, edges, starts }
    }

    /// The graph with further edges. They may use `crossings` new nodes, which are numbered after those that are there.
    pub(crate) fn extended(self, crossings: usize, further: Vec<Edge<L>>) -> Self {
        let mut edges = self.edges;
        edges.extend(further);
        Digraph::new(self.shown, self.nodes + crossings, edges)
    }

    pub(crate) fn edge_count(&self) -> usize {
        self.edges.len()
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes
    }

    pub(crate) fn is_crossing(&self, node: u32) -> bool {
        node as usize >= self.shown
    }

    pub(crate) fn edges_from(&self, node: u32) -> &[Edge<L>] {
        let [start, end] = [node, node + 1].map(|node| self.starts[node as usize] as usize);
        &self.edges[start..end]
    }

    /// The strongly connected components that contain a cycle. Each lists its nodes in order, without crossings. The
    /// components are sorted by their first node.
    pub(crate) fn components(&self) -> Vec<Vec<u32>> {
        // Kosaraju's algorithm rather than Tarjan's, because petgraph's Tarjan is recursive: a
        // history of a hundred thousand transactions in a row would overflow the stack.
        let mut components: Vec<Vec<u32>> = kosaraju_scc(&self.shape())
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

    /// All nodes in an order in which every edge leads forward, or `None` if the graph has a cycle.
    pub(crate) fn topological_order(&self) -> Option<Vec<u32>> {
        let order = toposort(&self.shape(), None).ok()?;
        Some(order.into_iter().map(|node| node.index() as u32).collect())
    }

    /// The graph without labels, in petgraph's form.
    fn shape(&self) -> DiGraph<(), (), u32> {
        let mut graph = DiGraph::with_capacity(self.nodes, self.edges.len());
        for _ in 0..self.nodes {
            graph.add_node(());
        }
        for edge in &self.edges {
            graph.add_edge(edge.from.into(), edge.to.into(), ());
        }
        graph
    }
}
