//! The order in which a procedure's pieces are started.
//!
//! Nothing is undone (002 §3.1, user-initiated aborts). So whatever can fail has to come before the first write on any
//! server. A piece that can fail is executed when it is started, and no other piece that writes is started before it has
//! ended. Within a piece, everything is evaluated before anything is written, so one piece that occurs once may both
//! fail and write. Servers check the order when they validate a set.

use serried_procedures::PieceId;

use super::procedure::CompiledPiece;
use crate::mistake::{Compiled, Misplaced};

/// Starts each piece that writes after the pieces that can fail. Refuses a procedure in which this is impossible.
pub(super) fn order(pieces: &mut [CompiledPiece]) -> Compiled<()> {
    let writes: Vec<bool> = pieces.iter().map(|compiled| compiled.piece.body.writes()).collect();
    for failing in 0..pieces.len() {
        let CompiledPiece { piece, fails, occurrences, .. } = &pieces[failing];
        let Some((at, how)) = fails else { continue };
        if writes[failing] && *occurrences > 1 {
            let message = format!(
                "piece `{}` can fail in one of its occurrences when another has written: {how}; check in a piece that does \
                 not write",
                piece.name
            );
            return Err(Misplaced { at: *at, message });
        }
        let (at, how) = (*at, how.clone());
        for writer in (0..pieces.len()).filter(|writer| writes[*writer] && *writer != failing) {
            if comes_after(pieces, failing, writer) {
                let (failing, writer) = (&pieces[failing].piece.name, &pieces[writer].piece.name);
                let message = format!(
                    "piece `{failing}` can fail when piece `{writer}` has written: {how}; whatever can fail comes before \
                     the procedure's first write"
                );
                return Err(Misplaced { at, message });
            }
            let after = &mut pieces[writer].piece.after;
            if let Err(place) = after.binary_search(&PieceId(failing as u16)) {
                after.insert(place, PieceId(failing as u16));
            }
        }
    }
    Ok(())
}

/// Whether the piece at `late` is started after the piece at `early` has ended.
fn comes_after(pieces: &[CompiledPiece], late: usize, early: usize) -> bool {
    let mut reached = vec![false; pieces.len()];
    let mut open = vec![late];
    while let Some(at) = open.pop() {
        for PieceId(before) in &pieces[at].piece.after {
            let before = usize::from(*before);
            if before == early {
                return true;
            }
            if !reached[before] {
                reached[before] = true;
                open.push(before);
            }
        }
    }
    false
}

/// Marks the pieces that can't be deferred: their outputs are needed, or they can fail.
pub(super) fn find_needed(pieces: &mut [CompiledPiece]) {
    let mut needed: Vec<bool> = pieces.iter().map(|compiled| compiled.fails.is_some()).collect();
    for CompiledPiece { piece, .. } in pieces.iter() {
        piece.uses().for_each(|PieceId(used)| needed[usize::from(used)] = true);
    }
    for (compiled, needed) in pieces.iter_mut().zip(needed) {
        compiled.piece.needed |= needed;
    }
}
