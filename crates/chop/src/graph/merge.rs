//! Merged pieces (002 §4.2).

use std::collections::BTreeSet;

use serried_procedures::{PieceId, Procedure, ProcedureSet};

use super::cycle::Merge;

/// Makes one atomic piece of each group. A group also takes in the merged pieces with which it overlaps, and the pieces
/// that come after one of its pieces and before another: a piece is executed as a whole.
pub(super) fn apply(set: &mut ProcedureSet, merges: &[Merge]) {
    for Merge { procedure, pieces, .. } in merges {
        let procedure = &mut set.procedures[*procedure];
        let group = close(procedure, pieces.iter().copied().collect());
        procedure.merged.retain(|merged| !merged.iter().any(|piece| group.contains(piece)));
        procedure.merged.push(group.into_iter().collect());
        procedure.merged.sort();
    }
}

fn close(procedure: &Procedure, mut group: BTreeSet<PieceId>) -> BTreeSet<PieceId> {
    loop {
        let before = group.len();
        for merged in &procedure.merged {
            if merged.iter().any(|piece| group.contains(piece)) {
                group.extend(merged);
            }
        }
        let between: Vec<PieceId> = procedure
            .pieces()
            .map(|(id, _)| id)
            .filter(|id| {
                let after = group.iter().any(|piece| comes_after(procedure, *id, *piece));
                after && group.iter().any(|piece| comes_after(procedure, *piece, *id))
            })
            .collect();
        group.extend(between);
        if group.len() == before {
            return group;
        }
    }
}

/// Whether `late` is started after `early` has ended.
fn comes_after(procedure: &Procedure, late: PieceId, early: PieceId) -> bool {
    let mut open = vec![late];
    let mut reached = BTreeSet::new();
    while let Some(PieceId(at)) = open.pop() {
        for before in &procedure.pieces[usize::from(at)].after {
            if *before == early {
                return true;
            }
            if reached.insert(*before) {
                open.push(*before);
            }
        }
    }
    false
}
