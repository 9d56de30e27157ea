//! Registers whose values tell who wrote them: the polynomial case.
//!
//! Where each value that somebody found has one possible writer, it is known who read from whom. A
//! read-modify-write that found a value directly follows its writer, so writes and read-modify-writes
//! form *chains*, and a chain with all reads of its values stands in any legal order in one piece:
//! another write in between would have hidden the value. Inside, everything but the order of reads of
//! one value is forced. What remains is to order the chains, and there it only matters, as with the
//! clusters of Gibbons and Korach (Testing shared memories, 1997), when the first operation of a chain
//! ends and when its last one begins: `A` has to precede `B` exactly if the former in `A` is before the
//! latter in `B`. Such a relation has a cycle only if it has one of two chains.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::event::RegisterValue;
use super::step::{NEVER, Step};

/// The chain of the value that was there before the history.
const INITIAL: u32 = 0;
/// Stands for whoever made the key absent before the history.
const NOBODY: u32 = u32::MAX;

/// Why there are no chains, or none that can be ordered.
pub(super) enum Broken {
    /// It is not known who wrote what somebody found.
    Ambiguous,
    /// These steps (by index) already break the guarantee.
    Violation(Vec<u32>),
}

/// Where a step stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    chain: u32,
    /// Twice the number of versions of the chain before this one, and one more for a read.
    at: u32,
    begin: u32,
    step: u32,
}

/// The steps of one key in chains.
pub(super) struct Chains {
    /// Sorted.
    places: Vec<Place>,
    /// Where in `places` each chain begins, and one more for the end.
    starts: Vec<u32>,
}

/// The interesting bounds of a chain.
struct Zone {
    chain: u32,
    /// The least end in the chain, and whose it is; 0 for the initial chain, which has begun.
    first_end: (u32, u32),
    /// The greatest beginning, and whose.
    last_begin: (u32, u32),
}

impl Chains {
    /// Finds out who read from whom.
    ///
    /// # Errors
    ///
    /// If a value has several possible writers or an optional step is left; or steps that no legal
    /// order has, whatever else it should respect: a value that nobody wrote, or that two
    /// read-modify-writes replaced.
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
            // Read-modify-writes that found each other's values in a circle.
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
    /// Steps that have none.
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

    /// The legal order that respects real time if any does. Other guarantees can try it too.
    pub(super) fn best_order(&self, steps: &[Step]) -> Vec<u32> {
        self.in_order(&self.zones(steps))
    }

    fn in_order(&self, zones: &[Zone]) -> Vec<u32> {
        let places = zones.iter().flat_map(|zone| self.chain(zone.chain));
        places.map(|place| place.step).collect()
    }

    /// The chains in the only order in which they can stand: by the lower bound of their zones.
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

    /// Two steps of a chain in the wrong order, with what ties them together; two that are as close
    /// as any.
    fn inversion(&self, steps: &[Step], chain: u32) -> Option<Vec<u32>> {
        /// How many are looked at to find a close pair.
        const TRIED: usize = 64;
        let places = self.chain(chain);
        let mut inverted: Vec<&Place> = Vec::new();
        let mut end_after = NEVER;
        for group in places.chunk_by(|left, right| left.at == right.at).rev() {
            // Of the versions before, all must have begun before anything here or after has ended.
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

    /// Two steps of a chain and the writes that lead from one to the other.
    fn between(&self, places: &[Place], one: &Place, other: &Place) -> Vec<u32> {
        let (low, high) = (one.at.min(other.at) & !1, one.at.max(other.at));
        let from = places.partition_point(|place| place.at < low);
        let until = places.partition_point(|place| place.at <= high);
        let part = places[from..until].iter();
        part.filter(|place| place.at % 2 == 0 || place.step == one.step || place.step == other.step)
            .map(|place| place.step)
            .collect()
    }

    /// Two steps of a zone's chain and the writes that lead from one to the other; for the initial
    /// chain, all writes that lead to the second.
    fn span(&self, zone: &Zone, one: u32, other: u32) -> Vec<u32> {
        let places = self.chain(zone.chain);
        let place = |step| places.iter().find(|place| place.step == step);
        let start = Place { chain: INITIAL, at: 0, begin: 0, step: NOBODY };
        let other = place(other).unwrap_or(&start);
        self.between(places, place(one).unwrap_or(&start), other)
    }
}

/// Who wrote what each step found, [`NOBODY`] for what was there before.
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
                // Nobody wrote it before the reader ended; later writers are no excuse, but without
                // them it would not be seen that they are late.
                let late = writers.iter().copied().filter(|&writer| writer != at).take(1);
                return Err(Broken::Violation(std::iter::once(at).chain(late).collect()));
            }
            _ => return Err(Broken::Ambiguous),
        };
    }
    Ok(sources)
}
