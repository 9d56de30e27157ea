//! Orders that the database claims, by the versions that it gave.
//!
//! A claim that holds proves the guarantee. One that does not hold proves nothing: there may be
//! another order.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::event::{Carstamp, RegisterOperation};
use super::step::{Effect, NEVER, Operation, Step};

/// The steps of one key by their versions, each read after the write that it found; without optional
/// ones that nobody found. `None` if the versions don't tell.
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
    // A version that was found and that no completed operation has is one of unknown outcome.
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

/// Whether an operation that ended well made a version of its own.
fn wrote_version(operation: &Operation<'_>) -> bool {
    match operation.invoke.operation {
        RegisterOperation::Read => false,
        RegisterOperation::Write { .. } | RegisterOperation::Add { .. } => true,
        RegisterOperation::CompareAndSwap { expected, .. } => operation.found() == Some(expected),
    }
}

/// Whether every step finds what it needs, written by one that began before it ended, when one key's
/// steps are taken in this order.
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

/// Whether no step comes after one that began when it had ended.
pub(super) fn respects_real_time(steps: &[Step], order: &[u32]) -> bool {
    let mut last_begin = 0;
    order.iter().all(|&at| {
        let step = &steps[at as usize];
        last_begin = last_begin.max(step.begin);
        step.end > last_begin
    })
}
