//! The offline checker (002 §3.1).
//!
//! Pieces of concurrent transactions interleave. ROCOCO can put deferred pieces into any order, but not those that were
//! executed when they were started. The checker therefore looks at the graph in which each procedure stands twice, as
//! two concurrent instances. An S-edge joins two pieces of one instance (siblings). A C-edge joins two pieces of
//! different instances that conflict: both use a column of a table, and one of them writes it. A cycle with edges of
//! both kinds stands for an interleaving that may have no serial order. ROCOCO reorders pieces so that there is one,
//! unless each C-edge of the cycle joins two immediate pieces. The checker refuses a set of procedures with such a cycle.
//!
//! Read-only procedures are not in this graph. Whether their calls can be ordered among the others is found afterwards
//! (`readers.rs`).

mod access;
mod cycle;
mod draw;
mod merge;
mod readers;
mod siblings_and_conflicts;

use std::rc::Rc;

use serried_procedures::{PieceId, Procedure, ProcedureSet};

pub use cycle::{Cycle, Merge, Step};
pub use draw::draw;
pub use siblings_and_conflicts::{Graph, Vertex};

use access::Accesses;

/// Decides which pieces are immediate and which read-only procedures can be ordered, and checks the set: the error is a
/// shortest unreorderable cycle.
///
/// Pieces that were merged before stay so.
pub fn check(set: &mut ProcedureSet) -> Result<(), Box<Cycle>> {
    let accesses = Rc::new(Accesses::of(set));
    check_accesses(set, &accesses)
}

fn check_accesses(set: &mut ProcedureSet, accesses: &Rc<Accesses>) -> Result<(), Box<Cycle>> {
    spread_immediacy(set, accesses);
    let writes = |procedure: &Procedure| !procedure.is_read_only();
    if let Some(cycle) = cycle::find(&Graph::of(set, Rc::clone(accesses), writes)) {
        return Err(Box::new(cycle));
    }
    readers::find_ordered(set);
    Ok(())
}

/// Like [`check`], but merges the pieces of an unreorderable cycle that belong to one procedure into one atomic piece
/// (002 §4.2), until there is no such cycle. Returns the cycles that it has found.
pub fn check_and_merge(set: &mut ProcedureSet) -> Vec<Cycle> {
    // What pieces use does not change when they are merged.
    let accesses = Rc::new(Accesses::of(set));
    let mut found = Vec::new();
    while let Err(cycle) = check_accesses(set, &accesses) {
        // Each pass makes at least one merged piece larger: the cycle has two vertices of one instance.
        merge::apply(set, &cycle.merges);
        found.push(*cycle);
    }
    found
}

/// Marks the pieces that are executed when they are started: those that have to be, all pieces of a merged one, and, step
/// by step, all that conflict with one that is marked. Pieces of read-only procedures are not marked.
fn spread_immediacy(set: &mut ProcedureSet, accesses: &Accesses) {
    let mut open = Vec::new();
    for (at, procedure) in set.procedures.iter_mut().enumerate() {
        let read_only = procedure.is_read_only();
        let merged = procedure.merged.concat();
        for (id, piece) in procedure.pieces.iter_mut().enumerate() {
            let id = PieceId(id as u16);
            piece.immediate = !read_only && (piece.needed || merged.contains(&id));
            if piece.immediate {
                open.push((at, id));
            }
        }
    }
    while let Some(immediate) = open.pop() {
        for conflicting in accesses.conflicting(immediate) {
            let (procedure, PieceId(id)) = conflicting;
            let piece = &mut set.procedures[procedure].pieces[usize::from(id)];
            if !piece.immediate {
                piece.immediate = true;
                open.push(conflicting);
            }
        }
    }
}
