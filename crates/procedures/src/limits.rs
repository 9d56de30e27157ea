//! Limits of what procedures may have and may take. The compiler refuses what is above them with its place in the file, and
//! servers refuse it in sets that no compiler has made.

use core::fmt;

use crate::Procedure;

/// How many parts a key may have.
pub const MAX_KEY: usize = 8;

/// How long the name of a table, a column, a field, a procedure or a piece may be, in bytes. Errors repeat names.
pub const MAX_NAME: usize = 64;

/// How many columns a table may have.
pub const MAX_COLUMNS: usize = 256;

/// How deep lists and records nest at most in the type of an expression. It bounds the stack of all that walks through a
/// type or a datum.
pub const MAX_DEPTH_OF_TYPE: u32 = 32;

/// How many types a type consists of at most: itself, and those of all its fields and elements.
pub const MAX_PARTS_OF_TYPE: usize = 128;

/// How many pieces a procedure may have.
pub const MAX_PIECES: usize = 64;

/// How many inputs a procedure may have.
pub const MAX_INPUTS: usize = 256;

/// How many results a procedure may have.
pub const MAX_RESULTS: usize = 256;

/// How many rows a piece may use.
pub const MAX_ROWS: usize = 64;

/// How many lists a piece may iterate in parallel.
pub const MAX_LISTS: usize = 64;

/// How many expressions of a piece may have names.
pub const MAX_NAMED: usize = 256;

/// How many outputs a piece may have.
pub const MAX_OUTPUTS: usize = 256;

/// How many columns a piece may read.
pub const MAX_READS: usize = 1_024;

/// How many bytes the text of a check may have.
pub const MAX_OTHERWISE: usize = 1_024;

/// How many slots a frame may have: arguments, columns that are read, named expressions, and elements of lists that
/// expressions iterate.
pub const MAX_SLOTS: usize = 4_096;

/// How many operations, constants and slots an expression may have. The compiler makes fewer, as it bounds the text: at most
/// two of a word or sign.
pub const MAX_OPERATIONS: usize = 1_024;

/// How many steps a piece, the lists that it iterates, or all results may take.
pub const MAX_STEPS: u64 = 1_000_000;

/// How many bytes of memory a piece, the lists that it iterates, or all results may take.
pub const MAX_BYTES: u64 = 4 << 20;

/// How many occurrences of pieces a call may have.
pub const MAX_OCCURRENCES: u64 = 10_000;

/// How many steps all pieces of a call may take. A server executes a piece at a time, but many may be due at once, and then
/// nothing else happens on its core: 1,000,000 steps take about 6 ms.
pub const MAX_STEPS_OF_CALL: u64 = 10_000_000;

/// How many bytes of data a call may take up, its inputs included.
pub const MAX_DATA_OF_CALL: u64 = 16 << 20;

/// Something is above a limit. The text says what, how much there is, what the limit is, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooMuch(pub(crate) String);

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for TooMuch {}

/// Checks how often the pieces of a call occur, and how many steps they take together. Of each piece, it takes the greatest
/// number of occurrences, and the steps of one of them. Lists that pieces iterate, and results, take `other_steps`.
///
/// # Errors
/// If there are too many.
pub fn check_call(pieces: &[(u32, u64)], other_steps: u64) -> Result<(), TooMuch> {
    let occurrences: u64 = pieces.iter().map(|(times, _)| u64::from(*times)).sum();
    if occurrences > MAX_OCCURRENCES {
        return Err(TooMuch(format!(
            "a call may have {occurrences} occurrences of pieces, and the limit is {MAX_OCCURRENCES}; lower the `max` of the \
             lists that `for_each` iterates"
        )));
    }
    let all = pieces.iter().map(|(times, steps)| steps.saturating_mul(u64::from(*times)));
    let steps = all.fold(other_steps, u64::saturating_add);
    if steps > MAX_STEPS_OF_CALL {
        return Err(TooMuch(format!(
            "the pieces of a call take up to {steps} steps together, and the limit is {MAX_STEPS_OF_CALL}; lower the `max` of \
             the lists that `for_each` iterates, or of those that its pieces use, or use fewer rows"
        )));
    }
    Ok(())
}

/// Checks [`Procedure::gathered`] and [`Procedure::max_bytes`]. `tables` are the bytes of each table
/// ([`crate::Table::max_bytes`]).
///
/// # Errors
/// If these are too many.
pub fn check_data(procedure: &Procedure, tables: &[(u64, u64)]) -> Result<(), TooMuch> {
    let gathered = procedure.gathered();
    if gathered > MAX_STEPS_OF_CALL {
        return Err(TooMuch(format!(
            "the lists that pieces iterate and the results use up to {gathered} outputs of pieces and slots, and the limit is \
             {MAX_STEPS_OF_CALL}; lower the `max` of the lists that `for_each` iterates, or return less"
        )));
    }
    let data = procedure.max_bytes(tables);
    if data > MAX_DATA_OF_CALL {
        return Err(TooMuch(format!(
            "the inputs of a call, its keys and what its pieces get, return and write take up to {data} bytes, or so do its \
             results, and the limit is {MAX_DATA_OF_CALL}; lower the `max` of the lists and the lengths of the strings in inputs and columns"
        )));
    }
    Ok(())
}
