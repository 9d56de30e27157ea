//! Stored procedures in pieces: their types, their compiled bodies, and what runs them.
//!
//! A procedure is chopped into [pieces](Piece). Each piece runs at the server that holds its rows. Servers may buffer
//! pieces and reorder them, and they never undo one (ROCOCO, OSDI 2014, §3). So a body must not fail once a procedure
//! has written, and must not run for long. A general scripting language gives neither: any operation may meet a value
//! of another type, and a loop may not end. A body here is an expression tree ([`Code`]) with static types and without
//! loops but those over lists of bounded length. Its types, its failures and its steps are known when it is registered:
//! the compiler infers them, and so does every server that gets the set ([`ProcedureSet::validate`]).
//!
//! This crate has what is needed to run procedures; clients and servers depend on it. `serried-chop` compiles procedures
//! from text, checks them and finds unreorderable cycles.

#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod body;
mod call;
mod code;
mod combine;
mod cost;
mod datum;
mod evaluate;
mod family;
mod footprint;
mod infer;
mod key;
pub mod limits;
mod nested;
mod procedure;
mod replace;
mod table;
mod types;
mod validate;

pub use body::{Body, Check, Refused, RowAccess, RowStore, StoredRow, WriteColumn};
pub use call::{Call, InvalidInputs, Start};
pub use code::{Arithmetic, Code, Comparison, Logic, Slot};
pub use combine::OtherTable;
pub use cost::Cost;
pub use datum::{Datum, decode_data};
pub use evaluate::Failure;
pub use family::{Offers, Operation, Outcome, Output, Procedures, Registration, Results};
pub use footprint::{Footprint, KnownRow, RowUse};
pub use infer::{Inferred, Mistyped};
pub use key::{placement_key, row_key};
pub use procedure::{Argument, Multiplicity, Piece, PieceId, Procedure, ProcedureSet, Returned};
pub use replace::CannotReplace;
pub use table::{Column, Table};
pub use types::{Field, Mismatch, Type};
pub use validate::NotCompiled;
