//! A client that makes one call after the other.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use serried_actor::Timestamp;
use serried_history::{CallEnd, CallRecorder};
use serried_procedures::Results;
use serried_session::{CallError, ProcedureKeyspace};

use super::{Inquiries, NotReady, PlannedCall, ProcedureWorkload, make_ready};
use crate::closed_loop::generator;
use crate::open_loop::{Arrived, Doors};
use crate::{Arrival, Failure, Measurement, Part};

/// How long to wait before loading is tried again.
const PAUSE: Duration = Duration::from_millis(10);
/// After about how many of its calls a client asks for the outcome of another one.
const INQUIRES_AFTER: u32 = 5;

/// One client in a closed loop. It first sees to it that the workload's procedures are registered, and loads its share of
/// the database.
pub struct CallClient {
    /// The keyspace.
    pub procedures: ProcedureKeyspace,
    /// The workload.
    pub workload: Arc<dyn ProcedureWorkload>,
    /// The measurement of its results.
    pub measurement: Arc<Measurement>,
    /// The recorder of its history, if one is kept.
    pub recorder: Option<Arc<CallRecorder>>,
    /// The calls for whose outcomes clients ask, if they do: for those of own calls that are unknown, and now and then for
    /// those of other calls.
    pub inquiries: Option<Arc<Inquiries>>,
    /// Its number, which is its process in a history.
    pub client: u64,
    /// How many clients there are.
    pub clients: u64,
    /// The seed of the run. Each client has a random generator of its own.
    pub seed: u64,
}

impl CallClient {
    /// Makes calls until the window's stop.
    pub async fn run(self) {
        let mut random = generator(self.seed, self.client);
        if !self.begin().await {
            return;
        }
        loop {
            let begun = self.procedures.now();
            // The window may be moved in the meantime.
            if begun >= self.measurement.window().stop {
                return;
            }
            let planned = self.workload.plan(self.client, &mut random);
            self.call(self.client, &planned, begun).await;
            if let Some(inquiries) = &self.inquiries
                && random.random_ratio(1, INQUIRES_AFTER)
            {
                inquiries.ask(&self.procedures, &mut random).await;
            }
        }
    }

    /// Makes a call as `process`, and enters its result. Its latency counts from `begun`.
    async fn call(&self, process: u64, planned: &PlannedCall, begun: Timestamp) -> Arrival {
        let caller = Caller {
            procedures: &self.procedures,
            workload: &*self.workload,
            recorder: self.recorder.as_deref(),
            inquiries: self.inquiries.as_ref(),
            process,
        };
        let (attempts, result) = caller.call(planned).await;
        let result = result.map(drop);
        let how = match &result {
            Err(error) if !error.is_planned() => Arrival::Failed,
            _ => Arrival::Done,
        };
        let part = Part { kind: planned.procedure, ended: self.procedures.now(), result };
        self.measurement.enter_request(begun, &[part]);
        self.measurement.enter_retries(self.procedures.now(), attempts - 1);
        how
    }

    /// Prepares the database, together with the other clients. Returns whether there is time left.
    async fn begin(&self) -> bool {
        while let Err(error) = self.load().await {
            let begun = self.procedures.now();
            let part = Part { kind: "load", ended: begun, result: Err(error) };
            self.measurement.enter_request(begun, &[part]);
            if begun >= self.measurement.window().stop {
                return false;
            }
            self.procedures.sleep_until(begun + PAUSE).await;
        }
        self.procedures.now() < self.measurement.window().stop
    }

    /// Loads what is missing, its own share first. What another client loads at the same time may be loaded twice, so that
    /// nobody has to wait for a client that has died.
    async fn load(&self) -> Result<(), LoadError> {
        make_ready(&self.procedures, &*self.workload).await?;
        let Some(loading) = self.workload.loading() else { return Ok(()) };
        let first = self.client * loading.calls() / self.clients;
        let mut next = first;
        while let Some(i) = loading.missing(next) {
            let PlannedCall { procedure, inputs, .. } = self.workload.load(i);
            match self.procedures.call(procedure, inputs).await {
                Ok(_) => loading.enter(i),
                // Others have loaded it, and have registered the workload's own procedures.
                Err(_) if loading.is_done() => break,
                Err(error) => return Err(NotReady::from(error).into()),
            }
            next = i + 1;
        }
        Ok(make_ready(&self.procedures, &*self.workload).await?)
    }
}

/// One client in an open loop: calls arrive as a Poisson process, as the transactions of [`crate::OpenLoop`] do.
pub struct OpenCalls {
    /// The client. In a history it has as many processes as it may have calls open.
    pub client: CallClient,
    /// How many calls arrive per second, above 0.
    pub rate_per_s: f64,
    /// How many may be open, above 0.
    pub most_open: usize,
}

impl OpenCalls {
    /// Begins calls until the window's stop, and ends when all of them have ended.
    ///
    /// # Panics
    /// If the rate is not above 0.
    pub async fn run(self) {
        let OpenCalls { client, rate_per_s, most_open } = &self;
        if !client.begin().await {
            return;
        }
        let (number, seed) = (client.client, client.seed);
        let doors = Doors { rate_per_s: *rate_per_s, most_open: *most_open, client: number, seed };
        let begin = |Arrived { process, mut random, at, late }| {
            let planned = client.workload.plan(number, &mut random);
            async move {
                let how = client.call(process, &planned, at).await;
                client.measurement.enter_arrival(at, late, how);
                process
            }
        };
        doors.let_in(&client.procedures, &client.measurement, begin).await;
    }
}

/// The database could not be prepared.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct LoadError(#[from] NotReady);

impl Failure for LoadError {
    fn is_unknown(&self) -> bool {
        false
    }
}

impl Failure for CallError {
    fn is_unknown(&self) -> bool {
        matches!(self, CallError::Unknown { .. } | CallError::Forgotten { .. })
    }

    fn is_planned(&self) -> bool {
        matches!(self, CallError::Refused { .. })
    }
}

/// Makes calls and records them.
struct Caller<'a> {
    procedures: &'a ProcedureKeyspace,
    workload: &'a dyn ProcedureWorkload,
    recorder: Option<&'a CallRecorder>,
    inquiries: Option<&'a Arc<Inquiries>>,
    process: u64,
}

impl Caller<'_> {
    /// Makes a call. Also returns how many attempts it took.
    async fn call(&self, planned: &PlannedCall) -> (u32, Result<Results, CallError>) {
        let mut open = Open { caller: self, planned, recorder: self.recorder };
        if let Some(recorder) = open.recorder {
            let (now, appends) = (self.procedures.now(), planned.appends.clone());
            recorder.invoke(self.process, now.0, planned.procedure, appends);
        }
        let (attempts, result) = match self.inquiries {
            Some(inquiries) => (1, inquiries.call(self.procedures, planned).await),
            None => self.procedures.call_counted(planned.procedure, planned.inputs.clone()).await,
        };
        self.workload.ended(planned, &result);
        let end = match &result {
            Ok(results) => match self.workload.observe(planned, results) {
                Ok(reads) => CallEnd::Done { reads },
                Err(wrong) => CallEnd::Unknown(format!("it returned what it can't: {wrong}")),
            },
            Err(refused @ CallError::Refused { .. }) => CallEnd::Refused(refused.to_string()),
            Err(error) if error.is_unknown() => CallEnd::Unknown(error.to_string()),
            Err(error) => CallEnd::Failed(error.to_string()),
        };
        open.end(self.procedures.now(), end);
        (attempts, result)
    }
}

/// A call that has not ended. If its client dies, its outcome is recorded as unknown.
struct Open<'a> {
    caller: &'a Caller<'a>,
    planned: &'a PlannedCall,
    /// `None` if no history is kept, or the end is recorded.
    recorder: Option<&'a CallRecorder>,
}

impl Open<'_> {
    fn end(&mut self, at: Timestamp, end: CallEnd) {
        let Some(recorder) = self.recorder.take() else { return };
        let PlannedCall { procedure, appends, .. } = self.planned;
        recorder.complete(self.caller.process, at.0, procedure, appends.clone(), end);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.recorder.is_some() {
            let now = self.caller.procedures.now();
            self.end(now, CallEnd::Unknown("the client died".to_string()));
        }
    }
}

/// Makes the workload's [audits](ProcedureWorkload::audits) as `process`, and records them. No other calls may run. An
/// audit that fails is tried again, a few times.
///
/// # Errors
/// The error of an audit that always fails.
pub async fn audit_calls(
    procedures: &ProcedureKeyspace,
    workload: &dyn ProcedureWorkload,
    recorder: &CallRecorder,
    process: u64,
) -> Result<(), CallError> {
    const TRIES: usize = 5;
    let caller =
        Caller { procedures, workload, recorder: Some(recorder), inquiries: None, process };
    for planned in workload.audits() {
        let mut result = caller.call(&planned).await.1;
        for _ in 1..TRIES {
            if result.is_ok() {
                break;
            }
            result = caller.call(&planned).await.1;
        }
        result?;
    }
    Ok(())
}
