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
    /// Records that machines made durable.
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
    /// Its process, by which nodes of one process can be told.
    pub process_id: u32,
}

/// The CPU time that this process has used, user and system, to 10 ms; zero where `/proc` does not
/// tell.
pub fn process_cpu_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    cpu_time(&statistics).unwrap_or_default()
}

/// How much memory of this process is resident, in bytes, where the operating system tells.
pub(crate) fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Fields 14 and 15 of `/proc/<process>/stat`, in ticks, of which Linux reports 100 a second to
/// programs whatever it uses itself. The second field is in parentheses and may hold anything.
fn cpu_time(statistics: &str) -> Option<Duration> {
    let (_, rest) = statistics.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_whatever_the_program_is_called() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu_time(line), Some(Duration::from_millis(420)));
        assert_eq!(cpu_time(""), None);
    }
}
