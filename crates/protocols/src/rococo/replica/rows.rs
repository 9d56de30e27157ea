//! The rows of a leader: those of the table, with what the leader has written and proposed.

use std::collections::BTreeMap;

use serried_actor::Store;
use serried_model::Key;
use serried_parts::Map;
use serried_procedures::{Datum, RowStore, StoredRow, row_key};

use super::super::message::{Versions, Written};
use super::super::table::Table;

/// What a leader has written and what is not yet applied.
#[derive(Debug, Default)]
pub(super) struct Unapplied {
    rows: Map<Key, Row>,
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
    /// The rows that were written, perhaps several times.
    written: Vec<Key>,
    /// The versions of the rows that were read, in the order of the reads; 0 for a row that never was.
    pub(super) read: Versions,
    /// The row that was read last, with its version. It is often the next to be written.
    last: Option<(Key, u64)>,
}

impl<'a> Rows<'a> {
    /// The rows, for bodies whose writes entry number `entry` will contain.
    pub(super) fn new(
        table: &'a mut Table,
        unapplied: &'a mut Unapplied,
        store: &'a dyn Store,
        entry: u64,
    ) -> Rows<'a> {
        let (written, read, last) = (Vec::new(), Versions::new(), None);
        Rows { table, unapplied, store, entry, written, read, last }
    }

    fn get(&mut self, key: &Key) -> (u64, Option<StoredRow>) {
        if let Some(row) = self.unapplied.rows.get(key) {
            return (row.version, row.columns.clone());
        }
        let row = self.table.row(key, self.store);
        row.map_or((0, None), |row| (row.version, row.columns.clone()))
    }

    /// The version of a row; 0 if there never was one.
    pub(super) fn version(&mut self, key: &Key) -> u64 {
        if let Some(row) = self.unapplied.rows.get(key) {
            return row.version;
        }
        self.table.row(key, self.store).map_or(0, |row| row.version)
    }

    fn put(&mut self, key: Key, columns: Option<StoredRow>) {
        let version = match self.last.take() {
            Some((last, version)) if last == key => version,
            _ => self.version(&key),
        };
        let row = Row { entry: self.entry, version: version + 1, columns };
        self.unapplied.rows.insert(key.clone(), row);
        self.written.push(key);
    }

    /// What was written, for the entry.
    pub(super) fn into_written(mut self) -> Vec<Written> {
        self.written.sort_unstable();
        self.written.dedup();
        let written = self.written.into_iter().map(|key| {
            let row = self.unapplied.rows.get(&key).expect("it was written");
            let Row { version, columns, .. } = row.clone();
            Written { key, version, columns }
        });
        written.collect()
    }
}

impl RowStore for Rows<'_> {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        let key = row_key(table, key);
        let (version, columns) = self.get(&key);
        self.read.push(version);
        self.last = Some((key, version));
        columns
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        self.put(row_key(table, key), Some(row));
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        let key = row_key(table, key);
        let (version, columns) = self.get(&key);
        if columns.is_some() {
            self.last = Some((key.clone(), version));
            self.put(key, None);
        }
    }
}

/// Rows with what pieces would write that are tried.
pub(super) struct Tried<'a> {
    rows: Rows<'a>,
    written: BTreeMap<Key, Option<StoredRow>>,
}

impl<'a> Tried<'a> {
    pub(super) fn new(rows: Rows<'a>) -> Tried<'a> {
        Tried { rows, written: BTreeMap::new() }
    }
}

impl RowStore for Tried<'_> {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        match self.written.get(&row_key(table, key)) {
            Some(row) => row.clone(),
            None => self.rows.read(table, key),
        }
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        self.written.insert(row_key(table, key), Some(row));
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        self.written.insert(row_key(table, key), None);
    }
}
