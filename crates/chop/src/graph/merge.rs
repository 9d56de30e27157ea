//! Merged pieces (002 §4.2).

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;
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

fn close(procedure: &Procedure, group: BTreeSet<PieceId>) -> BTreeSet<PieceId> {
    let before = everything_before(procedure);
    let mut group: FixedBitSet = group.into_iter().map(|PieceId(at)| usize::from(at)).collect();
    group.grow(before.len());
    loop {
        let size = group.count_ones(..);
        for merged in &procedure.merged {
            if merged.iter().any(|PieceId(piece)| group.contains(usize::from(*piece))) {
                group.extend(merged.iter().map(|PieceId(piece)| usize::from(*piece)));
            }
        }
        let mut between = FixedBitSet::with_capacity(before.len());
        group.ones().for_each(|piece| between.union_with(&before[piece]));
        group.extend(
            between.ones().filter(|piece| !before[*piece].is_disjoint(&group)).collect::<Vec<_>>(),
        );
        if group.count_ones(..) == size {
            return group.ones().map(|piece| PieceId(piece as u16)).collect();
        }
    }
}

/// For each piece, all that have ended when it is started.
fn everything_before(procedure: &Procedure) -> Vec<FixedBitSet> {
    let count = procedure.pieces.len();
    let mut before: Vec<FixedBitSet> = Vec::with_capacity(count);
    for piece in &procedure.pieces {
        let mut directly = FixedBitSet::with_capacity(count);
        directly.extend(piece.after.iter().map(|PieceId(at)| usize::from(*at)));
        before.push(directly);
    }
    for via in 0..count {
        let beyond = before[via].clone();
        for of in before.iter_mut().filter(|of| of.contains(via)) {
            of.union_with(&beyond);
        }
    }
    before
}
