//! Snapshots: read-only transactions, and writes of single keys.

mod clock;
mod error;
mod keyspace;
mod options;
#[cfg(test)]
mod tests;
mod token;

pub use error::SnapshotError;
pub use keyspace::{ReadOnly, SnapshotKeyspace, WriteOutcome};
pub use options::SnapshotOptions;
pub use token::{BadToken, SessionToken};
