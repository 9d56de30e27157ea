//! The rows of a leader: those of the table, with what the leader has written and proposed.

use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Store;
use serried_model::Key;
use serried_procedures::{Datum, RowStore, StoredRow, row_key};

use super::super::message::Written;
use super::super::table::Table;

/// What a leader has written and what is not yet applied.
#[derive(Debug, Default)]
pub(super) struct Unapplied {
    rows: BTreeMap<Key, Row>,
}

#[derive(Clone, Debug)]
struct Row {
    /// The number of the entry that has written it last.
    entry: u64,
    version: u64,
    columns: Option<StoredRow>,
}

impl Unapplied {
    /// An entry was applied, so the table has what it has written.
    pub(super) fn applied<'k>(&mut self, entry: u64, keys: impl Iterator<Item = &'k Key>) {
        for key in keys {
            if self.rows.get(key).is_some_and(|row| row.entry == entry) {
                self.rows.remove(key);
            }
        }
    }
}

/// The rows as bodies see them.
pub(super) struct Rows<'a> {
    pub(super) table: &'a mut Table,
    pub(super) unapplied: &'a mut Unapplied,
    pub(super) store: &'a dyn Store,
    /// The number of the entry that will contain what is written.
    pub(super) entry: u64,
    /// The rows that were written.
    pub(super) written: BTreeSet<Key>,
    /// The rows that were read, with their versions.
    pub(super) read: Vec<(Key, u64)>,
}

impl Rows<'_> {
    fn get(&mut self, key: &Key) -> (Option<u64>, Option<StoredRow>) {
        if let Some(row) = self.unapplied.rows.get(key) {
            return (Some(row.version), row.columns.clone());
        }
        let row = self.table.row(key, self.store);
        row.map_or((None, None), |row| (Some(row.version), row.columns.clone()))
    }

    fn put(&mut self, key: Key, columns: Option<StoredRow>) {
        let version = self.get(&key).0.unwrap_or(0) + 1;
        self.unapplied.rows.insert(key.clone(), Row { entry: self.entry, version, columns });
        self.written.insert(key);
    }

    /// What was written, for the entry.
    pub(super) fn into_written(self) -> Vec<Written> {
        let written = self.written.into_iter().map(|key| {
            let Row { version, columns, .. } = self.unapplied.rows[&key].clone();
            Written { key, version, columns }
        });
        written.collect()
    }
}

impl RowStore for Rows<'_> {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        let key = row_key(table, key);
        let (version, columns) = self.get(&key);
        self.read.push((key, version.unwrap_or(0)));
        columns
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        self.put(row_key(table, key), Some(row));
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        let key = row_key(table, key);
        if self.get(&key).1.is_some() {
            self.put(key, None);
        }
    }
}
