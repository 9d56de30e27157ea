//! Rows in memory.

use std::collections::BTreeMap;

use serried_procedures::{Datum, RowStore, StoredRow};

/// A row's table and key.
pub(crate) type Place = (u16, Vec<Datum>);

/// Rows in memory, and those that were used since this was last cleared.
#[derive(Clone, Default)]
pub(crate) struct Rows {
    pub(crate) rows: BTreeMap<Place, StoredRow>,
    pub(crate) used: Vec<Place>,
}

impl RowStore for Rows {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        let place = (table, key.to_vec());
        self.used.push(place.clone());
        self.rows.get(&place).cloned()
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        let place = (table, key.to_vec());
        self.used.push(place.clone());
        self.rows.insert(place, row);
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        let place = (table, key.to_vec());
        self.used.push(place.clone());
        self.rows.remove(&place);
    }
}
