//! Why a file is not a history.

use serried_model::FamilyName;

/// A problem in a file of JSON lines: its line (counted from 1), and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be read.
    #[error("line {line}: reading failed: {source}; check the file and try again")]
    Io {
        /// The line that could not be read.
        line: u64,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The line is not JSON.
    #[error("line {line}: not JSON: {problem}; put one event on each line, as one JSON object")]
    Malformed {
        /// The line.
        line: u64,
        /// The error of the parser, with the column.
        problem: String,
    },
    /// The last line stops in the middle of an event.
    #[error("line {line}: the file ends inside this event; remove the line, or record again")]
    Truncated {
        /// The line.
        line: u64,
    },
    /// A field is missing or has an unexpected value.
    #[error("line {line}: `{field}` is {found}; make it {expected}")]
    Field {
        /// The line.
        line: u64,
        /// The field's name.
        field: &'static str,
        /// Its value, or `missing`.
        found: String,
        /// What its value should be.
        expected: &'static str,
    },
    /// The type of the event is not one of Jepsen's.
    #[error("line {line}: unknown type {found}; use \"invoke\", \"ok\", \"fail\" or \"info\"")]
    UnknownType {
        /// The line.
        line: u64,
        /// The type found.
        found: String,
    },
    /// The event is not of the history's family.
    #[error("line {line}: unknown f {found}; keep only events of {family}, whose f is {expected}")]
    UnknownFunction {
        /// The line.
        line: u64,
        /// The `f` found.
        found: String,
        /// The family.
        family: FamilyName,
        /// What `f` can be.
        expected: &'static str,
    },
    /// An entry of `value` is not a micro-operation.
    #[error(
        "line {line}: {found} is no micro-operation: {problem}; use [\"append\", key, element], \
         [\"r\", key, null, value or list] or [\"w\", key, value or null]"
    )]
    MicroOperation {
        /// The line.
        line: u64,
        /// The entry.
        found: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The `value` does not fit the operation that `f` names.
    #[error("line {line}: {found} is no value of \"{function}\": {problem}; use {expected}")]
    Operation {
        /// The line.
        line: u64,
        /// The `f`.
        function: &'static str,
        /// The value.
        found: String,
        /// What is wrong with it.
        problem: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// An operation on a key ends that has not begun.
    #[error(
        "line {line}: process {process} ends an operation on key {key} that it has not begun; \
         restore its invoke, or remove the line"
    )]
    KeyWithoutInvoke {
        /// The line.
        line: u64,
        /// The process.
        process: u64,
        /// The key.
        key: u64,
    },
    /// A process begins a second operation on a key before its first has ended.
    #[error(
        "line {line}: process {process} begins an operation on key {key} while its operation of \
         line {open_since} on that key is open; end that one first, with info if its outcome is \
         unknown, and go on as another process"
    )]
    KeyStillOpen {
        /// The line.
        line: u64,
        /// The process.
        process: u64,
        /// The key.
        key: u64,
        /// The line on which the open operation began.
        open_since: u64,
    },
    /// An operation ends with other contents than it began with.
    #[error(
        "line {line}: process {process} ends another operation on key {key} than it began on \
         line {open_since}; make f and value those of the invoke, and add only what was found"
    )]
    OtherOperation {
        /// The line.
        line: u64,
        /// The process.
        process: u64,
        /// The key.
        key: u64,
        /// The line of the invoke.
        open_since: u64,
    },
    /// A transaction or a call ends that has not begun.
    #[error(
        "line {line}: process {process} ends a {what} that it has not begun; restore its invoke, \
         or remove the line"
    )]
    WithoutInvoke {
        /// `transaction` or `call`.
        what: &'static str,
        /// The line.
        line: u64,
        /// The process.
        process: u64,
    },
    /// A transaction or a call ends with other appends than it began with.
    #[error(
        "line {line}: process {process} ends with other appends than it began with on line \
         {open_since}; repeat those of the invoke, in its order"
    )]
    OtherAppends {
        /// The line.
        line: u64,
        /// The process.
        process: u64,
        /// The line of the invoke.
        open_since: u64,
    },
    /// A process begins a second transaction or call before its first has ended.
    #[error(
        "line {line}: process {process} begins a {what} while its {what} of line {open_since} is \
         open; end that one first, with info if its outcome is unknown"
    )]
    StillOpen {
        /// `transaction` or `call`.
        what: &'static str,
        /// The line.
        line: u64,
        /// The process.
        process: u64,
        /// The line on which its open transaction began.
        open_since: u64,
    },
}

impl ReadError {
    /// The number of the line, from 1.
    pub fn line(&self) -> u64 {
        match *self {
            ReadError::Io { line, .. }
            | ReadError::Malformed { line, .. }
            | ReadError::Truncated { line }
            | ReadError::Field { line, .. }
            | ReadError::UnknownType { line, .. }
            | ReadError::UnknownFunction { line, .. }
            | ReadError::MicroOperation { line, .. }
            | ReadError::Operation { line, .. }
            | ReadError::KeyWithoutInvoke { line, .. }
            | ReadError::KeyStillOpen { line, .. }
            | ReadError::OtherOperation { line, .. }
            | ReadError::WithoutInvoke { line, .. }
            | ReadError::OtherAppends { line, .. }
            | ReadError::StillOpen { line, .. } => line,
        }
    }
}
