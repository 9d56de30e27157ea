//! OCC: distributed optimistic concurrency control with two-phase commit (003 §2.3, "dOCC"; 002 §5.1, "OCC").
//!
//! ```text
//! client                       leaders of shards
//!   | Shot(reads) ---------------->|  at once, what is committed
//!   |<------- Executed(values) ----|
//!   | Shot(writes), the last ----->|  validates; locks; logs the part
//!   |<----- Executed(validity) ----|  once the part is chosen
//!   | End(Commit(at)) ------------>|  logs; once that is chosen, applies and unlocks
//! ```
//!
//! The client's program is told when all parts are there, before the shards are. How shards log what they do, how
//! they go on when a leader or a client dies, and what [`crate::validation`] does with what is here, is said there
//! and in [`crate::shard`].
//!
//! # Invariants
//! - *What a transaction that is ready to commit has read stays what is committed until it ends*, and nobody else
//!   who is ready writes it: a read is validated and locked at once.
//! - *Nobody else who is ready has read or writes what it writes.*
//! - So *there is a moment at which it holds the locks of all its keys at all its shards*, after it began and
//!   before anybody is told that it has committed: its place in real time, whatever clocks say.
//! - *Stamps follow the locks*: it commits at a moment after everything that was committed of its keys when it
//!   locked them. They name versions, and decide about nothing.
//! - *A lock is as durable as the part that it is of.* A leader that begins has the locks of those that are ready,
//!   and whoever was not is refused.
//!
//! # Where this differs from the papers
//! - *Reads are locked too when they are validated*, as in 002; 003 speaks of locks for "the written data" alone,
//!   with which two transactions that read what the other one writes could both be validated.
//! - *Locks are not waited for*: a transaction that finds one is aborted.
//! - *A transaction that only reads is validated as well*, in a round of its own, and its parts are logged.
//! - *Versions are stamps*, not counters.

#[cfg(test)]
mod tests;

use serried_model::{Guarantee, Version};

use crate::shard::{Access, Rounds, Row, Sharded, Stamp, Validity};
use crate::validation::{Holder, Rule, Validation};

/// The protocol.
pub type Occ = Sharded<Validation<Locks>>;

/// Validated reads are shared locks, validated writes exclusive ones.
#[derive(Debug)]
pub struct Locks;

impl Rule for Locks {
    const NAME: &'static str = "occ";
    const SUMMARY: &'static str = "optimistic concurrency control: locks what is read and written \
                                   when a transaction ends, if it has not changed";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    const ROUNDS: Rounds = Rounds::ReadsFirst;

    fn check(_: Version, access: &Access, row: &Row, others: &[Holder]) -> Result<(), u64> {
        let is_unchanged = access.read.as_ref().is_none_or(|read| read.stamp == row.newest().stamp);
        let is_free =
            others.iter().all(|other| !other.writes && (access.write.is_none() || !other.reads));
        if is_unchanged && is_free { Ok(()) } else { Err(0) }
    }

    fn validity(txn: Version, latest: Stamp) -> Validity {
        Validity { from: latest.next_of(txn), until: None }
    }
}
