//! Calls under random delivery, loss, repetition and crashes, whose results must be strictly serializable.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Group, Settings};
use serried_model::{NodeId, TxnId, Version};
use serried_procedures::{Datum, Operation, Outcome, Output, ProcedureSet, Registration};

mod ancestors;
mod attempts;
mod checking;
mod closing;
mod finishing;
mod hand;
mod hunted;
mod lagging;
mod merging;
mod ordering;
mod reading;
mod sets;

use super::{Coordinator, Mutation, Replica};
use crate::{Mutated, testing};

type Net = testing::Net<Replica, Coordinator>;

const LISTS: i64 = 4;

/// Texts to which calls append their numbers. `defer` appends to three by deferred pieces; `chain` finds out by an immediate
/// piece to which other text it appends; `read` reads all.
const FILE: &str = r#"
[tables.list]
key = { id = "int" }
columns = { text = "string(4000)" }

[tables.head]
key = { id = "int" }
columns = { text = "string(4000)" }

[procedures.defer]
inputs = { a = "int", b = "int", c = "int", x = "int" }
returns = { a = "one.text", b = "two.text", c = "three.text" }
[procedures.defer.pieces.one]
rows = { row = { table = "list", key = ["a"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.defer.pieces.two]
rows = { row = { table = "list", key = ["b"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.defer.pieces.three]
rows = { row = { table = "list", key = ["c"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"

[procedures.chain]
inputs = { a = "int", x = "int" }
returns = { head = "head.text", next = "next.text" }
[procedures.chain.pieces.head]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.chain.pieces.next]
rows = { row = { table = "list", key = ["size(head.text) % 4"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"

[procedures.read]
returns = { lists = "list.text", heads = "head.text" }
[procedures.read.pieces.list]
for_each = { at = "range(0, 4, 4)" }
rows = { row = { table = "list", key = ["at"] } }
reads = ["row.text"]
outputs.text = "row.text"
[procedures.read.pieces.head]
for_each = { at = "range(0, 4, 4)" }
rows = { row = { table = "head", key = ["at"] } }
reads = ["row.text"]
outputs.text = "row.text"
"#;

/// Which procedures there are besides those of [`FILE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum More {
    /// No others.
    None,
    /// Some with merged pieces.
    Merged,
    /// One that writes nothing and can be ordered.
    Looking,
    /// One whose immediate piece uses what others defer: a broken checker has not spread immediacy.
    Unspread,
    /// One whose immediate piece is repeated: a broken checker has looked at it as if it stood once, so it is not merged.
    StandingOnce,
}

fn set(more: More) -> Arc<ProcedureSet> {
    let file = match more {
        More::None => FILE,
        More::Merged => &[FILE, merging::MERGED].concat(),
        More::Looking => &[FILE, ordering::LOOK].concat(),
        More::Unspread => &[FILE, merging::UNSPREAD].concat(),
        More::StandingOnce => &[FILE, merging::REPEATED].concat(),
    };
    let mut set = serried_chop::compile(file).unwrap_or_else(|mistake| panic!("{mistake}"));
    let cycles = serried_chop::check_and_merge(&mut set);
    assert_eq!(cycles.is_empty(), matches!(more, More::None | More::Looking));
    let ordered = set.procedures.iter().filter(|procedure| procedure.ordered).count();
    assert_eq!(ordered, usize::from(more == More::Looking));
    for procedure in &mut set.procedures {
        if matches!(more, More::Unspread | More::StandingOnce) {
            procedure.merged.clear();
        }
        if more == More::Unspread {
            let pieces = procedure.pieces.iter_mut();
            pieces.for_each(|piece| piece.immediate &= piece.needed);
        }
    }
    Arc::new(set)
}

/// A call as its client sees it.
#[derive(Clone, Debug)]
struct Called {
    /// What it appends; none if it only reads.
    x: Option<i64>,
    procedure: &'static str,
    inputs: Vec<i64>,
    began: u64,
    /// The versions under which it has begun.
    versions: Vec<Version>,
    ended: Option<(u64, Vec<Datum>)>,
    /// Whether the servers have forgotten it, so that nobody knows whether it has taken effect.
    is_forgotten: bool,
}

/// A text, by its table and its number.
type Text = (bool, i64);

impl Called {
    /// The texts that it has read, with what it found. What `chain` reads depends on what it finds.
    fn found(&self) -> Vec<(Text, Vec<i64>)> {
        let Some((_, results)) = &self.ended else { return Vec::new() };
        let numbers = |datum: &Datum| match datum {
            Datum::String(text) => {
                text.split_whitespace().map(|number| number.parse().unwrap()).collect()
            }
            other => panic!("{other}"),
        };
        let length = |datum: &Datum| match datum {
            Datum::String(text) => text.len() as i64,
            other => panic!("{other}"),
        };
        match self.procedure {
            "defer" => {
                let texts = self.inputs[..3].iter().zip(results);
                texts.map(|(at, datum)| ((false, *at), numbers(datum))).collect()
            }
            "chain" => vec![
                ((true, self.inputs[0]), numbers(&results[0])),
                ((false, length(&results[0]) % LISTS), numbers(&results[1])),
            ],
            "peek" => vec![
                ((false, self.inputs[0]), numbers(&results[0])),
                ((false, length(&results[0]) % LISTS), numbers(&results[1])),
            ],
            "look" => vec![
                ((true, self.inputs[0]), numbers(&results[0])),
                ((false, length(&results[0]) % LISTS), numbers(&results[1])),
                ((false, self.inputs[1]), numbers(&results[2])),
                ((false, length(&results[2]) % LISTS), numbers(&results[3])),
            ],
            "all" => {
                let Datum::List(texts) = &results[0] else { panic!("{results:?}") };
                let texts = texts.iter().enumerate();
                let mut found: Vec<_> =
                    texts.map(|(at, text)| ((true, at as i64), numbers(text))).collect();
                found.push(((false, 0), numbers(&results[1])));
                found
            }
            "fork" => vec![
                ((true, self.inputs[0]), numbers(&results[0])),
                ((true, self.inputs[1]), numbers(&results[1])),
                ((false, length(&results[0]) % LISTS), numbers(&results[2])),
            ],
            "hop" => {
                let second = length(&results[0]) % LISTS;
                let third = (length(&results[0]) + length(&results[1])) % LISTS;
                vec![
                    ((true, self.inputs[0]), numbers(&results[0])),
                    ((true, second), numbers(&results[1])),
                    ((true, third), numbers(&results[2])),
                ]
            }
            _ => {
                let all = |heads, datum: &Datum| match datum {
                    Datum::List(texts) => {
                        let texts = texts.iter().enumerate();
                        texts.map(|(at, text)| ((heads, at as i64), numbers(text))).collect()
                    }
                    other => panic!("{other}"),
                };
                let mut found: Vec<_> = all(false, &results[0]);
                found.extend::<Vec<_>>(all(true, &results[1]));
                found
            }
        }
    }
}

struct World {
    net: Net,
    group: Group,
    settings: Settings,
    mutation: Mutated<Mutation>,
    calls: BTreeMap<u64, Called>,
    next: u64,
    more: More,
}

const MEMBER_OF_NONE: u64 = u64::MAX;

impl World {
    fn new(partitions: u16, members: usize, mutation: Mutated<Mutation>, more: More) -> World {
        let group = Group::new(members, Duration::from_millis(1)).with_partitions(partitions);
        let settings = Settings { recovery_after_ms: 300, ..Settings::default() };
        let replica = |id| Replica::new(id, group.clone(), &settings, mutation);
        let mut net = Net::new(partitions, members, replica)
            .with_clients(4, |_| Coordinator::new(group.clone(), &settings, mutation));
        net.set_clock_us(1_000_000_000);
        net.tick = 1;
        net.start();
        net.pass(Duration::from_secs(1));
        let calls = BTreeMap::new();
        let mut world = World { net, group, settings, mutation, calls, next: 1, more };
        world.register();
        world
    }

    fn register(&mut self) {
        let register = Operation::Register { set: set(self.more), replaces: None };
        self.net.operate(0, 0, register);
        self.net.pass(Duration::from_secs(1));
        let registered = Output::Registered(Registration::InUse { version: 1 });
        assert!(self.net.outputs.iter().any(|(_, (_, output))| *output == registered));
    }

    fn call(&mut self, client: u64, procedure: &'static str, inputs: Vec<i64>) -> u64 {
        let number = self.next;
        self.next += 1;
        let mut data: Vec<Datum> = inputs.iter().copied().map(Datum::Int).collect();
        let x = (!matches!(procedure, "read" | "look")).then_some(number as i64);
        data.extend(x.map(Datum::Int));
        let began = self.net.now;
        let (versions, ended) = (Vec::new(), None);
        let called = Called { x, procedure, inputs, began, versions, ended, is_forgotten: false };
        self.calls.insert(number, called);
        let call = Operation::Call { procedure: procedure.into(), inputs: data, age: None };
        self.net.operate(client, number, call);
        self.take_outputs();
        number
    }

    fn random_call(&mut self, random: &mut Pcg64Mcg) {
        let client = random.random_range(0..4);
        let mut list = || random.random_range(0..LISTS);
        let inputs = [list(), list(), list()];
        let kinds = if self.more == More::None { 10 } else { 20 };
        let (procedure, inputs): (_, &[i64]) = match random.random_range(0..kinds) {
            0..5 => ("defer", &inputs),
            5..9 => ("chain", &inputs[..1]),
            9 => ("read", &[]),
            10..15 if self.more == More::Merged => ("fork", &inputs[..2]),
            _ => match self.more {
                More::Unspread => ("peek", &inputs[..1]),
                More::StandingOnce => ("all", &[]),
                More::Looking => ("look", &inputs[..2]),
                More::None | More::Merged => ("hop", &inputs[..1]),
            },
        };
        self.call(client, procedure, inputs.to_vec());
    }

    fn take_outputs(&mut self) {
        let (now, clock_us) = (self.net.now, self.net.clock_us());
        for (_, (TxnId(number), output)) in core::mem::take(&mut self.net.outputs) {
            let Some(called) = self.calls.get_mut(&number) else { continue };
            let outcome = match output {
                Output::Began(version) => {
                    called.versions.push(version);
                    continue;
                }
                Output::Outcome(outcome) => outcome,
                _ => continue,
            };
            assert!(called.ended.is_none() && !called.is_forgotten, "call {number} ended twice");
            match outcome {
                Outcome::Done(results) => called.ended = Some((now, results.data)),
                // No partition has answered for so long that the outcome need not be known any more.
                Outcome::Forgotten
                    if called.versions.last().is_some_and(|version| {
                        version.timestamp_us + self.settings.outcomes_ms * 1000 < clock_us
                    }) =>
                {
                    called.is_forgotten = true;
                }
                outcome => panic!("call {number}: {outcome:?}"),
            }
        }
    }

    /// Delivers, loses or repeats some message.
    fn step(&mut self, random: &mut Pcg64Mcg, is_lossy: bool) -> bool {
        if self.net.network.is_empty() {
            return false;
        }
        let at = random.random_range(0..self.net.network.len());
        let envelope = self.net.network.remove(at).expect("it is under way");
        let fate = if is_lossy { random.random_range(0..100) } else { 99 };
        match fate {
            0..3 => {}
            3..6 => {
                self.net.network.push_back(envelope.clone());
                self.net.deliver(envelope);
            }
            _ => self.net.deliver(envelope),
        }
        self.take_outputs();
        true
    }

    fn fresh(&self, id: NodeId) -> Replica {
        Replica::new(id, self.group.clone(), &self.settings, self.mutation)
    }

    fn finish(&mut self) {
        for _ in 0..40 {
            self.net.pass(Duration::from_millis(500));
            self.take_outputs();
        }
        self.call(3, "read", Vec::new());
        for _ in 0..10 {
            self.net.pass(Duration::from_millis(500));
            self.take_outputs();
        }
    }

    /// Checks that there is a serial order in which everything was found, and which respects the order in time.
    fn check(&self, may_be_open: bool) -> Result<(), String> {
        let (_, last) = self.calls.last_key_value().expect("there are calls");
        if last.ended.is_none() {
            return Err("the last read has not ended".to_owned());
        }
        let texts: BTreeMap<Text, Vec<i64>> = last.found().into_iter().collect();
        let mut after: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for (text, numbers) in &texts {
            let mut seen = BTreeSet::new();
            for pair in numbers.windows(2).filter(|pair| pair[0] != pair[1]) {
                after.entry(pair[0] as u64).or_default().insert(pair[1] as u64);
            }
            let repeated = numbers.iter().find(|number| {
                let times = numbers.iter().filter(|other| other == number).count();
                let call = &self.calls[&(**number as u64)];
                let wanted = match (call.procedure, text.0) {
                    ("fork", true) | ("defer", false) => {
                        call.inputs.iter().filter(|at| **at == text.1).count()
                    }
                    // Nobody knows what it has found.
                    ("hop" | "peek", _) if call.ended.is_none() => times.min(3),
                    ("hop" | "peek", _) => call.found().iter().filter(|(at, _)| at == text).count(),
                    _ => 1,
                };
                !seen.insert(**number) && times != wanted
            });
            if let Some(number) = repeated {
                return Err(format!("{number} is in {text:?} too often: {numbers:?}"));
            }
        }
        for (number, call) in &self.calls {
            let Some((ended, _)) = call.ended else {
                if !may_be_open && !call.is_forgotten {
                    return Err(format!("call {number} has not ended: {call:?}"));
                }
                continue;
            };
            for (text, found) in call.found() {
                let numbers = &texts[&text];
                if !numbers.starts_with(&found) {
                    return Err(format!("call {number} found {found:?} in {text:?}: {numbers:?}"));
                }
                if let Some(before) = found.last().map(|x| *x as u64).filter(|x| x != number) {
                    after.entry(before).or_default().insert(*number);
                }
                let next = numbers[found.len()..].iter().map(|x| *x as u64).find(|x| x != number);
                if let Some(next) = next {
                    after.entry(*number).or_default().insert(next);
                }
                if call.x.is_some_and(|x| !numbers.contains(&x)) {
                    return Err(format!("call {number} is lost from {text:?}: {numbers:?}"));
                }
            }
            let later = self.calls.iter().filter(|(_, later)| later.began > ended);
            after.entry(*number).or_default().extend(later.map(|(later, _)| *later));
        }
        let cycles = self.calls.keys().filter_map(|number| shortest_cycle(*number, &after));
        match cycles.min_by_key(Vec::len) {
            None => Ok(()),
            Some(cycle) => {
                let calls =
                    cycle.iter().map(|number| format!("{number}: {:?}", self.calls[number]));
                Err(format!("a cycle:\n{}", calls.collect::<Vec<_>>().join("\n")))
            }
        }
    }
}

/// The shortest cycle through a call, if there is one.
fn shortest_cycle(start: u64, after: &BTreeMap<u64, BTreeSet<u64>>) -> Option<Vec<u64>> {
    let mut before = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(number) = open.pop_front() {
        for next in after.get(&number).into_iter().flatten() {
            if *next == start {
                let path = core::iter::successors(Some(number), |at| before.get(at).copied());
                return Some(path.collect());
            }
            if !before.contains_key(next) {
                before.insert(*next, number);
                open.push_back(*next);
            }
        }
    }
    None
}

/// What a seed does.
#[derive(Clone, Copy)]
struct Faults {
    members: usize,
    lossy: bool,
    crashes: bool,
    clients_leave: bool,
}

fn explore(seed: u64, faults: Faults, mutation: Mutated<Mutation>) -> Result<(), String> {
    explore_with(seed, faults, mutation, More::None)
}

fn explore_with(
    seed: u64,
    faults: Faults,
    mutation: Mutated<Mutation>,
    more: More,
) -> Result<(), String> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut world = World::new(3, faults.members, mutation, more);
    let mut down: Vec<(NodeId, u32)> = Vec::new();
    let mut gone = MEMBER_OF_NONE;
    for round in 0..1200 {
        if world.next < 40 && random.random_range(0..8) == 0 {
            world.random_call(&mut random);
        }
        if !world.step(&mut random, faults.lossy) || random.random_range(0..30) == 0 {
            let time = Duration::from_micros(random.random_range(100..30_000));
            let end = world.net.now + time.as_micros() as u64;
            world.net.now = end;
            let ids = world.net.ids();
            let id = ids[random.random_range(0..ids.len())];
            if !down.iter().any(|(other, _)| *other == id) {
                world.net.fire_due(id);
            }
            world.net.fire_due_clients();
            world.take_outputs();
        }
        if faults.crashes && random.random_range(0..150) == 0 {
            let ids = world.net.ids();
            let id = ids[random.random_range(0..ids.len())];
            let same = |other: &(NodeId, u32)| other.0.partition() == id.partition();
            if down.iter().filter(|other| same(other)).count() * 2 + 2 <= faults.members.max(2)
                && !down.iter().any(|(other, _)| *other == id)
            {
                world.net.crash(id);
                down.push((id, round + random.random_range(10..200)));
            }
        }
        down.retain(|(id, back)| {
            let is_back = round >= *back;
            if is_back {
                let fresh = world.fresh(*id);
                world.net.restart(*id, fresh);
            }
            !is_back
        });
        if faults.clients_leave && gone == MEMBER_OF_NONE && random.random_range(0..400) == 0 {
            gone = random.random_range(0..3);
            let leaves = testing::client_id(gone);
            world.net.leave(leaves);
        }
    }
    for (id, _) in down {
        let fresh = world.fresh(id);
        world.net.restart(id, fresh);
    }
    world.finish();
    world.check(faults.clients_leave)
}

/// How many times the usual number of seeds is explored: `SERRIED_SEEDS_FACTOR`.
#[expect(clippy::disallowed_methods, reason = "the environment of a test can ask for more seeds")]
fn factor() -> u64 {
    std::env::var("SERRIED_SEEDS_FACTOR").ok().map_or(1, |factor| factor.parse().expect("a number"))
}

fn explore_all(seeds: u64, faults: Faults) {
    for seed in 0..seeds * factor() {
        if let Err(wrong) = explore(seed, faults, Mutated::NONE) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn calls_are_strictly_serializable_whatever_the_order_of_messages() {
    explore_all(60, Faults { members: 1, lossy: false, crashes: false, clients_leave: false });
}

#[test]
fn lost_and_repeated_messages_do_no_harm() {
    explore_all(40, Faults { members: 3, lossy: true, crashes: false, clients_leave: false });
}

#[test]
fn crashes_lose_no_call_and_execute_none_twice() {
    explore_all(40, Faults { members: 1, lossy: true, crashes: true, clients_leave: false });
    explore_all(40, Faults { members: 3, lossy: true, crashes: true, clients_leave: false });
}

#[test]
fn calls_of_clients_that_leave_are_finished() {
    explore_all(40, Faults { members: 3, lossy: true, crashes: true, clients_leave: true });
}

/// A leader finds the end of what the last one has proposed, and not what comes before: that was lost.
#[test]
fn an_entry_behind_a_gap_has_no_effect() {
    let faults = Faults { members: 3, lossy: true, crashes: true, clients_leave: true };
    assert_eq!(explore(238, faults, Mutated::NONE), Ok(()));
}

#[test]
fn mistakes_are_found() {
    let all = [
        Mutation::ForgetsEdge,
        Mutation::IgnoresOtherServers,
        Mutation::OrdersByArrival,
        Mutation::ReadsOnce,
    ];
    for mutation in all {
        let faults = Faults { members: 1, lossy: false, crashes: false, clients_leave: false };
        let found = (0..200).find(|seed| {
            let explored =
                std::panic::catch_unwind(|| explore(*seed, faults, Mutated::by(mutation)));
            !matches!(explored, Ok(Ok(())))
        });
        assert!(found.is_some(), "{mutation:?}");
    }
}
