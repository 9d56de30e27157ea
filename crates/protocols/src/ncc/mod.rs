//! NCC: natural concurrency control.

mod chain;
mod queues;

pub use queues::Queues;

use crate::shard::Sharded;

/// The protocol, with that for read-only transactions.
pub type Ncc = Sharded<Queues<true>>;

/// The protocol without that.
pub type NccRw = Sharded<Queues<false>>;
