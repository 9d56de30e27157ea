//! What a client that watches a node and the node's cores send each other.
//!
//! ```text
//! client ──WatchRequest──▶ core: counts writes, chooses the hottest keys, records what happens to these
//!        ◀──Began, Observed .., Ended── or ◀──Refused──      ──WatchEnd──▶ ends it early
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_actor::Observed;
use serried_model::Key;

/// What a client wants to see of a keyspace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WatchRequest {
    /// The number of the keyspace.
    pub keyspace: u64,
    /// The keys. If there are none, the keys that are written most often.
    pub keys: Vec<Key>,
    /// How many keys are chosen if none are named.
    pub hottest: u16,
    /// How long writes are counted to choose them.
    pub count: Duration,
    /// How long to record after that.
    pub record: Duration,
}

/// What a core sends to a client that watches it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WatchReply {
    /// It is watched from now on.
    Began,
    /// It is not, for this reason.
    Refused(String),
    /// Some of what happened to the keys.
    Observed(Vec<Observed>),
    /// It is not watched any more.
    Ended(Recorded),
}

/// The interval of which there is a record, in nanoseconds by the node's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// When it begins.
    pub from_ns: u64,
    /// When it ends.
    pub until_ns: u64,
    /// How many observations were not sent because there was no room.
    pub forgotten: u64,
    /// What its wall clock showed at the end, in microseconds since the Unix epoch.
    pub until_us: u64,
    /// How many transactions committed in it, whatever their keys.
    pub committed: u64,
    /// How many of these did so at partitions that the core leads, or whose protocol has no leaders.
    pub committed_where_it_leads: u64,
    /// How many attempts of transactions were aborted at these partitions.
    pub aborted: u64,
    /// How many transactions committed while keys were counted, when nothing was sent.
    pub committed_before: u64,
}
