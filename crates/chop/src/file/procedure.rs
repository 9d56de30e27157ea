//! Procedures of a file.

use serried_procedures::limits::{MAX_INPUTS, MAX_PIECES, MAX_RESULTS, check_call, check_data};
use serried_procedures::{Cost, Field, Piece, Procedure, Returned, Table};

use super::document::{Entry, Name};
use super::{check_name, order, piece, types};
use crate::compile::{self, Declared, DeclaredPiece, Scope};
use crate::mistake::{Compiled, Misplaced, Span};

/// A piece, with what the order of the procedure's pieces depends on.
pub(super) struct CompiledPiece {
    pub(super) piece: Piece,
    /// Where and how it can fail first.
    pub(super) fails: Option<(usize, String)>,
    pub(super) occurrences: u32,
    /// How many steps each occurrence takes at most.
    pub(super) steps: u64,
    /// How many steps the lists take that it iterates.
    pub(super) list_steps: u64,
}

pub(super) fn compile(
    name: &Name<'_>,
    entry: Entry<'_>,
    tables: &[Table],
    source: &str,
) -> Compiled<Procedure> {
    let section = entry.section(&format!("procedure `{}`", name.text))?;
    section.allow(&["inputs", "pieces", "returns"])?;
    let mut declared = Declared::default();
    for (input, entry) in section.at_most(MAX_INPUTS, "inputs", "inputs")? {
        check_name(&input)?;
        declared
            .inputs
            .push(Field { name: input.text.to_owned(), of: types::compile(entry, source)? });
    }
    let mut pieces = Vec::new();
    section.require("pieces")?;
    for (name, entry) in section.at_most(MAX_PIECES, "pieces", "pieces")? {
        check_name(&name)?;
        Scope::new(&declared).refuse_taken(name.text, &name.span)?;
        let compiled = piece::compile(&name, entry, tables, &declared, source)?;
        declared
            .pieces
            .push(DeclaredPiece { name: name.text.to_owned(), outputs: piece::outputs(&compiled) });
        pieces.push(compiled);
    }
    if pieces.is_empty() {
        return Err(Misplaced::new(
            section.span(),
            format!("a procedure has 1 to {MAX_PIECES} pieces"),
        ));
    }
    let each: Vec<_> = pieces.iter().map(|piece| (piece.occurrences, piece.steps)).collect();
    let list_steps = pieces.iter().map(|piece| piece.list_steps).sum::<u64>();
    let read_only = pieces.iter().all(|compiled| !compiled.piece.body.writes());
    if !read_only {
        order::order(&mut pieces)?;
    }
    order::find_needed(&mut pieces);
    let (mut returns, mut results) = (Vec::new(), Cost::NONE);
    for (name, entry) in section.at_most(MAX_RESULTS, "results", "returns")? {
        check_name(&name)?;
        returns.push(returned(&name, entry, &declared, read_only, source, &mut results)?);
    }
    check_call(&each, list_steps.saturating_add(results.steps))
        .map_err(|much| Misplaced::new(&name.span, much.to_string()))?;
    let pieces = pieces.into_iter().map(|compiled| compiled.piece).collect();
    let procedure = Procedure {
        name: name.text.to_owned(),
        inputs: declared.inputs,
        pieces,
        merged: Vec::new(),
        returns,
        ordered: false,
    };
    let tables: Vec<(u64, u64)> = tables.iter().map(Table::max_bytes).collect();
    check_data(&procedure, &tables).map_err(|much| Misplaced::new(&name.span, much.to_string()))?;
    Ok(procedure)
}

fn returned(
    name: &Name<'_>,
    entry: Entry<'_>,
    declared: &Declared,
    read_only: bool,
    source: &str,
    results: &mut Cost,
) -> Compiled<Returned> {
    let text = entry.text("a result", source)?;
    let mut scope = Scope::new(declared);
    let compiled = compile::compile(&text, &mut scope)?;
    *results = results.and(compiled.inferred.cost);
    limit(&text.span, *results)?;
    if let Some(how) = compiled.inferred.cost.fails.filter(|_| !read_only) {
        let message = format!("this can fail when the call has written: {how}");
        return Err(Misplaced { at: text.start, message });
    }
    let (arguments, slots, mut settle) = scope.settle(&text.span)?;
    let (of, mut code) = (compiled.of().clone(), compiled.code);
    code.for_each_slot(&mut settle);
    Ok(Returned { field: Field { name: name.text.to_owned(), of }, arguments, code, slots })
}

/// Refuses what takes too long or too much.
pub(super) fn limit(at: &Span, cost: Cost) -> Compiled<()> {
    cost.check().map_err(|much| Misplaced::new(at, much.to_string()))
}
