//! The coordination of a call that writes nothing (002 §4.1): it reads until two rounds find the same.
//!
//! Rounds are compared by the versions of the rows that they have read, not by values, because a value can come back.

use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::Group;
use serried_model::Key;
use serried_procedures::{Call, Datum, PieceId, Procedure, Refused, placement_key};

use super::message::{CallOf, Found, Occurrence, Read, Request};
use super::registered::Registered;
use super::run::Requests;

/// A read-only call that is being coordinated.
#[derive(Debug)]
pub(super) struct Reading {
    of: CallOf,
    set: Arc<Registered>,
    round: Round,
    /// What the round before has read.
    before: Option<Versions>,
}

/// By piece and occurrence, the rows that it has read, with their versions.
type Versions = BTreeMap<(PieceId, u32), Vec<(Key, u64)>>;

/// One round.
#[derive(Debug)]
struct Round {
    call: Call,
    /// The requests that were not answered, by their numbers.
    open: BTreeMap<u64, (u16, Vec<Occurrence>)>,
    versions: Versions,
    refused: Option<Refused>,
}

impl Round {
    fn new(call: Call) -> Round {
        Round { call, open: BTreeMap::new(), versions: BTreeMap::new(), refused: None }
    }
}

impl Reading {
    /// A call that has read nothing yet.
    pub(super) fn new(of: CallOf, set: Arc<Registered>, call: Call) -> Reading {
        Reading { of, set, round: Round::new(call), before: None }
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
        self.round.open.keys().copied()
    }

    /// The requests that are to be sent, or the results. `number` makes the numbers of requests.
    pub(super) fn proceed(
        &mut self,
        group: &Group,
        mut number: impl FnMut() -> u64,
    ) -> (Requests, Option<Result<Vec<Datum>, Refused>>) {
        loop {
            let requests = self.start(group, &mut number);
            if !requests.is_empty() || !self.round.open.is_empty() {
                return (requests, None);
            }
            if let Some(results) = self.end_round() {
                return (Vec::new(), Some(results));
            }
        }
    }

    fn declared(&self) -> &Procedure {
        self.set.procedure(self.of.procedure).expect("the call was checked")
    }

    fn start(&mut self, group: &Group, number: &mut impl FnMut() -> u64) -> Requests {
        if self.round.refused.is_some() {
            return Vec::new();
        }
        let set = self.set.clone();
        let procedure = set.procedure(self.of.procedure).expect("the call was checked");
        let started = match self.round.call.start(procedure) {
            Ok(started) => started,
            Err(refused) => {
                self.round.refused = Some(refused);
                return Vec::new();
            }
        };
        let mut by_partition: BTreeMap<u16, Vec<Occurrence>> = BTreeMap::new();
        for start in started {
            let piece = &procedure.pieces[usize::from(start.piece.0)];
            let leading = piece.placement(set.tables(), &start.arguments);
            let at = group.partition_of(&placement_key(&leading));
            by_partition.entry(at).or_default().push(Occurrence {
                piece: start.piece,
                number: start.occurrence,
                arguments: start.arguments,
            });
        }
        let mut requests = Vec::with_capacity(by_partition.len());
        for (at, pieces) in by_partition {
            let number = number();
            requests.push((at, self.request(number, pieces.clone())));
            self.round.open.insert(number, (at, pieces));
        }
        requests
    }

    fn request(&self, number: u64, pieces: Vec<Occurrence>) -> Request {
        let CallOf { set, procedure, .. } = self.of;
        Request::Read(Read { number, set, procedure, pieces })
    }

    /// A request was answered.
    pub(super) fn on_found(&mut self, number: u64, found: Vec<Found>) {
        let Some((_, pieces)) = self.round.open.remove(&number) else { return };
        let set = self.set.clone();
        let procedure = set.procedure(self.of.procedure).expect("the call was checked");
        for (occurrence, Found { outcome, versions }) in pieces.into_iter().zip(found) {
            let place = (occurrence.piece, occurrence.number);
            self.round.versions.insert(place, versions);
            match outcome {
                // A correct server sends outputs of the right types. Others leave the call unanswered.
                Ok(outputs) => drop(self.round.call.executed(procedure, place, outputs)),
                Err(refused) => {
                    self.round.refused.get_or_insert(refused);
                }
            }
        }
    }

    /// The results, if the round before has read the same. Otherwise begins another round.
    fn end_round(&mut self) -> Option<Result<Vec<Datum>, Refused>> {
        let inputs = self.of.inputs.clone();
        let call = Call::new(self.declared(), inputs).expect("the inputs were checked");
        let Round { call, versions, refused, .. } =
            core::mem::replace(&mut self.round, Round::new(call));
        let is_same = self.before.as_ref() == Some(&versions);
        self.before = Some(versions);
        is_same.then(|| match refused {
            Some(refused) => Err(refused),
            None => call.results(self.declared()),
        })
    }

    /// The requests that were not answered.
    pub(super) fn unanswered(&self) -> Requests {
        let open = self.round.open.iter();
        open.map(|(number, (at, pieces))| (*at, self.request(*number, pieces.clone()))).collect()
    }
}
