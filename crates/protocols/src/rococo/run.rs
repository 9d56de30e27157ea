//! The coordination of a call that writes: its start phase and its commit phase (002 §3.2).
//!
//! A read-only call can be ordered in the same way (`reading/ordered.rs`). Its partitions are known from the beginning. The
//! client decides which pieces they start. A server that has to finish the call does not know them. So it has each partition
//! close the call: from then on, the partition starts no pieces of it. So all coordinators find the same edges. What such a
//! call has found is of use only to its client.
//!
//! Servers remember what they have started and executed. So several nodes can coordinate a call, one after the other or at
//! the same time: the client, and servers if the client is silent.

mod merged;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Group, Timestamp};
use serried_model::Version;
use serried_procedures::{Call, Datum, PieceId, Procedure, Refused, Start as Begun, placement_key};

use super::merged::{Hold, HoldEnd, HoldReply, MergedPiece, group_of};
use super::message::{
    Ancestors, CallOf, Commit, Edge, Executed, NotStarted, Occurrence, Reply, Request, Start,
    Started, StartedPiece, Vertex,
};
use super::registered::Registered;
use merged::{Ask, HeldAll, Holding, Next};

/// A call that is being coordinated.
#[derive(Debug)]
pub(super) struct Run {
    txn: Version,
    of: Arc<CallOf>,
    set: Arc<Registered>,
    call: Call,
    parts: BTreeMap<u16, Part>,
    /// What is known of transactions before this one: those that commit, and those that were executed.
    committing: BTreeMap<Version, Vertex>,
    cycles: Vec<Arc<[Vertex]>>,
    executed: BTreeSet<Version>,
    /// Whether a partition has started it, so that all have to.
    insists: bool,
    refused: Option<Refused>,
    commit: Option<Arc<Commit>>,
    /// Pieces of merged pieces that can be started, each with its merged piece and its partition.
    merged: Vec<(u16, u16, Occurrence)>,
    /// The merged piece that is under way.
    holding: Option<Box<Holding>>,
    /// Pieces that can be started, as a merged piece was.
    later: Vec<Begun>,
    /// What the pieces of a read-only call have found. `None` if the call writes.
    found: Option<FoundPieces>,
}

/// What pieces of a read-only call have found.
pub(super) type FoundPieces = BTreeMap<(PieceId, u32), Result<Vec<Datum>, Refused>>;

/// What a call has at a partition.
#[derive(Debug, Default)]
struct Part {
    /// The pieces, in the order of their start.
    pieces: Vec<Occurrence>,
    /// Those that the partition has started.
    started: BTreeSet<(PieceId, u32)>,
    /// Whether it has executed the call, and has said so of these pieces. If it has not started them all, another
    /// coordinator has committed the call with fewer pieces, because it was refused.
    is_over: bool,
    not_started: Option<NotStarted>,
    edges: BTreeSet<Edge>,
    executed: bool,
    /// Whether it has to say which pieces it has started: perhaps others than those that are known.
    is_asked: bool,
    /// When pieces of a read-only call were sent to it last.
    told_at: Timestamp,
}

impl Part {
    fn is_started(&self) -> bool {
        self.is_over || self.has_started_known() && !self.is_asked
    }

    /// Whether nothing was asked of it.
    fn is_untouched(&self) -> bool {
        self.pieces.is_empty() && !self.is_asked && self.started.is_empty()
    }

    fn has_started_known(&self) -> bool {
        self.pieces.iter().all(|piece| self.started.contains(&(piece.piece, piece.number)))
    }
}

/// Requests, each with the partition to whose leader it goes.
pub(super) type Requests = Vec<(u16, Request)>;

/// What comes of a reply.
#[derive(Debug)]
pub(super) enum Step {
    /// These requests are to be sent; mostly none.
    Send(Requests),
    /// All pieces of a read-only call are started that were to be started.
    Started,
    /// No partition has started the call, and none will under this version.
    NotStarted(NotStarted),
    /// The call was executed: its results, or why it was refused.
    Executed(Result<Vec<Datum>, Refused>),
}

impl Run {
    /// A call that is not started yet.
    pub(super) fn new(txn: Version, of: Arc<CallOf>, set: Arc<Registered>, call: Call) -> Run {
        Run {
            txn,
            of,
            set,
            call,
            parts: BTreeMap::new(),
            committing: BTreeMap::new(),
            cycles: Vec::new(),
            executed: BTreeSet::new(),
            insists: false,
            refused: None,
            commit: None,
            merged: Vec::new(),
            holding: None,
            later: Vec::new(),
            found: None,
        }
    }

    /// A read-only call that is to be ordered.
    pub(super) fn ordered(txn: Version, of: Arc<CallOf>, set: Arc<Registered>, call: Call) -> Run {
        let parts = of.reads.iter().map(|at| (*at, Part::default())).collect();
        Run { parts, found: Some(BTreeMap::new()), ..Run::new(txn, of, set, call) }
    }

    /// Starts pieces of a read-only call, by partition. A partition for which there are none closes the call. Others that
    /// have heard nothing for so long are reminded of what they have started, so that they do not take the client for dead.
    pub(super) fn start_reads(
        &mut self,
        pieces: Vec<(u16, Vec<Occurrence>)>,
        now: Timestamp,
        remind_after: Duration,
    ) -> Requests {
        let mut requests = self.start_parts(pieces, now);
        for (at, part) in &mut self.parts {
            if !part.pieces.is_empty() && now.since(part.told_at) > remind_after {
                part.told_at = now;
                requests.push((*at, start(self.txn, &self.of, self.insists, part.pieces.clone())));
            }
        }
        requests
    }

    fn start_parts(&mut self, pieces: Vec<(u16, Vec<Occurrence>)>, now: Timestamp) -> Requests {
        let start = |(at, pieces): (u16, Vec<Occurrence>)| {
            let part = self.parts.entry(at).or_default();
            part.told_at = now;
            part.is_asked = pieces.is_empty();
            part.is_over = false;
            part.pieces.extend(pieces.iter().cloned());
            (at, self.start(pieces))
        };
        pieces.into_iter().map(start).collect()
    }

    /// Has all partitions close a read-only call.
    pub(super) fn close(&mut self, now: Timestamp) -> Requests {
        self.start_parts(self.parts.keys().map(|at| (*at, Vec::new())).collect(), now)
    }

    /// What those pieces of a read-only call have found that were executed: immediate ones when they were started. `None` if
    /// the call writes.
    pub(super) fn found(&self) -> Option<&FoundPieces> {
        self.found.as_ref()
    }

    /// What the pieces of a read-only call have found, when it was executed. Pieces that were not started are not there.
    pub(super) fn into_found(self) -> FoundPieces {
        self.found.unwrap_or_default()
    }

    /// Goes on with a call that some partition has started.
    #[must_use]
    pub(super) fn insisting(self) -> Run {
        Run { insists: true, ..self }
    }

    /// Makes a partition a participant that knows the call, whatever it has started of it: perhaps nothing, or what a call
    /// that is refused need not start.
    #[must_use]
    pub(super) fn with_participant(mut self, at: u16) -> Run {
        self.parts.entry(at).or_default().is_asked = true;
        self
    }

    pub(super) fn txn(&self) -> Version {
        self.txn
    }

    /// The place of the procedure in its set.
    pub(super) fn procedure(&self) -> u16 {
        self.of.procedure
    }

    pub(super) fn set(&self) -> &Arc<Registered> {
        &self.set
    }

    pub(super) fn participants(&self) -> impl Iterator<Item = u16> {
        self.parts.keys().copied()
    }

    /// Starts the first pieces.
    pub(super) fn begin(&mut self, group: &Group) -> Step {
        self.proceed(group)
    }

    /// Handles a reply of a partition's leader.
    pub(super) fn on_reply(&mut self, at: u16, reply: Reply, group: &Group) -> Step {
        match reply {
            Reply::Started(started) => self.on_started(at, started, group),
            Reply::NotStarted { why, .. } => self.on_not_started(at, why),
            Reply::Executed { outputs, .. } => self.on_executed(at, &outputs),
            Reply::Hold(reply) => self.on_hold(at, reply, group),
            _ => Step::Send(Vec::new()),
        }
    }

    /// Pieces were started at a partition.
    fn on_started(&mut self, at: u16, started: Started, group: &Group) -> Step {
        let set = self.set.clone();
        let procedure = procedure(&set, &self.of);
        let of_merged = self.on_started_merged(at, &started, group);
        let Some(part) = self.parts.get_mut(&at) else { return Step::Send(Vec::new()) };
        part.not_started = None;
        part.is_asked = false;
        part.is_over |= started.is_over;
        part.edges.extend(started.edges);
        let Ancestors { commit, cycles, executed } = started.ancestors;
        let is_new = |cycle: &Arc<[Vertex]>| !self.cycles.contains(cycle);
        let cycles: Vec<_> = cycles.into_iter().filter(is_new).collect();
        self.cycles.extend(cycles);
        self.committing.extend(commit.into_iter().map(|vertex| (vertex.txn, vertex)));
        self.executed.extend(executed);
        let is_first = !core::mem::replace(&mut self.insists, true);
        for piece in started.pieces {
            let occurrence = (piece.piece, piece.number);
            if !part.pieces.iter().any(|own| (own.piece, own.number) == occurrence)
                || !part.started.insert(occurrence)
            {
                continue;
            }
            match (piece.outcome, &mut self.found) {
                (Some(outcome), Some(found)) => drop(found.insert(occurrence, outcome)),
                (Some(Ok(outputs)), None) => {
                    let executed = self.call.executed(procedure, occurrence, outputs);
                    // No correct server sends other outputs.
                    executed.is_err().then(|| part.started.remove(&occurrence));
                }
                (Some(Err(refused)), None) => {
                    self.refused.get_or_insert(refused);
                }
                (None, _) => {}
            }
        }
        if self.found.is_some() && (started.is_closed || started.is_over) {
            // It starts no others. Otherwise this may be a late answer, from before others were to be started.
            part.pieces.retain(|own| part.started.contains(&(own.piece, own.number)));
        }
        let mut step = self.proceed(group);
        if let Step::Send(requests) = &mut step {
            requests.extend(of_merged);
            if is_first {
                requests.extend(self.refusing());
            }
        }
        step
    }

    /// A partition has not started the call.
    fn on_not_started(&mut self, at: u16, why: NotStarted) -> Step {
        if why == NotStarted::Forgotten {
            return Step::NotStarted(why);
        }
        let Some(part) = self.parts.get_mut(&at).filter(|part| part.started.is_empty()) else {
            return Step::Send(Vec::new());
        };
        part.not_started = Some(why);
        if self.insists {
            // The partition has answered a request from before that was known. The timer repeats it.
            return Step::Send(Vec::new());
        }
        // A part without pieces may hold rows. It does not if the call writes nothing.
        let reads = self.found.is_some();
        let is_refused = |part: &Part| part.not_started.is_some() || reads && part.is_untouched();
        match self.parts.values().all(is_refused) {
            true => Step::NotStarted(why),
            false => Step::Send(Vec::new()),
        }
    }

    /// The call was executed at a partition.
    fn on_executed(&mut self, at: u16, outputs: &[Executed]) -> Step {
        let set = self.set.clone();
        let procedure = procedure(&set, &self.of);
        let none = Step::Send(Vec::new());
        let Some(part) = self.parts.get_mut(&at).filter(|_| self.commit.is_some()) else {
            return none;
        };
        for Executed { piece, number, outputs } in outputs {
            if let Some(found) = &mut self.found {
                found.insert((*piece, *number), Ok(outputs.clone()));
            } else if self.call.executed(procedure, (*piece, *number), outputs.clone()).is_err() {
                return none; // No correct server sends this.
            }
        }
        part.executed = true;
        let has_executed =
            self.found.is_some() || self.refused.is_some() || self.call.has_executed_all();
        if !has_executed || !self.parts.values().all(|part| part.executed) {
            return none;
        }
        self.results(procedure)
    }

    /// The requests to partitions that have not started the call, as none had.
    fn refusing(&self) -> Requests {
        let mut requests = self.unanswered();
        requests.retain(|(at, _)| self.parts[at].not_started.is_some());
        requests
    }

    /// The requests that were not answered.
    pub(super) fn unanswered(&self) -> Requests {
        let mut requests = self.unanswered_of_parts();
        let holding = self.holding.iter();
        requests.extend(holding.flat_map(|holding| self.ask(holding, holding.unanswered())));
        requests
    }

    fn unanswered_of_parts(&self) -> Requests {
        let parts = self.parts.iter();
        match &self.commit {
            Some(commit) => {
                let waits = parts.filter(|(_, part)| !part.executed);
                waits.map(|(at, _)| (*at, Request::Commit(commit.clone()))).collect()
            }
            None => {
                let waits = parts.filter(|(_, part)| !part.is_started());
                waits.map(|(at, part)| (*at, self.start_at(part))).collect()
            }
        }
    }

    /// Starts what can be started, and commits if that is all.
    fn proceed(&mut self, group: &Group) -> Step {
        if self.found.is_some() {
            let has_started = self.commit.is_none() && self.parts.values().all(Part::is_started);
            return if has_started { Step::Started } else { Step::Send(Vec::new()) };
        }
        let set = self.set.clone();
        let procedure = procedure(&set, &self.of);
        let mut requests: BTreeMap<u16, Vec<Occurrence>> = BTreeMap::new();
        if self.refused.is_none() && self.holding.is_none() {
            match self.call.start(procedure) {
                Ok(started) => {
                    let later = core::mem::take(&mut self.later);
                    for start in later.into_iter().chain(started) {
                        let (at, occurrence) = place(&set, procedure, group, start);
                        match group_of(set.merged(self.of.procedure), occurrence.piece) {
                            Some(of) => self.merged.push((of, at, occurrence)),
                            None => {
                                self.add(at, occurrence.clone());
                                requests.entry(at).or_default().push(occurrence);
                            }
                        }
                    }
                }
                Err(refused) => self.refused = Some(refused),
            }
        }
        if !requests.is_empty() {
            let send = |(at, pieces)| (at, self.start(pieces));
            return Step::Send(requests.into_iter().map(send).collect());
        }
        if self.refused.is_none() && !self.merged.is_empty() {
            return Step::Send(self.begin_merged());
        }
        let has_started = self.refused.is_some() || self.call.has_started_all();
        let has_started = has_started && self.holding.is_none();
        if self.commit.is_some() || !has_started || !self.parts.values().all(Part::is_started) {
            return Step::Send(Vec::new());
        }
        if self.parts.is_empty() {
            return self.results(procedure);
        }
        Step::Send(self.commit())
    }

    /// Commits the call with the pieces that were started.
    pub(super) fn commit(&mut self) -> Requests {
        let edges: BTreeSet<Edge> =
            self.parts.values().flat_map(|part| &part.edges).copied().collect();
        let vertex = Vertex {
            txn: self.txn,
            participants: self.participants().collect(),
            edges: edges.into_iter().collect(),
            floor_us: 0,
        };
        let ancestors = Ancestors {
            commit: core::mem::take(&mut self.committing).into_values().collect(),
            cycles: core::mem::take(&mut self.cycles),
            executed: core::mem::take(&mut self.executed).into_iter().collect(),
        };
        let commit = Arc::new(Commit { vertex, ancestors });
        self.commit = Some(commit.clone());
        self.parts.keys().map(|at| (*at, Request::Commit(commit.clone()))).collect()
    }

    fn add(&mut self, at: u16, piece: Occurrence) {
        let part = self.parts.entry(at).or_default();
        part.pieces.push(piece);
        part.is_over = false;
    }

    // Merged pieces (002 §4.2).

    /// Begins a merged piece, if all simple pieces were executed that could be started.
    fn begin_merged(&mut self) -> Requests {
        if self.holding.is_some() || !self.parts.values().all(Part::has_started_known) {
            return Vec::new();
        }
        let set = self.set.clone();
        let all = set.merged(self.of.procedure);
        let is_ready = |of: &u16| {
            all[usize::from(*of)].after.iter().all(|before| self.call.has_executed(*before))
        };
        let Some(of) = self.merged.iter().map(|(of, ..)| *of).find(is_ready) else {
            return Vec::new(); // Only a set that the offline checker has not made leads here.
        };
        let (own, others): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.merged).into_iter().partition(|(other, ..)| *other == of);
        self.merged = others;
        let first: Vec<(u16, Occurrence)> =
            own.into_iter().map(|(_, at, piece)| (at, piece)).collect();
        let is_whole = all[usize::from(of)].pieces.iter().all(|id| self.call.has_started(*id));
        let at = first[0].0;
        if is_whole && first.iter().all(|(other, _)| *other == at) {
            // A leader starts the pieces of one request at one moment.
            let pieces: Vec<Occurrence> = first.into_iter().map(|(_, piece)| piece).collect();
            pieces.iter().for_each(|piece| self.add(at, piece.clone()));
            return vec![(at, self.start(pieces))];
        }
        let holding = Holding::new(of, self.call.clone(), first);
        let asks = holding.unanswered();
        for ask in &asks {
            self.parts.entry(ask.at).or_default();
        }
        let requests = self.ask(&holding, asks);
        self.holding = Some(Box::new(holding));
        requests
    }

    fn ask(&self, holding: &Holding, asks: Vec<Ask>) -> Requests {
        let request = |Ask { at, releases, pieces }| {
            let (txn, call, insist) = (self.txn, self.of.clone(), self.insists);
            let start = Start { txn, call, insist, pieces };
            let hold = Hold { start, group: holding.group, attempt: holding.attempt };
            (at, if releases { Request::Release(hold) } else { Request::Hold(hold) })
        };
        asks.into_iter().map(request).collect()
    }

    /// A partition has answered for a merged piece.
    fn on_hold(&mut self, at: u16, reply: HoldReply, group: &Group) -> Step {
        let HoldReply { group: of, attempt, end, .. } = reply;
        let due = self.holding.take_if(|holding| holding.group == of && holding.asks(at));
        let Some(mut holding) = due else {
            return Step::Send(Vec::new());
        };
        self.parts.entry(at).or_default().not_started = None;
        let is_first = !core::mem::replace(&mut self.insists, true);
        let next = match end {
            HoldEnd::Held(pieces) => self.on_held(at, attempt, pieces, &mut holding, group),
            HoldEnd::NotHeld => Next::Ask(holding.on_failed(attempt)),
            HoldEnd::Released => Next::Ask(holding.on_released(at, attempt)),
        };
        let mut requests = self.take(holding, next);
        if is_first {
            requests.extend(self.refusing());
        }
        match self.proceed(group) {
            Step::Send(more) => {
                requests.extend(more);
                Step::Send(requests)
            }
            step => step,
        }
    }

    /// A partition has started the pieces of a merged piece for which it was asked to hold rows; or it has executed the call
    /// without them, so the attempt has failed.
    fn on_started_merged(&mut self, at: u16, started: &Started, group: &Group) -> Requests {
        let Some(mut holding) = self.holding.take_if(|holding| holding.asks(at)) else {
            return Vec::new();
        };
        let succeeded = started.attempts.iter().find(|(of, _)| *of == holding.group);
        let next = match succeeded.map(|(_, attempt)| *attempt) {
            Some(attempt) if attempt == holding.attempt => {
                self.on_held(at, attempt, started.pieces.clone(), &mut holding, group)
            }
            // What this attempt has found may be something else than what the one that has succeeded has found.
            Some(attempt) if attempt > holding.attempt => Next::Ask(holding.on_failed(attempt - 1)),
            None if started.is_over => Next::Ask(holding.on_failed(holding.attempt)),
            _ => Next::Ask(Vec::new()),
        };
        self.take(holding, next)
    }

    fn on_held(
        &self,
        at: u16,
        attempt: u64,
        pieces: Vec<StartedPiece>,
        holding: &mut Holding,
        group: &Group,
    ) -> Next {
        let procedure = procedure(&self.set, &self.of);
        let merged: &MergedPiece = &self.set.merged(self.of.procedure)[usize::from(holding.group)];
        let place = |begun| place(&self.set, procedure, group, begun);
        holding.on_held(at, attempt, pieces, (procedure, merged), place)
    }

    /// Goes on with a merged piece.
    fn take(&mut self, holding: Box<Holding>, next: Next) -> Requests {
        match next {
            Next::Ask(asks) => {
                for ask in &asks {
                    self.parts.entry(ask.at).or_default();
                }
                let requests = self.ask(&holding, asks);
                self.holding = Some(holding);
                requests
            }
            Next::Held(held) => {
                let HeldAll { call, pieces, later, refused } = *held;
                self.call = call;
                self.later = later;
                if let Some(refused) = refused {
                    self.refused.get_or_insert(refused);
                }
                let mut requests = Vec::with_capacity(pieces.len());
                for (at, pieces) in pieces {
                    pieces.iter().for_each(|piece| self.add(at, piece.clone()));
                    requests.push((at, self.start(pieces)));
                }
                requests
            }
        }
    }

    fn results(&self, procedure: &Procedure) -> Step {
        Step::Executed(match &self.refused {
            Some(refused) => Err(refused.clone()),
            // What it has found says whether these were all pieces of the call.
            None if self.found.is_some() => Ok(Vec::new()),
            None => self.call.results(procedure),
        })
    }

    fn start_at(&self, part: &Part) -> Request {
        self.start(part.pieces.clone())
    }

    fn start(&self, pieces: Vec<Occurrence>) -> Request {
        start(self.txn, &self.of, self.insists, pieces)
    }
}

fn start(txn: Version, call: &Arc<CallOf>, insist: bool, pieces: Vec<Occurrence>) -> Request {
    Request::Start(Start { txn, call: call.clone(), insist, pieces })
}

/// An occurrence of a piece, and its partition.
fn place(
    set: &Registered,
    procedure: &Procedure,
    group: &Group,
    Begun { piece, occurrence, arguments }: Begun,
) -> (u16, Occurrence) {
    let declared = &procedure.pieces[usize::from(piece.0)];
    let leading = declared.placement(set.tables(), &arguments);
    let at = group.partition_of(&placement_key(&leading));
    (at, Occurrence { piece, number: occurrence, arguments })
}

fn procedure<'s>(set: &'s Registered, of: &CallOf) -> &'s Procedure {
    set.procedure(of.procedure).expect("the call was checked")
}
