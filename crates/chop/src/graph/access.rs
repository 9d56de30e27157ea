//! What pieces use, and which of them conflict.

use std::collections::BTreeSet;

use serried_procedures::{Piece, PieceId, ProcedureSet};

/// A piece of a procedure: the place of the procedure in its set, and the piece.
pub(crate) type Place = (usize, PieceId);

/// What the pieces of all procedures use that write.
///
/// Read-only procedures are not here: they are executed in another way (002 §4.1) and conflict with nothing.
pub(crate) struct Accesses {
    all: Vec<(Place, Access)>,
}

/// The columns and rows of tables that a piece uses. Which rows is not known before a call, so all rows of a table are
/// one.
#[derive(Default)]
struct Access {
    reads: BTreeSet<(u16, u16)>,
    writes: BTreeSet<(u16, u16)>,
    /// Tables of which it asks whether a row exists.
    asks: BTreeSet<u16>,
    /// Tables of which it may create a row. Two pieces that both create a row do not conflict by this.
    creates: BTreeSet<u16>,
    /// Tables of which it deletes a row. This writes all of its columns.
    deletes: BTreeSet<u16>,
}

impl Access {
    fn of(piece: &Piece) -> Access {
        let mut access = Access::default();
        for row in &piece.body.rows {
            access.reads.extend(row.reads.iter().map(|(column, _)| (row.table, *column)));
            access.asks.extend(row.exists.map(|_| row.table));
        }
        for write in &piece.body.writes {
            let table = piece.body.rows[usize::from(write.row)].table;
            access.writes.insert((table, write.column));
            access.creates.insert(table);
        }
        for row in &piece.body.deletes {
            access.deletes.insert(piece.body.rows[usize::from(*row)].table);
        }
        access
    }

    /// The tables and, where it is known, the columns because of which two pieces conflict.
    fn conflicts(&self, other: &Access) -> BTreeSet<(u16, Option<u16>)> {
        let mut conflicts = self.overwritten_by(other);
        conflicts.extend(other.overwritten_by(self));
        conflicts
    }

    /// What this piece uses and `other` writes, creates or deletes.
    fn overwritten_by(&self, other: &Access) -> BTreeSet<(u16, Option<u16>)> {
        let used = self.reads.union(&self.writes);
        let columns = used
            .clone()
            .filter(|column| other.writes.contains(column))
            .map(|(table, column)| (*table, Some(*column)));
        let deleted = used
            .map(|(table, _)| table)
            .chain(&self.asks)
            .chain(&self.creates)
            .chain(&self.deletes);
        let deleted = deleted.filter(|table| other.deletes.contains(table));
        let created = self.asks.intersection(&other.creates);
        columns.chain(deleted.chain(created).map(|table| (*table, None))).collect()
    }
}

impl Accesses {
    pub(crate) fn of(set: &ProcedureSet) -> Accesses {
        let writing =
            set.procedures.iter().enumerate().filter(|(_, procedure)| !procedure.is_read_only());
        let all = writing.flat_map(|(at, procedure)| {
            procedure.pieces().map(move |(id, piece)| ((at, id), Access::of(piece)))
        });
        Accesses { all: all.collect() }
    }

    /// The pieces that conflict with a piece in another instance; it may be one of them.
    pub(crate) fn conflicting(&self, place: Place) -> impl Iterator<Item = Place> {
        let access = self.get(place);
        let conflicts = move |other: &&(Place, Access)| {
            access.is_some_and(|access| !access.conflicts(&other.1).is_empty())
        };
        self.all.iter().filter(conflicts).map(|(place, _)| *place)
    }

    /// The tables and columns because of which two pieces conflict.
    pub(crate) fn conflicts(&self, one: Place, other: Place) -> BTreeSet<(u16, Option<u16>)> {
        match (self.get(one), self.get(other)) {
            (Some(one), Some(other)) => one.conflicts(other),
            _ => BTreeSet::new(),
        }
    }

    fn get(&self, place: Place) -> Option<&Access> {
        self.all.iter().find(|(known, _)| *known == place).map(|(_, access)| access)
    }
}
