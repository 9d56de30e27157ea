//! Serried: a replicated, multi-version, transactional key-value database for contended data.
//!
//! A transaction is an ordinary closure that returns a future. If it conflicts with others, Serried runs it again,
//! partly or from the start, instead of making it wait. So it must have no side effects except through its
//! [`Transaction`].
//!
//! ```no_run
//! use serried::{Abort, Database, Value};
//!
//! fn balance(value: Option<Value>) -> Result<u64, Abort> {
//!     let value = value.ok_or_else(|| Abort::new("no such account"))?;
//!     Ok(std::str::from_utf8(value.as_bytes())?.parse()?)
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let db = Database::connect("serried://127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402").await?;
//! let accounts = db.keyspace("accounts").await?;
//! let committed = accounts
//!     .transact(|tx| async move {
//!         let from = balance(tx.get("alice").await?)?;
//!         let to = balance(tx.get("bob").await?)?;
//!         let from = from.checked_sub(10).ok_or_else(|| Abort::new("not enough money"))?;
//!         tx.put("alice", from.to_string());
//!         tx.put("bob", (to + 10).to_string());
//!         Ok(from)
//!     })
//!     .await?;
//! println!("alice has {}, after {} attempts", committed.value, committed.attempts);
//! # Ok(())
//! # }
//! ```
//!
//! Programs that only read are run with [`TransactionKeyspace::read_only`], and their [`Snapshot`] has no way to write.
//! Where all keys and writes are known before a transaction begins, [`TransactionKeyspace::one_shot`] does it all at once.
//! Some protocols have a shorter way for these. Under the others they are ordinary transactions.
//!
//! ```no_run
//! use serried::{Key, TransactionError, TransactionKeyspace, Value, Write};
//!
//! # async fn example(accounts: TransactionKeyspace) -> Result<(), TransactionError> {
//! let both = accounts.read_only(|snapshot| async move { snapshot.get_many(["alice", "bob"]).await });
//! println!("they have {:?}", both.await?.value);
//! let reset = Write { key: Key::from("bob"), value: Some(Value::from("0")) };
//! let before = accounts.one_shot(["bob"], [reset]).await?;
//! println!("bob had {:?}", before.value[0]);
//! # Ok(())
//! # }
//! ```
//!
//! A [`TransactionKeyspace`] is cheap to clone and works from many tasks at once. Errors say what to do: see
//! [`TransactionError`], [`RegisterError`], and [`ConnectError`] for what can go wrong before a keyspace is open.

mod client;
mod coordinator;
mod database;
mod desk;
mod dialer;
mod distance;
mod error;
mod obstacles;
mod port;
mod recording;
mod reporting;
mod side;
mod url;
mod watching;

pub use client::{Client, ConnectOptions, NodeReply};
pub use coordinator::{Coordinators, MakeCoordinator};
pub use database::{Database, DatabaseStatistics};
pub use error::ConnectError;
pub use recording::{RecordError, Recording, RecordingEvent};
pub use serried_actor::{Observation, Observed, Timestamp};
pub use serried_model::{
    Access, Accessed, Carstamp, Durability, FamilyName, Key, Limits, Modification, NodeId,
    Registers, Snapshots, Token, TooLarge, TransactionReport, Transactions, Unfit, Value,
    ValueType, Version, Versionstamp, Write, WriteToken, WrongType,
};
pub use serried_procedures::{
    Datum, Field, InvalidInputs, Mismatch, ProcedureSet, Procedures, Refused, Results, Type,
};
pub use serried_session::{
    Abort, Backoff, BadToken, Batch, CallError, CallOptions, CallOutcome, Committed, Ending,
    Footprint, Get, GetMany, Modified, Modifying, Next, ProcedureKeyspace, ReadOnly, RegisterError,
    RegisterKeyspace, RegisterOptions, RegisteredSet, Session, SessionToken, Snapshot,
    SnapshotError, SnapshotKeyspace, SnapshotOptions, Step, TransactOptions, Transaction,
    TransactionError, TransactionKeyspace, WriteOutcome,
};
pub use serried_wire::{
    AtSite, Behind, KeyspaceInfo, NodeStatistics, NodeStatus, NotServed, NotVoting, Statistics,
    TransportOptions,
};
pub use watching::{WatchError, WatchOptions, Watched, Watching};

/// The example of the project's README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

/// The examples of docs/programming.md, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/programming.md")]
pub struct Programming;

/// The examples of docs/getting-started.md, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/getting-started.md")]
pub struct GettingStarted;

/// The examples of docs/choosing-a-guarantee.md, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/choosing-a-guarantee.md")]
pub struct ChoosingAGuarantee;
