//! The state of a search: which steps were taken, what the registers hold, and which steps may come next.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::event::RegisterValue;
use super::search::Rule;
use super::step::{Effect, NEVER, Step};

/// No step: the end of a list, or the writer of the initial value.
const NONE: u32 = u32::MAX;

/// How many missing steps, including optional writers, involve a value of a key.
#[derive(Clone, Copy, Default)]
pub(super) struct Needs {
    /// Steps that are not optional, need the value and leave it there.
    pub(super) reads: u32,
    /// Steps that are not optional, need the value and replace it.
    pub(super) rmws: u32,
    /// Steps that may write it.
    pub(super) writers: u32,
}

/// Steps, each of which must wait for all that ended before it began.
struct Lane {
    /// The steps to wait for, in the order of their ends.
    by_end: Vec<u32>,
    /// How many of these, from the first, were taken.
    first: usize,
}

impl Lane {
    fn new(steps: &[Step], mut blockers: Vec<u32>) -> Lane {
        blockers.retain(|&at| !steps[at as usize].optional && steps[at as usize].end != NEVER);
        blockers.sort_unstable_by_key(|&at| steps[at as usize].end);
        Lane { by_end: blockers, first: 0 }
    }

    fn first_missing(&self) -> Option<u32> {
        self.by_end.get(self.first).copied()
    }

    fn first_end(&self, steps: &[Step]) -> u32 {
        self.first_missing().map_or(NEVER, |at| steps[at as usize].end)
    }

    fn advance(&mut self, taken: &[bool]) {
        while self.by_end.get(self.first).is_some_and(|&at| taken[at as usize]) {
            self.first += 1;
        }
    }
}

/// What a register holds.
#[derive(Clone, Copy)]
struct Register {
    value: RegisterValue,
    /// Index of the value's needs, if any step involves the value.
    needs: u32,
    /// The step that wrote it, or [`NONE`].
    writer: u32,
    /// Whether a step of unknown outcome wrote it, and no step has needed it yet.
    pending: bool,
    /// Missing optional steps whose result depends on what they find.
    optional_rmws: u32,
}

/// A step that was taken, and the register before it.
pub(super) struct Taken {
    pub(super) step: u32,
    before: Register,
}

/// The state of a search.
pub(super) struct Board<'a> {
    steps: &'a [Step],
    rule: Rule,
    taken: Vec<bool>,
    missing: usize,
    /// Missing steps in the order of their beginnings, as one linked list per lane: for each step, the step after it
    /// and the step before it.
    after: Vec<u32>,
    before: Vec<u32>,
    heads: Vec<u32>,
    lanes: Vec<Lane>,
    lane_of: Vec<u32>,
    /// For each key, the writes that every step on it waits for. Empty if one lane has all steps.
    gates: Vec<Lane>,
    registers: Vec<Register>,
    needs: Vec<Needs>,
    /// For each step, the indices of the needs of the value it requires and of the value it writes.
    required: Vec<u32>,
    written: Vec<u32>,
    needs_of: HashMap<(u32, RegisterValue), u32, FixedState>,
    hash: u128,
}

impl<'a> Board<'a> {
    /// The initial state. `steps` must be in the order of their beginnings.
    pub(super) fn new(steps: &'a [Step], rule: Rule) -> Board<'a> {
        debug_assert!(steps.is_sorted_by_key(|step| step.begin));
        let keys = steps.iter().map(|step| step.key + 1).max().unwrap_or(0) as usize;
        let mut lanes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut gates: Vec<Vec<u32>> = vec![Vec::new(); keys];
        for (at, step) in (0..).zip(steps) {
            let lane = if rule == Rule::Linearizable { 0 } else { step.process };
            lanes.entry(lane).or_default().push(at);
            if rule == Rule::RegularSequential && !step.is_read() {
                gates[step.key as usize].push(at);
            }
        }
        let mut board = Board {
            steps,
            rule,
            taken: vec![false; steps.len()],
            missing: steps.iter().filter(|step| !step.optional).count(),
            after: vec![NONE; steps.len()],
            before: vec![NONE; steps.len()],
            heads: Vec::new(),
            lanes: Vec::new(),
            lane_of: vec![0; steps.len()],
            gates: gates.into_iter().map(|blockers| Lane::new(steps, blockers)).collect(),
            registers: Vec::new(),
            needs: vec![Needs::default()],
            required: vec![0; steps.len()],
            written: vec![0; steps.len()],
            needs_of: HashMap::default(),
            hash: 0,
        };
        for members in lanes.into_values() {
            board.heads.push(members[0]);
            for pair in members.windows(2) {
                board.after[pair[0] as usize] = pair[1];
                board.before[pair[1] as usize] = pair[0];
            }
            for &at in &members {
                board.lane_of[at as usize] = board.lanes.len() as u32;
            }
            board.lanes.push(Lane::new(steps, members));
        }
        board.count_needs(keys);
        board
    }

    fn count_needs(&mut self, keys: usize) {
        let mut optional_rmws = vec![0; keys];
        for (at, step) in self.steps.iter().enumerate() {
            if let Some(value) = step.requires {
                let needs = self.slot(step.key, value);
                self.required[at] = needs;
                let needs = &mut self.needs[needs as usize];
                match (step.optional, step.is_read()) {
                    (true, _) => {}
                    (false, true) => needs.reads += 1,
                    (false, false) => needs.rmws += 1,
                }
            }
            if let Some(value) = step.writes() {
                let needs = self.slot(step.key, value);
                self.written[at] = needs;
                self.needs[needs as usize].writers += 1;
            }
            if step.is_optional_rmw() {
                optional_rmws[step.key as usize] += 1;
            }
        }
        self.registers = (0..)
            .zip(optional_rmws)
            .map(|(key, optional_rmws)| Register {
                value: None,
                needs: self.needs_of.get(&(key, None)).copied().unwrap_or(0),
                writer: NONE,
                pending: false,
                optional_rmws,
            })
            .collect();
    }

    /// The index of a value's needs. The first index is for values that no step involves.
    fn slot(&mut self, key: u32, value: RegisterValue) -> u32 {
        *self.needs_of.entry((key, value)).or_insert_with(|| {
            self.needs.push(Needs::default());
            self.needs.len() as u32 - 1
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn step(&self, at: u32) -> &'a Step {
        &self.steps[at as usize]
    }

    pub(super) fn rule(&self) -> Rule {
        self.rule
    }

    /// The missing steps that no other missing step must precede, whatever the registers hold.
    pub(super) fn enabled(&self, enabled: &mut Vec<u32>) {
        enabled.clear();
        for (lane, &head) in self.lanes.iter().zip(&self.heads) {
            let until = lane.first_end(self.steps);
            let mut next = head;
            while next != NONE && self.step(next).begin < until {
                let step = self.step(next);
                if step.begin < self.gates[step.key as usize].first_end(self.steps) {
                    enabled.push(next);
                }
                next = self.after[next as usize];
            }
        }
    }

    /// Whether a step finds what it needs, written by an operation that began before it ended.
    pub(super) fn satisfies(&self, at: u32) -> bool {
        let step = self.step(at);
        let register = &self.registers[step.key as usize];
        step.requires.is_none_or(|required| {
            register.value == required
                && (register.writer == NONE || self.step(register.writer).begin < step.end)
        })
    }

    /// The needs of the value that a register holds.
    pub(super) fn needs(&self, key: u32) -> Needs {
        self.needs[self.registers[key as usize].needs as usize]
    }

    /// The needs of the value that a register would hold after a step.
    pub(super) fn needs_of_written(&self, at: u32) -> Needs {
        self.needs[self.result(at).1 as usize]
    }

    fn result(&self, at: u32) -> (RegisterValue, u32) {
        let step = self.step(at);
        let register = &self.registers[step.key as usize];
        match step.effect {
            Effect::None => (register.value, register.needs),
            Effect::Set(value) => (value, self.written[at as usize]),
            Effect::Add(delta) => {
                let sum = Some(register.value.unwrap_or(0).wrapping_add(delta));
                (sum, self.needs_of.get(&(step.key, sum)).copied().unwrap_or(0))
            }
        }
    }

    /// Whether an optional step would change nothing. Under regular sequential consistency no step changes nothing: an
    /// operation that ended early may need the same value from an earlier writer.
    pub(super) fn changes_nothing(&self, at: u32) -> bool {
        if self.rule != Rule::Linearizable {
            return false;
        }
        self.result(at).0 == self.registers[self.step(at).key as usize].value
    }

    pub(super) fn is_pending(&self, key: u32) -> bool {
        self.registers[key as usize].pending
    }

    pub(super) fn has_optional_rmws(&self, key: u32) -> bool {
        self.registers[key as usize].optional_rmws > 0
    }

    pub(super) fn has_other_optional_rmws(&self, at: u32) -> bool {
        let step = self.step(at);
        let own = u32::from(step.is_optional_rmw());
        self.registers[step.key as usize].optional_rmws > own
    }

    /// Whether an earlier optional step with the same effect is missing. That one must be taken first.
    pub(super) fn has_earlier_twin(&self, at: u32) -> bool {
        if self.rule != Rule::Linearizable {
            return false;
        }
        let step = self.step(at);
        let mut before = self.before[at as usize];
        while before != NONE {
            let other = self.step(before);
            if other.optional && (other.requires, other.effect) == (step.requires, step.effect) {
                return true;
            }
            before = self.before[before as usize];
        }
        false
    }

    /// The missing step that ended first. If there are several lanes, that of the first lane.
    pub(super) fn first_missing(&self) -> Option<u32> {
        self.lanes.first()?.first_missing()
    }

    /// The key and value that the missing step with the earliest end needs, if there is only one lane.
    pub(super) fn wanted(&self) -> Option<(u32, RegisterValue)> {
        let first = self.step(self.first_missing()?);
        if self.rule == Rule::Linearizable { Some((first.key, first.requires?)) } else { None }
    }

    pub(super) fn take(&mut self, at: u32) -> Taken {
        let step = self.step(at);
        let (value, needs) = self.result(at);
        self.hash ^= self.register_hash(step.key) ^ step_hash(at);
        let register = &mut self.registers[step.key as usize];
        let before = *register;
        register.optional_rmws -= u32::from(step.is_optional_rmw());
        register.pending = step.optional;
        // A step that leaves the value unchanged is a read.
        if matches!(step.effect, Effect::Set(_)) || value != register.value {
            (register.value, register.needs, register.writer) = (value, needs, at);
        }
        self.hash ^= self.register_hash(step.key);
        self.count(at, |count| *count -= 1);
        self.taken[at as usize] = true;
        self.missing -= usize::from(!step.optional);
        let lane = self.lane_of[at as usize] as usize;
        let (previous, next) = (self.before[at as usize], self.after[at as usize]);
        match previous {
            NONE => self.heads[lane] = next,
            previous => self.after[previous as usize] = next,
        }
        if next != NONE {
            self.before[next as usize] = previous;
        }
        self.lanes[lane].advance(&self.taken);
        self.gates[step.key as usize].advance(&self.taken);
        Taken { step: at, before }
    }

    /// Undoes the last step that was taken and not undone.
    pub(super) fn untake(&mut self, Taken { step: at, before }: Taken) {
        let step = self.step(at);
        self.hash ^= self.register_hash(step.key) ^ step_hash(at);
        self.registers[step.key as usize] = before;
        self.hash ^= self.register_hash(step.key);
        self.count(at, |count| *count += 1);
        self.taken[at as usize] = false;
        self.missing += usize::from(!step.optional);
        let lane = self.lane_of[at as usize] as usize;
        let (previous, next) = (self.before[at as usize], self.after[at as usize]);
        match previous {
            NONE => self.heads[lane] = at,
            previous => self.after[previous as usize] = at,
        }
        if next != NONE {
            self.before[next as usize] = at;
        }
        let steps = self.steps;
        let blocks = |other: &u32| steps[*other as usize].end < step.end;
        for lane in [&mut self.lanes[lane], &mut self.gates[step.key as usize]] {
            let rank = lane.by_end.partition_point(blocks);
            if lane.by_end.get(rank) == Some(&at) {
                lane.first = lane.first.min(rank);
            }
        }
    }

    fn count(&mut self, at: u32, change: impl Fn(&mut u32)) {
        let step = self.step(at);
        if let (Some(_), false) = (step.requires, step.optional) {
            let needs = &mut self.needs[self.required[at as usize] as usize];
            change(if step.is_read() { &mut needs.reads } else { &mut needs.rmws });
        }
        if step.writes().is_some() {
            change(&mut self.needs[self.written[at as usize] as usize].writers);
        }
    }

    /// A hash of the state. States with the same hash have the same continuations.
    pub(super) fn state_hash(&self) -> u128 {
        self.hash
    }

    fn register_hash(&self, key: u32) -> u128 {
        let Register { value, writer, pending, .. } = self.registers[key as usize];
        // The writer of a value matters only where a step might otherwise find a write that began after the step had
        // ended.
        let writer = if self.rule == Rule::Linearizable { NONE } else { writer };
        let flags = u64::from(value.is_some()) << 1 | u64::from(pending);
        let place = u64::from(key) << 34 | u64::from(writer) << 2 | flags;
        mixed(place ^ 0x9216_d5d9_8979_fb1b, value.unwrap_or(0) as u64)
    }
}

fn step_hash(at: u32) -> u128 {
    mixed(u64::from(at), 0x2b7e_1516_28ae_d2a6)
}

/// 128 bits that depend on all bits of both words.
fn mixed(left: u64, right: u64) -> u128 {
    /// One round of splitmix64.
    fn mix(word: u64) -> u64 {
        let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
    let low = mix(mix(left) ^ right);
    let high = mix(mix(right ^ 0x243f_6a88_85a3_08d3) ^ left.rotate_left(32));
    u128::from(high) << 64 | u128::from(low)
}
