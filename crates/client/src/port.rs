//! What a client gives its sessions: access to one keyspace's coordinator.
//!
//! A task for the coordinator, with a channel from each session, would cost two changes of tasks for each operation. Here
//! the task of the session takes the endpoint's lock and runs the coordinator itself.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use rand::Rng;
use serried_actor::Timestamp;
use serried_model::{Family, Key, TransactionReport, TxnId};
use serried_session::{Driver, Full, Port, Recipient};
use serried_wire::{Core, Endpoint};

use crate::client::Client;
use crate::desk::Desk;
use crate::reporting::RecordedKeyspaces;
use crate::side::ClientSide;

/// One keyspace of a connected client. A coordinator runs in the task that requests something of it.
pub(crate) struct KeyspacePort<F: Family> {
    /// Kept alive, with its connections.
    _client: Arc<Client>,
    endpoint: Arc<Endpoint<ClientSide>>,
    keyspace: u16,
    /// [`Port::keyspace_id`].
    id: u64,
    /// [`Port::site`].
    site: u16,
    desk: Arc<Desk<F>>,
    entropy: AtomicU64,
    /// Whether there is a node that can't write.
    obstructed: Arc<AtomicBool>,
    /// The nodes of the client's site.
    nodes: Range<usize>,
    /// The keyspace's number.
    number: u64,
    /// Which keyspaces are recorded.
    recorded: RecordedKeyspaces,
}

impl<F: Family> KeyspacePort<F> {
    /// That to the `keyspace`-th of the client's keyspaces, which the client uses at these nodes.
    pub(crate) fn new(
        client: Arc<Client>,
        (keyspace, nodes): (u16, Range<usize>),
        desk: Arc<Desk<F>>,
        (number, id, site): (u64, u64, u16),
    ) -> Self {
        let endpoint = client.endpoint.clone();
        let mut core = endpoint.lock();
        let entropy = AtomicU64::new(core.random.next_u64());
        let obstructed = core.side.obstacles.watch();
        let recorded = core.side.reporting.recorded();
        drop(core);
        KeyspacePort {
            _client: client,
            endpoint,
            keyspace,
            id,
            site,
            desk,
            entropy,
            obstructed,
            nodes,
            number,
            recorded,
        }
    }

    /// Whether a transaction is being dropped because a coordinator panicked. Then nothing is left to be done for it, and
    /// the panic that names the broken invariant should reach its task.
    fn is_unwinding(&self) -> bool {
        std::thread::panicking() && !self.endpoint.is_sound()
    }
}

impl<F: Family> Port<F> for KeyspacePort<F> {
    fn open(&self, recipient: Arc<dyn Recipient<F>>, waker: &Waker) -> Result<TxnId, Full> {
        self.desk.open(recipient, waker)
    }

    fn submit(&self, txn: TxnId, operations: &mut Vec<F::Operation>) {
        if self.is_unwinding() {
            return operations.clear();
        }
        let moment = self.endpoint.clock.moment();
        let mut core = self.endpoint.lock();
        self.desk.submit(txn, operations);
        let place = usize::from(self.keyspace);
        core.run(place, |coordinator, out| coordinator.on_operations(moment, out));
        core.settle(moment);
    }

    fn close(&self, txn: TxnId) {
        self.desk.close(txn);
    }

    fn keyspace_id(&self) -> u64 {
        self.id
    }

    fn site(&self) -> u16 {
        self.site
    }

    fn is_recorded(&self) -> bool {
        self.recorded.has(self.number)
    }

    fn report(&self, transaction: TransactionReport<Key>) {
        let now = self.endpoint.clock.now();
        let mut core = self.endpoint.lock();
        let Core { side, links, .. } = &mut *core;
        if let Some(due) = side.reporting.report(self.number, &transaction, now, links) {
            core.wake_by(due);
        }
    }
}

/// A number for a keyspace: a checksum of the names of its cluster and its own, and its generation.
pub(crate) fn keyspace_id(cluster: &str, name: &str, generation: u32) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [cluster, name] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    u64::from(hasher.finalize()) << 32 | u64::from(generation)
}

impl<F: Family> Driver for KeyspacePort<F> {
    fn obstacle(&self) -> Option<String> {
        if !self.obstructed.load(Ordering::Relaxed) {
            return None;
        }
        self.endpoint.lock().side.obstacles.of_majority(&self.nodes)
    }

    fn now(&self) -> Timestamp {
        self.endpoint.clock.now()
    }

    fn set_alarm(&self, at: Timestamp, waker: Waker) -> u64 {
        let mut core = self.endpoint.lock();
        let alarm = core.side.alarms.set(at, waker);
        core.wake_by(at);
        alarm
    }

    fn cancel_alarm(&self, at: Timestamp, alarm: u64) {
        if !self.is_unwinding() {
            self.endpoint.lock().side.alarms.cancel(at, alarm);
        }
    }

    /// SplitMix64, which several threads can draw from without a lock.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.entropy.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
