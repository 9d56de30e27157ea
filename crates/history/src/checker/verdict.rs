//! Verdicts of the checkers of transactions.

use core::fmt;

use super::Violation;

/// A guarantee that a database with transactions may give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransactionGuarantee {
    /// For each process, some order of all writing transactions and of its own transactions explains what it read. It
    /// contains the causal order: transactions of one process come one after the other, and each transaction after
    /// those whose writes it read. Processes may disagree on the order of other writes. This is causal memory with
    /// transactions.
    Causal,
    /// Some order of all writing transactions, which contains the causal order, explains what all processes read: each
    /// read finds the last of the writes that come before its transaction in the causal order. So processes that have
    /// seen the same writes agree. It neither implies [`TransactionGuarantee::Causal`] nor follows from it.
    CausallyConvergent,
    /// Some serial execution gives the same results.
    Serializable,
    /// Some serial execution gives the same results in which each process's transactions come in the order in which the
    /// process ran them (004 §6). There is no real time between processes: one process may see the writes of another
    /// one late.
    ProcessOrderedSerializable,
    /// Some serial execution gives the same results in which each transaction comes after all that had ended before it
    /// began.
    StrictlySerializable,
}

impl TransactionGuarantee {
    /// The adjective, such as `strictly serializable`.
    pub fn name(self) -> &'static str {
        match self {
            TransactionGuarantee::Causal => "causal",
            TransactionGuarantee::CausallyConvergent => "causally convergent",
            TransactionGuarantee::Serializable => "serializable",
            TransactionGuarantee::ProcessOrderedSerializable => "process-ordered serializable",
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
    /// Edges of the graph that was searched for cycles: conflicts, without the edges of real time and of process order.
    /// If causality was checked, these are pairs of a transaction and one that read from it.
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
