//! The order in which the pieces of a procedure are started.

use super::{Checked, check, quoted};
use crate::{Piece, PieceId, Procedure};

/// Checks the order of at most [`crate::limits::MAX_PIECES`] pieces. The compiler finds it: see its `order.rs`.
pub(super) fn validate(procedure: &Procedure) -> Checked {
    let pieces = &procedure.pieces;
    let is_known = |PieceId(at): &PieceId| usize::from(*at) < pieces.len();
    for Piece { name, after, .. } in pieces {
        check(after.iter().all(is_known), || {
            format!("piece {} comes after one that there is not", quoted(name))
        })?;
        check(after.is_sorted_by(|one, next| one < next), || {
            format!("what piece {} comes after is not in its order", quoted(name))
        })?;
    }
    for piece in pieces {
        check(piece.uses().all(|used| piece.after.binary_search(&used).is_ok()), || {
            format!(
                "piece {} uses the outputs of one that it does not come after",
                quoted(&piece.name)
            )
        })?;
    }
    check(procedure.merged.iter().all(|group| !group.is_empty()), || {
        "no piece is merged with another".to_owned()
    })?;
    let mut merged: Vec<PieceId> = procedure.merged.concat();
    check(merged.iter().all(is_known), || "a piece is merged that there is not".to_owned())?;
    merged.sort_unstable();
    check(merged.is_sorted_by(|one, next| one < next), || "a piece is merged twice".to_owned())?;
    check(all_start(pieces), || "its pieces wait for each other".to_owned())?;
    if procedure.is_read_only() { Ok(()) } else { validate_failures(procedure) }
}

/// Whether every piece is started, if each that is started ends.
fn all_start(pieces: &[Piece]) -> bool {
    let mut started = vec![false; pieces.len()];
    for _ in pieces {
        for (at, piece) in pieces.iter().enumerate() {
            started[at] |= piece.after.iter().all(|PieceId(before)| started[usize::from(*before)]);
        }
    }
    started.into_iter().all(|started| started)
}

/// Nothing is undone, so whatever can fail comes before the first write.
fn validate_failures(procedure: &Procedure) -> Checked {
    for (id, failing) in procedure.pieces().filter(|(_, piece)| piece.body.can_fail) {
        let name = || quoted(&failing.name);
        check(!failing.body.writes() || failing.most_occurrences() <= 1, || {
            format!("piece {} can fail in one of its occurrences when another has written", name())
        })?;
        let writes = |(other, piece): &(PieceId, &Piece)| *other != id && piece.body.writes();
        for (_, writer) in procedure.pieces().filter(writes) {
            check(writer.after.binary_search(&id).is_ok(), || {
                format!("piece {} can fail when piece {} has written", name(), quoted(&writer.name))
            })?;
        }
    }
    Ok(())
}
