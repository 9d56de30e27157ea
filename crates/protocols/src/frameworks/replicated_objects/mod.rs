//! Replicated objects: each key is an object, and operations on it are executed in the order of a replicated log.
//!
//! A protocol says what an object is ([`Object`]), and has the client side ([`Message::Request`], [`Message::Reply`]). The
//! [`Replica`] here does the rest. It passes requests to the leader of its partition, refuses updates of clients whose clocks
//! are ahead, puts operations into the log ([`crate::frameworks::replicated_log`]), executes what was chosen and is durable,
//! answers, and remembers the results of updates for retries.
//!
//! ```text
//! client              replica                leader                      followers
//!   | Request ---------->|                      |                           |
//!   |                    | Forward ------------>|  unless the client knows who leads
//!   |                    |                      | Accept(entries) --------->|
//!   |                    |                      |<------------ Accepted ----|  from the nearest majority
//!   |<------------------------------- Reply ----|
//! ```
//!
//! # Invariants
//! - *All replicas execute the same updates of a key in the same order*, and remember the same results by their tokens. So an
//!   update takes effect once, however often it is in the log. An update that is too old to be known is not executed.
//! - *A refusal is permanent.* If an update is refused because of its client's clock, the refusal is an entry of the log, and
//!   no replica executes the update after that entry. The client is told once the entry is chosen, unless the update
//!   itself is in an earlier slot.
//! - *No single clock refuses an update.* The leader goes by the clocks of a majority of the replicas
//!   (`replicated_log/clocks.rs`).
//! - *A read is answered by the leader that has proposed its slot, in the ballot in which it has*: what was
//!   acknowledged before it began is in an earlier slot. The entry of a read is empty: followers would do nothing with it.
//! - *A read of several keys is one read*: all of them are read when its slot is applied.
//! - *An entry relies on no other.* It has the operation, not its result. Replicas execute it when it is applied, and the leader
//!   executes nothing before. So an entry may be chosen although an earlier one of the same leader was lost, or after those
//!   of a later leader: nobody was told of either, and each takes effect once if its client sends it again.
//! - *The state of a key says which slot it is as of*, so that what is replayed, or was copied from another replica, is
//!   executed once.

#[cfg(test)]
mod counter;
mod message;
mod object;
mod objects;
mod replica;
mod state;

pub use message::{Answer, Message, Read, Record, Request, Update};
pub use object::{Object, Operation};
pub use replica::{Replica, Timer};

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// The leader takes for chosen what it alone has accepted.
    AcknowledgedByLeaderAlone,
    /// A replica that has lost its disk takes part at once, like a new one.
    RejoinsAtOnce,
}
