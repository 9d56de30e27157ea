//! The interface between protocols and drivers.
//!
//! A protocol that does its own I/O can be tested only on real time and a real network, where failures are rare and
//! can't be replayed. So a protocol here is a pair of pure state machines: a coordinator at the client and a replica at
//! the server. They never touch a socket, a clock, a disk or a random source. A driver gives them one event at a time
//! together with a [`Context`]. They push [`Effect`]s into it, in order, and return nothing. Two drivers run the same
//! machines: the simulator (virtual time) and nodes and clients (tokio, TCP).
//!
//! A driver guarantees an actor the following:
//! - it gives the actor one event at a time, and carries out effects in the order in which they were pushed;
//! - **write-ahead before reply**: an [`Effect::Send`] leaves only when everything that this node appended before it is
//!   durable;
//! - a timer fires once, not before it is due, and setting it again replaces it;
//! - nothing else: messages may be lost, repeated, delayed and reordered, and clocks may differ.

#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod contention;
mod context;
mod effect;
mod encoded;
mod group;
mod node_set;
mod observation;
mod placement;
mod protocol;
mod settings;
mod standing;
mod store;
mod time;
mod wire;

pub use contention::{Contention, Turns};
pub use context::{Context, Durable, Random, Work};
pub use effect::Effect;
pub use encoded::{Encoded, Mark, Place};
pub use group::Group;
pub use node_set::NodeSet;
pub use observation::{Observation, Observed};
pub use placement::Placement;
pub use protocol::{Actor, Coordinate, Protocol, Recover};
pub use settings::Settings;
pub use standing::Standing;
pub use store::{MemoryStore, Store};
pub use time::{ClockInterval, Timestamp};
pub use wire::{Malformed, Wire};
