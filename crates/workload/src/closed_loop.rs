//! A client that does one transaction after the other.

use std::sync::{Arc, Mutex};

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serried_history::{EventKind, MicroOperation, ReadResult, Recorder};
use serried_model::Version;
use serried_session::{Committed, Error, Footprint, Keyspace, Transaction};

use crate::{Measurement, Plan, Workload};

/// The random numbers of a client in a run with this seed.
pub(crate) fn generator(seed: u64, client: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed ^ client.wrapping_mul(0x9e37_79b9))
}

/// One client in a closed loop.
pub struct ClosedLoop {
    /// Where it runs its transactions.
    pub keyspace: Keyspace,
    /// What it runs.
    pub workload: Arc<dyn Workload>,
    /// Where its results go.
    pub measurement: Arc<Measurement>,
    /// Where its history goes, if one is kept.
    pub recorder: Option<Arc<Recorder>>,
    /// Its number, which is its process in the history.
    pub client: u64,
    /// The seed of the run; each client draws its own numbers from it.
    pub seed: u64,
}

impl ClosedLoop {
    /// Runs transactions until the window's stop.
    pub async fn run(self) {
        let mut random = generator(self.seed, self.client);
        // The window may be moved meanwhile.
        while self.keyspace.now() < self.measurement.window().stop {
            let plan = self.workload.plan(self.client, &mut random);
            let begun = self.keyspace.now();
            if let Some(recorder) = &self.recorder {
                recorder.invoke(self.client, begun.0, open(plan.operations()));
            }
            let (workload, record) = (&self.workload, self.recorder.is_some());
            let transaction = OpenTransaction::new(&self, &plan);
            let transact = self.keyspace.transact_recorded(|tx| {
                transaction.has_begun(&tx);
                workload.run(&plan, tx, record)
            });
            let result = transact.await;
            transaction.has_ended();
            let ended = self.keyspace.now();
            self.measurement.enter(workload.kind(&plan), begun, ended, &result);
            if let Some(recorder) = &self.recorder {
                self.record(recorder, ended.0, open(plan.operations()), result);
            }
        }
    }

    fn record(
        &self,
        recorder: &Recorder,
        time_ns: u64,
        plan: Vec<MicroOperation>,
        result: Result<(Committed<Vec<MicroOperation>>, Footprint), Error>,
    ) {
        let client = self.client;
        match result {
            Ok((committed, footprint)) => {
                let operations = self.workload.operations(committed.value, &footprint);
                let version = Some(committed.version);
                let versions = match self.workload.records_versions() {
                    true => footprint.reads.iter().map(|read| read.version).collect(),
                    false => Vec::new(),
                };
                recorder.complete(
                    client,
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
                    Error::Unknown { txn, .. } => (EventKind::Info, Some(*txn)),
                    _ => (EventKind::Fail, None),
                };
                let error = Some(error.to_string());
                recorder.complete(client, time_ns, kind, plan, version, Vec::new(), error);
            }
        }
    }
}

/// A transaction that has not ended. If its client dies, what it may yet do is recorded under its
/// version.
struct OpenTransaction<'a> {
    client: &'a ClosedLoop,
    /// None if no history is kept, or the end is in it.
    recorder: Option<&'a Recorder>,
    plan: &'a Plan,
    last_attempt: Mutex<Option<Transaction>>,
}

impl<'a> OpenTransaction<'a> {
    fn new(client: &'a ClosedLoop, plan: &'a Plan) -> Self {
        let recorder = client.recorder.as_deref();
        OpenTransaction { client, recorder, plan, last_attempt: Mutex::new(None) }
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
        let time_ns = self.client.keyspace.now().0;
        let (plan, error) = (open(self.plan.operations()), Some("the client died".to_string()));
        let client = self.client.client;
        recorder.complete(client, time_ns, EventKind::Info, plan, version, Vec::new(), error);
    }
}

/// A plan as it stands in a history before its results are known: values to come are left open.
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

/// Keys loaded per transaction.
const LOADED_AT_ONCE: u64 = 1000;

/// Loads the share of a workload's initial keys that falls to `loader` of `loaders`, which may load
/// at the same time; `progress` is told how many keys have been loaded, now and then. Returns the
/// latest version loaded.
///
/// # Errors
/// As [`Keyspace::transact`].
pub async fn preload(
    keyspace: &Keyspace,
    workload: &dyn Workload,
    loader: u64,
    loaders: u64,
    progress: impl Fn(u64),
) -> Result<Version, Error> {
    let mut latest = Version::INITIAL;
    for batch in (loader..).step_by(loaders as usize) {
        let keys = batch * LOADED_AT_ONCE..(batch + 1) * LOADED_AT_ONCE;
        let pairs: &Vec<_> = &keys.map_while(|i| workload.initial(i)).collect();
        if pairs.is_empty() {
            break;
        }
        let load = keyspace.transact(|tx| async move {
            for (key, value) in pairs {
                tx.put(key, value);
            }
            Ok(())
        });
        latest = latest.max(load.await?.version);
        progress(pairs.len() as u64);
    }
    Ok(latest)
}
