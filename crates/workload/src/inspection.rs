//! Inspections of the database after a run.

use core::future::Future;
use core::pin::Pin;
use std::time::Duration;

use serried_model::Version;
use serried_session::{CallError, TransactionError, TransactionKeyspace};

use crate::Workload;

/// An inspection in progress. Returns what was found to be in order, if there was anything to inspect.
pub type Inspection<'a> =
    Pin<Box<dyn Future<Output = Result<Option<String>, InspectionError>> + Send + 'a>>;

/// Why a database did not pass an inspection.
#[derive(Debug, thiserror::Error)]
pub enum InspectionError {
    /// A condition is broken. The text says which one, and where.
    #[error("{0}")]
    Broken(String),
    /// It could not be read.
    #[error("the database can't be inspected: {0}")]
    Unreadable(#[from] TransactionError),
    /// Its procedures could not be called.
    #[error("the database can't be inspected: {0}")]
    Unanswered(#[from] CallError),
}

/// How long to wait until this client's clock has caught up with others'.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs the workload's inspection of a database in which no other transactions run and no transaction has a later
/// version than `latest`.
///
/// With serializability, a client whose clock is behind may read the database as of a time before the others' last
/// transactions. Of two of its transactions, one may read the state before them and the other the state after. So this
/// waits until its own versions are later than all others.
///
/// # Errors
/// If the database can't be read, or a condition is broken.
pub async fn inspect(
    workload: &dyn Workload,
    keyspace: &TransactionKeyspace,
    latest: Version,
) -> Result<Option<String>, InspectionError> {
    while keyspace.transact(|tx| async move { tx.get("any").await }).await?.version <= latest {
        keyspace.sleep_until(keyspace.now() + PAUSE).await;
    }
    workload.inspect(keyspace).await
}
