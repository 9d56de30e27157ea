//! Bodies of pieces, and how they are executed.

use core::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::evaluate::evaluate_all;
use crate::{Code, Datum, Failure, Field, Slot, Table};

/// What a piece does. The compiler has checked all of its types, that it uses no column that the piece did not declare,
/// and that all of its rows are at one server. Servers check this again ([`crate::ProcedureSet::validate`]).
///
/// The parts are evaluated in the order of the fields. A row's key may use the columns of the rows before it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Body {
    /// The rows that it uses.
    pub rows: Vec<RowAccess>,
    /// Expressions that others use, and the slots that get them.
    pub named: Vec<(Slot, Code)>,
    /// What must hold; otherwise the call is refused.
    pub checks: Vec<Check>,
    /// Whether anything is written or deleted; if there is no such condition, it is.
    pub writes_if: Option<Code>,
    /// What is written. All expressions are evaluated before anything is written.
    pub writes: Vec<WriteColumn>,
    /// The rows that are deleted, by their places in `rows`.
    pub deletes: Vec<u16>,
    /// What the piece returns to the coordinator.
    pub outputs: Vec<(Field, Code)>,
    /// How many slots a frame has.
    pub slots: u16,
    /// Whether it can be refused or can fail.
    pub can_fail: bool,
}

/// A row that a body uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RowAccess {
    /// The place of its table in the set.
    pub table: u16,
    /// Its key.
    pub key: Vec<Code>,
    /// How many leading parts of the key use no column of another row. They are known before the body is executed. So a
    /// server can tell with what the piece may conflict: with all rows whose keys begin so.
    pub known: u16,
    /// The columns that it reads, and the slots that get them.
    pub reads: Vec<(u16, Slot)>,
    /// The slot that gets whether the row exists, if the body asks.
    pub exists: Option<Slot>,
}

/// A condition on which a piece insists.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// The condition.
    pub that: Code,
    /// What the caller gets to read if it does not hold.
    pub otherwise: String,
}

/// A column that a body writes. The row is created if it is absent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WriteColumn {
    /// The row, by its place in [`Body::rows`].
    pub row: u16,
    /// The place of the column in the row's table.
    pub column: u16,
    /// What it is set to.
    pub to: Code,
}

/// The columns of a row, in the order of its table. Clones are cheap.
pub type StoredRow = Arc<[Datum]>;

/// The rows of a server.
pub trait RowStore {
    /// The row of the table at this place in the set, with this key; `None` if it is absent. It sees what was written.
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow>;

    /// Writes a row.
    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow);

    /// Deletes a row.
    fn delete(&mut self, table: u16, key: &[Datum]);
}

/// Why a body did not execute. Nothing was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refused {
    /// A check does not hold. This is its message.
    Check(String),
    /// An expression failed. This says where and how: "piece `debit` failed: division by zero".
    Failure(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Check(text) | Refused::Failure(text) => f.write_str(text),
        }
    }
}

impl core::error::Error for Refused {}

impl Refused {
    /// Says where a failure happened: in a piece or a result, which is `what`, called `name`. A check speaks for itself.
    pub fn of(self, what: &str, name: &str) -> Refused {
        match self {
            Refused::Check(_) => self,
            Refused::Failure(how) => Refused::Failure(format!("{what} `{name}` failed: {how}")),
        }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Failure(failure.to_string())
    }
}

impl Body {
    /// Whether it writes or deletes anything.
    pub fn writes(&self) -> bool {
        !self.writes.is_empty() || !self.deletes.is_empty()
    }

    /// Executes the body on the rows of a server and returns its outputs. `arguments` are what the coordinator passes.
    /// [`crate::Piece::execute`] also names the piece if it fails.
    ///
    /// # Errors
    /// If a check does not hold, or an expression fails. Nothing was written then.
    pub fn execute(
        &self,
        tables: &[Table],
        arguments: &[Datum],
        store: &mut dyn RowStore,
    ) -> Result<Vec<Datum>, Refused> {
        let mut frame = self.frame(arguments);
        let mut used = self.read_rows(tables, &mut frame, store)?;
        for (slot, code) in &self.named {
            let datum = code.evaluate(&mut frame)?;
            slot.set(&mut frame, datum)?;
        }
        for check in &self.checks {
            if !check.that.bool(&mut frame)? {
                return Err(Refused::Check(check.otherwise.clone()));
            }
        }
        let writes =
            self.writes_if.as_ref().map_or(Ok(true), |condition| condition.bool(&mut frame))?;
        let written = evaluate_all(self.writes.iter().map(|write| &write.to), &mut frame)?;
        let outputs = evaluate_all(self.outputs.iter().map(|(_, code)| code), &mut frame)?;
        if writes {
            self.write_rows(tables, &mut used, written, store);
        }
        Ok(outputs)
    }

    /// A frame with these arguments.
    pub(crate) fn frame(&self, arguments: &[Datum]) -> Vec<Datum> {
        let slots = usize::from(self.slots);
        let mut frame = Vec::with_capacity(slots);
        frame.extend_from_slice(&arguments[..arguments.len().min(slots)]);
        frame.resize(slots, Datum::Bool(false));
        frame
    }

    /// Fills the slots of columns, and returns the rows.
    fn read_rows(
        &self,
        tables: &[Table],
        frame: &mut [Datum],
        store: &mut dyn RowStore,
    ) -> Result<Vec<UsedRow>, Failure> {
        let mut used = Vec::with_capacity(self.rows.len());
        for RowAccess { table, key, reads, exists, .. } in &self.rows {
            let mut parts = SmallVec::with_capacity(key.len());
            for part in key {
                let part = part.evaluate(frame)?;
                if !part.is_scalar() {
                    return Err(Failure::NotCompiled);
                }
                parts.push(part);
            }
            let key = parts;
            let is_read = !reads.is_empty() || exists.is_some();
            let mut row = None;
            if is_read {
                let found = store.read(*table, &key);
                if let Some(slot) = exists {
                    slot.set(frame, Datum::Bool(found.is_some()))?;
                }
                let found = found.unwrap_or_else(|| tables[usize::from(*table)].defaults().into());
                for (column, slot) in reads {
                    slot.set(frame, found[usize::from(*column)].clone())?;
                }
                row = Some(found);
            }
            used.push(UsedRow { table: *table, key, row });
        }
        Ok(used)
    }

    fn write_rows(
        &self,
        tables: &[Table],
        used: &mut [UsedRow],
        written: Vec<Datum>,
        store: &mut dyn RowStore,
    ) {
        let mut written = self.writes.iter().zip(written).peekable();
        while let Some((WriteColumn { row: at, column, .. }, datum)) = written.next() {
            let mut row = UsedRow::take(used, usize::from(*at), tables, store);
            row[usize::from(*column)] = datum;
            while let Some((WriteColumn { column, .. }, datum)) =
                written.next_if(|(write, _)| write.row == *at)
            {
                row[usize::from(*column)] = datum;
            }
            let UsedRow { table, key, .. } = &used[usize::from(*at)];
            store.write(*table, key, row.into());
        }
        for at in &self.deletes {
            let UsedRow { table, key, .. } = &used[usize::from(*at)];
            store.delete(*table, key);
        }
    }
}

/// A row that a body uses.
struct UsedRow {
    table: u16,
    key: SmallVec<[Datum; 4]>,
    /// Its columns, if they have been read and not been written since.
    row: Option<StoredRow>,
}

impl UsedRow {
    /// The columns of a row that is going to be written. Two accesses may be of the same row: the second finds what the
    /// first has written.
    fn take(
        used: &mut [UsedRow],
        at: usize,
        tables: &[Table],
        store: &mut dyn RowStore,
    ) -> Vec<Datum> {
        let (before, [own, after @ ..]) = used.split_at_mut(at) else {
            unreachable!("`at` is a row")
        };
        for other in before
            .iter_mut()
            .chain(after)
            .filter(|other| other.table == own.table && other.key == own.key)
        {
            other.row = None;
        }
        match own.row.take().or_else(|| store.read(own.table, &own.key)) {
            Some(row) => row.to_vec(),
            None => tables[usize::from(own.table)].defaults(),
        }
    }
}
