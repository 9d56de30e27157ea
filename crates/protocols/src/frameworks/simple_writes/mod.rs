//! Simple writes: each partition has a leader that writes single keys, and answers reads of many keys at once.
//!
//! It is the server side and the client side of two protocols. [`crate::plain`] has nothing else: one version a key.
//! With versionstamps it is PORT ([`crate::port`], 004 §6), which documents the protocol, its invariants and its
//! proof. Both have the same code, so comparing them shows what versions and version clocks cost.
//!
//! ```text
//! client                        leader of a partition               followers
//!   | Read(at, keys) ------------------>|  at once                     |
//!   |<-------- Values(found, shown) ----|                              |
//!   | Write(requested, key, value) ---->|                              |
//!   |                                   | Accept(entries) ------------>|
//!   |                                   |<--------------- Accepted ----|  from the nearest majority
//!   |<---- Written(stamp, omitted) -----|
//! ```
//!
//! A replica that does not lead passes requests on to the one that does.

mod cell;
mod coordinator;
mod machine;
mod message;
mod overwritten;
mod replica;
mod serving;
mod stamp;
#[cfg(test)]
mod tests;

pub use coordinator::{Coordinator, Repeat};
pub use message::{Answer, Entry, Found, Message, Record, Request};
pub use replica::{Replica, Timer};
pub use stamp::Stamp;

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A read promotes nothing: writes take the places that they request, even if these were read before.
    PromotionLeftOut,
    /// A new leader does not know what its predecessor may have promoted.
    PromotionForgotten,
    /// A leader promotes beyond what the log allows it, and so after it was deposed.
    PromotionUnbounded,
    /// A write is omitted for another one that is not chosen yet.
    OmittedForPending,
    /// A new leader takes effect of a write that may have been omitted under a former one.
    OutdatedWritten,
    /// The client of an omitted write does not adopt the place of the other write.
    HigherStampNotAdopted,
    /// The leader takes for chosen what it alone has accepted.
    AcknowledgedByLeaderAlone,
    /// A replica that has lost its disk takes part at once, like a new one.
    RejoinsAtOnce,
}
