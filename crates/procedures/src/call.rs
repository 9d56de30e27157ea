//! A call of a procedure, as its coordinator sees it.

use core::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Argument, Code, Datum, Failure, Field, Mismatch, Multiplicity, Piece, PieceId, Procedure,
    Refused, Returned, Table,
};

/// A call under way: which pieces were started and executed, and what they returned.
///
/// A coordinator starts what [`Call::start`] returns, reports what was executed ([`Call::executed`]), and starts what has
/// become possible. When nothing is missing any more, [`Call::results`] has the results.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    inputs: Vec<Datum>,
    pieces: Vec<Progress>,
}

/// How far a piece of a call has got.
#[derive(Clone, PartialEq, Debug)]
enum Progress {
    /// It can't be started yet.
    Waits,
    /// It was started.
    Started {
        /// Whether it occurs exactly once.
        once: bool,
        /// The outputs of its occurrences, once they were executed.
        outputs: Vec<Option<Vec<Datum>>>,
        /// How many of them are missing.
        missing: usize,
    },
}

/// An occurrence of a piece that is to be started.
#[derive(Clone, PartialEq, Debug)]
pub struct Start {
    /// The piece.
    pub piece: PieceId,
    /// Which of its occurrences, from 0.
    pub occurrence: u32,
    /// What the body gets.
    pub arguments: Arc<[Datum]>,
}

impl Call {
    /// A call with these inputs. No piece is started yet.
    ///
    /// # Errors
    /// If the number of inputs or the type of one is wrong.
    pub fn new(procedure: &Procedure, inputs: Vec<Datum>) -> Result<Call, InvalidInputs> {
        if inputs.len() != procedure.inputs.len() {
            let (found, wanted) = (inputs.len(), procedure.inputs.clone());
            return Err(InvalidInputs::Number { procedure: procedure.name.clone(), wanted, found });
        }
        for (field, datum) in procedure.inputs.iter().zip(&inputs) {
            field.of.check(datum).map_err(|mismatch| InvalidInputs::Type {
                procedure: procedure.name.clone(),
                input: field.name.clone(),
                mismatch,
            })?;
        }
        Ok(Call { inputs, pieces: vec![Progress::Waits; procedure.pieces.len()] })
    }

    /// The inputs.
    pub fn inputs(&self) -> &[Datum] {
        &self.inputs
    }

    /// Starts all pieces that can be started and were not: the pieces that come before them have been executed. Returns
    /// their occurrences, in the order of the pieces.
    ///
    /// # Errors
    /// If the list for the occurrences of a piece can't be computed. Then nothing has been written, as for any failure.
    pub fn start(&mut self, procedure: &Procedure) -> Result<Vec<Start>, Refused> {
        let mut started = Vec::new();
        loop {
            let mut begun = false;
            for (id, piece) in procedure.pieces() {
                let waits = matches!(self.progress(id), Progress::Waits);
                if waits && piece.after.iter().all(|before| self.is_executed(*before)) {
                    let before = started.len();
                    self.start_piece(id, piece, &mut started)
                        .map_err(|refused| refused.of("piece", &piece.name))?;
                    let missing = started.len() - before;
                    let once = piece.multiplicity == Multiplicity::Once;
                    let outputs = vec![None; missing];
                    self.pieces[usize::from(id.0)] = Progress::Started { once, outputs, missing };
                    begun = true;
                }
            }
            // A piece without occurrences is executed already, and others may come after it.
            if !begun {
                return Ok(started);
            }
        }
    }

    fn start_piece(
        &self,
        piece: PieceId,
        Piece { multiplicity, arguments, .. }: &Piece,
        started: &mut Vec<Start>,
    ) -> Result<(), Refused> {
        match multiplicity {
            Multiplicity::Once => {
                let arguments = self.arguments(arguments, &no_element, 0).collect();
                started.push(Start { piece, occurrence: 0, arguments });
            }
            Multiplicity::ForEach { arguments: of_lists, lists, slots, max } => {
                let mut frame = self.frame(of_lists, *slots);
                let lists = lists.iter().map(|list| list.evaluate(&mut frame));
                let lists = lists.collect::<Result<Vec<Datum>, _>>()?;
                let lists = lists.iter().map(elements).collect::<Result<Vec<&[Datum]>, _>>()?;
                let shortest = lists.iter().map(|list| list.len()).min().unwrap_or(0);
                for occurrence in 0..shortest.min(*max as usize) {
                    let element = |at: usize| {
                        let list: &[Datum] = lists[at];
                        list[occurrence].clone()
                    };
                    let arguments = self.arguments(arguments, &element, occurrence).collect();
                    started.push(Start { piece, occurrence: occurrence as u32, arguments });
                }
            }
        }
        Ok(())
    }

    /// Records that an occurrence was executed. Returns whether this is news: the occurrence was started and had not been
    /// executed.
    ///
    /// # Errors
    /// If these are not outputs of the piece.
    pub fn executed(
        &mut self,
        procedure: &Procedure,
        (piece, occurrence): (PieceId, u32),
        found: Vec<Datum>,
    ) -> Result<bool, Mismatch> {
        let at = usize::from(piece.0);
        let (Some(declared), Some(Progress::Started { outputs, missing, .. })) =
            (procedure.pieces.get(at), self.pieces.get_mut(at))
        else {
            return Ok(false);
        };
        let Some(place @ None) = outputs.get_mut(occurrence as usize) else { return Ok(false) };
        let fields = declared.body.outputs.iter().map(|(field, _)| field);
        check_all(fields, &found)?;
        *place = Some(found);
        *missing -= 1;
        Ok(true)
    }

    /// Whether all pieces that servers execute when they are started were started: none waits for another.
    pub fn has_started_all(&self) -> bool {
        self.pieces.iter().all(|progress| matches!(progress, Progress::Started { .. }))
    }

    /// Whether all pieces were executed.
    pub fn has_executed_all(&self) -> bool {
        (0..self.pieces.len()).all(|at| self.is_executed(PieceId(at as u16)))
    }

    /// Whether all occurrences of a piece were started.
    pub fn has_started(&self, piece: PieceId) -> bool {
        matches!(self.progress(piece), Progress::Started { .. })
    }

    /// Whether all occurrences of a piece were executed.
    pub fn has_executed(&self, piece: PieceId) -> bool {
        self.is_executed(piece)
    }

    /// The results of the call, in the order of [`Procedure::returns`]. All pieces were executed.
    ///
    /// # Errors
    /// If a result can't be computed; this happens to calls that write nothing.
    pub fn results(&self, procedure: &Procedure) -> Result<Vec<Datum>, Refused> {
        let result = |Returned { field, arguments, code, slots }: &Returned| {
            let result = code.evaluate(&mut self.frame(arguments, *slots));
            result.map_err(|failure| Refused::from(failure).of("result", &field.name))
        };
        procedure.returns.iter().map(result).collect()
    }

    fn progress(&self, PieceId(at): PieceId) -> &Progress {
        &self.pieces[usize::from(at)]
    }

    fn is_executed(&self, piece: PieceId) -> bool {
        matches!(self.progress(piece), Progress::Started { missing: 0, .. })
    }

    fn frame(&self, arguments: &[Argument], slots: u16) -> Vec<Datum> {
        let mut frame = Vec::with_capacity(usize::from(slots));
        frame.extend(self.arguments(arguments, &no_element, 0));
        frame.resize(usize::from(slots), Datum::Bool(false));
        frame
    }

    fn arguments(
        &self,
        declared: &[Argument],
        element: &impl Fn(usize) -> Datum,
        index: usize,
    ) -> impl Iterator<Item = Datum> {
        let argument = move |argument: &Argument| match *argument {
            Argument::Input(at) => self.inputs[usize::from(at)].clone(),
            Argument::Output(piece, at) => self.output(piece, usize::from(at)),
            Argument::Element(at) => element(usize::from(at)),
            Argument::Index => Datum::Int(index as i64),
        };
        declared.iter().map(argument)
    }

    fn output(&self, piece: PieceId, at: usize) -> Datum {
        // The compiler starts a piece after those whose outputs it uses. Otherwise an expression meets data of a wrong type.
        let (once, outputs) = match self.progress(piece) {
            Progress::Started { once, outputs, .. } => (*once, outputs.as_slice()),
            Progress::Waits => (true, &[][..]),
        };
        let mut of_all = outputs.iter().flatten().filter_map(|outputs| outputs.get(at)).cloned();
        match once {
            true => of_all.next().unwrap_or(Datum::Bool(false)),
            false => Datum::list(of_all),
        }
    }
}

/// What occurs once has no element.
fn no_element(list: usize) -> Datum {
    panic!("there is no list {list}")
}

fn elements(list: &Datum) -> Result<&[Datum], Failure> {
    match list {
        Datum::List(elements) => Ok(elements),
        _ => Err(Failure::NotCompiled),
    }
}

/// Checks that there is one datum of its type for each field.
fn check_all<'f>(
    fields: impl ExactSizeIterator<Item = &'f Field>,
    data: &[Datum],
) -> Result<(), Mismatch> {
    if fields.len() != data.len() {
        let (wanted, found) = (format!("{} outputs", fields.len()), data.len().to_string());
        return Err(Mismatch { place: String::new(), wanted, found });
    }
    fields.zip(data).try_for_each(|(field, datum)| field.of.check(datum))
}

impl Piece {
    /// The server of the piece: the leading parts of the key of its rows, which are at one server.
    pub fn placement(&self, tables: &[Table], arguments: &[Datum]) -> Vec<Datum> {
        let Some(row) = self.body.rows.first() else { return Vec::new() };
        let leading = tables[usize::from(row.table)].placed_by;
        let mut frame = None;
        let part = |part: &Code| match part.existing(arguments) {
            Some(datum) => Ok(datum.clone()),
            None => part.evaluate(frame.get_or_insert_with(|| self.body.frame(arguments))),
        };
        let parts = row.key.iter().take(leading).map(part);
        // A part that fails is one of a body that can fail; its server is where this is found out.
        let known = |part: Result<Datum, Failure>| part.ok().filter(Datum::is_scalar);
        parts.map(|found| known(found).unwrap_or(Datum::Int(0))).collect()
    }
}

/// Inputs that a procedure does not take.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InvalidInputs {
    /// There are too many or too few.
    Number {
        /// The procedure.
        procedure: String,
        /// Its inputs.
        wanted: Vec<Field>,
        /// How many were passed.
        found: usize,
    },
    /// One is of a wrong type.
    Type {
        /// The procedure.
        procedure: String,
        /// The input.
        input: String,
        /// What is wrong.
        mismatch: Mismatch,
    },
}

impl fmt::Display for InvalidInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidInputs::Number { procedure, wanted, found } => {
                write!(f, "`{procedure}` takes {} inputs and got {found}", wanted.len())?;
                for (at, Field { name, of }) in wanted.iter().enumerate() {
                    write!(f, "{}{name} ({of})", if at == 0 { ": " } else { ", " })?;
                }
                Ok(())
            }
            InvalidInputs::Type { procedure, input, mismatch } => {
                write!(f, "input `{input}` of `{procedure}`: {mismatch}")
            }
        }
    }
}

impl core::error::Error for InvalidInputs {}
