//! TAPIR-CC: TAPIR's concurrency control without its replication (003 §4 and §6.1, "Baselines").
//!
//! ```text
//! client                            leaders of shards
//!   | Shot(reads, writes), the last ---->|  at once, at the transaction's timestamp; validates; logs the part
//!   |<----- Executed(values, validity) --|  once the part is chosen
//!   | End(Commit(at)) ------------------>|
//! ```
//!
//! The timestamp is the client's, from before the transaction's first shot; what was read in shots before the last
//! is validated with it. How shards log what they do, how they go on when a leader or a client dies, and what
//! [`crate::validation`] does with what is here, is said there and in [`crate::shard`].
//!
//! # Invariants
//! - *A transaction takes effect at its timestamp everywhere.*
//! - *What it has read is what there is at its timestamp*: that is committed, nothing later is, and nobody who is
//!   ready to commit writes in between. Nobody will, either: writes are later than all reads of what is committed
//!   and of those that are ready.
//! - *Prepared writes of a key commit or abort in any order, and count in the order of their timestamps.* A write that is
//!   not prepared yet is refused if a later one has committed.
//! - So *the order of timestamps explains what everybody has read*. It need not be that of real time: one that has
//!   ended can have a later timestamp than one that begins then, and nobody notices who has conflicts with one of
//!   them only (003 §4, "timestamp inversion"). `tests/inversion.rs` shows it.
//!
//! # Where this differs from TAPIR
//! - *One leader executes and validates*, and its log is what is replicated; TAPIR has each replica validate, by
//!   inconsistent replication. That is left out as in 003.
//! - *Executing and preparing are one round*, as in 003.
//! - *A read is validated at the timestamp as well*: it is refused if the version that it has found is later, and
//!   whoever is about to write keeps it off only if that is before its timestamp.
//! - *A transaction that is too late begins anew, later than what it was too late for*, where TAPIR asks its
//!   shards once more with another timestamp.
//! - *Timestamps are asynchrony-aware* (003 §5.3), as those of all shards here.

#[cfg(test)]
mod tests;

use serried_model::{Guarantee, Version};

use crate::shard::{Access, Rounds, Row, Sharded, Stamp, Validity};
use crate::validation::{Holder, Rule, Validation};

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
