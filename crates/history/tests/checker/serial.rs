//! Random serial executions, in which the checker must find no violation.

use std::collections::BTreeMap;

use serried_history::{
    EventKind, History, MicroOperation, ReadResult, Recorder, check_process_ordered,
    check_serializable, check_strict_serializable,
};
use serried_model::Version;

use crate::support::{Random, pending, version};

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Lists,
    Registers,
    /// Registers whose read versions were not recorded, and whose values are unique.
    UniqueValues,
}

/// The store of a serial execution.
#[derive(Default)]
struct Store {
    lists: BTreeMap<u64, Vec<u64>>,
    registers: BTreeMap<u64, (Version, Option<u64>)>,
}

/// A transaction between its invoke and its completion.
struct Open {
    operations: Vec<MicroOperation>,
    executed: Option<(EventKind, Version, Vec<Version>)>,
}

pub(crate) struct Generator {
    pub(crate) random: Random,
    pub(crate) shape: Shape,
    pub(crate) transactions: u64,
    pub(crate) keys: u64,
    next_value: u64,
}

impl Generator {
    pub(crate) fn new(seed: u64, shape: Shape) -> Self {
        let mut random = Random::new(seed);
        let (transactions, keys) = (1 + random.below(24), 1 + random.below(5));
        Generator { random, shape, transactions, keys, next_value: 0 }
    }

    /// Runs the transactions one after the other, each at some instant between its invoke and its completion.
    /// Transactions of different processes overlap.
    pub(crate) fn history(mut self) -> History {
        let recorder = Recorder::with_capacity(2 * self.transactions as usize);
        let mut store = Store::default();
        let mut open: BTreeMap<u64, Open> = BTreeMap::new();
        let (mut begun, mut executed, mut time_ns, mut retired) = (0, 0, 0, 0);
        while begun < self.transactions || !open.is_empty() {
            time_ns += 1;
            let process = 5 * retired + self.random.below(5);
            let Some(current) = open.get_mut(&process) else {
                if begun < self.transactions {
                    begun += 1;
                    let operations = self.operations();
                    recorder.invoke(process, time_ns, operations.clone());
                    open.insert(process, Open { operations, executed: None });
                } else if open.keys().all(|&process| process / 5 != retired) {
                    retired += 1;
                }
                continue;
            };
            let Some((kind, at, read_versions)) = current.executed.take() else {
                executed += 1;
                let at = version(executed);
                let (kind, takes_effect) = match self.random.below(10) {
                    0 | 1 => (EventKind::Fail, false),
                    2 => (EventKind::Info, false),
                    3 => (EventKind::Info, true),
                    4 if self.random.one_in(4) => (EventKind::Invoke, false),
                    _ => (EventKind::Ok, true),
                };
                let read_versions = match takes_effect {
                    true => store.execute(&mut current.operations, at),
                    false => Vec::new(),
                };
                current.executed = Some((kind, at, read_versions));
                continue;
            };
            let Open { operations, .. } = open.remove(&process).expect("an open transaction");
            let (operations, read_versions) = match kind {
                EventKind::Invoke => continue,
                EventKind::Ok if self.shape == Shape::Registers => (operations, read_versions),
                EventKind::Ok => (operations, Vec::new()),
                EventKind::Info if self.random.one_in(2) => (Vec::new(), Vec::new()),
                EventKind::Info | EventKind::Fail => (pending(&operations), Vec::new()),
            };
            recorder.complete(process, time_ns, kind, operations, Some(at), read_versions, None);
        }
        recorder.into_history()
    }

    fn operations(&mut self) -> Vec<MicroOperation> {
        (0..1 + self.random.below(5)).map(|_| self.operation()).collect()
    }

    fn operation(&mut self) -> MicroOperation {
        let key = self.random.below(self.keys);
        if self.random.one_in(2) {
            return MicroOperation::Read { key, result: ReadResult::Pending };
        }
        self.next_value += 1;
        let value = self.next_value;
        match self.shape {
            Shape::Lists => MicroOperation::Append { key, element: value },
            Shape::Registers if self.random.one_in(5) => MicroOperation::Write { key, value: None },
            Shape::Registers => MicroOperation::Write { key, value: Some(value % 3) },
            Shape::UniqueValues => MicroOperation::Write { key, value: Some(value) },
        }
    }
}

impl Store {
    /// Executes a transaction, fills in the results of its reads, and returns the versions that they found.
    fn execute(&mut self, operations: &mut [MicroOperation], at: Version) -> Vec<Version> {
        let is_list = |lists: &BTreeMap<u64, Vec<u64>>| !lists.is_empty();
        let mut read_versions = Vec::new();
        for operation in operations {
            match operation {
                MicroOperation::Append { key, element } => {
                    self.lists.entry(*key).or_default().push(*element);
                }
                MicroOperation::Write { key, value } => {
                    self.registers.insert(*key, (at, *value));
                }
                MicroOperation::Read { key, result } => {
                    let (version, value) =
                        self.registers.get(key).copied().unwrap_or((Version::INITIAL, None));
                    read_versions.push(version);
                    *result = if is_list(&self.lists) {
                        ReadResult::List(self.lists.get(key).cloned().unwrap_or_default())
                    } else {
                        ReadResult::Register(value)
                    };
                }
            }
        }
        read_versions
    }
}

fn assert_all_accepted(shape: Shape) {
    for seed in 0..20_000 {
        let history = Generator::new(seed, shape).history();
        let checks = [check_serializable, check_process_ordered, check_strict_serializable];
        for verdict in checks.map(|check| check(&history)) {
            assert!(verdict.holds(), "seed {seed}: {verdict}");
        }
    }
}

#[test]
fn random_serial_histories_of_lists_are_accepted() {
    assert_all_accepted(Shape::Lists);
}

#[test]
fn random_serial_histories_of_registers_are_accepted() {
    assert_all_accepted(Shape::Registers);
}

#[test]
fn random_serial_histories_without_read_versions_are_accepted() {
    assert_all_accepted(Shape::UniqueValues);
}
