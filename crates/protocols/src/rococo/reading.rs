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
use serried_procedures::{Call, Datum, PieceId, Procedure, Refused, placement_key};

use super::Mutation;
use super::message::{CallOf, Found, Occurrence, Read, Request};
use super::registered::Registered;
use super::run::Requests;
use crate::Mutated;

/// An occurrence of a piece.
type Place = (PieceId, u32);

/// A read-only call that is being coordinated.
#[derive(Debug)]
pub(super) struct Reading {
    of: CallOf,
    set: Arc<Registered>,
    mutation: Mutated<Mutation>,
    /// What the latest read of each piece has found.
    found: BTreeMap<Place, LastRead>,
    /// The pieces that this round has read.
    fresh: BTreeSet<Place>,
    /// The pieces that it has to read before it can go on.
    due: Vec<Place>,
    /// Whether it has found something else than the round before. So has the first.
    is_different: bool,
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

/// What comes next.
enum Next {
    /// More pieces have to be read.
    Reads,
    /// The round is over, and these are the results by what it has found.
    Ends(Result<Vec<Datum>, Refused>),
}

impl Reading {
    /// A call that has read nothing yet.
    pub(super) fn new(of: CallOf, set: Arc<Registered>, mutation: Mutated<Mutation>) -> Reading {
        Reading {
            of,
            set,
            mutation,
            found: BTreeMap::new(),
            fresh: BTreeSet::new(),
            due: Vec::new(),
            is_different: true,
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
        if !self.open.is_empty() {
            return (Vec::new(), None);
        }
        match self.walk(group) {
            Next::Reads => {}
            Next::Ends(results) if !self.is_different || self.mutation.is(Mutation::ReadsOnce) => {
                return (Vec::new(), Some(results));
            }
            Next::Ends(_) => {
                // The next round. What this one has not used is not read again.
                self.found.retain(|place, _| self.fresh.contains(place));
                self.due = core::mem::take(&mut self.fresh).into_iter().collect();
                self.is_different = false;
            }
        }
        (self.request(&mut number), None)
    }

    /// Goes through the call by what this round has read. Collects the pieces that it still has to read.
    fn walk(&mut self, group: &Group) -> Next {
        let set = self.set.clone();
        let procedure = declared(&set, &self.of);
        let mut call = Call::new(procedure, self.of.inputs.clone()).expect("it was checked");
        let mut used = BTreeSet::new();
        let refused = loop {
            let started = match call.start(procedure) {
                Ok(started) => started,
                Err(refused) => break Some(refused),
            };
            if started.is_empty() {
                break None;
            }
            let mut refused = None;
            for start in started {
                let place = (start.piece, start.occurrence);
                used.insert(place);
                let known = self.found.get(&place);
                let is_known = known.is_some_and(|known| known.arguments == start.arguments);
                if !is_known || !self.fresh.contains(&place) {
                    self.fresh.remove(&place);
                    self.due.push(place);
                }
                if !is_known {
                    let piece = &procedure.pieces[usize::from(start.piece.0)];
                    let leading = piece.placement(set.tables(), &start.arguments);
                    let at = group.partition_of(&placement_key(&leading));
                    self.is_different = true;
                    let new = LastRead { at, arguments: start.arguments, found: None };
                    self.found.insert(place, new);
                    continue;
                }
                match self.found.get(&place).and_then(|known| known.found.as_ref()) {
                    Some(Found { outcome: Ok(outputs), .. }) if self.fresh.contains(&place) => {
                        // A correct server sends outputs of the right types. Others leave the call unanswered.
                        drop(call.executed(procedure, place, outputs.clone()));
                    }
                    Some(Found { outcome: Err(why), .. }) if self.fresh.contains(&place) => {
                        refused.get_or_insert_with(|| why.clone());
                    }
                    _ => {}
                }
            }
            if refused.is_some() {
                break refused;
            }
        };
        if !self.due.is_empty() || (refused.is_none() && !call.has_executed_all()) {
            return Next::Reads;
        }
        self.fresh.retain(|place| used.contains(place));
        Next::Ends(match refused {
            Some(refused) => Err(refused),
            None => call.results(procedure),
        })
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

fn declared<'s>(set: &'s Registered, of: &CallOf) -> &'s Procedure {
    set.procedure(of.procedure).expect("the call was checked")
}
