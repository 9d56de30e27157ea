//! Random serial histories in which one read is replaced by an older value than its transaction can have found.

use serried_history::{
    EventKind, History, MicroOperation, ReadResult, Verdict, ViolationKind, check_serializable_with,
};
use serried_model::Version;

use crate::serial::{Generator, Shape};
use crate::support::{REMEMBERING, Random};

/// The first operation on each key, if it is a read and the same transaction writes the key later.
fn updates(operations: &[MicroOperation]) -> Vec<usize> {
    let is_update = |at: &usize| {
        let key = operations[*at].key();
        let of_key = |operation: &&MicroOperation| operation.key() == key;
        let reads = operations.iter().filter(of_key).filter(|it| it.is_read()).count();
        operations[*at].is_read()
            && reads == 1
            && !operations[..*at].iter().any(|operation| operation.key() == key)
            && operations[*at..].iter().filter(of_key).count() > 1
    };
    (0..operations.len()).filter(is_update).collect()
}

fn committed(history: &History) -> impl Iterator<Item = (usize, &[MicroOperation])> {
    let events = history.events.iter().enumerate();
    events
        .filter(|(_, event)| event.kind == EventKind::Ok)
        .map(|(at, event)| (at, event.operations.as_slice()))
}

/// Hides the elements of the last transaction from a transaction that then appends after them. Another transaction must
/// have read those elements, because otherwise their order is not known.
fn make_a_list_read_older(history: &History, random: &mut Random) -> Option<History> {
    let mut candidates = Vec::new();
    for (event, operations) in committed(history) {
        for at in updates(operations) {
            let MicroOperation::Read { key, result: ReadResult::List(seen) } = &operations[at]
            else {
                continue;
            };
            let Some(last) = seen.last() else { continue };
            let Some((_, writer)) = committed(history).find(|(_, operations)| {
                operations.contains(&MicroOperation::Append { key: *key, element: *last })
            }) else {
                continue;
            };
            let read_elsewhere = committed(history).any(|(other, operations)| {
                other != event
                    && operations.iter().any(|operation| {
                        matches!(operation, MicroOperation::Read { key: read, result: ReadResult::List(list) }
                            if read == key && list.contains(last))
                    })
            });
            if !read_elsewhere {
                continue;
            }
            let mut older = seen.clone();
            older.retain(|&element| {
                !writer.contains(&MicroOperation::Append { key: *key, element })
            });
            candidates.push((
                event,
                at,
                MicroOperation::Read { key: *key, result: ReadResult::List(older) },
            ));
        }
    }
    if candidates.is_empty() {
        return None;
    }
    let (event, at, read) = candidates.swap_remove(random.below(candidates.len() as u64) as usize);
    let mut history = history.clone();
    history.events[event].operations[at] = read;
    Some(history)
}

/// Changes the read of a transaction that overwrites a committed value, as if the key had been absent before all
/// writes.
fn make_a_register_read_older(history: &History, random: &mut Random) -> Option<History> {
    let mut candidates = Vec::new();
    for (event, operations) in committed(history) {
        for at in updates(operations) {
            let read = operations[..at].iter().filter(|operation| operation.is_read()).count();
            let version = history.events[event].read_versions[read];
            let by_committed = history
                .events
                .iter()
                .any(|event| event.kind == EventKind::Ok && event.version == Some(version));
            if by_committed {
                candidates.push((event, at, read));
            }
        }
    }
    if candidates.is_empty() {
        return None;
    }
    let (event, at, read) = candidates.swap_remove(random.below(candidates.len() as u64) as usize);
    let mut history = history.clone();
    let event = &mut history.events[event];
    let key = event.operations[at].key();
    event.operations[at] = MicroOperation::Read { key, result: ReadResult::Register(None) };
    event.read_versions[read] = Version::INITIAL;
    Some(history)
}

fn assert_all_rejected(
    shape: Shape,
    mutate: fn(&History, &mut Random) -> Option<History>,
    allowed: &[ViolationKind],
) {
    let mut mutated = 0;
    for seed in 0..10_000 {
        let history = Generator::new(seed, shape).history();
        let Some(history) = mutate(&history, &mut Random::new(!seed)) else { continue };
        mutated += 1;
        match check_serializable_with(&history, &REMEMBERING) {
            Verdict::Violation(violation) => {
                assert!(allowed.contains(&violation.kind), "seed {seed}: {violation}");
                let mut expected = 0..violation.transactions.len();
                assert!(violation.conflicts.iter().all(|conflict| {
                    Some(conflict.from) == expected.next()
                        && conflict.to == expected.start % violation.transactions.len()
                }));
            }
            other => panic!("seed {seed}: {other}"),
        }
    }
    assert!(mutated > 2_000, "only {mutated} histories had a read to change");
}

#[test]
fn an_update_of_a_list_that_missed_a_committed_append_is_rejected() {
    let allowed = [ViolationKind::SingleAntiDependency];
    assert_all_rejected(Shape::Lists, make_a_list_read_older, &allowed);
}

#[test]
fn an_update_of_a_register_that_missed_every_write_is_rejected() {
    // The stale read closes a cycle with one anti-dependency; a smaller one may have more of them.
    let allowed = [ViolationKind::SingleAntiDependency, ViolationKind::AntiDependencyCycle];
    assert_all_rejected(Shape::Registers, make_a_register_read_older, &allowed);
}
