//! A driver for tests. The test plays the coordinator and moves the clock.

use core::task::Waker;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::{Family, Key, Limits, NodeId, TransactionReport, TxnId, Version};

use crate::{Alarms, Driver, Full, Port, Recipient, Session, Switchboard};

/// A coordinator that records the operations it is given, and a clock that only the test moves.
pub(crate) struct Script<F: Family> {
    pub(crate) switchboard: Mutex<Switchboard<F>>,
    alarms: Mutex<Alarms>,
    asked: Mutex<Vec<F::Operation>>,
    now: AtomicU64,
    /// The recipient that was opened last.
    last: Mutex<Option<TxnId>>,
    /// Why nothing can be written, if nothing can.
    pub(crate) obstacle: Mutex<Option<String>>,
    /// Whether somebody records.
    pub(crate) recorded: AtomicBool,
    reports: Mutex<Vec<TransactionReport<Key>>>,
}

impl<F: Session> Script<F> {
    /// A script with room for two recipients, and a keyspace of a protocol that offers `offers`.
    pub(crate) fn offering(offers: F::Offers) -> (Arc<Script<F>>, F::Keyspace) {
        let script = Arc::new(Script {
            switchboard: Mutex::new(Switchboard::new(2)),
            alarms: Mutex::default(),
            asked: Mutex::default(),
            now: AtomicU64::new(0),
            last: Mutex::default(),
            obstacle: Mutex::default(),
            recorded: AtomicBool::new(false),
            reports: Mutex::default(),
        });
        let limits = Limits { value_bytes: 8, ..Limits::default() };
        (script.clone(), F::keyspace(script, limits, offers))
    }

    /// The operations since the last call.
    pub(crate) fn take_operations(&self) -> Vec<F::Operation> {
        core::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// What sessions have reported since the last call.
    pub(crate) fn take_reports(&self) -> Vec<TransactionReport<Key>> {
        core::mem::take(&mut *self.reports.lock().unwrap())
    }

    /// Delivers an output to the `txn`-th recipient that was opened, from 0. It must have been given the first place.
    pub(crate) fn tell(&self, txn: u64, output: F::Output) {
        self.switchboard.lock().unwrap().deliver(TxnId((txn + 1) << 32), output);
    }

    /// Delivers an output to the recipient that was opened last.
    pub(crate) fn tell_last(&self, output: F::Output) {
        let last = self.last.lock().unwrap().expect("a recipient was opened");
        self.switchboard.lock().unwrap().deliver(last, output);
    }

    pub(crate) fn advance(&self, duration: Duration) {
        let duration = duration.as_nanos() as u64;
        let now = self.now.fetch_add(duration, Ordering::Relaxed) + duration;
        self.alarms.lock().unwrap().ring(Timestamp(now));
    }
}

impl<F: Family> Port<F> for Script<F> {
    fn open(&self, recipient: Arc<dyn Recipient<F>>, waker: &Waker) -> Result<TxnId, Full> {
        let opened = self.switchboard.lock().unwrap().open(recipient, waker);
        *self.last.lock().unwrap() = opened.as_ref().ok().copied();
        opened
    }

    fn submit(&self, _: TxnId, operations: &mut Vec<F::Operation>) {
        self.asked.lock().unwrap().append(operations);
    }

    fn close(&self, txn: TxnId) {
        self.switchboard.lock().unwrap().close(txn);
    }

    fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
    }

    fn report(&self, report: TransactionReport<Key>) {
        self.reports.lock().unwrap().push(report);
    }
}

impl<F: Family> Driver for Script<F> {
    fn obstacle(&self) -> Option<String> {
        self.obstacle.lock().unwrap().clone()
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::Relaxed))
    }

    fn set_alarm(&self, at: Timestamp, waker: Waker) -> u64 {
        self.alarms.lock().unwrap().set(at, waker)
    }

    fn cancel_alarm(&self, at: Timestamp, alarm: u64) {
        self.alarms.lock().unwrap().cancel(at, alarm);
    }

    fn random(&self) -> u64 {
        u64::MAX
    }
}

pub(crate) fn version(timestamp_us: u64) -> Version {
    Version { timestamp_us, coordinator: NodeId(0) }
}
