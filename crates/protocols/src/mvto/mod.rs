//! MVTO: multi-version timestamp ordering (003 §6.1, "Baselines", and §6.4).
//!
//! ```text
//! client                            leaders of shards
//!   | Shot(reads, writes), the last ---->|  at once, at the transaction's timestamp; logs the part
//!   |<----- Executed(values, validity) --|  once the part is chosen, and all versions that it has read are committed
//!   | End(Commit(at)) ------------------>|
//!
//!   | Snapshot(reads, timestamp) ------->|  if it only reads
//!   |<----- Snapshot(values) ------------|  once they are committed
//! ```
//!
//! The client chooses the timestamp before the transaction's first shot. A shot before the last is answered once what
//! it has read is committed. [`crate::frameworks::shard`] has the log, and what happens when a leader or a client fails.
//!
//! # Invariants
//! - *A transaction takes effect at its timestamp everywhere.*
//! - *A read finds the last version before its timestamp*, committed or not, and is answered when that version is
//!   committed. If the version is aborted, the transaction reads again.
//! - *No write comes between a version and a read of it.* A write is refused if the version before it was read at a
//!   later timestamp. So what a read has found stays the last version before it, and the order of timestamps explains
//!   what all transactions have read. This order need not agree with real time.
//! - *A read-only transaction leaves a mark instead of a part.* The leader remembers in memory when such a transaction
//!   last read each key (`Marks`). Where many other keys were read since, it remembers a later time. It refuses writes
//!   before that time. It answers such a read under two conditions. The read's timestamp lies before a time that is in
//!   the log, and the next leader accepts no transaction before that time. And the leader is sure that it has led until
//!   then. So it knew every writer before the read that has a part, and every writer that it took for aborted is
//!   aborted in the log.
//! - *A transaction waits only for ones with earlier timestamps*, so none wait in a circle.
//! - *Rows keep the latest committed versions of a key without gaps*, and when each was last read. A transaction is
//!   refused if it needs an earlier version, to read it or to see whether it was read. Only two kinds of transactions
//!   do: those that began longer ago than [`serried_actor::Settings::truncation_lag_ms`], and those that began before
//!   the present leader led.
//!
//! # When another replica leads
//! Reads of transactions that were ready to commit are in their parts, and reads of committed transactions are in the
//! rows. So writes are refused for them as before. Other reads are forgotten. Their transactions began before the new
//! leader led and are not ready, so they are refused and never commit. Marks are forgotten too, and all transactions
//! that might write before them are refused.
//!
//! A part may rest on a version whose writer has no part. That writer is refused, so the version will never be
//! committed. No client was told that such a part is ready, or what was found, so its transaction reads again. But if
//! the row has later versions, this one can't be distinguished from a committed version that is not kept any more. Then
//! the part stays as it is. If it does rest on the uncommitted version, no client has seen what was read, and none
//! will, because it is not known any more.
//!
//! # Where this differs from the textbook
//! - *A read is refused if its version is not kept.* In 003 reads never abort.
//! - *Marks do not say which version was read*, so a write of an older version is refused as well.
//! - *Timestamps are asynchrony-aware* (003 §5.3), as with all shards here. Clients learn the delays from transactions
//!   with parts.

mod marks;
#[cfg(test)]
mod tests;
mod versions;

pub use versions::Versions;

use crate::frameworks::shard::Sharded;

/// The protocol.
pub type Mvto = Sharded<Versions>;
