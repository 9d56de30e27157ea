//! The state of each key and each transaction at a replica. It is the same at all replicas that
//! have applied the same entries.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serried_model::{Key, Value, Version};
use serried_procedures::ProcedureSet;
use smallvec::SmallVec;

use super::message::{AdmissionWindow, Decision, Item, Kept, Written};
use super::stamp::{Stamp, Validity};
use crate::frameworks::replicated_log::Last;

/// A value of a replica's store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum Cell {
    /// Nothing.
    #[default]
    Nothing,
    /// A key's row.
    Row(Row),
    /// The state of a transaction.
    Txn(TxnRow),
    /// Which transactions are admitted, and the slot after that of the entry that set this.
    Window(u64, AdmissionWindow),
    /// What is kept of a call, and the slot after that of the entry that set this.
    Kept(u64, Arc<Kept>),
    /// The set of procedures that is in use, and its version.
    Set(u64, Arc<ProcedureSet>),
    /// The last entry.
    Last(Last),
}

/// The state of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The slot after that of the last entry that the row contains.
    applied: u64,
    /// The newest committed version.
    newest: Installed,
    /// Overwritten versions, the newest first, for as long as a transaction may read them.
    older: Older,
    /// The accesses of prepared transactions.
    pending: SmallVec<[Pending; 1]>,
}

/// How many bytes of overwritten versions are kept of one key, about. A row must fit into a message, in which a replica
/// copies it.
const OLDER_BYTES_AT_MOST: usize = 16 << 20;

/// The overwritten versions of a key, the newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Older {
    versions: VecDeque<Installed>,
    /// How many bytes they take, about.
    bytes: usize,
}

impl Older {
    fn insert(&mut self, place: usize, version: Installed) {
        self.bytes += version.bytes();
        self.versions.insert(place, version);
    }

    fn drop_oldest(&mut self) {
        self.bytes -= self.versions.pop_back().map_or(0, |version| version.bytes());
    }
}

impl Serialize for Older {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.versions.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Older {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Older, D::Error> {
        let versions = VecDeque::<Installed>::deserialize(deserializer)?;
        let bytes = versions.iter().map(Installed::bytes).sum();
        Ok(Older { versions, bytes })
    }
}

/// A committed version of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Installed {
    /// The value, or `None` if the key is absent.
    pub value: Option<Value>,
    /// When it was written.
    pub stamp: Stamp,
    /// When a committed transaction last read it. When it was written, if none has read it.
    pub read_at: Stamp,
    /// The slot after the one that committed it. Zero for the initial version.
    pub since: u64,
}

/// The access of a prepared transaction to a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Pending {
    txn: Version,
    read: Option<Stamp>,
    write: Option<Written>,
}

/// The state of a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TxnRow {
    /// The slot after that of the last entry that the row contains.
    pub(super) applied: u64,
    pub(super) state: TxnState,
}

/// How far a transaction has got.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum TxnState {
    /// It is prepared. Its accesses are stored with the keys.
    Prepared { participants: Arc<[u16]>, validity: Validity, keys: Vec<Key> },
    /// It has ended.
    Decided(Decision),
}

impl Installed {
    /// How many bytes it takes, about. It is the same at all replicas, since it decides which versions they keep.
    fn bytes(&self) -> usize {
        128 + self.value.as_ref().map_or(0, |value| value.as_bytes().len())
    }
}

impl Row {
    /// Reads a little of everything that a read of the newest version needs. See [`serried_parts::Pool::prefetch`].
    pub(super) fn prefetch(&self) -> u64 {
        let value = self.newest.value.as_ref().and_then(|value| value.as_bytes().first());
        self.newest.since ^ u64::from(value.copied().unwrap_or_default())
    }

    /// A row whose initial version has this value.
    pub(super) fn holding(value: Value) -> Row {
        let newest = Installed { value: Some(value), ..Installed::default() };
        Row { newest, ..Row::default() }
    }

    /// The newest committed version.
    pub fn newest(&self) -> &Installed {
        &self.newest
    }

    /// The committed versions, the newest first.
    pub fn versions(&self) -> impl Iterator<Item = &Installed> {
        core::iter::once(&self.newest).chain(&self.older.versions)
    }

    /// Whether it contains all entries that the other row contains.
    pub(super) fn is_as_late_as(&self, other: &Row) -> bool {
        self.applied >= other.applied
    }

    /// The access of `txn` to the key, if `txn` is prepared.
    pub(super) fn item(&self, key: &Key, txn: Version) -> Option<Item> {
        let pending = self.pending.iter().find(|pending| pending.txn == txn)?;
        let Pending { read, write, .. } = pending.clone();
        Some(Item { key: key.clone(), read, write })
    }

    /// Records that a transaction is prepared, or that its part has changed.
    pub(super) fn prepare(&mut self, slot: u64, txn: Version, item: &Item) {
        if slot < self.applied {
            return; // The row was taken over, and contains this.
        }
        self.applied = slot + 1;
        self.pending.retain(|pending| pending.txn != txn);
        let Item { read, write, .. } = item.clone();
        self.pending.push(Pending { txn, read, write });
    }

    /// Ends a transaction. If `kept_us` is set, overwritten versions are kept for reads as of
    /// `kept_us` or later.
    pub(super) fn decide(
        &mut self,
        slot: u64,
        txn: Version,
        decision: Decision,
        kept_us: Option<u64>,
    ) {
        if slot < self.applied {
            return; // As before.
        }
        self.applied = slot + 1;
        let Some(index) = self.pending.iter().position(|pending| pending.txn == txn) else {
            return;
        };
        let Pending { read, write, .. } = self.pending.remove(index);
        let Decision::Commit(at) = decision else { return };
        if let Some(stamp) = read {
            let mut versions = core::iter::once(&mut self.newest).chain(&mut self.older.versions);
            if let Some(read) = versions.find(|version| version.stamp == stamp) {
                read.read_at = read.read_at.max(at);
            }
        }
        if let Some(Written { value, .. }) = write {
            self.install(Installed { value, stamp: at, read_at: at, since: slot + 1 }, kept_us);
        }
    }

    fn install(&mut self, new: Installed, kept_us: Option<u64>) {
        let Some(kept_us) = kept_us else {
            if new.stamp > self.newest.stamp {
                self.newest = new;
            }
            return;
        };
        if new.stamp > self.newest.stamp {
            let overwritten = core::mem::replace(&mut self.newest, new);
            self.older.insert(0, overwritten);
        } else {
            let place = self.older.versions.partition_point(|older| older.stamp > new.stamp);
            if place == self.older.versions.len() {
                // Versions that were later than this one may have been dropped. A read would overlook them if it found this.
                return;
            }
            self.older.insert(place, new);
        }
        // A read as of `kept_us` returns the newest version before it, so none that is older.
        while let Some(place) = self.older.versions.len().checked_sub(1) {
            let later = place.checked_sub(1).map(|place| &self.older.versions[place]);
            let is_read = later.unwrap_or(&self.newest).stamp.us >= kept_us;
            if is_read && self.older.bytes <= OLDER_BYTES_AT_MOST {
                break;
            }
            self.older.drop_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::NodeId;

    fn txn(us: u64) -> Version {
        Version { timestamp_us: us, coordinator: NodeId(70_000) }
    }

    fn item(us: u64, read: Option<Stamp>) -> Item {
        let value = Some(Value::from(us.to_string().as_str()));
        let write = Some(Written { value, at: Stamp::assigned(txn(us)) });
        Item { key: Key::from("x"), read, write }
    }

    fn commit(row: &mut Row, slot: u64, us: u64, kept_us: Option<u64>) {
        row.prepare(slot, txn(us), &item(us, None));
        row.decide(slot + 1, txn(us), Decision::Commit(Stamp::assigned(txn(us))), kept_us);
    }

    fn stamps(row: &Row) -> Vec<u64> {
        row.versions().map(|version| version.stamp.us).collect()
    }

    #[test]
    fn a_row_holds_the_latest_stamp_in_any_order_of_decisions() {
        let mut row = Row::default();
        row.prepare(0, txn(5), &item(5, None));
        commit(&mut row, 1, 8, None);
        row.decide(3, txn(5), Decision::Commit(Stamp::assigned(txn(5))), None);
        assert_eq!((row.newest().stamp.us, row.newest().since), (8, 3));
        assert_eq!(stamps(&row), [8]);
    }

    #[test]
    fn a_read_counts_once_its_transaction_has_committed() {
        let mut row = Row::default();
        commit(&mut row, 0, 5, None);
        let read = Item { write: None, ..item(9, Some(Stamp::assigned(txn(5)))) };
        row.prepare(2, txn(9), &read);
        row.prepare(3, txn(20), &read);
        row.decide(4, txn(20), Decision::Abort, None);
        assert_eq!(row.newest().read_at.us, 5);
        row.decide(5, txn(9), Decision::Commit(Stamp { us: 12, txn: txn(9) }), None);
        assert_eq!((row.newest().read_at.us, row.pending.len()), (12, 0));
    }

    #[test]
    fn versions_are_kept_for_as_long_as_they_can_be_read() {
        let mut row = Row::default();
        for (slot, us) in [(0, 10), (2, 30), (4, 20)] {
            commit(&mut row, slot, us, Some(0));
        }
        assert_eq!(stamps(&row), [30, 20, 10, 0]);
        commit(&mut row, 6, 40, Some(25));
        assert_eq!(stamps(&row), [40, 30, 20], "a read as of 25 returns the version of 20");
    }

    #[test]
    fn overwritten_versions_are_bounded_whether_their_row_was_loaded_or_not() {
        let large = Value::from(vec![7; 1 << 20]);
        let mut row = Row::default();
        for i in 0..100 {
            let (slot, us) = (2 * i, 10 + i);
            let write = Some(Written { value: Some(large.clone()), at: Stamp::assigned(txn(us)) });
            row.prepare(slot, txn(us), &Item { key: Key::from("x"), read: None, write });
            row.decide(slot + 1, txn(us), Decision::Commit(Stamp::assigned(txn(us))), Some(0));
            if i % 10 == 0 {
                let stored = serried_parts::encode_cell(&Cell::Row(row.clone()));
                assert!(stored.len() < 20 << 20, "{}", stored.len());
                let Cell::Row(loaded) = serried_parts::decode_cell(&stored) else { panic!() };
                assert_eq!(loaded, row);
                row = loaded;
            }
            let count = row.versions().count() as u64;
            assert_eq!(count, if i < 16 { i + 2 } else { 16 }, "all, or the newest and 15 before");
        }
        assert_eq!(row.newest().stamp.us, 109);
    }

    /// A transaction with an early stamp commits after later versions were dropped.
    #[test]
    fn a_late_version_is_not_found_instead_of_those_that_were_dropped() {
        let large = Some(Value::from(vec![7; 1 << 20]));
        let mut row = Row::default();
        row.prepare(0, txn(5), &item(5, None));
        row.prepare(1, txn(99), &item(99, None));
        for i in 1..=30 {
            let (slot, us) = (2 * i, 10 + i);
            let write = Some(Written { value: large.clone(), at: Stamp::assigned(txn(us)) });
            row.prepare(slot, txn(us), &Item { key: Key::from("x"), read: None, write });
            row.decide(slot + 1, txn(us), Decision::Commit(Stamp::assigned(txn(us))), Some(0));
        }
        let kept = stamps(&row);
        assert_eq!(kept, (25..=40).rev().collect::<Vec<u64>>());
        let commit = |us| Decision::Commit(Stamp::assigned(txn(us)));
        row.decide(70, txn(5), commit(5), Some(0));
        assert_eq!(stamps(&row), kept, "a read as of 20 must not find that of 5");
        row.decide(71, txn(99), Decision::Commit(Stamp { us: 35, txn: txn(99) }), Some(0));
        assert!(stamps(&row).iter().filter(|us| **us == 35).count() == 2, "one between others is");
    }

    #[test]
    fn entries_that_a_copied_row_contains_do_not_change_it() {
        let mut row = Row::default();
        row.prepare(3, txn(5), &item(5, None));
        row.decide(6, txn(5), Decision::Commit(Stamp::assigned(txn(5))), None);
        let taken_over = row.clone();
        row.prepare(3, txn(5), &item(5, None));
        row.decide(6, txn(5), Decision::Abort, None);
        assert_eq!(row, taken_over);
    }
}
