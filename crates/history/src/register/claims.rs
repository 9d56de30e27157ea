//! Orders that the database claims, by the versions that it reported.
//!
//! A claimed order that satisfies the guarantee proves it. One that does not proves nothing, because there may be
//! another order.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serried_model::Carstamp;

use super::event::RegisterOperation;
use super::step::{Effect, NEVER, Operation, Step};

/// The steps of one key in the order of their versions. Each read comes after the write that it found. Optional steps
/// that were not found are left out. `None` if the versions do not determine the order.
pub(super) fn claimed_order(steps: &[Step], operations: &[Operation<'_>]) -> Option<Vec<u32>> {
    let operation = |step: &Step| &operations[step.operation as usize];
    let mut writers: HashMap<Carstamp, u32, FixedState> = HashMap::default();
    let mut order: Vec<(Carstamp, bool, u32, u32)> = Vec::with_capacity(steps.len());
    let mut open: Vec<u32> = Vec::new();
    for (at, step) in (0..).zip(steps) {
        if step.end == NEVER {
            open.push(at);
            continue;
        }
        let version = operation(step).version()?;
        let writes = wrote_version(operation(step));
        if writes && writers.insert(version, at).is_some() {
            return None;
        }
        order.push((version, !writes, step.begin, at));
    }
    // If a version was found and no completed operation has it, it belongs to an operation of unknown outcome.
    let found: Vec<(Carstamp, u32)> = order
        .iter()
        .filter(|(version, read, ..)| *read && *version != Carstamp::INITIAL)
        .map(|&(version, _, _, at)| (version, at))
        .collect();
    for (version, reader) in found {
        if writers.contains_key(&version) {
            continue;
        }
        let wrote = |at: &u32| steps[*at as usize].writes() == steps[reader as usize].requires;
        let writer = open.remove(open.iter().position(wrote)?);
        writers.insert(version, writer);
        order.push((version, false, steps[writer as usize].begin, writer));
    }
    if open.iter().any(|&at| !steps[at as usize].optional) {
        return None;
    }
    order.sort_unstable();
    Some(order.into_iter().map(|(.., at)| at).collect())
}

/// Whether a completed operation created a version.
fn wrote_version(operation: &Operation<'_>) -> bool {
    match operation.invoke.operation {
        RegisterOperation::Read => false,
        RegisterOperation::Write { .. } | RegisterOperation::Add { .. } => true,
        RegisterOperation::CompareAndSwap { expected, .. } => operation.found() == Some(expected),
    }
}

/// Whether every step finds what it needs if one key's steps are taken in this order, and whether each writer began
/// before its reader ended.
pub(super) fn is_legal(steps: &[Step], order: &[u32]) -> bool {
    let (mut value, mut written_at) = (None, 0);
    order.iter().all(|&at| {
        let step = &steps[at as usize];
        let found =
            step.requires.is_none_or(|required| required == value && written_at <= step.end);
        match step.effect {
            Effect::None => return found,
            Effect::Set(new) => value = new,
            Effect::Add(delta) => value = Some(value.unwrap_or(0).wrapping_add(delta)),
        }
        written_at = step.begin;
        found
    })
}

/// Whether no step comes after a step that began when it had already ended.
pub(super) fn respects_real_time(steps: &[Step], order: &[u32]) -> bool {
    let mut last_begin = 0;
    order.iter().all(|&at| {
        let step = &steps[at as usize];
        last_begin = last_begin.max(step.begin);
        step.end > last_begin
    })
}
