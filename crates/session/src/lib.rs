//! Sessions run an application's transactions and operations against a coordinator of any protocol.
//!
//! Each family of keyspaces has a handle of its own: [`TransactionKeyspace`] runs transactions, [`RegisterKeyspace`] reads
//! and updates registers, [`ProcedureKeyspace`] calls stored procedures, and [`SnapshotKeyspace`] has read-only transactions and
//! single writes.
//!
//! A transaction is a program, an ordinary closure that returns a future. The session runs it, remembers every read, and
//! hands the finished run's reads and writes to the coordinator. If an earlier read turns out to hold another value
//! ([`serried_model::transactions::Output::Rewind`]), the session runs the program again and feeds it the reads that it
//! already has from memory. So a re-execution costs CPU time. It costs round trips only if the new run reads keys that the
//! old one did not. If an attempt is aborted, the session starts over with a fresh version, after a randomised exponential
//! backoff.
//!
//! A protocol may have a better way to run two kinds of transactions, so the session announces them to the coordinator:
//! those that only read ([`TransactionKeyspace::read_only`]), and those whose keys and writes are all known before they
//! begin ([`TransactionKeyspace::one_shot`]).
//!
//! The same code runs under both drivers. A driver implements [`Driver`] and [`Port`], and owns a [`Switchboard`] for each
//! coordinator and the [`Alarms`] of a client. Nothing here touches a clock, a thread or a socket.

mod alarms;
mod call;
mod driver;
mod family;
mod procedures;
mod registers;
#[cfg(test)]
mod script;
mod snapshots;
mod switchboard;
mod transactions;

pub use alarms::Alarms;
pub use driver::{Alarm, Driver, Port};
pub use family::Session;
pub use procedures::{CallError, CallOptions, CallOutcome, ProcedureKeyspace, RegisteredSet};
pub use registers::{RegisterError, RegisterKeyspace, RegisterOptions};
pub use serried_model::Modified;
pub use serried_model::transactions::Ending;
pub use snapshots::{
    BadToken, ReadOnly, SessionToken, SnapshotError, SnapshotKeyspace, SnapshotOptions,
    WriteOutcome,
};
pub use switchboard::{Full, Recipient, Switchboard};
pub use transactions::{
    Abort, Backoff, Batch, Committed, Footprint, Get, GetMany, Modifying, Next, Snapshot, Step,
    TransactOptions, Transacting, Transaction, TransactionError, TransactionKeyspace,
};
