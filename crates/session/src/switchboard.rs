//! The driver's side of sessions: it routes a coordinator's outputs to their recipients.

use core::task::Waker;
use std::sync::Arc;

use serried_model::{Family, TxnId};
use slab::Slab;

/// A recipient of a coordinator's outputs: an attempt of a transaction, or an operation.
pub trait Recipient<F: Family>: Send + Sync {
    /// Takes an output.
    fn deliver(&self, output: F::Output);
}

/// Too many recipients are open at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The open recipients of one coordinator's outputs. A driver owns a switchboard for each coordinator.
pub struct Switchboard<F: Family> {
    recipients: Slab<(u32, Arc<dyn Recipient<F>>)>,
    generation: u32,
    capacity: usize,
    waiting: Vec<Waker>,
}

impl<F: Family> Switchboard<F> {
    /// A switchboard for at most `capacity` open recipients. Further ones have to wait.
    pub fn new(capacity: usize) -> Switchboard<F> {
        Switchboard { recipients: Slab::new(), generation: 0, capacity, waiting: Vec::new() }
    }

    /// Registers a recipient.
    ///
    /// # Errors
    /// If too many recipients are open. `waker` is then woken as soon as that may have changed.
    pub fn open(&mut self, recipient: Arc<dyn Recipient<F>>, waker: &Waker) -> Result<TxnId, Full> {
        if self.recipients.len() >= self.capacity {
            if !self.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
                self.waiting.push(waker.clone());
            }
            return Err(Full);
        }
        self.generation = self.generation.wrapping_add(1);
        let slot = self.recipients.insert((self.generation, recipient));
        Ok(TxnId(u64::from(self.generation) << 32 | slot as u64))
    }

    /// Unregisters a recipient. Wakes everything that waits for a place, not only the first, which may have stopped
    /// waiting.
    pub fn close(&mut self, txn: TxnId) {
        if self.find(txn).is_some() {
            self.recipients.remove(slot(txn));
            self.waiting.drain(..).for_each(Waker::wake);
        }
    }

    /// Delivers a coordinator's output. Does nothing if the recipient was closed.
    pub fn deliver(&self, txn: TxnId, output: F::Output) {
        if let Some(recipient) = self.find(txn) {
            recipient.deliver(output);
        }
    }

    /// How many recipients are open.
    pub fn open_recipients(&self) -> usize {
        self.recipients.len()
    }

    fn find(&self, txn: TxnId) -> Option<&Arc<dyn Recipient<F>>> {
        let (generation, recipient) = self.recipients.get(slot(txn))?;
        (*generation == (txn.0 >> 32) as u32).then_some(recipient)
    }
}

fn slot(txn: TxnId) -> usize {
    (txn.0 & u64::from(u32::MAX)) as usize
}
