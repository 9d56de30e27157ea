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
//! Each partition has a log of its own, [`crate::frameworks::replicated_log`]; how that works is said there. Every
//! operation takes a slot, reads as well: no leader relies on a clock. At a leader that is co-located with its
//! client an operation takes a round trip to the nearest majority, elsewhere one to the leader more.
//!
//! # Invariants
//! - *All replicas execute the same updates of a key in the same order*, and remember the same results by their
//!   tokens, so an update takes effect once, however often it is in the log; one that is too old to be known is
//!   not executed.
//! - *A refusal is permanent.* If an update is refused because of its client's clock, the refusal is an entry of the log, and
//!   no replica executes the update after that entry. The client is told once the entry is chosen, unless the update
//!   itself is in an earlier slot.
//! - *No single clock refuses an update.* The leader goes by the clocks of a majority of the replicas
//!   (`replicated_log/clocks.rs`).
//! - *A read is answered by the leader that has proposed its slot, in the ballot in which it has*: what was
//!   acknowledged before it began is in an earlier slot.
//! - *The state of a key says which slot it is as of*, so that what is replayed or was taken over from another
//!   is executed once.
//!
//! # Where this differs from the paper's framework
//! - *A read's entry is empty*: followers would do nothing with it.
//! - *Commands that come in one turn are one `Accept`*, and `chosen` goes with the next.
//! - *Who answers is taken to lead*: clients send to it directly from then on.

mod coordinator;
mod message;
mod register;
mod registers;
mod replica;
#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use message::{Answer, Message, Record, Request, Update};
pub use replica::Replica;

use crate::Mutated;
use serried_actor::{Group, Protocol, Settings};
use serried_model::registers::Offers;
use serried_model::{Guarantee, NodeId, Registers};

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// The leader takes for chosen what it alone has accepted.
    AcknowledgedByLeaderAlone,
    /// A replica that has lost its disk takes part at once, like a new one.
    RejoinsAtOnce,
}

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
