//! EPaxos: a replicated key-value store without a leader (001 §4.3.1, "EPaxos"), in
//! [`consensus`](crate::consensus).
//!
//! Reads and writes are commands like read-modify-writes. A command is done once the replica that
//! coordinates it has executed it. With three replicas a write that does not read is done as soon as it is
//! agreed on, and is told no carstamp then, as what comes before it need not be known yet.
//! [`consensus`](crate::consensus) says why not with more.

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
