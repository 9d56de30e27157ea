//! Procedures and sets of procedures.

use serde::{Deserialize, Serialize};

use crate::{Body, Code, Datum, Field, Mismatch, Refused, RowStore, Table, Type};

/// Tables, and procedures that use them. The offline checker accepts or refuses a set as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcedureSet {
    /// The tables, in the order of their declaration.
    pub tables: Vec<Table>,
    /// The procedures, in the order of their declaration.
    pub procedures: Vec<Procedure>,
}

/// A transaction that is chopped into pieces.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Procedure {
    /// The name, unique in its set.
    pub name: String,
    /// What a call passes.
    pub inputs: Vec<Field>,
    /// The pieces, in the order of their declaration.
    pub pieces: Vec<Piece>,
    /// Groups of pieces that are executed as one atomic piece, although they may be at several servers (002 §4.2). The
    /// offline checker forms them.
    pub merged: Vec<Vec<PieceId>>,
    /// What a call returns. Evaluated when all pieces are executed.
    pub returns: Vec<Returned>,
    /// Whether calls of a procedure that writes nothing can also be started and committed like those that write, and get a
    /// place in their order. This depends on the other procedures of the set, so the offline checker sets it.
    pub ordered: bool,
}

/// A result of a call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Returned {
    /// Its name and type.
    pub field: Field,
    /// What the expression uses.
    pub arguments: Vec<Argument>,
    /// The expression, in a frame of these arguments.
    pub code: Code,
    /// How many slots the frame has.
    pub slots: u16,
}

/// The place of a piece in its procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PieceId(pub u16);

/// A part of a procedure that one server executes atomically.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// The name, unique in its procedure.
    pub name: String,
    /// How often it occurs in a call.
    pub multiplicity: Multiplicity,
    /// What the coordinator passes to each occurrence: the first slots of the body's frame.
    pub arguments: Vec<Argument>,
    /// Their types.
    pub argument_types: Vec<Type>,
    /// What it does.
    pub body: Body,
    /// The pieces that must have been executed before this one is started: their outputs are its arguments, or they can
    /// fail and this one writes. In ascending order.
    pub after: Vec<PieceId>,
    /// Whether another piece needs its outputs, or it can fail. Servers execute such a piece when it is started, and defer
    /// all others until the transaction commits.
    pub needed: bool,
    /// Whether servers execute it when it is started: it is needed, or immediacy has spread to it because it conflicts
    /// with such a piece. In a procedure that writes nothing, and whose calls can be ordered, a piece is not immediate because
    /// others need its outputs, but if it can fail or conflicts with an immediate piece. This depends on the other procedures
    /// of the set, so the offline checker sets it.
    pub immediate: bool,
}

/// How often a piece occurs in a call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Multiplicity {
    /// Exactly once.
    Once,
    /// Once for each place of these lists, which are iterated in parallel up to the end of the shortest.
    ForEach {
        /// What the lists are computed from.
        arguments: Vec<Argument>,
        /// The lists, in a frame of these arguments.
        lists: Vec<Code>,
        /// How many slots the frame has.
        slots: u16,
        /// The greatest number of occurrences.
        max: u32,
    },
}

/// Something that the coordinator of a call knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Argument {
    /// An input, by its place.
    Input(u16),
    /// An output of a piece, by its place. Of a piece that occurs for each element, the list of the outputs of all its
    /// occurrences.
    Output(PieceId, u16),
    /// The element of the list at this place in [`Multiplicity::ForEach`].
    Element(u16),
    /// How many elements come before this one.
    Index,
}

impl Procedure {
    /// Whether no piece writes.
    pub fn is_read_only(&self) -> bool {
        self.pieces.iter().all(|piece| !piece.body.writes())
    }

    /// How many bytes of data a call takes up at most: its inputs, what all occurrences of its pieces get and return, the
    /// keys of their rows, and the rows that they write; or its results, if these are more. Saturates. Servers log these
    /// data in one piece, and send them so.
    ///
    /// `tables` are those of each table ([`Table::max_bytes`]).
    ///
    /// # Panics
    /// If a piece uses a row of a table that is not among `tables`.
    pub fn max_bytes(&self, tables: &[(u64, u64)]) -> u64 {
        let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
        let occurrence = |Piece { argument_types, body, .. }: &Piece| {
            let outputs = body.outputs.iter().map(|(field, _)| &field.of);
            let is_written =
                |at: usize| body.writes.iter().any(|write| usize::from(write.row) == at);
            let rows = body.rows.iter().enumerate().map(|(at, row)| {
                let (key, columns) = tables[usize::from(row.table)];
                if is_written(at) { key.saturating_add(columns) } else { key }
            });
            let data = argument_types.iter().chain(outputs).map(Type::max_bytes);
            sum(&mut data.chain(rows))
        };
        let all = self
            .pieces
            .iter()
            .map(|piece| occurrence(piece).saturating_mul(u64::from(piece.most_occurrences())));
        let inputs = self.inputs.iter().map(|input| input.of.max_bytes());
        let results = self.returns.iter().map(|returned| returned.field.of.max_bytes());
        sum(&mut inputs.chain(all)).max(sum(&mut { results }))
    }

    /// How many elements are passed to lists that pieces iterate, and to results: one for each argument, or all outputs of a
    /// piece that is repeated. The slots of their frames count, too. Saturates.
    pub fn gathered(&self) -> u64 {
        let passed = |argument: &Argument| match argument {
            Argument::Output(PieceId(piece), _) => {
                let piece = self.pieces.get(usize::from(*piece));
                piece.map_or(1, |piece| u64::from(piece.most_occurrences()).max(1))
            }
            _ => 1,
        };
        let frame = |arguments: &[Argument], slots: u16| {
            arguments.iter().map(passed).fold(u64::from(slots), u64::saturating_add)
        };
        let lists = self.pieces.iter().map(|piece| match &piece.multiplicity {
            Multiplicity::Once => 0,
            Multiplicity::ForEach { arguments, slots, .. } => frame(arguments, *slots),
        });
        let results =
            self.returns.iter().map(|returned| frame(&returned.arguments, returned.slots));
        lists.chain(results).fold(0, u64::saturating_add)
    }

    /// The pieces with their ids.
    pub fn pieces(&self) -> impl Iterator<Item = (PieceId, &Piece)> {
        self.pieces.iter().enumerate().map(|(at, piece)| (PieceId(at as u16), piece))
    }
}

impl Piece {
    /// Checks what the coordinator passes to an occurrence.
    ///
    /// # Errors
    /// If the number of arguments or the type of one is wrong.
    pub fn check(&self, arguments: &[Datum]) -> Result<(), Mismatch> {
        if arguments.len() != self.argument_types.len() {
            let (wanted, found) =
                (format!("{} arguments", self.argument_types.len()), arguments.len().to_string());
            return Err(Mismatch { place: String::new(), wanted, found });
        }
        self.argument_types.iter().zip(arguments).try_for_each(|(of, datum)| of.check(datum))
    }

    /// Executes its body on the rows of a server and returns its outputs. `arguments` are what the coordinator passes.
    ///
    /// # Errors
    /// If a check does not hold, or an expression fails; then the piece is named. Nothing was written in either case.
    pub fn execute(
        &self,
        tables: &[Table],
        arguments: &[Datum],
        store: &mut dyn RowStore,
    ) -> Result<Vec<Datum>, Refused> {
        let outputs = self.body.execute(tables, arguments, store);
        outputs.map_err(|refused| refused.of("piece", &self.name))
    }

    /// The pieces whose outputs it uses.
    pub fn uses(&self) -> impl Iterator<Item = PieceId> {
        let lists = match &self.multiplicity {
            Multiplicity::Once => &[][..],
            Multiplicity::ForEach { arguments, .. } => arguments,
        };
        self.arguments.iter().chain(lists).filter_map(|argument| match argument {
            Argument::Output(piece, _) => Some(*piece),
            Argument::Input(_) | Argument::Element(_) | Argument::Index => None,
        })
    }

    /// How many occurrences it has at most.
    pub fn most_occurrences(&self) -> u32 {
        match self.multiplicity {
            Multiplicity::Once => 1,
            Multiplicity::ForEach { max, .. } => max,
        }
    }
}
