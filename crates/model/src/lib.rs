//! The nouns that every part of Serried shares: keys and values, versions, identities, what an
//! application asks of a transaction and what it is told, and the guarantees a keyspace can declare.
//!
//! Nothing here does anything; it is the vocabulary in which the protocols, the session, the
//! drivers and the checkers speak to each other.

mod bytes;
mod geography;
mod guarantee;
mod identity;
mod limits;
mod operation;
mod register;
mod version;

pub use bytes::{Key, Value};
pub use geography::{Geography, UnknownGeography};
pub use guarantee::{Family, Guarantee};
pub use identity::{NodeId, TxnId};
pub use limits::{Limits, TooLarge, Unfit};
pub use operation::{Accessed, Operation, Outcome, Output, ReadStamp, ReadValue, Write};
pub use register::{Access, Carstamp, Change, Modification, Token, ValueType, WrongType};
pub use version::Version;
