//! Recording a history of calls while a workload runs.

use std::io::Write;

use crate::log::{EventLog, Numbered};
use crate::{CallEvent, CallHistory, EventKind};

/// Records events from any number of threads, in the order in which they arrive.
///
/// Recording is one push under a lock. The caller must record a call's beginning before its first message is sent, and
/// its end after its outcome is known. Otherwise the order of events would not respect real time.
#[derive(Debug, Default)]
pub struct CallRecorder {
    events: EventLog<CallEvent>,
    /// Added to all times.
    epoch_ns: u64,
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallEnd {
    /// It took effect, and found these lists before its own appends.
    Done {
        /// The lists, and what was in each.
        reads: Vec<(u64, Vec<u64>)>,
    },
    /// A check of the procedure refused it, with this message. It took no effect.
    Refused(String),
    /// It did not take effect, and never will.
    Failed(String),
    /// It is not known whether it took effect or will take effect.
    Unknown(String),
}

impl Numbered for CallEvent {
    fn number(&mut self, index: u64) {
        self.index = index;
    }
}

impl CallRecorder {
    /// An empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty recorder with room for this many events.
    pub fn with_capacity(events: usize) -> Self {
        CallRecorder { events: EventLog::with_capacity(events), epoch_ns: 0 }
    }

    /// A recorder that keeps nothing in memory. It writes each event to `out` as one line of JSON, before the call that
    /// records it returns. Recording panics if `out` fails.
    pub fn writing_to(out: impl Write + Send + 'static) -> Self {
        CallRecorder { events: EventLog::writing_to(out), epoch_ns: 0 }
    }

    /// Adds `epoch_ns` to all times, so that they can be compared with the times of other processes.
    pub fn counting_from(self, epoch_ns: u64) -> Self {
        CallRecorder { epoch_ns, ..self }
    }

    /// Records that `process` has begun a call that appends these elements to these lists. The process must have no
    /// other open call.
    pub fn invoke(&self, process: u64, time_ns: u64, procedure: &str, appends: Vec<(u64, u64)>) {
        let time_ns = self.epoch_ns + time_ns;
        self.events.push(event(EventKind::Invoke, process, time_ns, procedure, appends));
    }

    /// Records the end of the open call of `process`.
    pub fn complete(
        &self,
        process: u64,
        time_ns: u64,
        procedure: &str,
        appends: Vec<(u64, u64)>,
        end: CallEnd,
    ) {
        let event = event(EventKind::Ok, process, self.epoch_ns + time_ns, procedure, appends);
        self.events.push(match end {
            CallEnd::Done { reads } => CallEvent { reads, ..event },
            CallEnd::Refused(why) => {
                CallEvent { kind: EventKind::Fail, refused: true, error: Some(why), ..event }
            }
            CallEnd::Failed(why) => CallEvent { kind: EventKind::Fail, error: Some(why), ..event },
            CallEnd::Unknown(why) => CallEvent { kind: EventKind::Info, error: Some(why), ..event },
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

    /// The history so far. Empty if it is written to a stream.
    pub fn history(&self) -> CallHistory {
        CallHistory { events: self.events.kept() }
    }

    /// The history. Empty if it was written to a stream.
    pub fn into_history(self) -> CallHistory {
        CallHistory { events: self.events.into_kept() }
    }
}

/// An event without reads.
fn event(
    kind: EventKind,
    process: u64,
    time_ns: u64,
    procedure: &str,
    appends: Vec<(u64, u64)>,
) -> CallEvent {
    CallEvent {
        index: 0,
        kind,
        process,
        time_ns,
        procedure: procedure.to_owned(),
        reads: Vec::new(),
        appends,
        refused: false,
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_the_same_whether_written_or_kept() {
        let (file, out) = std::io::pipe().unwrap();
        let (streaming, keeping) = (CallRecorder::writing_to(out), CallRecorder::new());
        for recorder in [&streaming, &keeping] {
            recorder.invoke(1, 10, "append", vec![(5, 1), (6, 1)]);
            recorder.invoke(2, 11, "read", Vec::new());
            recorder.invoke(3, 12, "append", vec![(5, 3)]);
            let reads = vec![(5, vec![9]), (6, Vec::new())];
            let done = CallEnd::Done { reads };
            recorder.complete(1, 12, "append", vec![(5, 1), (6, 1)], done);
            recorder.complete(2, 13, "read", Vec::new(), CallEnd::Refused("too low".to_owned()));
            let unknown = CallEnd::Unknown("timed out".to_owned());
            recorder.complete(3, 14, "append", vec![(5, 3)], unknown);
            assert_eq!(recorder.len(), 6);
        }
        assert!(streaming.into_history().events.is_empty());
        let read = CallHistory::read_json_lines(std::io::BufReader::new(file)).unwrap();
        assert_eq!(read, keeping.into_history());
        assert_eq!((read.events[4].index, read.events[4].refused), (4, true));
    }
}
