//! Two-phase locking with two-phase commit: d2PL-wound-wait and d2PL-no-wait (003 §2.3 and §6.1, "Baselines"; 002 §5.1,
//! "2PL and OCC implementation").
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
//! A read takes its key's lock shared, and a write takes it exclusively. All locks are kept until the transaction's end
//! has its place in the log. What the rows lack until the end is chosen is in
//! [`Placed`](crate::frameworks::shard::Placed). With no-wait, a transaction that can't have a lock at once is refused.
//! With wound-wait, a transaction waits for older transactions, and *wounds* younger ones that are in its way: they are
//! refused. The age of a transaction is the timestamp with which its first attempt began.
//!
//! [`crate::frameworks::shard`] has replication, two-phase commit, and what happens when a leader or a client fails.
//!
//! # Invariants
//! - *Conflicting locks are never held at the same time*: [`serried_parts::LockTable`]. What a transaction has read is
//!   what the row and `Placed` hold until the transaction ends.
//! - *All locks are held before the first is released.* A part is made when the last shot comes. By then the program
//!   has ended, and everything that it waits for was answered. Locks are released when the end has its place in the
//!   log. So any two conflicting transactions have the same order everywhere, and it agrees with real time.
//! - *A part is valid from after everything that it rests on until its transaction ends.* Its first moment is later
//!   than the versions that it has read or overwrites, and later than the committed reads of those that it overwrites.
//!   So the moment that all parts agree on is later than those of all earlier transactions, and never has to move.
//! - *A transaction with a part is not wounded* (wound-wait). It is ready to commit, and may have committed. Others
//!   wait for it, whatever their age.
//! - *No transactions wait for each other in a circle* (wound-wait). At a shard a transaction waits for older ones, or
//!   for ones that have a part there. A transaction with a part waits for nothing anywhere: its last shots were sent
//!   when everything that it had requested was granted (except reads that its program has given up), and a last shot
//!   does not wait. So it ends as soon as its client, or its backup coordinator, has an answer from each of its shards,
//!   which either prepare it or refuse it. All other transactions wait for older ones only, and the oldest waits for
//!   none.
//! - *A waiting transaction is refused only in favour of an older one.* A lock is given to the oldest transaction that
//!   waits for it. So a transaction can be wounded when an older one requests a lock, but not when a lock is given.
//! - *All parts of former leaders are compatible.* An end is in the log before a part that needed its locks. A new
//!   leader takes the locks of all these parts again before it gives any other, and refuses transactions without a
//!   part.
//!
//! # Where this differs from the papers
//! - *Writes are locked in a round of their own before the parts are prepared* (wound-wait), as in 002. In 003 they are
//!   locked while the transaction is prepared. Then a transaction that waits there could be ready to commit elsewhere.
//!   It would have to be wounded in spite of that, or others would wait for it in a circle. So a program that reads and
//!   then writes takes one round more. A one-shot transaction takes the paper's two rounds, with the asynchronous
//!   commit.
//! - *Execution and preparation are one round* (no-wait), as in 003 §6.1. What a program reads before it knows its
//!   writes takes rounds of its own.
//! - *A refused transaction begins again with a new timestamp, but keeps its age*, the timestamp of its first attempt.
//!   Ages alone say who is older; timestamps distinguish transactions of the same age, which are attempts of one. So
//!   what is tried again is the oldest in time, and is wounded no more. Without waiting ages play no part.
//! - *Locks of transactions without a part are not replicated.* A new leader does not have them, and refuses these
//!   transactions.

mod locking;
#[cfg(test)]
mod tests;

pub use locking::Locking;

use crate::frameworks::shard::{Sharded, ShardedCalls};

/// Wound-wait: an older transaction wounds younger ones that are in its way, and a younger one waits.
pub type TwoPhaseLockingWoundWait = Sharded<Locking<true>>;

/// No-wait: a transaction that can't have a lock at once is refused.
pub type TwoPhaseLockingNoWait = Sharded<Locking<false>>;

/// Wound-wait for stored procedures (002 §5.1): pieces lock their rows, and the call is prepared in a round of its own.
pub type TwoPhaseLockingWoundWaitProcedures = ShardedCalls<Locking<true>>;

/// No-wait for stored procedures. The last pieces and the prepare are one round.
pub type TwoPhaseLockingNoWaitProcedures = ShardedCalls<Locking<false>>;
