//! Which transactions wait for which ancestors.

use std::collections::BTreeMap;

use serried_model::Version;

/// The transactions that commit and can't be executed yet, each with one ancestor that has to be executed before.
///
/// That ancestor may wait for another one in turn. They never wait in a circle: a transaction whose ancestor waits for it is
/// on a cycle of edges with that one, and is not blocked by it.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    /// By ancestor, a partition that knows it, and those that wait for it. Some of them may wait no longer.
    by: BTreeMap<Version, (u16, Vec<Version>)>,
    /// By transaction that waits, the ancestor.
    causes: BTreeMap<Version, Version>,
}

impl Blocked {
    /// A transaction waits for an ancestor, which is known at a partition.
    pub(super) fn block(&mut self, txn: Version, (by, at): (Version, u16)) {
        debug_assert!(self.chain(by).take(1000).all(|next| next != txn), "{txn} waits for itself");
        if self.causes.insert(txn, by).is_none_or(|cause| cause != by) {
            self.by.entry(by).or_insert((at, Vec::new())).1.push(txn);
        }
    }

    /// A transaction waits no longer.
    pub(super) fn unblock(&mut self, txn: Version) {
        self.causes.remove(&txn);
    }

    /// Whether a transaction waits for an ancestor.
    pub(super) fn waits(&self, txn: Version) -> bool {
        self.causes.contains_key(&txn)
    }

    /// The transaction, the ancestor for which it waits, that ancestor's, and so on.
    pub(super) fn chain(&self, txn: Version) -> impl Iterator<Item = Version> {
        core::iter::successors(Some(txn), |txn| self.causes.get(txn).copied())
    }

    /// An ancestor is executed, or never will be. Returns the transactions that have waited for it.
    pub(super) fn release(&mut self, by: Version) -> Vec<Version> {
        let (_, mut waiting) = self.by.remove(&by).unwrap_or_default();
        waiting.retain(|txn| match self.causes.get(txn) {
            Some(cause) if *cause == by => self.causes.remove(txn).is_some(),
            _ => false,
        });
        waiting
    }

    /// The ancestors, each with a partition that knows it.
    pub(super) fn ancestors(&self) -> Vec<(Version, u16)> {
        self.by.iter().map(|(by, (at, _))| (*by, *at)).collect()
    }

    /// Whether something waits for an ancestor.
    pub(super) fn waits_for(&self, by: Version) -> bool {
        self.by.contains_key(&by)
    }

    /// Forgets the transactions that are not to be executed any more.
    pub(super) fn retain(&mut self, is_open: impl Fn(Version) -> bool) {
        self.causes.retain(|txn, _| is_open(*txn));
        self.by.retain(|by, (_, waiting)| {
            waiting.retain(|txn| self.causes.get(txn) == Some(by));
            !waiting.is_empty()
        });
    }

    pub(super) fn clear(&mut self) {
        *self = Blocked::default();
    }
}
