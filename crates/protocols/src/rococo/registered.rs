//! A set of procedures that is in use, with what is derived from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serried_procedures::{
    Footprint, KnownRow, Piece, PieceId, Procedure, ProcedureSet, RowUse, Table,
};

use super::merged::{MergedPiece, merged_pieces};
use super::message::{Kind, Occurrence, Start};

/// A set of procedures that is in use.
#[derive(Debug)]
pub(super) struct Registered {
    version: u64,
    set: Arc<ProcedureSet>,
    /// By procedure and piece, the rows that it uses.
    footprints: Vec<Vec<Footprint>>,
    /// By table, all that procedures write.
    written: Vec<RowUse>,
    /// By procedure, its merged pieces.
    merged: Vec<Vec<MergedPiece>>,
}

impl Registered {
    pub(super) fn new(version: u64, set: Arc<ProcedureSet>) -> Registered {
        let footprint = |piece: &Piece| Footprint::of(&piece.body);
        let of_procedure = |procedure: &Procedure| procedure.pieces.iter().map(footprint).collect();
        let footprints: Vec<Vec<Footprint>> = set.procedures.iter().map(of_procedure).collect();
        let mut written = vec![RowUse::default(); set.tables.len()];
        for (procedure, footprints) in set.procedures.iter().zip(&footprints) {
            for (piece, footprint) in procedure.pieces.iter().zip(footprints) {
                for (row, used) in piece.body.rows.iter().zip(footprint.uses()) {
                    let of_table = &mut written[usize::from(row.table)];
                    *of_table = of_table.with(used.writes_only());
                }
            }
        }
        let merged = set.procedures.iter().map(merged_pieces).collect();
        Registered { version, set, footprints, written, merged }
    }

    /// The merged pieces of a procedure.
    pub(super) fn merged(&self, procedure: u16) -> &[MergedPiece] {
        self.merged.get(usize::from(procedure)).map_or(&[], Vec::as_slice)
    }

    /// Its version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The set.
    pub(super) fn set(&self) -> &Arc<ProcedureSet> {
        &self.set
    }

    /// The tables.
    pub(super) fn tables(&self) -> &[Table] {
        &self.set.tables
    }

    /// A procedure.
    pub(super) fn procedure(&self, procedure: u16) -> Option<&Procedure> {
        self.set.procedures.get(usize::from(procedure))
    }

    /// A piece.
    pub(super) fn piece(&self, procedure: u16, PieceId(piece): PieceId) -> Option<&Piece> {
        self.procedure(procedure)?.pieces.get(usize::from(piece))
    }

    /// Whether these can be pieces of a call of the procedure: they exist, are named once, and have arguments of the right
    /// types. `reads` is whether the procedure has to be one that writes nothing.
    pub(super) fn accepts(&self, procedure: u16, pieces: &[Occurrence], reads: bool) -> bool {
        let Some(declared) = self.procedure(procedure) else { return false };
        let is_right = |Occurrence { piece, number, arguments }: &Occurrence| {
            declared.pieces.get(usize::from(piece.0)).is_some_and(|piece| {
                *number < piece.most_occurrences() && piece.check(arguments).is_ok()
            })
        };
        declared.is_read_only() == reads
            && !pieces.is_empty()
            && pieces.iter().all(is_right)
            && are_named_once(pieces, declared.pieces.len())
    }

    /// Whether no piece is there more often than it can occur in a call of the procedure. The occurrences may be those of
    /// different rounds, and have one number, but other arguments.
    pub(super) fn may_have<'a>(
        &self,
        procedure: u16,
        mut pieces: impl Iterator<Item = &'a Occurrence>,
    ) -> bool {
        let declared = self.procedure(procedure).map_or(&[][..], |declared| &declared.pieces);
        let mut left: Vec<u32> = declared.iter().map(Piece::most_occurrences).collect();
        pieces.all(|Occurrence { piece, .. }| {
            let left = left.get_mut(usize::from(piece.0)).filter(|left| **left > 0);
            left.map(|left| *left -= 1).is_some()
        })
    }

    /// Whether a call can have these pieces at one partition: as [`Self::accepts`], or, if it is a read-only call that is
    /// ordered, none.
    pub(super) fn accepts_start(&self, Start { call, pieces, .. }: &Start) -> bool {
        if !call.is_read() {
            return self.accepts(call.procedure, pieces, false);
        }
        let is_ordered = self.procedure(call.procedure).is_some_and(|declared| declared.ordered);
        is_ordered && (pieces.is_empty() || self.accepts(call.procedure, pieces, true))
    }

    /// Whether a piece is executed when it is started.
    pub(super) fn kind(&self, piece: &Piece) -> Kind {
        if piece.immediate { Kind::Immediate } else { Kind::Deferred }
    }

    /// The rows that an occurrence of a piece uses, but for what no procedure writes.
    pub(super) fn rows<'a>(
        &'a self,
        procedure: u16,
        occurrence: &'a Occurrence,
    ) -> impl Iterator<Item = (KnownRow, RowUse)> + 'a {
        let (footprint, piece) = self.used_by(procedure, occurrence);
        footprint.rows(&piece.body, &occurrence.arguments, |table, used| {
            self.written[usize::from(table)].conflicts(used)
        })
    }

    /// All rows that an occurrence of a piece uses.
    pub(super) fn all_rows<'a>(
        &'a self,
        procedure: u16,
        occurrence: &'a Occurrence,
    ) -> impl Iterator<Item = (KnownRow, RowUse)> + 'a {
        let (footprint, piece) = self.used_by(procedure, occurrence);
        footprint.rows(&piece.body, &occurrence.arguments, |_, _| true)
    }

    fn used_by(&self, procedure: u16, occurrence: &Occurrence) -> (&Footprint, &Piece) {
        let place = (usize::from(procedure), usize::from(occurrence.piece.0));
        let piece = &self.set.procedures[place.0].pieces[place.1];
        (&self.footprints[place.0][place.1], piece)
    }
}

/// Whether no occurrence is named twice. There are so many declared pieces.
fn are_named_once(pieces: &[Occurrence], declared: usize) -> bool {
    // Coordinators mostly name the occurrences of a piece in ascending order.
    let mut next = vec![0u64; declared];
    let is_next = |Occurrence { piece, number, .. }: &Occurrence| {
        let next = &mut next[usize::from(piece.0)];
        let is_next = u64::from(*number) >= *next;
        *next = u64::from(*number) + 1;
        is_next
    };
    let mut named = BTreeSet::new();
    pieces.iter().all(is_next)
        || pieces.iter().all(|Occurrence { piece, number, .. }| named.insert((*piece, *number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(piece: u16, number: u32) -> Occurrence {
        Occurrence { piece: PieceId(piece), number, arguments: Arc::default() }
    }

    #[test]
    fn a_piece_is_read_no_more_often_than_it_can_occur() {
        let file = r#"
[tables.t]
key = { i = "int" }
columns = { c = "int" }
[procedures.p]
inputs.l = { list = "int", max = 2 }
[procedures.p.pieces.one]
rows = { t = ["0"] }
reads = ["t.c"]
outputs.c = "t.c"
[procedures.p.pieces.each]
for_each = { e = "l" }
rows = { t = ["e"] }
reads = ["t.c"]
outputs.c = "t.c"
"#;
        let set = serried_chop::compile(file).unwrap_or_else(|mistake| panic!("{mistake}"));
        let set = Registered::new(1, Arc::new(set));
        let may_have = |pieces: &[u16]| {
            let pieces: Vec<Occurrence> =
                pieces.iter().map(|piece| occurrence(*piece, 0)).collect();
            set.may_have(0, pieces.iter())
        };
        assert!(may_have(&[]) && may_have(&[1, 0, 1]));
        assert!(!may_have(&[0, 0]) && !may_have(&[1, 1, 1]) && !may_have(&[2]));
    }

    #[test]
    fn an_occurrence_is_named_once_in_any_order() {
        let are_named_once = |names: &[(u16, u32)]| {
            let occurrence = |(piece, number): &(u16, u32)| occurrence(*piece, *number);
            let pieces: Vec<Occurrence> = names.iter().map(occurrence).collect();
            are_named_once(&pieces, 2)
        };
        assert!(are_named_once(&[(0, 0), (1, 0), (0, 1), (1, u32::MAX)]));
        assert!(are_named_once(&[(0, 3), (1, 2), (0, 1)]));
        assert!(!are_named_once(&[(0, 0), (1, 0), (0, 0)]));
        assert!(!are_named_once(&[(0, 3), (0, 1), (0, 3)]));
        assert!(!are_named_once(&[(0, u32::MAX), (0, u32::MAX)]));
    }
}
