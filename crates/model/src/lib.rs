//! The types that every part of Serried shares: keys and values, versions, identities, the requests that each family of
//! keyspaces has, and the guarantees that a keyspace can have.
//!
//! There is no behaviour here. Protocols, sessions, drivers and checkers use these types to talk to each other.

#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod bytes;
mod durability;
mod family;
mod geography;
mod guarantee;
mod identity;
mod limits;
mod provenance;
mod register;
pub mod registers;
mod report;
pub mod sharing;
pub mod snapshots;
pub mod transactions;
mod version;

pub use bytes::{Key, Value};
pub use durability::Durability;
pub use family::{Family, FamilyName, Registers, Snapshots, Transactions};
pub use geography::{Geography, UnknownGeography};
pub use guarantee::Guarantee;
pub use identity::{NodeId, TxnId};
pub use limits::{Limits, TooLarge, Unfit};
pub use provenance::Provenance;
pub use register::{Access, Carstamp, Change, Modification, Modified, Token, ValueType, WrongType};
pub use registers::Accessed;
pub use report::{
    Form, ReportedModification, ReportedModify, ReportedRead, ReportedWrite, TransactionReport,
    reported_bytes,
};
pub use snapshots::{Versionstamp, WriteToken};
pub use transactions::{Modify, ReadStamp, ReadValue, Write};
pub use version::Version;
