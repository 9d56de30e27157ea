//! Components that several protocols share. None of them is a protocol by itself.
//!
//! - [`shard`]: shards with leaders. Protocols supply the concurrency control. [`validation`]
//!   serves controls that check a transaction's reads and writes once, before it commits.
//! - [`chopped`]: the order of transactions that are chopped into pieces, for ROCOCO and Janus-CC.
//! - [`consensus`]: agreement on commands without a leader, and registers, for EPaxos and Gryff.
//! - [`replicated_log`]: a log with a leader, for the shards and for replicated objects.
//! - [`replicated_objects`]: objects, one for each key, whose operations are executed in the order of such a log.
//! - [`simple_writes`]: reads of many keys and writes of single ones, for PORT and plain reads and writes.
//! - [`write_transactions`]: reads of many keys, and writes of many keys that always commit, for Eiger and Eiger-PORT.

pub mod chopped;
pub mod consensus;
pub mod replicated_log;
pub mod replicated_objects;
pub mod shard;
pub mod simple_writes;
mod stamp_clock;
pub(crate) mod stored_names;
pub mod validation;
pub mod write_transactions;
