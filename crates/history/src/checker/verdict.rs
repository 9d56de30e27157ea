//! What the checker answers.

use core::fmt;

use super::Violation;

/// The checker's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Some serial execution gives the same results.
    Serializable(Summary),
    /// No serial execution gives the same results.
    Violation(Box<Violation>),
    /// No violation shows, but the history does not hold enough to exclude one.
    Unknown {
        /// What is missing, and how to record it.
        reason: String,
    },
}

impl Verdict {
    /// Whether the history is known to be serializable.
    pub fn is_serializable(&self) -> bool {
        matches!(self, Verdict::Serializable(_))
    }
}

/// What was checked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Committed transactions.
    pub committed: u64,
    /// Transactions whose outcome nobody recorded.
    pub unknown: u64,
    /// Failed transactions.
    pub failed: u64,
    /// Keys that were read or written.
    pub keys: u64,
    /// Edges of the graph that was searched for cycles.
    pub edges: u64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Serializable(summary) => write!(f, "serializable: {summary}"),
            Verdict::Violation(violation) => write!(f, "not serializable: {violation}"),
            Verdict::Unknown { reason } => write!(f, "unknown: {reason}"),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { committed, unknown, failed, keys, edges } = self;
        write!(
            f,
            "{committed} transactions committed, {failed} failed, {unknown} of unknown outcome; \
             {keys} keys, {edges} conflicts"
        )
    }
}
