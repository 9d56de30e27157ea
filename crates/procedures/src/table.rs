//! Tables.

use serde::{Deserialize, Serialize};

use crate::{Datum, Field, Type};

/// A table: rows with typed columns, found by a typed key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// The name, unique in its set.
    pub name: String,
    /// The parts of the key. All are of scalar types.
    pub key: Vec<Field>,
    /// How many leading parts of the key decide which server has a row. Rows of several tables whose leading parts are
    /// equal are at one server, so that one piece can use them all. At least one.
    pub placed_by: usize,
    /// The columns, in the order of their declaration.
    pub columns: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Column {
    /// The name, unique in its table.
    pub name: String,
    /// The type.
    pub of: Type,
    /// What the column has in a row that is absent, or that was written without it.
    pub default: Datum,
}

impl Table {
    /// The columns of an absent row.
    pub fn defaults(&self) -> Vec<Datum> {
        self.columns.iter().map(|column| column.default.clone()).collect()
    }

    /// How many bytes its key and its columns take up at most. Saturates.
    pub fn max_bytes(&self) -> (u64, u64) {
        let sum = |bytes: u64, of: &Type| bytes.saturating_add(of.max_bytes());
        let key = self.key.iter().map(|part| &part.of).fold(0, sum);
        (key, self.columns.iter().map(|column| &column.of).fold(0, sum))
    }

    /// The place of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}
