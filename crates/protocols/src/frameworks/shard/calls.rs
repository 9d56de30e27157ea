//! Stored procedures as programs: what is called, the set of procedures that is in use, and pieces that a leader executes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Key, Value};
use serried_parts::{decode_cell_of_another, encode_cell};
use serried_procedures::limits::MAX_DATA_OF_CALL;
use serried_procedures::{
    Body, Datum, Footprint, Piece, PieceId, Procedure, ProcedureSet, Refused, RowStore, StoredRow,
    Table, decode_data, row_key,
};

use super::program::{Program, Rows, Use};

/// What is called.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallOf {
    /// The version of the set of procedures.
    pub set: u64,
    /// The place of the procedure in its set.
    pub procedure: u16,
    /// The inputs.
    pub inputs: Vec<Datum>,
}

impl CallOf {
    /// How much memory the inputs take up, in bytes.
    pub(super) fn inputs_size(&self) -> usize {
        self.inputs.iter().map(Datum::size).fold(0, usize::saturating_add)
    }

    /// Whether its inputs are larger than those of any procedure.
    pub(super) fn is_too_large(&self) -> bool {
        self.inputs_size() as u64 > MAX_DATA_OF_CALL
    }
}

/// An occurrence of a piece.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Occurrence {
    /// The piece.
    pub piece: PieceId,
    /// Which of its occurrences, from 0.
    pub number: u32,
    /// What its body gets.
    #[serde(deserialize_with = "decode_data")]
    pub arguments: Arc<[Datum]>,
}

/// What an occurrence of a piece has returned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Returned {
    /// The piece.
    pub piece: PieceId,
    /// Which of its occurrences.
    pub number: u32,
    /// The outputs.
    pub outputs: Vec<Datum>,
}

/// What programs have returned.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ran {
    /// The pieces that were executed, in their order.
    pub pieces: Vec<Returned>,
    /// Why the first piece that failed has refused the call, if one has. It and those after it have written nothing.
    pub refused: Option<Refused>,
}

impl Ran {
    /// Adds what other programs of the transaction have returned.
    pub fn add(&mut self, other: &Ran) {
        self.pieces.extend_from_slice(&other.pieces);
        if self.refused.is_none() {
            self.refused.clone_from(&other.refused);
        }
    }
}

/// Occurrences of pieces of a call.
pub(super) type Named = BTreeSet<(PieceId, u32)>;

/// A set of procedures that is in use.
#[derive(Debug)]
pub struct InUse {
    /// Its version.
    pub version: u64,
    /// The set.
    pub set: Arc<ProcedureSet>,
    /// By procedure and piece, the rows that it uses.
    footprints: Vec<Vec<Footprint>>,
}

impl InUse {
    /// A set in use, with what is derived from it.
    pub fn new(version: u64, set: Arc<ProcedureSet>) -> InUse {
        let footprint = |piece: &Piece| Footprint::of(&piece.body);
        let of = |procedure: &Procedure| procedure.pieces.iter().map(footprint).collect();
        let footprints = set.procedures.iter().map(of).collect();
        InUse { version, set, footprints }
    }

    /// A procedure.
    pub fn procedure(&self, procedure: u16) -> Option<&Procedure> {
        self.set.procedures.get(usize::from(procedure))
    }

    /// Whether these can be pieces of a call of the procedure: they exist, are not among those that were `named` before, and
    /// have arguments of the right types. Names them.
    pub fn accepts(&self, procedure: u16, pieces: &[Occurrence], named: &mut Named) -> bool {
        let Some(procedure) = self.procedure(procedure) else { return false };
        pieces.iter().all(|Occurrence { piece, number, arguments }| {
            procedure.pieces.get(usize::from(piece.0)).is_some_and(|declared| {
                *number < declared.most_occurrences() && declared.check(arguments).is_ok()
            }) && named.insert((*piece, *number))
        })
    }

    /// Whether another set can replace this one.
    ///
    /// # Errors
    /// If it can't; this says why.
    pub fn fits(&self, next: &ProcedureSet) -> Result<(), String> {
        next.check_replacement(&self.set.tables).map_err(|why| why.to_string())
    }
}

/// Pieces of a call that a leader executes one after the other.
#[derive(Debug)]
pub struct Pieces {
    set: Arc<InUse>,
    procedure: u16,
    pieces: Vec<Occurrence>,
    /// In the order in which the pieces use them.
    uses: Vec<Use>,
    /// The place of each use, by its key.
    places: BTreeMap<Key, usize>,
}

impl Pieces {
    /// Pieces of a call of the procedure, which accepts them ([`InUse::accepts`]).
    pub fn new(set: Arc<InUse>, procedure: u16, pieces: Vec<Occurrence>) -> Pieces {
        let mut uses: Vec<Use> = Vec::new();
        let mut places: BTreeMap<Key, usize> = BTreeMap::new();
        let footprints = &set.footprints[usize::from(procedure)];
        let declared = &set.set.procedures[usize::from(procedure)].pieces;
        for Occurrence { piece, arguments, .. } in &pieces {
            let at = usize::from(piece.0);
            let rows = footprints[at].rows(&declared[at].body, arguments, |_, _| true);
            for (row, used) in rows.filter(|(row, _)| row.is_whole) {
                let writes = !used.is_read();
                match places.entry(row.key) {
                    Entry::Occupied(place) => uses[*place.get()].writes |= writes,
                    Entry::Vacant(place) => {
                        uses.push(Use { key: place.key().clone(), writes });
                        place.insert(uses.len() - 1);
                    }
                }
            }
        }
        Pieces { set, procedure, pieces, uses, places }
    }

    fn find(&self, key: &Key) -> Option<&Use> {
        self.places.get(key).map(|place| &self.uses[*place])
    }
}

impl Program for Pieces {
    fn known(&self) -> &[Use] {
        &self.uses
    }

    fn run(&self, rows: &mut Rows<'_>) -> Ran {
        let mut ran = Ran::default();
        let at = usize::from(self.procedure);
        let (declared, tables) = (&self.set.set.procedures[at].pieces, &self.set.set.tables);
        for Occurrence { piece, number, arguments } in &self.pieces {
            let of = &declared[usize::from(piece.0)];
            let footprint = &self.set.footprints[at][usize::from(piece.0)];
            let mut store = Store { rows, tables, body: &of.body, footprint, all: self };
            match of.execute(tables, arguments, &mut store) {
                Ok(outputs) => {
                    ran.pieces.push(Returned { piece: *piece, number: *number, outputs })
                }
                Err(refused) => {
                    ran.refused = Some(refused);
                    break;
                }
            }
            if store.rows.is_stopped() {
                break;
            }
        }
        ran
    }
}

/// The rows of a body. A row's columns are the value of its key.
struct Store<'a, 'b> {
    rows: &'a mut Rows<'b>,
    tables: &'a [Table],
    body: &'a Body,
    footprint: &'a Footprint,
    all: &'a Pieces,
}

impl Store<'_, '_> {
    /// Whether the body may write this row: it is known, or the body writes some row of the table.
    fn may_write(&self, table: u16, key: &Key) -> bool {
        let mut rows = self.body.rows.iter().zip(self.footprint.uses());
        match self.all.find(key) {
            Some(known) => known.writes,
            None => rows.any(|(row, used)| row.table == table && !used.is_read()),
        }
    }
}

impl RowStore for Store<'_, '_> {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        let key = row_key(table, key);
        let may_write = self.may_write(table, &key);
        let value = self.rows.read(&key, may_write)?;
        let row: StoredRow = decode_cell_of_another(value.as_bytes())?;
        (row.len() == self.tables[usize::from(table)].columns.len()).then_some(row)
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        let value = Value::from(encode_cell(&row).as_slice());
        self.rows.write(row_key(table, key), Some(value));
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        self.rows.write(row_key(table, key), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[tables.t]
key = { i = "int" }
columns = { c = "int" }
[procedures.p]
inputs.l = { list = "int", max = 3 }
[procedures.p.pieces.q]
for_each = { e = "l" }
rows = { t = ["e"] }
writes.t.c = "e"
"#;

    #[test]
    fn an_occurrence_is_named_once_whatever_shot_has_it() {
        let set = serried_chop::compile(FILE).unwrap_or_else(|mistake| panic!("{mistake}"));
        let set = InUse::new(1, Arc::new(set));
        let mut named = Named::new();
        let mut accepts = |numbers: &[u32]| {
            let of = |number: &u32| Occurrence {
                piece: PieceId(0),
                number: *number,
                arguments: [Datum::Int(7)].into(),
            };
            set.accepts(0, &numbers.iter().map(of).collect::<Vec<_>>(), &mut named)
        };
        assert!(accepts(&[0, 1]) && accepts(&[2]));
        assert!(!accepts(&[1]), "another shot has it");
        assert!(!accepts(&[3]), "there are three at most");
    }

    #[test]
    fn uses_of_one_row_are_one_use() {
        let set = serried_chop::compile(FILE).unwrap_or_else(|mistake| panic!("{mistake}"));
        let occurrence = |(number, row): (u32, &i64)| Occurrence {
            piece: PieceId(0),
            number,
            arguments: [Datum::Int(*row)].into(),
        };
        let pieces = (0..).zip(&[8, 7, 8]).map(occurrence).collect();
        let pieces = Pieces::new(Arc::new(InUse::new(1, Arc::new(set))), 0, pieces);
        let key = |row: i64| row_key(0, &[Datum::Int(row)]);
        let used = |row: i64| Use { key: key(row), writes: true };
        assert_eq!(pieces.known(), [used(8), used(7)], "in the order of the pieces");
        assert_eq!(
            [8, 7, 6].map(|row| pieces.find(&key(row)).cloned()),
            [Some(used(8)), Some(used(7)), None]
        );
    }
}
