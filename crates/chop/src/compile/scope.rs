//! What names mean in an expression.

use serried_procedures::limits::MAX_SLOTS;
use serried_procedures::{Argument, Code, Field, PieceId, Slot, Table, Type};

use crate::mistake::{Compiled, Misplaced, Span};

/// Slots from here on are not arguments. How many arguments there are is known when all is compiled;
/// [`Scope::settle`] moves the others behind them.
const BEHIND_ARGUMENTS: u16 = 1 << 15;

/// What a procedure has said about itself so far. Pieces use the outputs of those above them.
#[derive(Default)]
pub(crate) struct Declared {
    pub(crate) inputs: Vec<Field>,
    pub(crate) pieces: Vec<DeclaredPiece>,
}

/// The outputs of a piece, as other pieces see them.
pub(crate) struct DeclaredPiece {
    pub(crate) name: String,
    pub(crate) outputs: Vec<Field>,
}

/// The names that an expression can use, and the frame in which it is evaluated.
pub(crate) struct Scope<'a> {
    declared: &'a Declared,
    /// The lists that a piece iterates: the name and type of the element of each.
    elements: Vec<Field>,
    rows: Vec<ScopedRow<'a>>,
    /// What has a slot behind the arguments: named expressions, and elements of lists that an expression iterates.
    named: Vec<(String, Slot, Type)>,
    arguments: Vec<Argument>,
    behind: usize,
}

/// A row, and what the piece has declared to read of it.
pub(crate) struct ScopedRow<'a> {
    pub(crate) name: String,
    pub(crate) table: &'a Table,
    pub(crate) reads: Vec<(u16, Slot)>,
    pub(crate) exists: Option<Slot>,
}

/// What a path such as `order.customer` starts with.
pub(crate) enum Meaning {
    /// The first name alone is a datum.
    Datum(Code, Type),
    /// The first two names together are a datum.
    Member(Code, Type),
}

impl<'a> Scope<'a> {
    pub(crate) fn new(declared: &'a Declared) -> Scope<'a> {
        Scope {
            declared,
            elements: Vec::new(),
            rows: Vec::new(),
            named: Vec::new(),
            arguments: Vec::new(),
            behind: 0,
        }
    }

    /// Refuses a name that already means something here.
    pub(crate) fn refuse_taken(&self, name: &str, at: &Span) -> Compiled<()> {
        let taken = if name == "index" && !self.elements.is_empty() {
            "the place of the element"
        } else if self.declared.inputs.iter().any(|input| input.name == name) {
            "an input"
        } else if self.declared.pieces.iter().any(|piece| piece.name == name) {
            "a piece"
        } else if self.elements.iter().any(|element| element.name == name) {
            "an element"
        } else if self.rows.iter().any(|row| row.name == name) {
            "a row"
        } else if self.named.iter().any(|(named, ..)| named == name) {
            "an expression"
        } else {
            return Ok(());
        };
        Err(Misplaced::new(at, format!("`{name}` is already the name of {taken}; choose another")))
    }

    pub(crate) fn add_element(&mut self, element: Field) {
        self.elements.push(element);
    }

    pub(crate) fn add_row(&mut self, row: ScopedRow<'a>) {
        self.rows.push(row);
    }

    /// A new slot behind the arguments. [`Scope::settle`] refuses a frame of too many.
    pub(crate) fn new_slot(&mut self) -> Slot {
        self.behind += 1;
        Slot(BEHIND_ARGUMENTS + self.behind.min(MAX_SLOTS) as u16 - 1)
    }

    /// Gives an expression a name and a slot.
    pub(crate) fn add_named(&mut self, name: &str, of: Type) -> Slot {
        let slot = self.new_slot();
        self.named.push((name.to_owned(), slot, of));
        slot
    }

    /// Takes the last name away again: that of the element of a list which an expression has iterated.
    pub(crate) fn remove_last_named(&mut self) {
        self.named.pop();
    }

    /// The place of a row.
    pub(crate) fn row(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.name == name)
    }

    pub(crate) fn scoped_row(&self, at: usize) -> &ScopedRow<'a> {
        &self.rows[at]
    }

    /// What `first`, or `first.second`, means.
    pub(crate) fn meaning(&mut self, first: &str, second: Option<&str>) -> Result<Meaning, String> {
        if let Some((_, slot, of)) = self.named.iter().find(|(name, ..)| name == first) {
            return Ok(Meaning::Datum(Code::Slot(*slot), of.clone()));
        }
        if let Some(at) = self.row(first) {
            return self.column(at, second);
        }
        if let Some(at) = self.elements.iter().position(|element| element.name == first) {
            let of = self.elements[at].of.clone();
            return Ok(self.argument(Argument::Element(at as u16), of));
        }
        if first == "index" && !self.elements.is_empty() {
            return Ok(self.argument(Argument::Index, Type::Int));
        }
        if let Some(at) = self.declared.inputs.iter().position(|input| input.name == first) {
            return Ok(
                self.argument(Argument::Input(at as u16), self.declared.inputs[at].of.clone())
            );
        }
        if let Some(at) = self.declared.pieces.iter().position(|piece| piece.name == first) {
            return self.output(at, second);
        }
        Err(format!("nothing is named `{first}` here; {}", self.known()))
    }

    fn column(&self, at: usize, column: Option<&str>) -> Result<Meaning, String> {
        let ScopedRow { name, table, reads, .. } = &self.rows[at];
        let Some(column) = column else {
            return Err(format!(
                "`{name}` is a row; say which column, such as `{name}.{}`",
                table.columns[0].name
            ));
        };
        let Some(place) = table.column(column) else {
            let columns: Vec<&str> =
                table.columns.iter().map(|column| column.name.as_str()).collect();
            return Err(format!(
                "table `{}` has no column `{column}`; it has `{}`",
                table.name,
                columns.join("`, `")
            ));
        };
        match reads.iter().find(|(read, _)| usize::from(*read) == place) {
            Some((_, slot)) => {
                Ok(Meaning::Member(Code::Slot(*slot), table.columns[place].of.clone()))
            }
            None => Err(format!(
                "`{name}.{column}` is used and not declared; add it to the piece's `reads`"
            )),
        }
    }

    fn output(&mut self, at: usize, output: Option<&str>) -> Result<Meaning, String> {
        let DeclaredPiece { name, outputs } = &self.declared.pieces[at];
        let found = output.and_then(|output| outputs.iter().position(|field| field.name == output));
        let Some(place) = found else {
            let outputs: Vec<&str> = outputs.iter().map(|field| field.name.as_str()).collect();
            let has = if outputs.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has `{}`", outputs.join("`, `"))
            };
            return Err(match output {
                Some(output) => format!("piece `{name}` has no output `{output}`; {has}"),
                None => format!("`{name}` is a piece; say which of its outputs: {has}"),
            });
        };
        let of = outputs[place].of.clone();
        match self.argument(Argument::Output(PieceId(at as u16), place as u16), of) {
            Meaning::Datum(code, of) => Ok(Meaning::Member(code, of)),
            member => Ok(member),
        }
    }

    /// An argument's slot is its place among the arguments.
    fn argument(&mut self, argument: Argument, of: Type) -> Meaning {
        let known = self.arguments.iter().position(|known| *known == argument);
        let at = known.unwrap_or_else(|| {
            self.arguments.push(argument);
            self.arguments.len() - 1
        });
        Meaning::Datum(Code::Slot(Slot(at.min(MAX_SLOTS) as u16)), of)
    }

    fn known(&self) -> String {
        let inputs = self.declared.inputs.iter().map(|input| &input.name);
        let pieces = self.declared.pieces.iter().map(|piece| &piece.name);
        let elements = self.elements.iter().map(|element| &element.name);
        let rows = self.rows.iter().map(|row| &row.name);
        let named = self.named.iter().map(|(name, ..)| name);
        let known: Vec<&str> = elements
            .chain(rows)
            .chain(named)
            .chain(inputs)
            .chain(pieces)
            .map(String::as_str)
            .collect();
        if known.is_empty() {
            "there are no names".to_owned()
        } else {
            format!("these are: `{}`", known.join("`, `"))
        }
    }

    /// The types of what the coordinator has to pass.
    pub(crate) fn argument_types(&self) -> Vec<Type> {
        let of = |argument: &Argument| match *argument {
            Argument::Input(at) => self.declared.inputs[usize::from(at)].of.clone(),
            Argument::Output(PieceId(piece), at) => {
                self.declared.pieces[usize::from(piece)].outputs[usize::from(at)].of.clone()
            }
            Argument::Element(at) => self.elements[usize::from(at)].of.clone(),
            Argument::Index => Type::Int,
        };
        self.arguments.iter().map(of).collect()
    }

    /// Ends the scope: what the coordinator has to pass, how many slots a frame has, and the function that moves a slot
    /// to its place in it. `at` is where the expressions are.
    pub(crate) fn settle(
        self,
        at: &Span,
    ) -> Compiled<(Vec<Argument>, u16, impl FnMut(&mut Slot) + use<>)> {
        let slots = self.arguments.len() + self.behind;
        if slots > MAX_SLOTS {
            let message = format!(
                "this needs {slots} slots, for its arguments, the columns that it reads, its named expressions and the lists \
                 that it iterates; the limit is {MAX_SLOTS}; make it several pieces"
            );
            return Err(Misplaced::new(at, message));
        }
        let arguments = self.arguments.len() as u16;
        let settle = move |slot: &mut Slot| {
            if slot.0 >= BEHIND_ARGUMENTS {
                slot.0 = slot.0 - BEHIND_ARGUMENTS + arguments;
            }
        };
        Ok((self.arguments, slots as u16, settle))
    }
}
