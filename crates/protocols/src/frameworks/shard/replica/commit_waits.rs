//! Commits that are not reported before their moments are over (*commit wait*).

use std::collections::BTreeMap;

use serried_model::{NodeId, Version};
use smallvec::SmallVec;

/// How many nodes may wait for the end of one transaction. Others ask again.
const WAITING_AT_MOST: usize = 64;

/// The nodes that wait for the end of a transaction.
pub(super) type Waiting = SmallVec<[NodeId; 1]>;

/// The commits that wait, by their moments in microseconds since the Unix epoch.
#[derive(Debug, Default)]
pub(super) struct CommitWaits(BTreeMap<(u64, Version), Waiting>);

impl CommitWaits {
    /// A transaction that takes effect at `us` waits.
    pub(super) fn insert(&mut self, us: u64, txn: Version) {
        self.0.entry((us, txn)).or_default();
    }

    /// A node waits for the end of a transaction that takes effect at `us`.
    pub(super) fn tell(&mut self, us: u64, txn: Version, to: NodeId) {
        let waiting = self.0.entry((us, txn)).or_default();
        if !waiting.contains(&to) && waiting.len() < WAITING_AT_MOST {
            waiting.push(to);
        }
    }

    /// The first moment that a transaction waits for.
    pub(super) fn first_us(&self) -> Option<u64> {
        self.0.first_key_value().map(|((us, _), _)| *us)
    }

    /// A transaction whose moment is before `earliest_us`, and who waits for its end.
    pub(super) fn pop_before(&mut self, earliest_us: u64) -> Option<(Version, Waiting)> {
        self.first_us().filter(|us| *us < earliest_us)?;
        let ((_, txn), waiting) = self.0.pop_first()?;
        Some((txn, waiting))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
