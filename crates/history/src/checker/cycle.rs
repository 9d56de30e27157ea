//! The smallest cycle of the graph, and what it says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::graph::{Edge, Graph};
use super::recovered::KeyHistory;
use super::transaction::Context;
use super::{Conflict, ConflictKind, Violation, ViolationKind};

/// After this many steps the search settles for the smallest cycle that it has found.
const SEARCH_STEPS: u64 = 10_000_000;

/// Edges of a path, then its anti-dependencies, then its read dependencies: the first decides.
type Cost = (u32, u32, u32);

/// The edges of a smallest cycle, those with the fewest anti-dependencies first, or `None` if the
/// graph has no cycle. If the graph's components are too large to search them all, it is a small one.
pub(super) fn smallest(graph: &Graph) -> Option<Vec<Edge>> {
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

struct Search<'g> {
    graph: &'g Graph,
    /// The least cost of each node from the start, and the edge by which it was reached.
    reached: Vec<Option<(Cost, Edge)>>,
    touched: Vec<u32>,
    best: Option<(Cost, Vec<Edge>)>,
    steps: u64,
}

impl Search<'_> {
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

    fn extend(&self, (edges, anti, reads): Cost, edge: Edge) -> Cost {
        if self.graph.is_crossing(edge.from) {
            return (edges, anti, reads);
        }
        match edge.kind {
            ConflictKind::WriteDependency => (edges + 1, anti, reads),
            ConflictKind::ReadDependency => (edges + 1, anti, reads + 1),
            ConflictKind::AntiDependency => (edges + 1, anti + 1, reads),
        }
    }

    /// The way from `start` to the end of `closing`, with each crossing made one edge.
    fn path(&self, start: u32, closing: Edge) -> Vec<Edge> {
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

/// Says what a cycle means.
pub(super) fn explain(
    context: &Context<'_>,
    keys: &[KeyHistory],
    cycle: &[Edge],
) -> Box<Violation> {
    let count = |kind| cycle.iter().filter(|edge| edge.kind == kind).count();
    let anti_dependencies = count(ConflictKind::AntiDependency);
    let kind = match (anti_dependencies, count(ConflictKind::ReadDependency)) {
        (0, 0) => ViolationKind::WriteCycle,
        (0, _) => ViolationKind::CircularInformationFlow,
        (1, _) => ViolationKind::SingleAntiDependency,
        _ => ViolationKind::AntiDependencyCycle,
    };
    let next = |at: usize| (at + 1) % cycle.len();
    let is_anti = |at: usize| cycle[at].kind == ConflictKind::AntiDependency;
    let adjacent = (0..cycle.len()).any(|at| is_anti(at) && is_anti(next(at)));
    let ruled_out = match kind {
        // Snapshot isolation allows a cycle only with two anti-dependencies in a row, as write skew
        // has them; a long fork has them apart.
        ViolationKind::AntiDependencyCycle if !adjacent => {
            ViolationKind::SingleAntiDependency.ruled_out()
        }
        kind => kind.ruled_out(),
    };
    let conflicts = cycle.iter().enumerate().map(|(at, edge)| {
        let key = &keys[edge.key as usize];
        let slot = edge.slot as usize;
        let installed = key.slots[slot].installed;
        let (before, after) = match edge.kind {
            ConflictKind::ReadDependency => (Some(installed), None),
            _ => {
                let before = slot.min(key.ordered).checked_sub(1);
                (before.map(|slot| key.slots[slot].installed), Some(installed))
            }
        };
        Conflict { from: at, to: next(at), kind: edge.kind, key: key.key, before, after }
    });
    Box::new(Violation {
        kind,
        key: None,
        transactions: cycle.iter().map(|edge| context.witness(edge.from)).collect(),
        conflicts: conflicts.collect(),
        reason: format!(
            "{} transactions, each of which has to come before the next, and the last before the \
             first",
            cycle.len()
        ),
        ruled_out,
    })
}
