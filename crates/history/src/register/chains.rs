//! Registers whose values identify their writers: the case that takes polynomial time.
//!
//! Trying all orders takes exponential time. But if each value that was found has only one possible writer, it is known
//! which operation read from which. A read-modify-write that found a value directly follows its writer. So writes and
//! read-modify-writes form *chains*. In any legal order, a chain and all reads of its values are contiguous: another
//! write in between would have hidden the value. Within a chain, only the order of reads of the same value is free. It
//! remains to order the chains. As with the clusters of Gibbons and Korach (Testing shared memories, 1997), two times
//! of a chain matter: when its first operation ends, and when its last operation begins. `A` must precede `B` exactly
//! if the first end in `A` is before the last beginning in `B`. If such a relation has a cycle, it has a cycle of two
//! chains.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::event::RegisterValue;
use super::step::{NEVER, Step};

/// The chain of the initial value.
const INITIAL: u32 = 0;
/// The writer of the initial value: the key is absent before the history.
const NOBODY: u32 = u32::MAX;

/// Why there are no chains, or why they can't be ordered.
pub(super) enum Broken {
    /// The writer of a value that was found is not known.
    Ambiguous,
    /// These steps (by index) already break the guarantee.
    Violation(Vec<u32>),
}

/// The place of a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    chain: u32,
    /// Twice the number of earlier versions in the chain, plus one for a read.
    at: u32,
    begin: u32,
    step: u32,
}

/// The steps of one key, in chains.
pub(super) struct Chains {
    /// Sorted.
    places: Vec<Place>,
    /// The index in `places` at which each chain begins, and the end.
    starts: Vec<u32>,
}

/// The bounds of a chain that determine its order.
struct Zone {
    chain: u32,
    /// The earliest end in the chain, and its step. 0 for the initial chain, which comes before all others.
    first_end: (u32, u32),
    /// The latest beginning in the chain, and its step.
    last_begin: (u32, u32),
}

impl Chains {
    /// Determines which steps read from which, and builds the chains.
    ///
    /// # Errors
    ///
    /// If a value has several possible writers, or an optional step is left. Or steps that are in no legal order,
    /// whatever the guarantee: they found a value that was never written, or two read-modify-writes replaced the same
    /// value.
    pub(super) fn new(steps: &[Step]) -> Result<Chains, Broken> {
        if steps.iter().any(|step| step.optional) {
            return Err(Broken::Ambiguous);
        }
        let sources = sources(steps)?;
        let mut successor: Vec<Option<u32>> = vec![None; steps.len()];
        let mut initial_successor = None;
        for (at, step) in (0..).zip(steps) {
            let (Some(source), false) = (sources[at as usize], step.is_read()) else { continue };
            let successor = match source {
                NOBODY => &mut initial_successor,
                source => &mut successor[source as usize],
            };
            if let Some(other) = successor.replace(at) {
                let writer = (source != NOBODY).then_some(source);
                return Err(Broken::Violation([other, at].into_iter().chain(writer).collect()));
            }
        }

        let mut placed: Vec<Option<(u32, u32)>> = vec![None; steps.len()];
        let mut follow = |chain, first, from| {
            let (mut next, mut at) = (first, from);
            while let Some(step) = next {
                placed[step as usize] = Some((chain, at));
                (next, at) = (successor[step as usize], at + 2);
            }
        };
        follow(INITIAL, initial_successor, 2);
        let mut chains = INITIAL + 1;
        for (at, step) in (0..).zip(steps) {
            if step.requires.is_none() {
                follow(chains, Some(at), 0);
                chains += 1;
            }
        }
        let mut circle = Vec::new();
        let mut places = Vec::with_capacity(steps.len());
        for (at, step) in (0..).zip(steps) {
            let place = match sources[at as usize] {
                Some(NOBODY) if step.is_read() => Some((INITIAL, 1)),
                Some(source) if step.is_read() => {
                    placed[source as usize].map(|(chain, at)| (chain, at + 1))
                }
                _ => placed[at as usize],
            };
            match place {
                Some((chain, place)) => {
                    places.push(Place { chain, at: place, begin: step.begin, step: at });
                }
                None => circle.push(at),
            }
        }
        if !circle.is_empty() {
            // Read-modify-writes that found each other's values in a cycle.
            return Err(Broken::Violation(circle));
        }
        places.sort_unstable();
        let mut starts = vec![0; chains as usize + 1];
        for place in &places {
            starts[place.chain as usize + 1] += 1;
        }
        for chain in 0..chains as usize {
            starts[chain + 1] += starts[chain];
        }
        Ok(Chains { places, starts })
    }

    fn chain(&self, chain: u32) -> &[Place] {
        let [start, end] = [chain, chain + 1].map(|at| self.starts[at as usize] as usize);
        &self.places[start..end]
    }

    /// A legal order of the steps that respects real time.
    ///
    /// # Errors
    ///
    /// Steps that have no such order.
    pub(super) fn linear_order(&self, steps: &[Step]) -> Result<Vec<u32>, Vec<u32>> {
        for chain in 0..self.starts.len() as u32 - 1 {
            if let Some(violation) = self.inversion(steps, chain) {
                return Err(violation);
            }
        }
        let zones = self.zones(steps);
        let mut last: Option<&Zone> = None;
        for zone in &zones {
            if let Some(before) = last
                && zone.first_end.0 < before.last_begin.0
            {
                let mut violation = self.span(before, before.first_end.1, before.last_begin.1);
                violation.extend(self.span(zone, zone.first_end.1, zone.last_begin.1));
                return Err(violation);
            }
            if last.is_none_or(|before| zone.last_begin.0 > before.last_begin.0) {
                last = Some(zone);
            }
        }
        Ok(self.in_order(&zones))
    }

    /// A legal order. It respects real time if any legal order does. Other guarantees can try it too.
    pub(super) fn best_order(&self, steps: &[Step]) -> Vec<u32> {
        self.in_order(&self.zones(steps))
    }

    fn in_order(&self, zones: &[Zone]) -> Vec<u32> {
        let places = zones.iter().flat_map(|zone| self.chain(zone.chain));
        places.map(|place| place.step).collect()
    }

    /// The chains in the only possible order: by the lower bounds of their zones.
    fn zones(&self, steps: &[Step]) -> Vec<Zone> {
        let mut zones = Vec::with_capacity(self.starts.len() - 1);
        for chain in 0..self.starts.len() as u32 - 1 {
            let places = self.chain(chain).iter();
            let ends = places.clone().map(|place| (steps[place.step as usize].end, place.step));
            let begins = places.map(|place| (place.begin, place.step));
            let (Some(mut first_end), Some(last_begin)) = (ends.min(), begins.max()) else {
                continue;
            };
            if chain == INITIAL {
                first_end = (0, NOBODY);
            }
            zones.push(Zone { chain, first_end, last_begin });
        }
        zones.sort_unstable_by_key(|zone| {
            (zone.chain != INITIAL, zone.first_end.0.min(zone.last_begin.0))
        });
        zones
    }

    /// Two steps of a chain in the wrong order, with the writes that connect them. They are as close to each other as
    /// any two.
    fn inversion(&self, steps: &[Step], chain: u32) -> Option<Vec<u32>> {
        /// How many pairs are examined to find a close one.
        const TRIED: usize = 64;
        let places = self.chain(chain);
        let mut inverted: Vec<&Place> = Vec::new();
        let mut end_after = NEVER;
        for group in places.chunk_by(|left, right| left.at == right.at).rev() {
            // All steps of earlier versions must begin before any step of this or a later version ends.
            inverted.extend(group.iter().filter(|place| place.begin > end_after));
            let ends = group.iter().map(|place| steps[place.step as usize].end);
            end_after = end_after.min(ends.min().unwrap_or(NEVER));
            if inverted.len() >= TRIED {
                break;
            }
        }
        let pairs = inverted.into_iter().take(TRIED).filter_map(|late| {
            let after = places.partition_point(|place| place.at <= late.at);
            let early =
                places[after..].iter().find(|place| steps[place.step as usize].end < late.begin)?;
            Some((early.at - late.at, late, early))
        });
        let (_, late, early) = pairs.min_by_key(|&(distance, ..)| distance)?;
        Some(self.between(places, late, early))
    }

    /// Two steps of a chain and the writes between them.
    fn between(&self, places: &[Place], one: &Place, other: &Place) -> Vec<u32> {
        let (low, high) = (one.at.min(other.at) & !1, one.at.max(other.at));
        let from = places.partition_point(|place| place.at < low);
        let until = places.partition_point(|place| place.at <= high);
        let part = places[from..until].iter();
        part.filter(|place| place.at % 2 == 0 || place.step == one.step || place.step == other.step)
            .map(|place| place.step)
            .collect()
    }

    /// Two steps of a zone's chain and the writes between them. For the initial chain, all writes that lead to the
    /// second step.
    fn span(&self, zone: &Zone, one: u32, other: u32) -> Vec<u32> {
        let places = self.chain(zone.chain);
        let place = |step| places.iter().find(|place| place.step == step);
        let start = Place { chain: INITIAL, at: 0, begin: 0, step: NOBODY };
        let other = place(other).unwrap_or(&start);
        self.between(places, place(one).unwrap_or(&start), other)
    }
}

/// The writer of the value that each step found, or [`NOBODY`] for the initial value.
fn sources(steps: &[Step]) -> Result<Vec<Option<u32>>, Broken> {
    let mut writers: HashMap<RegisterValue, Vec<u32>, FixedState> = HashMap::default();
    writers.insert(None, vec![NOBODY]);
    for (at, step) in (0..).zip(steps) {
        if let Some(value) = step.writes() {
            writers.entry(value).or_default().push(at);
        }
    }
    let mut sources = vec![None; steps.len()];
    for (at, step) in (0..).zip(steps) {
        let Some(required) = step.requires else { continue };
        let writers = writers.get(&required).map_or(&[][..], Vec::as_slice);
        // Steps come in the order of their beginnings, and so do writers.
        let early = writers
            .partition_point(|&writer| writer == NOBODY || steps[writer as usize].begin < step.end);
        sources[at as usize] = match &writers[..early] {
            &[writer] if writer != at => Some(writer),
            [] | [_] => {
                // No operation wrote the value before the reader ended. Late writers are no valid source, but are
                // included to show that they are late.
                let late = writers.iter().copied().filter(|&writer| writer != at).take(1);
                return Err(Broken::Violation(std::iter::once(at).chain(late).collect()));
            }
            _ => return Err(Broken::Ambiguous),
        };
    }
    Ok(sources)
}
