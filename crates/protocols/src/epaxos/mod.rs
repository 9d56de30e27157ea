//! EPaxos: a replicated key-value store without a leader (001 §4.3.1, "EPaxos"), in
//! [`consensus`](crate::frameworks::consensus).
//!
//! Reads and writes are commands like read-modify-writes. A command is acknowledged when the replica that coordinates it has
//! executed it. With three replicas, a write that does not read is acknowledged as soon as it is agreed on, unless it was
//! tried before. It gets no carstamp then, because its place may not be known yet. [`consensus`](crate::frameworks::consensus) says
//! why more replicas can't do this.

use serried_actor::{Group, Protocol, Settings};
use serried_model::registers::Offers;
use serried_model::{Guarantee, NodeId, Registers};

use crate::frameworks::consensus::{Coordinator, Message, Replica, Rules, Variant};

/// The protocol.
#[derive(Debug)]
pub struct Epaxos;

impl Protocol for Epaxos {
    const NAME: &'static str = "epaxos";
    const SUMMARY: &'static str = "linearizable registers by consensus without a leader";
    const GUARANTEE: Guarantee = Guarantee::Linearizable;
    type Family = Registers;
    const OFFERS: Offers = Offers { rmws: true };
    const FORGETS_BY_CLIENT_CLOCKS: bool = true;
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
