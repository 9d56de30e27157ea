//! Operations on registers in the form that the checkers use: what each needs, what it writes, and when.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use serried_model::Carstamp;

use super::event::{RegisterEvent, RegisterHistory, RegisterOperation, RegisterValue};
use crate::EventKind;

/// The end of an operation that may take effect at any later time.
pub(super) const NEVER: u32 = u32::MAX;

/// The effect of an operation on its register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Effect {
    /// The value stays as it is.
    None,
    Set(RegisterValue),
    /// Adds to any value. Only for operations of unknown outcome: of all others it is known what they found.
    Add(i64),
}

/// An operation that took effect or may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    /// Index into [`Operations::all`].
    pub(super) operation: u32,
    /// Index of the key, in the order in which keys are met.
    pub(super) key: u32,
    pub(super) process: u32,
    /// The position of its beginning in the history, counted from 0.
    pub(super) begin: u32,
    /// The position of its end, or [`NEVER`].
    pub(super) end: u32,
    /// The value that the register must have before, if that matters.
    pub(super) requires: Option<RegisterValue>,
    pub(super) effect: Effect,
    /// Whether it may be left out.
    pub(super) optional: bool,
}

impl Step {
    /// The value that it certainly leaves behind, if it takes effect.
    pub(super) fn writes(&self) -> Option<RegisterValue> {
        match self.effect {
            Effect::Set(value) => Some(value),
            Effect::None | Effect::Add(_) => None,
        }
    }

    pub(super) fn is_read(&self) -> bool {
        self.effect == Effect::None
    }

    /// Whether it is optional and its result depends on what it finds.
    pub(super) fn is_optional_rmw(&self) -> bool {
        self.optional && (self.requires.is_some() || matches!(self.effect, Effect::Add(_)))
    }
}

/// An operation of the history, as it is shown.
#[derive(Clone, Copy)]
pub(super) struct Operation<'h> {
    pub(super) invoke: &'h RegisterEvent,
    pub(super) end: Option<&'h RegisterEvent>,
}

/// All operations of a history that may have taken effect.
pub(super) struct Operations<'h> {
    pub(super) all: Vec<Operation<'h>>,
    /// The steps of each key in the order of their beginnings.
    pub(super) keys: Vec<Vec<Step>>,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) unknown: u64,
}

impl<'h> Operations<'h> {
    /// Matches ends with beginnings.
    ///
    /// # Errors
    ///
    /// If the events do not form a history. The error says why.
    pub(super) fn new(history: &'h RegisterHistory) -> Result<Self, String> {
        if history.events.len() >= NEVER as usize {
            return Err("it has more events than can be counted: check a part of it".to_owned());
        }
        let mut open: HashMap<(u64, u64), usize, FixedState> = HashMap::default();
        let mut all: Vec<(Operation<'h>, u32, u32)> = Vec::new();
        for (position, event) in (0..).zip(&history.events) {
            let name = (event.process, event.key);
            let problem = match (event.kind, open.remove(&name)) {
                (EventKind::Invoke, None) => {
                    open.insert(name, all.len());
                    all.push((Operation { invoke: event, end: None }, position, NEVER));
                    None
                }
                (EventKind::Invoke, Some(_)) => Some("begins a second one"),
                (_, None) => Some("ends one that it has not begun"),
                (kind, Some(at)) => {
                    let (operation, _, end) = &mut all[at];
                    operation.end = Some(event);
                    let finds = event.operation.finds() && kind == EventKind::Ok;
                    if kind == EventKind::Ok {
                        *end = position;
                    }
                    if event.operation != operation.invoke.operation {
                        Some("ends another one than it began")
                    } else if finds != event.found.is_some() {
                        Some("ends one without what it found, or with what it can't have found")
                    } else {
                        None
                    }
                }
            };
            if let Some(problem) = problem {
                return Err(format!(
                    "event {} does not fit the history: process {} has operations on key {}, and {problem}",
                    event.index, event.process, event.key
                ));
            }
        }
        Ok(Self::of(all))
    }

    fn of(all: Vec<(Operation<'h>, u32, u32)>) -> Self {
        let mut operations =
            Operations { all: Vec::new(), keys: Vec::new(), completed: 0, failed: 0, unknown: 0 };
        let mut keys: HashMap<u64, u32, FixedState> = HashMap::default();
        let mut processes: HashMap<u64, u32, FixedState> = HashMap::default();
        for (operation, begin, end) in all {
            match operation.end.map(|end| end.kind) {
                Some(EventKind::Ok) => operations.completed += 1,
                Some(EventKind::Fail) => {
                    operations.failed += 1;
                    continue;
                }
                _ => operations.unknown += 1,
            }
            let invoke = operation.invoke;
            let (next_key, next_process) = (keys.len() as u32, processes.len() as u32);
            let key = *keys.entry(invoke.key).or_insert(next_key);
            let process = *processes.entry(invoke.process).or_insert(next_process);
            if key == next_key {
                operations.keys.push(Vec::new());
            }
            let (requires, effect) = match operation.found() {
                Some(found) => {
                    let result = invoke.operation.result(found);
                    let effect = if result == found { Effect::None } else { Effect::Set(result) };
                    (Some(found), effect)
                }
                None => match invoke.operation {
                    // A read without an end gives no information.
                    RegisterOperation::Read => continue,
                    RegisterOperation::Write { value } => (None, Effect::Set(value)),
                    RegisterOperation::CompareAndSwap { expected, new } if expected == new => {
                        continue;
                    }
                    RegisterOperation::CompareAndSwap { expected, new } => {
                        (Some(expected), Effect::Set(new))
                    }
                    RegisterOperation::Add { delta } => (None, Effect::Add(delta)),
                },
            };
            operations.keys[key as usize].push(Step {
                operation: operations.all.len() as u32,
                key,
                process,
                begin,
                end,
                requires,
                effect,
                optional: end == NEVER,
            });
            operations.all.push(operation);
        }
        operations
    }
}

impl Operation<'_> {
    /// What it found, if it completed and is not a write.
    pub(super) fn found(&self) -> Option<RegisterValue> {
        self.end.and_then(|end| end.found)
    }

    pub(super) fn version(&self) -> Option<Carstamp> {
        self.end.and_then(|end| end.version)
    }
}

/// The steps of one key without those that have no visible effect. Steps of unknown outcome that must have taken effect
/// are made mandatory. The key satisfies a guarantee if and only if the result does.
///
/// A write whose value no step needs can be removed from any order, because another write follows it there. So an
/// optional one is never necessary. If a value is needed that only one optional operation can have written, that
/// operation took effect.
pub(super) fn settled(steps: &[Step]) -> Vec<Step> {
    if steps.iter().any(|step| matches!(step.effect, Effect::Add(_))) {
        // A sum can have any value, so no step is known to be the only writer of a value.
        return steps.to_vec();
    }
    let mut needed: HashSet<RegisterValue, FixedState> = HashSet::default();
    needed.extend(steps.iter().filter(|step| !step.optional).filter_map(|step| step.requires));
    let mut kept: Vec<bool> = steps.iter().map(|step| !step.optional).collect();
    loop {
        let before = needed.len();
        for (step, kept) in steps.iter().zip(&mut kept) {
            if !*kept && step.writes().is_some_and(|value| needed.contains(&value)) {
                *kept = true;
                needed.extend(step.requires);
            }
        }
        if needed.len() == before {
            break;
        }
    }
    let mut settled: Vec<Step> =
        steps.iter().zip(kept).filter(|(_, kept)| *kept).map(|(step, _)| *step).collect();

    let mut writers: HashMap<RegisterValue, u32, FixedState> = HashMap::default();
    writers.insert(None, 1);
    for value in settled.iter().filter_map(Step::writes) {
        *writers.entry(value).or_default() += 1;
    }
    let mut certain: HashSet<RegisterValue, FixedState> = HashSet::default();
    certain.extend(settled.iter().filter(|step| !step.optional).filter_map(|step| step.requires));
    loop {
        let mut changed = false;
        for step in settled.iter_mut().filter(|step| step.optional) {
            let Some(value) = step.writes() else { continue };
            if certain.contains(&value) && writers[&value] == 1 {
                step.optional = false;
                certain.extend(step.requires);
                changed = true;
            }
        }
        if !changed {
            return settled;
        }
    }
}
