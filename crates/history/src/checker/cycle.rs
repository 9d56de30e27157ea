//! Explanations of cycles.

use super::graph::Dependency;
use super::recovered::KeyHistory;
use super::transaction::Context;
use super::{Conflict, ConflictKind, RealTime, Violation, ViolationKind};
use crate::digraph::Edge;

/// Explains a cycle of conflicts.
pub(super) fn explain(
    context: &Context<'_>,
    keys: &[KeyHistory],
    cycle: &[Edge<Dependency>],
) -> Box<Violation> {
    let count = |kind| cycle.iter().filter(|edge| edge.label.kind == kind).count();
    let anti_dependencies = count(ConflictKind::AntiDependency);
    let kind = match (anti_dependencies, count(ConflictKind::ReadDependency)) {
        (0, 0) => ViolationKind::WriteCycle,
        (0, _) => ViolationKind::CircularInformationFlow,
        (1, _) => ViolationKind::SingleAntiDependency,
        _ => ViolationKind::AntiDependencyCycle,
    };
    let next = |at: usize| (at + 1) % cycle.len();
    let is_anti = |at: usize| cycle[at].label.kind == ConflictKind::AntiDependency;
    let adjacent = (0..cycle.len()).any(|at| is_anti(at) && is_anti(next(at)));
    let ruled_out = match kind {
        // Snapshot isolation allows only cycles with two consecutive anti-dependencies, as in write skew. In a long
        // fork they are not consecutive.
        ViolationKind::AntiDependencyCycle if !adjacent => {
            ViolationKind::SingleAntiDependency.ruled_out()
        }
        kind => kind.ruled_out(),
    };
    let conflicts = cycle.iter().enumerate().map(|(at, edge)| conflict(keys, edge, at, next(at)));
    Box::new(Violation {
        kind,
        key: None,
        transactions: cycle.iter().map(|edge| context.witness(edge.from)).collect(),
        real_time: None,
        conflicts: conflicts.collect(),
        because: Vec::new(),
        reason: format!(
            "{} transactions, each of which must come before the next, and the last before the \
             first",
            cycle.len()
        ),
        ruled_out,
        weakest: context.weakest,
    })
}

/// Explains a cycle of conflicts and of the order of processes, in a graph whose conflicts alone have no cycle.
/// `unknown` is the reason why it is not known whether there is a serial order at all.
pub(super) fn explain_process_order(
    context: &Context<'_>,
    keys: &[KeyHistory],
    cycle: &[Edge<Dependency>],
    unknown: Option<&str>,
) -> Box<Violation> {
    let next = |at: usize| (at + 1) % cycle.len();
    let conflicts = cycle.iter().enumerate().map(|(at, edge)| conflict(keys, edge, at, next(at)));
    let reason = match unknown {
        None => {
            "serializable, but only with a transaction before an earlier one of its process".into()
        }
        Some(unknown) => format!(
            "a transaction must come before an earlier one of its process; whether there is a \
             serial order at all is not known: {unknown}"
        ),
    };
    Box::new(Violation {
        kind: ViolationKind::ProcessOrder,
        key: None,
        transactions: cycle.iter().map(|edge| context.witness(edge.from)).collect(),
        real_time: None,
        conflicts: conflicts.collect(),
        because: Vec::new(),
        reason,
        ruled_out: ViolationKind::ProcessOrder.ruled_out(),
        weakest: context.weakest,
    })
}

/// Explains a path of conflicts that leads from a transaction to one that had ended before it began. `unknown` is the
/// reason why it is not known whether there is a serial order at all.
pub(super) fn explain_inversion(
    context: &Context<'_>,
    keys: &[KeyHistory],
    path: &[Edge<Dependency>],
    unknown: Option<&str>,
) -> Box<Violation> {
    let (began, ended) = (path[0].from, path[path.len() - 1].to);
    let transactions = std::iter::once(ended).chain(path.iter().map(|edge| edge.from));
    let conflicts = path.iter().enumerate().map(|(at, edge)| {
        let to = if edge.to == ended { 0 } else { at + 2 };
        conflict(keys, edge, at + 1, to)
    });
    let reason = match unknown {
        None => "serializable, but only with T2 before T1, which had ended before T2 began".into(),
        Some(unknown) => format!(
            "T2 must come before T1, which had ended before T2 began; whether there is a serial \
             order at all is not known: {unknown}"
        ),
    };
    Box::new(Violation {
        kind: ViolationKind::Inversion,
        key: None,
        transactions: transactions.map(|transaction| context.witness(transaction)).collect(),
        real_time: Some(RealTime {
            ended: context.end_index(ended),
            began: context.begin_index(began),
        }),
        conflicts: conflicts.collect(),
        because: Vec::new(),
        reason,
        ruled_out: ViolationKind::Inversion.ruled_out(),
        weakest: context.weakest,
    })
}

/// An edge between the transactions that the explanation lists at `from` and `to`.
fn conflict(keys: &[KeyHistory], edge: &Edge<Dependency>, from: usize, to: usize) -> Conflict {
    let kind = edge.label.kind;
    if kind == ConflictKind::ProcessOrder {
        return Conflict { from, to, kind, key: None, before: None, after: None, reader: None };
    }
    let key = &keys[edge.label.key as usize];
    let slot = edge.label.slot as usize;
    let installed = key.slots[slot].installed;
    let (before, after) = match kind {
        ConflictKind::ReadDependency => (Some(installed), None),
        _ => {
            let before = slot.min(key.ordered).checked_sub(1);
            (before.map(|slot| key.slots[slot].installed), Some(installed))
        }
    };
    Conflict { from, to, kind, key: Some(key.key), before, after, reader: None }
}
