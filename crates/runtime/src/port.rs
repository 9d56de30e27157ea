//! What a client gives its sessions: access to one keyspace's coordinator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use rand::Rng;
use serried_actor::Timestamp;
use serried_model::{Operation, TxnId};
use serried_session::{Attempt, Full, Port};

use crate::Client;
use crate::core::Endpoint;

/// One keyspace of a connected client. A coordinator runs in the task of whoever asks it for
/// something.
pub(crate) struct KeyspacePort {
    /// Kept alive, with its connections.
    client: Arc<Client>,
    endpoint: Arc<Endpoint>,
    keyspace: u16,
    entropy: AtomicU64,
    /// Whether there is a node that can't write.
    obstructed: Arc<AtomicBool>,
}

impl KeyspacePort {
    pub(crate) fn new(client: Arc<Client>, endpoint: Arc<Endpoint>, keyspace: u16) -> Self {
        let mut core = endpoint.lock();
        let entropy = AtomicU64::new(core.random.next_u64());
        let obstructed = core.obstacles.watch();
        drop(core);
        KeyspacePort { client, endpoint, keyspace, entropy, obstructed }
    }

    /// Whether a transaction is being dropped because a coordinator panicked: there is nothing left to
    /// tell it, and the panic that names the broken invariant should reach its task.
    fn is_unwinding(&self) -> bool {
        std::thread::panicking() && !self.endpoint.is_sound()
    }
}

impl Port for KeyspacePort {
    fn open(&self, attempt: &Arc<Attempt>, waker: &Waker) -> Result<TxnId, Full> {
        self.endpoint.lock().switchboard.open(attempt, waker)
    }

    fn submit(&self, txn: TxnId, operations: &mut Vec<Operation>) {
        if self.is_unwinding() {
            return operations.clear();
        }
        self.endpoint.submit(self.keyspace, txn, operations);
    }

    fn close(&self, txn: TxnId) {
        if !self.is_unwinding() {
            self.endpoint.lock().switchboard.close(txn);
        }
    }

    fn obstacle(&self) -> Option<String> {
        if !self.obstructed.load(Ordering::Relaxed) {
            return None;
        }
        self.endpoint.lock().obstacles.of_majority(self.client.group().size())
    }

    fn now(&self) -> Timestamp {
        self.endpoint.clock.now()
    }

    fn set_alarm(&self, at: Timestamp, waker: Waker) -> u64 {
        let mut core = self.endpoint.lock();
        let alarm = core.switchboard.set_alarm(at, waker);
        core.wake_by(at);
        alarm
    }

    fn cancel_alarm(&self, at: Timestamp, alarm: u64) {
        if !self.is_unwinding() {
            self.endpoint.lock().switchboard.cancel_alarm(at, alarm);
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
