//! How a node is doing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Durability, NodeStatistics};

/// What a node says of itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The version of its program.
    pub version: String,
    /// A number that it has drawn when it started: two processes that pass for one node differ in it.
    pub incarnation: u64,
    /// For how long it has been running.
    pub uptime: Duration,
    /// When its records count as durable.
    pub durability: Durability,
    /// How many cores serve its partitions.
    pub cores: u16,
    /// How many partitions it has, those of all keyspaces.
    pub partitions: u16,
    /// Why it can't write its logs and serves nothing, if that is so.
    pub obstacle: Option<String>,
    /// How many flushes of logs are under way or due.
    pub flush_lag: u64,
    /// Bytes of messages that wait for flushes.
    pub held_bytes: u64,
    /// Bytes of messages that wait for their connections.
    pub waiting_bytes: u64,
    /// What it has counted.
    pub statistics: NodeStatistics,
}

/// What a node has said of itself, and how long it took to.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeReply {
    /// What it said.
    pub status: NodeStatus,
    /// How long a request and its answer took.
    pub round_trip: Duration,
}
