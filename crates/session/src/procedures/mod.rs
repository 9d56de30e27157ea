//! Stored procedures: calls, and the registration of sets.

mod error;
mod keyspace;
mod options;
#[cfg(test)]
mod tests;

pub use error::CallError;
pub use keyspace::{CallOutcome, ProcedureKeyspace, RegisteredSet};
pub use options::CallOptions;
