//! A look at the database that a run has left behind.

use core::future::Future;
use core::pin::Pin;
use std::time::Duration;

use serried_model::Version;
use serried_session::{TransactionError, TransactionKeyspace};

use crate::Workload;

/// A database being inspected; what was found to be in order, if there was anything to look at.
pub type Inspection<'a> =
    Pin<Box<dyn Future<Output = Result<Option<String>, InspectionError>> + Send + 'a>>;

/// Why a database did not pass an inspection.
#[derive(Debug, thiserror::Error)]
pub enum InspectionError {
    /// It is not as it should be; which condition is broken, and where.
    #[error("{0}")]
    Broken(String),
    /// It could not be read.
    #[error("the database can't be inspected: {0}")]
    Unreadable(#[from] TransactionError),
}

/// How long to wait for this client's clock to come nearer to others'.
const PAUSE: Duration = Duration::from_millis(10);

/// Has `workload` inspect a database at rest, in which no transaction has a later version than
/// `latest`.
///
/// Serializable transactions of a client whose clock is behind others' may read what was there before
/// the others' last ones; and of two of its transactions, the one before and the other after. So this
/// waits until its own are later than all.
///
/// # Errors
/// If the database can't be read, or is not as it should be.
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
