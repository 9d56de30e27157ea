//! The coordination of a call that writes nothing (002 §4.1): it reads until two rounds find the same.
//!
//! Rounds are compared by the versions of the rows that they have read, not by values, because a value can come back. In
//! the first round, pieces wait for the outputs of others. Each further round reads all pieces again at once, and names the
//! versions that it expects. If some have changed, other pieces may have to be read in the same round. The call is over when
//! a round has found what the one before has found: then nothing has changed between the last read of that round and the
//! first read of this one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::Group;
use serried_procedures::{Call, Datum, PieceId, Refused, placement_key};

use super::message::{CallOf, Found, Occurrence, Read, Request};
use super::registered::Registered;
use super::run::Requests;

/// An occurrence of a piece.
type Place = (PieceId, u32);

/// A read-only call that is being coordinated.
#[derive(Debug)]
pub(super) struct Reading {
    of: CallOf,
    set: Arc<Registered>,
    /// What the latest read of each piece has found.
    found: BTreeMap<Place, LastRead>,
    /// The pieces that this round has read.
    fresh: BTreeSet<Place>,
    /// The pieces that are to be read now.
    due: Vec<Place>,
    /// Whether this round has found something else than the round before. So has the first.
    is_different: bool,
    /// The call as far as this round has gone through it.
    walk: Option<Walk>,
    /// The results by what the round before has found.
    results: Option<Result<Vec<Datum>, Refused>>,
    /// The requests that were not answered, by their numbers.
    open: BTreeMap<u64, (u16, Vec<Place>)>,
}

/// The latest read of a piece.
#[derive(Debug)]
struct LastRead {
    at: u16,
    arguments: Vec<Datum>,
    /// `None` if it was not answered yet.
    found: Option<Found>,
}

/// A call, as far as what was read tells.
#[derive(Debug)]
struct Walk {
    call: Call,
    /// The pieces that it uses.
    used: BTreeSet<Place>,
    /// Those of them whose outputs it does not have yet.
    awaits: Vec<Place>,
    refused: Option<Refused>,
}

/// What a round has come to: the results, and the pieces that the call uses.
type Ended = (Result<Vec<Datum>, Refused>, BTreeSet<Place>);

impl Reading {
    /// A call that has read nothing yet.
    pub(super) fn new(of: CallOf, set: Arc<Registered>) -> Reading {
        Reading {
            of,
            set,
            found: BTreeMap::new(),
            fresh: BTreeSet::new(),
            due: Vec::new(),
            is_different: true,
            walk: None,
            results: None,
            open: BTreeMap::new(),
        }
    }

    pub(super) fn set(&self) -> &Arc<Registered> {
        &self.set
    }

    /// The place of the procedure in its set.
    pub(super) fn procedure(&self) -> u16 {
        self.of.procedure
    }

    /// The numbers of the requests that were not answered.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied()
    }

    /// The requests that are to be sent, or the results. `number` makes the numbers of requests.
    pub(super) fn proceed(
        &mut self,
        group: &Group,
        mut number: impl FnMut() -> u64,
    ) -> (Requests, Option<Result<Vec<Datum>, Refused>>) {
        while self.open.is_empty() {
            if !self.is_different
                && let Some(results) = self.results.take()
            {
                return (Vec::new(), Some(results));
            }
            if let Some((results, used)) = self.walk(group) {
                // The next round reads again what this one has used.
                self.results = Some(results);
                self.is_different = false;
                self.fresh.clear();
                self.found.retain(|place, _| used.contains(place));
                self.due = used.into_iter().collect();
            }
            if !self.due.is_empty() {
                return (self.request(&mut number), None);
            }
            if self.walk.is_some() {
                break; // A server has sent what no correct one sends.
            }
        }
        (Vec::new(), None)
    }

    /// Goes on through the call by what this round has read. Collects the pieces that it still has to read, or returns the
    /// results and the pieces that the call uses.
    fn walk(&mut self, group: &Group) -> Option<Ended> {
        let set = self.set.clone();
        let procedure = set.procedure(self.of.procedure).expect("the call was checked");
        let new = || Call::new(procedure, self.of.inputs.clone()).expect("the inputs were checked");
        let begin =
            || Walk { call: new(), used: BTreeSet::new(), awaits: Vec::new(), refused: None };
        let Walk { mut call, mut used, mut awaits, mut refused } =
            self.walk.take().unwrap_or_else(begin);
        loop {
            let (known, unknown): (Vec<Place>, Vec<Place>) =
                awaits.into_iter().partition(|place| self.fresh.contains(place));
            awaits = unknown;
            for place in known {
                let Some(found) = &self.found[&place].found else { continue };
                match &found.outcome {
                    // A correct server sends outputs of the right types. Others leave the call unanswered.
                    Ok(outputs) => drop(call.executed(procedure, place, outputs.clone())),
                    Err(why) => drop(refused.get_or_insert_with(|| why.clone())),
                }
            }
            let started = match call.start(procedure) {
                _ if refused.is_some() => break,
                Ok(started) if started.is_empty() => break,
                Ok(started) => started,
                Err(why) => {
                    refused = Some(why);
                    break;
                }
            };
            for start in started {
                let place = (start.piece, start.occurrence);
                used.insert(place);
                awaits.push(place);
                let known = self.found.get(&place);
                if known.is_none_or(|known| known.arguments != start.arguments) {
                    let piece = &procedure.pieces[usize::from(start.piece.0)];
                    let leading = piece.placement(set.tables(), &start.arguments);
                    let at = group.partition_of(&placement_key(&leading));
                    let new = LastRead { at, arguments: start.arguments, found: None };
                    self.found.insert(place, new);
                    self.fresh.remove(&place);
                    self.is_different = true;
                }
                if !self.fresh.contains(&place) {
                    self.due.push(place);
                }
            }
        }
        let is_over = awaits.is_empty() && (refused.is_some() || call.has_executed_all());
        if !is_over {
            self.walk = Some(Walk { call, used, awaits, refused });
            return None;
        }
        let results = match refused {
            Some(refused) => Err(refused),
            None => call.results(procedure),
        };
        Some((results, used))
    }

    /// Reads the pieces that are due.
    fn request(&mut self, number: &mut impl FnMut() -> u64) -> Requests {
        let mut by_partition: BTreeMap<u16, Vec<Place>> = BTreeMap::new();
        for place in core::mem::take(&mut self.due) {
            by_partition.entry(self.found[&place].at).or_default().push(place);
        }
        let mut requests = Vec::with_capacity(by_partition.len());
        for (at, places) in by_partition {
            let number = number();
            requests.push((at, self.read(number, &places)));
            self.open.insert(number, (at, places));
        }
        requests
    }

    fn read(&self, number: u64, places: &[Place]) -> Request {
        let CallOf { set, procedure, .. } = self.of;
        let of = |(piece, number): &Place| {
            let LastRead { arguments, found, .. } = &self.found[&(*piece, *number)];
            let occurrence =
                Occurrence { piece: *piece, number: *number, arguments: arguments.clone() };
            (occurrence, found.as_ref().map(|found| found.versions.clone()))
        };
        let (pieces, known) = places.iter().map(of).unzip();
        Request::Read(Read { number, set, procedure, pieces, known })
    }

    /// A request was answered.
    pub(super) fn on_found(&mut self, number: u64, found: Vec<Option<Found>>) {
        let Some((_, places)) = self.open.remove(&number) else { return };
        for (place, found) in places.into_iter().zip(found) {
            let known = self.found.get_mut(&place).expect("it was read");
            if let Some(found) = found {
                self.is_different = true;
                known.found = Some(found);
            }
            if known.found.is_some() {
                self.fresh.insert(place);
            }
        }
    }

    /// The requests that were not answered.
    pub(super) fn unanswered(&self) -> Requests {
        let open = self.open.iter();
        open.map(|(number, (at, places))| (*at, self.read(*number, places))).collect()
    }
}
