//! How a client records what the clients of a keyspace do.
//!
//! ```text
//! recorder ──RecordRequest──▶ node
//! recorder ◀──Refused──────── node
//! recorder ◀──Began────────── node ──ReportRequest──▶ every client
//! recorder ◀──Reported─────── node ◀──Report───────── every client, again and again
//! recorder ──RecordEnd──────▶ node, to end it early
//! recorder ◀──Ended────────── node
//! ```
//!
//! Only clients know a transaction as a whole, and every client has a connection to the first core of a node. So that
//! core asks them, and passes on what they report.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, TransactionReport};

/// The longest payload of a frame with reports, in bytes. Nodes refuse longer ones. A frame that passes reports on to
/// the recorder is a few bytes longer, and receivers accept that.
pub const MOST_REPORT_BYTES: usize = 56 << 10;

/// What a client wants to record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordRequest {
    /// The number of the keyspace.
    pub keyspace: u64,
    /// For how long.
    pub lasts: Duration,
}

/// What a node sends to a client that records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecordReply {
    /// It asks clients for reports from now on.
    Began,
    /// It does not, for this reason.
    Refused(String),
    /// A client reports transactions. Their times count from the beginning of the recording.
    Reported(NodeId, Vec<TransactionReport<Key>>),
    /// The recording has ended.
    Ended {
        /// How many transactions clients or the node could not report because there was no room.
        missed: u64,
    },
}

/// What a node wants clients to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReportRequest {
    /// Which recording it is for.
    pub recording: u64,
    /// The number of the keyspace.
    pub keyspace: u64,
    /// For how long the recording has been going on.
    pub elapsed: Duration,
    /// For how long it still goes on.
    pub lasts: Duration,
}

/// A client's reports to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Which recording it is for.
    pub recording: u64,
    /// How many transactions the client could not report since its last report.
    pub missed: u64,
    /// Transactions, with times that count from the beginning of the recording.
    pub transactions: Vec<TransactionReport<Key>>,
}
