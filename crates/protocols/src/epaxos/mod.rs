//! EPaxos: a replicated key-value store without a leader (001 §4.3.1, "EPaxos").

mod coordinator;
mod instance;
mod message;
mod replica;
mod space;
mod state;

pub use coordinator::Coordinator;
pub use instance::{
    Attributes, Ballot, Command, Dependencies, Instance, InstanceId, Kind, Numbers, Status,
};
pub use message::{Answer, Body, Conflict, Found, Message, Record, Shown, State};
pub use replica::Replica;

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};

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
        Coordinator::new(group, settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings)
    }
}
