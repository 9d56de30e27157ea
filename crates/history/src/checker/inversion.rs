//! Contradictions between the order of transactions and real time.
//!
//! The real-time serialization graph (003 §2.2) has the conflicts, and an edge from every transaction to all that began
//! after it had ended. These are far too many to store. But if the conflicts alone have no cycle, a smallest cycle has
//! exactly one real-time edge. Assume that it had two, from `a` to `b` and from `c` to `d`. If `a` had ended before `d`
//! began, the edge from `a` to `d` makes a smaller cycle without `b` and `c`. Otherwise `d` began before `a` ended.
//! Then `c`, which had ended before `d` began, had also ended before `b` began, and the edge from `c` to `b` makes a
//! smaller cycle without `d` and `a`.
//!
//! So the graph has a cycle exactly if conflicts lead from a transaction to one that had ended before it began. One
//! pass over the transactions, from the last to the first, finds this in no more space than the conflicts take.
//! Crossings have no time of their own. A transaction without a known end has never ended.

use crate::cycle::smallest_path;
use crate::digraph::{Digraph, Edge, Label};

/// The end of a transaction that did not end, or whose end is uncertain.
pub(super) const NEVER: u32 = u32::MAX;

/// An inversion with at most this many conflicts is certainly the smallest, for any history. If all have more
/// conflicts, it hardly matters which one is shown.
const ROUNDS: usize = 16;

/// When a transaction began and ended, as positions of events in the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// 0 if it is not known when it began, because nothing ended before that position.
    pub(super) begin: u32,
    /// [`NEVER`] if it may take effect at any time after its beginning.
    pub(super) end: u32,
}

/// The conflicts that lead from a transaction to one that had ended before it began: as few as possible, or a few if
/// more than [`ROUNDS`] are needed. `None` if there are none: then some order of the transactions respects their
/// conflicts and real time.
///
/// The graph has no cycle, and `spans` has an entry for every node that is not a crossing.
pub(super) fn smallest<L: Label>(graph: &Digraph<L>, spans: &[Span]) -> Option<Vec<Edge<L>>> {
    let order = graph.topological_order().expect("a serializable history's graph with a cycle");
    let end = |node: u32| spans.get(node as usize).map_or(NEVER, |span| span.end);
    let ends: Vec<u32> = (0..graph.node_count() as u32).map(end).collect();
    let begin = |node: u32| spans[node as usize].begin;

    let mut earliest = ends.clone();
    for &node in order.iter().rev() {
        earliest[node as usize] = earliest_after(graph, &earliest, node);
    }
    let inverted = |earliest: &[u32]| -> Vec<u32> {
        let nodes = (0..).zip(spans).zip(earliest);
        nodes.filter(|((_, span), end)| **end < span.begin).map(|((node, _), _)| node).collect()
    };
    let mut starts = inverted(&earliest);
    if starts.is_empty() {
        return None;
    }

    let mut near = ends.clone();
    for _ in 0..ROUNDS {
        // A crossing adds no edge, so its successors are as near as itself.
        for &node in order.iter().rev().filter(|&&node| graph.is_crossing(node)) {
            near[node as usize] = earliest_after(graph, &near, node);
        }
        // In this order, a node is handled in each round before the nodes that it leads to.
        for &node in order.iter().filter(|&&node| !graph.is_crossing(node)) {
            near[node as usize] = earliest_after(graph, &near, node);
        }
        let nearest = inverted(&near);
        if !nearest.is_empty() {
            starts = nearest;
            break;
        }
    }
    smallest_path(
        graph,
        &starts,
        |start, node| ends[node as usize] < begin(start),
        |start, node| earliest[node as usize] < begin(start),
    )
}

/// The earliest time among a node and the nodes that its edges lead to.
fn earliest_after<L: Label>(graph: &Digraph<L>, times: &[u32], node: u32) -> u32 {
    let after = graph.edges_from(node).iter().map(|edge| times[edge.to as usize]);
    after.fold(times[node as usize], u32::min)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::cycle;

    /// Both weights of a label.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Weight(u32, u32);

    impl Label for Weight {
        fn weight(self) -> (u32, u32) {
            (self.0, self.1)
        }
    }

    /// Number of edges, and their weights.
    fn cost(edges: &[Edge<Weight>]) -> (usize, u32, u32) {
        edges.iter().fold((0, 0, 0), |(count, first, second), edge| {
            (count + 1, first + edge.label.0, second + edge.label.1)
        })
    }

    fn edge(from: u32, to: u32, label: Weight) -> Edge<Weight> {
        Edge { from, to, label }
    }

    fn weight(random: &mut Pcg64Mcg) -> Weight {
        [Weight(0, 0), Weight(0, 1), Weight(1, 0)][random.random_range(0..3)]
    }

    /// Random conflicts between nodes, consistent with a hidden order, with a crossing among them.
    fn conflicts(random: &mut Pcg64Mcg, shown: u32) -> Vec<Edge<Weight>> {
        let mut hidden: Vec<u32> = (0..shown).collect();
        for at in (1..hidden.len()).rev() {
            hidden.swap(at, random.random_range(0..=at));
        }
        let mut edges = Vec::new();
        for (at, &from) in hidden.iter().enumerate() {
            for &to in &hidden[at + 1..] {
                if random.random_range(0..shown) == 0 {
                    edges.push(edge(from, to, weight(random)));
                }
            }
        }
        let (middle, crossing) = (random.random_range(0..=hidden.len()), shown);
        for (at, &node) in hidden.iter().enumerate() {
            match random.random_range(0..6) {
                0 if at < middle => edges.push(edge(node, crossing, Weight(1, 0))),
                0 => edges.push(edge(crossing, node, Weight(1, 0))),
                _ => {}
            }
        }
        edges
    }

    /// Every node begins and ends at a position of its own, or never ends.
    fn spans(random: &mut Pcg64Mcg, shown: u32) -> Vec<Span> {
        let mut places: Vec<u32> = (1..=2 * shown).collect();
        let mut place = || places.swap_remove(random.random_range(0..places.len()));
        let pairs: Vec<(u32, u32)> = (0..shown).map(|_| (place(), place())).collect();
        let mut span = |(one, other): (u32, u32)| Span {
            begin: one.min(other),
            end: if random.random_range(0..5) == 0 { NEVER } else { one.max(other) },
        };
        pairs.into_iter().map(&mut span).collect()
    }

    #[test]
    fn an_inversion_is_a_smallest_cycle_of_the_full_real_time_graph() {
        let (mut found, mut absent, mut large) = (0, 0, 0);
        for seed in 0..20_000 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let shown = random.random_range(2..16);
            let (mut edges, spans) = (conflicts(&mut random, shown), spans(&mut random, shown));
            let (nodes, crossings) = (shown as usize, 1);
            let conflicts = Digraph::new(nodes, nodes + crossings, edges.clone());
            for (from, earlier) in (0..).zip(&spans) {
                for (to, later) in (0..).zip(&spans) {
                    if earlier.end < later.begin {
                        edges.push(edge(from, to, Weight(0, 0)));
                    }
                }
            }
            let drawn = Digraph::new(nodes, nodes + crossings, edges);
            let expected = cycle::smallest(&drawn).map(|cycle| cost(&cycle));
            let path = smallest(&conflicts, &spans);
            let cycle = path.as_ref().map(|path| {
                let (began, ended) = (path[0].from, path[path.len() - 1].to);
                assert!(spans[ended as usize].end < spans[began as usize].begin, "seed {seed}");
                assert!(path.windows(2).all(|pair| pair[0].to == pair[1].from), "seed {seed}");
                let (count, first, second) = cost(path);
                (count + 1, first, second)
            });
            assert_eq!(cycle, expected, "seed {seed}");
            match cycle {
                None => absent += 1,
                Some((count, ..)) => (found, large) = (found + 1, large + u32::from(count > 3)),
            }
        }
        assert!(found > 2_000 && absent > 2_000 && large > 20, "{found}, {absent}, {large}");
    }
}
