//! EPaxos: a replicated key-value store without a leader (001 §4.3.1, "EPaxos"), in
//! [`consensus`](crate::consensus).
//!
//! Reads and writes are commands like read-modify-writes. A command is acknowledged when the replica that coordinates it has
//! executed it. 001 acknowledges a write that does not read as soon as it is agreed on;
//! [`consensus`](crate::consensus) says why that does not do here.

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};

use crate::consensus::{Coordinator, Message, Replica, Rules, Variant};

/// The protocol.
#[derive(Debug)]
pub struct Epaxos;

impl Protocol for Epaxos {
    const NAME: &'static str = "epaxos";
    const SUMMARY: &'static str = "linearizable registers by consensus without a leader";
    const GUARANTEE: Guarantee = Guarantee::Linearizable;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Rules::of(Variant::Epaxos))
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Rules::of(Variant::Epaxos))
    }
}
