//! The order in which each process ran its transactions, as edges of the graph.
//!
//! A process has at most one open transaction, so its transactions have one order. A committed transaction comes before
//! all later ones of its process that took effect. A transaction of unknown outcome may take effect at any later time,
//! so it comes before none of them.
//!
//! Every committed transaction gets one crossing, which stands for all that come after it in its process. With `c1` as
//! the crossing of the first transaction `t1`, and so on, a process with `t1`, `t2` and `t3` has these edges:
//!
//! ```text
//! t1 ─> c1 ─> c2      c1 ─> t2
//! t2 ─> c2 ─> c3      c2 ─> t3
//! ```
//!
//! A path through crossings counts as one edge. So in a smallest cycle, one edge leads from a transaction to any later
//! one of its process, however many are in between.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::transaction::Context;
use crate::digraph::{Digraph, Edge, Label};

/// Adds the order of each process to the graph, in edges with this label. `included` are the transactions that took
/// effect.
pub(super) fn with_order<L: Label>(
    context: &Context<'_>,
    graph: Digraph<L>,
    included: &[bool],
    label: L,
) -> Digraph<L> {
    let first = graph.node_count() as u32;
    let mut next = first;
    let mut edges = Vec::new();
    let mut latest: HashMap<u64, u32, FixedState> = HashMap::default();
    for (at, transaction) in (0..).zip(&context.transactions) {
        if !included[at as usize] {
            continue;
        }
        let before = latest.get(&transaction.process()).copied();
        edges.extend(before.map(|from| Edge { from, to: at, label }));
        if transaction.is_committed() {
            edges.extend(before.map(|from| Edge { from, to: next, label }));
            edges.push(Edge { from: at, to: next, label });
            latest.insert(transaction.process(), next);
            next += 1;
        }
    }
    graph.extended((next - first) as usize, edges)
}
