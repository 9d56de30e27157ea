//! Transactions of reads, writes, deletes and modifications of all kinds, for protocols whose serial order is that of the
//! versions.
//!
//! No history of reads and writes says what a modification has written. So this executes all that has committed once more, in
//! the order of the versions, and compares what each transaction has read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_actor::Timestamp;
use serried_history::{Event, EventKind, History, MicroOperation, ReadResult};
use serried_model::{Change, Key, Modification, NodeId, Value, Version};
use serried_protocols::morty::{Crowds, Options};
use serried_session::{Transaction, TransactionKeyspace};
use serried_workload::{Plan, Run, Workload};

/// Morty, or MVTSO without re-execution, in which few modifications of a key make it crowded.
pub(crate) fn crowded(re_execution: bool) -> Options {
    let crowds = Crowds { many: 2, most: 5 };
    Options { re_execution, provisional_votes: re_execution, crowds, ..Options::default() }
}

variant!(CrowdedMorty, "keys are crowded soon", crowded(true), crowded(true));
variant!(CrowdedMvtso, "keys are crowded soon", crowded(false), crowded(false));

/// One to four operations on a few keys, of which some are seldom touched.
pub(crate) struct Mixed {
    pub(crate) keys: u64,
}

/// What clocks that are right show at the beginning.
const START_US: u64 = 1_700_000_000_000_000;

/// How many keys are seldom touched.
const SELDOM: u64 = 24;

fn name(key: u64) -> Key {
    Key::from(key.to_be_bytes())
}

/// What a number in a history does to its key.
enum Done {
    Put(Option<Value>),
    Modify(Modification),
}

fn done(number: u64) -> Done {
    let (kind, parameter) = (number % 12, number / 12);
    let digit = Value::from((parameter % 10).to_string());
    let integer = (parameter % 40) as i64;
    Done::Modify(match kind {
        0 => return Done::Put(Some(digit)),
        1 => return Done::Put(None),
        2 | 3 => Modification::add(integer),
        4..=6 => Modification::Append(digit),
        7 => Modification::SetIfAbsent(Value::from("7")),
        8 => Modification::CompareAndSwap { expected: Some(Value::from("7")), new: None },
        9 => Modification::Set(Some(digit).filter(|_| parameter % 2 == 0)),
        10 => Modification::Add { delta: -integer, least: 0, most: 1000 },
        _ => Modification::Maximum(integer),
    })
}

/// A number for a value, which tells values apart.
fn digest(value: Option<&Value>) -> Option<u64> {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    value.map(|value| value.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step))
}

impl Workload for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let many = random.random_range(1..=4);
        let seldom = random.random_range(0..4) == 0;
        let only_reads = random.random_range(0..4) == 0;
        let only_modifies = random.random_range(0..2) == 0;
        let operation = |_| {
            let key = match seldom {
                true => self.keys + random.random_range(0..SELDOM),
                false => random.random_range(0..self.keys),
            };
            let reads = !only_modifies && random.random_range(0..3) == 0;
            match only_reads || reads {
                true => MicroOperation::Read { key, result: ReadResult::Pending },
                false => MicroOperation::Append { key, element: random.random_range(0..1 << 20) },
            }
        };
        (0..many).map(operation).collect::<Vec<_>>().into()
    }

    fn run<'a>(&'a self, plan: &'a Plan, tx: Transaction, _: bool) -> Run<'a> {
        Box::pin(async move {
            let mut operations = Vec::new();
            for operation in plan.operations() {
                operations.push(match operation {
                    MicroOperation::Read { key, .. } => {
                        let found = tx.get(name(*key)).await?;
                        let result = ReadResult::Register(digest(found.as_ref()));
                        MicroOperation::Read { key: *key, result }
                    }
                    MicroOperation::Append { key, element } => {
                        match done(*element) {
                            Done::Put(Some(value)) => tx.put(name(*key), value),
                            Done::Put(None) => tx.delete(name(*key)),
                            Done::Modify(modification) => drop(tx.modify(name(*key), modification)),
                        }
                        operation.clone()
                    }
                    MicroOperation::Write { .. } => unreachable!("no plan has any"),
                });
            }
            Ok(operations)
        })
    }

    fn initial(&self, _: u64) -> Option<(Key, Value)> {
        None
    }

    fn initial_value(&self, _: &Key) -> Option<Value> {
        None
    }

    fn records_versions(&self) -> bool {
        false
    }

    fn check(&self, history: &History) -> Result<(), String> {
        let counts = |event: &&Event| matches!(event.kind, EventKind::Ok | EventKind::Info);
        let mut events: Vec<&Event> =
            history.events.iter().filter(counts).filter(|event| event.version.is_some()).collect();
        events.sort_by_key(|event| event.version);
        replay(&events, BTreeMap::new(), &mut 0).map_err(|wrong| wrong.what)
    }
}

/// Until `until`, reads the past again and again: what the keys that are touched often held at a time. Each such look is as
/// a transaction that only reads, and has committed just before all others with its version.
pub(crate) async fn read_past(
    keyspace: TransactionKeyspace,
    keys: u64,
    until: Timestamp,
    looks: Arc<Mutex<Vec<Event>>>,
) {
    while keyspace.now() < until {
        let now = keyspace.now();
        let coordinator = NodeId(NodeId::FIRST_COORDINATOR);
        let at = Version { timestamp_us: START_US + now.0 / 1000, coordinator };
        let mut operations = Vec::new();
        for key in 0..keys {
            // It may be forgotten, or nobody may answer in time.
            let Ok(found) = keyspace.get_at(name(key), at).await else { break };
            let result = ReadResult::Register(digest(found.as_ref()));
            operations.push(MicroOperation::Read { key, result });
        }
        looks.lock().unwrap().push(Event {
            index: 0,
            kind: EventKind::Ok,
            process: 0,
            time_ns: now.0,
            operations,
            version: Some(at),
            read_versions: Vec::new(),
            error: None,
        });
        keyspace.sleep_until(now + Duration::from_nanos(until.0 / 50)).await;
    }
}

/// A read that does not follow from what was done before.
struct Wrong {
    what: String,
    /// The keys of all reads that did not, whatever was guessed.
    keys: BTreeSet<u64>,
}

/// Guesses are given up after so many. Then nothing is said against the history.
const GUESSES: u32 = 5_000;

/// Executes transactions one after the other. Those whose outcome is unknown may have committed, or not.
fn replay(
    events: &[&Event],
    mut state: BTreeMap<u64, Value>,
    guesses: &mut u32,
) -> Result<(), Wrong> {
    for (i, event) in events.iter().enumerate() {
        if event.kind == EventKind::Ok {
            execute(event, &mut state)?;
            continue;
        }
        let (rest, mut with) = (&events[i + 1..], state.clone());
        if execute(event, &mut with).is_err() || with == state {
            continue;
        }
        *guesses += 1;
        return match replay(rest, with, guesses) {
            _ if *guesses > GUESSES => Ok(()),
            // Whether it has committed makes no difference to other keys.
            Err(with) if event.operations.iter().any(|it| with.keys.contains(&it.key())) => {
                let keys = |without: Wrong| &without.keys | &with.keys;
                let replayed = replay(rest, state, guesses);
                replayed.map_err(|wrong| Wrong { what: wrong.what.clone(), keys: keys(wrong) })
            }
            replayed => replayed,
        };
    }
    Ok(())
}

fn execute(event: &Event, state: &mut BTreeMap<u64, Value>) -> Result<(), Wrong> {
    for operation in &event.operations {
        let key = operation.key();
        let value = state.get(&key);
        let new = match operation {
            MicroOperation::Read { result: ReadResult::Register(found), .. } => {
                if *found != digest(value) {
                    let version = event.version;
                    let what = format!("{version:?} has read {found:?} in {key}, not {value:?}");
                    return Err(Wrong { what, keys: BTreeSet::from([key]) });
                }
                continue;
            }
            MicroOperation::Append { element, .. } => match done(*element) {
                Done::Put(value) => value,
                Done::Modify(modification) => match modification.apply(value) {
                    Ok(Change::To(value)) => value,
                    Ok(Change::None) | Err(_) => continue,
                },
            },
            MicroOperation::Read { .. } | MicroOperation::Write { .. } => continue,
        };
        match new {
            Some(new) => drop(state.insert(key, new)),
            None => drop(state.remove(&key)),
        }
    }
    Ok(())
}

#[test]
fn a_modification_that_was_made_twice_or_lost_is_noticed() {
    let version = |at| Some(serried_model::Version::at(at));
    let event = |at, kind, operations: &[MicroOperation]| Event {
        index: at,
        kind,
        process: 0,
        time_ns: at,
        operations: operations.to_vec(),
        version: version(at),
        read_versions: Vec::new(),
        error: None,
    };
    let adds = MicroOperation::Append { key: 1, element: 2 + 12 };
    let reads = |text: &str| {
        let result = ReadResult::Register(digest(Some(&Value::from(text))));
        MicroOperation::Read { key: 1, result }
    };
    let history = |unknown: EventKind, found: &str| History {
        events: vec![
            event(3, EventKind::Ok, &[reads(found)]),
            event(1, EventKind::Ok, core::slice::from_ref(&adds)),
            event(2, unknown, core::slice::from_ref(&adds)),
        ],
    };
    let holds = |unknown, found| Mixed { keys: 1 }.check(&history(unknown, found)).is_ok();
    let found = [EventKind::Ok, EventKind::Info, EventKind::Fail]
        .map(|unknown| ["1", "2", "3"].map(|found| holds(unknown, found)));
    assert_eq!(found, [[false, true, false], [true, true, false], [true, false, false]]);
}
