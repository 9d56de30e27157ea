//! Tiny histories of replicas, and of any reads at all. They are also judged by trying every order.

use serried_history::{
    Conflict, ConflictKind, MicroOperation, ReadResult, Verdict, Violation, ViolationKind, Witness,
    check_causal, check_causal_convergent, check_process_ordered,
};

use crate::replicas::{Planned, Wins, history, run};
use crate::support::Random;

/// Transactions of a few processes, of which each read found any write of its key.
fn transactions(random: &mut Random) -> Vec<Planned> {
    let (count, processes, keys) = (3 + random.below(5), 2 + random.below(2), 1 + random.below(3));
    let mut transactions: Vec<Planned> = Vec::new();
    for _ in 0..count {
        let mut some = || (0..keys).filter(|_| random.one_in(2)).collect::<Vec<u64>>();
        let (read, writes) = (some(), some());
        let reads: Vec<(u64, Option<usize>)> = read.into_iter().map(|key| (key, None)).collect();
        let is_empty = reads.is_empty() && writes.is_empty();
        // A transaction of unknown outcome without operations could have done anything.
        let (process, committed) = (random.below(processes), is_empty || !random.one_in(8));
        transactions.push(Planned { process, committed, reads, writes });
    }
    for at in 0..transactions.len() {
        for read in 0..transactions[at].reads.len() {
            let key = transactions[at].reads[read].0;
            let until = if random.one_in(8) { transactions.len() } else { at };
            let writers: Vec<usize> = (0..until)
                .filter(|&writer| writer != at && transactions[writer].writes.contains(&key))
                .collect();
            if !writers.is_empty() && !random.one_in(4) {
                let writer = writers[random.below(writers.len() as u64) as usize];
                transactions[at].reads[read].1 = Some(writer);
            }
        }
    }
    transactions
}

/// Transactions of a few replicas. Sometimes a read finds another write of its key.
fn transactions_of_replicas(random: &mut Random) -> Vec<Planned> {
    let sizes = [5 + random.below(4), 2 + random.below(2), 1 + random.below(3)];
    let wins = if random.one_in(2) { Wins::LastArrival } else { Wins::LastTime };
    let mut transactions = run(random, sizes, wins);
    let changed = random.below(4 * transactions.len() as u64) as usize;
    if changed < transactions.len() && !transactions[changed].reads.is_empty() {
        let key = transactions[changed].reads[0].0;
        let mut writers = (0..changed).filter(|&it| transactions[it].writes.contains(&key));
        transactions[changed].reads[0].1 = writers.nth(random.below(2) as usize);
    }
    transactions
}

/// One possible execution: those of the transactions that took effect, and which come before which in the causal order.
struct Case<'a> {
    transactions: &'a [Planned],
    included: Vec<bool>,
    before: Vec<Vec<bool>>,
}

impl Case<'_> {
    /// `None` if a transaction would have read from one without effect, or before itself.
    fn new(transactions: &[Planned], included: Vec<bool>) -> Option<Case<'_>> {
        let count = transactions.len();
        let mut before = vec![vec![false; count]; count];
        for (to, transaction) in transactions.iter().enumerate().filter(|(to, _)| included[*to]) {
            for (from, earlier) in transactions[..to].iter().enumerate() {
                before[from][to] = earlier.committed && earlier.process == transaction.process;
            }
            for (_, writer) in transaction.reads.iter().filter(|_| transaction.committed) {
                let Some(writer) = *writer else { continue };
                if !included[writer] {
                    return None;
                }
                before[writer][to] = true;
            }
        }
        for middle in 0..count {
            for from in 0..count {
                for to in 0..count {
                    before[from][to] |= before[from][middle] && before[middle][to];
                }
            }
        }
        let is_acyclic = (0..count).all(|it| !before[it][it]);
        is_acyclic.then_some(Case { transactions, included, before })
    }

    /// Those of `rest` that may come first.
    fn first_ones<'r>(&'r self, rest: &'r [usize]) -> impl Iterator<Item = usize> + 'r {
        let is_first = |it: &usize| rest.iter().all(|other| !self.before[*other][*it]);
        rest.iter().copied().filter(is_first)
    }

    /// Whether the rest can run in some order, after these writers of keys, so that all reads of a process have an
    /// explanation.
    fn has_view(&self, process: u64, rest: &[usize], keys: &[Option<usize>]) -> bool {
        rest.is_empty()
            || self.first_ones(rest).any(|first| {
                let Planned { process: of, committed, reads, writes } = &self.transactions[first];
                let is_explained =
                    |(key, writer): &(u64, Option<usize>)| keys[*key as usize] == *writer;
                if *of == process && *committed && !reads.iter().all(is_explained) {
                    return false;
                }
                let mut keys = keys.to_vec();
                writes.iter().for_each(|&key| keys[key as usize] = Some(first));
                let rest: Vec<usize> = rest.iter().copied().filter(|it| *it != first).collect();
                self.has_view(process, &rest, &keys)
            })
    }

    fn is_causal(&self) -> bool {
        (0..3).all(|process| {
            let takes_part = |it: &usize| {
                let Planned { process: of, committed, writes, .. } = &self.transactions[*it];
                self.included[*it] && (!writes.is_empty() || *committed && *of == process)
            };
            let all: Vec<usize> = (0..self.transactions.len()).filter(takes_part).collect();
            self.has_view(process, &all, &[None; 3])
        })
    }

    /// Whether the rest can be added to an order of writers, so that each read finds the last write that it has seen.
    fn has_one_order(&self, order: &[usize], rest: &[usize]) -> bool {
        if !rest.is_empty() {
            return self.first_ones(rest).any(|first| {
                let rest: Vec<usize> = rest.iter().copied().filter(|it| *it != first).collect();
                self.has_one_order(&[order, &[first]].concat(), &rest)
            });
        }
        self.transactions.iter().enumerate().filter(|(_, it)| it.committed).all(|(at, reader)| {
            reader.reads.iter().all(|(key, writer)| {
                let seen = |it: &&usize| {
                    self.before[**it][at] && self.transactions[**it].writes.contains(key)
                };
                order.iter().rev().find(seen) == writer.as_ref()
            })
        })
    }

    fn is_convergent(&self) -> bool {
        let writes = |it: &usize| self.included[*it] && !self.transactions[*it].writes.is_empty();
        let all: Vec<usize> = (0..self.transactions.len()).filter(writes).collect();
        self.has_one_order(&[], &all)
    }
}

/// All executions: transactions of unknown outcome may have taken effect or not.
fn cases(transactions: &[Planned]) -> Vec<Case<'_>> {
    let mut effects: Vec<Vec<bool>> = vec![Vec::new()];
    for transaction in transactions {
        let with = |included: bool| {
            effects.iter().map(move |before| [before.as_slice(), &[included]].concat())
        };
        effects = match transaction.committed {
            true => with(true).collect(),
            false => with(true).chain(with(false)).collect(),
        };
    }
    effects.into_iter().filter_map(|included| Case::new(transactions, included)).collect()
}

fn kind(verdict: &Verdict) -> Option<ViolationKind> {
    match verdict {
        Verdict::Violation(violation) => Some(violation.kind),
        _ => None,
    }
}

#[test]
fn causality_is_judged_as_by_trying_all_orders() {
    let (mut both, mut causal_only, mut convergent_only, mut neither) = (0, 0, 0, 0);
    let (mut stale, mut views, mut divergent, mut because, mut deep) = (0, 0, 0, 0, 0);
    for seed in 0..100_000 {
        let mut random = Random::new(seed);
        let transactions = match seed % 4 {
            0 => transactions(&mut random),
            _ => transactions_of_replicas(&mut random),
        };
        let history = history(&transactions, seed % 2 == 0);
        let (causal, convergent) = (check_causal(&history), check_causal_convergent(&history));
        let cases = cases(&transactions);
        let expected = (cases.iter().any(Case::is_causal), cases.iter().any(Case::is_convergent));
        assert!(
            (causal.holds(), convergent.holds()) == expected,
            "seed {seed}: causal, convergent: {expected:?}\n{causal}\n{convergent}\n{transactions:#?}"
        );
        *match expected {
            (true, true) => &mut both,
            (true, false) => &mut causal_only,
            (false, true) => &mut convergent_only,
            (false, false) => &mut neither,
        } += 1;
        for verdict in [&causal, &convergent] {
            if let Verdict::Violation(violation) = verdict {
                assert_proven(violation);
                because += u32::from(!violation.because.is_empty());
                deep += u32::from(violation.because.iter().any(|step| step.reader.is_some()));
            }
        }
        let is_stale = |verdict: &Verdict| {
            let kind = kind(verdict);
            kind == Some(ViolationKind::CausalOrder)
                || kind == Some(ViolationKind::CircularInformationFlow)
        };
        assert_eq!(is_stale(&causal), is_stale(&convergent), "seed {seed}");
        assert!(!is_stale(&causal) || causal == convergent, "seed {seed}");
        stale += u32::from(is_stale(&causal));
        views += u32::from(kind(&causal) == Some(ViolationKind::View));
        divergent += u32::from(kind(&convergent) == Some(ViolationKind::Convergence));
        if check_process_ordered(&history).holds() {
            assert_eq!(expected, (true, true), "seed {seed}");
        }
    }
    assert!(
        both > 10_000 && causal_only > 500 && convergent_only > 100 && neither > 10_000,
        "{both} both, {causal_only} causal, {convergent_only} convergent, {neither} neither"
    );
    assert!(
        stale > 10_000 && views > 300 && divergent > 500 && because > 5_000 && deep > 20,
        "{stale} stale, {views} views, {divergent} divergent, {because} with arguments, {deep} with their own"
    );
}

/// Checks every step of a violation against its transactions, and that the steps close a cycle. An arbitration must
/// follow from the steps before it.
pub(crate) fn assert_proven(violation: &Violation) {
    let transactions = &violation.transactions;
    let mut known = vec![vec![false; transactions.len()]; transactions.len()];
    let mut process_of_readers = None;
    for step in violation.because.iter().chain(&violation.conflicts) {
        let (from, to) = (&transactions[step.from], &transactions[step.to]);
        match step.kind {
            ConflictKind::ProcessOrder => {
                assert_eq!(from.process, to.process, "{violation}");
                assert!(from.kind.name() == "ok" && from.index < to.index, "{violation}");
            }
            ConflictKind::ReadDependency => assert!(reads(to, step, Some(from)), "{violation}"),
            ConflictKind::AntiDependency => {
                assert!(reads(from, step, None) && writes(to, step), "{violation}");
            }
            ConflictKind::Arbitration => {
                let at = step.reader.expect("an arbitration without its reader");
                let reader = &transactions[at];
                assert!(writes(from, step) && reads(reader, step, Some(to)), "{violation}");
                assert!(known[step.from][at], "{violation}");
                let process = *process_of_readers.get_or_insert(reader.process);
                let is_of_process =
                    violation.kind != ViolationKind::View || process == reader.process;
                assert!(is_of_process, "{violation}");
            }
            ConflictKind::WriteDependency => panic!("the order of versions matters: {violation}"),
        }
        assert_eq!(step.reader.is_some(), step.kind == ConflictKind::Arbitration);
        known[step.from][step.to] = true;
        for from in 0..transactions.len() {
            for to in 0..transactions.len() {
                known[from][to] |= (from == step.from || known[from][step.from])
                    && (to == step.to || known[step.to][to]);
            }
        }
        // Only the cycle itself closes a cycle.
        let is_last = violation.conflicts.last() == Some(step);
        assert!(is_last || !known[step.from][step.from], "{violation}");
    }
    let follows = |step: &&Conflict| {
        matches!(step.kind, ConflictKind::AntiDependency | ConflictKind::Arbitration)
    };
    // What a transaction has seen is what comes before it in the causal order. Only within a process's own order does
    // more follow.
    let in_cycle = violation.conflicts.iter().filter(follows);
    let in_arguments = violation.because.iter().filter(follows).count();
    match violation.kind {
        ViolationKind::CausalOrder => assert!(in_cycle.count() <= 1 && in_arguments == 0),
        ViolationKind::Convergence => {
            let mut kinds = in_cycle.map(|step| step.kind);
            assert!(kinds.all(|kind| kind == ConflictKind::Arbitration) && in_arguments == 0);
        }
        _ => {}
    }
    let ends = violation.conflicts.iter().map(|step| (step.from, step.to));
    let count = violation.conflicts.len();
    assert!(ends.eq((0..count).map(|at| (at, (at + 1) % count))), "{violation}");
}

/// The value that a step's transaction wrote to its key. `Some(None)` if it deleted the key.
fn written(transaction: &Witness, step: &Conflict) -> Option<Option<u64>> {
    transaction.operations.iter().find_map(|operation| match *operation {
        MicroOperation::Write { key, value } if Some(key) == step.key => Some(value),
        _ => None,
    })
}

fn writes(transaction: &Witness, step: &Conflict) -> bool {
    written(transaction, step).is_some()
}

/// Whether a step's transaction found in its key what this one wrote, or nothing.
fn reads(transaction: &Witness, step: &Conflict, writer: Option<&Witness>) -> bool {
    let found = writer.map_or(Some(None), |writer| written(writer, step));
    transaction.operations.iter().any(|operation| match operation {
        MicroOperation::Read { key, result: ReadResult::Register(value) } => {
            Some(*key) == step.key && Some(*value) == found
        }
        _ => false,
    })
}
