//! Bounds and times of the transport.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bounds and times of an endpoint's transport: the `[transport]` table of a node's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportOptions {
    /// The longest payload of a frame, in bytes. Default 64 MiB. A client needs at least 64 KiB, a node of several 64 MiB.
    pub frame_bytes: usize,
    /// Messages to a receiver are dropped while more bytes than this wait for it; a client that leaves more than this unread is
    /// disconnected. Default 64 MiB.
    pub most_waiting_bytes: usize,
    /// A node reads nothing from a client for which more bytes than this wait. Default 8 MiB.
    pub slow_waiting_bytes: usize,
    /// How far this machine's wall clock may be off either way, in microseconds. Default 10 ms.
    pub clock_uncertainty_us: u64,
    /// How much a node keeps in memory of what clients have not finished sending or not read yet, for all of them together, in
    /// bytes. The cores have equal parts, each at least enough for one client. If they need more, the client is disconnected
    /// for which most is kept. Default 1 GiB.
    pub client_bytes: usize,
    /// The most connections to clients that a node accepts at a time. Default 4096.
    pub connections: usize,
    /// How long opening a connection may take, handshake included, in milliseconds. Default 5 s.
    pub handshake_timeout_ms: u64,
    /// For how long a thread looks for further messages before it sleeps, at most, in microseconds; 0 if it sleeps at once. A
    /// thread looks only while messages come one within this time after the other, and while no other thread wants its
    /// processor. Default 200. The options with which clients connect begin with 0, because their threads are the
    /// application's, and clients look only on a runtime of one thread.
    pub poll_us: u64,
    /// How often something is sent on a connection, a ping if there is nothing else, in milliseconds. A process that does not
    /// answer within this time gives way to another one of the same node. Default 1 s.
    pub heartbeat_ms: u64,
    /// A connection on which nothing comes for so long is closed, in milliseconds. Default 5 s; at least two heartbeats.
    pub silence_ms: u64,
}

impl Default for TransportOptions {
    fn default() -> Self {
        TransportOptions {
            frame_bytes: 64 << 20,
            most_waiting_bytes: 64 << 20,
            slow_waiting_bytes: 8 << 20,
            clock_uncertainty_us: 10_000,
            client_bytes: 1 << 30,
            connections: 4096,
            handshake_timeout_ms: 5000,
            poll_us: 200,
            heartbeat_ms: 1000,
            silence_ms: 5000,
        }
    }
}

impl TransportOptions {
    /// The least that [`TransportOptions::frame_bytes`] may be.
    pub const LEAST_FRAME_BYTES: usize = 64 << 10;

    /// The most that [`TransportOptions::poll_us`] may be: 10 ms.
    pub const MOST_POLL_US: u64 = 10_000;

    /// How far this machine's wall clock may be off either way.
    pub fn clock_uncertainty(&self) -> Duration {
        Duration::from_micros(self.clock_uncertainty_us)
    }

    /// How long opening a connection may take.
    pub fn handshake_timeout(&self) -> Duration {
        Duration::from_millis(self.handshake_timeout_ms)
    }

    /// For how long a thread looks for messages before it sleeps, at most.
    pub(crate) fn poll(&self) -> Duration {
        Duration::from_micros(self.poll_us.min(TransportOptions::MOST_POLL_US))
    }

    /// How often something is sent on a connection.
    pub fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.max(1))
    }

    /// How many heartbeats a connection may be silent. The first one may come right after its last sign.
    pub(crate) fn silent_beats(&self) -> u32 {
        let beats = self.silence_ms.div_ceil(self.heartbeat_ms.max(1)).max(2) + 1;
        u32::try_from(beats).unwrap_or(u32::MAX)
    }
}
