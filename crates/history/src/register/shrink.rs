//! Making a violation as small as it gets.
//!
//! A part of a history says something about the whole only if the whole would satisfy the guarantee
//! no better than the part. That is so if what is left out is
//!
//! - an operation that did not write, or
//! - one whose value nobody in the rest can have found: wherever a legal order has it, what follows is
//!   another write, so that it can be taken out.
//!
//! Still the last write of a value that somebody in the rest found stays in, even if that was found far
//! too late or too early: it would not help anybody to read that nobody wrote it.
//!
//! A read-modify-write may also be kept as a mere write, as if it had not mattered what it found: that
//! allows more orders, not less.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::event::RegisterValue;
use super::step::{Effect, Step};

/// How many steps are looked at, over all attempts, before what is left is called small enough.
const EFFORT: u64 = 20_000_000;

/// A part of a history that breaks a guarantee.
pub(super) struct Shrunk {
    pub(super) steps: Vec<Step>,
    /// Whether it would keep the guarantee without any one of its steps.
    pub(super) minimal: bool,
}

/// Steps by key and value: those that need the value.
type Requirers<'s> = HashMap<(u32, RegisterValue), Vec<&'s Step>, FixedState>;

/// What the rest of a history may have found.
struct Rest<'s> {
    requirers: Requirers<'s>,
    /// Steps that may find anything.
    adders: Vec<&'s Step>,
    /// Ends of the steps that certainly write, per key in the order of their beginnings, each with the
    /// least end of all that begin no earlier.
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

    /// Whether any step of the rest can have found what this one wrote, or did find such a value that
    /// nobody else there wrote.
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

    /// Whether nothing of the rest that lies between them in time has overwritten the value.
    fn feeds(&self, writer: &Step, reader: &Step) -> bool {
        if writer.operation == reader.operation || writer.begin > reader.end {
            return false;
        }
        let Some(ends) = self.overwrites.get(&writer.key) else { return true };
        let later = ends.partition_point(|&(begin, _)| begin <= writer.end);
        ends.get(later).is_none_or(|&(_, end)| end >= reader.begin)
    }
}

/// The part of a history that consists of these steps, by index, and of what it takes to say something
/// about the whole.
pub(super) fn part(steps: &[Step], chosen: &[u32]) -> Vec<Step> {
    if steps.iter().any(|step| matches!(step.effect, Effect::Add(_))) {
        // Such a step may have made any value out of any other.
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
            // One that can't have been found any more is still what people want to see.
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

/// Leaves out whatever `breaks` does not need to stay true, and keeps read-modify-writes as mere writes
/// where it does not need what they found. `breaks` may answer that it can't tell.
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

/// The steps without as many of a range as can be left out; `None` if none can.
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
    // What comes back may itself have found what another one wrote.
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

/// The steps with the read-modify-writes of a range as mere writes; `None` if there are none.
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
