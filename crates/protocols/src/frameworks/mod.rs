//! What several protocols are built of. None of these is a protocol.
//!
//! - [`shard`]: shards with leaders, for protocols that differ in their concurrency control. [`validation`] is for those
//!   controls that check once, at the end, what was read and written.
//! - [`consensus`]: agreement on commands without a leader, and registers, for EPaxos and Gryff.
//! - [`replicated_log`]: a log with a leader, for the shards and for MultiPaxos.

pub mod consensus;
pub mod replicated_log;
pub mod shard;
pub mod validation;
