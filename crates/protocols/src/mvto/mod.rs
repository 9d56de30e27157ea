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
//! The timestamp is the client's, from before the transaction's first shot. A shot before the last is answered once
//! what it has read is committed. How shards log what they do, and how they go on when a leader or a client dies,
//! is said in [`crate::shard`].
//!
//! # Invariants
//! - *A transaction takes effect at its timestamp everywhere.*
//! - *A read finds the last version before its timestamp*, whether that is committed or not, and is not answered
//!   before that is. If it is aborted, the transaction reads again.
//! - *Nobody writes between a version and a read of it*: a write is refused if the version before it was read at a
//!   later timestamp. So what a read has found stays the last version before it, and the order of timestamps
//!   explains what everybody has read. It need not be that of real time.
//! - *Whoever only reads leaves a mark instead of a part*: its leader remembers, in memory, when each key was last
//!   read so, or a later time where many other keys were read since (`Marks`), and refuses whoever would write before
//!   that. A leader answers such a read only if it began before a time which is in the log, before which
//!   the next leader takes nobody; and once it is sure to have led until then, so that who wrote before
//!   the read, and has a part, was known to it, and who was taken for aborted is aborted in the log.
//! - *Whoever waits has a later timestamp than whom it waits for*: no waiting ends where it began.
//! - *Of all that is committed of a key, rows keep the latest versions*, without gaps, and when each was last read:
//!   whoever would need one before these is refused, be it to read it, or to see whether it was read. Only
//!   transactions are that began longer ago than [`serried_actor::Settings::truncation_lag_ms`], or before another
//!   led.
//!
//! # When another leads
//! Reads of transactions that were ready to commit are in their parts, and those of committed ones in the rows, so
//! writes are refused for them as before. Other reads are forgotten: their transactions began before the new
//! leader led, and whoever did so and is not ready is refused, so they never commit. Marks are forgotten too: all
//! who might write before them are refused.
//!
//! A part may rest on a version whose writer had none, and which will not come to be, as that writer is refused
//! too. Nobody was told that such a part is ready, or what was found: its transaction reads again. If the rows are
//! past that version, it can't be told from one that was committed and is not kept any more. Then the part stays
//! what it is: if it does rest on that version, nobody has seen it, and nobody will, as it is not known any more
//! what was read there.
//!
//! # Where this differs from the textbook's
//! - *Reads are refused* whose version is not kept; 003 has them never abort.
//! - *Marks do not say which version was read*, so whoever would write an older one is refused as well.
//! - *Timestamps are asynchrony-aware* (003 §5.3), as those of all shards here; it is transactions with parts that
//!   clients learn the delays from.

mod marks;
#[cfg(test)]
mod tests;
mod versions;

pub use versions::Versions;

use crate::shard::Sharded;

/// The protocol.
pub type Mvto = Sharded<Versions>;
