//! A client of registers that makes one request after the other.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serried_actor::Timestamp;
use serried_history::{RegisterOperation, RegisterOutcome, RegisterRecorder, RegisterValue};
use serried_model::{Access, Accessed, Modification, Value};
use serried_session::{RegisterError, RegisterKeyspace};

use super::{Planned, RegisterWorkload, Turn};
use crate::closed_loop::generator;
use crate::{Failure, Measurement, Part};

/// One client in a closed loop.
pub struct RegisterClient {
    /// The keyspace.
    pub registers: RegisterKeyspace,
    /// The workload.
    pub workload: Arc<dyn RegisterWorkload>,
    /// The measurement of its results.
    pub measurement: Arc<Measurement>,
    /// The recorder of its history, if one is kept.
    pub recorder: Option<Arc<RegisterRecorder>>,
    /// The offset of the history's times from the driver's, in nanoseconds, so that the times of several processes can
    /// be compared.
    pub epoch_ns: u64,
    /// Its number. In a history it has as many processes as its requests have operations.
    pub client: u64,
    /// The seed of the run. Each client has a random generator of its own.
    pub seed: u64,
}

impl RegisterClient {
    /// Makes requests until the window's stop.
    pub async fn run(self) {
        let mut random = generator(self.seed, self.client);
        let (mut last, mut parts) = (None, Vec::new());
        for number in 1.. {
            let begun = self.registers.now();
            // The window may be moved in the meantime.
            if begun >= self.measurement.window().stop {
                return;
            }
            let turn = Turn { client: self.client, number, last };
            let request = self.workload.plan(turn, &mut random);
            let first_process = self.client * self.workload.width();
            let operations = request.into_iter().enumerate();
            let mut operations = operations
                .map(|(i, planned)| self.operate(first_process + i as u64, begun, planned))
                .collect::<FuturesUnordered<_>>();
            while let Some((part, after)) = operations.next().await {
                parts.push(part);
                last = after.unwrap_or(last);
            }
            self.measurement.enter_request(begun, &parts);
            parts.clear();
        }
    }

    /// Does one operation. Also returns the value of the key after it, if that is known.
    async fn operate(
        &self,
        process: u64,
        begun: Timestamp,
        planned: Planned,
    ) -> (Part<RegisterError>, Option<RegisterValue>) {
        let Planned { key, operation } = planned;
        let mut open = Open { client: self, process, planned, recorder: self.recorder.as_deref() };
        if let Some(recorder) = open.recorder {
            recorder.invoke(process, begun.0 + self.epoch_ns, key, operation);
        }
        let access = self.access(operation);
        let result = self.registers.access(self.workload.key(key), access, None).await;
        let ended = self.registers.now();
        let outcome = outcome(operation, &result);
        let after = match &outcome {
            RegisterOutcome::Ok { found, .. } => Some(operation.result(*found)),
            _ => None,
        };
        open.end(ended, outcome);
        (Part { kind: planned.kind(), ended, result: result.map(drop) }, after)
    }

    fn access(&self, operation: RegisterOperation) -> Access {
        let value = |number: RegisterValue| number.map(|number| self.workload.value(number));
        match operation {
            RegisterOperation::Read => Access::Read,
            RegisterOperation::Write { value: new } => Access::Write(value(new)),
            RegisterOperation::Add { delta } => Access::Modify(Modification::add(delta)),
            RegisterOperation::CompareAndSwap { expected, new } => {
                let (expected, new) = (value(expected), value(new));
                Access::Modify(Modification::CompareAndSwap { expected, new })
            }
        }
    }
}

impl Failure for RegisterError {
    fn is_unknown(&self) -> bool {
        matches!(self, RegisterError::Unknown { .. } | RegisterError::Forgotten { .. })
    }
}

/// An operation that has not ended. If its client dies, its outcome is recorded as unknown.
struct Open<'a> {
    client: &'a RegisterClient,
    process: u64,
    planned: Planned,
    /// `None` if no history is kept, or the end is recorded.
    recorder: Option<&'a RegisterRecorder>,
}

impl Open<'_> {
    fn end(&mut self, at: Timestamp, outcome: RegisterOutcome) {
        let Some(recorder) = self.recorder.take() else { return };
        let (Planned { key, operation }, time_ns) = (self.planned, at.0 + self.client.epoch_ns);
        recorder.complete(self.process, time_ns, key, operation, outcome);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.recorder.is_some() {
            let now = self.client.registers.now();
            self.end(now, RegisterOutcome::Unknown("the client died".to_string()));
        }
    }
}

fn outcome(
    operation: RegisterOperation,
    result: &Result<Accessed, RegisterError>,
) -> RegisterOutcome {
    match result {
        Ok(Accessed { found, carstamp }) => {
            let found = if operation.finds() { found.as_ref() } else { None };
            match found.map(number).transpose() {
                Ok(found) => RegisterOutcome::Ok { found, version: Some(*carstamp) },
                Err(other) => RegisterOutcome::Unknown(format!(
                    "it found `{other}`, which is nothing that this workload writes"
                )),
            }
        }
        Err(error) if error.is_unknown() => RegisterOutcome::Unknown(error.to_string()),
        Err(error) => RegisterOutcome::Failed(error.to_string()),
    }
}

/// The number that a value stands for. The error is the value, if it stands for none.
fn number(value: &Value) -> Result<i64, &Value> {
    let text = core::str::from_utf8(value.as_bytes()).ok();
    text.and_then(|text| text.parse().ok()).ok_or(value)
}
