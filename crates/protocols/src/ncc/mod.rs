//! NCC: natural concurrency control (003 §5). It is strictly serializable. If its requests arrive in a consistent
//! order, a one-shot transaction takes one round. An interactive one takes a round for each of its rounds of reads, and
//! one for its writes.
//!
//! ```text
//! client                                    shards' leaders
//!   | Shot(t, reads, writes) ----------------->|  executed at once, in the order of arrival
//!   |                                          |  answered when durable, and when D1 to D3 hold
//!   |<-------- Executed(found, t_w, t_r) ------|
//!   |  safeguard: do all (t_w, t_r) overlap?   |
//!   | Move(t') ------------------------------->|  only if they don't: smart retry
//!   |<------------------------------- Moved ---|
//!   | End(commit at t') ---------------------->|  the program is told at the same time
//! ```
//!
//! [`crate::frameworks::shard`] has the shards of a keyspace, their logs, the client's part, and what happens when a leader or a
//! client fails. This module has what a leader does with requests ([`Queues`]): `execute` is Algorithm 5.2, `release`
//! is Algorithm 5.3, and `reposition` is Algorithm 5.4. The paper has two lists for each key, versions and queued
//! responses. Here they are one (`chain.rs`): each version with the readers of it that have not ended, in the order of
//! execution. Consecutive reads of a queue are the readers of one version.
//!
//! # Invariants
//! - *Validity*: what a part says of a key holds at every moment from its `t_w` to its `t_r`. No version comes between,
//!   now or later.
//! - *D1*: a read is answered only when what it has found is committed. If that is aborted, the read is made again.
//! - *D2, D3*: a write is answered only when the version before it is committed and all readers of that version have
//!   ended.
//! - *A transaction waits only for ones with earlier timestamps.* A request is refused if it would have to wait at a
//!   key where a transaction with a later pre-assigned timestamp has not ended. So no transactions wait for each other
//!   in a circle.
//! - *Reads for update take turns* (`intents.rs`), but nothing rests on that.
//! - *An end counts from when it has its place in the log* ([`Control::RELEASES_EARLY`](crate::frameworks::shard::Control)). The
//!   chain of a key stays until the row has it, and until then read-only transactions take the key for being written.
//! - *A smart retry leaves no trace unless it can be done.* A shard looks at all accesses of the transaction before it
//!   changes any. If it can't move the transaction, it aborts it, durably, before it says so. So a repeated request
//!   gets the same answer.
//!
//! # Read-only transactions
//! With [`Ncc`], a transaction that announces that it only reads asks each shard for the newest versions of its keys.
//! The request says up to which slot of the shard's log the client knew what is committed when the transaction began.
//! The shard answers if the newest version of each key was committed below that slot, and no transaction that has not
//! ended has written one of the keys. Otherwise it refuses. Then the transaction begins again, with what the client
//! knows by then. If that does not help either, or if a transaction is writing one of the keys, it reads like any other
//! transaction. What was found was committed when the transaction began, and was still the newest version when it was
//! read. So all of it was there together when the transaction began. No timestamp, no safeguard and no commit message
//! is needed, and nothing is made durable.
//!
//! Let `R` be such a transaction, and `W'` a writer that comes after it at a key (`R -> W'`). `W'` began at that key
//! after `R` began. If anything that `R` has found had been executed after `W'`, directly or through others, `W'` would
//! have ended before `R` began, by D1 to D3. A shard with several replicas answers once it is sure to have led until
//! then.
//!
//! # Where this differs from the paper
//! - *Read-only transactions* need no `t_ro` for each server and no timestamps: see above. Only a change of a key that
//!   is read gets in the way, not a change of any key of the server. So fewer are refused.
//! - *Stamps are unique for each transaction*, not for each client, which may have several under way. A refined stamp
//!   is always later in time than what it follows, and never only by its tie-breaker.
//! - *The commit moment is the first at which all parts overlap*. So a read is no later than necessary, and later
//!   writes are refined less.
//! - *`t_r` is reported as it was when the read was executed.* The log contains this value, so it counts after a
//!   fail-over. The present value may be greater, which a smart retry would find.
//! - *Whether a version was read* (Algorithm 5.4, line 88) can't be inferred from `t_w = t_r` if the reader began
//!   earlier. Here the readers are known.
//! - *Writes come with the last shot.* A program that reads and then writes a key is one logical request if no other
//!   transaction has written the key in between. Otherwise it is refused at once, and not by the safeguard.
//! - *Earlier shots are not made durable*: see [`crate::frameworks::shard`]. 003 §5.6 leaves this open.
//! - *A response says when it was executed*, whatever it waited for, for asynchrony-aware timestamps (§5.3). So a
//!   client learns the delay of its path alone.

mod chain;
mod intents;
mod programs;
mod queues;
#[cfg(test)]
mod tests;

pub use queues::Queues;

use crate::frameworks::shard::{Sharded, ShardedCalls};

/// The protocol, with that for read-only transactions.
pub type Ncc = Sharded<Queues<true>>;

/// The protocol without that.
pub type NccRw = Sharded<Queues<false>>;

/// The protocol for stored procedures. A call that only reads runs like any other.
pub type NccProcedures = ShardedCalls<Queues<false>>;
