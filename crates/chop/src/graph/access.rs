//! What pieces use, and which of them conflict.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use serried_procedures::{Piece, PieceId, Procedure, ProcedureSet};

/// A piece of a procedure: the place of the procedure in its set, and the piece.
pub(crate) type Place = (usize, PieceId);

/// What the pieces of procedures use.
pub(crate) struct Accesses {
    /// In ascending order of the places.
    all: Vec<(Place, Access)>,
    /// For each piece, by its place in `all`, the pieces with which it conflicts in another instance.
    conflicting: Vec<FixedBitSet>,
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
    /// What the pieces of those procedures use that write. The others are mostly executed in another way (002 §4.1).
    pub(crate) fn of(set: &ProcedureSet) -> Accesses {
        Accesses::of_those(set, |procedure| !procedure.is_read_only())
    }

    /// What the pieces of all procedures use.
    pub(crate) fn of_all(set: &ProcedureSet) -> Accesses {
        Accesses::of_those(set, |_| true)
    }

    fn of_those(set: &ProcedureSet, is_one: impl Fn(&Procedure) -> bool) -> Accesses {
        let those = set.procedures.iter().enumerate().filter(|(_, procedure)| is_one(procedure));
        let all = those.flat_map(|(at, procedure)| {
            procedure.pieces().map(move |(id, piece)| ((at, id), Access::of(piece)))
        });
        let all: Vec<_> = all.collect();
        let conflicting = find_conflicts(&all);
        Accesses { all, conflicting }
    }

    /// The pieces that conflict with a piece in another instance; it may be one of them.
    pub(crate) fn conflicting(&self, place: Place) -> impl Iterator<Item = Place> {
        let at = self.at(place);
        at.into_iter().flat_map(|at| self.conflicting[at].ones()).map(|at| self.all[at].0)
    }

    /// The tables and columns because of which two pieces conflict.
    pub(crate) fn conflicts(&self, one: Place, other: Place) -> BTreeSet<(u16, Option<u16>)> {
        match (self.get(one), self.get(other)) {
            (Some(one), Some(other)) => one.conflicts(other),
            _ => BTreeSet::new(),
        }
    }

    fn get(&self, place: Place) -> Option<&Access> {
        self.at(place).map(|at| &self.all[at].1)
    }

    fn at(&self, place: Place) -> Option<usize> {
        self.all.binary_search_by_key(&place, |(known, _)| *known).ok()
    }
}

/// Something because of which pieces conflict: some use it, and others change it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Used {
    /// A column of a table.
    Column(u16, u16),
    /// Any row of a table, which others delete.
    Deleted(u16),
    /// Whether a row of a table exists, while others create it.
    Created(u16),
}

/// For each piece, those with which it conflicts: what [`Access::conflicts`] finds, without comparing all pairs.
fn find_conflicts(all: &[(Place, Access)]) -> Vec<FixedBitSet> {
    let none = || FixedBitSet::with_capacity(all.len());
    // For each thing, who uses and who changes it.
    let mut found: BTreeMap<Used, [FixedBitSet; 2]> = BTreeMap::new();
    let mut add = |thing, role: usize, at| {
        found.entry(thing).or_insert_with(|| [none(), none()])[role].insert(at);
    };
    for (at, (_, Access { reads, writes, asks, creates, deletes })) in all.iter().enumerate() {
        for (table, column) in reads.union(writes) {
            add(Used::Column(*table, *column), 0, at);
            add(Used::Deleted(*table), 0, at);
        }
        for table in asks.iter().chain(creates).chain(deletes) {
            add(Used::Deleted(*table), 0, at);
        }
        asks.iter().for_each(|table| add(Used::Created(*table), 0, at));
        for (table, column) in writes {
            add(Used::Column(*table, *column), 1, at);
        }
        deletes.iter().for_each(|table| add(Used::Deleted(*table), 1, at));
        creates.iter().for_each(|table| add(Used::Created(*table), 1, at));
    }
    let mut conflicting = vec![none(); all.len()];
    for [users, changers] in found.values() {
        if changers.is_clear() {
            continue;
        }
        users.ones().for_each(|user| conflicting[user].union_with(changers));
        changers.ones().for_each(|changer| conflicting[changer].union_with(users));
    }
    conflicting
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All accesses that use at most one thing in each way, of two tables.
    fn every_access() -> Vec<(Place, Access)> {
        let columns = [None, Some((0, 0)), Some((0, 1)), Some((1, 0))];
        let tables = [None, Some(0), Some(1)];
        let mut all = Vec::new();
        for reads in columns {
            for writes in columns {
                for asks in tables {
                    for deletes in tables {
                        let access = Access {
                            reads: reads.into_iter().collect(),
                            writes: writes.into_iter().collect(),
                            asks: asks.into_iter().collect(),
                            creates: writes.map(|(table, _)| table).into_iter().collect(),
                            deletes: deletes.into_iter().collect(),
                        };
                        all.push(((all.len(), PieceId(0)), access));
                    }
                }
            }
        }
        all
    }

    #[test]
    fn the_pieces_that_conflict_are_those_that_a_comparison_of_all_pairs_finds() {
        let all = every_access();
        let found = find_conflicts(&all);
        for (one, (_, access)) in all.iter().enumerate() {
            for (other, (_, with)) in all.iter().enumerate() {
                assert_eq!(found[one].contains(other), !access.conflicts(with).is_empty());
            }
        }
    }
}
