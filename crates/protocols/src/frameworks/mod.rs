//! What several protocols are built of. None of these is a protocol.
//!
//! - [`shard`]: shards with leaders, for protocols that differ in their concurrency control. [`validation`] is for those
//!   controls that check once, at the end, what was read and written.
//! - [`consensus`]: agreement on commands without a leader, and registers, for EPaxos and Gryff.
//! - [`replicated_log`]: a log with a leader, for the shards and for replicated objects.
//! - [`replicated_objects`]: objects, one for each key, whose operations are executed in the order of such a log.

pub mod consensus;
pub mod replicated_log;
pub mod replicated_objects;
pub mod shard;
pub mod validation;
