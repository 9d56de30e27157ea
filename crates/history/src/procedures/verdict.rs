//! Verdicts of the checker of calls.

use core::fmt;

use super::LostAppend;
use crate::{TransactionGuarantee, Violation};

/// The verdict of [`check_calls`](crate::check_calls).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallVerdict {
    /// The history satisfies the guarantee.
    Holds(CallSummary),
    /// The history violates the guarantee.
    Violation(Box<CallViolation>),
    /// No violation was found, but the history has too little information to exclude one.
    Unknown {
        /// What is missing, and how to record it.
        reason: String,
    },
}

impl CallVerdict {
    /// Whether the history is known to satisfy the guarantee.
    pub fn holds(&self) -> bool {
        matches!(self, CallVerdict::Holds(_))
    }
}

/// What was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallSummary {
    /// The guarantee.
    pub guarantee: TransactionGuarantee,
    /// Calls that took effect.
    pub done: u64,
    /// Calls that a check of their procedure refused.
    pub refused: u64,
    /// Calls that failed otherwise.
    pub failed: u64,
    /// Calls of unknown outcome.
    pub unknown: u64,
    /// Lists that were read or appended to.
    pub keys: u64,
    /// Edges of the graph that was searched for cycles: conflicts, without real-time edges.
    pub edges: u64,
}

/// Why a history of calls does not satisfy a guarantee. Its `Display` explains it to a person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallViolation {
    /// The violation, with calls as transactions.
    pub violation: Box<Violation>,
    /// The procedures that the transactions of the violation are calls of, in their order.
    pub procedures: Vec<String>,
    /// An append that was lost, if one was.
    pub lost: Option<LostAppend>,
}

impl CallViolation {
    /// The weakest guarantee that is violated.
    pub fn guarantee(&self) -> TransactionGuarantee {
        self.violation.guarantee()
    }
}

impl fmt::Display for CallVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallVerdict::Holds(summary) => write!(f, "{}: {summary}", summary.guarantee),
            CallVerdict::Violation(violation) => {
                write!(f, "not {}: {violation}", violation.guarantee())
            }
            CallVerdict::Unknown { reason } => write!(f, "unknown: {reason}"),
        }
    }
}

impl fmt::Display for CallSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallSummary { guarantee: _, done, refused, failed, unknown, keys, edges } = self;
        write!(
            f,
            "{done} calls done, {refused} refused, {failed} failed, {unknown} of unknown outcome; \
             {keys} lists, {edges} conflicts"
        )
    }
}

/// The lost append, if there is one; then the violation, and one line with the procedures.
impl fmt::Display for CallViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lost) = &self.lost {
            write!(f, "{lost}\n  ")?;
        }
        write!(f, "{}\n  the transactions are calls:", self.violation)?;
        for (at, procedure) in self.procedures.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma} T{} of `{procedure}`", at + 1)?;
        }
        Ok(())
    }
}
