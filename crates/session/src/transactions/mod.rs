//! Transactions: programs that are run, run again and committed.

mod abort;
mod attempt;
mod attempts;
mod backoff;
mod batch;
mod continuation;
mod error;
mod execution;
mod keyspace;
mod modify;
mod one_shot;
mod options;
mod program;
mod question;
mod read_only;
#[cfg(test)]
mod tests;
mod transaction;

pub use abort::Abort;
pub(crate) use attempt::Attempt;
pub use batch::Batch;
pub use continuation::{Next, Step};
pub use error::TransactionError;
pub(crate) use error::seconds;
pub use execution::{Committed, Footprint};
pub use keyspace::{Transacting, TransactionKeyspace};
pub use modify::Modifying;
pub use options::{Backoff, TransactOptions};
pub use read_only::Snapshot;
pub use transaction::{Get, GetMany, Transaction};
