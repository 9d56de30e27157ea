//! Helpers to write histories by hand.

use serried_history::{
    Deletes, EventKind, History, MicroOperation, Options, ReadResult, Recorder, Verdict, Violation,
    ViolationKind, check_serializable, check_serializable_with,
};
use serried_model::{NodeId, Version};

/// Options for histories of a database that remembers deletes.
pub(crate) const REMEMBERING: Options =
    Options { initial_before: None, deletes: Deletes::Remembered };

pub(crate) fn append(key: u64, element: u64) -> MicroOperation {
    MicroOperation::Append { key, element }
}

pub(crate) fn list(key: u64, elements: &[u64]) -> MicroOperation {
    MicroOperation::Read { key, result: ReadResult::List(elements.to_vec()) }
}

pub(crate) fn write(key: u64, value: u64) -> MicroOperation {
    MicroOperation::Write { key, value: Some(value) }
}

pub(crate) fn delete(key: u64) -> MicroOperation {
    MicroOperation::Write { key, value: None }
}

pub(crate) fn found(key: u64, value: u64) -> MicroOperation {
    MicroOperation::Read { key, result: ReadResult::Register(Some(value)) }
}

pub(crate) fn absent(key: u64) -> MicroOperation {
    MicroOperation::Read { key, result: ReadResult::Register(None) }
}

/// The version of this time. `0` is the initial version.
pub(crate) fn version(time: u64) -> Version {
    Version { timestamp_us: time, coordinator: NodeId(if time == 0 { 0 } else { 1 << 16 }) }
}

pub(crate) fn versions(times: &[u64]) -> Vec<Version> {
    times.iter().copied().map(version).collect()
}

/// The operations as in an invoke: nothing has been read yet.
pub(crate) fn pending(operations: &[MicroOperation]) -> Vec<MicroOperation> {
    let hide = |operation: &MicroOperation| match operation {
        MicroOperation::Read { key, .. } => {
            MicroOperation::Read { key: *key, result: ReadResult::Pending }
        }
        other => other.clone(),
    };
    operations.iter().map(hide).collect()
}

/// How it ends, its operations, its version, and the versions that its reads found.
type Scripted = (EventKind, Vec<MicroOperation>, Option<Version>, Vec<Version>);

/// A history under construction. All its transactions overlap, each on a process of its own.
#[derive(Clone, Default)]
pub(crate) struct Script {
    transactions: Vec<Scripted>,
}

impl Script {
    /// A committed transaction without versions.
    pub(crate) fn ok(self, operations: impl Into<Vec<MicroOperation>>) -> Self {
        self.push(EventKind::Ok, operations.into(), None, vec![])
    }

    /// A committed transaction at a version, and the versions that its reads found.
    pub(crate) fn ok_at(
        self,
        time: u64,
        operations: impl Into<Vec<MicroOperation>>,
        read_times: &[u64],
    ) -> Self {
        self.push(EventKind::Ok, operations.into(), Some(version(time)), versions(read_times))
    }

    pub(crate) fn fail(self, operations: impl Into<Vec<MicroOperation>>) -> Self {
        self.push(EventKind::Fail, operations.into(), None, vec![])
    }

    pub(crate) fn fail_at(self, time: u64, operations: impl Into<Vec<MicroOperation>>) -> Self {
        self.push(EventKind::Fail, operations.into(), Some(version(time)), vec![])
    }

    pub(crate) fn info(self, operations: impl Into<Vec<MicroOperation>>) -> Self {
        self.push(EventKind::Info, operations.into(), None, vec![])
    }

    pub(crate) fn info_at(self, time: u64, operations: impl Into<Vec<MicroOperation>>) -> Self {
        self.push(EventKind::Info, operations.into(), Some(version(time)), vec![])
    }

    /// A transaction that never ended.
    pub(crate) fn open(self, operations: impl Into<Vec<MicroOperation>>) -> Self {
        self.push(EventKind::Invoke, operations.into(), None, vec![])
    }

    pub(crate) fn len(&self) -> usize {
        self.transactions.len()
    }

    pub(crate) fn history(self) -> History {
        let count = self.transactions.len() as u64;
        let spans: Vec<(u64, u64)> = (0..count).map(|begin| (begin, count + begin)).collect();
        self.history_at(&spans)
    }

    /// The history in which the transactions begin and end at these times, which must all differ.
    pub(crate) fn history_at(self, spans: &[(u64, u64)]) -> History {
        let processes: Vec<u64> = (0..spans.len() as u64).collect();
        self.record(spans, &processes)
    }

    /// The history in which these processes run the transactions, each after the one before has ended.
    pub(crate) fn history_of(self, processes: &[u64]) -> History {
        let count = processes.len() as u64;
        let spans: Vec<(u64, u64)> = (0..count).map(|at| (2 * at, 2 * at + 1)).collect();
        self.record(&spans, processes)
    }

    fn record(self, spans: &[(u64, u64)], processes: &[u64]) -> History {
        assert_eq!((spans.len(), processes.len()), (self.len(), self.len()));
        let mut times: Vec<(u64, usize, bool)> = Vec::with_capacity(2 * spans.len());
        for (at, &(begin, end)) in spans.iter().enumerate() {
            times.extend([(begin, at, true), (end, at, false)]);
        }
        times.sort_unstable();
        assert!(times.windows(2).all(|pair| pair[0].0 < pair[1].0), "two events at one time");
        let recorder = Recorder::with_capacity(times.len());
        for (time_ns, at, begins) in times {
            let process = processes[at];
            let (kind, operations, version, read_versions) = &self.transactions[at];
            if begins {
                recorder.invoke(process, time_ns, pending(operations));
                continue;
            }
            let operations = match kind {
                EventKind::Invoke => continue,
                EventKind::Ok => operations.clone(),
                EventKind::Fail | EventKind::Info => pending(operations),
            };
            let (version, read_versions) = (*version, read_versions.clone());
            recorder.complete(process, time_ns, *kind, operations, version, read_versions, None);
        }
        recorder.into_history()
    }

    pub(crate) fn verdict(self) -> Verdict {
        check_serializable(&through_json(self.history()))
    }

    pub(crate) fn verdict_with(self, options: Options) -> Verdict {
        check_serializable_with(&through_json(self.history()), &options)
    }

    #[track_caller]
    pub(crate) fn assert_serializable(self) {
        let verdict = self.verdict();
        assert!(verdict.holds(), "{verdict}");
    }

    #[track_caller]
    pub(crate) fn assert_unknown(self) -> String {
        match self.verdict() {
            Verdict::Unknown { reason } => reason,
            other => panic!("{other}"),
        }
    }

    /// Asserts that the history is rejected as this anomaly, with this many transactions involved.
    #[track_caller]
    pub(crate) fn assert_rejected(self, kind: ViolationKind, involved: usize) -> Violation {
        let violation = violation(self.verdict());
        assert_eq!((violation.kind, violation.transactions.len()), (kind, involved), "{violation}");
        violation
    }

    fn push(
        mut self,
        kind: EventKind,
        operations: Vec<MicroOperation>,
        version: Option<Version>,
        read_versions: Vec<Version>,
    ) -> Self {
        self.transactions.push((kind, operations, version, read_versions));
        self
    }
}

#[track_caller]
pub(crate) fn violation(verdict: Verdict) -> Violation {
    match verdict {
        Verdict::Violation(violation) => *violation,
        other => panic!("not rejected: {other}"),
    }
}

/// Asserts that writing and reading the history back does not change it.
#[track_caller]
pub(crate) fn through_json(history: History) -> History {
    let mut lines = Vec::new();
    history.write_json_lines(&mut lines).unwrap();
    let read = History::read_json_lines(lines.as_slice()).unwrap();
    assert_eq!(read, history);
    read
}

/// A small generator of pseudo-random numbers, the same ones for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 ^ (self.0 >> 33)) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
