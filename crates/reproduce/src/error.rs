//! Why a figure can't be reproduced.

use std::path::PathBuf;

use serried_model::UnknownGeography;
use serried_protocols::UnknownProtocol;
use serried_workload::WorkloadError;

/// Why a figure can't be reproduced.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no figure of that name.
    #[error("there is no figure `{name}`; choose one of {choices}")]
    UnknownFigure {
        /// The name.
        name: String,
        /// The figures that exist.
        choices: String,
    },
    /// There is no protocol of that name.
    #[error(transparent)]
    Protocol(#[from] UnknownProtocol),
    /// Rates were requested for a figure with closed loops, or client counts for one with open loops.
    #[error(
        "clients of the figure are in loops of the other kind: take its own effort and change that"
    )]
    OtherLoad,
    /// There is no workload of that name, or its parameters are not valid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// There is no geography of that name.
    #[error(transparent)]
    Geography(#[from] UnknownGeography),
    /// The workload needs write transactions, and the protocol has none.
    #[error("`{protocol}` has no write transactions, and `{workload}` needs them")]
    NoWriteTransactions {
        /// The protocol.
        protocol: String,
        /// The workload.
        workload: &'static str,
    },
    /// Another run of the figure has failed. Its error is the one to report.
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
