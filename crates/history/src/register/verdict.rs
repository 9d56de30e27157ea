//! What the checkers of registers answer.

use core::fmt;

use super::event::{Carstamp, RegisterOperation, RegisterValue};

/// A guarantee that a database of registers may give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterGuarantee {
    /// Each key's operations take effect one by one, each between its beginning and its end.
    Linearizable,
    /// See [`crate::check_regular_sequential`].
    RegularSequential,
}

impl RegisterGuarantee {
    /// As people call what has it: `linearizable` or `regular sequential`.
    pub fn name(self) -> &'static str {
        match self {
            RegisterGuarantee::Linearizable => "linearizable",
            RegisterGuarantee::RegularSequential => "regular sequential",
        }
    }
}

/// The answer of a checker of registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterVerdict {
    /// The history satisfies the guarantee.
    Holds(RegisterSummary),
    /// It does not.
    Violation(Box<RegisterViolation>),
    /// It could not be told.
    Unknown {
        /// Why, and what to do.
        reason: String,
    },
}

impl RegisterVerdict {
    /// Whether the history is known to satisfy the guarantee.
    pub fn holds(&self) -> bool {
        matches!(self, RegisterVerdict::Holds(_))
    }
}

/// What was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterSummary {
    /// What was looked for.
    pub guarantee: RegisterGuarantee,
    /// Operations that ended well.
    pub completed: u64,
    /// Operations that certainly took no effect.
    pub failed: u64,
    /// Operations whose outcome nobody recorded.
    pub unknown: u64,
    /// Keys that were read or written.
    pub keys: u64,
    /// States that searches visited; 0 if what was found told the order.
    pub states: u64,
}

/// Operations that can't have been executed as the guarantee promises, whatever else happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterViolation {
    /// What is violated.
    pub guarantee: RegisterGuarantee,
    /// What is wrong, in one line.
    pub summary: String,
    /// The operations, by their beginnings.
    pub operations: Vec<RegisterWitness>,
    /// Whether there is no violation without any one of the operations. Only very large violations
    /// are not made as small as that.
    pub minimal: bool,
    /// A cycle of operations, each of which has to come before the next; empty where the contradiction
    /// is of another kind.
    pub cycle: Vec<Precedence>,
}

/// Why one operation of a violation has to come before another; both by their place among the
/// violation's operations, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Precedence {
    /// The earlier one.
    pub from: usize,
    /// The later one.
    pub to: usize,
    /// Why.
    pub reason: PrecedenceReason,
}

/// A reason for an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PrecedenceReason {
    /// The one had ended before the other began.
    RealTime,
    /// So it was, and one process did both.
    ProcessOrder,
    /// The later one found what the earlier one wrote.
    Found,
    /// The earlier one found a value that the later one replaced.
    Replaced,
    /// Both wrote, and the earlier one came before an operation that found what the later one wrote.
    Hidden {
        /// The operation that found it, as its place among the violation's operations.
        reader: usize,
    },
}

/// One operation of a violation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterWitness {
    /// Who.
    pub process: u64,
    /// The index of the event that began it.
    pub index: u64,
    /// The register.
    pub key: u64,
    /// What it did.
    pub operation: RegisterOperation,
    /// What it found, if it ended and looked.
    pub found: Option<RegisterValue>,
    /// Whether the violation depends on what it found, or only on what it wrote.
    pub finding_matters: bool,
    /// The version that the database said it wrote or found.
    pub version: Option<Carstamp>,
    /// When it began, in nanoseconds of the history's clock.
    pub begin_ns: u64,
    /// When it ended, or `None` if its outcome is unknown.
    pub end_ns: Option<u64>,
}

impl fmt::Display for RegisterVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterVerdict::Holds(summary) => summary.fmt(f),
            RegisterVerdict::Violation(violation) => {
                write!(f, "not {}: {violation}", violation.guarantee.name())
            }
            RegisterVerdict::Unknown { reason } => write!(f, "unknown: {reason}"),
        }
    }
}

impl fmt::Display for RegisterSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RegisterSummary { guarantee, completed, failed, unknown, keys, states } = self;
        write!(
            f,
            "{}: {completed} completed operations on {keys} keys ({failed} failed, {unknown} \
             unknown), {states} states searched",
            guarantee.name()
        )
    }
}

/// One line of what is wrong, one per step of the contradiction, and one per operation.
impl fmt::Display for RegisterViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        for Precedence { from, to, reason } in &self.cycle {
            let (from, to) = (from + 1, to + 1);
            write!(f, "\n  ")?;
            match reason {
                PrecedenceReason::RealTime => write!(f, "O{from} had ended before O{to} began"),
                PrecedenceReason::ProcessOrder => {
                    write!(f, "one process did O{from} and then O{to}")
                }
                PrecedenceReason::Found => write!(f, "O{to} found what O{from} wrote"),
                PrecedenceReason::Replaced => {
                    write!(f, "O{from} found a value that O{to} replaced")
                }
                PrecedenceReason::Hidden { reader } => write!(
                    f,
                    "O{} found what O{to} wrote though O{from} came before it, so O{from} was \
                     replaced by O{to}",
                    reader + 1
                ),
            }?;
        }
        for (at, operation) in self.operations.iter().enumerate() {
            write!(f, "\n  O{} = {operation}", at + 1)?;
        }
        if !self.minimal {
            f.write_str("\n  some of these operations may not be needed for the contradiction")?;
        }
        Ok(())
    }
}

/// A register's value as people read it.
pub(super) struct Shown(pub(super) RegisterValue);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}

/// Who, what, what it found, and when.
impl fmt::Display for RegisterWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RegisterWitness { process, index, key, .. } = self;
        write!(f, "process {process}, op {index}: ")?;
        match self.operation {
            RegisterOperation::Read => write!(f, "read key {key}"),
            RegisterOperation::Write { value: Some(value) } => {
                write!(f, "wrote {value} to key {key}")
            }
            RegisterOperation::Write { value: None } => write!(f, "deleted key {key}"),
            RegisterOperation::CompareAndSwap { expected, new } => {
                write!(f, "swapped key {key} from {} to {}", Shown(expected), Shown(new))
            }
            RegisterOperation::Add { delta } => write!(f, "added {delta} to key {key}"),
        }?;
        if let Some(found) = self.found {
            write!(f, ", found {}", Shown(found))?;
            if !self.finding_matters {
                f.write_str(" (which does not matter here)")?;
            }
        }
        if let Some(version) = self.version {
            write!(f, ", version {version}")?;
        }
        let milliseconds = |ns: u64| format!("{}.{:06} ms", ns / 1_000_000, ns % 1_000_000);
        write!(f, "; from {} ", milliseconds(self.begin_ns))?;
        match self.end_ns {
            Some(end_ns) => write!(f, "to {}", milliseconds(end_ns)),
            None => f.write_str("on, outcome unknown"),
        }
    }
}
