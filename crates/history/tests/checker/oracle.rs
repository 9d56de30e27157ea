//! Tiny histories without isolation. They are also judged by trying every serial order.

use std::collections::BTreeMap;

use serried_history::{
    EventKind, History, MicroOperation, ReadResult, Recorder, Verdict, ViolationKind,
    check_process_ordered_with, check_serializable_with, check_strict_serializable_with,
};
use serried_model::Version;

use crate::support::{REMEMBERING, Random, pending, version};

#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) process: u64,
    pub(crate) operations: Vec<MicroOperation>,
    pub(crate) version: Version,
    pub(crate) read_versions: Vec<Version>,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// If false, its outcome is unknown.
    pub(crate) committed: bool,
}

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

/// Transactions whose operations were executed in any order on one store. All committed, and all were open at the same
/// time.
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
        let begin = transactions.len() as u64;
        let (version, end) = (version(2 * begin + 1), count + begin);
        let (read_versions, committed) = (Vec::new(), true);
        transactions.push(Transaction {
            process: begin,
            operations,
            version,
            read_versions,
            begin,
            end,
            committed,
        });
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
        .any(|(done, transaction)| *done < transaction.operations.len())
    {
        if random.one_in(3) {
            current = random.below(count) as usize;
        }
        let transaction = &mut transactions[current];
        let Some(operation) = transaction.operations.get_mut(executed[current]) else {
            current = random.below(count) as usize;
            continue;
        };
        executed[current] += 1;
        if let Some((found, found_at)) = store.execute(operation, transaction.version, lists) {
            *operation = MicroOperation::Read { key: operation.key(), result: found };
            transaction.read_versions.push(found_at);
        }
    }
    transactions
}

/// As [`transactions`], with beginnings and ends in any order, and some of unknown outcome.
fn transactions_in_time(random: &mut Random, lists: bool) -> Vec<Transaction> {
    let mut transactions = transactions(random, lists);
    spread(random, &mut transactions);
    transactions
}

/// Makes transactions begin and end in any order, and some with an unknown outcome.
pub(crate) fn spread(random: &mut Random, transactions: &mut [Transaction]) {
    let mut times: Vec<u64> = (0..2 * transactions.len() as u64).collect();
    let mut time = || times.swap_remove(random.below(times.len() as u64) as usize);
    for transaction in transactions.iter_mut() {
        let (one, other) = (time(), time());
        (transaction.begin, transaction.end) = (one.min(other), one.max(other));
    }
    for transaction in transactions {
        transaction.committed = !random.one_in(6);
    }
}

/// What a serial order must respect besides the results of reads.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Order {
    Any,
    OfProcesses,
    OfTime,
}

/// Whether the rest can be executed on the store in some order in which every read finds what it found and no
/// register's version goes back. Transactions of unknown outcome may take no effect.
fn some_order_explains(store: &Store, rest: &[&Transaction], lists: bool, order: Order) -> bool {
    let may_be_first = |first: &Transaction| {
        let mut ended = rest.iter().filter(|other| other.committed && other.end < first.begin);
        match order {
            Order::Any => true,
            Order::OfProcesses => ended.all(|other| other.process != first.process),
            Order::OfTime => ended.next().is_none(),
        }
    };
    rest.iter().all(|transaction| !transaction.committed)
        || (0..rest.len()).filter(|&first| may_be_first(rest[first])).any(|first| {
            let mut store = store.clone();
            let Transaction { operations, version, read_versions, committed, .. } = rest[first];
            let mut read_versions = read_versions.iter();
            let explained = operations.iter().all(|operation| {
                if let MicroOperation::Write { key, .. } = operation
                    && store.registers.get(key).is_some_and(|(before, _)| before > version)
                {
                    return false;
                }
                match (store.execute(operation, *version, lists), operation) {
                    (Some((found, found_at)), MicroOperation::Read { result, .. }) => {
                        // If the value was not recorded, it is what the read found.
                        let is_value = found == *result
                            || found == ReadResult::Register(None) && found_at != Version::INITIAL;
                        !committed || is_value && read_versions.next() == Some(&found_at)
                    }
                    _ => true,
                }
            });
            let mut rest = rest.to_vec();
            rest.remove(first);
            explained && some_order_explains(&store, &rest, lists, order)
        })
}

pub(crate) fn history(transactions: &[Transaction], lists: bool) -> History {
    let mut events: Vec<(u64, usize, bool)> = Vec::new();
    for (at, Transaction { begin, end, .. }) in transactions.iter().enumerate() {
        events.extend([(*begin, at, true), (*end, at, false)]);
    }
    events.sort_unstable();
    let recorder = Recorder::new();
    for (time_ns, at, begins) in events {
        let transaction = &transactions[at];
        let process = transaction.process;
        if begins {
            recorder.invoke(process, time_ns, pending(&transaction.operations));
            continue;
        }
        let (kind, operations) = match transaction.committed {
            true => (EventKind::Ok, transaction.operations.clone()),
            false => (EventKind::Info, pending(&transaction.operations)),
        };
        let (at, read_versions) = match lists {
            true => (None, Vec::new()),
            false if transaction.committed => {
                (Some(transaction.version), transaction.read_versions.clone())
            }
            false => (Some(transaction.version), Vec::new()),
        };
        recorder.complete(process, time_ns, kind, operations, at, read_versions, None);
    }
    recorder.into_history()
}

fn assert_agreement(lists: bool) {
    let (mut accepted, mut rejected) = (0, 0);
    for seed in 0..30_000 {
        let transactions = transactions(&mut Random::new(seed), lists);
        let rest: Vec<&Transaction> = transactions.iter().collect();
        let expected = some_order_explains(&Store::default(), &rest, lists, Order::Any);
        let verdict = check_serializable_with(&history(&transactions, lists), &REMEMBERING);
        match (&verdict, expected) {
            (Verdict::Holds(_), true) => accepted += 1,
            (Verdict::Violation(_), false) => rejected += 1,
            _ => panic!(
                "seed {seed}: some order explains it: {expected}; {verdict}\n{transactions:#?}"
            ),
        }
    }
    assert!(accepted > 5_000 && rejected > 5_000, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn lists_are_judged_as_by_trying_all_orders() {
    assert_agreement(true);
}

#[test]
fn registers_are_judged_as_by_trying_all_orders() {
    assert_agreement(false);
}

fn assert_strict_agreement(lists: bool) {
    let (mut accepted, mut inverted, mut rejected) = (0, 0, 0);
    for seed in 0..30_000 {
        let transactions = transactions_in_time(&mut Random::new(seed), lists);
        let rest: Vec<&Transaction> = transactions.iter().collect();
        let explained = |order| some_order_explains(&Store::default(), &rest, lists, order);
        let verdict = check_strict_serializable_with(&history(&transactions, lists), &REMEMBERING);
        let kind = match &verdict {
            Verdict::Violation(violation) => Some(violation.kind),
            _ => None,
        };
        match (explained(Order::Any), explained(Order::OfTime)) {
            (true, true) if verdict.holds() => accepted += 1,
            (true, false) if kind == Some(ViolationKind::Inversion) => inverted += 1,
            (false, false) if kind.is_some_and(|kind| kind != ViolationKind::Inversion) => {
                rejected += 1;
            }
            expected => panic!(
                "seed {seed}: some order, one in time explains it: {expected:?}; {verdict}\n\
                 {transactions:#?}"
            ),
        }
    }
    let enough = accepted > 3_000 && inverted > 3_000 && rejected > 3_000;
    assert!(enough, "{accepted} accepted, {inverted} inverted, {rejected} rejected");
}

#[test]
fn lists_in_time_are_judged_as_by_trying_all_orders() {
    assert_strict_agreement(true);
}

#[test]
fn registers_in_time_are_judged_as_by_trying_all_orders() {
    assert_strict_agreement(false);
}

/// As [`transactions`], run by two processes, one after the other in any order, and some of unknown outcome.
fn transactions_of_processes(random: &mut Random, lists: bool) -> Vec<Transaction> {
    let mut transactions = transactions(random, lists);
    let mut places: Vec<u64> = (0..transactions.len() as u64).collect();
    for transaction in &mut transactions {
        let place = places.swap_remove(random.below(places.len() as u64) as usize);
        transaction.process = random.below(2);
        (transaction.begin, transaction.end) = (2 * place, 2 * place + 1);
        transaction.committed = !random.one_in(6);
    }
    transactions
}

fn assert_process_agreement(lists: bool) {
    let (mut accepted, mut contradicted, mut rejected, mut stale) = (0, 0, 0, 0);
    for seed in 0..30_000 {
        let transactions = transactions_of_processes(&mut Random::new(seed), lists);
        let rest: Vec<&Transaction> = transactions.iter().collect();
        let explained = |order| some_order_explains(&Store::default(), &rest, lists, order);
        let verdict = check_process_ordered_with(&history(&transactions, lists), &REMEMBERING);
        let kind = match &verdict {
            Verdict::Violation(violation) => Some(violation.kind),
            _ => None,
        };
        match (explained(Order::Any), explained(Order::OfProcesses)) {
            (true, true) if verdict.holds() => accepted += 1,
            (true, false) if kind == Some(ViolationKind::ProcessOrder) => contradicted += 1,
            (false, false) if kind.is_some_and(|kind| kind != ViolationKind::ProcessOrder) => {
                rejected += 1;
            }
            expected => panic!(
                "seed {seed}: some order, one of processes explains it: {expected:?}; {verdict}\n\
                 {transactions:#?}"
            ),
        }
        stale += u32::from(verdict.holds() && !explained(Order::OfTime));
    }
    let enough = accepted > 3_000 && contradicted > 3_000 && rejected > 3_000 && stale > 1_000;
    assert!(
        enough,
        "{accepted} accepted, {contradicted} contradicted, {rejected} rejected, {stale} stale"
    );
}

#[test]
fn lists_of_processes_are_judged_as_by_trying_all_orders() {
    assert_process_agreement(true);
}

#[test]
fn registers_of_processes_are_judged_as_by_trying_all_orders() {
    assert_process_agreement(false);
}

/// Transactions on registers. Those of unknown outcome are recorded without values, and at the version with which they
/// began, which may be earlier than the one at which they took effect.
fn moved_transactions(random: &mut Random) -> Vec<Transaction> {
    let mut transactions = transactions_in_time(random, false);
    for at in 0..transactions.len() {
        if transactions[at].committed && !random.one_in(4) {
            continue;
        }
        let unknown = &mut transactions[at];
        let (took_effect, earlier) = (unknown.version, unknown.version.timestamp_us / 2);
        unknown.committed = false;
        if earlier > 0 && !random.one_in(4) {
            unknown.version = version(2 + 2 * random.below(earlier));
        }
        for operation in &mut unknown.operations {
            if let MicroOperation::Write { value, .. } = operation {
                *value = None;
            }
        }
        transactions.iter_mut().for_each(|reader| reader.find_one_value_at(took_effect));
    }
    transactions
}

impl Transaction {
    /// Makes all reads of a version find the same value, so that its writer's first and last writes can't be
    /// distinguished.
    fn find_one_value_at(&mut self, version: Version) {
        let mut found_at = self.read_versions.iter();
        for operation in &mut self.operations {
            if let MicroOperation::Read { result, .. } = operation
                && found_at.next() == Some(&version)
            {
                *result = ReadResult::Register(Some(0));
            }
        }
    }
}

/// Whether some order explains the transactions after each of these versions was assigned to a different one of them,
/// whose first version was not read.
fn some_owners_explain(transactions: &[Transaction], nobodys: &[Version], order: Order) -> bool {
    let Some((&moved, rest)) = nobodys.split_first() else {
        let all: Vec<&Transaction> = transactions.iter().collect();
        return some_order_explains(&Store::default(), &all, false, order);
    };
    let was_read =
        |at: Version| transactions.iter().any(|it| it.committed && it.read_versions.contains(&at));
    (0..transactions.len()).any(|owner| {
        let Transaction { version: began, committed, .. } = transactions[owner];
        let mut owned = transactions.to_vec();
        owned[owner].version = moved;
        !committed && !was_read(began) && began < moved && some_owners_explain(&owned, rest, order)
    })
}

#[test]
fn moved_transactions_are_judged_as_by_trying_all_owners() {
    let (mut accepted, mut inverted, mut rejected, mut chosen) = (0, 0, 0, 0);
    for seed in 0..60_000 {
        let transactions = moved_transactions(&mut Random::new(seed));
        let mut nobodys: Vec<Version> = Vec::new();
        for transaction in transactions.iter().filter(|it| it.committed) {
            nobodys.extend(&transaction.read_versions);
        }
        nobodys.retain(|at| {
            *at != Version::INITIAL && transactions.iter().all(|it| it.version != *at)
        });
        nobodys.sort_unstable();
        nobodys.dedup();
        let verdict = check_strict_serializable_with(&history(&transactions, false), &REMEMBERING);
        let kind = match &verdict {
            Verdict::Violation(violation) => Some(violation.kind),
            _ => None,
        };
        let explained = |order| some_owners_explain(&transactions, &nobodys, order);
        match (explained(Order::Any), explained(Order::OfTime)) {
            (true, true) if verdict.holds() => accepted += 1,
            (true, false) if kind == Some(ViolationKind::Inversion) => inverted += 1,
            (false, false) if kind.is_some() => rejected += 1,
            expected => panic!(
                "seed {seed}: some order, one in time explains it: {expected:?}; {verdict}\n\
                 {transactions:#?}"
            ),
        }
        chosen += u32::from(!nobodys.is_empty() && verdict.holds());
    }
    let enough = accepted > 3_000 && inverted > 3_000 && rejected > 3_000 && chosen > 1_000;
    assert!(
        enough,
        "{accepted} accepted, {inverted} inverted, {rejected} rejected, {chosen} moved"
    );
}
