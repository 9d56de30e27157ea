//! Verification of sets that come from another process, as that of bytecode: whatever a client sends, what servers run has
//! the types and the bounds that the compiler proves.

mod body;
mod frame;
mod order;
mod procedure;
#[cfg(test)]
mod tests;

use core::fmt;
use std::rc::Rc;

use crate::limits::{MAX_COLUMNS, MAX_KEY, MAX_NAME, TooMuch};
use crate::{Mistyped, ProcedureSet, Table, Type};

/// A set that the compiler would not have made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotCompiled {
    /// Where: a table, a procedure, or a piece or a result of one.
    place: String,
    wrong: Wrong,
}

impl fmt::Display for NotCompiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match &self.wrong {
            Wrong::Malformed(what) => {
                write!(f, "{place} is not as the compiler makes it: {what}")
            }
            Wrong::TooMuch(much) => write!(f, "{place}: {much}"),
        }
    }
}

impl core::error::Error for NotCompiled {}

/// What is wrong at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Wrong {
    /// It is not of its type, or refers to what there is not.
    Malformed(String),
    /// It is above a limit.
    TooMuch(TooMuch),
}

impl Wrong {
    fn of(self, place: String) -> NotCompiled {
        NotCompiled { place, wrong: self }
    }
}

impl From<TooMuch> for Wrong {
    fn from(much: TooMuch) -> Wrong {
        Wrong::TooMuch(much)
    }
}

impl From<Mistyped> for Wrong {
    fn from(mistyped: Mistyped) -> Wrong {
        Wrong::Malformed(mistyped.message)
    }
}

/// What is checked: whether it holds, or what is wrong.
type Checked<T = ()> = Result<T, Wrong>;

fn check(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Wrong::Malformed(what())) }
}

/// What is referred to, if there is such a thing.
fn found<T>(referred: Option<T>, none: impl FnOnce() -> String) -> Checked<T> {
    referred.ok_or_else(|| Wrong::Malformed(none()))
}

fn at_most(found: usize, most: usize, of: &str) -> Checked {
    if found <= most {
        return Ok(());
    }
    Err(Wrong::TooMuch(TooMuch(format!("there are {found} {of}, and the limit is {most}"))))
}

/// A name in a message. It may have any characters, and be too long.
fn quoted(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        None => format!("`{}`", name.escape_debug()),
        Some((end, _)) => format!("`{}...`", name[..end].escape_debug()),
    }
}

/// Checks that whatever is of type `found` can be where `wanted` was declared.
fn check_holds(wanted: &Type, found: &Type, what: impl FnOnce() -> String) -> Checked {
    check(wanted.holds(found), || format!("{} is {wanted}, and this is {found}", what()))
}

/// The shape of a declared type.
fn shape(of: &Type) -> Checked<Rc<Type>> {
    of.check_size()?;
    check_fields(of)?;
    Ok(Rc::new(of.shape()))
}

/// Checks the names of fields.
fn check_fields(of: &Type) -> Checked {
    match of {
        Type::Bool | Type::Int | Type::String { .. } | Type::Bytes { .. } => Ok(()),
        Type::List { element, .. } => check_fields(element),
        Type::Record(fields) => fields.iter().try_for_each(|field| {
            check_name(&field.name)?;
            check_fields(&field.of)
        }),
    }
}

/// Checks the length of a name.
fn check_name(name: &str) -> Checked {
    match name.len() <= MAX_NAME {
        true => Ok(()),
        false => Err(Wrong::TooMuch(TooMuch(format!(
            "a name has {} bytes, and the limit is {MAX_NAME}",
            name.len()
        )))),
    }
}

/// A table, with the shapes of the types of its columns.
struct Shaped<'s> {
    table: &'s Table,
    columns: Vec<Rc<Type>>,
    /// [`Table::max_bytes`].
    bytes: (u64, u64),
}

impl ProcedureSet {
    /// Checks that the compiler could have made the set, so that its procedures can be called:
    ///
    /// - It refers only to what it has.
    /// - All expressions and declarations have types that fit, and a slot is used only where it is filled.
    /// - Nothing is above the [limits](crate::limits). The bounds of steps and memory are inferred as the compiler does.
    /// - A body that can fail says so. In a procedure that writes, whatever can fail comes before the first write. No piece
    ///   waits for itself, and each waits for those whose outputs it uses.
    /// - All rows of a body are at one server, as far as the expressions tell that decide where they are.
    ///
    /// This does not say that its pieces can be reordered. The offline checker marks the pieces that are immediate, and
    /// merges some; both are taken as they are.
    ///
    /// Expressions and types are followed with the stack, as deep as decoding lets them nest. Each operation is visited once,
    /// and its type has at most [`MAX_PARTS_OF_TYPE`](crate::limits::MAX_PARTS_OF_TYPE) parts. So the time grows with the size
    /// of the set, which [`ProcedureSet::check_replacement`] bounds. The types of at most
    /// [`MAX_OPERATIONS`](crate::limits::MAX_OPERATIONS) operations are in memory at once.
    ///
    /// # Errors
    /// [`NotCompiled`] has the first thing that is wrong.
    pub fn validate(&self) -> Result<(), NotCompiled> {
        let mut tables = Vec::with_capacity(self.tables.len());
        for table in &self.tables {
            let shaped = shape_table(table);
            tables
                .push(shaped.map_err(|wrong| wrong.of(format!("table {}", quoted(&table.name))))?);
        }
        let bytes: Vec<(u64, u64)> = tables.iter().map(|table| table.bytes).collect();
        let mut procedures = self.procedures.iter();
        procedures.try_for_each(|declared| procedure::validate(declared, &tables, &bytes))
    }
}

fn shape_table(table: &Table) -> Checked<Shaped<'_>> {
    check_name(&table.name)?;
    at_most(table.key.len(), MAX_KEY, "parts of its key")?;
    at_most(table.columns.len(), MAX_COLUMNS, "columns")?;
    check(!table.columns.is_empty(), || "it has no columns".to_owned())?;
    check((1..=table.key.len()).contains(&table.placed_by), || {
        format!(
            "{} parts of its key decide where a row is, and it has {}",
            table.placed_by,
            table.key.len()
        )
    })?;
    for part in &table.key {
        let is_scalar = !matches!(part.of, Type::List { .. } | Type::Record(_));
        check(is_scalar, || format!("{} can't be a part of its key", quoted(&part.name)))?;
        check_name(&part.name)?;
    }
    let mut columns = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        check_name(&column.name)?;
        columns.push(shape(&column.of)?);
        let default = column.of.check(&column.default);
        default.map_err(|mismatch| {
            Wrong::Malformed(format!("the default of {}: {mismatch}", quoted(&column.name)))
        })?;
    }
    Ok(Shaped { table, columns, bytes: table.max_bytes() })
}
