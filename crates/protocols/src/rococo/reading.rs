//! The coordination of a call that writes nothing (002 §4.1): it reads until two rounds find the same.
//!
//! Rounds are compared by the versions of the rows that they have read, not by values, because a value can come back. In
//! the first round, pieces wait for the outputs of others. Each further round reads all pieces again at once. It names the
//! answers of the round before, whose pieces and versions the leaders remember, or else sends the pieces and the versions.
//! If some have changed, other pieces may have to be read in the same round. The call is over when a round has found what
//! the one before has found: then nothing has changed between the last read of that round and the first read of this one.
//!
//! No piece is read while a transaction conflicts with it. In the first round, leaders wait for the end of such transactions.
//! Meanwhile others change what was read elsewhere, so a further round that waits mostly fails. Its leaders do not wait, but
//! answer that pieces conflict. The call asks these leaders again after a pause, until nothing conflicts there. Then it
//! begins the round again. It also pauses when several rounds in a row have found something else than those before them.
//! Pauses become longer, from half of the time in which leaders have answered last to sixteen times that time. So calls that
//! are unlucky do not keep leaders busy, and the less so the busier these are.
//!
//! If something conflicts for many pauses, the call forgets what it has read, and begins with a first round again. What has
//! conflicted may be nothing that it would read now.
//!
//! If the procedure allows it, a call is ordered among those that write as soon as something conflicts, in any round, or a
//! further round has found something else (`reading/ordered.rs`). Its leaders never wait in a round.

mod ordered;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Group, Timestamp};
use serried_parts::Map;
use serried_procedures::{Call, Datum, PieceId, Refused, Start, placement_key};

use super::Mutation;
use super::message::{Again, AnswerName, Found, Occurrence, OnConflict, Read, Request};
use super::registered::Registered;
use super::run::Requests;
use crate::Mutated;
use ordered::Ordering;

/// After how many rounds in a row a call pauses, if it is not over.
const ROUNDS_IN_A_ROW: u32 = 4;

/// After how many pauses in one round a call begins anew, if something conflicts still.
const PAUSES_IN_A_ROUND: u32 = 10;

/// The shortest pause.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);

/// The longest pause, beside four round trips to the farthest replica.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

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
    /// Their places, once an occurrence of this round was not where the round before had it.
    places: Option<Map<Asked, usize>>,
    /// The place after that of the occurrence before: mostly that of the next one, as in the round before.
    next: usize,
    /// Those that are to be read now.
    due: Vec<usize>,
    /// Whether those that are due are all pieces, which this round reads again.
    is_again: bool,
    /// The pieces that are to be read after a pause, by leader.
    later: Vec<(u16, Vec<usize>)>,
    /// Whether pieces have conflicted in this round, so that it has to begin again.
    is_spoiled: bool,
    /// How many pauses there were.
    pauses: u32,
    /// How many of them in this round.
    pauses_in_round: u32,
    /// When the requests that were not answered were sent, if their leaders do not wait.
    asked: Option<Timestamp>,
    /// How long such requests have taken last.
    took: Duration,
    /// Whether the call is ordered, and how far.
    ordering: Ordering,
    /// The partitions of the transaction.
    reads: BTreeSet<u16>,
    /// Numbers the pieces that the transaction starts.
    numbers: Numbers,
    /// Whether the transaction lacks pieces that the call has.
    is_lacking: bool,
    /// Whether the transaction ends with the pieces that are known, because a server did not answer what had to be predicted.
    gave_up: bool,
    /// Whether the call is ordered without trying to read the same twice.
    at_once: bool,
    /// Whether this round has found something else than the round before. So has the first.
    is_different: bool,
    /// Counts the rounds.
    round: u32,
    /// The call as far as this round has gone through it.
    walk: Option<Walk>,
    /// The results by what the round before has found.
    results: Option<Result<Vec<Datum>, Refused>>,
    /// The requests that were not answered, by their numbers.
    open: BTreeMap<u64, Open>,
}

/// What a read-only call has to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Send these requests. If there are none, a request is open, or the call pauses ([`Reading::pause`]).
    Read(Requests),
    /// Start these pieces, by partition, in a transaction of these partitions.
    Start { reads: Vec<u16>, pieces: Vec<(u16, Vec<Occurrence>)> },
    /// Commit this transaction.
    Commit,
    /// Report these results.
    End(Result<Vec<Datum>, Refused>),
}

/// A request that was not answered.
#[derive(Debug)]
struct Open {
    at: u16,
    /// The pieces.
    places: Vec<usize>,
    on_conflict: OnConflict,
}

/// A piece and its arguments.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Asked {
    piece: PieceId,
    arguments: Arc<[Datum]>,
}

/// The latest read of a piece.
#[derive(Debug)]
struct PieceRead {
    asked: Asked,
    /// The partition of its rows.
    at: u16,
    /// Whether this round has read it.
    is_fresh: bool,
    /// Whether the call uses it, as far as this round has gone through the call.
    is_used: bool,
    /// Whether it was used by what was predicted.
    was_used: bool,
    /// `None` if it was not answered yet.
    found: Option<Box<Found>>,
    /// The answer that has told this last, if its leader remembers it, and the place of the piece in it.
    told: Option<(AnswerName, u32)>,
    /// Whether a transaction finds its outputs when it is started.
    is_immediate: bool,
    /// Whether other pieces need its outputs.
    is_needed: bool,
    /// Its number in the transaction, if that has started it.
    started: Option<u32>,
    /// What the transaction has found.
    ordered: Option<Result<Vec<Datum>, Refused>>,
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
            places: None,
            next: 0,
            due: Vec::new(),
            is_again: false,
            later: Vec::new(),
            is_spoiled: false,
            pauses: 0,
            pauses_in_round: 0,
            asked: None,
            took: Duration::ZERO,
            ordering: Ordering::No,
            reads: BTreeSet::new(),
            numbers: Numbers::default(),
            is_lacking: false,
            gave_up: false,
            at_once: false,
            is_different: true,
            round: 1,
            walk: None,
            results: None,
            open: BTreeMap::new(),
        }
    }

    /// Orders the call without trying to read the same twice, if it can be ordered.
    #[must_use]
    pub(super) fn under_contention(mut self) -> Reading {
        if self.can_be_ordered() {
            self.ordering = Ordering::Predicts;
            self.at_once = true;
        }
        self
    }

    /// Whether it is ordered without trying to read the same twice.
    pub(super) fn is_ordered_at_once(&self) -> bool {
        self.at_once
    }

    pub(super) fn set(&self) -> &Arc<Registered> {
        &self.set
    }

    /// The place of the procedure in its set.
    pub(super) fn procedure(&self) -> u16 {
        self.procedure
    }

    /// The call before its first piece.
    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// The numbers of the requests that were not answered.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied()
    }

    /// What to do next. `number` makes the numbers of requests.
    pub(super) fn proceed(
        &mut self,
        (group, now): (&Group, Timestamp),
        mut number: impl FnMut() -> u64,
    ) -> Next {
        match self.ordering {
            Ordering::No => {}
            Ordering::Starts { .. } | Ordering::Commits => return Next::Read(Vec::new()),
            Ordering::Predicts | Ordering::Prepares if !self.open.is_empty() => {
                return Next::Read(Vec::new());
            }
            Ordering::Predicts => return self.predict(group, &mut number, now),
            Ordering::Prepares => return self.prepare(group, &mut number, now),
            Ordering::Started => {
                self.ordering = Ordering::Commits;
                return Next::Commit;
            }
            Ordering::Checks => {
                if let Some(results) = self.walk(group) {
                    return Next::End(results);
                }
                self.keep_what_was_found();
                return self.prepare(group, &mut number, now);
            }
        }
        if let Some(asked) = self.asked.take_if(|_| self.open.is_empty()) {
            self.took = now.since(asked);
        }
        let still_conflicts = self.open.is_empty() && !self.later.is_empty();
        if still_conflicts && self.can_be_ordered() {
            self.begin_to_order();
            return self.predict(group, &mut number, now);
        }
        if still_conflicts && self.pauses_in_round >= PAUSES_IN_A_ROUND {
            self.begin_anew();
        }
        while self.open.is_empty() && self.later.is_empty() {
            if core::mem::take(&mut self.is_spoiled) {
                self.read_all();
                return Next::Read(self.request(&mut number, now));
            }
            let is_over = !self.is_different || self.mutation.is(Mutation::ReadsOnce);
            if is_over && let Some(results) = self.results.take() {
                return Next::End(results);
            }
            if let Some(results) = self.walk(group) {
                self.results = Some(results);
                if self.round > 1 && self.can_be_ordered() {
                    self.begin_to_order();
                    return self.predict(group, &mut number, now);
                }
                self.begin_round();
                if self.round > 1 && self.round % ROUNDS_IN_A_ROW == 1 {
                    self.later = self.due_by_partition();
                    self.is_again = false;
                    return Next::Read(Vec::new());
                }
            }
            if !self.due.is_empty() {
                return Next::Read(self.request(&mut number, now));
            }
            if self.walk.is_some() {
                break; // A server has sent what no correct one sends.
            }
        }
        Next::Read(Vec::new())
    }

    fn can_be_ordered(&self) -> bool {
        self.set.procedure(self.procedure).is_some_and(|procedure| procedure.ordered)
    }

    /// Begins another round, which reads again what the last one has used.
    fn begin_round(&mut self) {
        self.is_different = false;
        self.round += 1;
        self.pauses_in_round = 0;
        self.places = None;
        self.next = 0;
        self.pieces.retain(|piece| piece.is_used);
        self.pieces.iter_mut().for_each(|piece| piece.is_used = false);
        self.read_all();
    }

    /// Forgets what was read, and reads as in the first round.
    fn begin_anew(&mut self) {
        self.pieces.clear();
        self.later.clear();
        self.is_spoiled = false;
        self.is_different = true;
        self.results = None;
        self.round = 1;
        self.pauses_in_round = 0;
        self.places = None;
        self.next = 0;
    }

    /// All pieces are due.
    fn read_all(&mut self) {
        self.pieces.iter_mut().for_each(|piece| piece.is_fresh = false);
        self.due = (0..self.pieces.len()).collect();
        self.is_again = true;
    }

    /// How long to pause, if that is all there is to do.
    pub(super) fn pause(&self, group: &Group) -> Option<Duration> {
        if !self.open.is_empty() || self.later.is_empty() {
            return None;
        }
        let longest = LONGEST_PAUSE + 4 * group.round_trip();
        let times = 1 << self.pauses.min(5);
        Some((self.took / 2 * times).clamp(SHORTEST_PAUSE, longest))
    }

    /// The pause is over: asks leaders again.
    pub(super) fn resume(&mut self, now: Timestamp, mut number: impl FnMut() -> u64) -> Requests {
        self.pauses += 1;
        self.pauses_in_round += 1;
        self.asked = Some(now);
        let later = core::mem::take(&mut self.later);
        let fail = OnConflict::Fail;
        later.into_iter().map(|(at, places)| self.ask(at, places, fail, number())).collect()
    }

    /// Goes on through the call by what was found. Collects the pieces that it still has to read, or returns the results.
    fn walk(&mut self, group: &Group) -> Option<Result<Vec<Datum>, Refused>> {
        self.go_on(group);
        let set = self.set.clone();
        let procedure = set.procedure(self.procedure).expect("the call was checked");
        let is_over = |Walk { call, awaits, refused }: &mut Walk| {
            awaits.is_empty() && (refused.is_some() || call.has_executed_all())
        };
        let Walk { call, refused, .. } = self.walk.take_if(is_over)?;
        Some(match refused {
            Some(refused) => Err(refused),
            None => call.results(procedure),
        })
    }

    /// Goes on through the call by what was found. Returns whether no other pieces follow.
    fn go_on(&mut self, group: &Group) -> bool {
        let set = self.set.clone();
        let procedure = set.procedure(self.procedure).expect("the call was checked");
        let begin = || Walk { call: self.call.clone(), awaits: Vec::new(), refused: None };
        let Walk { mut call, mut awaits, mut refused } = self.walk.take().unwrap_or_else(begin);
        loop {
            awaits.retain(|(occurrence, at)| {
                match self.outcome(*at) {
                    None => return true,
                    // A correct server sends outputs of the right types. Others leave the call unanswered.
                    Some(Ok(outputs)) => {
                        drop(call.executed(procedure, *occurrence, outputs.clone()));
                    }
                    Some(Err(why)) => drop(refused.get_or_insert_with(|| why.clone())),
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
        let is_complete = refused.is_some() || call.has_started_all();
        self.walk = Some(Walk { call, awaits, refused });
        is_complete
    }

    /// What a piece has found, or is predicted to find, as far as the call goes by that now.
    fn outcome(&self, at: usize) -> Option<&Result<Vec<Datum>, Refused>> {
        let piece = &self.pieces[at];
        let found = piece.found.as_ref().map(|found| &found.outcome);
        let is_predicted = piece.is_needed && !piece.is_immediate;
        match self.ordering {
            Ordering::No => found.filter(|_| piece.is_fresh),
            Ordering::Predicts => found,
            Ordering::Checks if !is_predicted || !self.mutation.is(Mutation::OrdersUnchecked) => {
                piece.ordered.as_ref()
            }
            _ if piece.is_immediate => piece.ordered.as_ref(),
            _ => found,
        }
    }

    /// The place of the piece that an occurrence is. It is due if it is a new one.
    fn place(&mut self, start: Start, set: &Registered, group: &Group) -> usize {
        let Start { piece, arguments, .. } = start;
        let asked = Asked { piece, arguments };
        if self.pieces.get(self.next).is_some_and(|next| next.asked == asked) {
            self.next += 1;
            return self.next - 1;
        }
        let at = self.pieces.len();
        // In the first round nothing was read before. Occurrences with equal arguments are rare, and are read each.
        if self.results.is_some() || self.ordering != Ordering::No {
            let places = self.places.get_or_insert_with(|| places(&self.pieces));
            if let Some(at) = places.get(&asked).copied() {
                self.next = at + 1;
                return at;
            }
            places.insert(asked.clone(), at);
        }
        let declared = set.piece(self.procedure, piece).expect("the call has it");
        let leading = declared.placement(set.tables(), &asked.arguments);
        let partition = group.partition_of(&placement_key(&leading));
        self.next = at + 1;
        let all = &set.procedure(self.procedure).expect("the call has it").pieces;
        self.pieces.push(PieceRead {
            asked,
            at: partition,
            is_fresh: false,
            is_used: false,
            was_used: false,
            found: None,
            told: None,
            is_immediate: declared.immediate,
            is_needed: all.iter().any(|other| other.after.contains(&piece)),
            started: None,
            ordered: None,
        });
        self.due.push(at);
        self.is_different = true;
        at
    }

    /// Reads the pieces that are due.
    fn request(&mut self, number: &mut impl FnMut() -> u64, now: Timestamp) -> Requests {
        let due = self.due_by_partition();
        let is_again = core::mem::take(&mut self.is_again);
        let on_conflict = match self.ordering {
            Ordering::No if is_again || self.can_be_ordered() => OnConflict::Fail,
            Ordering::No => OnConflict::Wait,
            _ => OnConflict::Predict,
        };
        self.asked = Some(now).filter(|_| on_conflict == OnConflict::Fail);
        let ask = |(at, places)| self.ask(at, places, on_conflict, number());
        due.into_iter().map(ask).collect()
    }

    /// The pieces that are due, by partition. They are due no more.
    fn due_by_partition(&mut self) -> Vec<(u16, Vec<usize>)> {
        let mut by_partition: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for at in core::mem::take(&mut self.due) {
            by_partition.entry(self.pieces[at].at).or_default().push(at);
        }
        by_partition.into_iter().collect()
    }

    fn ask(
        &mut self,
        at: u16,
        mut places: Vec<usize>,
        on_conflict: OnConflict,
        number: u64,
    ) -> (u16, Request) {
        places.sort_by_key(|at| self.pieces[*at].told);
        let open = Open { at, places, on_conflict };
        let request = self.read(number, &open, true);
        self.open.insert(number, open);
        (at, request)
    }

    /// A request to read pieces, in the order of `told`. If it `names` former answers, it does not send their pieces.
    fn read(&self, number: u64, Open { places, on_conflict, .. }: &Open, names: bool) -> Request {
        let (set, procedure) = (self.set.version(), self.procedure);
        let mut numbers = Numbers::default();
        let is_named = |at: &&usize| names && self.pieces[**at].told.is_some();
        let sent = places.len() - places.iter().filter(is_named).count();
        let mut pieces = Vec::with_capacity(sent);
        let mut known = Vec::with_capacity(sent);
        let mut again: Vec<Again> = Vec::new();
        for at in places {
            let PieceRead { asked, found, told, .. } = &self.pieces[*at];
            if let Some((name, place)) = told.filter(|_| names) {
                keep(&mut again, name, place);
                continue;
            }
            let Asked { piece, ref arguments } = *asked;
            let number = numbers.next(piece);
            pieces.push(Occurrence { piece, number, arguments: arguments.clone() });
            known.push(found.as_ref().map(|found| found.versions.clone()));
        }
        let on_conflict = *on_conflict;
        Request::Read(Read { number, set, procedure, pieces, known, again, on_conflict })
    }

    /// A request was answered. Returns false if no correct server answers it so.
    #[must_use]
    pub(super) fn on_found(
        &mut self,
        number: u64,
        found: Vec<Option<Box<Found>>>,
        name: Option<AnswerName>,
    ) -> bool {
        let is_answer = |open: &Open| open.places.len() == found.len();
        if !self.open.get(&number).is_some_and(is_answer) {
            return false;
        }
        let Some(open) = self.open.remove(&number) else { return false };
        for (place, (at, found)) in open.places.into_iter().zip(found).enumerate() {
            let piece = &mut self.pieces[at];
            piece.is_fresh = true;
            piece.told = name.map(|name| (name, place as u32));
            if found.is_some() {
                self.is_different = true;
                piece.found = found;
            }
        }
        true
    }

    /// A leader has read none of the pieces of a request, because some conflict with transactions. Returns false if no
    /// correct server answers the request so.
    #[must_use]
    pub(super) fn on_conflict(&mut self, number: u64, name: Option<AnswerName>) -> bool {
        let may_fail = |open: &Open| open.on_conflict == OnConflict::Fail;
        if !self.open.get(&number).is_some_and(may_fail) {
            return false;
        }
        let Some(Open { at, places, .. }) = self.open.remove(&number) else { return false };
        for (place, piece) in places.iter().enumerate() {
            self.pieces[*piece].told = name.map(|name| (name, place as u32));
        }
        self.later.push((at, places));
        self.is_spoiled = true;
        true
    }

    /// The leader does not know the answers that a request has named. Returns the request that sends the pieces.
    pub(super) fn on_forgotten(&mut self, number: u64, new: u64) -> Option<(u16, Request)> {
        let open = self.open.remove(&number)?;
        let request = (open.at, self.read(new, &open, false));
        self.open.insert(new, open);
        Some(request)
    }

    /// The requests that were not answered. They name no former answers: if a leader has received one of them, it has
    /// forgotten these, and so has a new leader.
    pub(super) fn unanswered(&self) -> Requests {
        let open = self.open.iter();
        open.map(|(number, open)| (open.at, self.read(*number, open, false))).collect()
    }
}

/// Numbers the occurrences of each piece from 0.
#[derive(Default, Debug)]
struct Numbers(Vec<u32>);

impl Numbers {
    fn next(&mut self, PieceId(piece): PieceId) -> u32 {
        let piece = usize::from(piece);
        if self.0.len() <= piece {
            self.0.resize(piece + 1, 0);
        }
        let next = &mut self.0[piece];
        core::mem::replace(next, *next + 1)
    }
}

/// Where each piece is.
fn places(pieces: &[PieceRead]) -> Map<Asked, usize> {
    let mut places = Map::default();
    for (at, piece) in pieces.iter().enumerate() {
        places.insert(piece.asked.clone(), at);
    }
    places
}

/// Adds a place of an answer to what is to be read again. It comes after those that were added before.
fn keep(again: &mut Vec<Again>, name: AnswerName, place: u32) {
    match again.last_mut() {
        Some(last) if last.name == name => match last.kept.last_mut() {
            Some((_, end)) if *end == place => *end += 1,
            _ => last.kept.push((place, place + 1)),
        },
        _ => again.push(Again { name, kept: vec![(place, place + 1)] }),
    }
}
