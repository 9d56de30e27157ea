//! What can go wrong with a figure.

use std::path::PathBuf;

use serried_model::UnknownGeography;
use serried_protocols::UnknownProtocol;
use serried_workload::WorkloadError;

/// What can go wrong with a figure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no figure of that name.
    #[error("there is no figure `{name}`; choose one of {choices}")]
    UnknownFigure {
        /// What was asked for.
        name: String,
        /// Those that there are.
        choices: String,
    },
    /// There is no protocol of that name.
    #[error(transparent)]
    Protocol(#[from] UnknownProtocol),
    /// Rates were asked for where the figure has closed loops, or client counts where it has open ones.
    #[error(
        "clients of the figure are in loops of the other kind: take its own effort and change that"
    )]
    OtherLoad,
    /// There is no workload of that name, or it can't be as it was asked for.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// There is no geography of that name.
    #[error(transparent)]
    Geography(#[from] UnknownGeography),
    /// Another run of the figure has failed; its error is the one to report.
    #[error("another run has failed")]
    Stopped,
    /// A file can't be read or written.
    #[error("can't {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}
