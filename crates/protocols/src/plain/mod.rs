//! Plain: simple reads and writes, as a store without transactions has them (004 §7.2, "ScyllaDB"). It is what the
//! performance of read-only transactions is measured against.
//!
//! A key has one version. A partition's leader answers reads at once, from what it has applied, and puts writes into
//! the log in the order of their arrival ([`crate::frameworks::simple_writes`]). A request for many keys is one
//! message to each of their partitions.
//!
//! # What it does not promise
//! - Reads of many keys are not isolated: they find each key as it is when the request arrives.
//! - A leader that was deposed and does not know it yet answers reads with old values.
//! - A write is sent again if its answer is lost, and may then take effect twice, even after a write of another client.
//!   So it may undo a later write.
//!
//! What was acknowledged is not lost: it is in the logs of a majority.

use serried_actor::{Group, Protocol, Settings};
use serried_model::snapshots::{Offers, VersionClocks};
use serried_model::{Guarantee, NodeId, Snapshots};

use crate::Mutated;
use crate::frameworks::{replicated_log, simple_writes};

/// A message.
pub type Message = simple_writes::Message<()>;
/// One replica of a partition.
pub type Replica = simple_writes::Replica<()>;
/// One client's operations.
pub type Coordinator = simple_writes::Coordinator<()>;

/// The protocol.
#[derive(Debug)]
pub struct Plain;

impl Protocol for Plain {
    const NAME: &'static str = "plain";
    const SUMMARY: &'static str =
        "simple reads and writes: what read-only transactions cost is what they do more than this";
    const GUARANTEE: Guarantee = Guarantee::Nothing;
    type Family = Snapshots;
    const OFFERS: Offers =
        Offers { version_clocks: VersionClocks::None, write_transactions: false, sites: false };
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, _: &Settings) -> Coordinator {
        Coordinator::new(group, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
