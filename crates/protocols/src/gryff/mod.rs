//! Gryff: registers for reads and writes, and consensus for read-modify-writes only (001 §4.3, §4.4). The code is in
//! [`consensus`](crate::frameworks::consensus).
//!
//! ```text
//! client              replica nearby (proxy)              others
//!   | Request(read) ---->| Read1(held) ---------------------->|  they hold what the proxy holds
//!   |                    |<------------- Read1Reply(held) ----|  a majority with it
//!   |                    | Apply(latest) -------------------->|  unless a majority holds the latest
//!   |                    |<------------------- Applied -------|
//!   |<------- Reply -----|
//!   | Write1 --------------------------------------------- ->|
//!   |<------------------------------------ Write1Reply(cs) --|  from a majority
//!   | Apply(value, (max(cs).timestamp + 1, id, 0)) --------->|
//!   |<----------------------------------------- Applied -----|  from a majority
//!   | Request(rmw) ----->| PreAccept, Accept, Commit, as in `consensus`
//!   |<------- Reply -----| when a majority has executed it
//! ```
//!
//! [`GryffRsc`] says what Gryff-RSC does differently, and why.
//!
//! # Where this differs from the paper
//! - *Replies name incarnations.* A client coordinates its own writes. It must not count that a replica has applied a write
//!   before the replica lost its disk ([`serried_parts::Incarnations`] says why this is enough).
//! - *Fast quorums have `2f` members*: see [`consensus`](crate::frameworks::consensus).
//! - *A read-modify-write that changes nothing*, such as a compare-and-swap that does not find what it expects, makes no
//!   version of its own. Instead a majority holds what it has read.

mod rsc;

use serried_actor::{Group, Protocol, Settings};
use serried_model::registers::Offers;
use serried_model::{Guarantee, NodeId, Registers};

use crate::frameworks::consensus::{Coordinator, Message, Replica, Rules, Variant};

pub use rsc::GryffRsc;

/// Gryff (001 §4.3).
#[derive(Debug)]
pub struct Gryff;

impl Protocol for Gryff {
    const NAME: &'static str = "gryff";
    const SUMMARY: &'static str = "linearizable registers, with consensus for rmws alone";
    const GUARANTEE: Guarantee = Guarantee::Linearizable;
    type Family = Registers;
    const OFFERS: Offers = Offers { rmws: true };
    const FORGETS_BY_CLIENT_CLOCKS: bool = true;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Rules::of(Variant::Gryff))
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Rules::of(Variant::Gryff))
    }
}
