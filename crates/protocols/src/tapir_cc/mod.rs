//! TAPIR-CC: TAPIR's concurrency control without its replication (003 §4 and §6.1, "Baselines").
//!
//! ```text
//! client                            leaders of shards
//!   | Shot(reads, writes), the last ---->|  at once, at the transaction's timestamp; validates; logs the part
//!   |<----- Executed(values, validity) --|  once the part is chosen
//!   | End(Commit(at)) ------------------>|
//! ```
//!
//! The client chooses the timestamp before the transaction's first shot. What was read in shots before the last is
//! validated with the last. [`crate::frameworks::validation`] has the control that calls the rule in this module. [`crate::frameworks::shard`]
//! has the log, and what happens when a leader or a client fails.
//!
//! # Invariants
//! - *A transaction takes effect at its timestamp everywhere.*
//! - *What it has read is what there is at its timestamp.* It is committed, nothing later is committed, and no prepared
//!   transaction writes in between. None will later, either: a write must be later than all committed and prepared
//!   reads of its key.
//! - *Prepared writes of a key commit or abort in any order, and count in the order of their timestamps.* A write that
//!   is not prepared yet is refused if a later one has committed.
//! - So *the order of timestamps explains what all transactions have read*. It need not agree with real time. A
//!   transaction may have a later timestamp than one that begins after it has ended. Only a third transaction that
//!   conflicts with both can notice that (003 §4, "timestamp inversion"). `tests/inversion.rs` shows it.
//!
//! # Where this differs from TAPIR
//! - *One leader executes and validates*, and its log is replicated. TAPIR has each replica validate, by inconsistent
//!   replication. 003 leaves that out, too.
//! - *Executing and preparing are one round*, as in 003.
//! - *A read is validated at the timestamp as well.* It is refused if the version that it has found is later. A
//!   prepared write is in its way only if the write lies before the timestamp.
//! - *A transaction that is too late begins anew*, at a later time than what it was too late for. TAPIR asks its shards
//!   once more with another timestamp.
//! - *Timestamps are asynchrony-aware* (003 §5.3), as with all shards here.

#[cfg(test)]
mod tests;

use serried_model::{Guarantee, Version};

use crate::frameworks::shard::{Access, Rounds, Row, Sharded, Stamp, Validity};
use crate::frameworks::validation::{Holder, Rule, Validation};

/// The protocol.
pub type TapirCc = Sharded<Validation<Timestamps>>;

/// What is read and written holds at the pre-assigned timestamp.
#[derive(Debug)]
pub struct Timestamps;

impl Rule for Timestamps {
    const NAME: &'static str = "tapir-cc";
    const SUMMARY: &'static str =
        "executes at once at timestamps, and validates that what was read holds then";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    const ROUNDS: Rounds = Rounds::Combined;

    fn check(txn: Version, access: &Access, row: &Row, others: &[Holder]) -> Result<(), u64> {
        let (own, newest) = (Stamp::assigned(txn), row.newest());
        if let Some(read) = &access.read {
            if newest.stamp > own {
                return Err(newest.stamp.us);
            }
            let is_between = |other: &Holder| {
                let stamp = Stamp::assigned(other.txn);
                other.writes && read.stamp < stamp && stamp < own
            };
            if newest.stamp != read.stamp || others.iter().any(is_between) {
                return Err(0);
            }
        }
        if access.write.is_some() {
            let readers = others.iter().filter(|other| other.reads);
            let last_read = readers.map(|other| Stamp::assigned(other.txn)).max();
            let last = newest.read_at.max(last_read.unwrap_or_default());
            if last > own {
                return Err(last.us);
            }
        }
        Ok(())
    }

    fn validity(txn: Version, _: Stamp) -> Validity {
        Validity::at(Stamp::assigned(txn))
    }
}
