//! Histories of snapshots: whose write a versionstamp belongs to.

use std::collections::{BTreeMap, BTreeSet};

use serried_history::{Event, EventKind, History, MicroOperation, ReadResult};
use serried_model::Version;

use super::versions::is_placed;

/// A write: its key, and its value if it is no delete.
type Written = (u64, Option<u64>);

/// Gives the writes of a history the versions that are known from reads alone: of those whose outcome is unknown, and
/// of those that were reported as omitted, because they were sent again after they had taken effect and had been
/// overwritten. A version belongs to a transaction if no other one can have left all that was found with it, and each
/// transaction has one version at most. Values identify transactions, and deletes do not. If it is not clear whose a
/// version is, what was found becomes the writes of a transaction of nobody, which only weakens what the history says.
pub fn attribute(mut history: History) -> History {
    let mut versions = nobodys(&history, &Open::of(&history));
    for (version, at) in settle(&mut versions) {
        history.events[at].version = Some(version);
    }
    let strangers = versions.into_iter().filter(|nobodys| nobodys.candidates.len() > 1);
    add_strangers(&mut history, strangers);
    history
}

/// Adds the writes to a history that were made before it, as far as they were read. Each is a transaction of a process
/// of its own. Their versions are in `before`, by key. A write of the history may have been omitted for one of them, so
/// they are not what was there in the beginning.
pub fn begin_after(history: &mut History, before: &BTreeMap<u64, Version>) {
    let mut found: BTreeMap<Written, Version> = BTreeMap::new();
    for event in &history.events {
        let reads = event.operations.iter().filter(|operation| operation.is_read());
        for (read, version) in reads.zip(&event.read_versions) {
            if let MicroOperation::Read { key, result: ReadResult::Register(value) } = read
                && *version != Version::INITIAL
                && before.get(key) == Some(version)
            {
                found.insert((*key, *value), *version);
            }
        }
    }
    let mut first = Vec::new();
    for (process, (write, version)) in (unused_process(history)..).zip(found) {
        let write = [write].into();
        first.push(of_nobody(process, &write, EventKind::Invoke, None));
        first.push(of_nobody(process, &write, EventKind::Ok, Some(version)));
    }
    put_first(history, first);
}

/// The transactions whose version is not known, by what they write. An event stands for each: its end, or its beginning
/// if it has no end.
#[derive(Default)]
struct Open(BTreeMap<Written, BTreeSet<usize>>);

impl Open {
    fn of(history: &History) -> Open {
        let mut open = Open::default();
        // The transactions that have begun, by process.
        let mut begun: BTreeMap<u64, (Vec<Written>, usize)> = BTreeMap::new();
        for (at, event) in history.events.iter().enumerate() {
            let Some(writes) = writes(event) else { continue };
            match event.kind {
                EventKind::Invoke => {
                    begun.insert(event.process, (writes, at));
                    continue;
                }
                EventKind::Ok if event.version.is_some_and(is_placed) => {}
                EventKind::Ok | EventKind::Info => open.add(writes, at),
                EventKind::Fail => {}
            }
            begun.remove(&event.process);
        }
        // Nobody knows how those have ended that have no end.
        begun.into_values().for_each(|(writes, at)| open.add(writes, at));
        open
    }

    fn add(&mut self, writes: Vec<Written>, at: usize) {
        for write in writes {
            self.0.entry(write).or_default().insert(at);
        }
    }

    /// Those that have made all these writes.
    fn all_of(&self, found: &BTreeSet<Written>) -> BTreeSet<usize> {
        let of = |write: &Written| self.0.get(write).cloned().unwrap_or_default();
        let all = found.iter().map(of).reduce(|all, next| &all & &next);
        all.unwrap_or_default()
    }
}

/// What an event writes. `None` if it is not that of a write or a write transaction.
fn writes(event: &Event) -> Option<Vec<Written>> {
    let write = |operation: &MicroOperation| match operation {
        MicroOperation::Write { key, value } => Some((*key, *value)),
        _ => None,
    };
    let writes: Option<Vec<Written>> = event.operations.iter().map(write).collect();
    writes.filter(|writes| !writes.is_empty())
}

/// A version that was read, and that no transaction is known to have.
struct Nobodys {
    version: Version,
    found: BTreeSet<Written>,
    candidates: BTreeSet<usize>,
}

/// All of them, in their order.
fn nobodys(history: &History, open: &Open) -> Vec<Nobodys> {
    let mut found: BTreeMap<Version, BTreeSet<Written>> = BTreeMap::new();
    let mut owned: BTreeSet<Version> = BTreeSet::new();
    for event in &history.events {
        let reads = event.operations.iter().filter(|operation| operation.is_read());
        for (read, version) in reads.zip(&event.read_versions) {
            if let MicroOperation::Read { key, result: ReadResult::Register(value) } = read
                && *version != Version::INITIAL
            {
                found.entry(*version).or_default().insert((*key, *value));
            }
        }
        if event.kind == EventKind::Ok && writes(event).is_some() {
            owned.extend(event.version.filter(|version| is_placed(*version)));
        }
    }
    let nobodys = found.into_iter().filter(|(version, _)| !owned.contains(version));
    let with_candidates = |(version, found)| {
        let candidates = open.all_of(&found);
        Nobodys { version, found, candidates }
    };
    nobodys.map(with_candidates).collect()
}

/// Removes and returns the versions that can belong to one transaction only, with the transaction. As each has one
/// version at most, it is no candidate for others any more. If it was the only one for another version, then that
/// version stays nobody's, and the checker finds out.
fn settle(versions: &mut Vec<Nobodys>) -> Vec<(Version, usize)> {
    let mut settled = Vec::new();
    while let Some(place) = versions.iter().position(|nobodys| nobodys.candidates.len() == 1) {
        let nobodys = versions.remove(place);
        let at = *nobodys.candidates.first().expect("there is one");
        for other in versions.iter_mut() {
            other.candidates.remove(&at);
        }
        settled.push((nobodys.version, at));
    }
    settled
}

/// Adds transactions of nobody, which may have been at any time.
fn add_strangers(history: &mut History, strangers: impl Iterator<Item = Nobodys>) {
    let mut first = Vec::new();
    for (process, Nobodys { version, found, .. }) in (unused_process(history)..).zip(strangers) {
        first.push(of_nobody(process, &found, EventKind::Invoke, None));
        history.events.push(of_nobody(process, &found, EventKind::Ok, Some(version)));
    }
    put_first(history, first);
}

/// The first of the processes that a history does not have.
fn unused_process(history: &History) -> u64 {
    history.events.iter().map(|event| event.process).max().unwrap_or(0) + 1
}

/// An event of a write transaction that was not recorded.
fn of_nobody(
    process: u64,
    writes: &BTreeSet<Written>,
    kind: EventKind,
    version: Option<Version>,
) -> Event {
    let write = |&(key, value): &Written| MicroOperation::Write { key, value };
    Event {
        index: 0,
        kind,
        process,
        time_ns: 0,
        operations: writes.iter().map(write).collect(),
        version,
        read_versions: Vec::new(),
        error: None,
    }
}

/// Puts events before all others, and numbers all of them anew.
fn put_first(history: &mut History, events: Vec<Event>) {
    history.events.splice(..0, events);
    for (index, event) in (0..).zip(&mut history.events) {
        event.index = index;
    }
}

#[cfg(test)]
mod tests {
    use serried_history::Recorder;
    use serried_model::Versionstamp;

    use super::super::versions::{Versions, omitted_for};
    use super::*;

    /// The version of single writes of key 5, at a place.
    fn placed(stamp: u64) -> Version {
        Versions::OfWrites.placed(5, Versionstamp(stamp))
    }

    /// That of write transactions.
    fn together(stamp: u64) -> Version {
        Versions::OfTransactions.placed(0, Versionstamp(stamp))
    }

    fn operations(writes: &[Written]) -> Vec<MicroOperation> {
        writes.iter().map(|&(key, value)| MicroOperation::Write { key, value }).collect()
    }

    /// A process per write transaction of unknown outcome, and then reads that found these versions.
    fn unknown(writers: &[&[Written]], reads: &[(Written, Version)]) -> History {
        let recorder = Recorder::new();
        for (process, writes) in (0..).zip(writers) {
            let (writes, unknown) = (operations(writes), EventKind::Info);
            recorder.invoke(process, 0, writes.clone());
            recorder.complete(process, 1, unknown, writes, None, vec![], None);
        }
        for ((key, value), version) in reads {
            let result = ReadResult::Register(*value);
            let read = vec![MicroOperation::Read { key: *key, result }];
            recorder.invoke(90, 2, read.clone());
            recorder.complete(90, 3, EventKind::Ok, read, None, vec![*version], None);
        }
        attribute(recorder.into_history())
    }

    /// The versions of the writers of [`unknown`].
    fn versions(history: &History, writers: u64) -> Vec<Option<Version>> {
        let of = |process| {
            let mut ends = history.events.iter().filter(|event| event.kind == EventKind::Info);
            ends.find(|event| event.process == process).expect("it has an end").version
        };
        (0..writers).map(of).collect()
    }

    /// A write by a process, and what was found later.
    fn history(kind: EventKind, version: Option<Version>, writers: u64) -> History {
        let recorder = Recorder::new();
        let write = operations(&[(5, None)]);
        for process in 0..writers {
            recorder.invoke(process, 0, write.clone());
            recorder.complete(process, 1, kind, write.clone(), version, vec![], None);
        }
        let read = vec![MicroOperation::Read { key: 5, result: ReadResult::Register(None) }];
        recorder.invoke(9, 2, read.clone());
        recorder.complete(9, 3, EventKind::Ok, read, None, vec![placed(70)], None);
        attribute(recorder.into_history())
    }

    #[test]
    fn a_version_that_was_found_is_that_of_the_only_write_that_can_have_it() {
        let version = placed(70);
        let of = |history: &History| history.events[1].version;
        assert_eq!(of(&history(EventKind::Info, None, 1)), Some(version));
        let omitted = omitted_for(Versionstamp(90), 0);
        assert_eq!(of(&history(EventKind::Ok, Some(omitted), 1)), Some(version));
        let other = placed(60);
        assert_eq!(of(&history(EventKind::Ok, Some(other), 1)), Some(other), "it has its own");
    }

    #[test]
    fn a_write_without_an_end_has_the_version_that_was_found() {
        let recorder = Recorder::new();
        recorder.invoke(1, 0, operations(&[(5, Some(3)), (6, None)]));
        let read = vec![MicroOperation::Read { key: 5, result: ReadResult::Register(Some(3)) }];
        recorder.invoke(9, 2, read.clone());
        recorder.complete(9, 3, EventKind::Ok, read, None, vec![placed(70)], None);
        let history = attribute(recorder.into_history());
        assert_eq!(history.events[0].version, Some(placed(70)));
    }

    #[test]
    fn a_delete_that_may_be_several_processes_is_nobodys() {
        let history = history(EventKind::Info, None, 2);
        assert_eq!((history.events[0].process, history.events[2].version), (10, None));
        let last = history.events.last().unwrap();
        assert_eq!((last.process, last.version), (10, Some(placed(70))));
        assert_eq!(last.index as usize, history.events.len() - 1);
    }

    #[test]
    fn a_write_transaction_has_the_version_that_was_found_in_any_of_its_keys() {
        let writer: &[Written] = &[(5, Some(3)), (6, Some(3)), (7, None)];
        for read in [(5, Some(3)), (6, Some(3)), (7, None)] {
            let history = unknown(&[writer], &[(read, together(70))]);
            assert_eq!(versions(&history, 1), [Some(together(70))], "{read:?}");
            assert_eq!(history.events.len(), 4, "nobody else has written");
        }
    }

    #[test]
    fn what_else_was_found_at_a_version_tells_whose_a_delete_is() {
        let writers: [&[Written]; 2] = [&[(5, None), (6, Some(3))], &[(5, None), (6, Some(4))]];
        let reads = [((5, None), together(70)), ((6, Some(4)), together(70))];
        assert_eq!(versions(&unknown(&writers, &reads), 2), [None, Some(together(70))]);
    }

    #[test]
    fn a_transaction_has_one_version_so_that_another_one_is_not_its() {
        let writers: [&[Written]; 2] = [&[(5, None)], &[(5, None), (6, Some(3))]];
        let reads = [((5, None), together(60)), ((6, Some(3)), together(70))];
        let history = unknown(&writers, &reads);
        assert_eq!(versions(&history, 2), [Some(together(60)), Some(together(70))]);
    }

    #[test]
    fn a_version_of_which_only_ambiguous_deletes_were_found_is_that_of_a_transaction_of_nobody() {
        let writers: [&[Written]; 2] =
            [&[(5, None), (6, None)], &[(5, None), (6, None), (7, None)]];
        let reads = [((5, None), together(70)), ((6, None), together(70))];
        let history = unknown(&writers, &reads);
        assert_eq!(versions(&history, 2), [None, None]);
        let last = history.events.last().unwrap();
        assert_eq!((last.process, last.version), (91, Some(together(70))));
        assert_eq!(last.operations, operations(&[(5, None), (6, None)]));
    }

    #[test]
    fn a_version_with_writes_that_no_transaction_has_made_together_stays_nobodys() {
        let writers: [&[Written]; 2] = [&[(5, Some(3))], &[(6, Some(4))]];
        let reads = [((5, Some(3)), together(70)), ((6, Some(4)), together(70))];
        let history = unknown(&writers, &reads);
        assert_eq!(versions(&history, 2), [None, None]);
        assert_eq!(history.events.len(), 8, "and no transaction of nobody explains it");
    }

    #[test]
    fn what_was_written_before_a_history_is_not_that_of_its_transactions() {
        let read = |key| MicroOperation::Read { key, result: ReadResult::Register(None) };
        let recorder = Recorder::new();
        let (reads, delete) = (vec![read(5), read(6), read(5)], operations(&[(5, None)]));
        recorder.invoke(1, 0, delete.clone());
        recorder.complete(1, 1, EventKind::Info, delete, None, vec![], None);
        recorder.invoke(9, 2, reads.clone());
        let found = vec![together(70), together(70), together(80)];
        recorder.complete(9, 3, EventKind::Ok, reads, None, found, None);
        let mut history = recorder.into_history();
        begin_after(&mut history, &[(5, together(70)), (6, together(60))].into());
        let written: Vec<_> = history.events[..2].iter().map(|event| event.version).collect();
        assert_eq!(written, [None, Some(together(70))]);
        assert_eq!(history.events[1].operations, operations(&[(5, None)]));
        assert_eq!((history.events.len(), history.events[2].index), (6, 2));
        assert_eq!(attribute(history).events[3].version, Some(together(80)));
    }

    #[test]
    fn a_write_that_was_found_at_two_versions_has_only_one() {
        let reads = [((5, Some(3)), together(60)), ((5, Some(3)), together(70))];
        let history = unknown(&[&[(5, Some(3))]], &reads);
        assert_eq!(versions(&history, 1), [Some(together(60))]);
        assert_eq!(history.events.len(), 6);
    }
}
