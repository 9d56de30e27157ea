//! What has to be in a keyspace before clients can call procedures.

use serried_session::{CallError, ProcedureKeyspace};

use super::ProcedureWorkload;

/// Why a keyspace can't be used for a workload.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// Its procedures could not be registered.
    #[error(transparent)]
    Unanswered(#[from] CallError),
    /// It has procedures of somebody else.
    #[error(
        "version {version} of the keyspace's procedures are not those of `{workload}`: {procedures}; choose another \
         keyspace, or drop this one"
    )]
    Others {
        /// The version of the registered set.
        version: u64,
        /// The workload.
        workload: &'static str,
        /// The registered procedures.
        procedures: String,
    },
}

/// Registers the workload's procedures, unless they are registered; while something has still to be loaded, those that load
/// it. Several clients may do this at the same time.
///
/// # Errors
/// If the keyspace has other procedures, or does not answer.
pub async fn make_ready(
    keyspace: &ProcedureKeyspace,
    workload: &dyn ProcedureWorkload,
) -> Result<(), NotReady> {
    loop {
        let registered = keyspace.procedures().await?;
        let loading = workload.loading();
        if registered.set == *workload.set() {
            // What had to be loaded is there.
            loading.inspect(|loading| loading.finish());
            return Ok(());
        }
        let loads = loading.is_some_and(|loading| registered.set == *loading.set());
        let wanted = match loading.filter(|loading| !loading.is_done()) {
            Some(_) if loads => return Ok(()),
            Some(loading) => loading.set(),
            None => workload.set(),
        };
        if registered.version > 0 && !loads {
            let names = registered.set.procedures.iter().map(|procedure| procedure.name.as_str());
            return Err(NotReady::Others {
                version: registered.version,
                workload: workload.name(),
                procedures: names.collect::<Vec<_>>().join(", "),
            });
        }
        match keyspace.register_in_place_of(registered.version, wanted.clone()).await {
            // Another client's registration may be under way. Listing waits for nothing, so this does.
            Ok(_) | Err(CallError::Superseded { .. }) => {
                keyspace.sleep_until(keyspace.now() + PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// How long to wait for another client's registration.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
