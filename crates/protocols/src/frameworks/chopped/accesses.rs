//! Which transactions use which rows, so that a new piece finds those that come before it (002 §3.4).

use std::collections::BTreeMap;
use std::ops::Bound;

use serried_model::{Key, Version};
use serried_procedures::{KnownRow, RowUse};

use super::vertex::Kind;

/// The uses of rows by transactions that are not decided.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
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
}

impl Accesses {
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
        let new = Use { txn, kind, used, is_whole: row.is_whole };
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
                if row.is_whole && other.is_whole {
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
