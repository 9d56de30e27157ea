//! Tiny histories without any isolation, judged also by trying every serial order.

use std::collections::BTreeMap;

use serried_history::{
    EventKind, History, MicroOperation, ReadResult, Recorder, Verdict, check_serializable,
};
use serried_model::Version;

use crate::support::{Random, pending, version};

type Transaction = (Vec<MicroOperation>, Version, Vec<Version>);

#[derive(Clone, Default)]
struct Store {
    lists: BTreeMap<u64, Vec<u64>>,
    registers: BTreeMap<u64, (Version, Option<u64>)>,
}

impl Store {
    /// Executes one operation, and returns what a read finds.
    fn execute(
        &mut self,
        operation: &MicroOperation,
        at: Version,
        lists: bool,
    ) -> Option<(ReadResult, Version)> {
        match *operation {
            MicroOperation::Append { key, element } => {
                self.lists.entry(key).or_default().push(element);
                None
            }
            MicroOperation::Write { key, value } => {
                self.registers.insert(key, (at, value));
                None
            }
            MicroOperation::Read { key, .. } if lists => {
                let found = self.lists.get(&key).cloned().unwrap_or_default();
                Some((ReadResult::List(found), Version::INITIAL))
            }
            MicroOperation::Read { key, .. } => {
                let (at, value) = self.registers.get(&key).copied().unwrap_or_default();
                Some((ReadResult::Register(value), at))
            }
        }
    }
}

/// Transactions whose operations were executed in any order on one store, all of them committed.
fn transactions(random: &mut Random, lists: bool) -> Vec<Transaction> {
    let (count, keys) = (2 + random.below(3), 1 + random.below(2));
    let mut transactions: Vec<Transaction> = Vec::new();
    let mut next_value = 0;
    for _ in 0..count {
        let mut operations = Vec::new();
        for _ in 0..1 + random.below(3) {
            let key = random.below(keys);
            next_value += 1;
            operations.push(match random.below(2) {
                0 => MicroOperation::Read { key, result: ReadResult::Pending },
                _ if lists => MicroOperation::Append { key, element: next_value },
                _ => MicroOperation::Write { key, value: Some(next_value) },
            });
        }
        let at = version(2 * transactions.len() as u64 + 1);
        transactions.push((operations, at, Vec::new()));
    }
    if random.one_in(2) {
        transactions.reverse();
    }
    let mut store = Store::default();
    let mut executed = vec![0; transactions.len()];
    let mut current = 0;
    while executed
        .iter()
        .zip(&transactions)
        .any(|(done, (operations, ..))| *done < operations.len())
    {
        if random.one_in(3) {
            current = random.below(count) as usize;
        }
        let (operations, at, read_versions) = &mut transactions[current];
        let Some(operation) = operations.get_mut(executed[current]) else {
            current = random.below(count) as usize;
            continue;
        };
        executed[current] += 1;
        if let Some((found, found_at)) = store.execute(operation, *at, lists) {
            *operation = MicroOperation::Read { key: operation.key(), result: found };
            read_versions.push(found_at);
        }
    }
    transactions
}

/// Whether the rest can follow on what the store holds, in some order in which every read finds what
/// it found and no register's version goes back.
fn some_order_explains(store: &Store, rest: &[&Transaction], lists: bool) -> bool {
    rest.is_empty()
        || (0..rest.len()).any(|first| {
            let mut store = store.clone();
            let (operations, at, read_versions) = rest[first];
            let mut read_versions = read_versions.iter();
            let explained = operations.iter().all(|operation| {
                if let MicroOperation::Write { key, .. } = operation
                    && store.registers.get(key).is_some_and(|(before, _)| before > at)
                {
                    return false;
                }
                match (store.execute(operation, *at, lists), operation) {
                    (Some((found, found_at)), MicroOperation::Read { result, .. }) => {
                        found == *result && read_versions.next() == Some(&found_at)
                    }
                    _ => true,
                }
            });
            let mut rest = rest.to_vec();
            rest.remove(first);
            explained && some_order_explains(&store, &rest, lists)
        })
}

fn history(transactions: &[Transaction], lists: bool) -> History {
    let recorder = Recorder::new();
    for (process, (operations, ..)) in (0..).zip(transactions) {
        recorder.invoke(process, process, pending(operations));
    }
    for (process, (operations, at, read_versions)) in (0..).zip(transactions) {
        let (at, read_versions) = match lists {
            true => (None, Vec::new()),
            false => (Some(*at), read_versions.clone()),
        };
        recorder.complete(process, 9, EventKind::Ok, operations.clone(), at, read_versions, None);
    }
    recorder.into_history()
}

fn assert_agreement(lists: bool) {
    let (mut accepted, mut rejected) = (0, 0);
    for seed in 0..30_000 {
        let transactions = transactions(&mut Random::new(seed), lists);
        let rest: Vec<&Transaction> = transactions.iter().collect();
        let expected = some_order_explains(&Store::default(), &rest, lists);
        let verdict = check_serializable(&history(&transactions, lists));
        match (&verdict, expected) {
            (Verdict::Serializable(_), true) => accepted += 1,
            (Verdict::Violation(_), false) => rejected += 1,
            _ => panic!(
                "seed {seed}: some order explains it: {expected}; {verdict}\n{transactions:#?}"
            ),
        }
    }
    assert!(accepted > 5_000 && rejected > 5_000, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn a_history_of_lists_is_accepted_if_and_only_if_some_serial_order_explains_it() {
    assert_agreement(true);
}

#[test]
fn a_history_of_registers_is_accepted_if_and_only_if_some_serial_order_explains_it() {
    assert_agreement(false);
}
