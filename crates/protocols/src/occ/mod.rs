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
//! The client's program continues when all parts are there, before the shards have the decision. [`crate::frameworks::validation`]
//! has the control that calls the rule in this module. [`crate::frameworks::shard`] has the log, and what happens when a leader or
//! a client fails.
//!
//! # Invariants
//! - *What a prepared transaction has read stays the newest committed version until it ends*, and no other prepared
//!   transaction writes it. A read is validated and locked in one step.
//! - *No other prepared transaction has read or writes what it writes.*
//! - So *there is a moment at which it holds the locks of all its keys at all its shards*. The moment lies after it
//!   began and before any client is told that it has committed. It is the transaction's place in real time, whatever
//!   clocks say.
//! - *Stamps follow the locks.* A transaction commits at a moment after everything that was committed of its keys when
//!   it locked them. Stamps name versions and decide nothing.
//! - *A lock is as durable as the part that it belongs to.* A new leader has the locks of all prepared transactions,
//!   and refuses all others.
//!
//! # Where this differs from the papers
//! - *Reads are locked too when they are validated*, as in 002. 003 mentions locks for "the written data" only. With
//!   these alone, two transactions that each read what the other one writes could both be validated.
//! - *No transaction waits for a lock.* One that finds a lock is aborted.
//! - *A read-only transaction is validated as well*, in a round of its own, and its parts are logged.
//! - *Versions are stamps*, not counters.

#[cfg(test)]
mod tests;

use serried_model::{Guarantee, Version};

use crate::frameworks::shard::{
    Access, Rounds, Row, RunsCalls, Sharded, ShardedCalls, Stamp, Validity,
};
use crate::frameworks::validation::{Holder, Rule, Validation};

/// The protocol.
pub type Occ = Sharded<Validation<Locks>>;

/// The same for stored procedures: pieces read what is committed, and the call is validated when it prepares, in a round of
/// its own (002 §5.1).
pub type OccProcedures = ShardedCalls<Validation<Locks>>;

impl RunsCalls for Validation<Locks> {
    const NAME: &'static str = "occ-procedures";
    const SUMMARY: &'static str = "procedures with optimistic concurrency control: runs pieces at once, and validates the call";
}

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
