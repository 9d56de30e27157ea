//! Which transactions wait for which ancestors.

use std::collections::BTreeMap;

use serried_model::Version;

/// The transactions that commit and can't be executed yet, each with one ancestor that is not known well enough. So a
/// transaction that comes after one of them waits for the same ancestor, and need not look for others.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    /// By ancestor, a partition that knows it, and those that wait for it.
    by: BTreeMap<Version, (u16, Vec<Version>)>,
    /// By transaction that waits, the ancestor.
    causes: BTreeMap<Version, Version>,
}

impl Blocked {
    /// A transaction waits for an ancestor, which is known at a partition.
    pub(super) fn block(&mut self, txn: Version, (by, at): (Version, u16)) {
        if self.causes.insert(txn, by).is_none_or(|cause| cause != by) {
            self.by.entry(by).or_insert((at, Vec::new())).1.push(txn);
        }
    }

    /// The ancestor for which a transaction waits.
    pub(super) fn cause(&self, txn: Version) -> Option<Version> {
        self.causes.get(&txn).copied()
    }

    /// More is known of an ancestor. Returns the transactions that have waited for it.
    pub(super) fn release(&mut self, by: Version) -> Vec<Version> {
        let (_, waiting) = self.by.remove(&by).unwrap_or_default();
        waiting.into_iter().filter(|txn| self.causes.remove(txn).is_some()).collect()
    }

    /// The ancestors, each with a partition that knows it.
    pub(super) fn ancestors(&self) -> Vec<(Version, u16)> {
        self.by.iter().map(|(by, (at, _))| (*by, *at)).collect()
    }

    /// Whether something waits for an ancestor.
    pub(super) fn waits_for(&self, by: Version) -> bool {
        self.by.contains_key(&by)
    }

    pub(super) fn retain(&mut self, is_live: impl Fn(Version) -> bool) {
        self.causes.retain(|txn, _| is_live(*txn));
        self.by.retain(|_, (_, waiting)| {
            waiting.retain(|txn| is_live(*txn));
            !waiting.is_empty()
        });
    }

    pub(super) fn clear(&mut self) {
        *self = Blocked::default();
    }
}
