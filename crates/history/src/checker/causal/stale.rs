//! Reads that contradict the causal order itself: a write that the reader found had been replaced before.

use super::causes::Causes;
use super::facts::Facts;
use super::{Edges, Step};
use crate::digraph::Edge;

/// Each edge closes a cycle with the causal order.
///
/// - From a writer to an earlier writer, if a transaction after both read the earlier one's write.
/// - From a reader of what was there before the history to a writer that comes before it.
pub(super) fn find(facts: &Facts, causes: &Causes) -> Edges {
    let mut found = Vec::new();
    for read in &facts.reads {
        for (writers, last) in causes.writers_before(&causes.before, read.key, read.reader) {
            let (from, to, label) = match read.writer {
                None => (read.reader, writers.first(), Step::initial(read.key)),
                Some(writer) if causes.before.is_before(&causes.chains, writer, last) => {
                    (last, writer, Step::arbitration(read.key, 1))
                }
                Some(_) => continue,
            };
            found.push(Edge { from, to, label });
        }
    }
    found
}
