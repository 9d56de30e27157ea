//! The connection between a client's sessions and its coordinator.

use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::Rng;
use serried_actor::{Random, Timestamp};
use serried_model::{Family, TxnId};
use serried_session::{Alarms, Driver, Full, Port, Recipient, Switchboard};

use crate::executor::Wakeups;

/// Virtual time, as the sessions read it.
#[derive(Default)]
pub(crate) struct Time(AtomicU64);

impl Time {
    pub(crate) fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// One client's port. It collects the operations of sessions. The simulator fetches them when no task can run.
pub(crate) struct ClientPort<F: Family> {
    client: usize,
    /// [`Port::site`].
    site: u16,
    time: Arc<Time>,
    wakeups: Arc<Wakeups>,
    state: Mutex<State<F>>,
}

struct State<F: Family> {
    switchboard: Switchboard<F>,
    alarms: Alarms,
    random: Random,
    operations: Vec<(TxnId, F::Operation)>,
    /// Whether the simulator has been called.
    called: bool,
    /// Whether a job for the operations already waits for a core of the coordinator.
    operations_queued: bool,
    /// The times of the alarm events in the scheduler, in descending order.
    alarm_events: Vec<Timestamp>,
}

impl<F: Family> ClientPort<F> {
    pub(crate) fn new(
        (client, site): (usize, u16),
        capacity: usize,
        random: Random,
        time: Arc<Time>,
        wakeups: Arc<Wakeups>,
    ) -> ClientPort<F> {
        let state = State {
            switchboard: Switchboard::new(capacity),
            alarms: Alarms::default(),
            random,
            operations: Vec::new(),
            called: false,
            operations_queued: false,
            alarm_events: Vec::new(),
        };
        ClientPort { client, site, time, wakeups, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State<F>> {
        // The lock is poisoned only while a simulation that has panicked is torn down.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn call(&self, state: &mut State<F>) {
        if !state.called {
            state.called = true;
            self.wakeups.client(self.client);
        }
    }

    /// Answers the call of the simulator. Returns whether there are operations that it does not know of yet.
    pub(crate) fn answer(&self) -> bool {
        let mut state = self.lock();
        state.called = false;
        let new = !state.operations.is_empty() && !state.operations_queued;
        state.operations_queued |= new;
        new
    }

    /// Swaps the waiting operations with an empty buffer.
    pub(crate) fn take_operations(&self, empty: &mut Vec<(TxnId, F::Operation)>) {
        let mut state = self.lock();
        state.operations_queued = false;
        core::mem::swap(&mut state.operations, empty);
    }

    pub(crate) fn deliver(&self, txn: TxnId, output: F::Output) {
        self.lock().switchboard.deliver(txn, output);
    }

    /// The time at which an alarm event must be scheduled, if the next alarm is earlier than all scheduled events.
    pub(crate) fn missing_alarm_event(&self) -> Option<Timestamp> {
        let mut state = self.lock();
        let next = state.alarms.next()?;
        if state.alarm_events.last().is_some_and(|event| *event <= next) {
            return None;
        }
        state.alarm_events.push(next);
        Some(next)
    }

    /// Handles the earliest alarm event.
    pub(crate) fn ring(&self) {
        let mut state = self.lock();
        let now = self.time.now();
        let event = state.alarm_events.pop();
        assert_eq!(event, Some(now), "alarm events take place in the order of their times");
        state.alarms.ring(now);
    }
}

impl<F: Family> Port<F> for ClientPort<F> {
    fn open(&self, recipient: Arc<dyn Recipient<F>>, waker: &Waker) -> Result<TxnId, Full> {
        self.lock().switchboard.open(recipient, waker)
    }

    fn submit(&self, txn: TxnId, operations: &mut Vec<F::Operation>) {
        let mut state = self.lock();
        state.operations.extend(operations.drain(..).map(|operation| (txn, operation)));
        self.call(&mut state);
    }

    fn close(&self, txn: TxnId) {
        self.lock().switchboard.close(txn);
    }

    fn site(&self) -> u16 {
        self.site
    }
}

impl<F: Family> Driver for ClientPort<F> {
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    fn set_alarm(&self, at: Timestamp, waker: Waker) -> u64 {
        let mut state = self.lock();
        let alarm = state.alarms.set(at, waker);
        if state.alarm_events.last().is_none_or(|event| at < *event) {
            self.call(&mut state);
        }
        alarm
    }

    fn cancel_alarm(&self, at: Timestamp, alarm: u64) {
        self.lock().alarms.cancel(at, alarm);
    }

    fn random(&self) -> u64 {
        self.lock().random.next_u64()
    }
}
