//! Every protocol, one folder each, and the registry that lists them.
//!
//! A protocol depends on `serried-model`, `serried-actor`, `serried-parts` and `serried-procedures` alone; it does no
//! I/O, reads no clock, starts no thread and draws no random number of its own.

#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod abd;
mod catalogue;
pub mod eiger;
pub mod eiger_port;
pub mod epaxos;
pub mod frameworks;
pub mod gryff;
pub mod janus;
pub mod morty;
pub mod multipaxos;
mod mutated;
pub mod mvto;
pub mod mvtso;
pub mod ncc;
pub mod occ;
pub mod plain;
pub mod plain_transactions;
pub mod port;
pub mod port_seo;
mod registry;
#[cfg(feature = "rehearsal")]
pub mod rehearsal;
pub mod rococo;
pub mod scylla_occ;
pub mod spanner;
pub mod tapir;
pub mod tapir_cc;
#[cfg(test)]
mod testing;
pub mod two_phase_locking;

pub use catalogue::{Catalogue, Entry, Erase};
pub use mutated::Mutated;
pub use registry::{
    COMPARED, DEFAULT, ProtocolInfo, Registered, UnknownProtocol, Visitor, info, list, of,
    promising, visit, visit_any,
};
