//! Explains why a few operations contradict a guarantee.

use super::event::RegisterValue;
use super::search::Rule;
use super::shrink::Shrunk;
use super::step::{Operation, Step};
use super::verdict::{
    Precedence, PrecedenceReason, RegisterGuarantee, RegisterViolation, RegisterWitness, Shown,
};
use crate::cycle;
use crate::digraph::{Digraph, Edge, Label};

/// Larger violations are shown without the cycle, which would be too long to follow.
const MOST_STEPS: usize = u64::BITS as usize;

impl Label for PrecedenceReason {
    /// Observed facts weigh less than conclusions from them.
    fn weight(self) -> (u32, u32) {
        match self {
            PrecedenceReason::RealTime | PrecedenceReason::ProcessOrder => (0, 0),
            PrecedenceReason::Found => (0, 1),
            PrecedenceReason::Replaced => (0, 2),
            PrecedenceReason::Hidden { .. } => (1, 0),
        }
    }
}

/// The source of what a step found.
#[derive(Clone, Copy)]
enum Source {
    Nobody,
    Initial,
    Step(usize),
    /// One of several possible writers.
    Open,
}

/// The violation with its explanation.
pub(super) fn explain(
    shrunk: Shrunk,
    rule: Rule,
    operations: &[Operation<'_>],
) -> Box<RegisterViolation> {
    let Shrunk { mut steps, minimal } = shrunk;
    steps.sort_unstable_by_key(|step| step.begin);
    let sources: Vec<Option<Source>> = (0..steps.len()).map(|at| source(&steps, at)).collect();
    let cycle =
        if steps.len() <= MOST_STEPS { contradiction(&steps, &sources, rule) } else { vec![] };
    let witnesses: Vec<RegisterWitness> =
        steps.iter().map(|step| witness(step, &operations[step.operation as usize])).collect();
    let unwritten = sources.iter().position(|source| matches!(source, Some(Source::Nobody)));
    let summary = match unwritten {
        Some(at) => {
            let found: RegisterValue = steps[at].requires.flatten();
            let key = witnesses[at].key;
            format!(
                "no operation had begun to write {} to key {key} when O{} had found it",
                Shown(found),
                at + 1
            )
        }
        None if cycle.is_empty() => {
            format!("no order explains these {} operations", steps.len())
        }
        None => format!(
            "{} operations, each of which must come before the next, and the last before the first",
            cycle.len()
        ),
    };
    let cycle = if unwritten.is_some() { Vec::new() } else { cycle };
    let guarantee = match rule {
        Rule::Linearizable => RegisterGuarantee::Linearizable,
        Rule::RegularSequential => RegisterGuarantee::RegularSequential,
    };
    Box::new(RegisterViolation { guarantee, summary, operations: witnesses, minimal, cycle })
}

fn witness(step: &Step, operation: &Operation<'_>) -> RegisterWitness {
    let end = operation.end.filter(|_| step.end != super::step::NEVER);
    RegisterWitness {
        process: operation.invoke.process,
        index: operation.invoke.index,
        key: operation.invoke.key,
        operation: operation.invoke.operation,
        found: operation.found(),
        finding_matters: step.requires.is_some(),
        version: operation.version(),
        begin_ns: operation.invoke.time_ns,
        end_ns: end.map(|end| end.time_ns),
    }
}

fn source(steps: &[Step], reader: usize) -> Option<Source> {
    let required = steps[reader].requires?;
    let writers = steps.iter().enumerate().filter(|&(at, step)| {
        let writes = step.writes() == Some(required) || step.is_optional_rmw();
        at != reader && step.key == steps[reader].key && writes && step.begin < steps[reader].end
    });
    let mut writers = writers.map(|(at, _)| Source::Step(at));
    let initial = required.is_none().then_some(Source::Initial);
    Some(match (initial.or_else(|| writers.next()), writers.next()) {
        (None, _) => Source::Nobody,
        (Some(source), None) => source,
        (Some(_), Some(_)) => Source::Open,
    })
}

/// A smallest cycle of operations that certainly precede each other. The precedences are those of the rule, those
/// between a writer and the readers of its value, and the conclusions from these. There are two conclusions, applied
/// until nothing new follows. A write that precedes a reader, but is not the one that the reader found, also precedes
/// the one it found. A write that comes after the one that a reader found also comes after the reader.
fn contradiction(steps: &[Step], sources: &[Option<Source>], rule: Rule) -> Vec<Precedence> {
    let count = steps.len();
    let mut edges: Vec<Edge<PrecedenceReason>> = Vec::new();
    let mut reach = vec![0u64; count];
    let mut add = |reach: &mut [u64], from: usize, to: usize, label| {
        reach[from] |= 1 << to;
        edges.push(Edge { from: from as u32, to: to as u32, label });
    };
    for from in 0..count {
        for to in 0..count {
            let (earlier, later) = (&steps[from], &steps[to]);
            if earlier.end >= later.begin {
                continue;
            }
            let conflict = earlier.key == later.key && !earlier.is_read();
            if earlier.process == later.process {
                add(&mut reach, from, to, PrecedenceReason::ProcessOrder);
            } else if rule == Rule::Linearizable || conflict {
                add(&mut reach, from, to, PrecedenceReason::RealTime);
            }
        }
        if let Some(Source::Step(writer)) = sources[from] {
            add(&mut reach, writer, from, PrecedenceReason::Found);
        }
    }
    loop {
        close(&mut reach);
        if (0..count).any(|at| reach[at] >> at & 1 == 1) {
            break;
        }
        let (mut replaced, mut hidden) = (Vec::new(), Vec::new());
        let closed = reach.clone();
        let before = |from: usize, to: usize| closed[from] >> to & 1 == 1;
        for reader in 0..count {
            let writer = match sources[reader] {
                Some(Source::Step(writer)) => Some(writer),
                Some(Source::Initial) => None,
                _ => continue,
            };
            for other in 0..count {
                let step = &steps[other];
                let writes = step.key == steps[reader].key && !step.is_read() && !step.optional;
                if !writes || other == reader || Some(other) == writer {
                    continue;
                }
                if writer.is_none_or(|writer| before(writer, other)) && !before(reader, other) {
                    replaced.push((reader, other));
                }
                if let Some(writer) = writer
                    && before(other, reader)
                    && !before(other, writer)
                {
                    hidden.push((other, writer, reader));
                }
            }
        }
        if replaced.is_empty() && hidden.is_empty() {
            break;
        }
        // The conclusion that takes more words is drawn only if the other one yields nothing new.
        if replaced.is_empty() {
            for (other, writer, reader) in hidden {
                add(&mut reach, other, writer, PrecedenceReason::Hidden { reader });
            }
        }
        for (reader, other) in replaced {
            add(&mut reach, reader, other, PrecedenceReason::Replaced);
        }
    }
    let graph = Digraph::new(count, count, edges);
    let cycle = cycle::smallest(&graph).unwrap_or_default();
    let precedences = cycle.into_iter().map(|edge| Precedence {
        from: edge.from as usize,
        to: edge.to as usize,
        reason: edge.label,
    });
    precedences.collect()
}

/// Computes the transitive closure.
fn close(reach: &mut [u64]) {
    for middle in 0..reach.len() {
        for from in 0..reach.len() {
            if reach[from] >> middle & 1 == 1 {
                reach[from] |= reach[middle];
            }
        }
    }
}
