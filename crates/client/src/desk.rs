//! Where the sessions of a client's keyspace meet its coordinator.
//!
//! The endpoint knows its actors without their types, so it can't hand a coordinator an operation of its family. The desk is
//! typed by the family, and both sides of it are: a session leaves operations here, and the coordinator takes them.

use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use serried_model::{Family, TxnId};
use serried_session::{Full, Recipient, Switchboard};

/// The operations that sessions ask for, and the recipients of the coordinator's outputs.
pub(crate) struct Desk<F: Family> {
    /// What the keyspace's protocol offers.
    pub(crate) offers: F::Offers,
    switchboard: Mutex<Switchboard<F>>,
    operations: Mutex<Vec<(TxnId, F::Operation)>>,
}

impl<F: Family> Desk<F> {
    /// A desk for at most `capacity` open recipients.
    pub(crate) fn new(offers: F::Offers, capacity: usize) -> Desk<F> {
        let switchboard = Mutex::new(Switchboard::new(capacity));
        Desk { offers, switchboard, operations: Mutex::default() }
    }

    pub(crate) fn open(
        &self,
        recipient: Arc<dyn Recipient<F>>,
        waker: &Waker,
    ) -> Result<TxnId, Full> {
        lock(&self.switchboard).open(recipient, waker)
    }

    pub(crate) fn close(&self, txn: TxnId) {
        lock(&self.switchboard).close(txn);
    }

    /// Delivers a coordinator's output.
    pub(crate) fn deliver(&self, txn: TxnId, output: F::Output) {
        lock(&self.switchboard).deliver(txn, output);
    }

    /// Puts operations down for the coordinator, and leaves `operations` empty.
    pub(crate) fn submit(&self, txn: TxnId, operations: &mut Vec<F::Operation>) {
        lock(&self.operations).extend(operations.drain(..).map(|operation| (txn, operation)));
    }

    /// Exchanges what was put down for an empty buffer.
    pub(crate) fn take(&self, empty: &mut Vec<(TxnId, F::Operation)>) {
        core::mem::swap(&mut *lock(&self.operations), empty);
    }
}

/// A poisoned lock is that of a client whose coordinator has panicked; its tasks only close what they have opened.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
