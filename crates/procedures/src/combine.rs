//! Sets of procedures that are put together.

use core::fmt;

use crate::{Procedure, ProcedureSet, Table};

/// Two sets declare a table differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherTable {
    /// The table.
    pub table: String,
}

impl fmt::Display for OtherTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the table `{}` is declared otherwise by the procedures that are registered: declare it alike, or give it \
             another name",
            self.table
        )
    }
}

impl core::error::Error for OtherTable {}

impl ProcedureSet {
    /// The procedure called `name`.
    pub fn procedure(&self, name: &str) -> Option<&Procedure> {
        self.procedures.iter().find(|procedure| procedure.name == name)
    }

    /// This set with the tables and procedures of `other`. A procedure takes the place of one of the same name. The
    /// offline checker has to check the result, because procedures of both sets may conflict.
    ///
    /// # Errors
    /// If both have a table of one name, and it is not the same.
    pub fn with(&self, other: &ProcedureSet) -> Result<ProcedureSet, OtherTable> {
        let mut set = self.clone();
        let place = |table: &Table, set: &mut ProcedureSet| match set
            .tables
            .iter()
            .position(|known| known.name == table.name)
        {
            Some(at) if set.tables[at] == *table => Ok(at as u16),
            Some(_) => Err(OtherTable { table: table.name.clone() }),
            None => {
                set.tables.push(table.clone());
                Ok(set.tables.len() as u16 - 1)
            }
        };
        let places = other.tables.iter().map(|table| place(table, &mut set));
        let places = places.collect::<Result<Vec<u16>, _>>()?;
        for procedure in &other.procedures {
            let mut procedure = procedure.clone();
            for piece in &mut procedure.pieces {
                for row in &mut piece.body.rows {
                    row.table = places[usize::from(row.table)];
                }
            }
            match set.procedures.iter().position(|known| known.name == procedure.name) {
                Some(at) => set.procedures[at] = procedure,
                None => set.procedures.push(procedure),
            }
        }
        Ok(set)
    }

    /// This set without the procedure called `name`; `None` if it has none of that name. Its tables stay, as their rows do.
    pub fn without(&self, name: &str) -> Option<ProcedureSet> {
        self.procedure(name)?;
        let mut set = self.clone();
        set.procedures.retain(|procedure| procedure.name != name);
        Some(set)
    }
}
