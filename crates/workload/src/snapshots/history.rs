//! Histories of snapshots: whose write a versionstamp belongs to.

use std::collections::{BTreeMap, BTreeSet};

use serried_history::{Event, EventKind, History, MicroOperation, ReadResult};
use serried_model::{NodeId, Version, Versionstamp};

/// The version in a history of a write of `key` with this place. Without version clocks, writes of different keys may
/// have the same place.
pub fn placed(key: u64, stamp: Versionstamp) -> Version {
    match stamp {
        Versionstamp::ZERO => Version::INITIAL,
        stamp => Version { timestamp_us: 2 * stamp.0, coordinator: NodeId(key) },
    }
}

/// The version of a write that was omitted for the one with this place: it comes right before it.
pub(super) fn omitted_for(stamp: Versionstamp, process: u64) -> Version {
    Version { timestamp_us: 2 * stamp.0 - 1, coordinator: NodeId(process + 1) }
}

/// A write: its key, and its value if it is no delete.
type Written = (u64, Option<u64>);

/// Gives the writes of a history the versions that are known from reads alone: of a write whose outcome is unknown,
/// and of one that was reported as omitted, because it was sent again after it had taken effect and had been
/// overwritten. Values identify writes, except for deletes. If it is not clear whose a delete is, it becomes a
/// transaction of nobody, which only weakens what the history says.
pub fn attribute(mut history: History) -> History {
    let mut found: BTreeMap<Version, BTreeSet<Written>> = BTreeMap::new();
    let (mut owned, mut open): (BTreeSet<Version>, BTreeMap<Written, Vec<usize>>) =
        Default::default();
    // The writes that have begun, by process.
    let mut begun: BTreeMap<u64, (Written, usize)> = BTreeMap::new();
    for (at, event) in history.events.iter().enumerate() {
        let reads = event.operations.iter().filter(|operation| operation.is_read());
        for (read, version) in reads.zip(&event.read_versions) {
            if let MicroOperation::Read { key, result: ReadResult::Register(value) } = read
                && *version != Version::INITIAL
            {
                found.entry(*version).or_default().insert((*key, *value));
            }
        }
        let [MicroOperation::Write { key, value }] = event.operations[..] else { continue };
        if event.kind == EventKind::Invoke {
            begun.insert(event.process, ((key, value), at));
            continue;
        }
        begun.remove(&event.process);
        let is_placed = event.version.is_some_and(|version| version.timestamp_us % 2 == 0);
        match event.kind {
            EventKind::Ok if is_placed => owned.extend(event.version),
            EventKind::Ok | EventKind::Info => open.entry((key, value)).or_default().push(at),
            EventKind::Invoke | EventKind::Fail => {}
        }
    }
    // Nobody knows how those have ended that have no end.
    for (write, at) in begun.into_values() {
        open.entry(write).or_default().push(at);
    }
    let mut strangers = Vec::new();
    for (version, writes) in found {
        // If several keys have it, the checker finds out.
        let mut writes = writes.into_iter();
        let (Some(write), None) = (writes.next(), writes.next()) else { continue };
        if owned.contains(&version) {
            continue;
        }
        match open.get(&write).map(Vec::as_slice) {
            None => {}
            Some([at]) => history.events[*at].version = Some(version),
            Some(_) => strangers.push((version, write)),
        }
    }
    let process = history.events.iter().map(|event| event.process).max().unwrap_or(0) + 1;
    // They may have been at any time.
    let mut first = Vec::new();
    for (process, (version, (key, value))) in (process..).zip(strangers) {
        let event = |kind, version| Event {
            index: 0,
            kind,
            process,
            time_ns: 0,
            operations: vec![MicroOperation::Write { key, value }],
            version,
            read_versions: Vec::new(),
            error: None,
        };
        first.push(event(EventKind::Invoke, None));
        history.events.push(event(EventKind::Ok, Some(version)));
    }
    history.events.splice(..0, first);
    for (index, event) in (0..).zip(&mut history.events) {
        event.index = index;
    }
    history
}

#[cfg(test)]
mod tests {
    use serried_history::Recorder;

    use super::*;

    /// A write by a process, and what was found later.
    fn history(kind: EventKind, version: Option<Version>, writers: u64) -> History {
        let recorder = Recorder::new();
        let write = vec![MicroOperation::Write { key: 5, value: None }];
        for process in 0..writers {
            recorder.invoke(process, 0, write.clone());
            recorder.complete(process, 1, kind, write.clone(), version, vec![], None);
        }
        let read = vec![MicroOperation::Read { key: 5, result: ReadResult::Register(None) }];
        recorder.invoke(9, 2, read.clone());
        let found = vec![placed(5, Versionstamp(70))];
        recorder.complete(9, 3, EventKind::Ok, read, None, found, None);
        attribute(recorder.into_history())
    }

    #[test]
    fn a_version_that_was_found_is_that_of_the_only_write_that_can_have_it() {
        let version = placed(5, Versionstamp(70));
        let of = |history: &History| history.events[1].version;
        assert_eq!(of(&history(EventKind::Info, None, 1)), Some(version));
        let omitted = omitted_for(Versionstamp(90), 0);
        assert_eq!(of(&history(EventKind::Ok, Some(omitted), 1)), Some(version));
        let other = placed(5, Versionstamp(60));
        assert_eq!(of(&history(EventKind::Ok, Some(other), 1)), Some(other), "it has its own");
    }

    #[test]
    fn a_write_without_an_end_has_the_version_that_was_found() {
        let recorder = Recorder::new();
        recorder.invoke(1, 0, vec![MicroOperation::Write { key: 5, value: Some(3) }]);
        let read = vec![MicroOperation::Read { key: 5, result: ReadResult::Register(Some(3)) }];
        recorder.invoke(9, 2, read.clone());
        let version = placed(5, Versionstamp(70));
        recorder.complete(9, 3, EventKind::Ok, read, None, vec![version], None);
        let history = attribute(recorder.into_history());
        assert_eq!(history.events[0].version, Some(version));
    }

    #[test]
    fn a_delete_that_may_be_several_processes_is_nobodys() {
        let history = history(EventKind::Info, None, 2);
        assert_eq!((history.events[0].process, history.events[2].version), (10, None));
        let last = history.events.last().unwrap();
        assert_eq!((last.process, last.version), (10, Some(placed(5, Versionstamp(70)))));
        assert_eq!(last.index as usize, history.events.len() - 1);
    }
}
