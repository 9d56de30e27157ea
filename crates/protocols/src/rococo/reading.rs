//! The coordination of a call that writes nothing (002 §4.1): it reads until two rounds find the same.
//!
//! Rounds are compared by the versions of the rows that they have read, not by values, because a value can come back. In
//! the first round, pieces wait for the outputs of others. Each further round reads all pieces again at once, and names the
//! versions that it expects. If some have changed, other pieces may have to be read in the same round. The call is over when
//! a round has found what the one before has found: then nothing has changed between the last read of that round and the
//! first read of this one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::Group;
use serried_parts::Map;
use serried_procedures::{Call, Datum, PieceId, Refused, Start, placement_key};

use super::Mutation;
use super::message::{Found, Occurrence, Read, Request};
use super::registered::Registered;
use super::run::Requests;
use crate::Mutated;

/// A read-only call that is being coordinated.
#[derive(Debug)]
pub(super) struct Reading {
    /// The place of the procedure in its set.
    procedure: u16,
    /// The call before its first piece.
    call: Call,
    set: Arc<Registered>,
    mutation: Mutated<Mutation>,
    /// The pieces that were read. Occurrences with equal arguments are one piece: when an order is added to the last twenty,
    /// nineteen remain, although each is in another place then.
    pieces: Vec<PieceRead>,
    /// Their places.
    places: Map<Arc<Asked>, Option<usize>>,
    /// The place after that of the occurrence before: mostly that of the next one, as in the round before.
    next: usize,
    /// Those that are to be read now.
    due: Vec<usize>,
    /// Whether this round has found something else than the round before. So has the first.
    is_different: bool,
    /// The call as far as this round has gone through it.
    walk: Option<Walk>,
    /// The results by what the round before has found.
    results: Option<Result<Vec<Datum>, Refused>>,
    /// The requests that were not answered, by their numbers.
    open: BTreeMap<u64, (u16, Vec<usize>)>,
}

/// A piece and its arguments.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Asked {
    piece: PieceId,
    arguments: Arc<[Datum]>,
}

/// The latest read of a piece.
#[derive(Debug)]
struct PieceRead {
    asked: Arc<Asked>,
    /// The partition of its rows.
    at: u16,
    /// Whether this round has read it.
    is_fresh: bool,
    /// Whether the call uses it, as far as this round has gone through the call.
    is_used: bool,
    /// `None` if it was not answered yet.
    found: Option<Box<Found>>,
}

/// A call, as far as what was read tells.
#[derive(Debug)]
struct Walk {
    call: Call,
    /// Its occurrences whose outputs it does not have yet, and the piece that each is.
    awaits: Vec<((PieceId, u32), usize)>,
    refused: Option<Refused>,
}

impl Reading {
    /// A call that has read nothing yet.
    pub(super) fn new(
        procedure: u16,
        call: Call,
        set: Arc<Registered>,
        mutation: Mutated<Mutation>,
    ) -> Reading {
        Reading {
            procedure,
            call,
            set,
            mutation,
            pieces: Vec::new(),
            places: Map::default(),
            next: 0,
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
        self.procedure
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
            let is_over = !self.is_different || self.mutation.is(Mutation::ReadsOnce);
            if is_over && let Some(results) = self.results.take() {
                return (Vec::new(), Some(results));
            }
            if let Some(results) = self.walk(group) {
                self.results = Some(results);
                self.begin_round();
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

    /// Begins another round, which reads again what the last one has used.
    fn begin_round(&mut self) {
        self.is_different = false;
        let before = self.pieces.len();
        self.pieces.retain(|piece| piece.is_used);
        if self.pieces.len() < before {
            self.places.clear();
            for (at, piece) in self.pieces.iter().enumerate() {
                self.places.insert(piece.asked.clone(), Some(at));
            }
        }
        for piece in &mut self.pieces {
            piece.is_fresh = false;
            piece.is_used = false;
        }
        self.due = (0..self.pieces.len()).collect();
    }

    /// Goes on through the call by what this round has read. Collects the pieces that it still has to read, or returns the
    /// results.
    fn walk(&mut self, group: &Group) -> Option<Result<Vec<Datum>, Refused>> {
        let set = self.set.clone();
        let procedure = set.procedure(self.procedure).expect("the call was checked");
        let begin = || Walk { call: self.call.clone(), awaits: Vec::new(), refused: None };
        let Walk { mut call, mut awaits, mut refused } = self.walk.take().unwrap_or_else(begin);
        loop {
            awaits.retain(|(occurrence, at)| {
                let piece = &self.pieces[*at];
                let Some(found) = piece.found.as_ref().filter(|_| piece.is_fresh) else {
                    return true;
                };
                match &found.outcome {
                    // A correct server sends outputs of the right types. Others leave the call unanswered.
                    Ok(outputs) => drop(call.executed(procedure, *occurrence, outputs.clone())),
                    Err(why) => drop(refused.get_or_insert_with(|| why.clone())),
                }
                false
            });
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
                let occurrence = (start.piece, start.occurrence);
                let at = self.place(start, &set, group);
                self.pieces[at].is_used = true;
                awaits.push((occurrence, at));
            }
        }
        let is_over = awaits.is_empty() && (refused.is_some() || call.has_executed_all());
        if !is_over {
            self.walk = Some(Walk { call, awaits, refused });
            return None;
        }
        Some(match refused {
            Some(refused) => Err(refused),
            None => call.results(procedure),
        })
    }

    /// The place of the piece that an occurrence is. It is due if it is a new one.
    fn place(&mut self, start: Start, set: &Registered, group: &Group) -> usize {
        let Start { piece, arguments, .. } = start;
        let asked = Asked { piece, arguments };
        if self.pieces.get(self.next).is_some_and(|next| *next.asked == asked) {
            self.next += 1;
            return self.next - 1;
        }
        let asked = Arc::new(asked);
        let at = self.pieces.len();
        let place = self.places.get_or_default(&asked);
        if let Some(at) = *place {
            self.next = at + 1;
            return at;
        }
        *place = Some(at);
        let declared = set.piece(self.procedure, piece).expect("the call has it");
        let leading = declared.placement(set.tables(), &asked.arguments);
        let partition = group.partition_of(&placement_key(&leading));
        self.next = at + 1;
        let (is_fresh, is_used, found) = (false, false, None);
        self.pieces.push(PieceRead { asked, at: partition, is_fresh, is_used, found });
        self.due.push(at);
        self.is_different = true;
        at
    }

    /// Reads the pieces that are due.
    fn request(&mut self, number: &mut impl FnMut() -> u64) -> Requests {
        let mut by_partition: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for at in core::mem::take(&mut self.due) {
            by_partition.entry(self.pieces[at].at).or_default().push(at);
        }
        let mut requests = Vec::with_capacity(by_partition.len());
        for (partition, places) in by_partition {
            let number = number();
            requests.push((partition, self.read(number, &places)));
            self.open.insert(number, (partition, places));
        }
        requests
    }

    fn read(&self, number: u64, places: &[usize]) -> Request {
        let (set, procedure) = (self.set.version(), self.procedure);
        let of_procedure = self.set.procedure(procedure).map_or(0, |of| of.pieces.len());
        let mut numbers = vec![0; of_procedure];
        let mut pieces = Vec::with_capacity(places.len());
        let mut known = Vec::with_capacity(places.len());
        for at in places {
            let PieceRead { asked, found, .. } = &self.pieces[*at];
            let next: &mut u32 = &mut numbers[usize::from(asked.piece.0)];
            let number = core::mem::replace(next, *next + 1);
            let Asked { piece, ref arguments } = **asked;
            pieces.push(Occurrence { piece, number, arguments: arguments.clone() });
            known.push(found.as_ref().map(|found| found.versions.clone()));
        }
        Request::Read(Read { number, set, procedure, pieces, known })
    }

    /// A request was answered.
    pub(super) fn on_found(&mut self, number: u64, found: Vec<Option<Box<Found>>>) {
        let Some((_, places)) = self.open.remove(&number) else { return };
        for (at, found) in places.into_iter().zip(found) {
            let piece = &mut self.pieces[at];
            piece.is_fresh = true;
            if found.is_some() {
                self.is_different = true;
                piece.found = found;
            }
        }
    }

    /// The requests that were not answered.
    pub(super) fn unanswered(&self) -> Requests {
        let open = self.open.iter();
        open.map(|(number, (at, places))| (*at, self.read(*number, places))).collect()
    }
}
