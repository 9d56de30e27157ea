//! Which read-only procedures can be ordered among those that write.
//!
//! A read-only call mostly reads until it finds the same twice (002 §4.1). Under contention this takes long. The call can also
//! start its pieces as a transaction, and be ordered like those that write. Then it predicts what deferred pieces find, so that
//! no piece has to be immediate because others need its outputs. If a prediction was wrong, it tries again. Its pieces may
//! therefore be started in any order.
//!
//! In such a transaction, a piece is immediate if it can fail, or conflicts with an immediate piece of a procedure that writes.
//! All others are deferred. The procedure can be ordered if
//!
//! - no piece that is immediate in this way conflicts with a deferred one, so that immediacy need not spread further, and
//! - there is no unreorderable cycle in the graph that also has the read-only procedures that can be ordered.

use std::rc::Rc;

use serried_procedures::{PieceId, Procedure, ProcedureSet};

use super::access::Accesses;
use super::cycle;
use super::siblings_and_conflicts::Graph;

/// How many cycles are looked for. If there are more, no procedure is ordered.
const MOST_CYCLES: usize = 64;

/// Marks the read-only procedures that can be ordered, and their pieces that are immediate then. No piece of a procedure
/// that writes changes.
pub(super) fn find_ordered(set: &mut ProcedureSet) {
    let accesses = Rc::new(Accesses::of_all(set));
    let is_immediate: Vec<Vec<bool>> = set
        .procedures
        .iter()
        .map(|procedure| procedure.pieces.iter().map(|piece| piece.immediate).collect())
        .collect();
    for (at, procedure) in set.procedures.iter_mut().enumerate() {
        procedure.ordered = procedure.is_read_only();
        for (id, piece) in procedure.pieces.iter_mut().enumerate() {
            if !procedure.ordered {
                break;
            }
            // Only those that write conflict with it.
            let conflicting = accesses.conflicting((at, PieceId(id as u16)));
            let (immediate, deferred): (Vec<bool>, Vec<bool>) = conflicting
                .map(|(procedure, PieceId(id))| is_immediate[procedure][usize::from(id)])
                .partition(|immediate| *immediate);
            piece.immediate = piece.body.can_fail || !immediate.is_empty();
            procedure.ordered = !piece.immediate || deferred.is_empty();
        }
    }
    for _ in 0..MOST_CYCLES {
        let stands = |procedure: &Procedure| procedure.ordered || !procedure.is_read_only();
        let graph = Graph::of(set, Rc::clone(&accesses), stands);
        let Some(path) = cycle::find_path(&graph) else { return forget_marks(set) };
        let on_cycle: Vec<usize> = path.iter().map(|at| graph.vertices()[*at].procedure).collect();
        // There is a read-only one among them: the cycle would have been found without, otherwise.
        on_cycle.into_iter().for_each(|at| set.procedures[at].ordered = false);
    }
    set.procedures.iter_mut().for_each(|procedure| procedure.ordered = false);
    forget_marks(set);
}

/// Pieces of procedures that are not ordered are not immediate either.
fn forget_marks(set: &mut ProcedureSet) {
    let not_ordered = set
        .procedures
        .iter_mut()
        .filter(|procedure| procedure.is_read_only() && !procedure.ordered);
    for piece in not_ordered.flat_map(|procedure| &mut procedure.pieces) {
        piece.immediate = false;
    }
}
