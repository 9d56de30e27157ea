//! What a cycle of the graph says.

use super::graph::Dependency;
use super::recovered::KeyHistory;
use super::transaction::Context;
use super::{Conflict, ConflictKind, Violation, ViolationKind};
use crate::digraph::Edge;

/// Says what a cycle means.
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
        // Snapshot isolation allows a cycle only with two anti-dependencies in a row, as write skew
        // has them; a long fork has them apart.
        ViolationKind::AntiDependencyCycle if !adjacent => {
            ViolationKind::SingleAntiDependency.ruled_out()
        }
        kind => kind.ruled_out(),
    };
    let conflicts = cycle.iter().enumerate().map(|(at, edge)| {
        let key = &keys[edge.label.key as usize];
        let slot = edge.label.slot as usize;
        let installed = key.slots[slot].installed;
        let (before, after) = match edge.label.kind {
            ConflictKind::ReadDependency => (Some(installed), None),
            _ => {
                let before = slot.min(key.ordered).checked_sub(1);
                (before.map(|slot| key.slots[slot].installed), Some(installed))
            }
        };
        Conflict { from: at, to: next(at), kind: edge.label.kind, key: key.key, before, after }
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
