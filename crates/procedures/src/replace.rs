//! Which set can replace the one that is in use.

use core::fmt;

use crate::{NotCompiled, ProcedureSet, Table};

/// Why a set can't be registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CannotReplace {
    /// No compiler has made it.
    NotCompiled(NotCompiled),
    /// It lacks a table that is in use, or declares one otherwise. Rows are stored without the names of their columns, so
    /// tables stay.
    OtherTables,
    /// It has too many tables or procedures, or its code is too long. Each replica keeps the set in memory and in its log.
    TooLarge {
        /// What there is too much of.
        of: &'static str,
        /// How much there is.
        found: usize,
        /// How much there may be.
        limit: usize,
    },
}

impl fmt::Display for CannotReplace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotReplace::NotCompiled(wrong) => wrong.fmt(f),
            CannotReplace::OtherTables => f.write_str(
                "it lacks tables that are in use, or declares them otherwise; add to the set that is registered",
            ),
            CannotReplace::TooLarge { of, found, limit } => write!(
                f,
                "with it the keyspace would have {found} {of}, and the limit is {limit}; remove procedures that are not \
                 called any more, or use another keyspace"
            ),
        }
    }
}

impl core::error::Error for CannotReplace {}

impl ProcedureSet {
    /// How many procedures a keyspace may have.
    pub const MAX_PROCEDURES: usize = 1_024;
    /// How many tables a keyspace may have, with those that no procedure uses any more.
    pub const MAX_TABLES: usize = 1_024;
    /// How many bytes the procedures and tables of a keyspace may take up when they are encoded.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Checks that this set can replace one with these tables.
    ///
    /// # Errors
    /// [`CannotReplace`], if not.
    pub fn check_replacement(&self, tables: &[Table]) -> Result<(), CannotReplace> {
        let at_most = |of, found, limit| match found > limit {
            true => Err(CannotReplace::TooLarge { of, found, limit }),
            false => Ok(()),
        };
        at_most("procedures", self.procedures.len(), Self::MAX_PROCEDURES)?;
        at_most("tables", self.tables.len(), Self::MAX_TABLES)?;
        at_most("bytes of code", self.encoded_len(), Self::MAX_BYTES)?;
        self.validate().map_err(CannotReplace::NotCompiled)?;
        match self.tables.starts_with(tables) {
            true => Ok(()),
            false => Err(CannotReplace::OtherTables),
        }
    }

    fn encoded_len(&self) -> usize {
        postcard::to_extend(self, Vec::new()).map_or(usize::MAX, |bytes| bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Procedure, Type};

    fn procedure(number: usize, inputs: usize) -> Procedure {
        let field = |at: usize| Field { name: format!("input_{at:058}"), of: Type::Int };
        let (pieces, merged, returns) = (Vec::new(), Vec::new(), Vec::new());
        let inputs = (0..inputs).map(field).collect();
        Procedure { name: number.to_string(), inputs, pieces, merged, returns, ordered: false }
    }

    fn refusal(procedures: usize, inputs: usize) -> String {
        let procedures = (0..procedures).map(|at| procedure(at, inputs)).collect();
        let set = ProcedureSet { tables: Vec::new(), procedures };
        set.check_replacement(&[]).unwrap_err().to_string()
    }

    #[test]
    fn a_set_of_too_many_tables_is_refused() {
        let field = || Field { name: "id".to_owned(), of: Type::Int };
        let table = |at: usize| Table {
            name: format!("t{at}"),
            key: vec![field()],
            placed_by: 1,
            columns: Vec::new(),
        };
        let set = |tables| ProcedureSet {
            tables: (0..tables).map(table).collect(),
            procedures: Vec::new(),
        };
        let why = set(1_025).check_replacement(&[]).unwrap_err().to_string();
        assert!(why.starts_with("with it the keyspace would have 1025 tables"), "{why}");
        assert!(
            !set(1_024)
                .check_replacement(&[])
                .is_err_and(|why| matches!(why, CannotReplace::TooLarge { .. }))
        );
    }

    #[test]
    fn a_set_that_is_too_large_is_refused() {
        assert!(refusal(1_025, 0).starts_with("with it the keyspace would have 1025 procedures"));
        assert!(refusal(1_024, 0).contains("not as the compiler makes it"));
        let why = refusal(1_024, 16);
        assert!(why.contains("bytes of code, and the limit is 1048576"), "{why}");
        assert!(refusal(1_024, 15).contains("not as the compiler makes it"));
    }
}
