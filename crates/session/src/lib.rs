//! The session: it runs an application's transaction against a coordinator, whatever the protocol.
//!
//! A transaction is a program, an ordinary closure that returns a future. The session runs it,
//! remembers every read, and hands the finished run's reads and writes to the coordinator. When an
//! earlier read turns out to hold another value ([`serried_model::Output::Rewind`]) it runs the
//! program again, feeding the reads that it already has from memory: a re-execution costs CPU time,
//! not round trips, unless the new run asks for keys that the old one did not. When an attempt is
//! aborted it starts over with a fresh version, after a randomised exponential backoff.
//!
//! Two kinds of transactions are announced to the coordinator as what they are, as a protocol may have a better
//! way for them: those that only read ([`Keyspace::read_only`]), and those whose keys and writes are all known
//! before they begin ([`Keyspace::one_shot`]).
//!
//! The same code runs under both drivers: [`Port`] is what a driver gives it, and [`Switchboard`] is
//! the piece that a driver owns to talk back. Nothing here touches a clock, a thread or a socket.

mod abort;
mod attempt;
mod attempts;
mod backoff;
mod continuation;
mod error;
mod execution;
mod keyspace;
mod one_shot;
mod options;
mod port;
mod program;
mod question;
mod read_only;
mod registers;
mod switchboard;
#[cfg(test)]
mod tests;
mod transaction;

pub use abort::Abort;
pub use attempt::Attempt;
pub use continuation::{Next, Step};
pub use error::Error;
pub use execution::{Committed, Footprint};
pub use keyspace::{Keyspace, Transacting};
pub use options::{Backoff, TransactOptions};
pub use port::{Alarm, Port};
pub use question::Ending;
pub use read_only::Snapshot;
pub use registers::{Modified, Registers};
pub use switchboard::{Full, Switchboard};
pub use transaction::{Get, GetMany, Transaction};
