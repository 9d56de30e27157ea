//! Which transactions use which rows, so that a new piece finds those that come before it (002 §3.4).

use std::collections::BTreeMap;
use std::ops::Bound;

use serried_model::{Key, Version};
use serried_procedures::{KnownRow, RowUse};

use super::vertex::Kind;

/// The uses of rows by transactions that are not decided.
///
/// Replicas of one partition that find edges each for itself may know transactions in different orders. Then an edge to a
/// transaction that is not executed covers none before it: at other replicas these may not come before it. And what was
/// executed here may not be executed there. So it stays here, until a transaction that was executed later covers it, or
/// until all replicas have executed it ([`Accesses::replicated`]).
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    is_replicated: bool,
    /// By known key, the uses, the oldest first.
    rows: BTreeMap<Key, Vec<Use>>,
    /// By transaction, the keys of its uses.
    keys: BTreeMap<Version, Vec<Key>>,
    /// How many uses there are of rows whose keys are known in part, by how many bytes are known.
    partial: BTreeMap<usize, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    txn: Version,
    kind: Kind,
    used: RowUse,
    is_whole: bool,
    /// Whether the transaction was executed. In each list these come first, in the order of their execution.
    is_executed: bool,
}

impl Accesses {
    /// No uses yet, at a replica that finds edges together with others.
    pub(crate) fn replicated() -> Accesses {
        Accesses { is_replicated: true, ..Accesses::default() }
    }

    /// Adds a use of a row, and passes the transactions that come before it to `each`: those whose uses conflict, but for
    /// those that come before one of them by a use of the same row (*one-hop dependencies*, 002 §3.4).
    pub(crate) fn add(
        &mut self,
        txn: Version,
        kind: Kind,
        row: &KnownRow,
        used: RowUse,
        each: &mut impl FnMut(Version, Kind),
    ) {
        self.conflicting(row, used, &mut |other| {
            if other.txn != txn {
                each(other.txn, other.kind);
            }
        });
        let new = Use { txn, kind, used, is_whole: row.is_whole, is_executed: false };
        self.rows.entry(row.key.clone()).or_default().push(new);
        self.keys.entry(txn).or_default().push(row.key.clone());
        if !row.is_whole {
            *self.partial.entry(row.key.len()).or_default() += 1;
        }
    }

    /// Whether a use of a row conflicts with that of a transaction which is not decided. Returns one.
    pub(crate) fn conflict(&self, row: &KnownRow, used: RowUse) -> Option<Version> {
        let mut found = None;
        self.conflicting(row, used, &mut |other| {
            found.get_or_insert(other.txn);
        });
        found
    }

    fn conflicting(&self, row: &KnownRow, used: RowUse, each: &mut impl FnMut(&Use)) {
        if let Some(uses) = self.rows.get(&row.key) {
            let mut left = used;
            for other in uses.iter().rev().filter(|other| other.used.conflicts(&used)) {
                if !other.used.conflicts(&left) {
                    continue;
                }
                each(other);
                // A use of rows that are known in part may be of another row.
                let covers = !self.is_replicated || other.is_executed;
                if covers && row.is_whole && other.is_whole {
                    match left.not_covered_by(&other.used) {
                        Some(rest) => left = rest,
                        None => break,
                    }
                }
            }
        }
        let bytes = row.key.as_bytes();
        for (length, _) in self.partial.range(..bytes.len()) {
            for other in self.rows.get(&bytes[..*length]).into_iter().flatten() {
                if !other.is_whole && other.used.conflicts(&used) {
                    each(other);
                }
            }
        }
        if !row.is_whole {
            let from = (Bound::Excluded(row.key.as_bytes()), Bound::Unbounded);
            let longer = self.rows.range::<[u8], _>(from);
            let below =
                longer.take_while(|(key, _)| key.as_bytes().starts_with(row.key.as_bytes()));
            for other in below.flat_map(|(_, uses)| uses) {
                if other.used.conflicts(&used) {
                    each(other);
                }
            }
        }
    }

    /// The transactions whose uses are known.
    pub(crate) fn txns(&self) -> impl Iterator<Item = Version> {
        self.keys.keys().copied()
    }

    /// Whether uses of a transaction are known.
    pub(crate) fn contains(&self, txn: Version) -> bool {
        self.keys.contains_key(&txn)
    }

    /// A transaction was executed here, and perhaps not at other replicas of the partition.
    pub(crate) fn settle(&mut self, txn: Version) {
        for key in self.keys.get(&txn).into_iter().flatten() {
            let Some(uses) = self.rows.get_mut(key) else { continue };
            let (own, mut others): (Vec<Use>, Vec<Use>) =
                uses.iter().partition(|other| other.txn == txn && !other.is_executed);
            let executed = others.iter().take_while(|other| other.is_executed).count();
            let new = own.into_iter().map(|own| Use { is_executed: true, ..own });
            let new: Vec<Use> = new.collect();
            let is_covered = |earlier: &Use| {
                let covers = |later: &&Use| later.used.conflicts(&earlier.used);
                let left = new
                    .iter()
                    .filter(covers)
                    .try_fold(earlier.used, |left, later| left.not_covered_by(&later.used));
                // A use of one row does not cover one of all rows whose keys begin so.
                let are_alike = earlier.is_whole || new.iter().all(|new| !new.is_whole);
                are_alike && earlier.is_executed && left.is_none()
            };
            let live = others.split_off(executed);
            others.retain(|earlier| !is_covered(earlier));
            others.extend(&new);
            others.extend(live);
            *uses = others;
        }
    }

    /// Removes the uses of a transaction that is decided.
    pub(crate) fn remove(&mut self, txn: Version) {
        for key in self.keys.remove(&txn).into_iter().flatten() {
            let Some(uses) = self.rows.get_mut(&key) else { continue };
            let is_own = |other: &Use| other.txn == txn;
            let own = uses.iter().filter(|other| is_own(other) && !other.is_whole).count();
            if let Some(count) = self.partial.get_mut(&key.len()).filter(|_| own > 0) {
                *count -= own;
                if *count == 0 {
                    self.partial.remove(&key.len());
                }
            }
            uses.retain(|other| !is_own(other));
            if uses.is_empty() {
                self.rows.remove(&key);
            }
        }
    }

    /// How many rows are used.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}
