//! Verdicts of the checkers of transactions.

use core::fmt;

use super::Violation;

/// A guarantee that a database with transactions may give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransactionGuarantee {
    /// Some serial execution gives the same results.
    Serializable,
    /// Some serial execution gives the same results in which each transaction comes after all that had ended before it
    /// began.
    StrictlySerializable,
}

impl TransactionGuarantee {
    /// The adjective: `serializable` or `strictly serializable`.
    pub fn name(self) -> &'static str {
        match self {
            TransactionGuarantee::Serializable => "serializable",
            TransactionGuarantee::StrictlySerializable => "strictly serializable",
        }
    }
}

impl fmt::Display for TransactionGuarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The verdict of a checker of transactions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The history satisfies the guarantee.
    Holds(Summary),
    /// The history violates the guarantee.
    Violation(Box<Violation>),
    /// No violation was found, but the history has too little information to exclude one.
    Unknown {
        /// What is missing, and how to record it.
        reason: String,
    },
}

impl Verdict {
    /// Whether the history is known to satisfy the guarantee.
    pub fn holds(&self) -> bool {
        matches!(self, Verdict::Holds(_))
    }
}

/// What was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The guarantee.
    pub guarantee: TransactionGuarantee,
    /// Committed transactions.
    pub committed: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Failed transactions.
    pub failed: u64,
    /// Keys that were read or written.
    pub keys: u64,
    /// Edges of the graph that was searched for cycles: conflicts, without real-time edges.
    pub edges: u64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Holds(summary) => write!(f, "{}: {summary}", summary.guarantee),
            Verdict::Violation(violation) => {
                write!(f, "not {}: {violation}", violation.guarantee())
            }
            Verdict::Unknown { reason } => write!(f, "unknown: {reason}"),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { guarantee: _, committed, unknown, failed, keys, edges } = self;
        write!(
            f,
            "{committed} transactions committed, {failed} failed, {unknown} of unknown outcome; \
             {keys} keys, {edges} conflicts"
        )
    }
}
