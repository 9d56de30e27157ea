//! Gryff and Gryff-RSC: registers for reads and writes, consensus for read-modify-writes alone (001 §4.3,
//! §4.4, §4.6), in [`consensus`](crate::consensus).
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
//! # Gryff-RSC
//! A read ends after its first round. If it is not known that a majority holds what it has found, its client
//! brings that along with its next operation, whichever it is, and goes on doing so until a majority is
//! known to hold it (001 Algorithms 8 to 10): a read's first round, a write's first, a read-modify-write's
//! command. An update of a key in another partition waits until what was read is held by a majority of its
//! own partition; a read does not, as no one can see what it does.
//!
//! # Where this differs from the paper
//! - *Fast quorums have `2f` members*: see [`consensus`](crate::consensus).
//! - *A read-modify-write that changes nothing*, as a compare-and-swap that does not find what it expects,
//!   makes no version of its own: a majority holds what it has read.
//! - *A dependency travels in the command of a read-modify-write*, not in PreAccept alone: whoever recovers
//!   it has it held, too.
//! - *A client may have many operations under way*, and bring as much as it has read.

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};

use crate::consensus::{Coordinator, Message, Replica, Rules, Variant};

/// Gryff (001 §4.3).
#[derive(Debug)]
pub struct Gryff;

impl Protocol for Gryff {
    const NAME: &'static str = "gryff";
    const SUMMARY: &'static str = "linearizable registers, with consensus for rmws alone";
    const GUARANTEE: Guarantee = Guarantee::Linearizable;
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

/// Gryff-RSC (001 §4.6).
#[derive(Debug)]
pub struct GryffRsc;

impl Protocol for GryffRsc {
    const NAME: &'static str = "gryff-rsc";
    const SUMMARY: &'static str = "regular sequential registers, whose reads take one round trip";
    const GUARANTEE: Guarantee = Guarantee::RegularSequential;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Rules::of(Variant::GryffRsc))
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Rules::of(Variant::GryffRsc))
    }
}
