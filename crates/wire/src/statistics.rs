//! What endpoints count.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_model::NodeId;

/// An endpoint's counters since it started.
///
/// They are plain numbers behind the endpoint's lock, which every path that counts holds anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Protocol messages handed to connections.
    pub messages_sent: u64,
    /// Protocol messages received.
    pub messages_received: u64,
    /// Bytes handed to the operating system, frames included.
    pub bytes_sent: u64,
    /// Bytes received, frames included.
    pub bytes_received: u64,
    /// Times that a connection's waiting bytes were written.
    pub flushes: u64,
    /// Times that bytes were read from a connection.
    pub reads: u64,
    /// Records that actors made durable.
    pub appends: u64,
    /// Times that logs were flushed.
    pub log_flushes: u64,
    /// Bytes written to logs.
    pub log_bytes: u64,
    /// Connections that were opened again after they had been lost.
    pub reconnects: u64,
    /// Protocol messages that were dropped: no connection, or too much waiting on it.
    pub messages_dropped: u64,
    /// Protocol messages received that were for a keyspace or a partition that is not here.
    pub messages_refused: u64,
}

impl Statistics {
    /// What two endpoints have counted together.
    pub fn plus(&self, other: &Statistics) -> Statistics {
        Statistics {
            messages_sent: self.messages_sent + other.messages_sent,
            messages_received: self.messages_received + other.messages_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
            flushes: self.flushes + other.flushes,
            reads: self.reads + other.reads,
            appends: self.appends + other.appends,
            log_flushes: self.log_flushes + other.log_flushes,
            log_bytes: self.log_bytes + other.log_bytes,
            reconnects: self.reconnects + other.reconnects,
            messages_dropped: self.messages_dropped + other.messages_dropped,
            messages_refused: self.messages_refused + other.messages_refused,
        }
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        Statistics {
            messages_sent: self.messages_sent - earlier.messages_sent,
            messages_received: self.messages_received - earlier.messages_received,
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            bytes_received: self.bytes_received - earlier.bytes_received,
            flushes: self.flushes - earlier.flushes,
            reads: self.reads - earlier.reads,
            appends: self.appends - earlier.appends,
            log_flushes: self.log_flushes - earlier.log_flushes,
            log_bytes: self.log_bytes - earlier.log_bytes,
            reconnects: self.reconnects - earlier.reconnects,
            messages_dropped: self.messages_dropped - earlier.messages_dropped,
            messages_refused: self.messages_refused - earlier.messages_refused,
        }
    }
}

/// A node's answer to how it is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatistics {
    /// The node.
    pub node: NodeId,
    /// Its counters.
    pub counters: Statistics,
    /// Connections that are open.
    pub connections: u64,
    /// CPU time of its process, user and system. Nodes of one process report the same.
    pub process_cpu: Duration,
    /// Its process id, by which nodes of one process are recognised.
    pub process_id: u32,
}
