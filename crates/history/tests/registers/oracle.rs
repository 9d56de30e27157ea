//! Tiny histories, correct and incorrect. They are also judged by trying all orders.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_history::{
    Budget, EventKind, RegisterGuarantee, RegisterHistory, RegisterOperation, RegisterValue,
    RegisterVerdict, check_linearizable, check_regular_sequential,
};

use crate::support::{End, Scripted, history};

/// The shape of a test's histories.
#[derive(Clone, Copy)]
struct Shape {
    keys: u64,
    /// Whether every write and addition writes a unique value, as far as possible.
    unique: bool,
    /// Whether all operations are additions of 1 or reads.
    counters: bool,
    /// Whether a process has open operations on several keys.
    in_flight: bool,
}

fn operation(random: &mut Pcg64Mcg, shape: Shape, at: usize) -> RegisterOperation {
    let value = |random: &mut Pcg64Mcg| match random.random_range(0..5) {
        0 if !shape.unique => None,
        _ if shape.unique => Some(10 * (at as i64 + 1)),
        _ => Some(random.random_range(1..3)),
    };
    let choice = random.random_range(0..10);
    match choice {
        0..4 => RegisterOperation::Read,
        _ if shape.counters => RegisterOperation::Add { delta: 1 },
        4..7 => RegisterOperation::Write { value: value(random) },
        7..9 => {
            let expected = match random.random_range(0..3) {
                0 => None,
                _ if shape.unique => Some(10 * random.random_range(1..6)),
                _ => Some(random.random_range(1..3)),
            };
            RegisterOperation::CompareAndSwap { expected, new: value(random) }
        }
        _ => RegisterOperation::Add {
            delta: if shape.unique { 100 } else { random.random_range(-1..3) },
        },
    }
}

/// Operations, each of which took effect at one instant, between its beginning and its end or close to that.
fn script(random: &mut Pcg64Mcg, shape: Shape) -> Vec<Scripted> {
    let count = random.random_range(3..8);
    let slack = random.random_range(0..7) * random.random_range(0..6);
    let mut free_at: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut script = Vec::new();
    for at in 0..count {
        let key = random.random_range(0..shape.keys);
        let process = random.random_range(0..4);
        let lane = (process, if shape.in_flight { key } else { 0 });
        let free = free_at.entry(lane).or_insert(20);
        let begin = *free + random.random_range(0..6);
        let end = begin + random.random_range(0..10);
        *free = end + 1;
        let outcome = match random.random_range(0..12) {
            0 => End::Fail,
            1 | 2 => End::Unknown,
            _ => End::Ok(None),
        };
        let operation = operation(random, shape, at);
        script.push(Scripted { process, begin, end, key, operation, outcome, version: None });
    }
    let mut instants: Vec<(u64, usize)> = (0..script.len())
        .map(|at| {
            let Scripted { begin, end, outcome, .. } = script[at];
            let late = if outcome == End::Unknown { 12 } else { 0 };
            (random.random_range(begin.saturating_sub(slack)..=end + slack + late), at)
        })
        .collect();
    instants.sort_unstable();
    let mut registers: BTreeMap<u64, RegisterValue> = BTreeMap::new();
    for (_, at) in instants {
        let Scripted { key, operation, outcome, .. } = script[at];
        let register = registers.entry(key).or_default();
        let found = *register;
        match outcome {
            End::Fail => continue,
            End::Unknown if random.random_bool(0.5) => continue,
            End::Unknown => {}
            End::Ok(_) => script[at].outcome = End::Ok(found),
        }
        *register = operation.result(found);
        // Sometimes an update is lost.
        if random.random_range(0..12) == 0 {
            *register = found;
        }
    }
    script
}

/// An operation as the definition of a guarantee sees it.
struct Known {
    key: u64,
    process: u64,
    begin: usize,
    end: usize,
    operation: RegisterOperation,
    found: Option<RegisterValue>,
    optional: bool,
    /// Whether its end has been reached.
    ended: bool,
}

impl Known {
    fn writes(&self) -> bool {
        match (self.operation, self.found) {
            (RegisterOperation::Read, _) => false,
            (operation, Some(found)) => operation.result(found) != found,
            _ => true,
        }
    }
}

fn known(history: &RegisterHistory) -> Vec<Known> {
    let mut known: Vec<Known> = Vec::new();
    for (at, event) in history.events.iter().enumerate() {
        if event.kind == EventKind::Invoke {
            known.push(Known {
                key: event.key,
                process: event.process,
                begin: at,
                end: usize::MAX,
                operation: event.operation,
                found: None,
                optional: true,
                ended: false,
            });
            continue;
        }
        let open = known.iter().position(|known| {
            known.process == event.process && known.key == event.key && !known.ended
        });
        let open = open.unwrap();
        known[open].ended = true;
        match event.kind {
            EventKind::Ok => {
                (known[open].end, known[open].found) = (at, event.found);
                known[open].optional = false;
            }
            EventKind::Fail => drop(known.remove(open)),
            _ => {}
        }
    }
    known
}

fn precedes(guarantee: RegisterGuarantee, one: &Known, other: &Known) -> bool {
    one.end < other.begin
        && match guarantee {
            RegisterGuarantee::Linearizable => true,
            RegisterGuarantee::RegularSequential => {
                one.process == other.process || one.key == other.key && one.writes()
            }
        }
}

/// Whether the rest can follow in some order. `registers` have a value and the time at which its write began.
fn some_order(
    guarantee: RegisterGuarantee,
    known: &[Known],
    taken: u32,
    registers: &BTreeMap<u64, (RegisterValue, usize)>,
) -> bool {
    let missing = |at: usize| taken >> at & 1 == 0;
    if (0..known.len()).all(|at| !missing(at) || known[at].optional) {
        return true;
    }
    (0..known.len()).filter(|&at| missing(at)).any(|at| {
        let next = &known[at];
        let waits = (0..known.len())
            .any(|other| other != at && missing(other) && precedes(guarantee, &known[other], next));
        if waits {
            return false;
        }
        let (value, written_at) = registers.get(&next.key).copied().unwrap_or_default();
        if next.found.is_some_and(|found| found != value || written_at > next.end) {
            return false;
        }
        let result = next.operation.result(value);
        let mut registers = registers.clone();
        let leaves = matches!(next.operation, RegisterOperation::Write { .. }) || result != value;
        if leaves {
            registers.insert(next.key, (result, next.begin));
        }
        some_order(guarantee, known, taken | 1 << at, &registers)
    })
}

fn assert_agreement(guarantee: RegisterGuarantee, seeds: std::ops::Range<u64>, shape: Shape) {
    let (mut accepted, mut rejected) = (0, 0);
    for seed in seeds {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let script = script(&mut random, shape);
        let history = history(script.clone());
        let known = known(&history);
        let expected = some_order(guarantee, &known, 0, &BTreeMap::new());
        let verdict = match guarantee {
            RegisterGuarantee::Linearizable => check_linearizable(&history, &Budget::default()),
            RegisterGuarantee::RegularSequential => {
                check_regular_sequential(&history, &Budget::default())
            }
        };
        match (&verdict, expected) {
            (RegisterVerdict::Holds(_), true) => accepted += 1,
            (RegisterVerdict::Violation(violation), false) => {
                assert!(violation.minimal && !violation.operations.is_empty());
                rejected += 1;
            }
            _ => {
                for step in &script {
                    println!("{step:?}");
                }
                panic!("seed {seed}: some order explains it: {expected}; {verdict}")
            }
        }
    }
    assert!(accepted > 500 && rejected > 500, "{accepted} accepted, {rejected} rejected");
}

const UNIQUE: Shape = Shape { keys: 1, unique: true, counters: false, in_flight: false };
const REPEATED: Shape = Shape { unique: false, ..UNIQUE };
const COUNTER: Shape = Shape { counters: true, ..UNIQUE };

#[test]
fn unique_values_are_judged_as_by_trying_all_orders() {
    assert_agreement(RegisterGuarantee::Linearizable, 0..6_000, UNIQUE);
}

#[test]
fn repeated_values_are_judged_as_by_trying_all_orders() {
    assert_agreement(RegisterGuarantee::Linearizable, 10_000..16_000, REPEATED);
}

#[test]
fn counters_are_judged_as_by_trying_all_orders() {
    assert_agreement(RegisterGuarantee::Linearizable, 20_000..26_000, COUNTER);
}

#[test]
fn regular_sequential_unique_values_are_judged_as_by_all_orders() {
    let shape = Shape { keys: 2, ..UNIQUE };
    assert_agreement(RegisterGuarantee::RegularSequential, 30_000..36_000, shape);
    assert_agreement(RegisterGuarantee::RegularSequential, 36_000..40_000, UNIQUE);
}

#[test]
fn regular_sequential_repeated_values_are_judged_as_by_all_orders() {
    let shape = Shape { keys: 2, in_flight: true, ..REPEATED };
    assert_agreement(RegisterGuarantee::RegularSequential, 40_000..46_000, shape);
}

#[test]
fn regular_sequential_counters_are_judged_as_by_all_orders() {
    let shape = Shape { keys: 2, ..COUNTER };
    assert_agreement(RegisterGuarantee::RegularSequential, 50_000..56_000, shape);
}
