//! ABD with many writers: linearizable registers without consensus (001 §4.3.1, "Multi-Writer ABD").
//!
//! ```text
//! coordinator                                          all replicas
//!   | Read1(key) ------------------------------------------->|
//!   |<------------------------------ Read1Reply(value, cs) --|  from a majority
//!   | Apply(key, value, cs) -------------------------------->|  unless all of them held the same
//!   |<------------------------------------------- Applied ---|  from a majority
//!   |
//!   | Write1(key) ------------------------------------------>|
//!   |<----------------------------------- Write1Reply(cs) ---|  from a majority
//!   | Apply(key, value, (max(cs).timestamp + 1, id, 0)) ---->|
//!   |<------------------------------------------- Applied ---|  from a majority
//! ```
//!
//! Clients coordinate: a write is the client's, which picks its carstamp once. Tried again, it goes on with
//! that ([`serried_model::Token`]), so that no value appears twice.
//!
//! # Invariants
//! - *What was acknowledged is held by a majority*, durably: two majorities share a replica, so the first
//!   phase of whatever begins later finds it.
//! - *A carstamp names one value.* A coordinator never uses a timestamp twice, even for two writes that
//!   found the same.
//!
//! # Where this differs from the paper
//! - *A read whose majority agrees ends after one phase*, as Gryff's (001 §4.3.2).
//! - *Tags are carstamps* whose `rmwc` is 0, so that what a replica keeps is what Gryff's keeps.
//! - *A replica that has lost its disk* answers nothing until it has taken over what `f + 1` others hold. A value that was
//!   acknowledged with its predecessor's help is held by `f` others, and one of them is among those.
//! - *Replies name incarnations* ([`serried_parts::Incarnations`]). A replica may be replaced after it has applied a write
//!   that is still under way. Another replica of the write's quorum has shown the new replica what it holds. If it did so
//!   before it applied the write, its reply names the new incarnation, and the old reply does not count. If it did so
//!   after that, the new replica holds the write.
//! - *Deleted keys keep their carstamps*: a delete is a write, and a late write that is older must lose.

mod coordinator;
mod message;
mod replica;
#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use message::{Message, Record};
pub use replica::Replica;

use crate::Mutated;
use serried_actor::{Group, Protocol, Settings};
use serried_model::registers::Offers;
use serried_model::{Guarantee, NodeId, Registers, Value};
use serried_parts::{Stamped, encode_cell};

/// Something to be done wrong on purpose, in tests that show that it would be noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A read returns the latest that it has found, whoever else has that.
    SecondReadRoundSkipped,
    /// A write is complete when one replica has applied it.
    WriteAcknowledgedByOne,
}

/// The protocol.
#[derive(Debug)]
pub struct Abd;

impl Protocol for Abd {
    const NAME: &'static str = "abd";
    const SUMMARY: &'static str = "linearizable registers without consensus, and without rmws";
    const GUARANTEE: Guarantee = Guarantee::Linearizable;
    type Family = Registers;
    const OFFERS: Offers = Offers { rmws: false };
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings)
    }
}

/// How a value that is there before the first operation lies in a replica's store.
fn stored(value: &Value) -> Vec<u8> {
    encode_cell(&Stamped { value: Some(value.clone()), ..Stamped::default() })
}
