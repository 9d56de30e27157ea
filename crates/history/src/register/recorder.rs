//! Recording a history of registers while a workload runs.

use std::io::Write;

use crate::log::{EventLog, Numbered};
use serried_model::Carstamp;

use crate::{EventKind, RegisterEvent, RegisterHistory, RegisterOperation, RegisterValue};

/// Records events from any number of threads, in the order in which they arrive.
///
/// Recording is one push under a lock, without allocating. The caller must record an operation's beginning before its
/// first message is sent, and its end after its outcome is known. Otherwise the order of events would not respect real
/// time.
#[derive(Debug, Default)]
pub struct RegisterRecorder {
    events: EventLog<RegisterEvent>,
}

/// How an operation on a register ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterOutcome {
    /// It took effect, unless it is a compare-and-swap that found another value.
    Ok {
        /// The value before the operation. Not needed for a write.
        found: RegisterValue,
        /// The version that it wrote, or found if it wrote none. `None` if the database does not report it.
        version: Option<Carstamp>,
    },
    /// It did not take effect, and never will.
    Failed(String),
    /// It is not known whether it took effect or will take effect.
    Unknown(String),
}

impl Numbered for RegisterEvent {
    fn number(&mut self, index: u64) {
        self.index = index;
    }
}

impl RegisterRecorder {
    /// An empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty recorder with room for this many events.
    pub fn with_capacity(events: usize) -> Self {
        RegisterRecorder { events: EventLog::with_capacity(events) }
    }

    /// A recorder that keeps nothing in memory. It writes each event to `out` as one line of JSON, before the call that
    /// records it returns. Recording panics if `out` fails.
    pub fn writing_to(out: impl Write + Send + 'static) -> Self {
        RegisterRecorder { events: EventLog::writing_to(out) }
    }

    /// Records that `process` has begun an operation on `key`. The process must have no other open operation on the
    /// key.
    pub fn invoke(&self, process: u64, time_ns: u64, key: u64, operation: RegisterOperation) {
        self.events.push(RegisterEvent {
            index: 0,
            kind: EventKind::Invoke,
            process,
            time_ns,
            key,
            operation,
            found: None,
            version: None,
            error: None,
        });
    }

    /// Records the end of the open operation of `process` on `key`.
    pub fn complete(
        &self,
        process: u64,
        time_ns: u64,
        key: u64,
        operation: RegisterOperation,
        outcome: RegisterOutcome,
    ) {
        let (kind, found, version, error) = match outcome {
            RegisterOutcome::Ok { found, version } => {
                (EventKind::Ok, operation.finds().then_some(found), version, None)
            }
            RegisterOutcome::Failed(error) => (EventKind::Fail, None, None, Some(error)),
            RegisterOutcome::Unknown(error) => (EventKind::Info, None, None, Some(error)),
        };
        self.events.push(RegisterEvent {
            index: 0,
            kind,
            process,
            time_ns,
            key,
            operation,
            found,
            version,
            error,
        });
    }

    /// How many events have been recorded.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing has been recorded yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The history. Empty if it was written to a stream.
    pub fn into_history(self) -> RegisterHistory {
        RegisterHistory { events: self.events.into_kept() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_the_same_whether_written_or_kept() {
        let (file, out) = std::io::pipe().unwrap();
        let (streaming, keeping) = (RegisterRecorder::writing_to(out), RegisterRecorder::new());
        let operation = RegisterOperation::Add { delta: 2 };
        let version = Some(Carstamp { timestamp: 3, writer: serried_model::NodeId(1), rmwc: 1 });
        for recorder in [&streaming, &keeping] {
            recorder.invoke(7, 10, 5, operation);
            recorder.invoke(7, 11, 6, RegisterOperation::Read);
            let outcome = RegisterOutcome::Ok { found: Some(4), version };
            recorder.complete(7, 12, 5, operation, outcome);
            let outcome = RegisterOutcome::Unknown("timed out".to_owned());
            recorder.complete(7, 13, 6, RegisterOperation::Read, outcome);
            assert_eq!(recorder.len(), 4);
        }
        assert!(streaming.into_history().events.is_empty());
        let read = RegisterHistory::read_json_lines(std::io::BufReader::new(file)).unwrap();
        assert_eq!(read, keeping.into_history());
        assert_eq!(read.events[3].index, 3);
    }
}
