//! The statistics of a run.

use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use serried_actor::Timestamp;

/// Numbers of messages, by kind of sender and receiver. A broadcast counts once per receiver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Messages {
    /// From clients to replicas.
    pub client_to_replica: u64,
    /// From replicas to clients.
    pub replica_to_client: u64,
    /// From replicas to replicas, themselves included.
    pub replica_to_replica: u64,
    /// From clients to clients, themselves included.
    pub client_to_client: u64,
}

impl Messages {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.client_to_replica
            + self.replica_to_client
            + self.replica_to_replica
            + self.client_to_client
    }

    pub(crate) fn count(&mut self, from_replica: bool, to_replica: bool) {
        *match (from_replica, to_replica) {
            (false, true) => &mut self.client_to_replica,
            (true, false) => &mut self.replica_to_client,
            (true, true) => &mut self.replica_to_replica,
            (false, false) => &mut self.client_to_client,
        } += 1;
    }
}

/// The numbers to which a [`crate::CostModel`] applies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Load {
    /// Messages received, timers fired and batches of operations.
    pub events: u64,
    /// Messages sent. A broadcast counts once per receiver.
    pub sent_messages: u64,
    /// Units of work that handlers charged.
    pub work_units: u64,
    /// Bytes received. Zero if messages are not encoded.
    pub bytes: u64,
}

impl Add for Load {
    type Output = Load;

    fn add(self, other: Load) -> Load {
        Load {
            events: self.events + other.events,
            sent_messages: self.sent_messages + other.sent_messages,
            work_units: self.work_units + other.work_units,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Load) {
        *self = *self + other;
    }
}

/// The difference between two moments.
impl Sub for Load {
    type Output = Load;

    fn sub(self, earlier: Load) -> Load {
        Load {
            events: self.events - earlier.events,
            sent_messages: self.sent_messages - earlier.sent_messages,
            work_units: self.work_units - earlier.work_units,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Load>>(loads: I) -> Load {
        loads.fold(Load::default(), Add::add)
    }
}

/// The statistics of a run so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Events handled.
    pub events: u64,
    /// Messages sent.
    pub messages: Messages,
    /// Bytes sent. Zero if messages are not encoded. They are encoded if there is a cost per byte, or
    /// [`crate::Configuration::hash_contents`] is set.
    pub bytes: u64,
    /// Messages lost at random or by an interceptor.
    pub lost: u64,
    /// Messages lost to partitions.
    pub partitioned: u64,
    /// Messages that arrived at a node that was down.
    pub undeliverable: u64,
    /// Messages delivered twice.
    pub duplicated: u64,
    /// Messages that got an additional delay.
    pub reordered: u64,
    /// Forged messages that nodes have rejected.
    pub rejected: u64,
    /// For each replica, the total time for which its cores were occupied.
    pub replica_busy: Vec<Duration>,
    /// The load of all replicas.
    pub replica_load: Load,
    /// The load of all clients.
    pub client_load: Load,
    /// The total time for which the clients' cores were occupied.
    pub client_busy: Duration,
    /// The greatest number of events that ever waited for a core at one node.
    pub longest_queue: usize,
}

/// What one client has sent and was sent: see [`crate::Cluster::count_traffic`].
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Counted>);

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// The moments at which the client has sent something.
    moments: u64,
    last: Option<Timestamp>,
    bytes: u64,
}

impl Traffic {
    pub(crate) fn sends(&self, now: Timestamp, length: u32) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.moments += u64::from(counted.last != Some(now));
        counted.last = Some(now);
        counted.bytes += u64::from(length);
    }

    pub(crate) fn is_sent(&self, length: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes += u64::from(length);
    }

    fn counted(&self) -> Counted {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many rounds of messages the client has sent before `now`, the present moment. What it sends at the same moment
    /// is one round. That may be wrong if clients need time to compute.
    pub fn rounds_before(&self, now: Timestamp) -> u64 {
        let counted = self.counted();
        counted.moments - u64::from(counted.last == Some(now))
    }

    /// The bytes of all messages that the client has sent or was sent, delivered or not. Zero if messages are not
    /// encoded: see [`Statistics::bytes`].
    pub fn bytes(&self) -> u64 {
        self.counted().bytes
    }
}
