//! A database without concurrency: every operation is done as soon as it is asked for.

use core::future::Future;
use core::task::{Context, Poll, Waker};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serried_actor::Timestamp;
use serried_model::{
    Key, Limits, NodeId, Operation, Outcome, Output, ReadValue, TxnId, Value, Version,
};
use serried_session::{Attempt, Full, Keyspace, Port, Switchboard};

struct State {
    rows: HashMap<Key, (Version, Option<Value>)>,
    switchboard: Switchboard,
}

/// A port to a map. Time stands still.
struct Serial(Mutex<State>);

/// An empty database.
pub(super) fn keyspace() -> Keyspace {
    let state = State { rows: HashMap::new(), switchboard: Switchboard::new(1) };
    Keyspace::new(Arc::new(Serial(Mutex::new(state))), Limits::default())
}

impl State {
    fn answer(&mut self, version: Version, operation: Operation) -> Option<Output> {
        match operation {
            Operation::Begin { .. } => Some(Output::Began(version)),
            Operation::Get { key } => {
                let (version, value) =
                    self.rows.get(&key).cloned().unwrap_or((Version::INITIAL, None));
                Some(Output::Value(ReadValue { key, version, value, stamp: 0 }))
            }
            Operation::Put(_)
            | Operation::Rollback
            | Operation::Inquire { .. }
            | Operation::GetAt { .. }
            | Operation::Access { .. } => None,
            Operation::OneShot { .. } => Some(Output::Outcome(Outcome::NotOffered)),
            Operation::Commit { writes, .. } => {
                let rows = writes.into_iter().map(|write| (write.key, (version, write.value)));
                self.rows.extend(rows);
                Some(Output::Outcome(Outcome::Committed))
            }
        }
    }
}

impl Port for Serial {
    fn open(&self, attempt: &Arc<Attempt>, waker: &Waker) -> Result<TxnId, Full> {
        self.0.lock().unwrap().switchboard.open(attempt, waker)
    }

    fn submit(&self, txn: TxnId, operations: &mut Vec<Operation>) {
        let version = Version { timestamp_us: txn.0, coordinator: NodeId(1) };
        let mut state = self.0.lock().unwrap();
        for operation in operations.drain(..) {
            if let Some(output) = state.answer(version, operation) {
                state.switchboard.deliver(txn, output);
            }
        }
    }

    fn close(&self, txn: TxnId) {
        self.0.lock().unwrap().switchboard.close(txn);
    }

    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn set_alarm(&self, _: Timestamp, _: Waker) -> u64 {
        0
    }

    fn cancel_alarm(&self, _: Timestamp, _: u64) {}

    fn random(&self) -> u64 {
        0
    }
}

/// Runs what never has to wait for long.
pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = core::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
    panic!("it waits for something that does not come");
}
