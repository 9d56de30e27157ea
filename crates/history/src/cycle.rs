//! The smallest cycle of a graph.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::digraph::{Digraph, Edge, Label};

/// After this many steps the search settles for the smallest cycle that it has found.
const SEARCH_STEPS: u64 = 10_000_000;

/// Edges of a path, then the sums of their labels' weights: the first that differs decides.
type Cost = (u32, u32, u32);

/// The edges of a smallest cycle, of these one that weighs least, or `None` if the
/// graph has no cycle. If the graph's components are too large to search them all, it is a small one.
pub(crate) fn smallest<L: Label>(graph: &Digraph<L>) -> Option<Vec<Edge<L>>> {
    const LEAST: Cost = (2, 0, 0);
    let mut search = Search {
        graph,
        reached: vec![None; graph.node_count()],
        touched: Vec::new(),
        best: None,
        steps: 0,
    };
    for component in graph.components() {
        for start in component {
            let enough = match search.best {
                None => false,
                Some((cost, _)) => cost == LEAST || search.steps > SEARCH_STEPS,
            };
            if enough {
                return search.best.map(|(_, cycle)| cycle);
            }
            search.from(start);
        }
    }
    search.best.map(|(_, cycle)| cycle)
}

struct Search<'g, L> {
    graph: &'g Digraph<L>,
    /// The least cost of each node from the start, and the edge by which it was reached.
    reached: Vec<Option<(Cost, Edge<L>)>>,
    touched: Vec<u32>,
    best: Option<(Cost, Vec<Edge<L>>)>,
    steps: u64,
}

impl<L: Label> Search<'_, L> {
    /// Dijkstra's algorithm from one node back to itself, as far as it can improve on the best cycle.
    fn from(&mut self, start: u32) {
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
                if edge.to == start {
                    if self.best.as_ref().is_none_or(|(best, _)| cost < *best) {
                        self.best = Some((cost, self.path(start, edge)));
                    }
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

    /// The way from `start` to the end of `closing`, with each crossing made one edge.
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
