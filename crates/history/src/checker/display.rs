//! The text of violations.

use core::fmt;

use super::{Conflict, ConflictKind, Installed, RealTime, Violation, Witness};
use crate::{EventKind, MicroOperation, ReadResult};

/// A list as in a history. The middle of a long list is omitted.
pub(super) struct Elements<'a>(pub(super) &'a [u64]);

impl fmt::Display for Elements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        const LAST: usize = 8;
        if self.0.len() <= SHOWN {
            return write!(f, "{:?}", self.0);
        }
        let (first, rest) = self.0.split_at(SHOWN - LAST);
        let (left_out, last) = rest.split_at(rest.len() - LAST);
        f.write_str("[")?;
        first.iter().try_for_each(|element| write!(f, "{element}, "))?;
        write!(f, "({} more)", left_out.len())?;
        last.iter().try_for_each(|element| write!(f, ", {element}"))?;
        f.write_str("]")
    }
}

/// The result of a read of a register.
pub(super) struct Found(pub(super) Option<u64>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value}"),
            None => f.write_str("nothing"),
        }
    }
}

/// The last change of a register by a transaction.
pub(super) struct Overwritten(pub(super) Option<u64>);

impl fmt::Display for Overwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "wrote {value}"),
            None => f.write_str("deleted it"),
        }
    }
}

/// One line on what is wrong, one per edge of the cycle and per edge that its arbitrations follow from, one per
/// transaction, and one on which guarantees the history rules out.
impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {}", self.kind.name(), self.kind.meaning())?;
        if self.conflicts.is_empty() || self.kind.is_about_order() {
            writeln!(f, "  {}", self.reason)?;
        }
        if let Some(RealTime { ended, began }) = self.real_time {
            let (first, second) = (self.named(0), self.named(1));
            writeln!(
                f,
                "  {first} ended, at event {ended}, before {second} began, at event {began}: \
                 T1 -rto-> T2"
            )?;
        }
        if !self.because.is_empty() {
            writeln!(f, "  the cycle follows from:")?;
            self.write_conflicts(f, &self.because)?;
            writeln!(f, "  the cycle:")?;
        }
        self.write_conflicts(f, &self.conflicts)?;
        for (at, transaction) in self.transactions.iter().enumerate() {
            writeln!(f, "  T{} = {transaction}", at + 1)?;
        }
        write!(f, "  rules out: {}", self.ruled_out.join(", "))
    }
}

impl Violation {
    fn write_conflicts(&self, f: &mut fmt::Formatter<'_>, conflicts: &[Conflict]) -> fmt::Result {
        for conflict in conflicts {
            write!(f, "  ")?;
            self.write_conflict(f, conflict)?;
            let Conflict { from, to, kind, .. } = conflict;
            writeln!(f, ": T{} -{}-> T{}", from + 1, kind.name(), to + 1)?;
        }
        Ok(())
    }

    fn write_conflict(&self, f: &mut fmt::Formatter<'_>, conflict: &Conflict) -> fmt::Result {
        let (from, to) = (self.named(conflict.from), self.named(conflict.to));
        let Some(key) = conflict.key else {
            return write!(f, "same process: {from} ended before {to} began");
        };
        if let (Some(before), Some(reader)) = (conflict.before, conflict.reader) {
            let reader = self.named(reader);
            let found = reader.witness.first_read(key);
            from.write_installed(f, key, before)?;
            write!(f, "; {reader} comes after it, but read {found} of key {key}, ")?;
            return match reader.witness.is_absent(key) {
                true => write!(f, "which {to} deleted"),
                false => write!(f, "which {to} wrote"),
            };
        }
        match (conflict.kind, conflict.before, conflict.after) {
            (ConflictKind::WriteDependency, Some(before), Some(after)) => {
                from.write_installed(f, key, before)?;
                match after {
                    Installed::Element(element) => write!(f, "; {to} appended {element} after it"),
                    Installed::Version(version) => {
                        let value = to.witness.last_write(key);
                        write!(f, "; {to} then {value} at the later version {version}")
                    }
                    Installed::Value(_) => write!(f, "; {to} then {}", to.witness.last_write(key)),
                }
            }
            (ConflictKind::ReadDependency, Some(before), _) => {
                from.write_installed(f, key, before)?;
                write!(f, "; {to} read {} of key {key}, ", to.witness.first_read(key))?;
                match before {
                    Installed::Element(_) => f.write_str("which contains it"),
                    _ => f.write_str("which is that"),
                }
            }
            (_, before, Some(after)) => {
                to.write_installed(f, key, after)?;
                write!(f, "; {from} read {} of key {key}", from.witness.first_read(key))?;
                match (after, before) {
                    (Installed::Element(_), _) => f.write_str(", which does not contain it"),
                    (_, Some(Installed::Version(version))) => {
                        write!(f, " at version {version}, which is earlier")
                    }
                    _ => f.write_str(", which was there before"),
                }
            }
            (_, _, None) => Ok(()),
        }
    }

    fn named(&self, at: usize) -> Named<'_> {
        Named { at, witness: &self.transactions[at] }
    }
}

/// A transaction's name in the lines about edges.
struct Named<'a> {
    at: usize,
    witness: &'a Witness,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Witness { process, index, .. } = self.witness;
        write!(f, "T{} (process {process}, op {index})", self.at + 1)
    }
}

impl Named<'_> {
    fn write_installed(
        &self,
        f: &mut fmt::Formatter<'_>,
        key: u64,
        installed: Installed,
    ) -> fmt::Result {
        match installed {
            Installed::Element(element) => write!(f, "{self} appended {element} to key {key}"),
            Installed::Version(version) => {
                write!(f, "{self} {} at version {version}", self.witness.last_write(key))
            }
            Installed::Value(_) => write!(f, "{self} {}", self.witness.last_write(key)),
        }
    }
}

impl Witness {
    fn first_read(&self, key: u64) -> String {
        let found = self.operations.iter().find_map(|operation| match operation {
            MicroOperation::Read { result: ReadResult::Pending, .. } => None,
            MicroOperation::Read { key: read, result } if *read == key => Some(result),
            _ => None,
        });
        match found {
            Some(ReadResult::List(elements)) => Elements(elements).to_string(),
            Some(ReadResult::Register(value)) => Found(*value).to_string(),
            _ => "an unknown value".to_owned(),
        }
    }

    /// Whether its first read of a register found nothing.
    fn is_absent(&self, key: u64) -> bool {
        let mut reads = self.operations.iter().filter(|it| it.is_read() && it.key() == key);
        let nothing = ReadResult::Register(None);
        reads.next().is_some_and(
            |read| matches!(read, MicroOperation::Read { result, .. } if *result == nothing),
        )
    }

    fn last_write(&self, key: u64) -> String {
        let written = self.operations.iter().rev().find_map(|operation| match *operation {
            MicroOperation::Write { key: written, value } if written == key => Some(value),
            _ => None,
        });
        match written {
            Some(Some(value)) => format!("wrote {value} to key {key}"),
            Some(None) if self.kind == EventKind::Ok => format!("deleted key {key}"),
            _ => format!("wrote an unknown value to key {key}"),
        }
    }
}

/// The process, the outcome, the version, and all operations in the form of a history's `value`. After each read come
/// `@` and the version that it found.
impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}, op {}, {}", self.process, self.index, self.kind)?;
        if let Some(version) = self.version {
            write!(f, ", version {version}")?;
        }
        f.write_str(": [")?;
        let mut read_versions = self.read_versions.iter();
        for (at, operation) in self.operations.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{operation}")?;
            if operation.is_read()
                && let Some(version) = read_versions.next()
            {
                write!(f, "@{version}")?;
            }
        }
        f.write_str("]")
    }
}

/// As in a history's `value`. The middle of a long list is omitted.
impl fmt::Display for MicroOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let register = |value: Option<u64>| value.map_or("null".to_owned(), |it| it.to_string());
        match self {
            MicroOperation::Append { key, element } => write!(f, "[\"append\", {key}, {element}]"),
            MicroOperation::Write { key, value } => {
                write!(f, "[\"w\", {key}, {}]", register(*value))
            }
            MicroOperation::Read { key, result } => match result {
                ReadResult::Pending => write!(f, "[\"r\", {key}, null]"),
                ReadResult::Register(value) => write!(f, "[\"r\", {key}, {}]", register(*value)),
                ReadResult::List(elements) => write!(f, "[\"r\", {key}, {}]", Elements(elements)),
            },
        }
    }
}
