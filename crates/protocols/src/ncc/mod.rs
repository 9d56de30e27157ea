//! NCC: natural concurrency control (003 §5). It is strictly serializable. If its requests arrive in a consistent order, a
//! one-shot transaction takes one round. An interactive one takes a round for each of its rounds of reads, and one for its
//! writes.
//!
//! ```text
//! client                                    shards' leaders
//!   | Shot(t, reads, writes) ----------------->|  executed at once, in the order of arrival
//!   |                                          |  durable, and all that came before it over (D1 to D3)
//!   |<-------- Executed(found, t_w, t_r) ------|
//!   |  safeguard: do all (t_w, t_r) overlap?   |
//!   | Move(t') ------------------------------->|  only if they don't: smart retry
//!   |<------------------------------- Moved ---|
//!   | End(commit at t') ---------------------->|  the program is told at the same time
//! ```
//!
//! A keyspace's shards, their logs, the client's part and what happens when somebody dies are [`crate::shard`]'s;
//! here is what a leader does with requests ([`Queues`]): `execute` is Algorithm 5.2, `release` is Algorithm 5.3,
//! `reposition` is Algorithm 5.4. The paper's two lists for each key, versions and queued responses, are one
//! (`chain.rs`): each version with those who have read it and are not over, in the order of execution. Consecutive
//! reads of a queue are the readers of one version.
//!
//! # Invariants
//! - *Validity*: what a part says of a key holds at every moment from its `t_w` to its `t_r`: no version comes
//!   between, then or later.
//! - *D1*: what is read is told only once it is committed. A read of what was aborted reads again.
//! - *D2, D3*: a write is told only once the version before it is committed and all who have read that are over.
//! - *Nobody waits for an older one to wait for it*: a request that would have to wait, and at whose key one with a
//!   later pre-assigned timestamp has not ended, is refused. So whoever waits does so for earlier ones alone.
//! - *A smart retry leaves no trace unless it can be done*: all accesses of the shard are looked at before any is
//!   changed; a shard that can't aborts the transaction, durably, before it says so, so that nobody who asks again is
//!   told otherwise.
//!
//! # Read-only transactions
//! With [`Ncc`], one that announces that it only reads asks each shard for the newest version of its keys, and
//! says up to which slot of the shard's log it knew what is committed when it began. The shard answers if the
//! newest version of each key was committed below that slot, and nobody who is not over has written; else it
//! refuses. Then the transaction begins anew, with what is known by then; and if that does not help either, or
//! somebody is writing, it reads like any other. What was found was committed when the transaction began, and
//! still the newest when it was read, so it was there together when it began: no timestamp, no safeguard, no
//! commit message and nothing durable is needed.
//! Writers that such a read comes before (`R -> W'`) began, at that key, after it; had anything that R
//! has found been executed after W', transitively, then W' would have been over before R began, by D1 to D3. A shard of
//! several replicas answers once it is sure to have led until then.
//!
//! # Where this differs from the paper
//! - *Read-only transactions* need no `t_ro` for each server and no timestamps: see above. Only a change of a
//!   key that is read gets in the way, not one of any key of the server; so fewer are refused.
//! - *Stamps are unique for each transaction*, not for each client, which may have several under way: a refined
//!   stamp is always later in time than what it follows, never just by its tie-breaker.
//! - *The commit moment is the first at which all overlap*, so that a read is no later than it has to be, and
//!   forces later writes to be refined less.
//! - *`t_r` is told as it was when the read was executed*: what the log has of it is what counts after a fail-over.
//!   It may have grown since, which a smart retry would find.
//! - *Whether a version was read* (Algorithm 5.4, line 88) can't be told from `t_w = t_r`, if the reader began
//!   earlier; here who has read is known.
//! - *Writes come with the last shot.* A program that reads and then writes a key is one logical request if nobody
//!   has written between; else it is refused at once, and not by the safeguard.
//! - *Earlier shots are not made durable*: see [`crate::shard`]. That is what §5.6 leaves open.
//! - *A response says when it was executed* for asynchrony-aware timestamps whatever it waited for (§5.3), so that a
//!   client learns the delay of its path alone.

mod chain;
mod queues;
#[cfg(test)]
mod tests;

pub use queues::Queues;

use crate::shard::Sharded;

/// The protocol, with that for read-only transactions.
pub type Ncc = Sharded<Queues<true>>;

/// The protocol without that.
pub type NccRw = Sharded<Queues<false>>;
