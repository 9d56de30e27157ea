//! Explanations of violations of causality.

use super::super::transaction::Context;
use super::super::{Conflict, ConflictKind, Installed, Violation, ViolationKind, process};
use super::facts::{Facts, Read};
use super::{Edges, Step};
use crate::MicroOperation;
use crate::cycle::{smallest, smallest_path};
use crate::digraph::{Digraph, Edge};

pub(super) struct Explainer<'e, 'a> {
    context: &'e Context<'a>,
    facts: &'e Facts,
    /// The causal order, with an edge from each transaction to all later ones of its process.
    graph: Digraph<Step>,
}

/// An arbitration, and the path from its first transaction to the reader that it follows from.
struct Argument {
    arbitration: Edge<Step>,
    path: Edges,
}

impl Argument {
    fn reader(&self) -> u32 {
        self.path[self.path.len() - 1].to
    }
}

impl<'e, 'a> Explainer<'e, 'a> {
    pub(super) fn new(context: &'e Context<'a>, facts: &'e Facts) -> Self {
        let reads = facts.reads_from();
        let edges = reads.map(|(from, to, key)| Edge { from, to, label: Step::read(key) });
        let count = context.transactions.len();
        let graph = Digraph::new(count, count, edges.collect());
        let graph = process::with_order(context, graph, &facts.included, Step::PROCESS_ORDER);
        Explainer { context, facts, graph }
    }

    /// Checks that the causal order has no cycle.
    pub(super) fn check_causes(&self) -> Result<(), Box<Violation>> {
        match smallest(&self.graph) {
            Some(cycle) => Err(self.violation(ViolationKind::CausalOrder, &cycle, &[], None)),
            None => Ok(()),
        }
    }

    /// Explains a cycle of the causal order and these edges. `reads` are those of the process that has no order.
    pub(super) fn explain(
        &self,
        kind: ViolationKind,
        edges: &[Edge<Step>],
        reads: Option<&[Read]>,
    ) -> Box<Violation> {
        let cycle = smallest(&self.graph_below(edges, u32::MAX)).expect("a cycle to explain");
        self.argue(kind, &cycle, edges, reads)
    }

    /// Explains one of these edges, each of which closes a cycle with the causal order.
    pub(super) fn explain_stale(&self, edges: &[Edge<Step>]) -> Box<Violation> {
        let closing = |from, to| edges.iter().find(|edge| (edge.from, edge.to) == (from, to));
        let mut starts: Vec<u32> = edges.iter().map(|edge| edge.to).collect();
        let mut ends: Vec<(u32, u32)> = edges.iter().map(|edge| (edge.to, edge.from)).collect();
        starts.sort_unstable();
        starts.dedup();
        ends.sort_unstable();
        let is_end = |start, node| ends.binary_search(&(start, node)).is_ok();
        let mut cycle = smallest_path(&self.graph, &starts, is_end, |_, _| true)
            .expect("a cycle with one of these edges");
        cycle.extend(closing(cycle[cycle.len() - 1].to, cycle[0].from));
        self.argue(ViolationKind::CausalOrder, &cycle, &[], None)
    }

    /// Explains a cycle. Its arbitrations follow from the causal order and these edges.
    fn argue(
        &self,
        kind: ViolationKind,
        cycle: &[Edge<Step>],
        edges: &[Edge<Step>],
        reads: Option<&[Read]>,
    ) -> Box<Violation> {
        let mut arguments: Vec<Argument> = Vec::new();
        let mut open = cycle.to_vec();
        while let Some(edge) = open.pop() {
            if edge.label.kind == ConflictKind::Arbitration
                && arguments.iter().all(|argument| argument.arbitration != edge)
            {
                let path = self.path_to_reader(edges, edge, reads.unwrap_or(&self.facts.reads));
                open.extend_from_slice(&path);
                arguments.push(Argument { arbitration: edge, path });
            }
        }
        // Paths of a rank have arbitrations of lower ranks only.
        arguments.sort_by_key(|argument| argument.arbitration.label.rank);
        self.violation(kind, cycle, &arguments, reads)
    }

    /// The causal order with those edges that are of a rank below this one.
    fn graph_below(&self, edges: &[Edge<Step>], rank: u32) -> Digraph<Step> {
        let below = edges.iter().filter(|edge| edge.label.rank < rank).copied();
        self.graph.clone().extended(0, below.collect())
    }

    /// The smallest path from the first transaction of an arbitration to one that read the second one's write.
    fn path_to_reader(
        &self,
        edges: &[Edge<Step>],
        arbitration: Edge<Step>,
        reads: &[Read],
    ) -> Edges {
        let Edge { from, to, label } = arbitration;
        let mut readers: Vec<u32> = reads
            .iter()
            .filter(|read| read.key == label.key && read.writer == Some(to))
            .map(|read| read.reader)
            .collect();
        readers.sort_unstable();
        let graph = self.graph_below(edges, label.rank);
        let is_reader = |_, node| readers.binary_search(&node).is_ok();
        smallest_path(&graph, &[from], is_reader, |_, _| true)
            .expect("a reader that comes after the first transaction of an arbitration")
    }

    fn violation(
        &self,
        kind: ViolationKind,
        cycle: &[Edge<Step>],
        arguments: &[Argument],
        reads: Option<&[Read]>,
    ) -> Box<Violation> {
        let paths = arguments.iter().flat_map(|argument| &argument.path);
        let mut involved: Vec<u32> = cycle.iter().map(|edge| edge.from).collect();
        // A path begins in the cycle or in another path.
        for edge in paths.clone() {
            if !involved.contains(&edge.to) {
                involved.push(edge.to);
            }
        }
        let place = |transaction: u32| {
            let mut involved = involved.iter();
            involved.position(|&it| it == transaction).expect("a transaction that takes part")
        };
        let conflict = |edge: &Edge<Step>| {
            let mut arguments = arguments.iter().filter(|argument| argument.arbitration == *edge);
            let reader = arguments.next().map(|argument| place(argument.reader()));
            self.conflict(edge, place(edge.from), place(edge.to), reader)
        };
        let mut because: Vec<Conflict> = Vec::new();
        for conflict in paths.map(conflict) {
            if !because.contains(&conflict) {
                because.push(conflict);
            }
        }
        let is_read = |edge: &Edge<Step>| edge.label.kind == ConflictKind::ReadDependency;
        let kind = match kind {
            ViolationKind::CausalOrder if cycle.iter().all(is_read) => {
                ViolationKind::CircularInformationFlow
            }
            kind => kind,
        };
        let of = match reads {
            Some(reads) => {
                let process = self.context.at(reads[0].reader).process();
                format!("in every order that explains what process {process} read, ")
            }
            None if kind == ViolationKind::Convergence => {
                "in every order that explains all reads, ".to_owned()
            }
            None => String::new(),
        };
        Box::new(Violation {
            kind,
            key: None,
            transactions: involved.iter().map(|&it| self.context.witness(it)).collect(),
            real_time: None,
            conflicts: cycle.iter().map(conflict).collect(),
            because,
            reason: format!(
                "{of}each of {} transactions must come before the next, and the last before the first",
                cycle.len()
            ),
            ruled_out: match kind {
                // The cycle has no conflict over the order of versions, on which processes may disagree.
                ViolationKind::CircularInformationFlow => ViolationKind::AbortedRead.ruled_out(),
                kind => kind.ruled_out(),
            },
            weakest: self.context.weakest,
        })
    }

    /// An edge between the transactions that the explanation lists at `from` and `to`.
    fn conflict(
        &self,
        edge: &Edge<Step>,
        from: usize,
        to: usize,
        reader: Option<usize>,
    ) -> Conflict {
        let Step { kind, key, .. } = edge.label;
        let number = self.facts.keys.get(key as usize).copied().unwrap_or_default();
        let (first, second) = (self.installed(edge.from, number), self.installed(edge.to, number));
        let (before, after) = match kind {
            ConflictKind::ProcessOrder => (None, None),
            ConflictKind::ReadDependency => (Some(first), None),
            ConflictKind::AntiDependency => (None, Some(second)),
            _ => (Some(first), Some(second)),
        };
        let key = (kind != ConflictKind::ProcessOrder).then_some(number);
        Conflict { from, to, kind, key, before, after, reader }
    }

    /// What a transaction wrote to a key.
    fn installed(&self, writer: u32, key: u64) -> Installed {
        let writer = self.context.at(writer);
        let written = || {
            let mut operations = writer.operations.iter().rev();
            operations.find_map(|operation| match *operation {
                MicroOperation::Write { key: written, value } if written == key => Some(value),
                _ => None,
            })
        };
        match writer.version {
            Some(version) => Installed::Version(version),
            None => Installed::Value(written().flatten()),
        }
    }
}
