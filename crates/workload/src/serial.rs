//! A database without concurrency: every operation is done at once.

use core::future::Future;
use core::task::{Context, Poll, Waker};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serried_actor::Timestamp;
use serried_model::transactions::{Offers, Operation, Outcome, Output};
use serried_model::{
    Key, Limits, NodeId, ReadValue, TransactionReport, Transactions, TxnId, Value, Version, Write,
};
use serried_session::{Driver, Full, Port, Recipient, Session, Switchboard, TransactionKeyspace};

/// How it handles one-shot transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OneShots {
    /// They are not offered.
    NotOffered,
    /// They are done at once.
    Done,
    /// They get no answer.
    Unanswered,
}

struct State {
    rows: HashMap<Key, (Version, Option<Value>)>,
    switchboard: Switchboard<Transactions>,
    one_shots: OneShots,
    asked: Vec<&'static str>,
    reports: Vec<TransactionReport<Key>>,
}

/// A port to a map. Time stands still.
pub(crate) struct Serial(Mutex<State>);

/// An empty database.
pub(crate) fn keyspace() -> TransactionKeyspace {
    database(OneShots::NotOffered).1
}

/// An empty database, and a keyspace of it.
pub(crate) fn database(one_shots: OneShots) -> (Arc<Serial>, TransactionKeyspace) {
    let (rows, switchboard) = (HashMap::new(), Switchboard::new(1));
    let state = State { rows, switchboard, one_shots, asked: Vec::new(), reports: Vec::new() };
    let serial = Arc::new(Serial(Mutex::new(state)));
    let offers =
        Offers { one_shots: one_shots != OneShots::NotOffered, past: false, modifies: false };
    (serial.clone(), Transactions::keyspace(serial, Limits::default(), offers))
}

impl Serial {
    /// The transactions that were begun and the one-shot transactions that were requested since the last call.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        core::mem::take(&mut self.0.lock().unwrap().asked)
    }

    /// What sessions have reported since the last call.
    pub(crate) fn take_reports(&self) -> Vec<TransactionReport<Key>> {
        core::mem::take(&mut self.0.lock().unwrap().reports)
    }
}

impl State {
    fn get(&self, key: Key) -> Output {
        let (version, value) = self.rows.get(&key).cloned().unwrap_or((Version::INITIAL, None));
        Output::Value(ReadValue { key, version, value, stamp: 0 })
    }

    fn commit(&mut self, version: Version, writes: Vec<Write>) -> Output {
        let rows = writes.into_iter().map(|write| (write.key, (version, write.value)));
        self.rows.extend(rows);
        Output::Outcome(Outcome::Committed)
    }

    fn answer(&mut self, version: Version, operation: Operation) -> Vec<Output> {
        match operation {
            Operation::Begin { only_reads, .. } => {
                self.asked.push(if only_reads { "begin to read" } else { "begin" });
                vec![Output::Began(version)]
            }
            Operation::Get { key, .. } => vec![self.get(key)],
            Operation::Put(_)
            | Operation::Rollback
            | Operation::Inquire { .. }
            | Operation::GetAt { .. } => Vec::new(),
            Operation::OneShot { reads, writes, .. } => {
                self.asked.push("one shot");
                match self.one_shots {
                    OneShots::NotOffered | OneShots::Unanswered => Vec::new(),
                    OneShots::Done => {
                        let mut answers: Vec<_> =
                            reads.into_iter().rev().map(|key| self.get(key)).collect();
                        answers.push(self.commit(version, writes));
                        answers
                    }
                }
            }
            Operation::Commit { writes, .. } => vec![self.commit(version, writes)],
        }
    }
}

impl Port<Transactions> for Serial {
    fn open(
        &self,
        recipient: Arc<dyn Recipient<Transactions>>,
        waker: &Waker,
    ) -> Result<TxnId, Full> {
        self.0.lock().unwrap().switchboard.open(recipient, waker)
    }

    fn submit(&self, txn: TxnId, operations: &mut Vec<Operation>) {
        let version = Version { timestamp_us: txn.0, coordinator: NodeId(1) };
        let mut state = self.0.lock().unwrap();
        for operation in operations.drain(..) {
            for output in state.answer(version, operation) {
                state.switchboard.deliver(txn, output);
            }
        }
    }

    fn close(&self, txn: TxnId) {
        self.0.lock().unwrap().switchboard.close(txn);
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn report(&self, report: TransactionReport<Key>) {
        self.0.lock().unwrap().reports.push(report);
    }
}

impl Driver for Serial {
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

/// Runs a future that never has to wait for long.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = core::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
    panic!("it waits for something that does not come");
}
