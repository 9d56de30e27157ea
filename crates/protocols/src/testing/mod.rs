//! What the unit tests of several protocols share: participants whose messages, clocks and disks a test moves by hand.

mod net;
mod node;
mod tests;

pub(crate) use net::{Envelope, Net};
pub(crate) use node::{Durability, Node, client_id, set};
