//! Causal convergence: one order of the writes for all processes.

use super::causes::Causes;
use super::facts::{Facts, Read};
use super::{Edges, Step};
use crate::digraph::Edge;

/// The arbitrations that all reads require, if they and the causal order have a cycle. No single read contradicts the
/// causal order.
pub(super) fn contradiction(facts: &Facts, causes: &Causes) -> Option<Edges> {
    let mut reads: Vec<&Read> = facts.reads.iter().filter(|read| read.writer.is_some()).collect();
    reads.sort_unstable_by_key(|read| (read.key, read.writer));
    let mut arbitrations = Vec::new();
    for of_one in reads.chunk_by(|left, right| (left.key, left.writer) == (right.key, right.writer))
    {
        let (key, Some(to)) = (of_one[0].key, of_one[0].writer) else { continue };
        for writers in &causes.writers[key as usize] {
            // Earlier writers of the chain come before the last one.
            let counts = of_one.iter().map(|read| causes.before.count(read.reader, writers.chain));
            let last = counts.max().and_then(|count| causes.last(writers, count));
            if let Some(from) = last
                && from != to
                && !causes.before.is_before(&causes.chains, from, to)
            {
                arbitrations.push(Edge { from, to, label: Step::arbitration(key, 1) });
            }
        }
    }
    let graph = causes.graph.clone().extended(0, arbitrations.clone());
    graph.topological_order().is_none().then_some(arbitrations)
}
