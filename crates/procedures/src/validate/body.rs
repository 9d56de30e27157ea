//! Validation of bodies.

use std::rc::Rc;

use super::frame::Frame;
use super::{Checked, Shaped, at_most, check, check_holds, found, quoted, shape};
use crate::limits::{MAX_NAMED, MAX_OTHERWISE, MAX_READS, MAX_ROWS};
use crate::{Body, Code, Cost, RowAccess, Type, WriteColumn};

/// Checks a body in a frame with its arguments. Returns what it takes.
pub(super) fn validate(body: &Body, frame: Frame, tables: &[Shaped<'_>]) -> Checked<Cost> {
    let Body { rows, named, checks, .. } = body;
    check(!rows.is_empty(), || "it uses no row".to_owned())?;
    at_most(rows.len(), MAX_ROWS, "rows")?;
    at_most(rows.iter().map(|row| row.reads.len()).sum(), MAX_READS, "columns that it reads")?;
    at_most(named.len(), MAX_NAMED, "named expressions")?;
    let longest = checks.iter().map(|check| check.otherwise.len()).max().unwrap_or(0);
    at_most(longest, MAX_OTHERWISE, "bytes in the text of a check")?;
    let cost = Cost::frame(body.slots);
    let mut validation = Validation { body, frame, tables, cost };
    validation.rows()?;
    validation.expressions()?;
    validation.writes()?;
    validation.deletes()?;
    validation.outputs()?;
    Ok(validation.cost)
}

/// A body whose parts are checked one after the other.
struct Validation<'v> {
    body: &'v Body,
    frame: Frame,
    tables: &'v [Shaped<'v>],
    cost: Cost,
}

impl<'v> Validation<'v> {
    /// The type of an expression of the body.
    fn infer(&mut self, code: &Code) -> Checked<Rc<Type>> {
        let inferred = self.frame.infer(code)?;
        self.cost = self.cost.and(inferred.cost);
        Ok(inferred.of)
    }

    fn table(&self, row: &RowAccess) -> &'v Shaped<'v> {
        &self.tables[usize::from(row.table)]
    }

    fn rows(&mut self) -> Checked {
        let rows = &self.body.rows;
        for (at, row) in rows.iter().enumerate() {
            let table = found(self.tables.get(usize::from(row.table)), || {
                format!("row {at} is of table {}, which there is not", row.table)
            })?;
            let is_read = !row.reads.is_empty() || row.exists.is_some();
            let cost = Cost::row(table.columns.len(), table.bytes, is_read);
            self.cost = self.cost.and(cost);
            let (parts, placed_by) = (table.table.key.len(), table.table.placed_by);
            check(row.key.len() == parts, || {
                format!("the key of row {at} has {} parts instead of {parts}", row.key.len())
            })?;
            check((placed_by..=parts).contains(&usize::from(row.known)), || {
                format!(
                    "{} parts of the key of row {at} are known instead of {placed_by} to {parts}",
                    row.known
                )
            })?;
            let first = &rows[0];
            let place_of_first = &first.key[..self.table(first).table.placed_by];
            check(row.key[..placed_by] == *place_of_first, || {
                format!("row {at} may be at another server than row 0")
            })?;
        }
        // No row has been read when servers evaluate the parts that are known.
        for row in rows {
            let known = usize::from(row.known);
            row.key[..known]
                .iter()
                .enumerate()
                .try_for_each(|(at, part)| self.key(row, at, part))?;
        }
        for (at, row) in rows.iter().enumerate() {
            let parts = row.key.iter().enumerate().skip(usize::from(row.known));
            parts.into_iter().try_for_each(|(at, part)| self.key(row, at, part))?;
            if let Some(slot) = row.exists {
                self.frame.fill(slot, Rc::new(Type::Bool))?;
            }
            for (column, slot) in &row.reads {
                let of = self.table(row).columns.get(usize::from(*column)).cloned();
                let of = found(of, || format!("row {at} has no column {column} to read"))?;
                self.frame.fill(*slot, of)?;
            }
        }
        Ok(())
    }

    fn key(&mut self, row: &RowAccess, at: usize, part: &Code) -> Checked {
        let of = self.infer(part)?;
        let table = self.table(row).table;
        let wanted = &table.key[at];
        check_holds(&wanted.of, &of, || {
            format!("{} of table {}", quoted(&wanted.name), quoted(&table.name))
        })
    }

    /// What has a name, and the conditions.
    fn expressions(&mut self) -> Checked {
        let Body { named, checks, writes_if, .. } = self.body;
        for (slot, code) in named {
            let of = self.infer(code)?;
            self.frame.fill(*slot, of)?;
        }
        for code in checks.iter().map(|check| &check.that).chain(writes_if) {
            let of = self.infer(code)?;
            check_holds(&Type::Bool, &of, || "a condition".to_owned())?;
        }
        Ok(())
    }

    fn writes(&mut self) -> Checked {
        let Body { rows, writes, .. } = self.body;
        // A body copies a row once for all of its columns that follow each other.
        let mut written = [false; MAX_ROWS];
        for of_row in writes.chunk_by(|one, next| one.row == next.row) {
            let at = usize::from(of_row[0].row);
            let row = found(rows.get(at), || format!("there is no row {at} to write"))?;
            check(!written[at], || format!("row {at} is written twice"))?;
            written[at] = true;
            let table = self.table(row);
            let mut columns = vec![false; table.columns.len()];
            for WriteColumn { column, to, .. } in of_row {
                let place = usize::from(*column);
                let of = table.columns.get(place);
                let of = found(of, || format!("row {at} has no column {column} to write"))?;
                let name = || quoted(&table.table.columns[place].name);
                check(!columns[place], || {
                    format!("column {} of row {at} is written twice", name())
                })?;
                columns[place] = true;
                let to = self.infer(to)?;
                check_holds(of, &to, || {
                    format!("column {} of table {}", name(), quoted(&table.table.name))
                })?;
            }
        }
        Ok(())
    }

    fn deletes(&self) -> Checked {
        let mut deleted = [false; MAX_ROWS];
        for at in self.body.deletes.iter().map(|at| usize::from(*at)) {
            check(at < self.body.rows.len(), || format!("there is no row {at} to delete"))?;
            check(!deleted[at], || format!("row {at} is deleted twice"))?;
            deleted[at] = true;
        }
        Ok(())
    }

    fn outputs(&mut self) -> Checked {
        for (field, code) in &self.body.outputs {
            let of = self.infer(code)?;
            check_holds(&*shape(&field.of)?, &of, || format!("output {}", quoted(&field.name)))?;
        }
        Ok(())
    }
}
