//! Two-phase locking with two-phase commit: d2PL-wound-wait and d2PL-no-wait (003 §2.3 and §6.1, "Baselines"; 002
//! §5.1, "2PL and OCC implementation").
//!
//! ```text
//! wound-wait: client         leaders of shards         no-wait: client         leaders of shards
//!   | Shot(reads) ------------>| locks, may wait          | Shot(reads) ---------->| locks, or refuses
//!   |<-------------- Executed -|                          |<------------ Executed -|
//!   | Shot(writes) ----------->| locks, may wait          | last Shot(writes) ---->| locks, or refuses
//!   |<-------------- Executed -|                          |                        | Prepare into the log
//!   | last Shot() ------------>| Prepare into the log     |<- Executed, validity --|
//!   |<---- Executed, validity -|                          | End(decision) -------->| into the log; releases
//!   | End(decision) ---------->| into the log; releases
//! ```
//!
//! A read takes its key's lock shared, a write takes it exclusively, and all are kept until the transaction's end
//! is applied. With no-wait a transaction is refused that can't have a lock at once. With wound-wait it waits for
//! older transactions, and has younger ones refused that are in its way: that wounds them. How old a transaction is
//! its version says, the timestamp with which it began.
//!
//! Replication, two-phase commit and whoever fails are the business of [`crate::shard`].
//!
//! # Invariants
//! - *What conflicts is never locked at a time*: [`serried_parts::LockTable`]. What a transaction has read is what
//!   the row holds until the transaction is over, so answers are made from the row.
//! - *All locks are held before the first is released*: a part is made when the last shot comes, which is when the
//!   program has ended and all that it waits for was answered; locks are released when the end is applied. Hence
//!   any two transactions that conflict do so in one order everywhere, which is that of real time.
//! - *A part holds from after all that it rests on until its transaction ends*: its least moment is later than the
//!   versions that it has read or overwrites and than the committed reads of those that it overwrites. So the moment
//!   that all parts agree on is later than those of all that came before, and it never has to move.
//! - *A transaction with a part is not wounded* (wound-wait): it is ready to commit, and may have. It is waited for,
//!   whoever is older.
//! - *Nobody waits in a circle* (wound-wait): who waits at a shard waits for older transactions, or for those that
//!   have a part there. One with a part waits for nobody anywhere: its last shots were sent when all that it had
//!   asked for was granted, except reads that its program has given up, and a last shot waits for nothing. So it ends
//!   as soon as its client, or its backup coordinator, hears from all of its shards, each of which has either
//!   prepared it or refuses it. Of those that are left each waits for older ones only, and the oldest for none.
//! - *Who waits is refused only by its elders*: a lock is given to the oldest that waits for it, and to nobody while
//!   an older one waits. That a lock is given therefore never has anybody wounded but when it is asked for.
//! - *All parts of former leaders are compatible*: an end is in the log before a part that needed its locks. A new
//!   leader takes the locks of all of them again before any other; what had no part is refused.
//!
//! # Where this differs from the papers
//! - *Writes are locked in a round of their own before the parts are prepared* (wound-wait), as 002 has it, where 003
//!   takes their locks while it prepares: a transaction that waits there could be ready to commit elsewhere, and
//!   would have to be wounded in spite of that, or waited for in a circle. A program that reads and then writes takes
//!   a round more, so; one of which all is known at once takes the paper's two, and the asynchronous commit.
//! - *Execution and preparation are one round* (no-wait), as in 003 §6.1; what a program reads before it knows what it
//!   writes has rounds of its own.
//! - *A transaction that is refused begins again with a new timestamp*, as everywhere in Serried, so it is the
//!   youngest again: programs are held apart by growing pauses instead.
//! - *Locks of transactions without a part are not replicated*: with a new leader they are gone, and those
//!   transactions are refused.

mod locking;
#[cfg(test)]
mod tests;

pub use locking::Locking;

use crate::shard::Sharded;

/// The protocol in which the older of two transactions has the younger refused, and the younger waits.
pub type TwoPhaseLockingWoundWait = Sharded<Locking<true>>;

/// The protocol in which nobody waits.
pub type TwoPhaseLockingNoWait = Sharded<Locking<false>>;
