//! Recording a history while a workload runs.

use std::io::Write;

use serried_model::Version;

use crate::log::{EventLog, Numbered};
use crate::{Event, EventKind, History, MicroOperation};

/// Records events from any number of threads, in the order in which they arrive.
///
/// Recording is one push under a lock. The caller must record a transaction's `invoke` before its first message is
/// sent, and its end after its outcome is known. Otherwise the order of events would not respect real time.
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
    /// An empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty recorder with room for this many events.
    pub fn with_capacity(events: usize) -> Self {
        Recorder { events: EventLog::with_capacity(events), epoch_ns: 0 }
    }

    /// A recorder that keeps nothing in memory. It writes each event to `out` as one line of JSON, before the call that
    /// records it returns. So if the process dies, its history is complete: it has every transaction that may have
    /// begun. Recording panics if `out` fails.
    pub fn writing_to(out: impl Write + Send + 'static) -> Self {
        Recorder { events: EventLog::writing_to(out), epoch_ns: 0 }
    }

    /// Adds `epoch_ns` to all times, so that they can be compared with the times of other processes.
    pub fn counting_from(self, epoch_ns: u64) -> Self {
        Recorder { epoch_ns, ..self }
    }

    /// Records that `process` has begun a transaction with these operations. Their reads are
    /// [`crate::ReadResult::Pending`]. `operations` may be empty if the program decides them while it runs. But then
    /// the checker can conclude little if the outcome is unknown.
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

    /// Records the end of the open transaction of `process`.
    ///
    /// `read_versions` has one entry per read in `operations`, or is empty.
    ///
    /// # Panics
    ///
    /// If `kind` is [`EventKind::Invoke`], which is not an end.
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

    /// The history so far. Empty if it is written to a stream.
    pub fn history(&self) -> History {
        History { events: self.events.kept() }
    }

    /// The history. Empty if it was written to a stream.
    pub fn into_history(self) -> History {
        History { events: self.events.into_kept() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_all_threads_are_numbered_in_order_of_arrival() {
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
    fn an_event_is_written_before_the_call_returns() {
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
