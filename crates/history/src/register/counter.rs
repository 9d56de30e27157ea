//! Counters that only grow: finds out which additions of unknown outcome took effect.

use std::collections::BTreeSet;

use super::event::RegisterValue;
use super::step::{Effect, NEVER, Step};

/// The steps of a counter after its additions of unknown outcome have been resolved.
pub(super) struct Counted {
    /// The steps. Each value that was found is written by one of them. Additions that had no visible effect are left
    /// out.
    pub(super) steps: Vec<Step>,
    /// Whether some additions were chosen among several of the same amount. If only real time matters, they are
    /// interchangeable, because an earlier beginning is never worse. If their process matters too, they are not.
    pub(super) chosen: bool,
}

/// Determines which additions of unknown outcome took effect. This works if every operation that changes the key adds a
/// positive amount, and those of unknown outcome all add the same amount.
///
/// Such a counter never has a value twice. It passes through all values that were found or that a completed addition
/// left. Between two consecutive ones of these there can only be additions of unknown outcome, so their number is
/// known.
pub(super) fn counted(steps: &[Step]) -> Option<Counted> {
    let number = |value: RegisterValue| value.unwrap_or(0);
    let mut amount = None;
    let mut unknown: Vec<Step> = Vec::new();
    let mut known: Vec<Step> = Vec::new();
    let mut written: BTreeSet<i64> = BTreeSet::from([0]);
    let mut needed: BTreeSet<i64> = BTreeSet::new();
    for step in steps {
        match (step.effect, step.requires) {
            (Effect::Add(delta), _) if delta > 0 && amount.is_none_or(|amount| amount == delta) => {
                amount = Some(delta);
                unknown.push(*step);
                continue;
            }
            (Effect::None, _) => {}
            (Effect::Set(Some(value)), Some(found)) if value > number(found) && !step.optional => {
                written.insert(value);
            }
            _ => return None,
        }
        match step.requires {
            // A counter that only grows can't be 0 without being absent.
            Some(Some(value)) if value <= 0 => return None,
            requires => needed.extend(requires.map(number)),
        }
        known.push(*step);
    }
    let amount = amount?;
    unknown.sort_unstable_by_key(|step| step.begin);
    let mut rest = unknown.into_iter();
    let mut chosen = false;
    for &value in needed.difference(&written) {
        let below = needed.range(..value).next_back().max(written.range(..value).next_back());
        let below = *below?;
        if (value - below) % amount != 0 {
            return None;
        }
        let mut from = below;
        while from < value {
            let step = rest.next()?;
            chosen = chosen || from != value - amount;
            known.push(Step {
                requires: Some((from != 0).then_some(from)),
                effect: Effect::Set(Some(from + amount)),
                end: NEVER,
                optional: false,
                ..step
            });
            from += amount;
        }
    }
    chosen = chosen
        || rest.next().is_some()
        || known.iter().filter(|step| step.end == NEVER).count() > 1;
    known.sort_unstable_by_key(|step| step.begin);
    Some(Counted { steps: known, chosen })
}
