//! Shrinking violations.
//!
//! A violation of fifty thousand operations explains nothing. But a part of a history may break a guarantee that the
//! whole keeps: without its write, a read looks wrong. If a part breaks a guarantee, so does the whole, provided that
//! each operation left out is
//!
//! - one that did not write, or
//! - one whose value no remaining operation can have found: in any legal order another write follows it, so that it can
//!   be removed.
//!
//! The last write of a value that a remaining operation found is kept, even if it was found far too late or too early.
//! Otherwise the explanation would be that the value was never written, which helps nobody.
//!
//! A read-modify-write may also be replaced by a write, as if what it found did not matter. This allows more orders,
//! not fewer.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::event::RegisterValue;
use super::step::{Effect, Step};

/// How many steps are examined, over all attempts, before the rest counts as small enough.
const EFFORT: u64 = 20_000_000;

/// A part of a history that breaks a guarantee.
pub(super) struct Shrunk {
    pub(super) steps: Vec<Step>,
    /// Whether it would satisfy the guarantee without any one of its steps.
    pub(super) minimal: bool,
}

/// Steps by key and value: those that need the value.
type Requirers<'s> = HashMap<(u32, RegisterValue), Vec<&'s Step>, FixedState>;

/// What the remaining operations of a history may have found.
struct Rest<'s> {
    requirers: Requirers<'s>,
    /// Steps that may find anything.
    adders: Vec<&'s Step>,
    /// For each key, the beginnings of steps that certainly write, in order, each with the earliest end of all steps
    /// that begin no earlier.
    overwrites: HashMap<u32, Vec<(u32, u32)>, FixedState>,
    written: HashSet<(u32, RegisterValue), FixedState>,
}

impl<'s> Rest<'s> {
    fn of(steps: impl Iterator<Item = &'s Step> + Clone) -> Self {
        let mut rest = Rest {
            requirers: HashMap::default(),
            adders: Vec::new(),
            overwrites: HashMap::default(),
            written: HashSet::default(),
        };
        for step in steps {
            if let Some(value) = step.requires {
                rest.requirers.entry((step.key, value)).or_default().push(step);
            }
            rest.written.extend(step.writes().map(|value| (step.key, value)));
            match step.effect {
                Effect::Add(_) => rest.adders.push(step),
                Effect::Set(_) if !step.optional => {
                    rest.overwrites.entry(step.key).or_default().push((step.begin, step.end));
                }
                _ => {}
            }
        }
        for ends in rest.overwrites.values_mut() {
            ends.sort_unstable();
            let mut least = u32::MAX;
            for (_, end) in ends.iter_mut().rev() {
                least = least.min(*end);
                *end = least;
            }
        }
        rest
    }

    /// Whether a remaining step can have found what this one wrote, or found such a value that no other remaining step
    /// wrote.
    fn can_find(&self, writer: &Step) -> bool {
        let finds = |reader: &&'s Step| self.feeds(writer, reader);
        let same_key = |reader: &&&Step| reader.key == writer.key;
        if self.adders.iter().filter(same_key).any(finds) {
            return true;
        }
        match writer.effect {
            Effect::None => false,
            Effect::Set(value) => {
                let last = !self.written.contains(&(writer.key, value));
                let readers = self.requirers.get(&(writer.key, value));
                readers.is_some_and(|readers| readers.iter().any(|reader| last || finds(reader)))
            }
            Effect::Add(_) => self
                .requirers
                .iter()
                .any(|((key, _), readers)| *key == writer.key && readers.iter().any(finds)),
        }
    }

    /// Whether no remaining step between them in time has overwritten the value.
    fn feeds(&self, writer: &Step, reader: &Step) -> bool {
        if writer.operation == reader.operation || writer.begin > reader.end {
            return false;
        }
        let Some(ends) = self.overwrites.get(&writer.key) else { return true };
        let later = ends.partition_point(|&(begin, _)| begin <= writer.end);
        ends.get(later).is_none_or(|&(_, end)| end >= reader.begin)
    }
}

/// The part of a history that consists of the chosen steps, by index, and the steps that must be kept with them.
pub(super) fn part(steps: &[Step], chosen: &[u32]) -> Vec<Step> {
    if steps.iter().any(|step| matches!(step.effect, Effect::Add(_))) {
        // Such a step may have turned any value into any other.
        return steps.to_vec();
    }
    let mut part: Vec<Step> = chosen.iter().map(|&at| steps[at as usize]).collect();
    part.sort_unstable_by_key(|step| step.begin);
    part.dedup_by_key(|step| step.operation);
    let mut writers: HashMap<(u32, RegisterValue), Vec<&Step>, FixedState> = HashMap::default();
    for step in steps {
        if let Some(value) = step.writes() {
            writers.entry((step.key, value)).or_default().push(step);
        }
    }
    loop {
        let inside: HashSet<u32, FixedState> = part.iter().map(|step| step.operation).collect();
        let mut added: Vec<Step> = Vec::new();
        let before = part.clone();
        let rest = Rest::of(before.iter());
        for step in &mut part {
            let Some(value) = step.requires else { continue };
            let sources = writers.get(&(step.key, value)).map_or(&[][..], Vec::as_slice);
            let mut missing = sources
                .iter()
                .filter(|source| !inside.contains(&source.operation) && rest.feeds(source, step))
                .peekable();
            if missing.peek().is_some() && !step.is_read() && !step.optional {
                step.requires = None;
                continue;
            }
            added.extend(missing.map(|source| **source));
            // A writer that can't have been found any more is still useful in the explanation.
            let has_source = sources.iter().any(|source| inside.contains(&source.operation));
            if !has_source && value.is_some() {
                let early = sources.iter().rev().find(|source| source.begin < step.end);
                added.extend(early.or(sources.first()).map(|source| **source));
            }
        }
        if added.is_empty() {
            return part;
        }
        part.extend(added);
        part.sort_unstable_by_key(|step| step.begin);
        part.dedup_by_key(|step| step.operation);
    }
}

/// Leaves out all steps that `breaks` does not need to stay true, and replaces read-modify-writes by writes if it does
/// not need what they found. `breaks` may return false if it can't decide.
pub(super) fn shrink(
    mut kept: Vec<Step>,
    mut breaks: impl FnMut(&[Step]) -> Option<bool>,
) -> Shrunk {
    let mut effort = 0;
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let (mut changed, mut certain) = (false, true);
        let mut breaks = |steps: &[Step]| {
            let answer = breaks(steps);
            certain &= answer.is_some();
            answer == Some(true)
        };
        let mut at = 0;
        while at < kept.len() {
            effort += kept.len() as u64;
            if effort > EFFORT {
                return Shrunk { steps: kept, minimal: false };
            }
            let until = (at + chunk).min(kept.len());
            if let Some(without) = without(&kept, at, until)
                && breaks(&without)
            {
                kept = without;
                changed = true;
                continue;
            }
            if let Some(relaxed) = relaxed(&kept, at, until)
                && breaks(&relaxed)
            {
                kept = relaxed;
                changed = true;
            }
            at = until;
        }
        match chunk {
            1 if !changed => return Shrunk { steps: kept, minimal: certain },
            _ => chunk = (chunk / 2).max(1),
        }
    }
}

/// The steps without those of a range that can be left out. `None` if none can.
fn without(steps: &[Step], from: usize, until: usize) -> Option<Vec<Step>> {
    let mut left_out = vec![false; steps.len()];
    left_out[from..until].fill(true);
    let rest = Rest::of(
        steps.iter().zip(&left_out).filter(|(_, left_out)| !**left_out).map(|(step, _)| step),
    );
    let mut back: Vec<usize> = (from..until).filter(|&at| rest.can_find(&steps[at])).collect();
    for &at in &back {
        left_out[at] = false;
    }
    // A step that is put back may itself have found the value of another one.
    let mut writers: HashMap<(u32, RegisterValue), Vec<usize>, FixedState> = HashMap::default();
    for (at, step) in (from..).zip(&steps[from..until]) {
        if let Some(value) = step.writes() {
            writers.entry((step.key, value)).or_default().push(at);
        }
    }
    while let Some(reader) = back.pop() {
        let step = &steps[reader];
        let finds_anything = matches!(step.effect, Effect::Add(_));
        let found: Vec<usize> = match step.requires {
            _ if finds_anything => (from..until).collect(),
            Some(value) => writers.remove(&(step.key, value)).unwrap_or_default(),
            None => continue,
        };
        let adds = (from..until).filter(|&at| matches!(steps[at].effect, Effect::Add(_)));
        for at in found.into_iter().chain(adds) {
            if left_out[at] && steps[at].key == step.key {
                left_out[at] = false;
                back.push(at);
            }
        }
    }
    if !left_out.contains(&true) {
        return None;
    }
    let rest = steps.iter().zip(left_out).filter(|(_, left_out)| !left_out);
    Some(rest.map(|(step, _)| *step).collect())
}

/// The steps with the read-modify-writes of a range replaced by writes. `None` if there are none.
fn relaxed(steps: &[Step], from: usize, until: usize) -> Option<Vec<Step>> {
    let mut relaxed = steps.to_vec();
    let mut changed = false;
    for step in &mut relaxed[from..until] {
        if step.requires.is_some() && !step.is_read() && !step.optional {
            step.requires = None;
            changed = true;
        }
    }
    changed.then_some(relaxed)
}
