//! Procedures of a file.

use serried_procedures::{Field, Piece, Procedure, Returned, Table};

use super::document::{Entry, Name};
use super::{check_name, order, piece, types};
use crate::compile::{self, Cost, Declared, DeclaredPiece, Scope};
use crate::mistake::{Compiled, Misplaced, Span};

/// How many pieces a procedure may have.
const MAX_PIECES: usize = 64;

/// How many inputs a procedure may have.
const MAX_INPUTS: usize = 256;

/// How many results a procedure may have.
const MAX_RESULTS: usize = 256;

/// How many occurrences of pieces a call may have.
const MAX_OCCURRENCES: u64 = 10_000;

/// How many steps all pieces of a call may take. A server executes a piece at a time, but many may be due at once, and then
/// nothing else happens on its core: 1,000,000 steps take about 6 ms.
const MAX_STEPS: u64 = 10_000_000;

/// How many bytes of data a call may take up, beside its inputs.
const MAX_DATA: u64 = 16 << 20;

/// A piece, with what the order of the procedure's pieces depends on.
pub(super) struct CompiledPiece {
    pub(super) piece: Piece,
    /// Where and how it can fail first.
    pub(super) fails: Option<(usize, String)>,
    pub(super) occurrences: u32,
    /// How many steps each occurrence takes at most.
    pub(super) steps: u64,
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
    let occurrences: u64 = pieces.iter().map(|piece| u64::from(piece.occurrences)).sum();
    if occurrences > MAX_OCCURRENCES {
        let message = format!(
            "a call may have {occurrences} occurrences of pieces, and the limit is {MAX_OCCURRENCES}; lower the `max` of the \
             lists that `for_each` iterates"
        );
        return Err(Misplaced::new(&name.span, message));
    }
    let steps_of = |piece: &CompiledPiece| piece.steps.saturating_mul(u64::from(piece.occurrences));
    let steps = pieces.iter().map(steps_of).fold(0, u64::saturating_add);
    if steps > MAX_STEPS {
        let message = format!(
            "the pieces of a call take up to {steps} steps together, and the limit is {MAX_STEPS}; lower the `max` of the \
             lists that `for_each` iterates, or of those that its pieces use"
        );
        return Err(Misplaced::new(&name.span, message));
    }
    let read_only = pieces.iter().all(|compiled| !compiled.piece.body.writes());
    if !read_only {
        order::order(&mut pieces)?;
    }
    order::find_needed(&mut pieces);
    let mut returns = Vec::new();
    for (name, entry) in section.at_most(MAX_RESULTS, "results", "returns")? {
        check_name(&name)?;
        returns.push(returned(&name, entry, &declared, read_only, source)?);
    }
    let pieces = pieces.into_iter().map(|compiled| compiled.piece).collect();
    let procedure = Procedure {
        name: name.text.to_owned(),
        inputs: declared.inputs,
        pieces,
        merged: Vec::new(),
        returns,
        ordered: false,
    };
    let data = procedure.max_bytes(tables);
    if data > MAX_DATA {
        let message = format!(
            "what the pieces of a call get, return and write takes up to {data} bytes, or so do its results, and the limit \
             is {MAX_DATA}; lower the `max` of the lists and the lengths of the strings in inputs and columns"
        );
        return Err(Misplaced::new(&name.span, message));
    }
    Ok(procedure)
}

fn returned(
    name: &Name<'_>,
    entry: Entry<'_>,
    declared: &Declared,
    read_only: bool,
    source: &str,
) -> Compiled<Returned> {
    let text = entry.text("a result", source)?;
    let mut scope = Scope::new(declared);
    let compiled = compile::compile(&text, &mut scope)?;
    limit(&text.span, compiled.cost)?;
    if let Some(how) = compiled.cost.fails.filter(|_| !read_only) {
        let message = format!("this can fail when the call has written: {how}");
        return Err(Misplaced { at: text.start, message });
    }
    let (arguments, slots, mut settle) = scope.settle(&text.span)?;
    let mut code = compiled.code;
    code.for_each_slot(&mut settle);
    Ok(Returned {
        field: Field { name: name.text.to_owned(), of: compiled.of },
        arguments,
        code,
        slots,
    })
}

/// Refuses what takes too long or too much.
pub(super) fn limit(at: &Span, Cost { steps, bytes, .. }: Cost) -> Compiled<()> {
    const MAX_STEPS: u64 = 1_000_000;
    const MAX_BYTES: u64 = 4 << 20;
    let (what, found, most) = match (steps > MAX_STEPS, bytes > MAX_BYTES) {
        (true, _) => ("steps", steps, MAX_STEPS),
        (false, true) => ("bytes of memory", bytes, MAX_BYTES),
        (false, false) => return Ok(()),
    };
    let message = format!(
        "this takes up to {found} {what}, and the limit is {most}; lower the `max` of the lists and the lengths of the \
         strings that it uses"
    );
    Err(Misplaced::new(at, message))
}
