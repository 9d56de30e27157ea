//! Smallest cycles and smallest paths of a graph.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::digraph::{Digraph, Edge, Label};

/// After this many steps the search returns the smallest cycle found so far.
const SEARCH_STEPS: u64 = 10_000_000;

/// The number of edges of a path, then the sums of their labels' weights. Costs are compared in this order.
type Cost = (u32, u32, u32);

/// The edges of a smallest cycle, or `None` if the graph has no cycle. Among cycles of the smallest length, the one
/// with the least weight is returned. If the graph's components are too large for a complete search, the result is a
/// small cycle, but perhaps not the smallest.
pub(crate) fn smallest<L: Label>(graph: &Digraph<L>) -> Option<Vec<Edge<L>>> {
    const LEAST: Cost = (2, 0, 0);
    let mut search = Search::new(graph);
    for component in graph.components() {
        for start in component {
            if search.is_over(LEAST) {
                return search.into_best();
            }
            search.from(start, |node| node == start, |_| true);
        }
    }
    search.into_best()
}

/// The edges of a smallest path from one of `starts` to a node where it may end, in a graph without cycles. Returns
/// `None` if there is no such path. Among paths of the smallest length, the one with the least weight is returned. If a
/// complete search would take too long, the result is a small path, but perhaps not the smallest.
///
/// `ends` and `leads` take a start and another node. `ends` returns whether a path from the start may end at the node.
/// If not, `leads` returns whether the path could continue from the node to one where it may end.
pub(crate) fn smallest_path<L: Label>(
    graph: &Digraph<L>,
    starts: &[u32],
    ends: impl Fn(u32, u32) -> bool,
    leads: impl Fn(u32, u32) -> bool,
) -> Option<Vec<Edge<L>>> {
    const LEAST: Cost = (1, 0, 0);
    let mut search = Search::new(graph);
    for &start in starts {
        if search.is_over(LEAST) {
            break;
        }
        search.from(start, |node| ends(start, node), |node| leads(start, node));
    }
    search.into_best()
}

struct Search<'g, L> {
    graph: &'g Digraph<L>,
    /// The least cost of each node from the start, and the edge by which it was reached.
    reached: Vec<Option<(Cost, Edge<L>)>>,
    touched: Vec<u32>,
    best: Option<(Cost, Vec<Edge<L>>)>,
    steps: u64,
}

impl<'g, L: Label> Search<'g, L> {
    fn new(graph: &'g Digraph<L>) -> Self {
        let reached = vec![None; graph.node_count()];
        Search { graph, reached, touched: Vec::new(), best: None, steps: 0 }
    }

    /// Whether the best path found so far is a smallest one, or further search takes too long.
    fn is_over(&self, least: Cost) -> bool {
        let is_good = |(cost, _): &(Cost, _)| *cost == least || self.steps > SEARCH_STEPS;
        self.best.as_ref().is_some_and(is_good)
    }

    fn into_best(self) -> Option<Vec<Edge<L>>> {
        self.best.map(|(_, path)| path)
    }

    /// Dijkstra's algorithm from one node to where a path may end, over nodes that can lead there. It stops where it
    /// can't improve on the best path.
    fn from(&mut self, start: u32, ends: impl Fn(u32) -> bool, leads: impl Fn(u32) -> bool) {
        let mut queue = BinaryHeap::from([Reverse(((0, 0, 0), start))]);
        while let Some(Reverse((cost, node))) = queue.pop() {
            if self.best.as_ref().is_some_and(|(best, _)| cost >= *best) {
                break;
            }
            if node != start && self.reached[node as usize].is_some_and(|(least, _)| least < cost) {
                continue;
            }
            for &edge in self.graph.edges_from(node) {
                self.steps += 1;
                let cost = self.extend(cost, edge);
                if ends(edge.to) {
                    if self.best.as_ref().is_none_or(|(best, _)| cost < *best) {
                        self.best = Some((cost, self.path(start, edge)));
                    }
                    continue;
                }
                if !leads(edge.to) {
                    continue;
                }
                let reached = &mut self.reached[edge.to as usize];
                if reached.is_none_or(|(least, _)| cost < least) {
                    if reached.is_none() {
                        self.touched.push(edge.to);
                    }
                    *reached = Some((cost, edge));
                    queue.push(Reverse((cost, edge.to)));
                }
            }
        }
        for node in self.touched.drain(..) {
            self.reached[node as usize] = None;
        }
    }

    fn extend(&self, (edges, first, second): Cost, edge: Edge<L>) -> Cost {
        if self.graph.is_crossing(edge.from) {
            return (edges, first, second);
        }
        let weight = edge.label.weight();
        (edges + 1, first + weight.0, second + weight.1)
    }

    /// The path from `start` to the end of `closing`. The edges through crossings are merged into one.
    fn path(&self, start: u32, closing: Edge<L>) -> Vec<Edge<L>> {
        let mut path = vec![closing];
        let mut node = closing.from;
        while node != start {
            let (_, edge) = self.reached[node as usize].expect("a path through an unreached node");
            match path.last_mut() {
                Some(after) if self.graph.is_crossing(node) => after.from = edge.from,
                _ => path.push(edge),
            }
            node = edge.from;
        }
        path.reverse();
        path
    }
}
