//! MultiPaxos: linearizable registers by a replicated log with a stable leader (001 §4.5, "MultiPaxos").
//!
//! ```text
//! client              replica                leader                      followers
//!   | Request ---------->|                      |                           |
//!   |                    | Forward ------------>|  unless the client knows who leads
//!   |                    |                      | Accept(entries) --------->|
//!   |                    |                      |<------------ Accepted ----|  from the nearest majority
//!   |<------------------------------- Reply ----|
//! ```
//!
//! Each register is a replicated object. [`crate::frameworks::replicated_objects`] has the server side and its invariants, and
//! [`crate::frameworks::replicated_log`] the log of each partition. Every operation takes a slot, reads as well: no leader
//! relies on a clock. At a leader that is co-located with its client an operation takes a round trip to the nearest
//! majority, elsewhere one to the leader more.
//!
//! # Where this differs from the paper's framework
//! - *A read's entry is empty*: followers would do nothing with it.
//! - *Commands that come in one turn are one `Accept`*, and `chosen` goes with the next.
//! - *Who answers is taken to lead*: clients send to it directly from then on.

mod coordinator;
mod message;
mod register;
#[cfg(test)]
mod tests;

pub use crate::frameworks::replicated_objects::Mutation;
pub use coordinator::Coordinator;
pub use message::{Answer, Message, Record, Request, Update};
pub use register::Register;

use crate::Mutated;
use crate::frameworks::{replicated_log, replicated_objects};
use serried_actor::{Group, Protocol, Settings};
use serried_model::registers::Offers;
use serried_model::{Guarantee, NodeId, Registers};

/// One replica of a partition.
pub type Replica = replicated_objects::Replica<Register>;

/// The protocol.
#[derive(Debug)]
pub struct Multipaxos;

impl Protocol for Multipaxos {
    const NAME: &'static str = "multipaxos";
    const SUMMARY: &'static str = "linearizable registers by a replicated log with a stable leader";
    const GUARANTEE: Guarantee = Guarantee::Linearizable;
    type Family = Registers;
    const OFFERS: Offers = Offers { rmws: true };
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    const FORGETS_BY_CLIENT_CLOCKS: bool = true;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
