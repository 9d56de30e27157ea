//! A set of procedures that is in use, and what is known of a call before it is executed.
//!
//! A call is taken on before any of its pieces is executed. So outputs are unknown then. An expression is *known* if it
//! depends on inputs alone. Where a key is known in part, the call may use any row whose key begins so. Where it is not
//! known which partition has a row, all partitions are participants.

use std::collections::BTreeSet;
use std::sync::Arc;

use serried_actor::Group;
use serried_procedures::{
    Argument, Call, Code, Datum, Footprint, KnownRow, Multiplicity, Piece, PieceId, Procedure,
    ProcedureSet, RowUse, Table, placement_key, row_key,
};

use super::message::CallOf;

/// A set of procedures that is in use.
#[derive(Debug)]
pub(super) struct InUse {
    version: u64,
    set: Arc<ProcedureSet>,
    /// By procedure and piece.
    shapes: Vec<Vec<Shape>>,
    /// By table, all that procedures write.
    written: Vec<RowUse>,
}

/// What is known of a piece whatever the inputs are.
#[derive(Debug)]
struct Shape {
    /// Whether the lists that decide how often it occurs are known.
    is_listed: bool,
    /// By row, how many leading parts of the key are known, and what the piece does with the row.
    rows: Vec<(usize, RowUse)>,
    /// Whether it is known which partition has the rows.
    is_placed: bool,
}

impl Shape {
    fn of(piece: &Piece, tables: &[Table]) -> Shape {
        let is_output = |argument: &Argument| matches!(argument, Argument::Output(..));
        let is_listed = match &piece.multiplicity {
            Multiplicity::Once => true,
            Multiplicity::ForEach { arguments, .. } => !arguments.iter().any(is_output),
        };
        let is_argument_known = |argument: &Argument| match argument {
            Argument::Input(_) => true,
            Argument::Output(..) => false,
            Argument::Element(_) | Argument::Index => is_listed,
        };
        let arguments: Vec<bool> = piece.arguments.iter().map(is_argument_known).collect();
        let is_known = |code: &Code| {
            let mut is_known = true;
            code.clone().for_each_slot(&mut |slot| {
                // Other slots belong to the expression itself.
                is_known &= arguments.get(usize::from(slot.0)).copied().unwrap_or(true);
            });
            is_known
        };
        let footprint = Footprint::of(&piece.body);
        let rows = piece.body.rows.iter().zip(footprint.uses().copied());
        let rows: Vec<(usize, RowUse)> = rows
            .map(|(row, used)| {
                let parts = row.key.iter().take(usize::from(row.known));
                (parts.take_while(|part| is_known(part)).count(), used)
            })
            .collect();
        let first = piece.body.rows.first().zip(rows.first());
        let is_placed = first
            .is_none_or(|(row, (known, _))| *known >= tables[usize::from(row.table)].placed_by);
        Shape { is_listed, rows, is_placed }
    }
}

impl InUse {
    pub(super) fn new(version: u64, set: Arc<ProcedureSet>) -> InUse {
        let of_procedure = |procedure: &Procedure| {
            procedure.pieces.iter().map(|piece| Shape::of(piece, &set.tables)).collect()
        };
        let shapes: Vec<Vec<Shape>> = set.procedures.iter().map(of_procedure).collect();
        let mut written = vec![RowUse::default(); set.tables.len()];
        for (procedure, shapes) in set.procedures.iter().zip(&shapes) {
            for (piece, shape) in procedure.pieces.iter().zip(shapes) {
                for (row, (_, used)) in piece.body.rows.iter().zip(&shape.rows) {
                    let of_table = &mut written[usize::from(row.table)];
                    *of_table = of_table.with(used.writes_only());
                }
            }
        }
        InUse { version, set, shapes, written }
    }

    /// Its version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The set.
    pub(super) fn set(&self) -> &Arc<ProcedureSet> {
        &self.set
    }

    /// A procedure.
    pub(super) fn procedure(&self, procedure: u16) -> Option<&Procedure> {
        self.set.procedures.get(usize::from(procedure))
    }

    /// The call, if it is one of a procedure of this set with inputs of the right types.
    pub(super) fn call(&self, of: &CallOf) -> Option<Call> {
        Call::new(self.procedure(of.procedure)?, of.inputs.clone()).ok()
    }

    /// Whether an occurrence of a piece can be one of the procedure.
    pub(super) fn has_piece(&self, procedure: u16, PieceId(at): PieceId, number: u32) -> bool {
        self.procedure(procedure)
            .and_then(|procedure| procedure.pieces.get(usize::from(at)))
            .is_some_and(|piece| number < piece.most_occurrences())
    }

    /// The partition at which an occurrence of a piece is executed.
    pub(super) fn place(&self, piece: &Piece, arguments: &[Datum], group: &Group) -> u16 {
        group.partition_of(&placement_key(&piece.placement(&self.set.tables, arguments)))
    }

    /// The partitions at which a call may have pieces. The inputs were checked.
    pub(super) fn participants(&self, of: &CallOf, group: &Group) -> Arc<[u16]> {
        let mut participants = BTreeSet::new();
        self.each(of, group, &mut |at, _, _, _| match at {
            Some(at) => {
                participants.insert(at);
            }
            None => participants.extend(0..group.partitions()),
        });
        participants.into_iter().collect()
    }

    /// The rows that a call may use at a partition, but for what no procedure writes. The inputs were checked.
    pub(super) fn rows(&self, of: &CallOf, own: u16, group: &Group) -> Vec<(KnownRow, RowUse)> {
        let mut rows = Vec::new();
        self.each(of, group, &mut |at, piece, shape, arguments| {
            if at.is_some_and(|at| at != own) {
                return;
            }
            let mut frame = arguments.to_vec();
            frame.resize(usize::from(piece.body.slots), Datum::Bool(false));
            for (row, (known, used)) in piece.body.rows.iter().zip(&shape.rows) {
                if !self.written[usize::from(row.table)].conflicts(used) {
                    continue;
                }
                let parts = row.key.iter().take(*known).map(|part| part.evaluate(&mut frame));
                // If a part fails, the body is refused and uses nothing.
                let Ok(parts) = parts.collect::<Result<Vec<Datum>, _>>() else { continue };
                if parts.iter().all(Datum::is_scalar) {
                    let key = row_key(row.table, &parts);
                    rows.push((KnownRow { key, is_whole: parts.len() == row.key.len() }, *used));
                }
            }
        });
        rows
    }

    /// Passes the occurrences of pieces to `each`, with their partitions as far as these are known.
    fn each(
        &self,
        of: &CallOf,
        group: &Group,
        each: &mut impl FnMut(Option<u16>, &Piece, &Shape, &[Datum]),
    ) {
        let at = usize::from(of.procedure);
        let pieces = self.set.procedures[at].pieces.iter().zip(&self.shapes[at]);
        for (piece, shape) in pieces {
            for arguments in occurrences(piece, shape, &of.inputs) {
                let place = || self.place(piece, &arguments, group);
                each(shape.is_placed.then(place), piece, shape, &arguments);
            }
        }
    }
}

/// The arguments of the occurrences of a piece, with anything in the place of what is not known. If it is not known how
/// often the piece occurs, there is one occurrence.
fn occurrences(piece: &Piece, shape: &Shape, inputs: &[Datum]) -> Vec<Vec<Datum>> {
    let arguments = |declared: &[Argument], element: &[&Datum], index: usize| -> Vec<Datum> {
        let argument = |argument: &Argument| match argument {
            Argument::Input(at) => inputs[usize::from(*at)].clone(),
            Argument::Element(at) => {
                element.get(usize::from(*at)).map_or(Datum::Bool(false), |datum| (*datum).clone())
            }
            Argument::Index => Datum::Int(index as i64),
            Argument::Output(..) => Datum::Bool(false),
        };
        declared.iter().map(argument).collect()
    };
    let Multiplicity::ForEach { arguments: of_lists, lists, slots, max } = &piece.multiplicity
    else {
        return vec![arguments(&piece.arguments, &[], 0)];
    };
    if !shape.is_listed {
        return vec![arguments(&piece.arguments, &[], 0)];
    }
    let mut frame = arguments(of_lists, &[], 0);
    frame.resize(usize::from(*slots), Datum::Bool(false));
    let lists = lists.iter().map(|list| match list.evaluate(&mut frame) {
        Ok(Datum::List(elements)) => Some(elements),
        _ => None,
    });
    // If there is no list, the call is refused before it has written anything, and the piece never occurs.
    let Some(lists) = lists.collect::<Option<Vec<_>>>() else { return Vec::new() };
    let shortest = lists.iter().map(|list| list.len()).min().unwrap_or(0);
    (0..shortest.min(*max as usize))
        .map(|at| {
            let element: Vec<&Datum> = lists.iter().map(|list| &list[at]).collect();
            arguments(&piece.arguments, &element, at)
        })
        .collect()
}
