//! What a piece uses, as far as it is known before the piece is executed.

use serried_model::Key;

use crate::key::KeyWriter;
use crate::{Body, Datum};

/// The rows that a body uses, with what it does with each. Two occurrences of pieces conflict if they use a row in ways
/// that conflict ([`RowUse::conflicts`]).
///
/// The offline checker (002 §3.1) looks for the same conflicts, but knows only tables and columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footprint(Vec<(RowUse, u16)>);

/// What a body does with a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowUse {
    reads: Columns,
    writes: Columns,
    /// It asks whether the row exists.
    asks: bool,
    /// It may delete the row, which writes all columns.
    deletes: bool,
}

/// A set of columns of a table, which has at most 256.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Columns([u64; 4]);

impl Columns {
    fn insert(&mut self, column: u16) {
        self.0[usize::from(column / 64) % 4] |= 1 << (column % 64);
    }

    fn intersects(self, other: Columns) -> bool {
        self.0.iter().zip(other.0).any(|(own, other)| own & other != 0)
    }

    fn and(self, other: Columns) -> Columns {
        Columns(core::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    fn without(self, other: Columns) -> Columns {
        Columns(core::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    fn is_empty(self) -> bool {
        self == Columns::default()
    }
}

impl RowUse {
    /// A use that reads some columns and writes others. Columns are numbered from 0 to 255.
    pub fn of(reads: &[u16], writes: &[u16]) -> RowUse {
        let mut used = RowUse::default();
        reads.iter().for_each(|column| used.reads.insert(*column));
        writes.iter().for_each(|column| used.writes.insert(*column));
        used
    }

    /// Whether two uses of one row conflict: one of them changes what the other one uses. Two that create the row do not
    /// conflict by that.
    pub fn conflicts(&self, other: &RowUse) -> bool {
        self.is_overwritten_by(other) || other.is_overwritten_by(self)
    }

    fn is_overwritten_by(&self, other: &RowUse) -> bool {
        self.used().intersects(other.writes)
            || other.deletes
            || (self.asks && !other.writes.is_empty())
    }

    fn used(&self) -> Columns {
        self.reads.and(self.writes)
    }

    /// What is left of this use when everything is left out that conflicts with `later`, in the sense that any use which
    /// conflicts with this one there also conflicts with `later`. None if nothing is left.
    ///
    /// So a new use, compared with earlier uses from the newest to the oldest, need not be compared with those that
    /// conflict only with what is left out: they come before `later`, which comes before the new one.
    #[must_use]
    pub fn not_covered_by(mut self, later: &RowUse) -> Option<RowUse> {
        if later.deletes {
            return None;
        }
        self.reads = self.reads.without(later.writes);
        self.writes = self.writes.without(later.writes);
        let is_covered = self.used().is_empty() && !self.asks && !self.deletes;
        (!is_covered).then_some(self)
    }

    /// What is left of this use when everything is left out for which `other` can stand: any use that conflicts with this
    /// one there also conflicts with `other`. None if nothing is left. The two need not conflict.
    #[must_use]
    pub fn not_stood_for_by(mut self, other: &RowUse) -> Option<RowUse> {
        if other.deletes {
            return None;
        }
        self.reads = self.reads.without(other.used());
        self.writes = self.writes.without(other.writes);
        self.asks &= !other.asks;
        let is_left = !self.used().is_empty() || self.asks || self.deletes;
        is_left.then_some(self)
    }

    /// Whether it looks at the row: at columns, or at whether the row exists.
    pub fn looks(&self) -> bool {
        self.asks || !self.reads.is_empty()
    }

    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        self.writes.is_empty() && !self.deletes
    }

    /// This use without what it only reads.
    #[must_use]
    pub fn writes_only(self) -> RowUse {
        RowUse { reads: Columns::default(), asks: false, ..self }
    }

    /// Both uses of one row.
    #[must_use]
    pub fn with(self, other: RowUse) -> RowUse {
        RowUse {
            reads: self.reads.and(other.reads),
            writes: self.writes.and(other.writes),
            asks: self.asks || other.asks,
            deletes: self.deletes || other.deletes,
        }
    }
}

impl Footprint {
    /// The footprint of a body.
    pub fn of(body: &Body) -> Footprint {
        let mut rows: Vec<(RowUse, u16)> = Vec::with_capacity(body.rows.len());
        for row in &body.rows {
            let mut used = RowUse { asks: row.exists.is_some(), ..RowUse::default() };
            row.reads.iter().for_each(|(column, _)| used.reads.insert(*column));
            rows.push((used, row.known));
        }
        for write in &body.writes {
            rows[usize::from(write.row)].0.writes.insert(write.column);
        }
        for row in &body.deletes {
            rows[usize::from(*row)].0.deletes = true;
        }
        Footprint(rows)
    }

    /// What the body does with each of its rows.
    pub fn uses(&self) -> impl Iterator<Item = &RowUse> {
        self.0.iter().map(|(used, _)| used)
    }

    /// The rows that an occurrence with these arguments uses in a way that `matters`, given the place of the table.
    ///
    /// A row is named by the leading parts of its key that are known: all, or as many as depend on no other row. Then the
    /// occurrence may use any row whose key begins so.
    pub fn rows<'a>(
        &'a self,
        body: &'a Body,
        arguments: &'a [Datum],
        matters: impl Fn(u16, &RowUse) -> bool + 'a,
    ) -> impl Iterator<Item = (KnownRow, RowUse)> + 'a {
        // Few parts of keys need more than the arguments.
        let mut frame = None;
        let all = body.rows.iter().zip(&self.0);
        all.filter(move |(row, (used, _))| matters(row.table, used)).filter_map(
            move |(row, (used, known))| {
                let mut key = KeyWriter::of_row(row.table);
                let parts = row.key.get(..usize::from(*known)).unwrap_or(&row.key);
                for part in parts {
                    // If a part fails, the body is refused and uses nothing.
                    let is_part = match part.existing(arguments) {
                        Some(datum) => key.push(datum),
                        None => {
                            let frame = frame.get_or_insert_with(|| body.frame(arguments));
                            key.push(&part.evaluate(frame).ok()?)
                        }
                    };
                    if !is_part {
                        return None;
                    }
                }
                let is_whole = parts.len() == row.key.len();
                Some((KnownRow { key: key.end(), is_whole }, *used))
            },
        )
    }
}

/// A row, as far as its key is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KnownRow {
    /// The encoded key ([`crate::row_key`]) of the parts that are known.
    pub key: Key,
    /// Whether these are all parts.
    pub is_whole: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(reads: &[u16], writes: &[u16], asks: bool, deletes: bool) -> RowUse {
        RowUse { asks, deletes, ..RowUse::of(reads, writes) }
    }

    /// All uses of a row with two columns.
    fn all() -> Vec<RowUse> {
        let columns: [&[u16]; 4] = [&[], &[0], &[200], &[0, 200]];
        let mut all = Vec::new();
        for reads in columns {
            for writes in columns {
                for (asks, deletes) in [(false, false), (true, false), (false, true), (true, true)]
                {
                    all.push(row(reads, writes, asks, deletes));
                }
            }
        }
        all
    }

    #[test]
    fn uses_conflict_where_one_changes_what_the_other_uses() {
        let (read, write) = (row(&[1], &[], false, false), row(&[], &[1], false, false));
        let (ask, delete) = (row(&[], &[], true, false), row(&[], &[], false, true));
        assert!(read.conflicts(&write) && write.conflicts(&write) && ask.conflicts(&write));
        assert!(!read.conflicts(&read) && !ask.conflicts(&ask) && !ask.conflicts(&read));
        assert!(all().iter().all(|used| used.conflicts(&delete)));
        let other = row(&[2], &[2], false, false);
        assert!(!other.conflicts(&write) && !other.conflicts(&read));
    }

    #[test]
    fn what_is_covered_conflicts_with_what_covers_it() {
        for new in all() {
            for later in all().iter().filter(|later| later.conflicts(&new)) {
                let left = new.not_covered_by(later);
                for earlier in all().iter().filter(|earlier| earlier.conflicts(&new)) {
                    let is_left = left.is_some_and(|left| left.conflicts(earlier));
                    assert!(is_left || earlier.conflicts(later), "{earlier:?} {later:?} {new:?}");
                }
            }
        }
    }

    #[test]
    fn what_conflicts_with_a_use_conflicts_with_what_is_left_or_with_what_stands_for_it() {
        for used in all() {
            for other in all() {
                let left = used.not_stood_for_by(&other);
                for new in all().iter().filter(|new| new.conflicts(&used)) {
                    let is_left = left.is_some_and(|left| left.conflicts(new));
                    assert!(is_left || new.conflicts(&other), "{used:?} {other:?} {new:?}");
                }
            }
            assert_eq!(used.not_stood_for_by(&used), None);
        }
        let (read, write) = (row(&[1], &[], false, false), row(&[], &[1], false, false));
        assert_eq!(read.not_stood_for_by(&write), None);
        assert_eq!(write.not_stood_for_by(&read), Some(write));
    }
}
