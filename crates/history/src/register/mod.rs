//! Registers: histories of reads, writes and read-modify-writes of single keys, and their checkers.
//!
//! ```text
//! events ─step─> per key: what each operation needs and writes, and when ─counter─> unknown additions
//!        ─chains─> who read from whom, if values tell: decided      ┐
//!        ─claims─> the order that the database claims: tried        ├─shrink─> ─explain─> verdict
//!        ─search, board─> all orders, within a budget               ┘
//! ```

mod board;
mod chains;
mod claims;
mod counter;
mod event;
mod explain;
mod json;
mod linearizable;
mod recorder;
mod regular;
mod search;
mod shrink;
mod step;
mod verdict;

pub use event::{RegisterEvent, RegisterHistory, RegisterOperation, RegisterValue};
pub use linearizable::check_linearizable;
pub use recorder::{RegisterOutcome, RegisterRecorder};
pub use regular::check_regular_sequential;
pub use search::Budget;
pub use verdict::{
    Precedence, PrecedenceReason, RegisterGuarantee, RegisterSummary, RegisterVerdict,
    RegisterViolation, RegisterWitness,
};
