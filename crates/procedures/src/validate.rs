//! Validation of sets that come from another process.

use core::fmt;

use crate::{Argument, Body, Multiplicity, Piece, PieceId, Procedure, ProcedureSet, Table, Type};

/// A set that no compiler has made: something in it refers to what it does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotCompiled {
    /// Where: a table, or a procedure and a piece.
    place: String,
}

impl fmt::Display for NotCompiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not as the compiler makes it", self.place)
    }
}

impl core::error::Error for NotCompiled {}

impl ProcedureSet {
    /// Checks that the set refers only to what it has, so that its procedures can be called. The compiler makes only such
    /// sets.
    ///
    /// # Errors
    /// If it refers to something else. Types of expressions are not checked: an expression that meets data of another type
    /// fails.
    pub fn validate(&self) -> Result<(), NotCompiled> {
        for table in &self.tables {
            check(is_table(table), || format!("table `{}`", table.name))?;
        }
        for procedure in &self.procedures {
            let place = || format!("procedure `{}`", procedure.name);
            check(self.is_procedure(procedure), place)?;
            for piece in &procedure.pieces {
                let place = || format!("piece `{}` of procedure `{}`", piece.name, procedure.name);
                check(self.is_piece(piece, procedure), place)?;
            }
        }
        Ok(())
    }

    fn is_procedure(&self, procedure: &Procedure) -> bool {
        let pieces = procedure.pieces.len();
        let is_known = |PieceId(at): &PieceId| usize::from(*at) < pieces;
        (1..=usize::from(u16::MAX)).contains(&pieces)
            && procedure.merged.iter().flatten().all(is_known)
            && procedure.returns.iter().all(|returned| {
                returned.arguments.iter().all(|argument| is_argument(*argument, procedure, 0))
            })
    }

    fn is_piece(&self, piece: &Piece, procedure: &Procedure) -> bool {
        let lists = match &piece.multiplicity {
            Multiplicity::Once => 0,
            Multiplicity::ForEach { arguments, lists, .. } => {
                if !arguments.iter().all(|argument| is_argument(*argument, procedure, 0)) {
                    return false;
                }
                lists.len()
            }
        };
        piece.argument_types.len() == piece.arguments.len()
            && piece.arguments.iter().all(|argument| is_argument(*argument, procedure, lists))
            && piece.after.iter().all(|PieceId(at)| usize::from(*at) < procedure.pieces.len())
            && piece.arguments.len() <= usize::from(piece.body.slots)
            && self.is_body(&piece.body)
    }

    fn is_body(&self, body: &Body) -> bool {
        let row = |at: u16| body.rows.get(usize::from(at));
        let table = |at: u16| self.tables.get(usize::from(at));
        !body.rows.is_empty()
            && body.rows.iter().all(|row| {
                table(row.table).is_some_and(|table| {
                    row.key.len() == table.key.len()
                        && usize::from(row.known) >= table.placed_by
                        && usize::from(row.known) <= row.key.len()
                        && row.reads.iter().all(|(column, _)| has_column(table, *column))
                })
            })
            && body.writes.iter().all(|write| {
                row(write.row)
                    .and_then(|row| table(row.table))
                    .is_some_and(|table| has_column(table, write.column))
            })
            && body.deletes.iter().all(|at| row(*at).is_some())
    }
}

fn check(holds: bool, place: impl FnOnce() -> String) -> Result<(), NotCompiled> {
    if holds { Ok(()) } else { Err(NotCompiled { place: place() }) }
}

fn is_table(table: &Table) -> bool {
    let is_scalar = |of: &Type| !matches!(of, Type::List { .. } | Type::Record(_));
    (1..=table.key.len()).contains(&table.placed_by)
        && table.key.iter().all(|part| is_scalar(&part.of))
        && (1..=256).contains(&table.columns.len())
        && table.columns.iter().all(|column| column.of.check(&column.default).is_ok())
}

fn has_column(table: &Table, column: u16) -> bool {
    usize::from(column) < table.columns.len()
}

fn is_argument(argument: Argument, procedure: &Procedure, lists: usize) -> bool {
    match argument {
        Argument::Input(at) => usize::from(at) < procedure.inputs.len(),
        Argument::Output(PieceId(piece), at) => {
            let piece = procedure.pieces.get(usize::from(piece));
            piece.is_some_and(|piece| usize::from(at) < piece.body.outputs.len())
        }
        Argument::Element(at) => usize::from(at) < lists,
        Argument::Index => true,
    }
}
