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
    table: &'a mut Table,
    unapplied: &'a mut Unapplied,
    store: &'a dyn Store,
    /// The number of the entry that will contain what is written.
    entry: u64,
    /// The rows that were written.
    written: BTreeSet<Key>,
    /// The versions of the rows that were read, in the order of the reads; 0 for a row that never was.
    pub(super) read: Vec<u64>,
}

impl<'a> Rows<'a> {
    /// The rows, for bodies whose writes entry number `entry` will contain.
    pub(super) fn new(
        table: &'a mut Table,
        unapplied: &'a mut Unapplied,
        store: &'a dyn Store,
        entry: u64,
    ) -> Rows<'a> {
        Rows { table, unapplied, store, entry, written: BTreeSet::new(), read: Vec::new() }
    }

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
        self.read.push(version.unwrap_or(0));
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
