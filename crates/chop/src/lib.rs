//! Stored procedures from text: their compiler, and the offline checker of ROCOCO (OSDI 2014, §3.1).
//!
//! [`compile`] turns a procedure file into a [`ProcedureSet`](serried_procedures::ProcedureSet). [`check`] decides which of
//! its pieces can be deferred, and refuses a set whose pieces may interleave in a way that ROCOCO could not reorder;
//! [`check_and_merge`] merges such pieces. [`draw`] draws the graph that they search.

mod compile;
mod file;
mod graph;
mod mistake;

pub use file::compile;
pub use graph::{Cycle, Graph, Merge, Step, Vertex, check, check_and_merge, draw};
pub use mistake::Mistake;

/// The procedure files of TPC-C, scaled inside a warehouse (002 §5.4).
pub mod tpcc {
    /// Its tables, and its five transactions.
    pub const TRANSACTIONS: &str = include_str!("../procedures/tpcc.toml");
    /// Procedures that load the tables. They are a set of their own together with the tables: see the file.
    pub const LOADS: &str = include_str!("../procedures/tpcc-load.toml");
    /// Read-only procedures for checking the tables.
    pub const LOOKS: &str = include_str!("../procedures/tpcc-look.toml");
}
