//! Verdicts of the checkers of registers.

use crate::counted;
use core::fmt;

use serried_model::Carstamp;

use super::event::{RegisterOperation, RegisterValue};

/// A guarantee that a database of registers may give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterGuarantee {
    /// Each key's operations take effect one by one, each between its beginning and its end.
    Linearizable,
    /// See [`crate::check_regular_sequential`].
    RegularSequential,
}

impl RegisterGuarantee {
    /// The adjective: `linearizable` or `regular sequential`.
    pub fn name(self) -> &'static str {
        match self {
            RegisterGuarantee::Linearizable => "linearizable",
            RegisterGuarantee::RegularSequential => "regular sequential",
        }
    }
}

/// The verdict of a checker of registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterVerdict {
    /// The history satisfies the guarantee.
    Holds(RegisterSummary),
    /// The history violates the guarantee.
    Violation(Box<RegisterViolation>),
    /// The checker could not decide.
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
    /// The guarantee.
    pub guarantee: RegisterGuarantee,
    /// Completed operations.
    pub completed: u64,
    /// Operations that did not take effect.
    pub failed: u64,
    /// Operations of unknown outcome.
    pub unknown: u64,
    /// Keys that were read or written.
    pub keys: u64,
    /// States that searches visited. 0 if no search was necessary.
    pub states: u64,
}

/// Operations that contradict the guarantee, whatever the rest of the history is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterViolation {
    /// The guarantee.
    pub guarantee: RegisterGuarantee,
    /// What is wrong, in one line.
    pub summary: String,
    /// The operations, in the order of their beginnings.
    pub operations: Vec<RegisterWitness>,
    /// Whether there is no violation without any one of the operations. Only very large violations are not shrunk this
    /// far.
    pub minimal: bool,
    /// A cycle of operations, each of which must come before the next. Empty if the contradiction is of another kind.
    pub cycle: Vec<Precedence>,
}

/// Why one operation of a violation must come before another. Both are indices into the violation's operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Precedence {
    /// The earlier operation.
    pub from: usize,
    /// The later operation.
    pub to: usize,
    /// Why.
    pub reason: PrecedenceReason,
}

/// A reason for an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PrecedenceReason {
    /// The earlier operation had ended before the later one began.
    RealTime,
    /// As `RealTime`, and one process did both.
    ProcessOrder,
    /// The later operation found what the earlier one wrote.
    Found,
    /// The earlier operation found a value that the later one replaced.
    Replaced,
    /// Both operations wrote, and the earlier one came before an operation that found what the later one wrote.
    Hidden {
        /// The operation that found it, as an index into the violation's operations.
        reader: usize,
    },
}

/// One operation of a violation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterWitness {
    /// The process.
    pub process: u64,
    /// The index of the event that began it.
    pub index: u64,
    /// The register.
    pub key: u64,
    /// The operation.
    pub operation: RegisterOperation,
    /// What it found, if it completed and is not a write.
    pub found: Option<RegisterValue>,
    /// Whether the violation depends on what it found, or only on what it wrote.
    pub finding_matters: bool,
    /// The version that it wrote or found, as the database reported it.
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
            "{}: {} on {} ({failed} failed, {unknown} \
             unknown), {} searched",
            guarantee.name(),
            counted(*completed, "completed operation"),
            counted(*keys, "key"),
            counted(*states, "state"),
        )
    }
}

/// One line on what is wrong, one per step of the contradiction, and one per operation.
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

/// A register's value as text.
pub(super) struct Shown(pub(super) RegisterValue);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}

/// The process, the operation, what it found, and when.
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
