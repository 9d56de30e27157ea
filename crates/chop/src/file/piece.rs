//! Pieces of a procedure of a file.

use serried_procedures::limits::{
    MAX_LISTS, MAX_NAMED, MAX_OTHERWISE, MAX_OUTPUTS, MAX_READS, MAX_ROWS,
};
use serried_procedures::{
    Body, Check, Code, Cost, Field, Multiplicity, Piece, RowAccess, Slot, Table, Type, WriteColumn,
};
use toml::de::DeValue;

use super::check_name;
use super::document::{Entry, Name, Section, Text};
use super::procedure::{CompiledPiece, limit};
use crate::compile::{self, Declared, Scope, ScopedRow, Typed};
use crate::mistake::{Compiled, Misplaced, Span};

pub(super) fn compile(
    name: &Name<'_>,
    entry: Entry<'_>,
    tables: &[Table],
    declared: &Declared,
    source: &str,
) -> Compiled<CompiledPiece> {
    let section = entry.section(&format!("piece `{}`", name.text))?;
    section.allow(&[
        "for_each",
        "rows",
        "reads",
        "let",
        "checks",
        "writes_if",
        "writes",
        "deletes",
        "outputs",
    ])?;
    let (multiplicity, elements, fails, lists) = multiplicity(&section, declared, source)?;
    let occurrences = match multiplicity {
        Multiplicity::Once => 1,
        Multiplicity::ForEach { max, .. } => max,
    };
    let mut scope = Scope::new(declared);
    elements.into_iter().for_each(|element| scope.add_element(element));
    let mut piece = PieceCompiler {
        section: &section,
        tables,
        source,
        scope,
        body: Body::default(),
        rows: Vec::new(),
        cost: Cost::NONE,
        fails: None,
    };
    piece.rows()?;
    piece.named()?;
    piece.checks()?;
    piece.writes_if()?;
    piece.writes()?;
    piece.deletes()?;
    piece.outputs()?;
    piece.refuse_unused_rows()?;
    let fails = fails.or(piece.fails.take());
    let PieceCompiler { mut body, scope, cost, .. } = piece;
    let argument_types = scope.argument_types();
    let (arguments, slots, mut settle) = scope.settle(&name.span)?;
    let cost = cost.and(Cost::frame(slots));
    limit(&name.span, cost)?;
    settle_body(&mut body, &mut settle);
    body.slots = slots;
    body.can_fail = fails.is_some();
    let mut piece = Piece {
        name: name.text.to_owned(),
        multiplicity,
        arguments,
        argument_types,
        body,
        after: Vec::new(),
        needed: false,
        immediate: false,
    };
    piece.after = piece.uses().collect();
    piece.after.sort_unstable();
    piece.after.dedup();
    Ok(CompiledPiece { piece, fails, occurrences, steps: cost.steps, list_steps: lists.steps })
}

/// The outputs of a piece, as later pieces see them.
pub(super) fn outputs(compiled: &CompiledPiece) -> Vec<Field> {
    let seen = |of: &Type| match compiled.piece.multiplicity {
        Multiplicity::Once => of.clone(),
        Multiplicity::ForEach { max, .. } => Type::List { element: Box::new(of.clone()), max },
    };
    let outputs = compiled.piece.body.outputs.iter();
    outputs.map(|(Field { name, of }, _)| Field { name: name.clone(), of: seen(of) }).collect()
}

/// How often a piece occurs, the elements that each occurrence has, how computing this can fail, and what it takes.
fn multiplicity(
    section: &Section<'_>,
    declared: &Declared,
    source: &str,
) -> Compiled<(Multiplicity, Vec<Field>, Failing, Cost)> {
    let lists = section.at_most(MAX_LISTS, "lists to iterate", "for_each")?;
    if lists.is_empty() {
        return Ok((Multiplicity::Once, Vec::new(), None, Cost::NONE));
    }
    let mut scope = Scope::new(declared);
    let (mut elements, mut codes, mut fails, mut least) = (Vec::new(), Vec::new(), None, u32::MAX);
    let mut cost = Cost::NONE;
    for (name, entry) in lists {
        check_name(&name)?;
        scope.refuse_taken(name.text, &name.span)?;
        let text = entry.text("what is iterated", source)?;
        let compiled = compile::compile(&text, &mut scope)?;
        cost = cost.and(compiled.inferred.cost);
        limit(&text.span, cost)?;
        note_failure(&mut fails, &text, &compiled);
        let Ok((element, max)) = compiled.inferred.list() else {
            let message = format!("this is {}, and `for_each` needs a list", compiled.of());
            return Err(Misplaced { at: text.start, message });
        };
        least = least.min(max);
        elements.push(Field { name: name.text.to_owned(), of: element.clone() });
        codes.push(compiled.code);
    }
    let (arguments, slots, mut settle) = scope.settle(section.span())?;
    codes.iter_mut().for_each(|code| code.for_each_slot(&mut settle));
    let multiplicity = Multiplicity::ForEach { arguments, lists: codes, slots, max: least };
    Ok((multiplicity, elements, fails, cost))
}

/// Where and how a piece can fail first, if it can.
type Failing = Option<(usize, String)>;

fn note_failure(fails: &mut Failing, text: &Text<'_>, compiled: &Typed) {
    if let (None, Some(how)) = (&fails, compiled.inferred.cost.fails) {
        *fails = Some((text.start, how.to_owned()));
    }
}

/// A piece whose parts are compiled one after the other.
struct PieceCompiler<'c, 't> {
    section: &'c Section<'t>,
    tables: &'c [Table],
    source: &'c str,
    scope: Scope<'c>,
    body: Body,
    rows: Vec<DeclaredRow<'t>>,
    cost: Cost,
    fails: Failing,
}

/// A row of a piece.
struct DeclaredRow<'t> {
    name: &'t str,
    span: Span,
    used: bool,
}

impl<'c, 't> PieceCompiler<'c, 't> {
    fn compile(&mut self, text: &Text<'_>) -> Compiled<Typed> {
        let compiled = compile::compile(text, &mut self.scope)?;
        note_failure(&mut self.fails, text, &compiled);
        self.cost = self.cost.and(compiled.inferred.cost);
        Ok(compiled)
    }

    fn rows(&mut self) -> Compiled<()> {
        let rows = self.section.require("rows")?.section("`rows`")?;
        let entries: Vec<_> = rows.entries().collect();
        if entries.is_empty() || entries.len() > MAX_ROWS {
            return Err(Misplaced::new(rows.span(), format!("a piece uses 1 to {MAX_ROWS} rows")));
        }
        let reads = self.reads(&entries)?;
        for ((name, entry), reads) in entries.into_iter().zip(reads) {
            check_name(&name)?;
            self.scope.refuse_taken(name.text, &name.span)?;
            self.row(&name, entry, reads)?;
        }
        Ok(())
    }

    /// What the piece declares to read of each row: columns, and whether it exists.
    fn reads(&self, rows: &[(Name<'t>, Entry<'t>)]) -> Compiled<Vec<DeclaredReads<'t>>> {
        let mut reads: Vec<DeclaredReads<'t>> =
            rows.iter().map(|_| DeclaredReads::default()).collect();
        let declared = self.section.elements_of("reads")?;
        if let Some(entry) = declared.get(MAX_READS) {
            let message =
                format!("a piece reads at most {MAX_READS} columns, and this is one more");
            return Err(Misplaced::new(&entry.span(), message));
        }
        for entry in declared {
            let text = entry.text("what is read", self.source)?;
            let (row, column) = match text.text.split_once('.') {
                Some((row, column)) => (row, Some(column)),
                None => (text.text, None),
            };
            let Some(at) = rows.iter().position(|(name, _)| name.text == row) else {
                let rows: Vec<&str> = rows.iter().map(|(name, _)| name.text).collect();
                let message =
                    format!("the piece has no row `{row}`; it has `{}`", rows.join("`, `"));
                return Err(Misplaced { at: text.start, message });
            };
            match column {
                Some(column) => reads[at].columns.push((column, text.start)),
                None => reads[at].exists = true,
            }
        }
        Ok(reads)
    }

    fn row(&mut self, name: &Name<'t>, entry: Entry<'t>, reads: DeclaredReads<'t>) -> Compiled<()> {
        let (table, key) = match entry.value() {
            DeValue::Table(_) => {
                let section = entry.section(&format!("row `{}`", name.text))?;
                section.allow(&["table", "key"])?;
                let table = section.require("table")?.text("a table's name", self.source)?;
                (
                    Name { text: table.text, span: table.span },
                    section.require("key")?.elements("key")?,
                )
            }
            _ => (Name { text: name.text, span: name.span.clone() }, entry.elements(name.text)?),
        };
        let tables = self.tables;
        let Some(place) = tables.iter().position(|known| known.name == table.text) else {
            let known: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
            let message =
                format!("there is no table `{}`; there are `{}`", table.text, known.join("`, `"));
            return Err(Misplaced::new(&table.span, message));
        };
        let table = &tables[place];
        let is_read = !reads.columns.is_empty() || reads.exists;
        let cost = Cost::row(table.columns.len(), table.max_bytes(), is_read);
        self.cost = self.cost.and(cost);
        let (key, known) = self.key(name, entry, table, key)?;
        self.refuse_elsewhere(name, table, &key)?;
        let mut columns: Vec<(u16, Slot)> = Vec::new();
        for (column, at) in reads.columns {
            let Some(place) = table.column(column) else {
                let message = format!("table `{}` has no column `{column}`", table.name);
                return Err(Misplaced { at, message });
            };
            columns.push((place as u16, self.scope.new_slot()));
        }
        let exists = reads.exists.then(|| self.scope.new_slot());
        let scoped =
            ScopedRow { name: name.text.to_owned(), table, reads: columns.clone(), exists };
        self.scope.add_row(scoped);
        let used = !columns.is_empty() || exists.is_some();
        self.rows.push(DeclaredRow { name: name.text, span: name.span.clone(), used });
        self.body.rows.push(RowAccess { table: place as u16, key, known, reads: columns, exists });
        Ok(())
    }

    /// The key of a row, and how many of its leading parts are known before the piece is executed.
    fn key(
        &mut self,
        name: &Name<'_>,
        entry: Entry<'_>,
        table: &Table,
        parts: Vec<Entry<'_>>,
    ) -> Compiled<(Vec<Code>, u16)> {
        if parts.len() != table.key.len() {
            let wanted: Vec<String> =
                table.key.iter().map(|part| format!("{}: {}", part.name, part.of)).collect();
            let message = format!("the key of table `{}` is [{}]", table.name, wanted.join(", "));
            return Err(Misplaced::new(&entry.span(), message));
        }
        let (mut key, mut known) = (Vec::new(), parts.len());
        for (at, (part, entry)) in table.key.iter().zip(parts).enumerate() {
            let text = entry.text("a part of a key", self.source)?;
            let compiled = self.compile(&text)?;
            if !part.of.holds(compiled.of()) {
                let message = format!(
                    "`{}` of table `{}` is {}, and this is {}",
                    part.name,
                    table.name,
                    part.of,
                    compiled.of()
                );
                return Err(Misplaced { at: text.start, message });
            }
            let mut code = compiled.code;
            if self.depends_on_rows(&mut code) {
                if at < table.placed_by {
                    let message = format!(
                        "`{}` decides which server has row `{}`, so it can't depend on another row of this piece; make it two                          pieces",
                        part.name, name.text
                    );
                    return Err(Misplaced { at: text.start, message });
                }
                known = known.min(at);
            }
            key.push(code);
        }
        Ok((key, known as u16))
    }

    /// Whether a key uses what is read from rows.
    fn depends_on_rows(&self, code: &mut Code) -> bool {
        let mut depends = false;
        code.for_each_slot(&mut |slot| {
            let read = |row: &RowAccess| {
                row.exists == Some(*slot) || row.reads.iter().any(|(_, read)| read == slot)
            };
            depends |= self.body.rows.iter().any(read);
        });
        depends
    }

    /// All rows of a piece are at one server: the expressions that decide where they are, are the same.
    fn refuse_elsewhere(&self, name: &Name<'_>, table: &Table, key: &[Code]) -> Compiled<()> {
        let (Some(first), Some(row)) = (self.body.rows.first(), self.rows.first()) else {
            return Ok(());
        };
        let first_table = &self.tables[usize::from(first.table)];
        if first.key[..first_table.placed_by] == key[..table.placed_by] {
            return Ok(());
        }
        let message = format!(
            "row `{}` of table `{}` may be at another server than row `{}` of table `{}`: the leading {} and {} parts of their \
             keys decide, and they differ; make it two pieces",
            name.text,
            table.name,
            row.name,
            first_table.name,
            table.placed_by,
            first_table.placed_by
        );
        Err(Misplaced::new(&name.span, message))
    }

    fn named(&mut self) -> Compiled<()> {
        for (name, entry) in self.section.at_most(MAX_NAMED, "named expressions", "let")? {
            check_name(&name)?;
            self.scope.refuse_taken(name.text, &name.span)?;
            let text = entry.text("an expression", self.source)?;
            let compiled = self.compile(&text)?;
            let slot = self.scope.add_named(name.text, compiled.of().clone());
            self.body.named.push((slot, compiled.code));
        }
        Ok(())
    }

    fn checks(&mut self) -> Compiled<()> {
        for entry in self.section.elements_of("checks")? {
            let check = entry.section("a check")?;
            check.allow(&["that", "otherwise"])?;
            let text = check.require("that")?.text("`that`", self.source)?;
            let that = self.compile_bool(&text, "a check")?;
            self.fails.get_or_insert_with(|| (text.start, "it has a check".to_owned()));
            let otherwise = check.require("otherwise")?.text("`otherwise`", self.source)?;
            if otherwise.text.len() > MAX_OTHERWISE {
                let message = format!("the text of a check has at most {MAX_OTHERWISE} bytes");
                return Err(Misplaced::new(&otherwise.span, message));
            }
            self.body.checks.push(Check { that, otherwise: otherwise.text.to_owned() });
        }
        Ok(())
    }

    fn writes_if(&mut self) -> Compiled<()> {
        if let Some(entry) = self.section.get("writes_if") {
            let text = entry.text("`writes_if`", self.source)?;
            self.body.writes_if = Some(self.compile_bool(&text, "a condition")?);
        }
        Ok(())
    }

    fn compile_bool(&mut self, text: &Text<'_>, what: &str) -> Compiled<Code> {
        let compiled = self.compile(text)?;
        if *compiled.of() != Type::Bool {
            return Err(Misplaced {
                at: text.start,
                message: format!("{what} is bool, and this is {}", compiled.of()),
            });
        }
        Ok(compiled.code)
    }

    fn writes(&mut self) -> Compiled<()> {
        for (name, entry) in self.section.entries_of("writes")? {
            let at = self.use_row(&name)?;
            let place = self.body.rows[usize::from(at)].table;
            let table = &self.tables[usize::from(place)];
            for (column, entry) in
                entry.section(&format!("what is written to row `{}`", name.text))?.entries()
            {
                let Some(place) = table.column(column.text) else {
                    let message = format!("table `{}` has no column `{}`", table.name, column.text);
                    return Err(Misplaced::new(&column.span, message));
                };
                let text = entry.text("what is written", self.source)?;
                let compiled = self.compile(&text)?;
                let of = &table.columns[place].of;
                if !of.holds(compiled.of()) {
                    let message = format!(
                        "column `{}` of table `{}` is {of}, and this is {}{}",
                        column.text,
                        table.name,
                        compiled.of(),
                        if of.join(compiled.of()).is_some() {
                            "; `left(text, bytes)` shortens a string"
                        } else {
                            ""
                        }
                    );
                    return Err(Misplaced { at: text.start, message });
                }
                self.body.writes.push(WriteColumn {
                    row: at,
                    column: place as u16,
                    to: compiled.code,
                });
            }
        }
        Ok(())
    }

    fn deletes(&mut self) -> Compiled<()> {
        for entry in self.section.elements_of("deletes")? {
            let text = entry.text("a row", self.source)?;
            let at = self.use_row(&Name { text: text.text, span: text.span.clone() })?;
            if self.body.deletes.contains(&at) {
                let message = format!("row `{}` is deleted already", text.text);
                return Err(Misplaced { at: text.start, message });
            }
            self.body.deletes.push(at);
        }
        Ok(())
    }

    fn outputs(&mut self) -> Compiled<()> {
        for (name, entry) in self.section.at_most(MAX_OUTPUTS, "outputs", "outputs")? {
            check_name(&name)?;
            let text = entry.text("an output", self.source)?;
            let compiled = self.compile(&text)?;
            let field = Field { name: name.text.to_owned(), of: compiled.of().clone() };
            self.body.outputs.push((field, compiled.code));
        }
        Ok(())
    }

    /// The place of a row that is written or deleted.
    fn use_row(&mut self, name: &Name<'_>) -> Compiled<u16> {
        let found = self.rows.iter().position(|row| row.name == name.text);
        let Some(at) = found else {
            let rows: Vec<&str> = self.rows.iter().map(|row| row.name).collect();
            let message =
                format!("the piece has no row `{}`; it has `{}`", name.text, rows.join("`, `"));
            return Err(Misplaced::new(&name.span, message));
        };
        self.rows[at].used = true;
        Ok(at as u16)
    }

    fn refuse_unused_rows(&self) -> Compiled<()> {
        match self.rows.iter().find(|row| !row.used) {
            Some(row) => {
                let message = format!(
                    "row `{}` is neither read nor written; `reads` names columns",
                    row.name
                );
                Err(Misplaced::new(&row.span, message))
            }
            None => Ok(()),
        }
    }
}

/// What a piece declares to read of one row.
#[derive(Default)]
struct DeclaredReads<'t> {
    columns: Vec<(&'t str, usize)>,
    exists: bool,
}

fn settle_body(body: &mut Body, settle: &mut impl FnMut(&mut Slot)) {
    for RowAccess { key, reads, exists, .. } in &mut body.rows {
        key.iter_mut().for_each(|code| code.for_each_slot(settle));
        reads.iter_mut().for_each(|(_, slot)| settle(slot));
        exists.iter_mut().for_each(&mut *settle);
    }
    for (slot, code) in &mut body.named {
        settle(slot);
        code.for_each_slot(settle);
    }
    body.checks.iter_mut().for_each(|check| check.that.for_each_slot(settle));
    body.writes_if.iter_mut().for_each(|condition| condition.for_each_slot(settle));
    body.writes.iter_mut().for_each(|write| write.to.for_each_slot(settle));
    body.outputs.iter_mut().for_each(|(_, code)| code.for_each_slot(settle));
}
