//! Scylla-OCC: read-only transactions that read optimistically and then validate, with simple writes (004 §7.2).
//!
//! ```text
//! client                        leaders of partitions
//!   | Read(keys) ---------------------->|  as of one moment, for the keys of a partition
//!   |<--------------- Found(versions) --|
//!   | Read(keys) ---------------------->|  again, until two rounds in a row find equal versions
//!   |<--------------- Found(versions) --|
//!   | Request(write) ------------------>|  in the log
//!   |<------------------------- Reply --|
//! ```
//!
//! Keys are linearizable registers that are executed in the order of a replicated log
//! ([`crate::frameworks::replicated_objects`], as [`crate::multipaxos`] has them). A read takes a slot of the log, so
//! no leader that was deposed answers it.
//!
//! # Why it is strictly serializable
//! A version counts the changes of its key. If both rounds find the same version of a key, the key had it at every
//! moment from when the first round read it until when the second did. All first reads come before all second ones.
//! So there is a moment in between at which all keys had what was found, and it is the transaction's. A write takes
//! effect at one moment, once.
//!
//! # Where this differs from the paper
//! - *The validation round is the next optimistic round if it fails*, as in ROCOCO (002 §4.1). So a retry takes one
//!   round, not two.
//! - *It compares versions, not values*: a value may come back.

mod coordinator;
#[cfg(test)]
mod tests;

use serried_actor::{Group, Protocol, Settings};
use serried_model::snapshots::{Offers, VersionClocks};
use serried_model::{Access, Guarantee, NodeId, Snapshots};
use serried_parts::Stamped;

use crate::Mutated;
use crate::frameworks::{replicated_log, replicated_objects};
use crate::multipaxos::Register;

pub use coordinator::{Coordinator, Repeat};

/// A message.
pub type Message = replicated_objects::Message<Access, Stamped>;
/// One replica of a partition.
pub type Replica = replicated_objects::Replica<Register>;

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// What the first round finds is not validated.
    ValidationLeftOut,
    /// Values are compared, not versions.
    ComparesValues,
}

/// The protocol.
#[derive(Debug)]
pub struct ScyllaOcc;

impl Protocol for ScyllaOcc {
    const NAME: &'static str = "scylla-occ";
    const SUMMARY: &'static str =
        "read-only transactions that read until two rounds find the same, and simple writes";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    type Family = Snapshots;
    const OFFERS: Offers =
        Offers { version_clocks: VersionClocks::None, write_transactions: false, sites: false };
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    const FORGETS_BY_CLIENT_CLOCKS: bool = true;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
