//! Runs a planned transaction, for closed and open loops.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use serried_actor::Timestamp;
use serried_history::{EventKind, MicroOperation, ReadResult, Recorder};
use serried_model::{Value, Version};
use serried_session::{
    Batch, Committed, Footprint, Transaction, TransactionError, TransactionKeyspace,
};

use crate::{Arrival, Measurement, OneShot, Plan, RolledBack, Workload};

/// Runs the transactions of a client, enters their results, and records their history.
pub(crate) struct Transactor {
    pub(crate) keyspace: TransactionKeyspace,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) measurement: Arc<Measurement>,
    pub(crate) recorder: Option<Arc<Recorder>>,
}

impl Transactor {
    /// Runs `plan` as `process` of the history, which must have no other open transaction. Its latency counts from
    /// `arrived`, which must not be after now.
    ///
    /// Every planned transaction of every client is begun here. It is run as a one-shot transaction if all of it is
    /// known, or else as read-only if it only reads, because a protocol may have a better way to run these.
    pub(crate) async fn transact(&self, process: u64, plan: &Plan, arrived: Timestamp) -> Arrival {
        if let Some(recorder) = &self.recorder {
            recorder.invoke(process, self.keyspace.now().0, open(plan.operations()));
        }
        let (keyspace, workload, record) =
            (&self.keyspace, &self.workload, self.recorder.is_some());
        let transaction = OpenTransaction::new(self, process, plan);
        let program = |tx: Transaction| {
            transaction.has_begun(&tx);
            workload.run(plan, tx, record)
        };
        let result = match workload.one_shot(plan) {
            Some(OneShot { reads, writes, modifies, fill }) => {
                let has_begun = |attempt: &Transaction| transaction.has_begun(attempt);
                let batch = modifies
                    .into_iter()
                    .fold(Batch::of(reads, writes), |batch, (key, modification)| {
                        batch.modify(key, modification)
                    });
                let result = keyspace.batch_recorded(batch, has_begun).await;
                let done = |values: &[Option<Value>]| match record {
                    true => fill(plan.operations(), values),
                    false => Vec::new(),
                };
                result.map(|(committed, footprint)| (committed.map(|v| done(&v)), footprint))
            }
            None if workload.only_reads(plan) => {
                keyspace.transact_read_only_recorded(program).await
            }
            None => keyspace.transact_recorded(program).await,
        };
        transaction.has_ended();
        let ended = self.keyspace.now();
        self.measurement.enter(workload.kind(plan), arrived, ended, &result);
        let how = match &result {
            Err(error) if error.application::<RolledBack>().is_none() => Arrival::Failed,
            _ => Arrival::Done,
        };
        if let Some(recorder) = &self.recorder {
            self.record(recorder, process, ended.0, open(plan.operations()), result);
        }
        how
    }

    fn record(
        &self,
        recorder: &Recorder,
        process: u64,
        time_ns: u64,
        plan: Vec<MicroOperation>,
        result: Result<(Committed<Vec<MicroOperation>>, Footprint), TransactionError>,
    ) {
        match result {
            Ok((committed, footprint)) => {
                let operations = self.workload.operations(committed.value, &footprint);
                let version = Some(committed.version);
                let versions = match self.workload.records_versions() {
                    true => footprint.reads.iter().map(|read| read.version).collect(),
                    false => Vec::new(),
                };
                recorder.complete(
                    process,
                    time_ns,
                    EventKind::Ok,
                    operations,
                    version,
                    versions,
                    None,
                );
            }
            Err(error) => {
                let (kind, version): (_, Option<Version>) = match &error {
                    TransactionError::Unknown { txn, .. } => (EventKind::Info, Some(*txn)),
                    _ => (EventKind::Fail, None),
                };
                let error = Some(error.to_string());
                recorder.complete(process, time_ns, kind, plan, version, Vec::new(), error);
            }
        }
    }
}

/// A transaction that has not ended. If its client dies, its outcome is recorded as unknown, with its version.
struct OpenTransaction<'a> {
    transactor: &'a Transactor,
    process: u64,
    /// `None` if no history is kept, or the end is recorded.
    recorder: Option<&'a Recorder>,
    plan: &'a Plan,
    last_attempt: Mutex<Option<Transaction>>,
}

impl<'a> OpenTransaction<'a> {
    fn new(transactor: &'a Transactor, process: u64, plan: &'a Plan) -> Self {
        let recorder = transactor.recorder.as_deref();
        OpenTransaction { transactor, process, recorder, plan, last_attempt: Mutex::new(None) }
    }

    fn has_begun(&self, transaction: &Transaction) {
        if self.recorder.is_some() {
            let mut last =
                self.last_attempt.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *last = Some(transaction.clone());
        }
    }

    fn has_ended(mut self) {
        self.recorder = None;
    }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        let Some(recorder) = self.recorder else { return };
        let last = self.last_attempt.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let version = last.as_ref().and_then(Transaction::version);
        let time_ns = self.transactor.keyspace.now().0;
        let (plan, error) = (open(self.plan.operations()), Some("the client died".to_string()));
        recorder.complete(self.process, time_ns, EventKind::Info, plan, version, Vec::new(), error);
    }
}

/// A plan as in a history before its results are known: values that depend on results are left open.
fn open(plan: &[MicroOperation]) -> Vec<MicroOperation> {
    let open = |operation: &MicroOperation| match operation {
        MicroOperation::Read { key, .. } => {
            MicroOperation::Read { key: *key, result: ReadResult::Pending }
        }
        MicroOperation::Write { key, .. } => MicroOperation::Write { key: *key, value: None },
        MicroOperation::Append { .. } => operation.clone(),
    };
    plan.iter().map(open).collect()
}
