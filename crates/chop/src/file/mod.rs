//! Procedure files: TOML whose strings are types and expressions.

mod document;
mod nesting;
mod order;
mod piece;
mod procedure;
mod table;
mod types;

use serried_procedures::ProcedureSet;
use serried_procedures::limits::MAX_NAME;
use toml::de::DeTable;

pub(crate) use document::Text;
use document::{Name, Section};

use crate::mistake::{Compiled, Misplaced, Mistake};

/// How many bytes a file may have.
const MAX_FILE: usize = 256 << 10;

/// How many tables a file may have.
const MAX_TABLES: usize = 256;

/// How many procedures a file may have.
const MAX_PROCEDURES: usize = 1_024;

/// How many pieces all procedures of a file that write may have together. The checker's time grows with the square of
/// this, and with its cube if pieces have to be merged again and again.
const MAX_WRITING_PIECES: usize = 256;

/// Compiles the tables and procedures of a file. The first mistake is returned with its place.
pub fn compile(text: &str) -> Result<ProcedureSet, Mistake> {
    compile_misplaced(text).map_err(|mistake| mistake.place(text))
}

fn compile_misplaced(text: &str) -> Compiled<ProcedureSet> {
    if text.len() > MAX_FILE {
        return Err(Misplaced {
            at: 0,
            message: format!("a procedure file has at most {MAX_FILE} bytes"),
        });
    }
    nesting::bound(text)?;
    let document = DeTable::parse(text).map_err(|error| Misplaced {
        at: error.span().map_or(0, |span| span.start),
        message: error.message().to_owned(),
    })?;
    let root = Section::root(&document);
    root.allow(&["tables", "procedures"])?;
    let mut set = ProcedureSet::default();
    for (name, entry) in root.at_most(MAX_TABLES, "tables", "tables")? {
        check_name(&name)?;
        set.tables.push(table::compile(&name, entry, text)?);
    }
    let mut pieces = 0;
    for (name, entry) in root.at_most(MAX_PROCEDURES, "procedures", "procedures")? {
        check_name(&name)?;
        let procedure = procedure::compile(&name, entry, &set.tables, text)?;
        if !procedure.is_read_only() {
            pieces += procedure.pieces.len();
        }
        if pieces > MAX_WRITING_PIECES {
            let message = format!(
                "the procedures of a file that write have at most {MAX_WRITING_PIECES} pieces together; those that share no \
                 table with others can be in a file of their own"
            );
            return Err(Misplaced::new(&name.span, message));
        }
        set.procedures.push(procedure);
    }
    if set.tables.is_empty() && set.procedures.is_empty() {
        let message = "there is nothing here: a procedure file has sections such as [tables.account] and \
            [procedures.transfer.pieces.debit]";
        return Err(Misplaced { at: 0, message: message.to_owned() });
    }
    debug_assert_eq!(set.validate(), Ok(()), "servers take what compiles");
    Ok(set)
}

/// Refuses what an expression could not name.
fn check_name(name: &Name<'_>) -> Compiled<()> {
    /// The words of the Common Expression Language that are no names.
    const RESERVED: &[&str] = &[
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "math",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ];
    let text = name.text;
    let wrong =
        |why: &str| Err(Misplaced::new(&name.span, format!("`{text}` can't be a name: {why}")));
    let letters = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !letters || text.is_empty() || text.as_bytes()[0].is_ascii_digit() {
        return wrong("a name has letters, digits and `_`, and does not begin with a digit");
    }
    if text.len() > MAX_NAME {
        return wrong(&format!("a name has at most {MAX_NAME} characters"));
    }
    if RESERVED.contains(&text) {
        return wrong("expressions use this word otherwise");
    }
    Ok(())
}
