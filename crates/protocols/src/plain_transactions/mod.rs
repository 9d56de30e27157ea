//! Transactions without concurrency control, to measure what concurrency control costs.
//!
//! ```text
//! client                            leaders of shards
//!   | Shot(reads, writes), the last ---->|  at once; logs the part
//!   |<----- Executed(values) ------------|  once the part is chosen
//!   | End(Commit(at)) ------------------>|
//!
//!   | Snapshot(reads) ------------------>|  if it only reads
//!   |<----- Snapshot(values) ------------|  what is committed
//! ```
//!
//! It makes no promise about what transactions see of each other. No transaction waits for another one. A transaction
//! is refused because of another one only if it reads a key twice and would find another version. What remains is what
//! all shards do ([`crate::frameworks::shard`]): parts, log, stamps and recovery. Of two writes of a key, the one with the later
//! stamp counts, at every replica.

#[cfg(test)]
mod tests;

use serried_model::{Guarantee, Version};

use crate::frameworks::shard::{
    Access, Rounds, Row, RunsCalls, Sharded, ShardedCalls, Snapshots, Stamp, Validity,
};
use crate::frameworks::validation::{Holder, Rule, Validation};

/// The protocol.
pub type PlainTransactions = Sharded<Validation<Nothing>>;

/// The same for stored procedures. Pieces are executed at once, and a call takes one round trip for each round of pieces.
pub type PlainProcedures = ShardedCalls<Validation<Nothing>>;

impl RunsCalls for Validation<Nothing> {
    const NAME: &'static str = "plain-procedures";
    const SUMMARY: &'static str = "procedures without concurrency control: what the others cost is what they do more than this";
}

/// Nothing is checked.
#[derive(Debug)]
pub struct Nothing;

impl Rule for Nothing {
    const NAME: &'static str = "plain-transactions";
    const SUMMARY: &'static str =
        "no concurrency control: what the others cost is what they do more than this";
    const GUARANTEE: Guarantee = Guarantee::Nothing;
    const ROUNDS: Rounds = Rounds::Combined;
    const SNAPSHOTS: Snapshots = Snapshots::OfKnown;

    fn check(_: Version, _: &Access, _: &Row, _: &[Holder]) -> Result<(), u64> {
        Ok(())
    }

    fn validity(txn: Version, latest: Stamp) -> Validity {
        Validity { from: latest.next_of(txn), until: None }
    }
}
