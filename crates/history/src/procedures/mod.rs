//! Stored procedures: histories of calls that read lists and append to them, and their checker.
//!
//! ```text
//! events ─transactions─> a history of transactions, each with the lists that it read and what it appended
//!        ─crate::checker─> its verdict ─┐
//!        ─lost─> an append that is lost ┴─> the verdict, with the names of the procedures
//! ```

mod check;
mod event;
mod json;
mod lost;
mod recorder;
mod verdict;

pub use check::check_calls;
pub use event::{CallEvent, CallHistory};
pub use lost::LostAppend;
pub use recorder::{CallEnd, CallRecorder};
pub use verdict::{CallSummary, CallVerdict, CallViolation};
