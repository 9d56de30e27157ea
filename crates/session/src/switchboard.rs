//! The driver's side of the sessions: who waits for what.

use core::task::Waker;
use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::{Output, TxnId};
use slab::Slab;

use crate::Attempt;

/// Too many attempts are open at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The open attempts and alarms of one client. A driver owns one, next to the coordinator.
pub struct Switchboard {
    attempts: Slab<(u32, Arc<Attempt>)>,
    generation: u32,
    capacity: usize,
    waiting: Vec<Waker>,
    alarms: BTreeMap<(Timestamp, u64), Waker>,
    next_alarm: u64,
}

impl Switchboard {
    /// A switchboard for at most `capacity` open attempts; more have to wait.
    pub fn new(capacity: usize) -> Switchboard {
        Switchboard {
            attempts: Slab::new(),
            generation: 0,
            capacity,
            waiting: Vec::new(),
            alarms: BTreeMap::new(),
            next_alarm: 0,
        }
    }

    /// Registers an attempt.
    pub fn open(&mut self, attempt: &Arc<Attempt>, waker: &Waker) -> Result<TxnId, Full> {
        if self.attempts.len() >= self.capacity {
            if !self.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
                self.waiting.push(waker.clone());
            }
            return Err(Full);
        }
        self.generation = self.generation.wrapping_add(1);
        let slot = self.attempts.insert((self.generation, attempt.clone()));
        Ok(TxnId(u64::from(self.generation) << 32 | slot as u64))
    }

    /// Unregisters an attempt, and lets those that wait for a place try again: some may have stopped
    /// waiting without a word.
    pub fn close(&mut self, txn: TxnId) {
        if self.find(txn).is_some() {
            self.attempts.remove(slot(txn));
            self.waiting.drain(..).for_each(Waker::wake);
        }
    }

    /// Delivers a coordinator's output; nothing if the attempt was closed.
    pub fn deliver(&self, txn: TxnId, output: Output) {
        if let Some(attempt) = self.find(txn) {
            attempt.deliver(output);
        }
    }

    /// How many attempts are open.
    pub fn open_attempts(&self) -> usize {
        self.attempts.len()
    }

    /// Has `waker` woken by the first [`Switchboard::ring`] at or after `at`.
    pub fn set_alarm(&mut self, at: Timestamp, waker: Waker) -> u64 {
        self.next_alarm += 1;
        self.alarms.insert((at, self.next_alarm), waker);
        self.next_alarm
    }

    /// Undoes [`Switchboard::set_alarm`].
    pub fn cancel_alarm(&mut self, at: Timestamp, alarm: u64) {
        self.alarms.remove(&(at, alarm));
    }

    /// When the next alarm is due.
    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.alarms.first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes everyone whose alarm is due.
    pub fn ring(&mut self, now: Timestamp) {
        while let Some(entry) = self.alarms.first_entry() {
            if entry.key().0 > now {
                break;
            }
            entry.remove().wake();
        }
    }

    fn find(&self, txn: TxnId) -> Option<&Arc<Attempt>> {
        let (generation, attempt) = self.attempts.get(slot(txn))?;
        (*generation == (txn.0 >> 32) as u32).then_some(attempt)
    }
}

fn slot(txn: TxnId) -> usize {
    (txn.0 & u64::from(u32::MAX)) as usize
}
