//! Collecting a history while a workload runs.

use std::io::Write;

use serried_model::Version;

use crate::log::{EventLog, Numbered};
use crate::{Event, EventKind, History, MicroOperation};

/// Records events from any number of threads, in the order in which they arrive.
///
/// Recording is one push under a lock. A transaction's `invoke` has to be recorded before its first
/// message is sent and its end after the outcome is known, so that the order of the events is an
/// order in which things can have happened.
#[derive(Debug, Default)]
pub struct Recorder {
    events: EventLog<Event>,
    /// Added to all times.
    epoch_ns: u64,
}

impl Numbered for Event {
    fn number(&mut self, index: u64) {
        self.index = index;
    }
}

impl Recorder {
    /// A recorder that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A recorder with room for this many events before it has to grow.
    pub fn with_capacity(events: usize) -> Self {
        Recorder { events: EventLog::with_capacity(events), epoch_ns: 0 }
    }

    /// A recorder that keeps nothing in memory: it writes each event to `out` as a line of JSON, in one
    /// piece, before the call that records it returns. So whoever outlives this process has its history
    /// up to its end, and every transaction that it may have begun is in it. Recording panics if `out`
    /// fails.
    pub fn writing_to(out: impl Write + Send + 'static) -> Self {
        Recorder { events: EventLog::writing_to(out), epoch_ns: 0 }
    }

    /// The same, but the instant that it is told as 0 is written down as `epoch_ns`, so that times can be
    /// compared with those of other processes.
    pub fn counting_from(self, epoch_ns: u64) -> Self {
        Recorder { epoch_ns, ..self }
    }

    /// Records that `process` has begun a transaction of these operations, their reads
    /// [`crate::ReadResult::Pending`]. The operations may be empty if the program decides them as it
    /// goes; but then an unknown outcome leaves the checker with little to say.
    pub fn invoke(&self, process: u64, time_ns: u64, operations: Vec<MicroOperation>) {
        self.events.push(Event {
            index: 0,
            kind: EventKind::Invoke,
            process,
            time_ns: self.epoch_ns + time_ns,
            operations,
            version: None,
            read_versions: Vec::new(),
            error: None,
        });
    }

    /// Records how the open transaction of `process` has ended.
    ///
    /// `read_versions` holds one entry per read in `operations`, or nothing.
    ///
    /// # Panics
    ///
    /// If `kind` is [`EventKind::Invoke`], which is no end.
    #[expect(clippy::too_many_arguments, reason = "the fields of one line of the history")]
    pub fn complete(
        &self,
        process: u64,
        time_ns: u64,
        kind: EventKind,
        operations: Vec<MicroOperation>,
        version: Option<Version>,
        read_versions: Vec<Version>,
        error: Option<String>,
    ) {
        assert!(kind != EventKind::Invoke, "a transaction of process {process} ends with `invoke`");
        self.events.push(Event {
            index: 0,
            kind,
            process,
            time_ns: self.epoch_ns + time_ns,
            operations,
            version,
            read_versions,
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

    /// What was recorded so far; nothing if it was written out.
    pub fn history(&self) -> History {
        History { events: self.events.kept() }
    }

    /// Everything that was recorded; nothing if it was written out.
    pub fn into_history(self) -> History {
        History { events: self.events.into_kept() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_numbered_in_the_order_of_their_arrival_whatever_the_thread() {
        let recorder = Recorder::new();
        std::thread::scope(|scope| {
            for process in 0..4 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for time_ns in 0..100 {
                        let operations = vec![MicroOperation::Append { key: 1, element: time_ns }];
                        recorder.invoke(process, time_ns, operations.clone());
                        let kind = EventKind::Ok;
                        recorder.complete(process, time_ns, kind, operations, None, vec![], None);
                    }
                });
            }
        });
        assert_eq!(recorder.len(), 800);
        let history = recorder.into_history();
        assert!(history.events.iter().enumerate().all(|(at, event)| event.index == at as u64));
    }

    #[test]
    fn what_is_written_out_is_there_when_the_call_returns() {
        let (mut file, out) = std::io::pipe().unwrap();
        let recorder = Recorder::writing_to(out).counting_from(500);
        let operations = vec![MicroOperation::Append { key: 1, element: 2 }];
        recorder.invoke(7, 1, operations);
        let mut line = [0; 200];
        let length = std::io::Read::read(&mut file, &mut line).unwrap();
        let history = History::read_json_lines(&line[..length]).unwrap();
        assert_eq!((history.events.len(), history.events[0].process), (1, 7));
        assert_eq!(history.events[0].time_ns, 501);
        assert_eq!(recorder.len(), 1);
        assert!(recorder.into_history().events.is_empty());
    }

    #[test]
    #[should_panic(expected = "ends with `invoke`")]
    fn a_transaction_cannot_end_by_beginning() {
        Recorder::new().complete(3, 0, EventKind::Invoke, vec![], None, vec![], None);
    }
}
