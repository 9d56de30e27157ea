//! Mistakes in a procedure file, with their places.

use core::fmt;
use core::ops::Range;

/// A mistake in a procedure file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in characters.
    pub column: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mistake { line, column, message } = self;
        write!(f, "{line}:{column}: {message}")
    }
}

impl core::error::Error for Mistake {}

/// A place in the text: a range of bytes.
pub(crate) type Span = Range<usize>;

/// A mistake at a place that is not yet known as a line and a column.
#[derive(Debug)]
pub(crate) struct Misplaced {
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl Misplaced {
    pub(crate) fn new(at: &Span, message: impl Into<String>) -> Misplaced {
        Misplaced { at: at.start, message: message.into() }
    }

    pub(crate) fn place(self, text: &str) -> Mistake {
        let before = text.get(..self.at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Mistake {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: on_one_line(&self.message),
        }
    }
}

/// Names that a message quotes may have any characters.
fn on_one_line(message: &str) -> String {
    message.chars().fold(String::with_capacity(message.len()), |mut line, character| {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
        line
    })
}

/// The result of a step of compilation.
pub(crate) type Compiled<T> = Result<T, Misplaced>;
