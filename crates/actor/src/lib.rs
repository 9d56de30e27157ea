//! The seam between protocols and drivers.
//!
//! Every protocol is a pair of pure state machines, a coordinator at the client and a replica at the
//! server, that never touch a socket, a clock, a disk or a random source. A driver hands them one
//! event at a time together with a [`Context`]; they push [`Effect`]s into it, in order, and return
//! nothing. Two drivers run the same state machines unchanged: the simulator (virtual time), and nodes and clients
//! (tokio, TCP).
//!
//! What a driver owes an actor:
//! - one event at a time, and its effects carried out in the order in which they were pushed;
//! - **write-ahead before reply**: a [`Effect::Send`] leaves only when everything that this node
//!   appended before it is durable;
//! - a timer fires once, not before it is due, and setting it again replaces it;
//! - nothing more: messages may be lost, repeated, delayed and reordered, and clocks may differ.

#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod context;
mod effect;
mod group;
mod node_set;
mod observation;
mod protocol;
mod settings;
mod standing;
mod store;
mod time;
mod wire;

pub use context::{Context, Durable, Random, Work};
pub use effect::Effect;
pub use group::Group;
pub use node_set::NodeSet;
pub use observation::{Observation, Observed};
pub use protocol::{Actor, Coordinate, Protocol, Recover};
pub use settings::Settings;
pub use standing::Standing;
pub use store::{MemoryStore, Store};
pub use time::{ClockInterval, Timestamp};
pub use wire::{Malformed, Wire};
