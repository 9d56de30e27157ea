//! Calls of procedures that several processes make, each of which is settled.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serried::{CallError, Database, ProcedureKeyspace};
use serried_history::{CallEnd, CallRecorder};
use serried_procedures::{ProcedureSet, Results};
use serried_workload::{
    BankCalls, CounterCalls, ListCalls, Measurement, NotReady, PlannedCall, ProcedureParameters,
    ProcedureWorkload, ReadList, make_ready,
};

use super::settling::{Notes, end_of, outcome};
use super::{Kind, TICK};
use crate::wing::procedures::offers_merged;

/// How many lists are in use at a time, and how many heads.
const LISTS: u64 = 8;
/// For how long, in milliseconds; then others take their place. So a list never gets as long as its column.
const USED_FOR_MS: u64 = 200;
/// How many elements a process can append. A part of each element names the process.
const ELEMENTS: u64 = 1 << 20;
/// How long a client asks for the outcome of a call.
const SETTLED_WITHIN: Duration = Duration::from_secs(25);
/// The error of a call whose results can't be begins with this.
pub(super) const WRONG: &str = "WRONG: ";

/// Whether calls of a keyspace have merged pieces: they do if its protocol offers that.
pub(super) fn merges(database: &Database, kind: Kind) -> bool {
    let keyspaces = database.keyspaces();
    let keyspace = keyspaces.iter().find(|keyspace| keyspace.name == kind.name());
    keyspace.is_some_and(|keyspace| offers_merged(&keyspace.protocol))
}

/// What the client of this process calls.
pub(super) fn workload(
    kind: Kind,
    merged: bool,
    begun_ms: u64,
    process: u64,
) -> Arc<dyn ProcedureWorkload> {
    let parameters = ProcedureParameters { merged, ..ProcedureParameters::default() };
    match kind {
        Kind::BankCalls => Arc::new(BankCalls::new(&parameters).expect("ten accounts are few")),
        Kind::CounterCalls => {
            Arc::new(CounterCalls::new(&parameters).expect("ten counters are few"))
        }
        _ => {
            let parameters = ProcedureParameters { keys: Some(LISTS), ..parameters };
            let lists = ListCalls::new(&parameters).shared(process * ELEMENTS);
            Arc::new(SharedCalls { lists, begun_ms })
        }
    }
}

/// Registers the workload's procedures, as soon as enough of the cluster is there.
pub(super) async fn prepare(
    keyspace: &ProcedureKeyspace,
    workload: &dyn ProcedureWorkload,
    within: Duration,
) -> anyhow::Result<()> {
    let until = Instant::now() + within;
    loop {
        match make_ready(keyspace, workload).await {
            Err(NotReady::Unanswered(_)) if Instant::now() < until => {
                tokio::time::sleep(TICK).await;
            }
            ready => return Ok(ready?),
        }
    }
}

/// The calls of [`ListCalls`], for processes that do not talk to each other: the time determines which lists are in use.
struct SharedCalls {
    lists: ListCalls,
    /// When the first lists came into use, in milliseconds since the Unix epoch.
    begun_ms: u64,
}

impl ProcedureWorkload for SharedCalls {
    fn name(&self) -> &'static str {
        self.lists.name()
    }

    fn set(&self) -> &Arc<ProcedureSet> {
        self.lists.set()
    }

    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> PlannedCall {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let passed_ms = (now.as_millis() as u64).saturating_sub(self.begun_ms);
        self.lists.begin_at(LISTS * (passed_ms / USED_FOR_MS));
        self.lists.plan(client, random)
    }

    fn observe(&self, planned: &PlannedCall, results: &Results) -> Result<Vec<ReadList>, String> {
        self.lists.observe(planned, results)
    }
}

/// One client in a closed loop. It asks for the outcome of a call until it knows it.
pub(super) struct CallTorture {
    pub(super) procedures: ProcedureKeyspace,
    pub(super) workload: Arc<dyn ProcedureWorkload>,
    pub(super) measurement: Arc<Measurement>,
    pub(super) recorder: Arc<CallRecorder>,
    /// Where it writes down the ids of its calls, for others to settle them if it is killed.
    pub(super) notes: Arc<Notes>,
    pub(super) process: u64,
    pub(super) seed: u64,
}

impl CallTorture {
    /// Makes calls until the window's stop.
    pub(super) async fn run(self) {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed ^ self.process.rotate_left(32));
        let mut number = 0;
        while self.procedures.now() < self.measurement.window().stop {
            let planned = self.workload.plan(self.process, &mut random);
            number += 1;
            self.call(&planned, number).await;
        }
    }

    /// Makes a call, the process's one of this number.
    async fn call(&self, planned: &PlannedCall, number: u64) {
        let PlannedCall { procedure, inputs, appends, .. } = planned;
        self.recorder.invoke(self.process, self.procedures.now().0, procedure, appends.clone());
        let (notes, process) = (self.notes.clone(), self.process);
        let noted = move |call| notes.note(process, number, call);
        let end = match self.procedures.call_noted(procedure, inputs.clone(), noted).await {
            Ok(results) => self.done(planned, &results),
            Err(refused @ CallError::Refused { .. }) => CallEnd::Refused(refused.to_string()),
            Err(unknown @ CallError::Unknown { call, .. }) => {
                match outcome(&self.procedures, call, SETTLED_WITHIN).await {
                    Some(outcome) => end_of(outcome, |results| self.done(planned, results)),
                    None => CallEnd::Unknown(unknown.to_string()),
                }
            }
            Err(forgotten @ CallError::Forgotten { .. }) => CallEnd::Unknown(forgotten.to_string()),
            Err(error) => CallEnd::Failed(error.to_string()),
        };
        let now = self.procedures.now().0;
        self.recorder.complete(self.process, now, procedure, appends.clone(), end);
    }

    /// The end of a call that took effect.
    fn done(&self, planned: &PlannedCall, results: &Results) -> CallEnd {
        match self.workload.observe(planned, results) {
            Ok(reads) => CallEnd::Done { reads },
            Err(wrong) => CallEnd::Unknown(format!("{WRONG}`{}`: {wrong}", planned.procedure)),
        }
    }
}
