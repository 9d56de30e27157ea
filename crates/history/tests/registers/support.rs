//! Helpers to write histories of registers by hand.

use serried_history::{
    Budget, RegisterHistory, RegisterOperation, RegisterOutcome, RegisterRecorder, RegisterValue,
    RegisterVerdict, RegisterViolation, check_linearizable, check_regular_sequential,
};
use serried_model::{Carstamp, NodeId};

/// How an operation of a script ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Ok(RegisterValue),
    Fail,
    Unknown,
}

/// One operation of a script: its process, its times, its key, what it does, and how it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scripted {
    pub(crate) process: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) key: u64,
    pub(crate) operation: RegisterOperation,
    pub(crate) outcome: End,
    pub(crate) version: Option<Carstamp>,
}

impl Scripted {
    pub(crate) fn on(self, key: u64) -> Self {
        Scripted { key, ..self }
    }

    pub(crate) fn by(self, process: u64) -> Self {
        Scripted { process, ..self }
    }

    pub(crate) fn at(self, timestamp: u64, writer: u64, rmwc: u64) -> Self {
        let writer = NodeId(writer);
        Scripted { version: Some(Carstamp { timestamp, writer, rmwc }), ..self }
    }

    pub(crate) fn failed(self) -> Self {
        Scripted { outcome: End::Fail, ..self }
    }

    pub(crate) fn unknown(self) -> Self {
        Scripted { outcome: End::Unknown, ..self }
    }
}

fn scripted(begin: u64, end: u64, operation: RegisterOperation, found: RegisterValue) -> Scripted {
    let outcome = End::Ok(found);
    // By default, each process has only one operation.
    let process = begin << 20 | end;
    Scripted { process, begin, end, key: 1, operation, outcome, version: None }
}

pub(crate) fn read(begin: u64, end: u64, found: impl Into<RegisterValue>) -> Scripted {
    scripted(begin, end, RegisterOperation::Read, found.into())
}

pub(crate) fn write(begin: u64, end: u64, value: impl Into<RegisterValue>) -> Scripted {
    scripted(begin, end, RegisterOperation::Write { value: value.into() }, None)
}

pub(crate) fn cas(
    begin: u64,
    end: u64,
    expected: impl Into<RegisterValue>,
    new: i64,
    found: impl Into<RegisterValue>,
) -> Scripted {
    let (expected, new) = (expected.into(), Some(new));
    scripted(begin, end, RegisterOperation::CompareAndSwap { expected, new }, found.into())
}

pub(crate) fn add(begin: u64, end: u64, delta: i64, found: impl Into<RegisterValue>) -> Scripted {
    scripted(begin, end, RegisterOperation::Add { delta }, found.into())
}

/// The history of a script. Times are in microseconds. Beginnings come before ends of the same time.
pub(crate) fn history(script: impl IntoIterator<Item = Scripted>) -> RegisterHistory {
    let mut events: Vec<(u64, bool, usize, Scripted)> = Vec::new();
    for (at, scripted) in script.into_iter().enumerate() {
        events.push((scripted.begin, false, at, scripted));
        events.push((scripted.end, true, at, scripted));
    }
    events.sort_by_key(|&(time, end, at, _)| (time, end, at));
    let recorder = RegisterRecorder::with_capacity(events.len());
    for (time, end, _, Scripted { process, key, operation, outcome, version, .. }) in events {
        let time_ns = time * 1000;
        match (end, outcome) {
            (false, _) => recorder.invoke(process, time_ns, key, operation),
            (true, outcome) => {
                let outcome = match outcome {
                    End::Ok(found) => RegisterOutcome::Ok { found, version },
                    End::Fail => RegisterOutcome::Failed("refused".to_owned()),
                    End::Unknown => RegisterOutcome::Unknown("timed out".to_owned()),
                };
                recorder.complete(process, time_ns, key, operation, outcome);
            }
        }
    }
    recorder.into_history()
}

pub(crate) fn linearizable(script: impl IntoIterator<Item = Scripted>) -> RegisterVerdict {
    check_linearizable(&history(script), &Budget::default())
}

pub(crate) fn regular(script: impl IntoIterator<Item = Scripted>) -> RegisterVerdict {
    check_regular_sequential(&history(script), &Budget::default())
}

#[track_caller]
pub(crate) fn violation(verdict: RegisterVerdict) -> RegisterViolation {
    let RegisterVerdict::Violation(violation) = verdict else { panic!("accepted: {verdict}") };
    assert!(violation.minimal, "{violation}");
    *violation
}

/// Asserts that these operations violate linearizability, and that all of them are needed for it.
#[track_caller]
pub(crate) fn all_needed<const N: usize>(script: [Scripted; N]) -> RegisterViolation {
    let violation = violation(linearizable(script));
    assert_eq!(violation.operations.len(), N, "{violation}");
    violation
}

#[track_caller]
pub(crate) fn assert_accepted(verdict: RegisterVerdict) {
    assert!(verdict.holds(), "{verdict}");
}
